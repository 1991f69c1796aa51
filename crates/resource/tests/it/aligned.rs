//! Larger alignments.
#![expect(unsafe_code, reason = "gives back what it took")]

use std::sync::{Arc, Mutex};

use floodmark_resource::{
    Address, Aligned, AllocError, Callback, Memory, Resource, Simulated, Statistics, Stream,
};
use proptest::prelude::*;

use crate::blocks::{Block, give, give_all, take, try_take};

const ALIGNMENT: u64 = 4096;
const THRESHOLD: u64 = 65536;

/// Sizes that were asked for, and blocks that came back.
type Seen = Arc<Mutex<(Vec<u64>, Vec<(u64, u64)>)>>;

/// An upstream that hands out these addresses.
fn script(addresses: &[u64]) -> (impl Resource, Seen) {
    let seen = Seen::default();
    let (taken, given) = (Arc::clone(&seen), Arc::clone(&seen));
    let addresses = Mutex::new(addresses.iter().rev().copied().collect::<Vec<_>>());
    let resource = Callback::new(
        Memory::HOST,
        move |bytes, _| {
            taken.lock().expect("nobody panics").0.push(bytes);
            Ok(Address(addresses.lock().expect("nobody panics").pop().expect("the script goes on")))
        },
        move |address, bytes, _| given.lock().expect("nobody panics").1.push((address.0, bytes)),
    );
    (resource, seen)
}

#[test]
fn the_upstream_is_asked_for_what_alignment_needs_and_gets_it_back() {
    let rows = [
        (65536, 69376, 256, 4096),
        (73728, 77568, 131_584, 135_168),
        (77800, 81664, 263_168, 266_240),
        (65536, 69376, 8192, 8192),
    ];
    let (upstream, seen) = script(&rows.map(|row| row.2));
    let aligned = Aligned::new(upstream, ALIGNMENT, THRESHOLD).unwrap();
    let blocks = rows.map(|(bytes, _, _, address)| {
        let block = take(&aligned, bytes);
        assert_eq!(block.address, Address(address));
        block
    });
    give_all(&aligned, blocks);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.0, rows.map(|row| row.1));
    assert_eq!(seen.1, rows.map(|row| (row.2, row.1)));
}

#[test]
fn blocks_below_the_threshold_pass() {
    let (upstream, seen) = script(&[256, 512]);
    let aligned = Aligned::new(upstream, ALIGNMENT, THRESHOLD).unwrap();
    let block = take(&aligned, 65528);
    assert_eq!(block.address, Address(256));
    give(&aligned, block);
    assert_eq!(*seen.lock().unwrap(), (vec![65528], vec![(256, 65528)]));
    // One that asks for more itself does not.
    let stream = Stream::DEFAULT;
    assert_eq!(aligned.allocate(10, 1024, stream), Ok(Address(4096)));
    // SAFETY: as it was allocated.
    unsafe { aligned.deallocate(Address(4096), 10, 1024, stream) };
    let seen = seen.lock().unwrap();
    assert_eq!((seen.0[1], seen.1[1]), (7936, (512, 7936)));
}

#[test]
fn the_usual_alignment_passes_everything() {
    let (upstream, seen) = script(&[256]);
    let aligned = Aligned::new(upstream, 256, 0).unwrap();
    assert_eq!(take(&aligned, 1_000_001).address, Address(256));
    assert_eq!(seen.lock().unwrap().0, [1_000_001]);
}

#[test]
fn alignments_that_cannot_be_are_refused() {
    for alignment in [0, 1, 128, 300, 4097] {
        assert!(matches!(Aligned::new(Simulated::new(256), alignment, 0), Err(AllocError::Invalid { .. })));
    }
    let aligned = Aligned::new(Simulated::new(1 << 20), ALIGNMENT, 0).unwrap();
    for alignment in [8192, 768] {
        assert!(matches!(
            aligned.allocate(10, alignment, Stream::DEFAULT),
            Err(AllocError::Invalid { bytes: 10, .. })
        ));
    }
    assert!(try_take(&aligned, u64::MAX - 100).unwrap_err().is_out_of_memory());
    assert!(try_take(&aligned, 0).unwrap().address.is_null());
}

proptest! {
    #[test]
    fn every_block_is_aligned_and_all_goes_back(
        sizes in proptest::collection::vec(1u64..200_000, 1..40),
        power in 8u32..16,
        threshold in 0u64..100_000,
    ) {
        let alignment = 1 << power;
        let below = Arc::new(Statistics::new(Simulated::new(1 << 30)));
        let aligned = Aligned::new(Arc::clone(&below), alignment, threshold).unwrap();
        let blocks: Vec<Block> = sizes.iter().map(|bytes| take(&aligned, *bytes)).collect();
        for block in &blocks {
            prop_assert!(block.bytes < threshold || block.address.0 % alignment == 0);
        }
        let mut spans: Vec<_> = blocks.iter().map(|block| (block.address.0, block.bytes)).collect();
        spans.sort_unstable();
        prop_assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        give_all(&aligned, blocks);
        prop_assert_eq!(below.counters().bytes.value, 0);
        prop_assert_eq!(below.upstream().unwrap().room().live_bytes, 0);
    }
}
