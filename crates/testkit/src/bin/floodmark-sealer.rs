//! A program that seals a trace until no process records into it, to be killed by tests.
//!
//! `floodmark-sealer TRACE`
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_store::{Run, Sealer};
use floodmark_tail::reader::{Life, RingReader};

fn main() {
    let trace = PathBuf::from(std::env::args_os().nth(1).expect("a trace"));
    let mut sealer = Sealer::open(&trace, Run::default()).expect("the trace opens");
    let mut idle = 0;
    // The writer may not have started yet.
    while idle < 400 {
        let worked = sealer.tick().unwrap_or(false);
        // Small parts on purpose: more moments at which a kill can strike.
        if worked {
            let _ = sealer.seal();
        }
        idle = if worked || has_writers(&trace) { 0 } else { idle + 1 };
        std::thread::sleep(Duration::from_millis(1));
    }
    sealer.finish().expect("sealing ends");
}

/// Whether a process that is running has a ring in the trace.
fn has_writers(trace: &Path) -> bool {
    let entries = fs::read_dir(trace.join("segments")).into_iter().flatten().flatten();
    let rings = entries.filter(|entry| entry.path().extension().is_some_and(|name| name == "ring"));
    let readers = rings.filter_map(|ring| RingReader::new(File::open(ring.path()).ok()?).ok());
    readers.filter_map(|ring| ring.process().ok()).any(|process| process.life == Life::Running)
}
