//! What sealing the events of a heap capture costs, by stage, and how soon after the end they can be read.
//!
//! Threads allocate from the C library in the patterns of real programs and record every alloc with a stack and
//! every free without its size, as the preloaded recorder does, so the addresses are those that a heap gives. A
//! sealer works beside them. CPU time of each stage is the sealing thread's own.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use floodmark_event::tables::Frame;
use floodmark_event::{EventBatch, Kind, NO_DEVICE, StackId, StringId, UNKNOWN_BYTES};
use floodmark_store::{
    Manifest, Run, ScanProps, SealCosts, SealStage, Sealer, Source as _, Trace, begin_costs, end_costs,
};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};

use crate::measure::{Samples, thread_cpu_ns};

#[derive(Args)]
pub(crate) struct Props {
    /// Events of each trace
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// Only the pattern with this name
    #[arg(long)]
    only: Option<String>,
    /// Keep the last trace, in the folder
    #[arg(long)]
    keep: bool,
}

const DOMAIN: AllocDomain = AllocDomain {
    device: NO_DEVICE,
    kind: Kind::Pageable,
    stream: 0,
    resource: StringId(0),
    name: StringId(0),
};

/// How the threads allocate.
#[derive(Clone, Copy)]
enum Pattern {
    /// Each block is freed at once.
    Pairs,
    /// Any of 10,000 live blocks is freed and allocated anew.
    Live,
    /// A tree of a million blocks is built, then torn down.
    Tree,
    /// A thread frees what another one has allocated.
    CrossThread,
}

const PATTERNS: [(&str, Pattern, usize); 6] = [
    ("pairs", Pattern::Pairs, 1),
    ("pairs-4", Pattern::Pairs, 4),
    ("live", Pattern::Live, 1),
    ("live-4", Pattern::Live, 4),
    ("tree", Pattern::Tree, 1),
    ("cross-4", Pattern::CrossThread, 4),
];

/// Numbers that repeat from run to run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 20) % bound
    }
}

/// Allocates and records.
struct Heap<'a> {
    stacks: &'a [StackId],
    random: Random,
    left: u64,
}

impl Heap<'_> {
    /// Allocates a block; where it is allocated decides about its size, more or less.
    fn alloc(&mut self, site: u64, bytes: u64) -> Vec<u8> {
        self.left = self.left.saturating_sub(1);
        let block = Vec::with_capacity(bytes as usize);
        let stack = self.stacks[site as usize % self.stacks.len()];
        tail::alloc(block.as_ptr() as u64, bytes, &DOMAIN, stack);
        block
    }

    fn free(&mut self, block: Vec<u8>) {
        self.left = self.left.saturating_sub(1);
        tail::free(block.as_ptr() as u64, UNKNOWN_BYTES, &DOMAIN);
        drop(block);
    }

    /// A place in the program: few allocate most.
    fn site(&mut self) -> u64 {
        let most = 1 << self.random.below(8);
        self.random.below(most)
    }

    fn block(&mut self) -> Vec<u8> {
        let site = self.site();
        let bytes = 16 + 8 * (site % 31) + if site.is_multiple_of(4) { self.random.below(256) } else { 0 };
        self.alloc(site, bytes)
    }

    fn pairs(&mut self) {
        while self.left > 0 {
            let block = self.block();
            self.free(block);
        }
    }

    fn live(&mut self) {
        let mut live: Vec<Vec<u8>> = (0..10_000).map(|_| self.block()).collect();
        while self.left > 10_000 {
            let slot = self.random.below(live.len() as u64) as usize;
            let block = std::mem::take(&mut live[slot]);
            self.free(block);
            live[slot] = self.block();
        }
        for block in live {
            self.free(block);
        }
    }

    fn tree(&mut self) {
        while self.left > 0 {
            let tree = self.node(9);
            self.tear_down(tree);
        }
    }

    /// A node with its name, and a list of children that grows.
    fn node(&mut self, depth: u32) -> Node {
        let site = u64::from(depth) % 3;
        let own = self.alloc(site, 96);
        let bytes = 17 + self.random.below(24);
        let name = self.alloc(3 + site, bytes);
        let (mut children, mut list) = (Vec::new(), Vec::new());
        if depth > 0 && self.left > 0 {
            for child in 0..2 + self.random.below(5) {
                if child.is_power_of_two() || child == 0 {
                    let longer = self.alloc(6 + child, 8 * (child + 1).next_power_of_two());
                    let shorter = std::mem::replace(&mut list, longer);
                    if shorter.capacity() > 0 {
                        self.free(shorter);
                    }
                }
                children.push(self.node(depth - 1));
            }
        }
        Node { own, name, list, children }
    }

    fn tear_down(&mut self, node: Node) {
        node.children.into_iter().for_each(|child| self.tear_down(child));
        if node.list.capacity() > 0 {
            self.free(node.list);
        }
        self.free(node.name);
        self.free(node.own);
    }

    /// Sends blocks to the next thread and frees those of the previous one.
    fn cross(&mut self, to: &SyncSender<Vec<Vec<u8>>>, from: &Receiver<Vec<Vec<u8>>>) {
        while self.left > 0 {
            let blocks = (0..200.min(self.left / 2 + 1)).map(|_| self.block()).collect();
            if to.send(blocks).is_err() {
                return;
            }
            while let Ok(blocks) = from.try_recv() {
                for block in blocks {
                    self.free(block);
                }
            }
        }
    }
}

struct Node {
    own: Vec<u8>,
    name: Vec<u8>,
    list: Vec<u8>,
    children: Vec<Node>,
}

/// Names a few hundred stacks of twelve frames, which share their callers.
fn stacks() -> Vec<StackId> {
    let module = tail::intern("/usr/bin/program");
    let frame = |number: u64| {
        let function = tail::intern(&format!("namespace::function_{number}"));
        let file = tail::intern(&format!("src/module_{}.cpp", number / 10));
        tail::intern_frame(&Frame { function, file, line: number as u32, module, address: 0x1000 * number })
    };
    let outer = (0..8).fold(StackId(0), |caller, number| tail::intern_stack(caller, frame(number)));
    let stack = |site: u64| {
        let frames = [10 + site / 64, 20 + site / 16, 40 + site / 4, 200 + site];
        frames.into_iter().fold(outer, |caller, number| tail::intern_stack(caller, frame(number)))
    };
    (0..256).map(stack).collect()
}

/// Runs the threads of a pattern; returns their CPU time in ns.
fn allocate(pattern: Pattern, threads: usize, events: u64) -> u64 {
    let stacks = stacks();
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| sync_channel(64)).unzip();
    // Each thread receives from the one before it.
    receivers.rotate_right(1);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (to, from) = (senders.remove(0), receivers.remove(0));
                let random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread + 1));
                let mut heap = Heap { stacks: &stacks, random, left: events / threads as u64 };
                scope.spawn(move || {
                    let begin = thread_cpu_ns();
                    match pattern {
                        Pattern::Pairs => heap.pairs(),
                        Pattern::Live => heap.live(),
                        Pattern::Tree => heap.tree(),
                        Pattern::CrossThread => heap.cross(&to, &from),
                    }
                    let spent = thread_cpu_ns() - begin;
                    drop(to);
                    // What is still on its way ends after the measurement, unrecorded.
                    from.into_iter().for_each(drop);
                    spent
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("the pattern ends")).sum()
    })
}

/// What one recording and its sealing took.
struct Outcome {
    manifest: Manifest,
    recording_ns: u64,
    /// CPU time of the sealing thread, by stage.
    costs: SealCosts,
    /// Wall time from the end of the recording until all was sealed.
    rest: Duration,
}

/// Seals until told to end.
fn seal(mut sealer: Sealer, has_ended: &AtomicBool) -> Result<(Manifest, SealCosts)> {
    begin_costs();
    while !has_ended.load(Ordering::Acquire) {
        if !sealer.tick()? {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let manifest = sealer.finish()?;
    Ok((manifest, end_costs()))
}

fn once(pattern: Pattern, threads: usize, events: u64, trace: &Path) -> Result<Outcome> {
    let _ = fs::remove_dir_all(trace);
    let recorder = Recorder::start_global(RecordProps::new(trace)).context("starting to record")?;
    let sealer = Sealer::open(trace, Run::default())?;
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sealing = scope.spawn(|| seal(sealer, &has_ended));
        let recording_ns = allocate(pattern, threads, events);
        recorder.stop();
        let end = Instant::now();
        has_ended.store(true, Ordering::Release);
        let (manifest, costs) = sealing.join().expect("sealing does not panic")?;
        Ok(Outcome { manifest, recording_ns, costs, rest: end.elapsed() })
    })
}

/// Reads all events; returns their number and the CPU time per event.
fn read(trace: &Path) -> Result<(u64, f64)> {
    let begin = thread_cpu_ns();
    let mut scan = Trace::open(trace)?.scan(&ScanProps::default())?;
    let (mut events, mut batch) = (0, EventBatch::new());
    while scan.next(&mut batch)? {
        events += batch.len() as u64;
    }
    ensure!(scan.losses().gaps.is_empty(), "events are missing");
    Ok((events, (thread_cpu_ns() - begin) as f64 / events as f64))
}

/// Figures of a pattern, in the order of the columns.
fn figures(pattern: Pattern, threads: usize, events: u64, trace: &Path) -> Result<Vec<f64>> {
    let outcome = once(pattern, threads, events, trace)?;
    let parts = outcome.manifest.parts_of("event");
    let (rows, bytes) = parts.fold((0, 0), |(rows, bytes), part| (rows + part.rows, bytes + part.bytes));
    let (events, read_ns) = read(trace)?;
    ensure!(events == rows, "{rows} events were sealed and {events} read");
    let per_event = |total: u64| total as f64 / rows as f64;
    let mut figures = vec![per_event(outcome.recording_ns), per_event(outcome.costs.iter().sum())];
    figures.extend(outcome.costs.map(per_event));
    figures.extend([per_event(bytes), read_ns, outcome.rest.as_secs_f64()]);
    Ok(figures)
}

pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let trace = folder.join("sealing.flood");
    println!("CPU ns per event: median (least–most) of {repeat} runs of {} events\n", props.events);
    let stages = SealStage::ALL.map(|stage| format!("{stage:?}").to_lowercase()).join(" | ");
    println!("| pattern | record | seal | {stages} | bytes at rest | read | s until all is sealed |");
    println!("|---|---|---|{}---|---|---|", "---|".repeat(SealStage::ALL.len()));
    for (name, pattern, threads) in PATTERNS {
        if props.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let mut samples: Vec<Samples> = Vec::new();
        for _ in 0..repeat {
            let figures = figures(pattern, threads, props.events, &trace)?;
            samples.resize_with(figures.len(), Samples::default);
            for (samples, figure) in samples.iter_mut().zip(figures) {
                samples.push(figure);
            }
        }
        // Medians alone of the stages, or the table would be too wide.
        let cell = |(at, samples): (usize, &Samples)| match at {
            0 | 1 => samples.text(0),
            at if at < 2 + SealStage::ALL.len() => format!("{:.1}", samples.median()),
            _ => samples.text(2),
        };
        let cells: Vec<String> = samples.iter().enumerate().map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
    if !props.keep {
        let _ = fs::remove_dir_all(&trace);
    }
    Ok(())
}
