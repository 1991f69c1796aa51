//! The current resource of a device. Each test has devices of its own, since there is one registry.

use std::sync::Arc;

use floodmark_event::NO_DEVICE;
use floodmark_resource::current::{current, reset, set_current, set_defaults};
use floodmark_resource::{AllocError, Resource, Result, Simulated};

use crate::blocks::{give, take};

#[test]
fn a_resource_stays_current_until_another_is_set() {
    let device = 70;
    assert!(reset(device).is_none());
    let first: Arc<dyn Resource> = Arc::new(Simulated::new(1024));
    let second: Arc<dyn Resource> = Arc::new(Simulated::new(2048));
    set_current(device, Arc::clone(&first));
    assert!(Arc::ptr_eq(&current(device).unwrap(), &first));
    let block = take(&current(device).unwrap(), 256);
    let before = set_current(device, Arc::clone(&second)).expect("there was one");
    assert!(Arc::ptr_eq(&before, &first) && Arc::ptr_eq(&current(device).unwrap(), &second));
    // The block is still the first one's.
    assert_eq!(first.room().live_bytes, 256);
    give(&first, block);
    assert!(Arc::ptr_eq(&reset(device).expect("one was set"), &second));
}

#[test]
fn the_host_always_has_one() {
    let host = current(NO_DEVICE).unwrap();
    assert_eq!(host.name(), "host");
    assert!(Arc::ptr_eq(&host, &current(NO_DEVICE).unwrap()));
}

/// Only devices below 90 have memory.
fn make(device: i32) -> Result<Arc<dyn Resource>> {
    if device < 90 {
        return Ok(Arc::new(Simulated::new(1 << 20)));
    }
    Err(AllocError::Device { act: "opening the device", message: format!("there is no device {device}") })
}

#[test]
fn a_device_begins_with_what_its_maker_makes() {
    // Before anybody said how to make one; no other test asks for a device that was not set.
    let error = current(80).err().expect("nobody knows the device");
    assert!(error.to_string().contains("device 80 has none"), "{error}");
    set_defaults(make);
    let made = current(80).unwrap();
    assert!(Arc::ptr_eq(&made, &current(80).unwrap()));
    let other: Arc<dyn Resource> = Arc::new(Simulated::new(256));
    let before = set_current(80, other).expect("the first one");
    assert!(Arc::ptr_eq(&before, &made));
    reset(80);
    assert!(Arc::ptr_eq(&made, &current(80).unwrap()));
    assert_eq!(current(95).err().unwrap().to_string(), "opening the device: there is no device 95");
}

#[test]
fn threads_see_one_resource_or_the_other() {
    let device = 71;
    let resources: Vec<Arc<dyn Resource>> =
        (0..2).map(|_| Arc::new(Simulated::new(1 << 20)) as Arc<dyn Resource>).collect();
    set_current(device, Arc::clone(&resources[0]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..500 {
                    set_current(device, Arc::clone(&resources[round % 2]));
                }
            });
            scope.spawn(|| {
                for _ in 0..500 {
                    let resource = current(device).expect("one is set");
                    let block = take(&resource, 300);
                    give(&resource, block);
                }
            });
        }
    });
    assert!(resources.iter().all(|resource| resource.room().live_bytes == 0));
    reset(device);
}
