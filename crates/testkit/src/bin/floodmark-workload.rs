//! Writes a trace of a program that never ran, to measure with.
//!
//! `floodmark-workload TRACE EVENTS LIVE THREADS STREAMS STACKS`

use std::path::Path;

use floodmark_event::EventBatch;
use floodmark_store::{Losses, Overwrite, Run, TraceWriter};
use floodmark_testkit::{Workload, WorkloadProps};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(1);
    let props = WorkloadProps {
        events: number(2),
        live: number(3) as usize,
        threads: number(4) as u32,
        streams: number(5) as u32,
        stacks: number(6) as u32,
        leak_rate: 1e-5,
        failure_rate: 1e-6,
        ..WorkloadProps::default()
    };
    let mut workload = Workload::new(props);
    let trace = TraceWriter::create(Path::new(&words[1]), Run::default(), Overwrite::Yes);
    let mut trace = trace.expect("a trace can be made there");
    let mut batch = EventBatch::new();
    while workload.fill(&mut batch) {
        trace.write(&batch, workload.tables()).expect("the trace can be written");
    }
    trace.finish(workload.tables(), &Losses::default()).expect("the trace can be completed");
}
