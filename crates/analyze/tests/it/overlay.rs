//! Tracked memory beside what a device says.

use floodmark_analyze::{Align, DeviceSample, Overlay, OverlayFold, OverlayOptions, Spread};
use floodmark_event::Filter;
use floodmark_event::{Action, Event, Kind, StringId};
use proptest::prelude::*;

use crate::random::{events, fold, oracle};

fn alloc(time_ns: i64, device: i32, address: u64, bytes: u64) -> Event {
    Event { time_ns, device, address, bytes, kind: Kind::Device, ..Event::default() }
}

fn sample(time_ns: i64, device: i32, used_bytes: u64) -> DeviceSample {
    DeviceSample { time_ns, device, used_bytes }
}

fn overlay(events: &[Event], samples: &[DeviceSample], align: Align) -> Overlay {
    let options = OverlayOptions { samples: samples.to_vec(), align };
    fold(events, &Filter::default(), 2, OverlayFold::new(options))
}

#[test]
fn what_is_used_and_not_tracked_is_left_over() {
    let events = [
        alloc(100, 0, 0x1000, 600),
        alloc(150, 1, 0x1000, 70),
        Event { action: Action::Free, ..alloc(250, 0, 0x1000, 600) },
        alloc(400, 0, 0x2000, 1),
    ];
    let samples = [
        sample(50, 0, 5),
        sample(100, 0, 1000),
        sample(200, 0, 1100),
        sample(200, 1, 60),
        sample(300, 0, 500),
    ];
    let found = overlay(&events, &samples, Align::Utc);
    assert_eq!((found.devices.len(), found.samples_outside), (2, 1));
    assert_eq!(found.devices[0].residual, Spread { min: 400, median: 500, max: 500 });
    assert_eq!((found.devices[0].at_peak.time_ns, found.devices[0].at_peak.tracked_bytes), (100, 600));
    assert_eq!(found.devices[1].points[0].residual_bytes, -10);
    let shifted = overlay(&events, &[sample(1_000_050, 0, 900), sample(1_000_150, 0, 950)], Align::Start);
    let points: Vec<_> =
        shifted.devices[0].points.iter().map(|point| (point.time_ns, point.residual_bytes)).collect();
    assert_eq!((shifted.shift_ns, points), (-999_950, vec![(100, 300), (200, 350)]));
    assert!(overlay(&events, &[sample(1_000_050, 0, 900)], Align::Utc).devices.is_empty());
}

#[test]
fn segments_count_as_far_as_they_are_more_than_their_blocks() {
    let events = [
        Event { kind: Kind::Reserved, resource: StringId(1), ..alloc(1, 0, 0x1000, 1000) },
        alloc(2, 0, 0x1000, 100),
        alloc(9, 0, 0x1100, 100),
    ];
    let found = overlay(&events, &[sample(5, 0, 1300)], Align::Utc);
    let point = found.devices[0].points[0];
    assert_eq!((point.tracked_bytes, point.held_bytes, point.residual_bytes), (100, 1000, 300));
}

proptest! {
    #[test]
    fn tracked_bytes_agree_with_looking_at_the_blocks_then(events in events(), at in 1000..1500i64) {
        // Times that go backward have no clear instant.
        let mut events = events;
        events.sort_by_key(|event| event.time_ns);
        let inside = events.first().zip(events.last()).is_some_and(|(a, b)| (a.time_ns..=b.time_ns).contains(&at));
        let found = overlay(&events, &[sample(at, 0, 0)], Align::Utc);
        prop_assert_eq!(found.devices.len(), usize::from(inside));
        if inside {
            let blocks = oracle(&events, &Filter::default()).blocks_at(at);
            let bytes: u64 = blocks.iter().filter(|life| life.alloc.device == 0).map(|life| life.alloc.bytes).sum();
            prop_assert_eq!(found.devices[0].points[0].tracked_bytes, bytes);
        }
    }
}
