//! Events and scripts for tests.

use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId};
use floodmark_replay::{ReadProps, Reading, Script, choose};
use floodmark_testkit::{Workload, WorkloadProps};

/// An event of one process on one device.
pub(crate) fn event(action: Action, address: u64, bytes: u64, thread: u64, stream: u64) -> Event {
    Event {
        action,
        address,
        bytes,
        thread,
        stream,
        process: ProcessId(1),
        kind: Kind::Device,
        ..Event::default()
    }
}

/// Numbers events in time, one every microsecond.
pub(crate) fn in_time(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    events.into_iter().enumerate().map(|(at, event)| Event { time_ns: at as i64 * 1000, ..event }).collect()
}

/// Reads all scripts of some events.
pub(crate) fn read(events: &[Event], props: &ReadProps) -> Vec<Script> {
    let mut reading = Reading::new(props);
    for events in events.chunks(7) {
        let mut batch = EventBatch::new();
        for event in events {
            batch.push(event);
        }
        if reading.update(&batch).unwrap().is_break() {
            break;
        }
    }
    reading.finish().unwrap()
}

/// The one script of some events.
pub(crate) fn script(events: &[Event]) -> Script {
    choose(read(events, &ReadProps::default())).unwrap().0
}

/// The script of a program that never ran.
pub(crate) fn workload(props: WorkloadProps) -> Script {
    script(&Workload::new(props).events().collect::<Vec<_>>())
}

/// A program with many threads that free each other's blocks.
pub(crate) fn eight_threads(events: u64) -> WorkloadProps {
    WorkloadProps {
        seed: 8,
        events,
        threads: 8,
        streams: 4,
        live: 500,
        leak_rate: 0.001,
        failure_rate: 0.001,
        unknown_free_rate: 0.001,
        ..WorkloadProps::default()
    }
}
