//! What every resource must do, on every resource that needs no GPU.

use std::sync::Arc;
use std::sync::mpsc::channel;

use floodmark_resource::{
    Address, Aligned, Arena, ArenaProps, Binning, DeviceBuffer, FixedSize, FixedSizeProps, Host, Limiting,
    Pool, PoolProps, Resource, Simulated, Statistics, Stream, ThreadSafe, Tracking, current,
};
use floodmark_testkit::Random;

const MIB: u64 = 1 << 20;

fn pool() -> Pool<Simulated> {
    Pool::new(Simulated::new(1 << 30), PoolProps::default()).expect("nothing is asked for yet")
}

/// All of them, each by itself.
fn all() -> Vec<Arc<dyn Resource>> {
    let small = || Simulated::new(1 << 30);
    vec![
        Arc::new(Host::new()),
        Arc::new(small()),
        Arc::new(pool()),
        Arc::new(
            Pool::new(Host::new(), PoolProps { initial_bytes: MIB, maximum_bytes: None }).expect("1 MiB"),
        ),
        Arc::new(Arena::new(small(), ArenaProps::new(512 * MIB)).expect("half of it")),
        Arc::new(
            FixedSize::new(small(), FixedSizeProps { block_bytes: 4 * MIB, blocks: 16 }).expect("64 MiB"),
        ),
        Arc::new(Binning::with_powers(pool(), 10, 12).expect("less than 1 MiB")),
        Arc::new(Statistics::new(Tracking::new(Limiting::new(pool(), 1 << 30)))),
        Arc::new(Aligned::new(ThreadSafe::new(pool()), 4096, 65536)),
    ]
}

fn give(resource: &dyn Resource, (address, bytes): (Address, u64), stream: Stream) {
    // SAFETY: allocated by the caller with these sizes, and used by nobody.
    unsafe { resource.deallocate(address, bytes, 256, stream) };
}

#[test]
fn words_and_mebibytes_come_and_go_on_every_stream() {
    for resource in all() {
        let name = resource.name();
        for stream in [Stream::DEFAULT, Stream::PER_THREAD, Stream::lasting(0x5000), Stream::foreign(0x6000)]
        {
            for bytes in [1, 8, 1024, MIB, 4 * MIB] {
                let block = resource.allocate(bytes, 256, stream).expect(name);
                assert!(!block.is_null() && block.0 % 256 == 0, "{name}");
                give(&*resource, (block, bytes), stream);
            }
            assert_eq!(resource.allocate(0, 256, stream).map(Address::is_null), Ok(true), "{name}");
        }
        assert_eq!(resource.room().live_blocks, 0, "{name}");
    }
}

#[test]
fn random_blocks_in_random_order_all_come_back() {
    for resource in all() {
        let mut random = Random::new(3);
        let mut live: Vec<(Address, u64)> = Vec::new();
        for _ in 0..2000 {
            if live.len() < 60 && random.happens(0.55) {
                let bytes = 1 + random.below(2 * MIB);
                live.push((resource.allocate(bytes, 64, Stream::DEFAULT).expect(resource.name()), bytes));
            } else if !live.is_empty() {
                let which = random.below(live.len() as u64) as usize;
                give(&*resource, live.swap_remove(which), Stream::DEFAULT);
            }
        }
        for block in live {
            give(&*resource, block, Stream::DEFAULT);
        }
        assert_eq!((resource.room().live_bytes, resource.room().live_blocks), (0, 0), "{}", resource.name());
    }
}

#[test]
fn threads_share_every_resource() {
    for resource in all() {
        std::thread::scope(|scope| {
            for number in 0..4_u64 {
                let resource = &resource;
                scope.spawn(move || {
                    let stream =
                        if number == 0 { Stream::DEFAULT } else { Stream::lasting(0x7000 + 16 * number) };
                    let mut random = Random::new(number);
                    for _ in 0..200 {
                        let sizes = [1 + random.below(MIB), 1 + random.below(4096)];
                        let blocks = sizes.map(|bytes| {
                            (resource.allocate(bytes, 256, stream).expect("there is room"), bytes)
                        });
                        for block in blocks {
                            give(&**resource, block, stream);
                        }
                    }
                });
            }
        });
        assert_eq!(resource.room().live_blocks, 0, "{}", resource.name());
    }
}

#[test]
fn a_block_may_be_given_back_by_another_thread_on_the_same_stream_or_another() {
    let pairs = [
        (Stream::DEFAULT, Stream::DEFAULT),
        (Stream::PER_THREAD, Stream::PER_THREAD),
        (Stream::lasting(0x8000), Stream::lasting(0x8000)),
        (Stream::lasting(0x8000), Stream::lasting(0x9000)),
    ];
    for resource in all() {
        for (here, there) in pairs {
            let (send, receive) = channel::<(Address, u64)>();
            std::thread::scope(|scope| {
                let resource = &resource;
                scope.spawn(move || receive.iter().for_each(|block| give(&**resource, block, there)));
                for number in 0..50_u64 {
                    let bytes = 1 + number * 5000;
                    send.send((resource.allocate(bytes, 256, here).expect("there is room"), bytes))
                        .expect("it listens");
                }
                drop(send);
            });
            assert_eq!(resource.room().live_blocks, 0, "{}", resource.name());
        }
    }
}

#[test]
fn pools_of_two_devices_keep_to_their_own() {
    let devices = [Arc::new(Simulated::new(64 * MIB)), Arc::new(Simulated::new(64 * MIB))];
    let pools =
        devices.each_ref().map(|device| Pool::new(Arc::clone(device), PoolProps::default()).expect("a pool"));
    let block = pools[0].allocate(MIB, 256, Stream::DEFAULT).expect("there is room");
    assert_eq!(devices.each_ref().map(|device| device.room().live_bytes > 0), [true, false]);
    give(&pools[0], (block, MIB), Stream::DEFAULT);
    assert!(pools[0].release() >= MIB && pools[1].release() == 0);
}

#[test]
fn a_buffer_keeps_its_resource_alive() {
    let device = Arc::new(Simulated::new(64 * MIB));
    let pool: Arc<dyn Resource> =
        Arc::new(Pool::new(Arc::clone(&device), PoolProps::default()).expect("a pool"));
    let buffer = DeviceBuffer::new(MIB, Stream::DEFAULT, Arc::clone(&pool)).expect("there is room");
    drop(pool);
    assert!(device.room().live_bytes >= MIB);
    drop(buffer);
    assert_eq!(device.room().live_bytes, 0);
}

#[test]
fn the_resource_before_a_context_is_there_again_after_it() {
    // A device that no other test uses.
    let device = 77;
    let first: Arc<dyn Resource> = Arc::new(pool());
    current::set_current(device, Arc::clone(&first));
    let counting: Arc<dyn Resource> = Arc::new(Statistics::new(Arc::clone(&first)));
    let before = current::set_current(device, counting).expect("the first one");
    assert_eq!(current::current(device).map(|resource| resource.name()), Ok("statistics"));
    current::set_current(device, before);
    assert!(Arc::ptr_eq(&current::current(device).expect("it was set"), &first));
    current::reset(device);
}

#[test]
fn growth_without_a_limit_asks_for_what_the_upstream_still_has() {
    // 6,000 bytes, in steps of 256: 1,024 and 4,096, then what is left of them.
    let upstream = Limiting::new(Simulated::new(MIB), 6000);
    let pool = Pool::new(upstream, PoolProps::default()).expect("nothing is asked for yet");
    let sizes = [(1000, 1024), (4000, 1024 + 4096), (500, 1024 + 4096 + 768)];
    for (bytes, reserved) in sizes {
        assert!(pool.allocate(bytes, 256, Stream::DEFAULT).is_ok());
        assert_eq!(pool.pool_bytes(), reserved, "after {bytes}");
    }
    assert_eq!(pool.room().free_bytes(), 256);
    assert!(pool.allocate(2000, 256, Stream::DEFAULT).is_err());
}
