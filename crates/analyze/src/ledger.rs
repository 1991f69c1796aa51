//! The ledger of a process: what the resident memory that the kernel counts for it consists of.
//!
//! Samples tell what the kernel knows: resident memory over time and, read near its peak, how much of it is the heap,
//! the stack, which files, and other memory. Events tell what the program knows: the blocks that were live then. The
//! items of a ledger always add up to the resident memory at its peak; what neither side explains is an item too.

use std::collections::BTreeMap;

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::Block;
use crate::fold::{End, Fold};
use crate::level::Level;

/// Points of memory over time, at most.
const POINTS_MAX: usize = 64;
/// Addresses below this are in the heap that grows at its end; the kernel maps everything else above it.
const MAPPED_FROM: u64 = 0x7000_0000_0000;

/// What an item of a ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerClass {
    /// Blocks of the heap that were live.
    HeapLive,
    /// Resident memory of the heap that no live block has: free chunks, headers, rounding.
    HeapSlack,
    /// The heap, where it is not known what was live in it.
    Heap,
    /// A mapped file, or several.
    File,
    /// The stack of the first thread.
    Stack,
    /// Memory that belongs to no file: stacks of other threads, arenas of other threads, mappings of the program.
    Anonymous,
    /// Resident memory of which it is not known what it is, because mappings were not read.
    NotRead,
    /// Resident memory at the peak beyond what mappings added up to when they were read; negative if it was less.
    Residual,
}

/// An item of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerItem {
    /// What it is.
    pub class: LedgerClass,
    /// Path of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Resident bytes.
    pub bytes: i64,
}

/// Resident memory and live heap at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlackPoint {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// Resident bytes of the process.
    pub rss_bytes: u64,
    /// Bytes of the heap's live blocks; none where no heap was recorded.
    pub live_bytes: Option<u64>,
}

/// What the resident memory of a process consisted of at its peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLedger {
    /// PID; 0 if not known.
    pub pid: u64,
    /// Name of the program.
    pub name: String,
    /// Instant of the first sample of it.
    pub start_time_ns: i64,
    /// The most resident bytes that were sampled.
    pub peak_rss_bytes: u64,
    /// When.
    pub peak_time_ns: i64,
    /// When its mappings were read; none if they were not.
    pub read_time_ns: Option<i64>,
    /// Resident bytes that they added up to.
    pub read_rss_bytes: Option<u64>,
    /// Bytes of the heap's live blocks at that instant, or at the peak; none where no heap was recorded.
    pub live_heap_bytes: Option<u64>,
    /// Those of them that cannot be resident: there is less memory of that class.
    pub untouched_bytes: u64,
    /// Items, which add up to the peak.
    pub items: Vec<LedgerItem>,
    /// Resident memory and live heap over time.
    pub over_time: Vec<SlackPoint>,
    /// Other processes that were sampled.
    pub other_processes: u64,
}

/// What was sampled of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledProcess {
    /// Number of its subject.
    pub subject: u64,
    start_ns: i64,
    peak: (u64, i64),
    points: Points,
    readings: BTreeMap<i64, Reading>,
}

/// A reading of mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    heap: u64,
    stack: u64,
    mapped: u64,
    other: u64,
    /// Subjects of files, and their bytes.
    files: Vec<(u64, u64)>,
}

impl Reading {
    fn sum(&self) -> u64 {
        self.heap.saturating_add(self.stack).saturating_add(self.mapped).saturating_add(self.other)
    }
}

/// The highest value of each interval, where the length of the whole is not known before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Points {
    shift: u32,
    points: Vec<(u64, i64, u64)>,
}

impl Points {
    fn add(&mut self, start_ns: i64, time_ns: i64, value: u64) {
        let elapsed_ns = time_ns.saturating_sub(start_ns).max(0) as u64;
        while elapsed_ns >> self.shift >= POINTS_MAX as u64 {
            self.shift += 1;
            for (at, time_ns, value) in std::mem::take(&mut self.points) {
                self.raise(at >> 1, time_ns, value);
            }
        }
        self.raise(elapsed_ns >> self.shift, time_ns, value);
    }

    fn raise(&mut self, at: u64, time_ns: i64, value: u64) {
        match self.points.last_mut() {
            Some(last) if last.0 >= at => {
                if value > last.2 {
                    (last.1, last.2) = (time_ns, value);
                }
            }
            _ => self.points.push((at, time_ns, value)),
        }
    }
}

/// Folds samples into what is known of each process.
#[derive(Clone, Debug, Default)]
pub struct LedgerFold {
    processes: FxHashMap<u64, SampledProcess>,
}

impl LedgerFold {
    /// Takes in a sample.
    pub fn sample(&mut self, row: &SampleRow, subjects: &BTreeMap<u64, SubjectRow>) {
        let Some(subject) = subjects.get(&row.subject) else { return };
        let (own, reading) = match (subject.kind, row.metric) {
            (SubjectKind::Process, Metric::Rss) => {
                let process = self.process(row.subject, row.time_ns);
                if row.value > process.peak.0 {
                    process.peak = (row.value, row.time_ns);
                }
                let start_ns = process.start_ns;
                process.points.add(start_ns, row.time_ns, row.value);
                return;
            }
            (
                SubjectKind::Process,
                Metric::RssHeap | Metric::RssStack | Metric::RssMapped | Metric::RssOther,
            ) => (row.subject, row.metric),
            (SubjectKind::Mapping, Metric::Rss) => (subject.parent, row.metric),
            _ => return,
        };
        let process = self.process(own, row.time_ns);
        let entry = process.readings.entry(row.time_ns).or_default();
        match reading {
            Metric::RssHeap => entry.heap = row.value,
            Metric::RssStack => entry.stack = row.value,
            Metric::RssMapped => entry.mapped = row.value,
            Metric::RssOther => entry.other = row.value,
            _ => entry.files.push((row.subject, row.value)),
        }
    }

    fn process(&mut self, subject: u64, time_ns: i64) -> &mut SampledProcess {
        self.processes.entry(subject).or_insert_with(|| SampledProcess {
            subject,
            start_ns: time_ns,
            ..SampledProcess::default()
        })
    }

    /// Returns the process with the highest peak, or the one with this PID, and how many others there are.
    pub fn finish(
        mut self,
        pid: Option<u64>,
        subjects: &BTreeMap<u64, SubjectRow>,
    ) -> Option<(SampledProcess, u64)> {
        self.processes.retain(|_, process| process.peak.0 > 0);
        let count = self.processes.len() as u64;
        let is_wanted = |process: &SampledProcess| {
            pid.is_none_or(|pid| subjects.get(&process.subject).is_some_and(|row| row.number == pid))
        };
        let wanted = self.processes.into_values().filter(is_wanted);
        let process = wanted.max_by_key(|process| (process.peak.0, std::cmp::Reverse(process.subject)))?;
        Some((process, count - 1))
    }
}

impl SampledProcess {
    /// The reading of mappings with most resident memory.
    fn reading(&self) -> Option<(i64, &Reading)> {
        let readings = self.readings.iter().filter(|(_, reading)| reading.sum() > 0);
        readings.max_by_key(|(_, reading)| reading.sum()).map(|(time_ns, reading)| (*time_ns, reading))
    }

    /// Instants at which it has to be known what was live, in order.
    pub fn instants(&self) -> Vec<i64> {
        let mut instants: Vec<i64> = self.points.points.iter().map(|(_, time_ns, _)| *time_ns).collect();
        instants.push(self.instant());
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    /// The instant that the ledger is about.
    pub fn instant(&self) -> i64 {
        self.reading().map_or(self.peak.1, |(time_ns, _)| time_ns)
    }

    /// Draws the ledger up; `live` has what was live at [`instants`](Self::instants), if a heap was recorded.
    pub fn ledger(
        &self,
        live: Option<&BTreeMap<i64, LiveHeap>>,
        subjects: &BTreeMap<u64, SubjectRow>,
        other_processes: u64,
    ) -> ProcessLedger {
        let subject = subjects.get(&self.subject);
        let live_at = |time_ns: i64| live.map(|live| live.get(&time_ns).copied().unwrap_or_default());
        let heap = live_at(self.instant());
        let reading = self.reading();
        let (mut items, untouched_bytes) = match reading {
            Some((_, reading)) => read_items(reading, heap, subjects),
            None => unread_items(self.peak.0, heap),
        };
        let explained = items.iter().fold(0i64, |sum, item| sum.saturating_add(item.bytes));
        let residual = i64::try_from(self.peak.0).unwrap_or(i64::MAX).saturating_sub(explained);
        if residual != 0 {
            items.push(LedgerItem { class: LedgerClass::Residual, name: None, bytes: residual });
        }
        let points = self.points.points.iter();
        let over_time = points.map(|(_, time_ns, rss_bytes)| SlackPoint {
            time_ns: *time_ns,
            rss_bytes: *rss_bytes,
            live_bytes: live_at(*time_ns).map(LiveHeap::bytes),
        });
        ProcessLedger {
            pid: subject.map_or(0, |subject| subject.number),
            name: subject.map_or_else(String::new, |subject| subject.name.clone()),
            start_time_ns: self.start_ns,
            peak_rss_bytes: self.peak.0,
            peak_time_ns: self.peak.1,
            read_time_ns: reading.map(|(time_ns, _)| time_ns),
            read_rss_bytes: reading.map(|(_, reading)| reading.sum()),
            live_heap_bytes: heap.map(LiveHeap::bytes),
            untouched_bytes,
            items,
            over_time: over_time.collect(),
            other_processes,
        }
    }
}

fn item(class: LedgerClass, name: Option<String>, bytes: u64) -> Option<LedgerItem> {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    (bytes != 0).then_some(LedgerItem { class, name, bytes })
}

/// Items of a reading, and the live bytes that cannot be resident.
fn read_items(
    reading: &Reading,
    heap: Option<LiveHeap>,
    subjects: &BTreeMap<u64, SubjectRow>,
) -> (Vec<LedgerItem>, u64) {
    use LedgerClass::{Anonymous, File, Heap, HeapLive, HeapSlack, Stack};
    let mut items = Vec::new();
    let mut untouched = 0;
    if let Some(LiveHeap { brk_bytes, mapped_bytes }) = heap {
        let (in_heap, in_other) = (brk_bytes.min(reading.heap), mapped_bytes.min(reading.other));
        untouched = brk_bytes.saturating_sub(in_heap).saturating_add(mapped_bytes - in_other);
        items.extend(item(HeapLive, None, in_heap.saturating_add(in_other)));
        items.extend(item(HeapSlack, None, reading.heap - in_heap));
        items.extend(item(Anonymous, None, reading.other - in_other));
    } else {
        items.extend(item(Heap, None, reading.heap));
        items.extend(item(Anonymous, None, reading.other));
    }
    items.extend(item(Stack, None, reading.stack));
    let mut files = reading.files.clone();
    files.sort_by_key(|(subject, bytes)| (std::cmp::Reverse(*bytes), *subject));
    let mut left = reading.mapped;
    for (subject, bytes) in files {
        let name = subjects.get(&subject).map(|subject| subject.name.clone());
        items.extend(item(File, name, bytes.min(left)));
        left -= bytes.min(left);
    }
    items.extend(item(File, None, left));
    (items, untouched)
}

/// Items of resident memory whose mappings were not read.
fn unread_items(rss_bytes: u64, heap: Option<LiveHeap>) -> (Vec<LedgerItem>, u64) {
    let live = heap.map_or(0, LiveHeap::bytes);
    let resident = live.min(rss_bytes);
    let items =
        [item(LedgerClass::HeapLive, None, resident), item(LedgerClass::NotRead, None, rss_bytes - resident)];
    (items.into_iter().flatten().collect(), live - resident)
}

/// Bytes of the heap's live blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveHeap {
    /// In the heap that grows at its end.
    pub brk_bytes: u64,
    /// In memory that the allocator mapped: large blocks, and the heaps of other threads.
    pub mapped_bytes: u64,
}

impl LiveHeap {
    fn bytes(self) -> u64 {
        self.brk_bytes.saturating_add(self.mapped_bytes)
    }

    fn part(&mut self, address: u64) -> &mut u64 {
        if address < MAPPED_FROM { &mut self.brk_bytes } else { &mut self.mapped_bytes }
    }
}

/// Folds events into what was live at given instants: after the last event at or before each.
#[derive(Clone, Debug, Default)]
pub struct LiveHeapFold {
    instants: Vec<i64>,
    /// Instants that have passed.
    passed: usize,
    now: LiveHeap,
    found: BTreeMap<i64, LiveHeap>,
}

impl LiveHeapFold {
    /// Starts with instants in order.
    pub fn new(instants: Vec<i64>) -> Self {
        Self { instants, ..Self::default() }
    }
}

impl Fold for LiveHeapFold {
    type Output = BTreeMap<i64, LiveHeap>;

    fn event(&mut self, _order: u64, time_ns: i64) {
        while let Some(instant) = self.instants.get(self.passed)
            && *instant < time_ns
        {
            self.found.insert(*instant, self.now);
            self.passed += 1;
        }
    }

    fn begins(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        let part = self.now.part(block.address);
        *part = part.saturating_add(block.bytes);
    }

    fn ends(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        let part = self.now.part(block.address);
        *part = part.saturating_sub(block.bytes);
    }

    fn finish(&self, _end: &End<'_>) -> Self::Output {
        let mut found = self.found.clone();
        found.extend(self.instants[self.passed..].iter().map(|instant| (*instant, self.now)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::LedgerClass::{Anonymous, File, HeapLive, HeapSlack, NotRead, Residual, Stack};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sampled(samples: &[(i64, u64, Metric, u64)]) -> (LedgerFold, BTreeMap<u64, SubjectRow>) {
        let subjects = BTreeMap::from([
            (1, SubjectRow::new(1, SubjectKind::Process, 70, "solver")),
            (2, SubjectRow { parent: 1, ..SubjectRow::new(2, SubjectKind::Mapping, 0, "/lib/libm.so") }),
            (3, SubjectRow::new(3, SubjectKind::Process, 71, "shell")),
        ]);
        let mut fold = LedgerFold::default();
        for (time_ns, subject, metric, value) in samples {
            let (time_ns, subject, metric, value) = (*time_ns, *subject, *metric, *value);
            fold.sample(&SampleRow { time_ns, subject, metric, value }, &subjects);
        }
        (fold, subjects)
    }

    #[test]
    fn items_add_up_to_the_peak() {
        let (fold, subjects) = sampled(&[
            (10, 3, Metric::Rss, MIB),
            (10, 1, Metric::Rss, 40 * MIB),
            // A reading on the way up, and one near the peak.
            (15, 1, Metric::RssHeap, 20 * MIB),
            (20, 1, Metric::Rss, 100 * MIB),
            (25, 1, Metric::RssHeap, 50 * MIB),
            (25, 1, Metric::RssStack, MIB),
            (25, 1, Metric::RssMapped, 9 * MIB),
            (25, 1, Metric::RssOther, 38 * MIB),
            (25, 2, Metric::Rss, 6 * MIB),
            (30, 1, Metric::Rss, 70 * MIB),
        ]);
        let (process, others) = fold.finish(None, &subjects).expect("processes");
        assert_eq!(process.instants(), [10, 20, 25, 30]);
        let live = BTreeMap::from([
            (20, LiveHeap { brk_bytes: 1, mapped_bytes: 2 }),
            (25, LiveHeap { brk_bytes: 30 * MIB, mapped_bytes: 40 * MIB }),
        ]);
        let ledger = process.ledger(Some(&live), &subjects, others);
        let items: Vec<_> = ledger.items.iter().map(|item| (item.class, item.bytes / MIB as i64)).collect();
        // All of the other memory is live blocks, of which 2 MiB were never touched.
        assert_eq!(items, [(HeapLive, 68), (HeapSlack, 20), (Stack, 1), (File, 6), (File, 3), (Residual, 2)]);
        assert!(!items.iter().any(|(class, _)| *class == Anonymous));
        assert_eq!(ledger.items.iter().map(|item| item.bytes).sum::<i64>(), 100 * MIB as i64);
        assert_eq!((ledger.untouched_bytes, ledger.other_processes), (2 * MIB, 1));
        assert_eq!(ledger.items[3].name.as_deref(), Some("/lib/libm.so"));
        assert_eq!(ledger.over_time[1].live_bytes, Some(3));
    }

    #[test]
    fn without_readings_or_heap_the_ledger_says_what_it_knows() {
        let (fold, subjects) = sampled(&[(10, 1, Metric::Rss, 8 * MIB)]);
        let (process, _) = fold.clone().finish(Some(70), &subjects).expect("the process");
        let live = BTreeMap::from([(10, LiveHeap { brk_bytes: 5 * MIB, mapped_bytes: 0 })]);
        let classes = |ledger: ProcessLedger| -> Vec<_> {
            ledger.items.into_iter().map(|item| (item.class, item.bytes as u64 / MIB)).collect()
        };
        assert_eq!(classes(process.ledger(Some(&live), &subjects, 0)), [(HeapLive, 5), (NotRead, 3)]);
        assert_eq!(classes(process.ledger(None, &subjects, 0)), [(NotRead, 8)]);
        assert!(fold.finish(Some(99), &subjects).is_none());
    }

    #[test]
    fn a_long_run_has_the_highest_value_of_each_interval() {
        let mut points = Points::default();
        for time in 0..10_000 {
            points.add(0, time, if time == 5_001 { 99 } else { 1 });
        }
        assert!(points.points.len() <= POINTS_MAX && points.points.len() > POINTS_MAX / 3);
        assert_eq!(points.points.iter().filter(|(.., value)| *value == 99).count(), 1);
        assert!(points.points.is_sorted_by_key(|(_, time_ns, _)| *time_ns));
    }
}
