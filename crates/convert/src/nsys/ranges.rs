//! NVTX ranges become scopes, and every event gets the innermost one open on its thread.
//!
//! Ranges that are pushed and popped nest; those with a start and an end of their own do not: they begin and end
//! instead of being entered and left, belong to the thread that started them, and count for an event only where
//! nothing is pushed. A range covers the
//! times from its start up to, but not including, its end. Scopes are numbered in the order of their
//! starts, those of contexts torn down behind all ranges, so both halves of an export number them alike.

use std::collections::BTreeSet;
use std::sync::Arc;

use floodmark_store::{Losses, Result};
use rustc_hash::FxHashMap;

use super::export::Export;
use super::ids::{ProcessKey, thread_of};
use crate::Mode;

pub(crate) const TABLE: &str = "NVTX_EVENTS";
const COLUMNS: [&str; 6] = ["start", "end", "eventType", "globalTid", "textId", "text"];

/// A thread on whatever machine.
pub(crate) type ThreadKey = (ProcessKey, u32);

/// What sort of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RangeKind {
    /// Pushed and popped, or marks of a library that does the same.
    Nested,
    /// With a start and an end.
    Free,
    /// An instant.
    Mark,
}

/// Where a range has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RangeName {
    /// Index among the names.
    Own(u32),
    /// Number of a string.
    String(i64),
}

/// A range or a mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start_ns: i64,
    /// None as far as it is not known to have ended.
    pub(crate) end_ns: Option<i64>,
    pub(crate) thread: ThreadKey,
    pub(crate) kind: RangeKind,
    pub(crate) name: RangeName,
}

/// All ranges and marks, in the order of their starts, outer ones first.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) ranges: Vec<Range>,
    pub(crate) names: Vec<String>,
}

impl Ranges {
    /// Reads the table; there is none if NVTX was not traced.
    pub(crate) fn read(export: &Export, mode: Mode, losses: &mut Losses) -> Result<Self> {
        let mut read = Self::default();
        let mut indexes: FxHashMap<String, u32> = FxHashMap::default();
        let mut malformed = 0;
        let scanned = export.scan(TABLE, &COLUMNS, &mut |row| {
            let kind = match row.int(2) {
                Some(59 | 70) => RangeKind::Nested,
                Some(60 | 71) => RangeKind::Free,
                Some(34 | 65) => RangeKind::Mark,
                // Names of threads, categories and domains.
                _ => return Ok(()),
            };
            let (Some(start_ns), Some(global)) = (row.int(0), row.int(3)) else {
                malformed += 1;
                return Ok(());
            };
            let name = match (row.text(5), row.int(4)) {
                (Some(text), _) => {
                    let next = indexes.len() as u32;
                    RangeName::Own(*indexes.entry(text.into_owned()).or_insert(next))
                }
                (None, Some(id)) => RangeName::String(id),
                (None, None) => RangeName::String(i64::MIN),
            };
            let end_ns = row.int(1).map(|end_ns| end_ns.max(start_ns));
            let thread = (ProcessKey::of(global), thread_of(global));
            read.ranges.push(Range { start_ns, end_ns, thread, kind, name });
            Ok(())
        });
        super::tolerate(scanned, mode, losses)?;
        if malformed > 0 {
            losses.add(malformed, "ranges of NVTX without a start or a thread");
        }
        read.names = vec![String::new(); indexes.len()];
        for (name, index) in indexes {
            read.names[index as usize] = name;
        }
        read.sort();
        Ok(read)
    }

    fn sort(&mut self) {
        let names = &self.names;
        let name = |range: &Range| match range.name {
            RangeName::Own(index) => (0, names[index as usize].as_str()),
            RangeName::String(id) => (id, ""),
        };
        self.ranges.sort_by(|a, b| {
            let key = |range: &Range| (range.start_ns, std::cmp::Reverse(range.end_ns.unwrap_or(i64::MAX)));
            key(a)
                .cmp(&key(b))
                .then_with(|| (a.thread, a.kind).cmp(&(b.thread, b.kind)).then_with(|| name(a).cmp(&name(b))))
        });
    }

    /// Number of the first teardown's scope: behind all ranges.
    pub(crate) fn teardown_number(&self) -> u32 {
        self.ranges.len() as u32 + 1
    }
}

/// Something that happens to a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is entered; the scope around it, 0 for none.
    Enter { parent: u32 },
    /// It is left.
    Exit,
    /// A mark.
    Mark,
}

/// Scopes open on one thread.
#[derive(Debug, Default)]
struct Open {
    /// By number, which grows with the start: the last one is the innermost.
    nested: BTreeSet<u32>,
    free: BTreeSet<u32>,
}

/// Goes through ranges in the order of time.
#[derive(Debug)]
pub(crate) struct Sweep {
    ranges: Arc<Ranges>,
    next: usize,
    /// Ends of all ranges, in the order of time.
    ends: Vec<(i64, u32)>,
    next_end: usize,
    open: FxHashMap<ThreadKey, Open>,
}

impl Sweep {
    pub(crate) fn new(ranges: Arc<Ranges>) -> Self {
        let ends = |(at, range): (u32, &Range)| {
            range.end_ns.filter(|_| range.kind != RangeKind::Mark).map(|end_ns| (end_ns, at))
        };
        let mut ends: Vec<(i64, u32)> = (0..).zip(&ranges.ranges).filter_map(ends).collect();
        // At equal times inner ones end first.
        ends.sort_unstable_by_key(|(end_ns, at)| (*end_ns, std::cmp::Reverse(*at)));
        Self { ranges, next: 0, ends, next_end: 0, open: FxHashMap::default() }
    }

    /// Takes the next step up to `until_ns`: when, which range, what.
    pub(crate) fn step(&mut self, until_ns: i64) -> Option<(i64, u32, Step)> {
        let start =
            self.ranges.ranges.get(self.next).map(|range| range.start_ns).filter(|start| *start <= until_ns);
        let end = self.ends.get(self.next_end).copied().filter(|(end, _)| *end <= until_ns);
        // What ends makes room for what begins, unless it has not begun itself.
        let ends_first = match (start, end) {
            (Some(start), Some((end, at))) => end <= start && (at as usize) < self.next,
            (None, Some(_)) => true,
            _ => false,
        };
        if ends_first {
            let (end_ns, at) = end?;
            self.next_end += 1;
            let range = &self.ranges.ranges[at as usize];
            let open = self.open.entry(range.thread).or_default();
            let list = if range.kind == RangeKind::Nested { &mut open.nested } else { &mut open.free };
            list.remove(&(at + 1));
            return Some((end_ns, at, Step::Exit));
        }
        let start_ns = start?;
        let at = self.next as u32;
        self.next += 1;
        let range = &self.ranges.ranges[at as usize];
        let step = match range.kind {
            RangeKind::Mark => Step::Mark,
            RangeKind::Nested => {
                let open = self.open.entry(range.thread).or_default();
                let parent = open.innermost();
                open.nested.insert(at + 1);
                Step::Enter { parent }
            }
            RangeKind::Free => {
                self.open.entry(range.thread).or_default().free.insert(at + 1);
                Step::Enter { parent: 0 }
            }
        };
        Some((start_ns, at, step))
    }

    /// Innermost scope open on a thread; 0 for none. Times must not step back.
    pub(crate) fn innermost(&mut self, time_ns: i64, thread: ThreadKey) -> u32 {
        while self.step(time_ns).is_some() {}
        self.open.get(&thread).map_or(0, Open::innermost)
    }
}

impl Open {
    fn innermost(&self) -> u32 {
        self.nested.last().or(self.free.last()).copied().unwrap_or(0)
    }
}

/// Scope of a thing: process in the upper half.
pub(crate) fn scope_id(process: u32, number: u32) -> u64 {
    if number == 0 { 0 } else { u64::from(process) << 32 | u64::from(number) }
}
