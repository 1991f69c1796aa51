//! A program that records, to be killed, starved and forked by tests.
//!
//! `floodmark-writer TRACE THREADS EVENTS [--seal] [--ack] [--fork N] [--exit HOW] [--small-ring DIR]`
//!
//! Each thread allocates and frees blocks whose address says thread and number, so that a test can
//! tell from the trace what must be there. With `--ack` every thread writes its count of committed
//! events to standard output after each batch.
#![expect(unsafe_code, reason = "forks, as the programs we record do")]
#![expect(clippy::print_stdout, reason = "a test program: its output is its protocol")]

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

use floodmark_event::{Kind, StackId};
use floodmark_store::{Run, SealerThread};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};
use floodmark_testkit::torture::{ACK_EVENTS, event_of};

static OUTPUT: Mutex<()> = Mutex::new(());

/// Records `events` events as thread `number`.
fn work(number: u64, events: u64, ack: bool) {
    let domain = AllocDomain { device: 0, kind: Kind::Device, stream: number, ..AllocDomain::default() };
    for index in 0..events {
        let (is_alloc, address, bytes) = event_of(number, index);
        if is_alloc {
            tail::alloc(address, bytes, &domain, StackId(0));
        } else {
            tail::free(address, bytes, &domain);
        }
        let committed = index + 1;
        if ack && committed % ACK_EVENTS == 0 {
            let _whole_lines = OUTPUT.lock();
            println!("{number} {committed}");
            let _ = std::io::stdout().flush();
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let option = |name: &str| words.iter().position(|word| word == name);
    let trace = PathBuf::from(&words[1]);
    let (threads, events) = (number(2), number(3));
    let ack = option("--ack").is_some();
    let mut props = RecordProps::new(&trace);
    if let Some(at) = option("--small-ring") {
        props.ring_directory = Some(PathBuf::from(&words[at + 1]));
    }
    let recorder = Recorder::start_global(props).expect("recording starts");
    let sealer =
        option("--seal").map(|_| SealerThread::spawn(&trace, Run::default()).expect("sealing starts"));
    let forks = option("--fork").map_or(0, |at| number(at + 1));
    let mut children = Vec::new();
    for child in 0..forks {
        // SAFETY: only the calling thread records so far, and the child does nothing that needs the
        // sealing thread it does not have.
        match unsafe { libc::fork() } {
            0 => {
                work(1000 + child, events, false);
                std::process::exit(0);
            }
            pid => children.push(pid),
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let name = format!("worker-{thread}");
            let body = move || work(thread + 1, events, ack);
            std::thread::Builder::new().name(name).spawn_scoped(scope, body).expect("threads start");
        }
    });
    for pid in children {
        // SAFETY: waits for a child of ours.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
    match option("--exit").map(|at| words[at + 1].as_str()) {
        Some("immediately") => {
            // SAFETY: ends the process without running anything, as a crash would.
            unsafe { libc::_exit(0) }
        }
        Some("plainly") => std::process::exit(0),
        _ => {
            recorder.stop();
            if let Some(sealer) = sealer {
                sealer.stop().expect("sealing ends");
            }
        }
    }
}
