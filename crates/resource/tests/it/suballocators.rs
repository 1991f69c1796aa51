//! Random workloads on every suballocator, against what must always hold: blocks are aligned and never
//! overlap, nobody gets a block before the stream that gave it back is done with it, and all memory
//! comes together again.

use std::collections::BTreeMap;
use std::sync::Arc;

use floodmark_resource::{
    Address, Arena, ArenaProps, BinMemory, Binning, FixedSize, FixedSizeProps, Marker, Moment, Pool,
    PoolProps, Resource, Simulated, SimulatedOrder, SimulatedStream, Stream, StreamOrder as _,
};
use proptest::prelude::*;

const TOTAL: u64 = 256 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        bytes: u64,
        alignment: u64,
        stream: usize,
    },
    Free {
        which: usize,
        stream: usize,
    },
    /// A stream ends and another takes its place.
    Replace {
        stream: usize,
    },
    Release,
}

fn steps(largest: u64) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1_u64..2000, 1..=largest / 8, 1..=largest];
    let alignment = (0_u32..=8).prop_map(|power| 1 << power);
    let step = prop_oneof![
        10 => (bytes, alignment, 0_usize..5).prop_map(|(bytes, alignment, stream)| Step::Allocate { bytes, alignment, stream }),
        9 => (any::<usize>(), 0_usize..5).prop_map(|(which, stream)| Step::Free { which, stream }),
        1 => (0_usize..4).prop_map(|stream| Step::Replace { stream }),
        1 => Just(Step::Release),
    ];
    prop::collection::vec(step, 1..400)
}

/// Streams 0 and 1 are ours, 2 and 3 the same as strangers pass them, 4 is the default stream.
struct Streams {
    order: Arc<SimulatedOrder>,
    made: Vec<SimulatedStream>,
}

impl Streams {
    fn new(order: &Arc<SimulatedOrder>) -> Self {
        Self { order: Arc::clone(order), made: (0..4).map(|_| order.create()).collect() }
    }

    fn get(&self, number: usize) -> Stream {
        match number {
            0 | 1 => self.made[number].stream(),
            2 | 3 => self.made[number].foreign(),
            _ => Stream::DEFAULT,
        }
    }

    /// Streams 2 and 3 end without a word.
    fn replace(&mut self, number: usize) {
        let new = self.order.create();
        let old = std::mem::replace(&mut self.made[number], new);
        if number >= 2 {
            old.vanish();
        }
    }
}

struct Live {
    bytes: u64,
    alignment: u64,
    /// Where its stream stood when it was handed out.
    allocated: Marker,
}

/// Plays `steps` on a resource over `device`; returns how often a stream had to wait.
fn play<R: Resource>(make: impl FnOnce(Arc<Simulated>) -> R, steps: Vec<Step>) -> u64 {
    let device = Arc::new(Simulated::new(TOTAL));
    let order = Arc::clone(device.streams());
    let resource = make(Arc::clone(&device));
    let mut streams = Streams::new(&order);
    let mut live: BTreeMap<u64, Live> = BTreeMap::new();
    // Where each piece of memory was last used, by its end: start and the last use.
    let mut used: BTreeMap<u64, (u64, Moment)> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Allocate { bytes, alignment, stream } => {
                let stream = streams.get(stream);
                let Ok(Address(start)) = resource.allocate(bytes, alignment, stream) else { continue };
                assert_eq!(start % 256, 0, "not aligned");
                let before = live.range(..=start).next_back();
                assert!(
                    before.is_none_or(|(at, block)| at + block.bytes <= start),
                    "overlaps what is before"
                );
                assert!(
                    live.range(start..).next().is_none_or(|(at, _)| start + bytes <= *at),
                    "overlaps what is after"
                );
                for (_, (begin, moment)) in
                    used.range(start + 1..).take_while(|(_, (begin, _))| *begin < start + bytes)
                {
                    assert!(
                        order.covers(stream, *moment),
                        "{start:#x} was handed on too early, as part of {begin:#x}"
                    );
                }
                let allocated = order.marker().expect("a marker");
                order.record(allocated, stream).expect("the stream is there");
                live.insert(start, Live { bytes, alignment, allocated });
            }
            Step::Free { which, stream } => {
                let Some(start) = live.keys().nth(which % live.len().max(1)).copied() else { continue };
                let Live { bytes, alignment, allocated } = live.remove(&start).expect("just found");
                let stream = streams.get(stream);
                // Whoever uses a block on another stream than it was asked for on waits for that.
                order.wait(stream, allocated).expect("it is recorded");
                let moment = order.submit(stream);
                use_up(&mut used, start, start + bytes, moment);
                // SAFETY: live until now, and nothing is enqueued after `moment`.
                unsafe { resource.deallocate(Address(start), bytes, alignment, stream) };
            }
            Step::Replace { stream } => streams.replace(stream),
            Step::Release => {
                resource.release();
            }
        }
        let room = resource.room();
        assert!(room.live_bytes <= room.reserved_bytes);
        assert_eq!(room.live_blocks, live.len() as u64);
        assert!(room.live_bytes >= live.values().map(|block| block.bytes).sum::<u64>());
    }
    for (start, Live { bytes, alignment, .. }) in live {
        // SAFETY: live until now.
        unsafe { resource.deallocate(Address(start), bytes, alignment, Stream::DEFAULT) };
    }
    assert_eq!(resource.room().live_bytes, 0);
    resource.release();
    // A region goes back only if all of its pieces came together; an arena keeps its own.
    let reserved_bytes = resource.room().reserved_bytes;
    if reserved_bytes > 0 {
        let whole = resource.allocate(reserved_bytes, 256, Stream::DEFAULT).expect("all of it is free");
        // SAFETY: allocated above.
        unsafe { resource.deallocate(whole, reserved_bytes, 256, Stream::DEFAULT) };
    }
    assert_eq!(reserved_bytes > 0, resource.name() == "arena");
    drop(resource);
    assert_eq!(device.room().live_bytes, 0, "something was not given back");
    assert_eq!(device.room().largest_free_bytes, Some(TOTAL));
    order.waits()
}

/// Notes that all of `start..end` was last used at `moment`.
fn use_up(used: &mut BTreeMap<u64, (u64, Moment)>, start: u64, end: u64, moment: Moment) {
    let overlapping: Vec<u64> =
        used.range(start + 1..).take_while(|(_, (begin, _))| *begin < end).map(|(end, _)| *end).collect();
    for old_end in overlapping {
        let (old_start, old_moment) = used.remove(&old_end).expect("just found");
        if old_start < start {
            used.insert(start, (old_start, old_moment));
        }
        if old_end > end {
            used.insert(old_end, (end, old_moment));
        }
    }
    used.insert(end, (start, moment));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_growing_pool_keeps_its_promises(steps in steps(8 << 20)) {
        play(|device| Pool::new(device, PoolProps::default()).unwrap(), steps);
    }

    #[test]
    fn a_pool_of_a_fixed_size_keeps_its_promises(steps in steps(16 << 20)) {
        let props = PoolProps { initial_bytes: 96 << 20, maximum_bytes: Some(96 << 20) };
        play(|device| Pool::new(device, props).unwrap(), steps);
    }

    #[test]
    fn a_tiny_pool_keeps_its_promises(steps in steps(1 << 20)) {
        let props = PoolProps { initial_bytes: 1 << 20, maximum_bytes: Some(4 << 20) };
        play(|device| Pool::new(device, props).unwrap(), steps);
    }

    #[test]
    fn an_arena_keeps_its_promises(steps in steps(16 << 20)) {
        play(|device| Arena::new(device, ArenaProps::new(128 << 20)).unwrap(), steps);
    }

    #[test]
    fn blocks_of_one_size_keep_their_promises(steps in steps(1 << 20)) {
        let props = FixedSizeProps { block_bytes: 1 << 20, blocks: 16 };
        play(|device| FixedSize::new(device, props).unwrap(), steps);
    }

    #[test]
    fn bins_over_a_pool_keep_their_promises(steps in steps(2 << 20)) {
        let small = FixedSizeProps { block_bytes: 64 << 10, blocks: 32 };
        let make = |device| {
            let pool = Arc::new(Pool::new(device, PoolProps::default()).unwrap());
            let bin = FixedSize::new(Arc::clone(&pool), small).unwrap();
            Binning::new(pool).with_resource(64 << 10, Box::new(bin), BinMemory::Upstream)
        };
        play(make, steps);
    }

    #[test]
    fn a_pool_over_a_pool_keeps_its_promises(steps in steps(4 << 20)) {
        let make = |device| {
            let lower = Pool::new(device, PoolProps { initial_bytes: 32 << 20, maximum_bytes: None }).unwrap();
            Pool::new(lower, PoolProps::default()).unwrap()
        };
        play(make, steps);
    }
}

#[test]
fn the_check_sees_streams_that_wait() {
    // Everything is given back on one stream and asked for on the other.
    let steps = (0..64).flat_map(|_| {
        [Step::Allocate { bytes: 1 << 20, alignment: 256, stream: 0 }, Step::Free { which: 0, stream: 1 }]
    });
    let props = PoolProps { initial_bytes: 2 << 20, maximum_bytes: Some(2 << 20) };
    let waits = play(|device| Pool::new(device, props).unwrap(), steps.collect());
    assert!(waits > 0);
}
