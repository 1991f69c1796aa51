//! Resources made of functions.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use floodmark_resource::{
    Address, AllocError, Callback, Host, Memory, OutOfMemory, Resource, Result, Room, Simulated, Stream,
};

use crate::blocks::{Block, give, take, try_take};

#[test]
fn both_functions_are_called_with_what_was_asked_for() {
    let text = Arc::new(Mutex::new(String::new()));
    let (taken, given) = (Arc::clone(&text), Arc::clone(&text));
    let host = Arc::new(Host::new());
    let below = Arc::clone(&host);
    let resource = Callback::new(
        Memory::HOST,
        {
            let host = Arc::clone(&host);
            move |bytes, stream| {
                writeln!(taken.lock().unwrap(), "Allocating {bytes} bytes").unwrap();
                host.allocate(bytes, 256, stream)
            }
        },
        move |address, bytes, stream| {
            writeln!(given.lock().unwrap(), "Deallocating {bytes} bytes").unwrap();
            give(&below, Block { address, bytes, stream });
        },
    );
    let block = take(&resource, 256);
    assert_eq!(resource.room().live_bytes, 256);
    give(&resource, block);
    assert_eq!(*text.lock().unwrap(), "Allocating 256 bytes\nDeallocating 256 bytes\n");
    assert_eq!((resource.room(), host.room()), (Room::default(), Room::default()));
    let empty = take(&resource, 0);
    assert!(empty.address.is_null());
    give(&resource, empty);
    assert_eq!(text.lock().unwrap().lines().count(), 2);
}

fn failing(error: AllocError) -> impl Resource {
    let fail = move |_: u64, _: Stream| -> Result<Address> { Err(error.clone()) };
    Callback::new(Memory::HOST, fail, |_, _, _| {})
}

#[test]
fn errors_keep_their_sort_and_their_words() {
    let refused = AllocError::Refused { message: "I do not feel like it".into() };
    let resource = failing(refused.clone());
    assert_eq!(try_take(&resource, 8), Err(refused.clone()));
    assert_eq!(refused.to_string(), "I do not feel like it");
    let exhausted = AllocError::from(OutOfMemory {
        resource: "mine",
        request_bytes: 8,
        upstream: Some(Box::new(refused)),
        ..OutOfMemory::default()
    });
    let error = try_take(&failing(exhausted), 8).unwrap_err();
    assert!(error.is_out_of_memory() && error.to_string().contains("I do not feel like it"), "{error}");
    assert_eq!(resource.room(), Room::default());
}

#[test]
fn it_has_the_memory_and_the_order_it_was_given() {
    let device = Simulated::new(4096);
    let resource = Callback::new(device.memory(), |_, _| Ok(Address(256)), |_, _, _| {})
        .ordered_by(Arc::clone(device.streams()) as Arc<dyn floodmark_resource::StreamOrder>);
    assert_eq!(resource.memory(), device.memory());
    let stream = device.streams().create();
    assert_eq!(resource.order().identity(stream.stream()), device.order().identity(stream.stream()));
    assert!(resource.allocate(1, 512, stream.stream()).is_err());
    assert_eq!(resource.name(), "callback");
}
