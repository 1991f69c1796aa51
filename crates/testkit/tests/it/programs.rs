//! Running the torture programs and reading what they left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floodmark_event::{Event, EventBatch};
use floodmark_store::{ScanProps, Source as _, Trace};

/// A folder that goes with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("floodmark-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of rings in shared memory goes too.
        let traces = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let links = traces.flat_map(|trace| {
            std::fs::read_dir(trace.path().join("segments")).into_iter().flatten().flatten()
        });
        for ring in links.filter_map(|link| std::fs::read_link(link.path()).ok()) {
            let _ = std::fs::remove_file(ring);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn writer(trace: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark-writer"));
    command.arg(trace).args(arguments).stdout(Stdio::piped()).stdin(Stdio::null());
    command.spawn().expect("the writer starts")
}

pub(crate) fn sealer(trace: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark-sealer"));
    command.arg(trace).stdin(Stdio::null()).spawn().expect("the sealer starts")
}

/// The events of a trace by stream, which is the torture thread's number, in the trace's order.
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

/// What is known to be missing from a trace.
pub(crate) fn lost(trace: &Path) -> u64 {
    let trace = Trace::open(trace).expect("the trace opens");
    let mut scan = trace.scan(&ScanProps::default()).expect("the trace scans");
    let mut batch = EventBatch::new();
    while scan.next(&mut batch).expect("the trace reads") {}
    scan.losses().gaps.iter().map(|gap| gap.count).sum()
}
