//! Which call an allocation or free was, and on which thread.
//!
//! Calls of the runtime and of the driver share one table, and a call's stack is a row of a class of its
//! own there that repeats the call's correlation id. A row is the call of an event if it has the same
//! correlation id, is of the same process and spans the event's time. Of several the one with a stack
//! counts, then one of the driver, then any, which tells the thread at least.
//!
//! The table is far longer than that of memory, so it is passed over once and nothing of it is kept but
//! what events point to.

use std::cmp::Reverse;

use floodmark_store::{Losses, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Class;
use super::export::{Export, Row};
use super::ids::{ProcessKey, thread_of};
use super::memory::{Memory, MemoryRow};
use super::words::Words;
use crate::Mode;

/// With more events than this, calls with their correlation id are kept and told to them at once: to try
/// each call with each event would take forever.
const CROWD: usize = 16;

pub(crate) const TABLE: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
/// Not of Nsight Systems itself; some tools put calls of the driver here.
const DRIVER_TABLE: &str = "CUPTI_ACTIVITY_KIND_DRIVER";
const COLUMNS: [&str; 8] =
    ["correlationId", "eventClass", "globalTid", "start", "end", "nameId", "callchainId", "returnValue"];

/// Where a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) class: Class,
    /// Its stack, if it has one.
    pub(crate) chain: Option<i64>,
    /// Name of the function that was called, by its number among strings.
    pub(crate) name: i64,
}

/// Where a call came from of which only the thread is known.
const NOWHERE: Origin = Origin { class: Class::Invalid, chain: None, name: 0 };

/// What goes with a context that is torn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    /// Everything on the device.
    Device,
    /// Everything of the context.
    Context,
}

/// Calls that release memory without frees, without the version at the end of their names.
/// `cuDevicePrimaryCtxRelease` is none of them: it tears down only with the last holder.
const TEARDOWNS: [(&str, Reach); 5] = [
    ("cudaDeviceReset", Reach::Device),
    ("cudaThreadExit", Reach::Device),
    ("cuDevicePrimaryCtxReset", Reach::Device),
    ("cuCtxDestroy", Reach::Context),
    ("cuGreenCtxDestroy", Reach::Context),
];

/// A call that tore a context down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Teardown {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) process: ProcessKey,
    pub(crate) thread: u32,
    pub(crate) reach: Reach,
}

/// What the table of calls tells.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Index 0 is "not known".
    pub(crate) origins: Vec<Origin>,
    /// In the order of time.
    pub(crate) teardowns: Vec<Teardown>,
}

/// Strings that name a call that tears down.
pub(crate) type TeardownNames = FxHashMap<i64, Reach>;

/// Finds the numbers of the names of calls that tear down.
pub(crate) fn teardown_names(export: &Export) -> Result<TeardownNames> {
    let mut names = TeardownNames::default();
    export.strings(&mut |id, text| {
        if text.starts_with("cu") {
            let text = without_version(text);
            names.extend(TEARDOWNS.iter().filter(|(name, _)| *name == text).map(|(_, reach)| (id, *reach)));
        }
    })?;
    Ok(names)
}

/// `cudaMalloc_v3020` is `cudaMalloc`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((plain, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => plain,
        _ => name,
    }
}

/// Finds the calls of all events.
pub(crate) fn join(
    export: &Export,
    words: &Words,
    memory: &mut Memory,
    mode: Mode,
    losses: &mut Losses,
) -> Result<Calls> {
    let names = teardown_names(export)?;
    let mut join = Join::new(memory, words);
    for table in [TABLE, DRIVER_TABLE] {
        let has_class = export.has_column(table, COLUMNS[1]);
        let scanned = export.scan(table, &COLUMNS, &mut |row| {
            let class = match row.int(1) {
                Some(class) => class,
                None if has_class => return Ok(()),
                None if table == DRIVER_TABLE => words.driver,
                None if row.int(6).is_some() => words.backtrace,
                None => words.runtime,
            };
            join.take(row, class);
            if class != words.backtrace && !names.is_empty() {
                join.teardowns.extend(teardown(row, &names));
            }
            Ok(())
        });
        super::tolerate(scanned, mode, losses)?;
    }
    join.settle();
    let Join { origins, mut teardowns, .. } = join;
    sort_teardowns(&mut teardowns);
    Ok(Calls { origins, teardowns })
}

/// Finds the calls that tear contexts down, and nothing else.
pub(crate) fn teardowns(
    export: &Export,
    words: &Words,
    mode: Mode,
    losses: &mut Losses,
) -> Result<Vec<Teardown>> {
    let names = teardown_names(export)?;
    let mut teardowns = Vec::new();
    if names.is_empty() {
        return Ok(teardowns);
    }
    for table in [TABLE, DRIVER_TABLE] {
        let scanned = export.scan(table, &COLUMNS, &mut |row| {
            if row.int(1) != Some(words.backtrace) {
                teardowns.extend(teardown(row, &names));
            }
            Ok(())
        });
        super::tolerate(scanned, mode, losses)?;
    }
    sort_teardowns(&mut teardowns);
    Ok(teardowns)
}

fn sort_teardowns(teardowns: &mut Vec<Teardown>) {
    teardowns.sort_unstable_by_key(|one| (one.end_ns, one.process, one.start_ns, one.thread));
    teardowns.dedup();
}

/// The call of a row, if it tore a context down and succeeded.
fn teardown(row: &Row<'_>, names: &TeardownNames) -> Option<Teardown> {
    let reach = *names.get(&row.int(5)?)?;
    let (global, start_ns) = (row.int(2)?, row.int(3)?);
    let end_ns = row.int(4).unwrap_or(start_ns).max(start_ns);
    let (process, thread) = (ProcessKey::of(global), thread_of(global));
    (row.int(7).unwrap_or(0) == 0).then_some(Teardown { start_ns, end_ns, process, thread, reach })
}

/// An event by its correlation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    process: u32,
    correlation: i64,
    row: u32,
}

/// A call that may be that of many events.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// First link with its correlation id.
    first: usize,
    start_ns: i64,
    end_ns: i64,
    thread: u32,
    rank: u8,
    origin: Origin,
}

struct Join<'a> {
    words: &'a Words,
    rows: &'a mut [MemoryRow],
    processes: FxHashMap<ProcessKey, u32>,
    links: Vec<Link>,
    /// Where the latest call was found: the next one is likely right behind.
    at: usize,
    origins: Vec<Origin>,
    indexes: FxHashMap<Origin, u32>,
    teardowns: Vec<Teardown>,
    candidates: Vec<Candidate>,
}

impl<'a> Join<'a> {
    fn new(memory: &'a mut Memory, words: &'a Words) -> Self {
        let processes = memory.processes.iter().copied().zip(0..).collect();
        // Variables have no call; their correlation id is 0.
        let known = (0..).zip(&memory.rows).filter(|(_, row)| row.correlation != 0);
        let link = |(at, row): (u32, &MemoryRow)| Link {
            process: row.process,
            correlation: row.correlation,
            row: at,
        };
        let mut links: Vec<Link> = known.map(link).collect();
        links.sort_unstable();
        Self {
            words,
            rows: &mut memory.rows,
            processes,
            links,
            at: 0,
            origins: vec![NOWHERE],
            indexes: FxHashMap::default(),
            teardowns: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// Takes a call and assigns it to its events, unless they have a better one.
    #[inline]
    fn take(&mut self, row: &Row<'_>, class: i64) {
        let Some(correlation) = row.int(0) else { return };
        let (class, rank) = match class {
            class if class == self.words.backtrace => (Class::Valid, 3),
            class if class == self.words.driver => (Class::Driver, 2),
            class if class == self.words.runtime => (Class::Invalid, 1),
            _ => return,
        };
        let Some(global) = row.int(2) else { return };
        let Some(process) = self.processes.get(&ProcessKey::of(global)).copied() else { return };
        let Some(first) = self.find(process, correlation) else { return };
        let (Some(start_ns), Some(end_ns)) = (row.int(3), row.int(4)) else { return };
        let origin = match class {
            Class::Invalid => NOWHERE,
            _ => Origin { class, chain: chain(row, class), name: row.int(5).unwrap_or(0) },
        };
        let call = Candidate { first, start_ns, end_ns, thread: thread_of(global), rank, origin };
        let key = |link: &Link| (link.process, link.correlation);
        if self.links.get(first + CROWD).is_some_and(|link| key(link) == (process, correlation)) {
            self.candidates.push(call);
            return;
        }
        for at in first..self.links.len() {
            if key(&self.links[at]) != (process, correlation) {
                break;
            }
            let event = self.rows[self.links[at].row as usize];
            if !(start_ns..=end_ns).contains(&event.start_ns) || rank < event.rank {
                continue;
            }
            // Rows come in any order: of two equally good ones the same has to win.
            let is_first = event.rank == rank && self.origins[event.origin as usize].key() <= origin.key();
            if !is_first {
                self.tell(at, &call);
            }
        }
    }

    fn tell(&mut self, link: usize, call: &Candidate) {
        let origin = self.origin(call.origin);
        let event = &mut self.rows[self.links[link].row as usize];
        (event.class, event.rank, event.origin, event.thread) =
            (call.origin.class, call.rank, origin, call.thread);
    }

    /// Tells events with a crowded correlation id their calls: the best call goes first, and an event that
    /// has its call is passed over from then on.
    fn settle(&mut self) {
        let mut calls = std::mem::take(&mut self.candidates);
        // Equally good ones stay in the order of the table.
        calls.sort_by_key(|call| (call.first, Reverse(call.rank), call.origin.key()));
        for calls in calls.chunk_by(|a, b| a.first == b.first) {
            let first = calls[0].first;
            let key = |link: &Link| (link.process, link.correlation);
            let wanted = key(&self.links[first]);
            let count = self.links[first..].partition_point(|link| key(link) == wanted);
            // Links are in the order of their rows, which is that of time.
            let times: Vec<i64> = self.links[first..first + count]
                .iter()
                .map(|link| self.rows[link.row as usize].start_ns)
                .collect();
            let mut open = Open::new(count);
            for call in calls {
                let mut at = open.from(times.partition_point(|time| *time < call.start_ns));
                while at < count && times[at] <= call.end_ns {
                    self.tell(first + at, call);
                    open.close(at);
                    at = open.from(at + 1);
                }
            }
        }
    }

    /// First link with this correlation id.
    #[inline]
    fn find(&mut self, process: u32, correlation: i64) -> Option<usize> {
        let wanted = (process, correlation);
        let key = |link: &Link| (link.process, link.correlation);
        // Most calls come in the order of their ids, two rows each.
        for at in self.at..self.links.len().min(self.at + 4) {
            if key(&self.links[at]) == wanted && (at == 0 || key(&self.links[at - 1]) != wanted) {
                self.at = at;
                return Some(at);
            }
        }
        let at = self.links.partition_point(|link| key(link) < wanted);
        self.at = at;
        self.links.get(at).filter(|link| key(link) == wanted).map(|_| at)
    }

    fn origin(&mut self, origin: Origin) -> u32 {
        if origin == NOWHERE {
            return 0;
        }
        *self.indexes.entry(origin).or_insert_with(|| {
            self.origins.push(origin);
            self.origins.len() as u32 - 1
        })
    }
}

/// Places of a list that are still open, for passing over the others at once.
struct Open {
    /// A place at or behind each one that may be open.
    next: Vec<usize>,
}

impl Open {
    fn new(count: usize) -> Self {
        Self { next: (0..=count).collect() }
    }

    fn close(&mut self, at: usize) {
        self.next[at] = at + 1;
    }

    /// First open place from `at` on; the end of the list if there is none.
    fn from(&mut self, mut at: usize) -> usize {
        while self.next[at] != at {
            // Each pass halves the way for the next one.
            self.next[at] = self.next[self.next[at]];
            at = self.next[at];
        }
        at
    }
}

impl Origin {
    /// Which of two goes first: one with a stack before one without. Chain 0 is in between: some exports
    /// count chains from 0, and others have it where there is none.
    fn key(self) -> (bool, bool, Option<i64>, i64) {
        (self.chain.is_none(), self.chain == Some(0), self.chain, self.name)
    }
}

fn chain(row: &Row<'_>, class: Class) -> Option<i64> {
    row.int(6).filter(|_| class == Class::Valid)
}

/// Numbers of strings that name the functions called.
pub(crate) fn name_ids(origins: &[Origin]) -> FxHashSet<i64> {
    origins.iter().skip(1).map(|origin| origin.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_places_are_passed_over() {
        let mut open = Open::new(4);
        for at in [1, 2, 0] {
            open.close(at);
        }
        assert_eq!([0, 1, 2, 3, 4].map(|at| open.from(at)), [3, 3, 3, 3, 4]);
        open.close(3);
        assert_eq!(open.from(0), 4);
    }

    #[test]
    fn versions_are_no_part_of_a_name() {
        for (name, plain) in [
            ("cudaDeviceReset_v3020", "cudaDeviceReset"),
            ("cuCtxDestroy_v2", "cuCtxDestroy"),
            ("cuCtxDestroy", "cuCtxDestroy"),
            ("cuda_value", "cuda_value"),
        ] {
            assert_eq!(without_version(name), plain);
        }
    }
}
