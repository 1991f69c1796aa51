//! Gaps between live blocks: known answers, and agreement with finding them anew after every event.

use std::collections::BTreeMap;

use floodmark_analyze::fragmentation::{AddressSpaceReport, FailureCause, Occupancy};
use floodmark_analyze::{Fragmentation, FragmentationFold, FragmentationOptions, MapAt, Pass};
use floodmark_event::Filter;
use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, Kind, NO_DEVICE, ProcessId, StringId};
use floodmark_testkit::Gaps;
use floodmark_testkit::gaps::{Filled, Owner};
use proptest::prelude::*;

use crate::random::{batch, fold, tables};

const JOIN_BYTES: u64 = 8;

fn options() -> FragmentationOptions {
    FragmentationOptions { join_bytes: JOIN_BYTES, ..FragmentationOptions::default() }
}

fn alloc(time_ns: i64, address: u64, bytes: u64) -> Event {
    Event { time_ns, address, bytes, device: 0, kind: Kind::Device, ..Event::default() }
}

fn segment(time_ns: i64, address: u64, bytes: u64) -> Event {
    Event { kind: Kind::Reserved, resource: StringId(1), ..alloc(time_ns, address, bytes) }
}

fn free(time_ns: i64, address: u64) -> Event {
    Event { action: Action::Free, ..alloc(time_ns, address, 0) }
}

fn failure(time_ns: i64, bytes: u64) -> Event {
    Event { action: Action::Failure, ..alloc(time_ns, 0, bytes) }
}

fn found(events: &[Event], options: FragmentationOptions) -> Fragmentation {
    fold(events, &Filter::default(), 3, FragmentationFold::new(options))
}

#[test]
fn gaps_of_a_segment_tell_why_a_request_failed() {
    let events = [
        segment(0, 0x1000, 0x1000),
        alloc(10, 0x1000, 0x400),
        alloc(20, 0x1400, 0x400),
        alloc(30, 0x1800, 0x400),
        free(40, 0x1400),
        failure(50, 0x800),
        failure(60, 0x801),
        failure(70, 0x400),
        free(100, 0x1000),
    ];
    let options = FragmentationOptions { request_bytes: Some(0x500), ..options() };
    let result = found(&events, options);
    let [address_space] = &result.address_spaces[..] else { panic!("one address_space") };
    assert_eq!((address_space.peak.live_bytes, address_space.peak.time_ns), (0xc00, 30));
    assert_eq!(
        (address_space.worst.free_bytes, address_space.worst.largest_gap_bytes, address_space.worst.time_ns),
        (0x800, 0x400, 40)
    );
    assert!((address_space.worst.fragmentation - 0.5).abs() < 1e-12);
    assert_eq!((address_space.end.free_bytes, address_space.end.gaps), (0xc00, 2));
    let causes: Vec<FailureCause> = result.failures.iter().map(|failure| failure.cause).collect();
    assert_eq!(causes, [FailureCause::Fragmentation, FailureCause::Exhaustion, FailureCause::Other]);
    assert_eq!((result.failed_by_fragmentation, result.failed_by_exhaustion), (1, 1));
    let request = address_space.request.as_ref().unwrap();
    assert_eq!((request.first_misfit_ns, request.misfits, request.fits_at_peak), (Some(30), 1, false));
    assert!((request.fitted_share - 0.3).abs() < 1e-12, "{}", request.fitted_share);
}

#[test]
fn the_map_says_who_sits_beside_a_gap() {
    let events = [
        segment(0, 0x1000, 0x1000),
        alloc(10, 0x1000, 0x400),
        alloc(20, 0x1400, 0x400),
        alloc(30, 0x1800, 0x400),
        free(40, 0x1400),
        free(50, 0x1000),
        free(60, 0x1800),
    ];
    for at in [MapAt::Time(Instant::At(45)), MapAt::Change(5)] {
        let map = found(&events, FragmentationOptions { map: Some(at), ..options() }).map.unwrap();
        assert_eq!((map.segments.len(), map.segments[0].gaps.len(), map.segments[0].live_blocks), (1, 2, 2));
        let beside: Vec<_> = map
            .largest_gaps
            .iter()
            .map(|gap| {
                (
                    gap.gap.address,
                    gap.before.as_ref().map(|b| b.address),
                    gap.after.as_ref().map(|b| b.address),
                )
            })
            .collect();
        assert_eq!(beside, [(0x1400, Some(0x1000), Some(0x1800)), (0x1c00, Some(0x1800), None)]);
    }
    // Another process has a block right there, by its own addresses.
    let other = Event { process: ProcessId(2), ..alloc(15, 0x1500, 0x100) };
    let both = [&events[..2], &[other], &events[2..]].concat();
    let at = MapAt::Time(Instant::At(45));
    let map = found(&both, FragmentationOptions { map: Some(at), ..options() }).map.unwrap();
    let gap = map.largest_gaps.iter().find(|gap| gap.gap.address == 0x1400).unwrap();
    assert_eq!(gap.after.as_ref().map(|block| block.address), Some(0x1800));
    let late = found(&events, FragmentationOptions { map: Some(MapAt::Time(Instant::At(99))), ..options() });
    assert_eq!(late.map.unwrap().segments[0].live_blocks, 0);
}

#[test]
fn a_block_that_outlives_its_segment_is_counted_and_does_no_harm() {
    let free_segment = Event { resource: StringId(1), ..free(20, 0x1000) };
    let events = [
        segment(0, 0x1000, 0x100),
        alloc(10, 0x1010, 0x20),
        free_segment,
        segment(30, 0x1000, 0x100),
        alloc(40, 0x1080, 0x20),
        free(50, 0x1010),
        free(60, 0x1080),
    ];
    let result = found(&events, options());
    assert_eq!(result.orphaned_blocks, 1);
    assert_eq!(
        (result.address_spaces[0].end.live_blocks, result.address_spaces[0].end.free_bytes),
        (0, 0x100)
    );
}

#[test]
fn absurd_addresses_and_sizes_do_no_harm() {
    let events = [
        alloc(0, u64::MAX - 4, 100),
        alloc(1, u64::MAX - 10, 10),
        alloc(2, 1, u64::MAX - 100),
        segment(3, 5, u64::MAX),
        segment(4, 5, u64::MAX - 50),
        free(5, 1),
        alloc(6, 0, 12),
        free(7, 0),
    ];
    let result = found(&events, FragmentationOptions { join_bytes: u64::MAX, ..options() });
    assert!(result.placeless_blocks > 0);
}

/// Mostly blocks in a small space, of two sorts, and segments under some of them.
fn event() -> impl Strategy<Value = Event> {
    let block = (0x10u64..0x60, prop_oneof![1 => Just(0u64), 9 => 1..40u64]);
    let what = prop_oneof![6 => Just(0u8), 6 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4)];
    (what, block, 0..3i64, 0..2u32, 0..8u32).prop_map(|(what, (slot, bytes), gap, process, odd)| {
        let process = ProcessId(u32::from(process == 1 && odd == 0) + 1);
        let address = if odd == 7 { 0 } else { slot * 16 };
        let kind = if odd == 6 { Kind::Pinned } else { Kind::Device };
        let event = Event { time_ns: gap, address, bytes, process, kind, ..alloc(gap, 0, 0) };
        let reserved = Event { address: (slot / 16) * 0x100, resource: StringId(1), ..event };
        match what {
            0 => event,
            1 => Event { action: Action::Free, ..event },
            2 => Event { action: Action::Failure, address: 0, ..event },
            3 => Event { kind: Kind::Reserved, bytes: 0x40 + bytes * 4, ..reserved },
            _ => Event { action: Action::Free, ..reserved },
        }
    })
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(event(), 0..120).prop_map(|mut events| {
        let mut time_ns = 1000;
        for event in &mut events {
            time_ns += event.time_ns;
            event.time_ns = time_ns;
        }
        events
    })
}

fn owner(address_space: &AddressSpaceReport) -> Owner {
    let resource = u32::from(address_space.resource.is_some());
    (address_space.process, address_space.device.unwrap_or(NO_DEVICE), resource, address_space.kind)
}

fn filled(at: &Occupancy) -> Filled {
    (at.footprint_bytes, at.live_bytes, at.live_blocks, at.free_bytes, at.gaps, at.largest_gap_bytes)
}

fn ends(result: &Fragmentation) -> BTreeMap<Owner, Filled> {
    result
        .address_spaces
        .iter()
        .map(|address_space| (owner(address_space), filled(&address_space.end)))
        .collect()
}

proptest! {
    #[test]
    fn gaps_agree_with_finding_them_anew(events in events()) {
        let mut oracle = Gaps::new(JOIN_BYTES);
        let mut pass = Pass::new(&Filter::default(), FragmentationFold::new(options()));
        let mut peaks: BTreeMap<Owner, u64> = BTreeMap::new();
        for event in &events {
            oracle.add(event);
            pass.update(&batch(std::slice::from_ref(event)));
            let result = pass.finish(&tables());
            let now = oracle.filled();
            prop_assert_eq!(ends(&result), now.clone());
            for (owner, filled) in now {
                let peak = peaks.entry(owner).or_default();
                *peak = filled.1.max(*peak);
            }
        }
        let result = pass.finish(&tables());
        for address_space in &result.address_spaces {
            prop_assert_eq!(address_space.peak.live_bytes, peaks[&owner(address_space)]);
            prop_assert_eq!(address_space.worst.scattered_bytes(), oracle.most_scattered[&owner(address_space)]);
        }
        let counts = (result.placeless_blocks, result.overlapping_blocks, result.overlapping_segments, result.orphaned_blocks);
        prop_assert_eq!(counts, (oracle.placeless, oracle.overlapping, oracle.overlapping_segments, oracle.orphaned));
    }

    #[test]
    fn the_map_agrees_with_looking_then(events in events(), rows in 0..120usize) {
        let rows = rows.min(events.len());
        let mut oracle = Gaps::new(JOIN_BYTES);
        let mut before = Pass::new(&Filter::default(), FragmentationFold::new(options()));
        for event in &events[..rows] {
            oracle.add(event);
            before.update(&batch(std::slice::from_ref(event)));
        }
        let change = before.finish(&tables()).address_spaces.first().map_or(0, |address_space| address_space.end.change);
        if change > 0 {
            let result = found(&events, FragmentationOptions { map: Some(MapAt::Change(change)), ..options() });
            let map = result.map.as_ref().unwrap();
            for (at, address_space) in result.address_spaces.iter().enumerate() {
                let own = map.segments.iter().filter(|segment| segment.address_space == at);
                let gaps: Vec<(u64, u64)> = own
                    .flat_map(|segment| segment.gaps.iter().map(|gap| (gap.address, gap.address + gap.bytes)))
                    .collect();
                prop_assert_eq!(gaps, oracle.gaps(owner(address_space)));
            }
        }
    }
}
