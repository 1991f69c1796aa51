//! A program that opens a trace and says what is in it, for tests that can only look from inside a
//! mount namespace.
//!
//! `floodmark-counter TRACE` prints `EVENTS LOST` and checks that each torture thread's events are
//! the first ones it recorded.
#![expect(clippy::print_stdout, reason = "a test program: its output is its protocol")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use floodmark_event::{Event, EventBatch};
use floodmark_store::{ScanProps, Source as _, Trace};
use floodmark_testkit::torture::check_thread;

fn main() {
    let trace = PathBuf::from(std::env::args_os().nth(1).expect("a trace"));
    let mut scan =
        Trace::open(&trace).expect("the trace opens").scan(&ScanProps::default()).expect("it scans");
    let mut batch = EventBatch::new();
    let mut threads: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    while scan.next(&mut batch).expect("it reads") {
        for event in batch.events() {
            threads.entry(event.stream).or_default().push(event);
        }
    }
    let lost: u64 = scan.losses().gaps.iter().map(|gap| gap.count).sum();
    let check = std::env::args().nth(2).is_none();
    let events: u64 = threads
        .iter()
        .map(|(thread, events)| if check { check_thread(*thread, events) } else { events.len() as u64 })
        .sum();
    println!("{events} {lost}");
}
