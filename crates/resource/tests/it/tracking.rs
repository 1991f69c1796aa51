//! Tracking knows what is live, whatever is done to it.
#![expect(unsafe_code, reason = "gives blocks back")]

mod log;

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};

use floodmark_resource::adaptor::tracking::{OnDrop, TrackingProps};
use floodmark_resource::{
    Address, Memory, NoOrder, Resource, Result, Room, Simulated, Stream, StreamOrder, Tracking, find, thread,
};
use log::logged;
use proptest::prelude::*;
use tracing::Level;

const MIB: u64 = 1 << 20;

fn device() -> Arc<Simulated> {
    Arc::new(Simulated::new(1 << 30))
}

fn take(resource: &dyn Resource, count: usize, bytes: u64) -> Vec<Address> {
    (0..count).map(|_| resource.allocate(bytes, 256, Stream::DEFAULT).expect("there is room")).collect()
}

fn give(resource: &dyn Resource, blocks: &[Address], bytes: u64) {
    for block in blocks {
        // SAFETY: nothing is behind these addresses that anybody could use.
        unsafe { resource.deallocate(*block, bytes, 256, Stream::DEFAULT) };
    }
}

#[test]
fn nothing_is_live_at_first() {
    let tracking = Tracking::new(device());
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (0, 0));
    assert!(tracking.outstanding().is_empty() && tracking.top_holders(5).is_empty());
    assert_eq!(tracking.report(), "");
}

#[test]
fn nothing_is_live_once_all_is_given_back() {
    let tracking = Tracking::new(device());
    let blocks = take(&tracking, 10, 10 * MIB);
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (100 * MIB, 10));
    give(&tracking, &blocks, 10 * MIB);
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (0, 0));
    assert_eq!(tracking.upstream().unwrap().room().live_blocks, 0);
}

#[test]
fn what_is_left_is_known_without_stacks() {
    let tracking = Tracking::new(device());
    let blocks = take(&tracking, 10, 10 * MIB);
    let (gone, left): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    for (_, block) in gone {
        give(&tracking, &[*block], 10 * MIB);
    }
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (50 * MIB, 5));
    let outstanding = tracking.outstanding();
    assert!(outstanding.iter().map(|block| &block.address).eq(left.iter().map(|(_, block)| *block)));
    assert!(outstanding.iter().all(|block| block.stack.is_none() && block.bytes == 10 * MIB));
    assert!(outstanding.iter().all(|block| block.thread == thread::number()));
    assert_eq!(outstanding.iter().map(|block| block.sequence).collect::<Vec<_>>(), [2, 4, 6, 8, 10]);
    assert!(outstanding.is_sorted_by_key(|block| block.time_ns));
    let report = tracking.report();
    let lines: Vec<String> = left.iter().map(|(_, block)| format!("{block}: 10485760 B")).collect();
    assert_eq!(report.lines().collect::<Vec<_>>(), lines);
}

#[inline(never)]
fn allocates_few(resource: &dyn Resource) -> Vec<Address> {
    take(resource, 2, 10 * MIB)
}

#[inline(never)]
fn allocates_many(resource: &dyn Resource) -> Vec<Address> {
    take(resource, 3, 10 * MIB)
}

#[test]
fn what_is_left_is_known_with_stacks() {
    let tracking = Tracking::with_stacks(device());
    let gone = take(&tracking, 5, 10 * MIB);
    let mut left = allocates_few(&tracking);
    left.extend(allocates_many(&tracking));
    give(&tracking, &gone, 10 * MIB);
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (50 * MIB, 5));
    for block in tracking.outstanding() {
        let names = block.stack.expect("stacks are captured").names();
        let functions: Vec<_> = names.iter().filter_map(|name| name.function.as_deref()).collect();
        assert!(
            !functions[0].contains("floodmark_resource"),
            "the adaptor itself is left out: {functions:#?}"
        );
        assert!(functions.iter().any(|name| name.contains("what_is_left_is_known_with_stacks")));
    }
    let holders = tracking.top_holders(5);
    assert_eq!(
        holders.iter().map(|holder| (holder.bytes, holder.blocks)).collect::<Vec<_>>(),
        [(30 * MIB, 3), (20 * MIB, 2)]
    );
    assert!(holders[0].who.contains("allocates_many") && holders[1].who.contains("allocates_few"));
    assert_eq!(tracking.top_holders(1), holders[..1]);
    let report = tracking.report();
    assert!(left.iter().all(|block| report.contains(&format!("{block}: 10485760 B\n"))));
    let (many, few) = (report.find("30.0 MiB in 3 blocks by\n"), report.find("20.0 MiB in 2 blocks by\n"));
    assert!(many.is_some() && many < few, "{report}");
    assert!(report[many.unwrap()..few.unwrap()].contains("allocates_many at "), "{report}");
    give(&tracking, &left, 10 * MIB);
    assert_eq!(tracking.report(), "");
}

#[test]
fn each_of_two_layers_knows_what_went_through_it() {
    let inner = Arc::new(Tracking::with_stacks(device()));
    let first = take(&inner, 10, 10 * MIB);
    let outer = Tracking::new(Arc::clone(&inner));
    let second = take(&outer, 5, 10 * MIB);
    assert_eq!((inner.live_blocks(), outer.live_blocks()), (15, 5));
    assert_eq!((inner.live_bytes(), outer.live_bytes()), (150 * MIB, 50 * MIB));
    give(&inner, &first, 10 * MIB);
    give(&outer, &second, 10 * MIB);
    assert_eq!((inner.live_blocks(), outer.live_blocks()), (0, 0));
}

#[test]
fn giving_back_another_layers_blocks_takes_nothing_below_zero() {
    let inner = Arc::new(Tracking::new(device()));
    let mut blocks = take(&inner, 10, 10 * MIB);
    let outer = Tracking::new(Arc::clone(&inner));
    blocks.extend(take(&outer, 5, 10 * MIB));
    let log = logged(|| give(&outer, &blocks, 10 * MIB));
    assert_eq!((inner.live_blocks(), outer.live_blocks()), (0, 0));
    assert_eq!((inner.live_bytes(), outer.live_bytes()), (0, 0));
    assert_eq!(log.len(), 10, "{log:#?}");
}

#[test]
fn a_block_given_back_past_a_layer_stays_there_until_its_address_is_used_again() {
    let inner = Arc::new(Tracking::new(device()));
    let outer = Tracking::new(Arc::clone(&inner));
    let blocks = take(&outer, 1, MIB);
    give(&inner, &blocks, MIB);
    assert_eq!((inner.live_blocks(), outer.live_blocks()), (0, 1));
    assert_eq!(take(&outer, 1, 3 * MIB), blocks);
    assert_eq!((outer.live_blocks(), outer.live_bytes()), (1, 3 * MIB));
}

#[test]
fn an_untracked_block_is_passed_on_and_not_counted() {
    let device = device();
    let block = take(&device, 1, MIB)[0];
    let tracking = Tracking::new(Arc::clone(&device));
    let log = logged(|| give(&tracking, &[block], MIB));
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (0, 0));
    assert_eq!(device.room().live_blocks, 0, "it went back all the same");
    let text =
        format!("tracking: a block of 1048576 B at {block} was given back that is not live here; 0 are");
    assert_eq!(log, [(Level::ERROR, text)]);
}

/// Remembers with which sizes blocks were given back.
#[derive(Default)]
struct Sizes(Mutex<Vec<u64>>);

impl Resource for Sizes {
    fn allocate(&self, bytes: u64, _: u64, _: Stream) -> Result<Address> {
        Ok(Address(bytes))
    }

    unsafe fn deallocate(&self, _: Address, bytes: u64, _: u64, _: Stream) {
        self.0.lock().expect("nobody panics").push(bytes);
    }

    fn name(&self) -> &'static str {
        "sizes"
    }

    fn memory(&self) -> Memory {
        Memory::HOST
    }

    fn room(&self) -> Room {
        Room::default()
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        NoOrder::shared()
    }
}

#[test]
fn a_block_given_back_with_a_wrong_size_goes_back_with_the_right_one() {
    let sizes = Arc::new(Sizes::default());
    let tracking = Tracking::new(Arc::clone(&sizes));
    let block = take(&tracking, 1, 4096);
    let log = logged(|| give(&tracking, &block, 2048));
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (0, 0));
    assert_eq!(*sizes.0.lock().unwrap(), [4096]);
    let text = "tracking: the block at 0x1000 was allocated with 4096 B and given back with 2048 B; \
                going on with 4096 B";
    assert_eq!(log, [(Level::ERROR, text.to_owned())]);
}

#[test]
fn blocks_of_no_bytes_are_nowhere() {
    let tracking = Tracking::new(device());
    let log = logged(|| {
        let blocks = take(&tracking, 3, 0);
        assert_eq!(blocks, [Address::NULL; 3]);
        assert_eq!(tracking.live_blocks(), 0);
        give(&tracking, &blocks, 0);
    });
    assert!(log.is_empty(), "{log:#?}");
}

#[test]
fn what_is_live_can_be_told_to_the_debug_log() {
    let tracking = Tracking::new(device());
    let blocks = take(&tracking, 2, 1000);
    let log = logged(|| tracking.log_outstanding());
    let [(level, text)] = &log[..] else { panic!("{log:#?}") };
    assert_eq!(*level, Level::DEBUG);
    let expected =
        format!("tracking: 2 live blocks, 1.95 KiB\n{}: 1000 B\n{}: 1000 B\n", blocks[0], blocks[1]);
    assert_eq!(*text, expected);
}

#[test]
fn what_is_live_at_the_end_is_told_where_that_is_asked_for() {
    let end = |on_drop, blocks| {
        let tracking = Tracking::with_props(device(), TrackingProps { on_drop, ..TrackingProps::default() });
        take(&tracking, blocks, 1000);
        logged(|| drop(tracking))
    };
    assert!(end(OnDrop::Silent, 1).is_empty() && end(OnDrop::Report, 0).is_empty());
    let log = end(OnDrop::Report, 1);
    let [(Level::WARN, text)] = &log[..] else { panic!("{log:#?}") };
    assert!(text.starts_with("tracking ends with 1 live block, 1000 B\n0x"), "{text}");
}

#[test]
fn running_out_of_memory_names_the_holders() {
    let tracking = Tracking::with_stacks(Simulated::new(60 * MIB));
    allocates_few(&tracking);
    allocates_many(&tracking);
    let error = tracking.allocate(20 * MIB, 256, Stream::DEFAULT).unwrap_err();
    let holders = &error.out_of_memory().unwrap().holders;
    assert_eq!(*holders, tracking.top_holders(5));
    assert!(error.to_string().contains("30.0 MiB in 3 blocks held by "), "{error}");
    assert!(error.to_string().contains("allocates_many"), "{error}");
    // Above, a layer that knows less does not overrule this one; without stacks it is threads.
    let outer = Tracking::new(tracking);
    let error = outer.allocate(20 * MIB, 256, Stream::DEFAULT).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().holders.len(), 2);
    take(&outer, 1, MIB);
    let who = format!("thread {}", thread::number());
    assert_eq!(outer.top_holders(5).iter().map(|holder| &holder.who).collect::<Vec<_>>(), [&who]);
    let other = outer.allocate(1, 3, Stream::DEFAULT).unwrap_err();
    assert!(!other.is_out_of_memory());
}

/// Has one address. Giving it back takes until somebody else was handed it.
struct OneAddress {
    free: Barrier,
    handed_out: Barrier,
}

impl Resource for OneAddress {
    fn allocate(&self, _: u64, _: u64, _: Stream) -> Result<Address> {
        Ok(Address(4096))
    }

    unsafe fn deallocate(&self, _: Address, _: u64, _: u64, _: Stream) {
        self.free.wait();
        self.handed_out.wait();
    }

    fn name(&self) -> &'static str {
        "one address"
    }

    fn memory(&self) -> Memory {
        Memory::HOST
    }

    fn room(&self) -> Room {
        Room::default()
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        NoOrder::shared()
    }
}

#[test]
fn an_address_that_another_thread_is_handed_meanwhile_is_another_block() {
    let tracking = Tracking::new(OneAddress { free: Barrier::new(2), handed_out: Barrier::new(2) });
    let upstream = find::<Tracking<OneAddress>>(&tracking).unwrap();
    let first = take(&tracking, 1, 10);
    std::thread::scope(|scope| {
        scope.spawn(|| give(&tracking, &first, 10));
        scope.spawn(|| {
            let one: &OneAddress = find(upstream.upstream().unwrap()).unwrap();
            one.free.wait();
            take(&tracking, 1, 20);
            one.handed_out.wait();
        });
    });
    let outstanding = tracking.outstanding();
    assert_eq!(
        outstanding.iter().map(|block| (block.address, block.bytes)).collect::<Vec<_>>(),
        [(Address(4096), 20)]
    );
    assert_eq!(tracking.live_bytes(), 20);
}

#[test]
fn ten_taken_and_five_given_back_leave_five() {
    let inner = Arc::new(Tracking::new(device()));
    let blocks = take(&inner, 10, 1000);
    give(&inner, &blocks[..5], 1000);
    assert_eq!(inner.live_bytes(), 5000);
    let outer = Tracking::new(Arc::clone(&inner));
    let more = take(&outer, 2, 1000);
    assert_eq!((outer.live_bytes(), inner.live_bytes()), (2000, 7000));
    assert!(!outer.report().is_empty() && !inner.report().is_empty());
    give(&outer, &more, 1000);
    give(&inner, &blocks[5..], 1000);
    assert_eq!((outer.report(), inner.report()), (String::new(), String::new()));
    let large = take(&outer, 1, 8 * MIB);
    give(&outer, &large, 8 * MIB);
    assert_eq!((outer.live_bytes(), inner.live_bytes()), (0, 0));
}

#[test]
fn threads_that_hand_blocks_to_each_other_leave_nothing_behind() {
    let tracking = Tracking::with_stacks(device());
    let passing = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (tracking, passing) = (&tracking, &passing);
            scope.spawn(move || {
                for round in 0..500 {
                    let bytes = 256 * (1 + (thread + round) % 7);
                    passing.lock().unwrap().push((take(tracking, 1, bytes), bytes));
                    let other = {
                        let mut passing = passing.lock().unwrap();
                        let at = round as usize % passing.len();
                        passing.swap_remove(at)
                    };
                    give(tracking, &other.0, other.1);
                }
            });
        }
    });
    assert!(passing.lock().unwrap().is_empty());
    assert_eq!((tracking.live_bytes(), tracking.live_blocks()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Give(usize),
    GiveWrong(usize),
    GiveUnknown(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u64..5000).prop_map(Step::Take),
        3 => any::<usize>().prop_map(Step::Give),
        1 => any::<usize>().prop_map(Step::GiveWrong),
        1 => (1_u64..1000).prop_map(Step::GiveUnknown),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn tracking_is_a_map_of_live_blocks(steps in steps()) {
        let tracking = Tracking::new(device());
        let mut live: HashMap<Address, u64> = HashMap::new();
        let mut order: Vec<Address> = Vec::new();
        for step in steps {
            match step {
                Step::Take(bytes) => {
                    let block = take(&tracking, 1, bytes)[0];
                    if !block.is_null() {
                        prop_assert_eq!(live.insert(block, bytes), None);
                        order.push(block);
                    }
                }
                Step::Give(at) | Step::GiveWrong(at) if !order.is_empty() => {
                    let block = order.remove(at % order.len());
                    let bytes = live.remove(&block).expect("it is live");
                    let wrong = u64::from(matches!(step, Step::GiveWrong(_)));
                    give(&tracking, &[block], bytes + wrong);
                }
                Step::Give(_) | Step::GiveWrong(_) => {}
                // Not where the device has memory.
                Step::GiveUnknown(at) => give(&tracking, &[Address(at)], at),
            }
            prop_assert_eq!(tracking.live_blocks(), live.len() as u64);
            prop_assert_eq!(tracking.live_bytes(), live.values().sum::<u64>());
        }
        let found = tracking.outstanding();
        prop_assert_eq!(found.iter().map(|block| block.address).collect::<Vec<_>>(), order);
        prop_assert!(found.iter().all(|block| live[&block.address] == block.bytes));
        prop_assert_eq!(tracking.report().lines().count(), live.len());
        prop_assert_eq!(tracking.upstream().expect("a device").room().live_blocks, live.len() as u64);
    }
}
