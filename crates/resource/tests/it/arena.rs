//! The arena's rules, and those of blocks of one size and of bins.

use std::sync::Arc;

use floodmark_resource::arena::{Rounding, size_class};
use floodmark_resource::{
    Address, Arena, ArenaProps, BinMemory, Binning, Cause, FixedSize, FixedSizeProps, Pool, PoolProps,
    Resource, Result, Simulated, Stream,
};
use floodmark_testkit::TempDir;

const MIB: u64 = 1 << 20;

fn allocate(resource: &impl Resource, bytes: u64, stream: Stream) -> Result<Address> {
    resource.allocate(bytes, 256, stream)
}

fn free(resource: &impl Resource, address: Address, bytes: u64, stream: Stream) {
    // SAFETY: nothing is behind simulated memory.
    unsafe { resource.deallocate(address, bytes, 256, stream) };
}

#[test]
fn size_classes_are_shared_by_requests_of_nearly_the_same_size() {
    let kib = 1024;
    let rows = [(0, 0), (8, 256), (256, 256), (264, 512), (17 * kib, 20 * kib), (54 * kib, 56 * kib)];
    for (bytes, class) in
        rows.into_iter().chain([(13 * MIB, 14 * MIB), (2500 * MIB, 2560 * MIB), (1 << 50, 1 << 50)])
    {
        assert_eq!(size_class(bytes), class, "{bytes}");
    }
    assert_eq!(size_class(u64::MAX), u64::MAX);
    let device = Simulated::new(4 * MIB);
    let arena =
        Arena::new(device, ArenaProps { rounding: Rounding::Classes, ..ArenaProps::new(4 * MIB) }).unwrap();
    let block = allocate(&arena, 17 * kib, Stream::DEFAULT).unwrap();
    assert_eq!(arena.room().live_bytes, 20 * kib);
    free(&arena, block, 17 * kib, Stream::DEFAULT);
    assert_eq!(arena.room().live_bytes, 0);
}

#[test]
fn an_arena_has_at_least_one_mebibyte_and_never_grows() {
    assert!(Arena::new(Simulated::new(4 * MIB), ArenaProps::new(MIB - 1)).is_err());
    let arena = Arena::new(Simulated::new(4 * MIB), ArenaProps::new(MIB + 100)).unwrap();
    assert_eq!(arena.room().reserved_bytes, MIB);
    assert!(allocate(&arena, MIB, Stream::DEFAULT).is_ok());
    let error = allocate(&arena, 1, Stream::DEFAULT).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().cause, Cause::Exhausted);
}

#[test]
fn a_failure_is_described_in_a_file() {
    let folder = TempDir::new("arena");
    let path = folder.join("failure.log");
    let props = ArenaProps { dump: Some(path.clone()), ..ArenaProps::new(MIB) };
    let arena = Arena::new(Simulated::new(4 * MIB), props).unwrap();
    let error = allocate(&arena, 8 * MIB, Stream::DEFAULT).unwrap_err();
    assert!(error.is_out_of_memory());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("8.00 MiB") && text.contains("Fragmentation: 0.00 %"), "{text}");
}

#[test]
fn pieces_of_many_streams_and_threads_come_together_for_one_large_block() {
    let device = Arc::new(Simulated::new(128 * MIB));
    let arena = Arena::new(Arc::clone(&device), ArenaProps::new(128 * MIB)).unwrap();
    let streams: Vec<_> = (0..4).map(|_| device.streams().create()).collect();
    std::thread::scope(|scope| {
        for stream in &streams {
            for _ in 0..2 {
                scope.spawn(|| {
                    let blocks: Vec<Address> =
                        (0..100).map(|_| allocate(&arena, 100_000, stream.stream()).unwrap()).collect();
                    for block in blocks {
                        free(&arena, block, 100_000, stream.stream());
                    }
                });
            }
        }
    });
    assert_eq!(arena.room().live_bytes, 0);
    let whole = allocate(&arena, 128 * MIB, streams[0].stream());
    assert!(whole.is_ok(), "{whole:?}");
}

#[test]
fn a_block_of_a_threads_own_stream_can_be_given_back_on_another() {
    let device = Arc::new(Simulated::new(64 * MIB));
    let arena = Arena::new(Arc::clone(&device), ArenaProps::new(64 * MIB)).unwrap();
    let stream = device.streams().create();
    let block = std::thread::scope(|scope| {
        scope.spawn(|| allocate(&arena, 1000, Stream::PER_THREAD).unwrap()).join().unwrap()
    });
    free(&arena, block, 1000, stream.stream());
    assert_eq!(arena.room().live_blocks, 0);
    let block = allocate(&arena, 1000, stream.stream()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| free(&arena, block, 1000, Stream::PER_THREAD)).join().unwrap();
    });
    assert_eq!(arena.room().live_blocks, 0);
    assert!(allocate(&arena, 64 * MIB, Stream::DEFAULT).is_ok());
}

#[test]
fn blocks_of_one_size_serve_up_to_that_size() {
    let fixed =
        FixedSize::new(Simulated::new(16 * MIB), FixedSizeProps { block_bytes: 1000, blocks: 4 }).unwrap();
    assert_eq!((fixed.block_bytes(), fixed.room().reserved_bytes), (1024, 4096));
    let error = allocate(&fixed, 1025, Stream::DEFAULT).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().cause, Cause::TooLarge);
    let blocks: Vec<Address> = (1..=5).map(|n| allocate(&fixed, n * 200, Stream::DEFAULT).unwrap()).collect();
    assert_eq!(
        (fixed.room().live_bytes, fixed.room().reserved_bytes),
        (5 * 1024, 8192),
        "grown by four more"
    );
    for (block, n) in blocks.into_iter().zip(1..) {
        free(&fixed, block, n * 200, Stream::DEFAULT);
    }
    assert_eq!(fixed.room().live_bytes, 0);
    assert!(FixedSize::new(Simulated::new(MIB), FixedSizeProps { block_bytes: 0, blocks: 1 }).is_err());
    assert!(FixedSize::new(Simulated::new(MIB), FixedSizeProps { block_bytes: 8, blocks: 0 }).is_err());
}

#[test]
fn bins_serve_what_fits_and_the_upstream_the_rest() {
    let pool = Pool::new(Simulated::new(8 << 30), PoolProps::default()).unwrap();
    let binning = Binning::with_powers(pool, 18, 22).unwrap();
    assert_eq!(binning.bins().collect::<Vec<_>>(), [1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22]);
    // A bin that exists stays, whoever else wants its size.
    let binning = binning.with_resource(1 << 18, Box::new(Simulated::new(0)), BinMemory::Own);
    let sizes = [1, 1 << 18, (1 << 18) + 1, 4 << 20, (4 << 20) + 1, 100 << 20];
    let blocks = sizes.map(|bytes| allocate(&binning, bytes, Stream::DEFAULT).unwrap());
    assert!(binning.room().live_blocks >= 6);
    for (block, bytes) in blocks.into_iter().zip(sizes) {
        free(&binning, block, bytes, Stream::DEFAULT);
    }
    assert_eq!(binning.room().live_bytes, 0);
    assert!(binning.release() > 0);
}
