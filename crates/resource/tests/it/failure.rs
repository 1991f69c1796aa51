//! Functions that are asked when there is no memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use floodmark_resource::{
    AllocError, Callback, Catch, FailureCallback, Memory, OutOfMemory, Resource as _, Result, Retry,
    Simulated, Statistics, Stream,
};

use crate::blocks::{MIB, give, take, try_take};

#[test]
fn it_tries_once_more_and_then_the_failure_stands() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let resource = FailureCallback::new(Statistics::new(Simulated::new(MIB)), move |bytes, error: &_| {
        let error: &AllocError = error;
        assert!(bytes == 2 * MIB && error.is_out_of_memory());
        if counted.fetch_add(1, Ordering::Relaxed) == 0 { Retry::Again } else { Retry::GiveUp }
    });
    let error = try_take(&resource, 2 * MIB).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().resource, "simulated");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let handle = floodmark_resource::find::<floodmark_resource::StatisticsHandle>(&resource).unwrap();
    assert_eq!(handle.requests().failures, 2);
}

#[test]
fn what_the_function_frees_helps() {
    let device = Arc::new(Simulated::new(MIB));
    let hoard = Mutex::new(vec![take(&device, MIB / 2), take(&device, MIB / 2)]);
    let below = Arc::clone(&device);
    let resource = FailureCallback::new(device, move |_, _: &AllocError| {
        let Some(block) = hoard.lock().unwrap().pop() else { return Retry::GiveUp };
        give(&below, block);
        Retry::Again
    });
    let block = take(&resource, MIB);
    assert!(try_take(&resource, 1).is_err());
    give(&resource, block);
}

fn refuse(_: u64, _: Stream) -> Result<floodmark_resource::Address> {
    Err(AllocError::Refused { message: "no".into() })
}

#[test]
fn other_failures_are_caught_only_where_asked_for() {
    let refusing = || Callback::new(Memory::HOST, refuse, |_, _, _| {});
    let calls = Arc::new(AtomicU64::new(0));
    let callback = || {
        let calls = Arc::clone(&calls);
        move |_: u64, _: &AllocError| {
            if calls.fetch_add(1, Ordering::Relaxed) < 3 { Retry::Again } else { Retry::GiveUp }
        }
    };
    let error = try_take(&FailureCallback::new(refusing(), callback()), 1).unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let all = FailureCallback::new(refusing(), callback()).catching(Catch::Everything);
    assert_eq!(try_take(&all, 1).unwrap_err().to_string(), "no");
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[test]
fn an_error_of_the_function_takes_the_place_of_the_failure() {
    let resource = FailureCallback::new(Simulated::new(256), |_, _: &AllocError| -> Result<Retry> {
        Err(AllocError::Refused { message: "MyError".into() })
    });
    assert_eq!(try_take(&resource, 512), Err(AllocError::Refused { message: "MyError".into() }));
}

#[test]
fn alignment_and_stream_are_passed_on_each_time() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let below = Callback::new(
        Memory::HOST,
        move |bytes, stream| {
            log.lock().unwrap().push((bytes, stream));
            Err(OutOfMemory::default().into())
        },
        |_, _, _| {},
    );
    let again = AtomicU64::new(2);
    let resource = FailureCallback::new(below, move |_, _: &AllocError| {
        if again.fetch_sub(1, Ordering::Relaxed) > 0 { Retry::Again } else { Retry::GiveUp }
    });
    let stream = Stream::foreign(0x70);
    assert!(resource.allocate(100, 256, stream).is_err());
    assert_eq!(*seen.lock().unwrap(), [(100, stream); 3]);
    // An alignment that the upstream cannot give reaches it, and is no lack of memory.
    assert!(matches!(resource.allocate(100, 512, stream), Err(AllocError::Invalid { alignment: 512, .. })));
}
