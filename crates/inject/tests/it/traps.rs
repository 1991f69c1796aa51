//! Programs that break recorders: none crashes or hangs, and what they did is in the trace or counted.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use floodmark_event::tables::Frame;
use floodmark_event::{Action, Event, Kind};
use floodmark_tail::heap::{HeapNote, scaled_blocks, scaled_bytes};
use floodmark_testkit::TempDir;

use crate::build::{compile, finish, library, recording, work_directory};
use crate::heap_tail::HeapTail;

/// A program that runs with the library and, behind it, the oracle.
struct Trap {
    directory: TempDir,
    program: PathBuf,
    oracle: PathBuf,
}

/// What the oracle counted in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    blocks: usize,
    bytes: u64,
    unknown_frees: usize,
}

impl Trap {
    #[track_caller]
    fn new(source: &str, options: &[&str]) -> Self {
        let name = Path::new(source).file_stem().expect("a name").to_string_lossy().into_owned();
        let directory = work_directory(&format!("inject-{name}"));
        let program = compile(source, options, &directory);
        let oracle = compile("oracle.c", &["-shared", "-fPIC"], &directory);
        Self { directory, program, oracle }
    }

    fn trace(&self) -> PathBuf {
        self.directory.join("run.flood")
    }

    /// Runs the program to its end.
    #[track_caller]
    fn run(&self, heap: &str, arguments: &[&str]) -> Output {
        let mut command = recording(&self.program, &self.trace(), heap);
        let mut preload = library().into_os_string();
        preload.push(":");
        preload.push(&self.oracle);
        command.env("LD_PRELOAD", preload).env("ORACLE", self.directory.join("counted"));
        let child = command.args(arguments).spawn().expect("starts");
        finish(child, &self.program.to_string_lossy())
    }

    /// What the oracle counted, by pid.
    fn counted(&self) -> BTreeMap<u32, Counted> {
        let text = std::fs::read_to_string(self.directory.join("counted")).expect("the oracle's counts");
        let row = |line: &str| {
            let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
            let mut next = || words.next().expect("four numbers");
            let (pid, blocks, bytes, unknown) = (next(), next(), next(), next());
            (pid as u32, Counted { blocks: blocks as usize, bytes, unknown_frees: unknown as usize })
        };
        text.lines().map(row).collect()
    }

    /// Asserts that the only process's trace says what the oracle counted; returns it.
    #[track_caller]
    fn assert_counted(&self) -> HeapTail {
        let tail = HeapTail::read(&self.trace());
        assert_agrees(&tail, &self.counted());
        tail
    }
}

#[track_caller]
fn assert_agrees(tail: &HeapTail, counted: &BTreeMap<u32, Counted>) {
    let (live, unknown_frees) = tail.live(Kind::Pageable);
    let bytes = live.values().map(|block| block.bytes).sum();
    let ours = Counted { blocks: live.len(), bytes, unknown_frees };
    assert_eq!(tail.losses, 0, "losses");
    assert_eq!(Some(&ours), counted.get(&tail.pid), "{} {:?}", tail.command, tail.notes());
}

#[track_caller]
fn assert_success(output: &Output) {
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Asserts that stacks were checked and none was wrong.
#[track_caller]
fn assert_stacks_checked(tail: &HeapTail, least: u32) {
    let notes = tail.notes();
    let mismatch = notes.iter().find(|(note, _)| *note == HeapNote::Mismatch);
    assert_eq!(mismatch, None);
    let checked = notes.iter().find(|(note, _)| *note == HeapNote::Checked).map_or(0, |(_, count)| *count);
    assert!(checked >= least, "{checked} stacks were checked");
}

#[test]
fn allocations_before_main_in_destructors_and_after_main_are_recorded() {
    let trap = Trap::new("lifecycle.cpp", &[]);
    assert_success(&trap.run("all", &[]));
    let tail = trap.assert_counted();
    let allocated = |bytes| {
        tail.events.iter().filter(|event| event.action == Action::Alloc && event.bytes == bytes).count()
    };
    for bytes in [6002, 6003, 6004, 6005, 6006, 777] {
        assert_eq!(allocated(bytes), 1, "{bytes}");
    }
    // Each of 80 threads, in destructors of its variables and in three rounds of keys.
    for bytes in [4001, 4002, 5001, 5002, 5003] {
        assert_eq!(allocated(bytes), 80, "{bytes}");
    }
}

#[test]
fn all_ways_to_make_a_process_are_recorded() {
    let trap = Trap::new("processes.c", &[]);
    assert_success(&trap.run("all", &[]));
    let processes = HeapTail::read_all(&trap.trace());
    let mut found = BTreeMap::new();
    for event in processes.iter().flat_map(|process| &process.events) {
        if event.action == Action::Alloc && (777_000..778_000).contains(&event.bytes) {
            *found.entry(event.bytes).or_insert(0) += 1;
        }
    }
    let expected = [777_001].into_iter().chain(777_003..=777_006).chain(777_100..777_120);
    assert_eq!(found, expected.map(|bytes| (bytes, 1)).collect());
    // The process itself and those that were started anew end in order.
    let counted = trap.counted();
    assert_eq!(counted.len(), 4);
    for process in processes.iter().filter(|process| counted.contains_key(&process.pid)) {
        assert_agrees(process, &counted);
    }
}

#[test]
fn five_hundred_threads_with_small_stacks_are_recorded() {
    let trap = Trap::new("threads.c", &[]);
    assert_success(&trap.run("all", &["500"]));
    let tail = trap.assert_counted();
    let blocks =
        tail.events.iter().filter(|event| event.action == Action::Alloc && event.bytes == 500).count();
    assert_eq!(blocks, 500);
    let stacked =
        tail.events.iter().filter(|event| event.action == Action::Alloc && event.stack.0 != 0).count();
    assert_eq!(stacked, tail.count(Action::Alloc, Kind::Pageable));
}

#[test]
fn what_was_recorded_survives_every_end() {
    let trap = Trap::new("ends.c", &[]);
    for how in ["return", "_exit", "quick_exit", "abort", "kill", "exec", "fault"] {
        let output = trap.run("all", &[how]);
        let expected = match how {
            "abort" => Some(libc_signal::ABORT),
            "kill" => Some(libc_signal::KILL),
            "fault" => Some(libc_signal::SEGV),
            _ => None,
        };
        assert_eq!(output.status.signal(), expected, "{how}");
        let processes = HeapTail::read_all(&trap.trace());
        let tail = processes.iter().find(|process| process.command.contains("ends")).expect("a process");
        let live = tail.live(Kind::Pageable).0;
        assert_eq!(live.values().filter(|block| block.bytes == 2048).count(), 500, "{how}");
        assert_eq!(tail.losses, 0, "{how}");
        std::fs::remove_dir_all(trap.trace()).expect("a trace");
    }
}

mod libc_signal {
    pub(super) const ABORT: i32 = 6;
    pub(super) const KILL: i32 = 9;
    pub(super) const SEGV: i32 = 11;
}

#[test]
fn calls_in_signal_handlers_are_recorded_or_counted() {
    let trap = Trap::new("signals.c", &[]);
    assert_success(&trap.run("all", &[]));
    let tail = HeapTail::read(&trap.trace());
    let (live, unknown) = tail.live(Kind::Mapped);
    let handled = tail.count(Action::Alloc, Kind::Mapped) + tail.losses as usize;
    assert!(handled >= 300, "{handled} of 300 calls are recorded or counted");
    assert!(live.len() + unknown <= tail.losses as usize, "{} {unknown} {}", live.len(), tail.losses);
}

#[test]
fn a_program_that_closes_descriptors_keeps_its_files() {
    let trap = Trap::new("descriptors.c", &[]);
    let directory = trap.directory.to_string_lossy().into_owned();
    assert_success(&trap.run("all", &[&directory]));
    let tail = HeapTail::read(&trap.trace());
    assert!(tail.count(Action::Free, Kind::Pageable) >= 200_000);
    assert_eq!((tail.live(Kind::Pageable).1, tail.losses), (0, 0));
}

#[test]
fn libraries_that_take_the_place_of_others_have_their_own_stacks() {
    let trap = Trap::new("loading.c", &["-ldl"]);
    let plugin = |number: u32| {
        let built =
            compile("plugin.c", &["-shared", "-fPIC", &format!("-DNUMBER={number}")], &trap.directory);
        let path = trap.directory.join(format!("plugin{number}.so"));
        std::fs::rename(built, &path).expect("can be renamed");
        path.to_string_lossy().into_owned()
    };
    assert_success(&trap.run("all", &[&plugin(1), &plugin(2)]));
    let tail = trap.assert_counted();
    for number in [1, 2] {
        let modules: Vec<&str> = tail
            .events
            .iter()
            .filter(|event| event.action == Action::Alloc && event.bytes == 100 + number)
            .map(|event| tail.module_of(event.stack.0))
            .collect();
        assert_eq!(modules.len(), 20 * 50);
        let name = format!("plugin{number}.so");
        assert!(modules.iter().all(|module| module.ends_with(&name)), "{name} {:?}", modules.first());
    }
}

#[test]
fn frees_of_blocks_that_were_not_recorded_end_nothing() {
    let trap = Trap::new("foreign.c", &[]);
    assert_success(&trap.run("all", &[]));
    let tail = trap.assert_counted();
    assert_eq!(tail.live(Kind::Pageable).1, 10);
}

#[test]
fn a_program_with_its_own_allocator_says_so() {
    let trap = Trap::new("own_allocator.c", &[]);
    let output =
        finish(recording(&trap.program, &trap.trace(), "all").spawn().expect("starts"), "own allocator");
    assert_success(&output);
    let tail = HeapTail::read(&trap.trace());
    assert!(tail.notes().contains(&(HeapNote::OwnAllocator, 0)), "{:?}", tail.notes());
    assert_eq!(tail.count(Action::Alloc, Kind::Pageable), 0);
}

#[test]
fn an_allocator_that_is_preloaded_too_is_recorded() {
    let trap = Trap::new("ends.c", &[]);
    let allocator = compile("own_allocator.c", &["-shared", "-fPIC", "-DLIBRARY"], &trap.directory);
    let mut preload = library().into_os_string();
    preload.push(":");
    preload.push(allocator);
    let mut command = recording(&trap.program, &trap.trace(), "all");
    let output = finish(command.env("LD_PRELOAD", preload).arg("return").spawn().expect("starts"), "ends");
    assert_success(&output);
    let tail = HeapTail::read(&trap.trace());
    let live = tail.live(Kind::Pageable).0;
    assert_eq!(live.values().filter(|block| block.bytes == 2048).count(), 500);
}

#[test]
fn children_of_children_lose_nothing() {
    let trap = Trap::new("forks.c", &[]);
    assert_success(&trap.run("all", &[]));
    let processes = HeapTail::read_all(&trap.trace());
    assert_eq!(processes.len(), 6);
    for process in processes {
        assert_eq!(process.losses, 0);
        let blocks = |event: &&Event| event.action == Action::Alloc && matches!(event.bytes, 100 | 101);
        assert_eq!(process.events.iter().filter(blocks).count(), 1);
    }
}

#[test]
fn an_allocator_with_its_own_operator_new_is_named() {
    for (options, is_named) in [(&["-DLIBRARY", "-DNEW"][..], true), (&["-DLIBRARY"], false)] {
        let trap = Trap::new("ends.c", &[]);
        let options = [&["-shared", "-fPIC"], options].concat();
        let allocator = compile("own_allocator.c", &options, &trap.directory);
        let mut preload = library().into_os_string();
        preload.push(":");
        preload.push(allocator);
        let mut command = recording(&trap.program, &trap.trace(), "all");
        let child = command.env("LD_PRELOAD", preload).arg("return").spawn().expect("starts");
        assert_success(&finish(child, "ends"));
        let notes = HeapTail::read(&trap.trace()).notes();
        assert_eq!(notes.contains(&(HeapNote::OwnNew, 0)), is_named, "{notes:?}");
    }
}

#[test]
fn stacks_of_all_shapes_are_those_of_a_fresh_walk() {
    let trap = Trap::new("nested.cpp", &["-O2"]);
    assert_success(&trap.run("check=on", &[]));
    assert_stacks_checked(&trap.assert_counted(), 5000);
    std::fs::remove_dir_all(trap.trace()).expect("a trace");
    assert_success(&trap.run("check=on,depth=20", &[]));
    let tail = HeapTail::read(&trap.trace());
    assert_stacks_checked(&tail, 5000);
    assert!(tail.stacks.keys().all(|stack| tail.frames_of(*stack).len() <= 20));
}

#[test]
fn rust_programs_are_recorded() {
    let trap = Trap::new("collections.rs", &[]);
    assert_success(&trap.run("check=on", &[]));
    let tail = trap.assert_counted();
    assert_stacks_checked(&tail, 10_000);
    assert!(tail.live(Kind::Pageable).0.values().any(|block| block.bytes == 12345));
    // Vectors grow by `realloc`, whose free is recorded later than it happens. Lanes whose times go back are slow to read.
    assert!(tail.chunks > 8 && tail.disordered == 0, "{} of {} chunks", tail.disordered, tail.chunks);
}

#[test]
fn mappings_are_blocks_of_their_own_kind() {
    let trap = Trap::new("mapping.c", &[]);
    let output = trap.run("all", &[]);
    assert_success(&output);
    let tail = HeapTail::read(&trap.trace());
    let expected: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    assert_eq!(tail.live_bytes(Kind::Mapped), expected);
    assert_eq!(tail.count(Action::Failure, Kind::Mapped), 1);
    assert_eq!(tail.live(Kind::Mapped).1, 0);
}

#[test]
fn samples_estimate_bytes_and_blocks_without_bias() {
    const PERIOD: u64 = 16 << 10;
    let trap = Trap::new("sizes.c", &[]);
    assert_success(&trap.run(&format!("sample:{PERIOD}"), &[]));
    let tail = HeapTail::read(&trap.trace());
    assert_eq!(tail.notes(), [(HeapNote::Sampled, PERIOD as u32)]);
    let (live, unknown) = tail.live(Kind::Pageable);
    assert_eq!(unknown, 0, "frees of blocks that were not sampled");
    for (bytes, count) in [(48_u64, 400_000_u64), (3000, 20_000), (200_000, 400)] {
        let scaled = scaled_bytes(bytes, PERIOD);
        let is_one = |event: &&Event| event.action == Action::Alloc && event.bytes == scaled;
        let sampled = tail.events.iter().filter(is_one).count() as f64;
        let probability = bytes as f64 / scaled as f64;
        let expected = count as f64 * probability;
        // Five standard deviations of a binomial distribution.
        let spread = 5.0 * (expected * (1.0 - probability)).sqrt() + 1.0;
        assert!((sampled - expected).abs() < spread, "{bytes}: {sampled} sampled, expected {expected}");
        let blocks = sampled * scaled_blocks(scaled, PERIOD);
        assert!((blocks / count as f64 - 1.0).abs() < 0.2, "{bytes}: {blocks} blocks");
        let left = live.values().filter(|block| block.bytes == scaled).count() as f64;
        assert!((left - expected / 2.0).abs() < spread, "{bytes}: {left} left of {expected}");
    }
}

/// Bytes that were allocated, by the innermost place in the program itself.
fn bytes_by_site(tail: &HeapTail, program: &Path) -> BTreeMap<u64, u64> {
    let name = program.to_string_lossy();
    let mut sites: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    let mut bytes = BTreeMap::new();
    for event in tail.events.iter().filter(|event| event.action == Action::Alloc) {
        let site = *sites.entry(event.stack.0).or_insert_with(|| {
            let frames = tail.frames_of(event.stack.0);
            let is_own =
                |frame: &&Frame| tail.strings.get(&frame.module.0).is_some_and(|module| *module == name);
            frames.iter().find(is_own).map(|frame| frame.address)
        });
        if let Some(site) = site {
            *bytes.entry(site).or_default() += event.bytes;
        }
    }
    bytes
}

#[test]
fn samples_estimate_the_largest_sites() {
    for (source, period) in [("sizes.c", 1024), ("nested.cpp", 16), ("collections.rs", 16)] {
        let trap = Trap::new(source, &[]);
        let run = |heap: &str| {
            let _ = std::fs::remove_dir_all(trap.trace());
            assert_success(&trap.run(heap, &[]));
            bytes_by_site(&HeapTail::read(&trap.trace()), &trap.program)
        };
        let (exact, sampled) = (run("all"), run(&format!("sample:{period}")));
        let mut largest: Vec<(u64, u64)> = exact.into_iter().collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        // Of sites with few blocks there are too few samples for such an estimate.
        let total: u64 = largest.iter().map(|(_, bytes)| bytes).sum();
        largest.retain(|(_, bytes)| bytes * 50 >= total);
        assert!(!largest.is_empty(), "{source}");
        for (site, bytes) in largest.into_iter().take(10) {
            let estimate = sampled.get(&site).copied().unwrap_or(0) as f64;
            let error = estimate / bytes as f64 - 1.0;
            assert!(error.abs() < 0.05, "{source}: {site:#x} has {bytes} bytes, estimated as {estimate}");
        }
    }
}

#[test]
fn small_blocks_can_be_left_out_with_their_frees() {
    let trap = Trap::new("sizes.c", &[]);
    assert_success(&trap.run("min=1000", &[]));
    let tail = HeapTail::read(&trap.trace());
    assert_eq!(tail.notes(), [(HeapNote::All, 1000)]);
    let allocated = |bytes| {
        tail.events.iter().filter(|event| event.action == Action::Alloc && event.bytes == bytes).count()
    };
    assert_eq!((allocated(48), allocated(3000), allocated(200_000)), (0, 20_000, 400));
    let (live, unknown) = tail.live(Kind::Pageable);
    let left = |bytes| live.values().filter(|block| block.bytes == bytes).count();
    assert_eq!((left(3000), left(200_000), unknown), (10_000, 200, 0));
}

#[test]
fn programs_are_chosen_by_name_and_nothing_is_recorded_without_options() {
    let trap = Trap::new("ends.c", &[]);
    for heap in ["not=ends", "only=other"] {
        assert_success(&trap.run(heap, &["return"]));
        assert!(!trap.trace().exists(), "{heap}");
    }
    let mut command = recording(&trap.program, &trap.trace(), "all");
    command.env_remove("FLOODMARK_HEAP").arg("return");
    assert_success(&finish(command.spawn().expect("starts"), "ends"));
    assert!(!trap.trace().exists());
    assert_success(&trap.run("stacks=off,unknown", &["return"]));
    let tail = HeapTail::read(&trap.trace());
    assert!(tail.notes().contains(&(HeapNote::UnknownOption, 0)));
    assert!(tail.events.iter().all(|event| event.stack.0 == 0));
}
