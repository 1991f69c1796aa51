//! Runs the torture programs and reads the traces they left.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use floodmark_event::{Event, EventBatch};
use floodmark_store::{ScanProps, Source as _, Trace};

pub(crate) fn writer(trace: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark-writer"));
    command.arg(trace).args(arguments).stdout(Stdio::piped()).stdin(Stdio::null());
    command.spawn().expect("the writer starts")
}

pub(crate) fn sealer(trace: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark-sealer"));
    command.arg(trace).stdin(Stdio::null()).spawn().expect("the sealer starts")
}

/// Events of a trace in its order, by stream, which is the number of the torture thread.
pub(crate) fn events_by_thread(trace: &Path) -> BTreeMap<u64, Vec<Event>> {
    let trace = Trace::open(trace).expect("the trace opens");
    let mut scan = trace.scan(&ScanProps::default()).expect("the trace scans");
    let mut batch = EventBatch::new();
    let mut threads: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    let mut last = i64::MIN;
    while scan.next(&mut batch).expect("the trace reads") {
        for event in batch.events() {
            assert!(event.time_ns >= last, "the trace is in order");
            last = event.time_ns;
            threads.entry(event.stream).or_default().push(event);
        }
    }
    threads
}

/// Number of events that a trace reports as lost.
pub(crate) fn lost(trace: &Path) -> u64 {
    let trace = Trace::open(trace).expect("the trace opens");
    let mut scan = trace.scan(&ScanProps::default()).expect("the trace scans");
    let mut batch = EventBatch::new();
    while scan.next(&mut batch).expect("the trace reads") {}
    scan.losses().gaps.iter().map(|gap| gap.count).sum()
}
