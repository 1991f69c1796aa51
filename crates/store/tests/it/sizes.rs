//! What samples take, in the tail and at rest.

use std::fs;
use std::path::Path;

use floodmark_event::{Kind, Metric, StackId, Subject, SubjectId, SubjectKind};
use floodmark_store::{Run, SealerThread, Table, Trace};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::reader::RingReader;
use floodmark_tail::segment;
use floodmark_tail::{AllocDomain, RecordProps, Recorder, When};
use floodmark_testkit::TempDir;

use crate::traces::column_bytes;

const PROCESSES: usize = 100;
const SWEEPS: u64 = 1000;

/// A process as a sampler sees it.
#[derive(Clone, Copy, Default)]
struct Seen {
    anon_pages: u64,
    file_pages: u64,
    threads: u64,
    cpu_ticks: u64,
}

/// What a process does, of which `working` in twenty work and a quarter grow.
fn drift(seen: &mut Seen, number: usize, working: usize, random: &mut impl FnMut(u64) -> u64) {
    let kind = number % 20;
    if kind < working {
        // Memory goes up and down by up to a MiB, and it runs all the time.
        seen.anon_pages = (seen.anon_pages + random(256)).saturating_sub(random(256));
        seen.cpu_ticks += 1;
    } else if kind < working + 5 {
        if random(4) == 0 {
            seen.anon_pages += random(16);
            seen.cpu_ticks += 1;
        }
    } else if random(200) == 0 {
        seen.anon_pages += random(4);
    }
}

/// Committed bytes in a trace's tail, without definitions.
fn tail_bytes(trace: &Path) -> usize {
    let mut bytes = 0;
    for path in
        fs::read_dir(trace.join("segments")).expect("a tail").map(|entry| entry.expect("a file").path())
    {
        let content = fs::read(&path).expect("reads");
        if let Ok(ring) = RingReader::new(content.as_slice()) {
            let (chunks, _) = ring.chunks().expect("chunks");
            bytes +=
                chunks.iter().filter(|chunk| chunk.lane != 0).map(|chunk| chunk.payload.len()).sum::<usize>();
        }
        bytes += segment::frames(&content)
            .filter(|frame| frame.lane != 0)
            .map(|frame| frame.payload.len())
            .sum::<usize>();
    }
    bytes
}

/// Records sweeps with these values of each process; returns bytes per sample in the tail and at rest.
fn bytes_per_sample(name: &str, working: usize, values: impl Fn(&Seen) -> Vec<(Metric, u64)>) -> (f64, f64) {
    let folder = TempDir::new(name);
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut all: Vec<Seen> = (0..PROCESSES as u64)
        .map(|number| Seen {
            anon_pages: 1000 + random(100_000),
            file_pages: 2000 + random(10_000),
            threads: 1 + number % 9,
            cpu_ticks: random(100_000),
        })
        .collect();
    let subject = |number| Subject {
        kind: SubjectKind::Process,
        number,
        start_ns: 0,
        parent: SubjectId(0),
        name: "worker".into(),
        detail: String::new(),
    };
    let ids: Vec<SubjectId> =
        (0..PROCESSES as u64).map(|number| recorder.subject(&subject(number))).collect();
    let mut samples = 0;
    let start = monotonic_ns();
    for sweep in 0..SWEEPS {
        let time = start + sweep * 10_000_000 + random(200_000);
        for (number, seen) in all.iter_mut().enumerate() {
            drift(seen, number, working, &mut random);
            let values = values(seen);
            recorder.samples(ids[number], &values, When::At(time));
            samples += values.len();
        }
    }
    recorder.stop();
    let in_tail = tail_bytes(&path) as f64 / samples as f64;
    let trace = Trace::open(&path).expect("opens");
    let parts = || trace.manifest().parts_of(Table::Sample.name());
    assert_eq!(parts().map(|part| part.rows).sum::<u64>(), samples as u64);
    (in_tail, parts().map(|part| part.bytes).sum::<u64>() as f64 / samples as f64)
}

#[test]
fn samples_of_a_hundred_processes_take_few_bytes() {
    let everything = |seen: &Seen| {
        vec![
            (Metric::Rss, (seen.anon_pages + seen.file_pages) * 4096),
            (Metric::RssAnon, seen.anon_pages * 4096),
            (Metric::RssFile, seen.file_pages * 4096),
            (Metric::RssShmem, 0),
            (Metric::Swap, 0),
            (Metric::Threads, seen.threads),
            (Metric::CpuTime, seen.cpu_ticks * 10_000_000),
        ]
    };
    let rss = |seen: &Seen| vec![(Metric::Rss, (seen.anon_pages + seen.file_pages) * 4096)];
    let found = [
        bytes_per_sample("sizes-most-wait", 3, everything),
        bytes_per_sample("sizes-most-wait-one", 3, rss),
        bytes_per_sample("sizes-all-work", 20, everything),
        bytes_per_sample("sizes-all-work-one", 20, rss),
    ];
    assert!(found.iter().all(|(in_tail, _)| *in_tail <= 6.0), "{found:.2?}");
    // A value that jumps every time by anything up to a MiB is nine bits nobody can save.
    let limits = [0.6, 0.8, 1.6, 2.4];
    assert!(found.iter().zip(limits).all(|((_, at_rest), limit)| *at_rest <= limit), "{found:.2?}");
}

/// Bytes per event at rest, all and by column, of a program with a thousand live blocks of some sixty sizes
/// that end in any order.
fn bytes_per_event(name: &str, threads: u64, events: u64) -> (f64, Vec<(String, f64)>) {
    let folder = TempDir::new(name);
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let sealer = SealerThread::spawn(&path, Run::default()).expect("seals");
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let recorder = &recorder;
            scope.spawn(move || {
                let domain =
                    AllocDomain { device: 0, kind: Kind::Device, stream: thread, ..AllocDomain::default() };
                let mut live = vec![0u64; 1024];
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1);
                for _ in 0..events / threads {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let slot = (state >> 40) as usize % live.len();
                    let address = 0x7f00_0000_0000 + (thread << 32) + ((slot as u64) << 16);
                    if live[slot] == 0 {
                        live[slot] = 256 << (state >> 16 & 7) | (state >> 8 & 7) << 8;
                        recorder.alloc(address, live[slot], &domain, StackId(0));
                    } else {
                        recorder.free(address, live[slot], &domain);
                        live[slot] = 0;
                    }
                }
            });
        }
    });
    recorder.stop();
    sealer.stop().expect("seals the rest");
    column_bytes(&Trace::open(&path).expect("opens"), Table::Event)
}

#[test]
fn events_take_at_most_four_bytes_at_rest() {
    let found = [bytes_per_event("sizes-one", 1, 1_000_000), bytes_per_event("sizes-two", 2, 1_000_000)];
    assert!(found.iter().all(|(each, _)| *each <= 4.0), "{found:.2?}");
}
