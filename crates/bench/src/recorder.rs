//! What recording an event costs a program, beside a text log.
//!
//! A loop that makes up addresses and sizes runs bare, with recording, and with a line of text per
//! event written as RMM's logging adaptor writes it (formatted, under one lock, buffered). The cost is
//! CPU time of the threads themselves, so that more threads than cores do not look like a cost.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use floodmark_event::{Kind, StackId};
use floodmark_store::{Run, SealerThread};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};

use crate::measure::{Samples, thread_cpu_ns};

/// How the loop makes up its events.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// A thousand live blocks of some sixty sizes, as programs have.
    Steady,
    /// Any address in 256 MiB and any size below 1 MiB, as nothing has: the worst case.
    Random,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Bare,
    /// Reads the clock and nothing else: how fast the machine is at the moment.
    Clock,
    Recorded,
    Sealed,
    Text,
}

/// One thread's share; returns its CPU time in ns.
fn work(thread: u64, events: u64, shape: Shape, each: &impl Fn(bool, u64, u64, &AllocDomain)) -> u64 {
    let domain =
        AllocDomain { device: 0, kind: Kind::Device, stream: 0x1000 + thread, ..AllocDomain::default() };
    let mut live = vec![(0u64, 0u64); 1024];
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1);
    let begin = thread_cpu_ns();
    for index in 0..events {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if shape == Shape::Random {
            let address = 0x7f00_0000_0000 + (state >> 20 & 0xf_ffff) * 256;
            each(index % 2 == 0, address, state & 0xf_ffff, &domain);
            continue;
        }
        // Each slot of the thousand is filled, later freed, filled again with another size.
        let slot = (state >> 40) as usize % live.len();
        let (address, bytes) = live[slot];
        if bytes == 0 {
            let bytes = 256 << (state >> 16 & 7) | (state >> 8 & 7) << 8;
            let address = 0x7f00_0000_0000 + ((slot as u64) << 16);
            live[slot] = (address, bytes);
            each(true, address, bytes, &domain);
        } else {
            live[slot].1 = 0;
            each(false, address, bytes, &domain);
        }
    }
    thread_cpu_ns() - begin
}

/// Runs all threads; returns CPU ns per event.
fn loops(threads: u64, events: u64, shape: Shape, each: impl Fn(bool, u64, u64, &AllocDomain) + Sync) -> f64 {
    let share = events / threads;
    let each = &each;
    let total: u64 = std::thread::scope(|scope| {
        let started: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread, share, shape, each))).collect();
        started.into_iter().map(|thread| thread.join().expect("the loop ends")).sum()
    });
    total as f64 / (share * threads) as f64
}

/// Bytes per event, in the tail and at rest.
#[derive(Default)]
struct Bytes {
    tail: f64,
    at_rest: f64,
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

fn once(way: Way, threads: u64, events: u64, shape: Shape, folder: &Path, bytes: &mut Bytes) -> Result<f64> {
    let trace: PathBuf = folder.join("recorder.flood");
    let _ = fs::remove_dir_all(&trace);
    let record = |is_alloc: bool, address: u64, size: u64, domain: &AllocDomain| {
        if is_alloc {
            tail::alloc(address, size, domain, StackId(0));
        } else {
            tail::free(address, size, domain);
        }
    };
    match way {
        Way::Bare => Ok(loops(threads, events, shape, |is_alloc, address, size, _| {
            std::hint::black_box((is_alloc, address, size));
        })),
        Way::Clock => Ok(loops(threads, events, shape, |_, _, _, _| {
            std::hint::black_box(floodmark_tail::clock::monotonic_ns());
        })),
        Way::Recorded | Way::Sealed => {
            let recorder = Recorder::start_global(RecordProps::new(&trace)).context("starting to record")?;
            let sealer =
                (way == Way::Sealed).then(|| SealerThread::spawn(&trace, Run::default())).transpose()?;
            let cost = loops(threads, events, shape, record);
            recorder.stop();
            if let Some(sealer) = sealer {
                let manifest = sealer.stop()?;
                let parts = manifest.parts_of("event");
                let (rows, size) =
                    parts.fold((0, 0), |(rows, size), part| (rows + part.rows, size + part.bytes));
                bytes.at_rest = size as f64 / rows as f64;
            } else {
                bytes.tail = folder_bytes(&trace.join("segments")) as f64 / events as f64;
            }
            Ok(cost)
        }
        Way::Text => {
            let file = File::create(folder.join("recorder.csv"))?;
            let log = Mutex::new(BufWriter::with_capacity(64 * 1024, file));
            Ok(loops(threads, events, shape, |is_alloc, address, size, domain| {
                let now = floodmark_tail::clock::monotonic_ns();
                let (seconds, micros) = (now / 1_000_000_000 % 86_400, now / 1000 % 1_000_000);
                let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                let action = if is_alloc { "allocate" } else { "free" };
                let mut log = log.lock().expect("nobody panics");
                let _ = writeln!(
                    log,
                    "{},{hours:02}:{minutes:02}:{seconds:02}.{micros:06},{action},{address:#x},{size},{:#x}",
                    687, domain.stream
                );
            }))
        }
    }
}

pub(crate) fn run(folder: &Path, events: u64, repeat: usize) -> Result<()> {
    println!("CPU ns per event added to a loop: median (least–most) of {repeat} runs of {events} events\n");
    println!(
        "| events | threads | recorded | of that reading the clock | recorded and sealed beside it | text log | text / recorded | bytes in the tail | at rest |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (shape, name) in [(Shape::Steady, "steady"), (Shape::Random, "random")] {
        for threads in [1, 2, 8] {
            let mut samples: [Samples; 4] = Default::default();
            let mut bytes = Bytes::default();
            for _ in 0..repeat {
                let bare = once(Way::Bare, threads, events, shape, folder, &mut bytes)?;
                for (samples, way) in
                    samples.iter_mut().zip([Way::Recorded, Way::Clock, Way::Sealed, Way::Text])
                {
                    samples.push(once(way, threads, events, shape, folder, &mut bytes)? - bare);
                }
            }
            let [recorded, clock, sealed, text] = &samples;
            println!(
                "| {name} | {threads} | {} | {} | {} | {} | ×{:.1} | {:.1} | {:.2} |",
                recorded.text(1),
                clock.text(1),
                sealed.text(1),
                text.text(0),
                text.median() / recorded.median(),
                bytes.tail,
                bytes.at_rest,
            );
        }
    }
    let _ = fs::remove_dir_all(folder.join("recorder.flood"));
    let _ = fs::remove_file(folder.join("recorder.csv"));
    Ok(())
}
