//! Files of heap profilers: our figures beside those that the tools print of the same files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use floodmark_convert::{
    EventsAndRows, Format, Mode, OpenProps, dhat, heap_profile, heaptrack, massif, memray, open, recognize,
};
use floodmark_event::{Action, Event, Kind, Metric};
use proptest::prelude::*;

use crate::logs::gaps;
use crate::snapshots::{Read, drain};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/heap").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(fixture(name)).expect("a fixture")
}

fn read(name: &str) -> Read {
    let file = open(&fixture(name), &OpenProps::default()).expect("a good file");
    drain((file.events().expect("events"), file.rows().expect("rows")))
}

/// What a file says in sum, added up in the plainest way.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    allocations: u64,
    allocated_bytes: u64,
    peak_bytes: u64,
    live_blocks: u64,
    live_bytes: u64,
    /// Frees that follow their allocation immediately.
    temporary: u64,
}

fn sums(read: &Read) -> Sums {
    let (mut sums, mut live, mut level) = (Sums::default(), HashMap::new(), 0);
    let mut last: Option<u64> = None;
    for event in &read.events {
        let key = (event.resource, event.address);
        if event.action == Action::Alloc {
            sums.allocations += 1;
            sums.allocated_bytes += event.bytes;
            assert_eq!(live.insert(key, event.bytes), None, "{event:?}");
            level += event.bytes;
            sums.peak_bytes = sums.peak_bytes.max(level);
            last = Some(event.address);
        } else {
            if let Some(bytes) = live.remove(&key) {
                level -= bytes;
                sums.temporary += u64::from(last == Some(event.address));
            }
            last = None;
        }
    }
    (sums.live_blocks, sums.live_bytes) = (live.len() as u64, level);
    sums
}

/// Innermost functions by what the events that they are in add up to, the most first.
fn sites(read: &Read, value: impl Fn(&Event) -> u64) -> Vec<(String, u64)> {
    let mut sites: BTreeMap<String, u64> = BTreeMap::new();
    for event in read.events.iter().filter(|event| event.action == Action::Alloc) {
        let frame = read.tables.frames_of(event.stack).next().unwrap_or_default();
        let function = read.tables.string(frame.function).to_owned();
        *sites.entry(function).or_default() += value(event);
    }
    let mut sites: Vec<_> = sites.into_iter().filter(|(_, value)| *value > 0).collect();
    sites.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    sites
}

/// The number behind `label` in what a tool printed.
fn printed(text: &str, label: &str) -> String {
    let line = text.lines().find(|line| line.contains(label)).expect("the label");
    let rest = line.split_once(label).expect("the label").1.trim();
    rest.split([' ', ',']).next().unwrap_or_default().to_owned()
}

/// `543.56K`, as heaptrack writes.
fn heaptrack_size(bytes: u64) -> String {
    // It rounds to the nearest.
    let bytes = bytes + 5;
    format!("{}.{:02}K", bytes / 1000, bytes % 1000 / 10)
}

#[test]
fn figures_of_heaptrack_are_those_of_heaptrack_print() {
    for (name, print) in
        [("heaptrack.zst", "heaptrack_print.txt"), ("heaptrack.raw.gz", "heaptrack_raw_print.txt")]
    {
        assert_eq!(recognize(&fixture(name)).ok(), Some(Format::Heaptrack));
        let (read, print) = (read(name), text(print));
        let sums = sums(&read);
        assert_eq!(sums.allocations.to_string(), printed(&print, "calls to allocation functions:"), "{name}");
        assert_eq!(sums.temporary.to_string(), printed(&print, "temporary memory allocations:"), "{name}");
        let leaked = printed(&print, "total memory leaked:");
        assert_eq!(heaptrack_size(sums.live_bytes), leaked, "{name}");
        let peak = printed(&print, "peak heap memory consumption:");
        assert_eq!(heaptrack_size(sums.peak_bytes), peak, "{name}");
        let rss = read.samples(Metric::Rss).into_iter().max().expect("samples");
        assert_eq!(format!("{:.2}M", rss as f64 / 1e6), printed(&print, "(including heaptrack overhead):"));
        let last_ms = read.rows.last().expect("rows").time_ns() / 1_000_000;
        assert_eq!(format!("{:.2}s.", last_ms as f64 / 1e3), printed(&print, "total runtime:"));
        assert!(read.events.is_sorted_by_key(|event| event.time_ns));
        assert_eq!(read.tables.processes[0].command, "./work");
    }
}

#[test]
fn stacks_of_heaptrack_have_names_or_addresses_in_modules() {
    let named = read("heaptrack.zst");
    let calls = sites(&named, |_| 1);
    assert_eq!(calls[..2], [("count_words".to_owned(), 400), ("fill_cache".to_owned(), 40)]);
    let grown = named.events.iter().find(|event| event.bytes == 65536).expect("the grown buffer");
    let stack = named.tables.stack_text(grown.stack);
    assert_eq!(stack[..2], ["grow_buffer (/home/user/heap/work.c:31)", "main (/home/user/heap/work.c:67)"]);
    let raw = read("heaptrack.raw.gz");
    let grown = raw.events.iter().find(|event| event.bytes == 65536).expect("the grown buffer");
    let stack = raw.tables.stack_text(grown.stack);
    assert_eq!(stack[..2], ["0x1257 [/home/user/heap/work]", "0x1342 [/home/user/heap/work]"]);
    assert!(raw.losses.gaps[0].is_remark && raw.losses.gaps[0].reason.contains("--interpret"));
    assert_eq!(named.events.len(), raw.events.len());
}

const HEAPTRACK: Open = |bytes, path, props| heaptrack::open(bytes, path, props);
const MEMRAY: Open = |bytes, path, props| memray::open(bytes, path, props);
const MASSIF: Open = |bytes, path, props| massif::open(bytes, path, props);
const DHAT: Open = |bytes, path, props| dhat::open(bytes, path, props);
const HEAP_PROFILE: Open = |bytes, path, props| heap_profile::open(bytes, path, props);
type Open = fn(&[u8], &Path, &OpenProps) -> floodmark_store::Result<EventsAndRows>;

fn read_bytes(open: Open, bytes: &[u8], mode: Mode) -> Result<(Read, Option<String>), String> {
    let props = OpenProps { mode, ..OpenProps::default() };
    let (mut events, mut rows) = open(bytes, Path::new("file"), &props).map_err(|error| error.to_string())?;
    // Like `drain`, but errors on the way end it.
    let (mut all, mut batch) = (Vec::new(), floodmark_event::EventBatch::new());
    let mut error = None;
    loop {
        match events.next(&mut batch) {
            Ok(true) => all.extend(batch.events()),
            Ok(false) => break,
            Err(found) => {
                error = Some(found.to_string());
                break;
            }
        }
    }
    let (mut all_rows, mut some) = (Vec::new(), Vec::new());
    while rows.next(&mut some).is_ok_and(|is_more| is_more) {
        all_rows.append(&mut some);
    }
    let read = Read {
        events: all,
        tables: events.tables().clone(),
        losses: events.losses(),
        rows: all_rows,
        row_tables: rows.tables().clone(),
        row_losses: rows.losses(),
    };
    Ok((read, error))
}

#[test]
fn heaptrack_lines_that_cannot_be_read_are_errors_or_losses() {
    let log = "v 10400 3\nX ./a\nI 1000 10\ns 4 ma\nn\ni 10 0 1\nt 1 0\na 20 1\n+ 0\nc a\n+ 9\n- 0\nR 2\n+ 0";
    let error = read_bytes(HEAPTRACK, log.as_bytes(), Mode::Strict).expect("a header").1;
    assert_eq!(error.as_deref(), Some("file:line 11: there is no block of this number"));
    let (read, error) = read_bytes(HEAPTRACK, log.as_bytes(), Mode::Lenient).expect("lenient");
    assert_eq!((error, read.events.len()), (None, 2));
    assert_eq!(read.events[1].time_ns, 10_000_000);
    // A text may hold the end of a line.
    assert_eq!(read.tables.stack_text(read.events[0].stack), ["ma\nn"]);
    assert_eq!(read.samples(Metric::Rss), [8192]);
    let unfinished = "the last line has no end and was left out";
    assert_eq!(gaps(&read.losses), [(1, "malformed lines skipped"), (1, unfinished)]);
    let newer = read_bytes(HEAPTRACK, b"v 20000 4\n", Mode::Lenient).err().expect("too new");
    assert_eq!(newer, "file:line 1: the file has format 4 of heaptrack 2.0.0; formats 1 to 3 can be read");
}

#[test]
fn of_blocks_that_are_alike_heaptracks_newest_is_freed_and_a_remark_says_so() {
    let log = "v 10400 3\nX a\na 8 0\n+ 0\n+ 0\n- 0\n- 0\n";
    let (read, _) = read_bytes(HEAPTRACK, log.as_bytes(), Mode::Strict).expect("good");
    assert_eq!(read.events.iter().map(|event| event.address).collect::<Vec<_>>(), [1, 2, 2, 1]);
    assert!(read.losses.gaps[0].reason.contains("the newest is taken"));
}

#[test]
fn figures_of_memray_are_those_of_memray_stats() {
    for (name, print) in [("memray_1.20.bin", "memray_1.20.json"), ("memray_1.19.bin", "memray_1.19.json")] {
        assert_eq!(recognize(&fixture(name)).ok(), Some(Format::Memray));
        let read = read(name);
        let stats: serde_json::Value = serde_json::from_str(&text(print)).expect("JSON");
        let sums = sums(&read);
        assert_eq!(stats["total_num_allocations"], sums.allocations, "{name}");
        assert_eq!(stats["total_bytes_allocated"], sums.allocated_bytes, "{name}");
        assert_eq!(stats["metadata"]["peak_memory"], sums.peak_bytes, "{name}");
        assert_eq!(stats["metadata"]["pid"], read.tables.processes[0].pid, "{name}");
        // All records of allocations and frees, those of blocks from before the recording among them.
        assert_eq!(stats["metadata"]["total_allocations"], read.events.len(), "{name}");
        let place = |event: &Event| {
            let frame = read.tables.frames_of(event.stack).next()?;
            let file = Path::new(read.tables.string(frame.file)).file_name()?.to_str()?;
            Some(format!("{}:{file}:{}", read.tables.string(frame.function), frame.line))
        };
        let mut by_place: BTreeMap<String, u64> = BTreeMap::new();
        for event in read.events.iter().filter(|event| event.action == Action::Alloc) {
            *by_place.entry(place(event).unwrap_or_default()).or_default() += event.bytes;
        }
        let top = stats["top_allocations_by_size"].as_array().expect("a list");
        assert!(top.len() >= 4, "{stats:#}");
        for location in top {
            let name = location["location"].as_str().expect("a text");
            assert_eq!(location["size"], *by_place.get(name).unwrap_or(&0), "{name}: {by_place:#?}");
        }
        assert!(read.events.is_sorted_by_key(|event| event.time_ns));
        assert!(!read.samples(Metric::Rss).is_empty());
        assert_eq!(gaps(&read.losses), []);
    }
}

#[test]
fn memrays_threads_have_names_and_stacks_of_their_own() {
    let read = read("memray_1.20.bin");
    let loaded = read.events.iter().find(|event| event.bytes == 300_001).expect("what the thread loaded");
    let stack = read.tables.stack_text(loaded.stack);
    assert_eq!(stack[0], "worker (work.py:24)");
    assert!(stack.last().is_some_and(|frame| frame.starts_with("_bootstrap (")), "{stack:?}");
    let thread = read.tables.threads.iter().find(|thread| thread.name == "loader").expect("a name");
    assert_eq!(thread.thread, loaded.thread);
    // Frames that memray's own reports skip are left out: of memray, the call that runs the program is left.
    let grown = read.events.iter().find(|event| event.bytes == 2_000_001).expect("a temporary block");
    let stack = read.tables.stack_text(grown.stack);
    assert!(stack.iter().filter(|frame| frame.contains("memray")).count() == 1, "{stack:?}");
    assert_eq!(stack[0], "temporary (work.py:13)");
    assert!(stack.iter().any(|frame| frame.starts_with("<module> (work.py")), "{stack:?}");
}

#[test]
fn a_memray_file_that_is_cut_off_is_read_up_to_the_cut() {
    let mut whole = memray_bytes();
    // The trailer is the last byte that is not zero.
    whole.truncate(whole.iter().rposition(|byte| *byte != 0).expect("a trailer") + 1);
    let (all, _) = read_bytes(MEMRAY, &whole, Mode::Strict).expect("good");
    let end = "the file has no end: the program was killed, or the copy is not whole";
    for len in [whole.len() / 2, whole.len() - 1] {
        let (cut, error) = read_bytes(MEMRAY, &whole[..len], Mode::Strict).expect("good so far");
        assert_eq!((error, gaps(&cut.losses)), (None, vec![(0, end)]));
        assert!(all.events.starts_with(&cut.events) && !cut.events.is_empty());
    }
    // A killed program leaves zeroes behind its last record.
    let zeroes = [&whole[..whole.len() - 1], &[0; 100]].concat();
    let (cut, error) = read_bytes(MEMRAY, &zeroes, Mode::Strict).expect("good so far");
    assert_eq!((error, gaps(&cut.losses), cut.events.len()), (None, vec![(0, end)], all.events.len()));
    let mut other = whole.clone();
    other[7] = 11;
    let error = read_bytes(MEMRAY, &other, Mode::Lenient).err().expect("too old");
    assert_eq!(
        error,
        "file:byte 11: the file has format 11; formats 12 and 13 (memray 1.18 to 1.20) can be read"
    );
    let aggregated = read_bytes(MEMRAY, &[&whole[..16], &[1], &whole[17..]].concat(), Mode::Lenient);
    assert!(aggregated.err().is_some_and(|error| error.contains("--aggregate")));
}

/// A memray file that is not compressed any more.
fn memray_bytes() -> Vec<u8> {
    let packed = fs::read(fixture("memray_1.20.bin")).expect("a fixture");
    let mut bytes = Vec::new();
    let mut decoder = lz4_flex::frame::FrameDecoder::new(&*packed);
    std::io::Read::read_to_end(&mut decoder, &mut bytes).expect("good");
    bytes
}

#[test]
fn figures_of_massif_are_those_of_ms_print() {
    assert_eq!(recognize(&fixture("massif.out")).ok(), Some(Format::Massif));
    let (read, print) = (read("massif.out"), text("ms_print.txt"));
    // Rows of the table: number, time, total, useful heap, extra heap, stacks.
    let snapshots: Vec<Vec<u64>> = print
        .lines()
        .filter_map(|line| line.replace(',', "").split_whitespace().map(|field| field.parse().ok()).collect())
        .filter(|fields: &Vec<u64>| fields.len() == 6)
        .collect();
    assert_eq!(snapshots.len(), 60);
    let column = |at: usize| snapshots.iter().map(|fields| fields[at]).collect::<Vec<_>>();
    assert_eq!(read.samples(Metric::Live), column(3));
    assert_eq!(read.samples(Metric::Reserved), column(2));
    // Snapshot 12 is the peak.
    let peak = &snapshots[12];
    assert_eq!(sums(&read).live_bytes, peak[3]);
    assert!(read.events.iter().all(|event| event.time_ns == peak[1] as i64 * 1_000_000));
    let held = sites(&read, |event| event.bytes);
    assert!(print.contains("(400,000B) 0x109301: fill_cache (work.c:39)"));
    assert_eq!(held[..2], [("fill_cache".to_owned(), 400_000), ("grow_buffer".to_owned(), 65_536)]);
    assert_eq!(read.tables.stack_text(read.events[0].stack), ["fill_cache (work.c:39)", "main (work.c:68)"]);
    assert!(read.losses.gaps.iter().all(|gap| gap.is_remark));
}

#[test]
fn figures_of_dhat_are_those_that_it_prints() {
    assert_eq!(recognize(&fixture("dhat.out")).ok(), Some(Format::Dhat));
    let (read, readme) = (read("dhat.out"), text("README.md"));
    let sums = sums(&read);
    assert!(readme.contains("At t-gmax: 470,808 bytes in 47 blocks"));
    assert_eq!((sums.live_bytes, sums.live_blocks), (470_808, 47));
    assert_eq!(read.samples(Metric::Live), [470_808, 10_000]);
    let remarks: Vec<_> = read.losses.gaps.iter().map(|gap| &*gap.reason).collect();
    assert!(remarks.iter().any(|remark| remark.contains("555,374 bytes in 463 blocks")), "{remarks:?}");
    let cached = read.events.iter().find(|event| event.bytes == 10_000).expect("cached");
    let stack = read.tables.stack_text(cached.stack);
    assert_eq!(stack[1..], ["fill_cache (work.c:39)", "main (work.c:68)"]);
}

#[test]
fn figures_of_heap_profiles_are_those_of_jeprof_and_pprof() {
    for (name, print, blocks) in [
        ("jeprof.heap", "jeprof.txt", 13),
        ("jeprof_names.heap", "jeprof.txt", 13),
        ("jeprof_sampled.heap", "jeprof_sampled.txt", 3),
        ("tcmalloc.heap", "google-pprof.txt", 41),
    ] {
        assert_eq!(recognize(&fixture(name)).ok(), Some(Format::HeapProfile));
        let (read, print) = (read(name), text(print));
        let sums = sums(&read);
        let total: u64 = printed(&print, "Total:").parse().expect("bytes");
        // Estimates are rounded stack by stack there.
        assert!(sums.live_bytes.abs_diff(total) <= 2, "{name}: {} and {total}", sums.live_bytes);
        assert_eq!(sums.live_blocks, blocks, "{name}");
        assert!(read.events.iter().all(|event| event.kind == Kind::Pageable && event.scope != 0));
    }
    let plain = read("tcmalloc.heap");
    let cached = plain.events.iter().find(|event| event.bytes == 10_000).expect("cached");
    assert_eq!(plain.tables.stack_text(cached.stack)[0], "0x1301 [/home/user/heap/work]");
    let named = read("jeprof_names.heap");
    let lost = named.events.iter().filter(|event| {
        let stack = named.tables.stack_text(event.stack);
        stack.iter().any(|frame| frame.starts_with("leak [/home/user/heap/work]"))
    });
    assert_eq!(lost.map(|event| event.bytes).sum::<u64>(), 2 * 5120);
}

fn seeds() -> Vec<(&'static str, Open, Vec<u8>)> {
    let bytes = |name: &str| fs::read(fixture(name)).expect("a fixture");
    let unpacked = |name: &str| {
        let mut bytes = Vec::new();
        let packed = fs::File::open(fixture(name)).expect("a fixture");
        let mut decoder = flate2::read::GzDecoder::new(packed);
        std::io::Read::read_to_end(&mut decoder, &mut bytes).expect("good");
        bytes
    };
    vec![
        ("heaptrack", HEAPTRACK, unpacked("heaptrack.raw.gz")),
        ("memray", MEMRAY, memray_bytes()),
        ("massif", MASSIF, bytes("massif.out")),
        ("dhat", DHAT, bytes("dhat.out")),
        ("heap_profile", HEAP_PROFILE, bytes("jeprof_names.heap")),
    ]
}

fn check(open: Open, bytes: &[u8]) {
    let [strict, lenient] = [Mode::Strict, Mode::Lenient].map(|mode| read_bytes(open, bytes, mode));
    if let Ok((strict, None)) = strict {
        let (lenient, _) = lenient.expect("there is nothing to pass over");
        assert_eq!(strict.events, lenient.events);
    }
}

#[test]
fn every_seed_of_the_fuzzers_of_heap_profiles_is_read_without_panic() {
    for (name, open, _) in seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let seeds: Vec<_> = fs::read_dir(folder).expect("the seeds").collect();
        assert!(seeds.len() > 2, "{name}");
        for seed in seeds {
            check(open, &fs::read(seed.expect("an entry").path()).expect("a seed"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_of_heap_profilers_are_read_or_refused(
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        cut in any::<usize>(),
    ) {
        for (_, open, mut bytes) in seeds() {
            for (at, byte) in &flips {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            check(open, &bytes);
            bytes.truncate(cut % bytes.len());
            check(open, &bytes);
        }
    }
}
