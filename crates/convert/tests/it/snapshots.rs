//! Memory snapshots: how tests make and read them.

use std::path::Path;
use std::process::Command;

use floodmark_convert::{Mode, OpenProps, torch};
use floodmark_event::Row;
use floodmark_event::{Action, Event, EventBatch, Kind, Metric, ScopeAction, Tables};
use floodmark_store::Losses;

/// All that a snapshot holds.
pub(crate) struct Read {
    pub(crate) events: Vec<Event>,
    pub(crate) tables: Tables,
    pub(crate) losses: Losses,
    pub(crate) rows: Vec<Row>,
    pub(crate) row_tables: Tables,
    pub(crate) row_losses: Losses,
}

pub(crate) fn lenient() -> OpenProps {
    OpenProps { mode: Mode::Lenient, ..OpenProps::default() }
}

/// Reads all of a snapshot.
pub(crate) fn try_read(bytes: &[u8], props: &OpenProps) -> Result<Read, String> {
    let halves = torch::open(bytes, Path::new("snapshot.pickle"), props);
    halves.map(drain).map_err(|error| error.to_string())
}

pub(crate) fn read(bytes: &[u8]) -> Read {
    try_read(bytes, &OpenProps::default()).expect("a good snapshot")
}

pub(crate) fn drain((mut source, mut seen): floodmark_convert::EventsAndRows) -> Read {
    let (mut events, mut batch) = (Vec::new(), EventBatch::new());
    while source.next(&mut batch).expect("events") {
        events.extend(batch.events());
    }
    let (mut rows, mut some) = (Vec::new(), Vec::new());
    while seen.next(&mut some).expect("rows") {
        rows.append(&mut some);
    }
    Read {
        events,
        tables: source.tables().clone(),
        losses: source.losses(),
        rows,
        row_tables: seen.tables().clone(),
        row_losses: seen.losses(),
    }
}

impl Read {
    /// Highest and last live bytes of a kind on a device, added up in the plainest way.
    pub(crate) fn level(&self, kind: Kind, device: i32) -> (u64, u64) {
        let (mut live, mut peak) = (std::collections::HashMap::new(), 0);
        let own = |event: &&Event| event.kind == kind && event.device == device;
        for event in self.events.iter().filter(own) {
            match event.action {
                Action::Alloc => assert_eq!(live.insert(event.address, event.bytes), None, "{event:?}"),
                Action::Free => assert_eq!(live.remove(&event.address), Some(event.bytes), "{event:?}"),
                Action::Failure => {}
            }
            peak = peak.max(live.values().sum());
        }
        (peak, live.values().sum())
    }

    /// Values of a metric, in order.
    pub(crate) fn samples(&self, metric: Metric) -> Vec<u64> {
        let sample = |row: &Row| match row {
            Row::Sample(row) if row.metric == metric => Some(row.value),
            _ => None,
        };
        self.rows.iter().filter_map(sample).collect()
    }

    /// Scopes and marks: what happened, and the name.
    pub(crate) fn scopes(&self) -> Vec<(ScopeAction, &str)> {
        let scope = |row: &Row| match row {
            Row::Scope(row) => Some((row.action, row.name)),
            _ => None,
        };
        let named = |(action, name)| (action, self.row_tables.string(name));
        self.rows.iter().filter_map(scope).map(named).collect()
    }

    /// Events as action, kind, address and bytes.
    pub(crate) fn plain(&self) -> Vec<(Action, Kind, u64, u64)> {
        self.events.iter().map(|event| (event.action, event.kind, event.address, event.bytes)).collect()
    }
}

/// What snapshots of tests are made with, in Python.
const WORDS: &str = "
import pickle, sys
f = lambda name, line=1: {'name': name, 'filename': '/app/train.py', 'line': line}
F = [f('step', 10), f('main', 20)]
def e(action, addr, size, t, **more):
    return dict(action=action, addr=addr, size=size, stream=0, time_us=1000 + t, frames=F, **more)
def b(addr, size, requested, state='active_allocated', **more):
    return dict(address=addr, size=size, requested_size=requested, state=state, frames=F, **more)
def s(addr, size, blocks, device=0, **more):
    return dict(device=device, address=addr, total_size=size, stream=0, segment_type='small', frames=[], blocks=blocks, **more)
def snap(traces, segments, **more):
    return dict(segments=segments, device_traces=traces, **more)
M = 1 << 20
";

/// Pickles what a Python expression says, in one protocol.
pub(crate) fn pickled(expression: &str, protocol: u32) -> Vec<u8> {
    let script = format!(
        "{WORDS}\nsys.setrecursionlimit(100000)\nsys.stdout.buffer.write(pickle.dumps({expression}, {protocol}))"
    );
    let output = Command::new("python3").args(["-c", &script]).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
