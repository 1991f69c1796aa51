//! A program that seals a trace until nobody records into it, to be killed by tests.
//!
//! `floodmark-sealer TRACE`
use std::path::PathBuf;
use std::time::Duration;

use floodmark_store::{Run, Sealer};

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
        idle = if worked || sealer.has_writers().unwrap_or(false) { 0 } else { idle + 1 };
        std::thread::sleep(Duration::from_millis(1));
    }
    sealer.finish().expect("sealing ends");
}
