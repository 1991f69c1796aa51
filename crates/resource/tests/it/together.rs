//! Threads at once: the same promises as for one, while memory is released, gathered and tidied, and
//! while streams come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use floodmark_resource::{
    Address, AllocError, Arena, ArenaProps, FailureCallback, FixedSize, FixedSizeProps, Moment, Pool,
    PoolProps, Resource, Retry, Simulated, Stream,
};
use floodmark_testkit::Random;

/// Where memory was last used: end, start, moment; and what is live: start, end.
#[derive(Default)]
struct Ledger {
    used: BTreeMap<u64, (u64, Moment)>,
    live: BTreeMap<u64, u64>,
}

impl Ledger {
    fn begin(&mut self, start: u64, bytes: u64) -> Vec<Moment> {
        let end = start + bytes;
        let before = self.live.range(..end).next_back();
        assert!(before.is_none_or(|(_, before_end)| *before_end <= start), "handed out twice");
        self.live.insert(start, end);
        let overlapping = self.used.range(start + 1..).take_while(|(_, (begin, _))| *begin < end);
        overlapping.map(|(_, (_, moment))| *moment).collect()
    }

    fn end(&mut self, start: u64, moment: Moment) {
        let end = self.live.remove(&start).expect("it was live");
        let old: Vec<u64> = self
            .used
            .range(start + 1..)
            .take_while(|(_, (begin, _))| *begin < end)
            .map(|(end, _)| *end)
            .collect();
        for old_end in old {
            let (old_start, old_moment) = self.used.remove(&old_end).expect("just found");
            if old_start < start {
                self.used.insert(start, (old_start, old_moment));
            }
            if old_end > end {
                self.used.insert(old_end, (end, old_moment));
            }
        }
        self.used.insert(end, (start, moment));
    }
}

/// Four threads, each with streams that come and go, one of which releases now and then.
fn play<R: Resource>(make: impl FnOnce(Arc<Simulated>) -> R, largest: u64) {
    let device = Arc::new(Simulated::new(256 << 20));
    let resource = make(Arc::clone(&device));
    let ledger = Mutex::new(Ledger::default());
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let (device, resource, ledger) = (&device, &resource, &ledger);
            scope.spawn(move || {
                let order = device.streams();
                let mut random = Random::new(number);
                let (mut lasting, mut foreign) = (order.create(), order.create());
                let mut live: Vec<(u64, u64, Stream)> = Vec::new();
                for step in 0..3_000 {
                    let ends = step % 250 == 249 || step == 2_999;
                    if random.happens(0.55) && !ends {
                        let stream = if random.happens(0.5) { lasting.stream() } else { foreign.foreign() };
                        let bytes = 1 + random.below(largest);
                        let Ok(Address(start)) = resource.allocate(bytes, 256, stream) else { continue };
                        let moments = ledger.lock().expect("no panic").begin(start, bytes);
                        for moment in moments {
                            assert!(order.covers(stream, moment), "{start:#x} was handed on too early");
                        }
                        live.push((start, bytes, stream));
                    } else {
                        // All blocks of a stream go before it ends.
                        while let Some(last) = live.len().checked_sub(1) {
                            let (start, bytes, stream) =
                                live.swap_remove(random.below(last as u64 + 1) as usize);
                            let moment = order.submit(stream);
                            ledger.lock().expect("no panic").end(start, moment);
                            // SAFETY: nothing is behind simulated memory.
                            unsafe { resource.deallocate(Address(start), bytes, 256, stream) };
                            if !ends {
                                break;
                            }
                        }
                    }
                    if ends {
                        lasting = order.create();
                        std::mem::replace(&mut foreign, order.create()).vanish();
                    }
                    if number == 0 && step % 100 == 50 {
                        resource.release();
                    }
                }
                drop(lasting);
            });
        }
    });
    assert_eq!((resource.room().live_bytes, resource.room().live_blocks), (0, 0));
    resource.release();
    drop(resource);
    assert_eq!(device.room().live_bytes, 0);
}

#[test]
fn a_growing_pool_serves_threads_in_order() {
    play(|device| Pool::new(device, PoolProps::default()).unwrap(), 1 << 20);
}

#[test]
fn a_pool_that_runs_out_serves_threads_in_order() {
    let props = PoolProps { initial_bytes: 48 << 20, maximum_bytes: Some(48 << 20) };
    play(|device| Pool::new(device, props).unwrap(), 2 << 20);
}

#[test]
fn a_pool_over_a_pool_serves_threads_in_order() {
    let make = |device| {
        let lower = Pool::new(device, PoolProps { initial_bytes: 64 << 20, maximum_bytes: None }).unwrap();
        Pool::new(lower, PoolProps::default()).unwrap()
    };
    play(make, 1 << 20);
}

#[test]
fn an_arena_serves_threads_in_order() {
    play(|device| Arena::new(device, ArenaProps::new(64 << 20)).unwrap(), 1 << 20);
}

#[test]
fn blocks_of_one_size_serve_threads_in_order() {
    play(
        |device| FixedSize::new(device, FixedSizeProps { block_bytes: 64 << 10, blocks: 64 }).unwrap(),
        64 << 10,
    );
}

#[test]
fn requests_beyond_all_memory_are_refused_at_once() {
    let device = || Simulated::new(u64::MAX);
    let small = || Simulated::new(256 << 20);
    let resources: Vec<Box<dyn Resource>> = vec![
        Box::new(small()),
        Box::new(Pool::new(small(), PoolProps { initial_bytes: 64 << 20, maximum_bytes: None }).unwrap()),
        Box::new(
            Pool::new(device(), PoolProps { initial_bytes: 64 << 20, maximum_bytes: Some(1 << 40) }).unwrap(),
        ),
        Box::new(Arena::new(small(), ArenaProps::new(64 << 20)).unwrap()),
        Box::new(FixedSize::new(small(), FixedSizeProps::default()).unwrap()),
    ];
    for resource in resources {
        for bytes in [1_u64 << 50, 1 << 62, (1 << 62) + 1, 1 << 63, u64::MAX - 300, u64::MAX] {
            let error = resource.allocate(bytes, 256, Stream::DEFAULT).expect_err("more than there is");
            let details = error.out_of_memory().expect("out of memory");
            assert_eq!(details.request_bytes, bytes, "{error}");
        }
        let block = resource.allocate(1000, 256, Stream::DEFAULT).expect("it still works");
        // SAFETY: allocated above.
        unsafe { resource.deallocate(block, 1000, 256, Stream::DEFAULT) };
    }
}

#[test]
fn a_hopeless_request_leaves_the_pool_as_it_was() {
    let props = PoolProps { initial_bytes: 64 << 20, maximum_bytes: Some(128 << 20) };
    let pool = Pool::new(Simulated::new(1 << 30), props).unwrap();
    let error = pool.allocate(1 << 40, 256, Stream::DEFAULT).unwrap_err();
    assert_eq!(pool.pool_bytes(), 64 << 20, "{error}");
}

#[test]
fn an_upstream_may_call_the_pool_that_calls_it() {
    let slot: Arc<Mutex<Option<std::sync::Weak<dyn Resource>>>> = Arc::default();
    let inside = Arc::clone(&slot);
    let callback = move |_: u64, _: &AllocError| {
        let pool = inside.lock().unwrap().as_ref().and_then(std::sync::Weak::upgrade);
        if let Some(pool) = pool {
            assert_eq!(pool.release(), 0, "not while it grows");
            let small = pool.allocate(256, 256, Stream::DEFAULT);
            if let Ok(block) = small {
                // SAFETY: allocated above.
                unsafe { pool.deallocate(block, 256, 256, Stream::DEFAULT) };
            }
        }
        Retry::GiveUp
    };
    let upstream = FailureCallback::new(Simulated::new(1 << 20), callback);
    let pool: Arc<dyn Resource> = Arc::new(Pool::new(upstream, PoolProps::default()).unwrap());
    *slot.lock().unwrap() = Some(Arc::downgrade(&pool));
    assert!(pool.allocate(8 << 20, 256, Stream::DEFAULT).unwrap_err().is_out_of_memory());
}

#[test]
fn nobody_waits_while_there_is_memory_that_nobody_used() {
    let device = Arc::new(Simulated::new(64 << 20));
    let props = PoolProps { initial_bytes: 64 << 20, maximum_bytes: None };
    let pool = Pool::new(Arc::clone(&device), props).unwrap();
    let (one, two) = (device.streams().create(), device.streams().create());
    for bytes in [1000_u64, 30 << 20] {
        let block = pool.allocate(bytes, 256, one.stream()).unwrap();
        device.streams().submit(one.stream());
        // SAFETY: nothing is behind simulated memory.
        unsafe { pool.deallocate(block, bytes, 256, one.stream()) };
        pool.allocate(bytes, 256, two.stream()).unwrap();
    }
    assert_eq!(device.streams().waits(), 0);
}
