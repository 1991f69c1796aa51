//! The pool's rules, one by one.

use std::sync::Arc;

use floodmark_resource::{
    Address, Cause, Limiting, Pool, PoolProps, Resource, Result, Simulated, SimulatedStream, Stream,
};

const MIB: u64 = 1 << 20;

fn pool(total: u64, initial_bytes: u64, maximum_bytes: Option<u64>) -> Result<Pool<Simulated>> {
    Pool::new(Simulated::new(total), PoolProps { initial_bytes, maximum_bytes })
}

fn allocate(resource: &impl Resource, bytes: u64) -> Result<Address> {
    resource.allocate(bytes, 256, Stream::DEFAULT)
}

fn free(resource: &impl Resource, address: Address, bytes: u64) {
    // SAFETY: nothing is behind simulated memory.
    unsafe { resource.deallocate(address, bytes, 256, Stream::DEFAULT) };
}

#[test]
fn a_maximum_below_the_initial_size_is_refused() {
    let error = pool(MIB, 1024, Some(256)).err().expect("refused");
    assert!(error.to_string().contains("Initial pool size exceeds the maximum pool size"), "{error}");
}

#[test]
fn sizes_are_multiples_of_256() {
    assert!(pool(16 * MIB, 1_000_031, Some(1_000_192)).is_err());
    assert!(pool(16 * MIB, 1_000_192, Some(1_000_200)).is_err());
    let equal = pool(16 * MIB, 1_000_192, Some(1_000_192)).unwrap();
    assert!(allocate(&equal, 1_000_000).is_ok());
}

#[test]
fn nearly_all_of_a_device_fits_into_one_block() {
    let nine_tenths = (1_u64 << 34) * 9 / 10 / 256 * 256;
    let pool = pool(1 << 34, 0, None).unwrap();
    assert!(allocate(&pool, nine_tenths).is_ok());
    let primed = self::pool(1 << 34, nine_tenths, None).unwrap();
    assert_eq!(primed.pool_bytes(), nine_tenths);
    assert!(allocate(&primed, nine_tenths).is_ok());
}

#[test]
fn two_large_buffers_share_a_pool() {
    let pool = pool(1 << 30, 1 << 29, None).unwrap();
    let first = allocate(&pool, 1 << 28).unwrap();
    free(&pool, first, 1 << 28);
    let blocks = [allocate(&pool, 1 << 28).unwrap(), allocate(&pool, 1 << 28).unwrap()];
    assert_ne!(blocks[0], blocks[1]);
    assert_eq!(pool.pool_bytes(), 1 << 29);
}

/// What each of four requests gave, with an upstream of 6,000 bytes.
fn force_growth(maximum_bytes: Option<u64>) -> ([bool; 4], Pool<Limiting<Simulated>>) {
    let upstream = Limiting::new(Simulated::new(MIB), 6000);
    let pool = Pool::new(upstream, PoolProps { initial_bytes: 0, maximum_bytes })
        .expect("no memory is asked for yet");
    ([1000, 4000, 500, 2000].map(|bytes| allocate(&pool, bytes).is_ok()), pool)
}

#[test]
fn growth_asks_for_less_when_the_upstream_refuses() {
    let (served, pool) = force_growth(None);
    assert_eq!(served, [true, true, true, false]);
    // 1,024 and 4,096, then half of what it has again and again, in steps of 256, until it fits.
    let room = pool.room();
    assert_eq!((pool.pool_bytes(), room.upstream_blocks), (1024 + 4096 + 768, 3));
    assert_eq!((room.free_bytes(), room.largest_free_bytes), (256, Some(256)));
    let error = allocate(&pool, 2000).unwrap_err();
    let details = error.out_of_memory().expect("out of memory");
    assert_eq!(details.cause, Cause::Exhausted);
    assert!(details.upstream.is_some(), "{error}");
}

#[test]
fn growth_takes_half_of_what_is_left_to_the_maximum() {
    let (served, pool) = force_growth(Some(8192));
    assert_eq!(served, [true, false, true, true]);
    assert_eq!(pool.pool_bytes(), 4096);
    let room = pool.room();
    assert_eq!((room.live_bytes, room.largest_free_bytes), (1024 + 512 + 2048, Some(512)));
}

#[test]
fn a_capped_pool_reaches_its_cap() {
    // The first region is too small and has to go back before a larger one fits.
    let pool = pool(MIB, 256, Some(1024)).unwrap();
    let block = allocate(&pool, 1024).unwrap();
    assert_eq!(pool.pool_bytes(), 1024);
    assert!(allocate(&pool, 1).is_err());
    free(&pool, block, 1024);
    assert!(allocate(&pool, 1024).is_ok());
}

#[test]
fn blocks_of_a_stream_that_ended_are_used_again() {
    let device = Arc::new(Simulated::new(MIB));
    let pool =
        Pool::new(Arc::clone(&device), PoolProps { initial_bytes: MIB, maximum_bytes: Some(MIB) }).unwrap();
    let [lasting, foreign] = [0, 1].map(|_| device.streams().create());
    for stream in [lasting.stream(), foreign.foreign()] {
        let block = pool.allocate(MIB, 256, stream).unwrap();
        let moment = device.streams().submit(stream);
        // SAFETY: nothing is behind simulated memory.
        unsafe { pool.deallocate(block, MIB, 256, stream) };
        assert!(!device.streams().covers(Stream::DEFAULT, moment));
    }
    drop(lasting);
    foreign.vanish();
    assert!(allocate(&pool, MIB).is_ok());
    assert_eq!(device.streams().waits(), 2, "one for each");
}

#[test]
fn hundreds_of_streams_leave_nothing_behind() {
    let device = Arc::new(Simulated::new(64 * MIB));
    let props = PoolProps { initial_bytes: 64 * MIB, maximum_bytes: Some(64 * MIB) };
    let pool = Pool::new(Arc::clone(&device), props).unwrap();
    for number in 0..300 {
        let made = device.streams().create();
        let stream = if number % 2 == 0 { made.stream() } else { made.foreign() };
        let block = pool.allocate(40 << 10, 256, stream).unwrap();
        device.streams().submit(stream);
        // SAFETY: nothing is behind simulated memory.
        unsafe { pool.deallocate(block, 40 << 10, 256, stream) };
        if number % 2 == 1 {
            made.vanish();
        }
    }
    let whole = allocate(&pool, 64 * MIB);
    assert!(whole.is_ok(), "{whole:?}");
}

#[test]
fn memory_goes_back_upstream_on_request() {
    let pool = pool(64 * MIB, 0, None).unwrap();
    let blocks: Vec<Address> = (0..4).map(|_| allocate(&pool, MIB).unwrap()).collect();
    assert_eq!(pool.release(), 0, "all of it is in use");
    let reserved = pool.pool_bytes();
    for block in &blocks[1..] {
        free(&pool, *block, MIB);
    }
    let released = pool.release();
    assert!(released > 0 && pool.pool_bytes() == reserved - released);
    free(&pool, blocks[0], MIB);
    pool.release();
    assert_eq!(pool.pool_bytes(), 0);
}

#[test]
fn wrong_frees_are_counted_and_do_no_harm() {
    let pool = pool(MIB, MIB, Some(MIB)).unwrap();
    let block = allocate(&pool, 1000).unwrap();
    free(&pool, Address(block.0 + 256), 256);
    free(&pool, Address(0xdead_0000), 256);
    assert_eq!(pool.misuses(), 2);
    free(&pool, block, 5000);
    assert_eq!((pool.misuses(), pool.room().live_bytes), (3, 0));
    free(&pool, block, 1000);
    assert_eq!(pool.misuses(), 4, "twice");
    assert_eq!(allocate(&pool, MIB), Ok(Address(block.0)));
    assert_eq!(allocate(&pool, 0), Ok(Address::NULL));
    free(&pool, Address::NULL, 0);
    assert_eq!(pool.misuses(), 4);
}

#[test]
fn running_out_says_whether_memory_is_in_pieces() {
    let pool = pool(MIB, MIB, Some(MIB)).unwrap();
    let blocks: Vec<Address> = (0..16).map(|_| allocate(&pool, MIB / 16).unwrap()).collect();
    let exhausted = allocate(&pool, 256).unwrap_err();
    assert_eq!(exhausted.out_of_memory().unwrap().cause, Cause::Exhausted);
    for block in blocks.iter().step_by(2) {
        free(&pool, *block, MIB / 16);
    }
    let fragmented = allocate(&pool, MIB / 4).unwrap_err();
    let details = fragmented.out_of_memory().unwrap();
    assert_eq!(details.cause, Cause::Fragmented);
    assert_eq!((details.live_bytes, details.largest_free_bytes), (MIB / 2, Some(MIB / 16)));
    let too_large = allocate(&pool, 2 * MIB).unwrap_err();
    assert_eq!(too_large.out_of_memory().unwrap().cause, Cause::TooLarge);
    assert!(pool.allocate(8, 512, Stream::DEFAULT).is_err());
}

#[test]
fn threads_with_streams_of_their_own_keep_their_blocks_apart() {
    let device = Arc::new(Simulated::new(4 << 30));
    let pool =
        Pool::new(Arc::clone(&device), PoolProps { initial_bytes: 1 << 30, maximum_bytes: None }).unwrap();
    let exchange: std::sync::Mutex<Vec<(u64, u64)>> = std::sync::Mutex::default();
    std::thread::scope(|scope| {
        for number in 0_u64..8 {
            let (pool, device, exchange) = (&pool, &device, &exchange);
            scope.spawn(move || {
                let stream = device.streams().create();
                let mut random = floodmark_testkit::Random::new(number);
                let mut live = Vec::new();
                for _ in 0..20_000 {
                    if random.happens(0.52) {
                        let bytes = 1 + random.below(300_000);
                        live.push((pool.allocate(bytes, 256, stream.stream()).unwrap().0, bytes));
                    } else if let Some(last) = live.len().checked_sub(1) {
                        let mut block = live.swap_remove(random.below(last as u64 + 1) as usize);
                        // Every fourth block is given back by somebody else.
                        if random.happens(0.25) {
                            let mut exchange = exchange.lock().unwrap();
                            exchange.push(block);
                            let other = random.below(exchange.len() as u64) as usize;
                            block = exchange.swap_remove(other);
                        }
                        // SAFETY: nothing is behind simulated memory.
                        unsafe { pool.deallocate(Address(block.0), block.1, 256, stream.stream()) };
                    }
                }
                for (block, bytes) in live {
                    // SAFETY: as above.
                    unsafe { pool.deallocate(Address(block), bytes, 256, stream.stream()) };
                }
            });
        }
    });
    for (block, bytes) in exchange.into_inner().unwrap() {
        free(&pool, Address(block), bytes);
    }
    assert_eq!((pool.misuses(), pool.room().live_bytes, pool.room().live_blocks), (0, 0, 0));
    pool.release();
    assert_eq!(device.room().live_bytes, 0);
}

#[test]
fn an_allocation_waits_for_one_stream_where_that_is_enough() {
    const BLOCK: u64 = 64 << 10;
    let device = Arc::new(Simulated::new(64 * MIB));
    let props = PoolProps { initial_bytes: 64 * MIB, maximum_bytes: Some(64 * MIB) };
    let pool = Pool::new(Arc::clone(&device), props).unwrap();
    let owner = device.streams().create();
    let others: Vec<SimulatedStream> = (0..8).map(|_| device.streams().create()).collect();
    let blocks: Vec<Address> =
        (0..64 * MIB / BLOCK).map(|_| pool.allocate(BLOCK, 256, owner.stream()).unwrap()).collect();
    // Blocks that are not neighbors, each freed on a stream of its own.
    for (block, other) in blocks.iter().step_by(2).zip(&others) {
        device.streams().submit(other.stream());
        // SAFETY: nothing is behind simulated memory.
        unsafe { pool.deallocate(*block, BLOCK, 256, other.stream()) };
    }
    for waits in 1..=others.len() as u64 {
        pool.allocate(BLOCK, 256, owner.stream()).unwrap();
        assert_eq!(device.streams().waits(), waits);
    }
    assert!(pool.allocate(BLOCK, 256, owner.stream()).is_err());
}
