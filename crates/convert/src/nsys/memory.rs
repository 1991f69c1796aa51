//! The rows of the table of memory, in the order in which they happened.
//!
//! Millions of them are held at once, because exports guarantee no order; hence a row is as small as it
//! can be: names, kinds and processes are indexes into short lists.
//!
//! At equal times a free goes first, since a re-used address is freed before; unless its block is not
//! live yet and is allocated at that very time.

use std::cmp::Ordering;

use floodmark_event::{Action, Kind, NO_DEVICE};
use floodmark_store::{Losses, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::export::{Export, Row};
use super::ids::ProcessKey;
use super::words::{KindWord, Words};
use super::{Class, RECIPE};
use crate::Mode;

pub(crate) const TABLE: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";
const COLUMNS: [&str; 11] = [
    "start",
    "globalPid",
    "address",
    "bytes",
    "memKind",
    "memoryOperationType",
    "deviceId",
    "contextId",
    "correlationId",
    "streamId",
    "name",
];
/// How many of them have to be there.
const REQUIRED: usize = 6;

/// An allocation or a free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryRow {
    /// Since the capture began.
    pub(crate) start_ns: i64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) correlation: i64,
    /// Index of the process.
    pub(crate) process: u32,
    /// Thread of the call; 0 if not known.
    pub(crate) thread: u32,
    /// Number of the device in its process.
    pub(crate) device: i32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    /// Index of the variable's name; 0 for none.
    pub(crate) name: u32,
    /// Index of where the call came from; 0 if not known.
    pub(crate) origin: u32,
    /// Index of the kind of memory.
    pub(crate) kind: u8,
    pub(crate) action: Action,
    pub(crate) class: Class,
    /// How good the call that was found is.
    pub(crate) rank: u8,
}

/// All of them, and what they point to.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) rows: Vec<MemoryRow>,
    /// By global id.
    pub(crate) processes: Vec<ProcessKey>,
    pub(crate) names: Vec<String>,
    pub(crate) kinds: Vec<KindWord>,
}

impl Memory {
    /// Reads the table, or explains why there is nothing to read.
    pub(crate) fn read(export: &Export, words: &Words, mode: Mode, losses: &mut Losses) -> Result<Self> {
        check(export)?;
        let mut reader = Reader::new(words);
        let mut number = 0_u64;
        let scanned = export.scan(TABLE, &COLUMNS, &mut |row| {
            number += 1;
            match reader.take(row) {
                Ok(()) => Ok(()),
                Err(_) if mode == Mode::Lenient => {
                    losses.add(1, "malformed rows skipped");
                    Ok(())
                }
                Err(reason) => Err(export.malformed(TABLE, format!("row {number}: {reason}"))),
            }
        });
        super::tolerate(scanned, mode, losses)?;
        if reader.unknown_operations > 0 {
            losses.remark_times(
                reader.unknown_operations,
                "a row is neither an allocation nor a free (memoryOperationType) and was left out",
            );
        }
        let mut memory = reader.memory;
        memory.count_unknown_kinds(losses);
        memory.sort();
        Ok(memory)
    }

    /// Kind of memory of a row.
    #[inline]
    pub(crate) fn kind(&self, row: &MemoryRow) -> Kind {
        self.kinds.get(usize::from(row.kind)).and_then(|word| word.kind).unwrap_or(Kind::Unknown)
    }

    fn count_unknown_kinds(&self, losses: &mut Losses) {
        for (at, word) in self.kinds.iter().enumerate().filter(|(_, word)| word.kind.is_none()) {
            let count = self.rows.iter().filter(|row| usize::from(row.kind) == at).count() as u64;
            let id = word.id;
            losses.remark_times(
                count,
                format!("memKind {id} has no known meaning; such an event has kind unknown"),
            );
        }
    }

    /// Sorts processes by their ids and rows by time.
    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..self.processes.len() as u32).collect();
        order.sort_by_key(|at| self.processes[*at as usize]);
        if !order.is_sorted() {
            let mut places = vec![0; order.len()];
            for (place, at) in (0..).zip(&order) {
                places[*at as usize] = place;
            }
            for row in &mut self.rows {
                row.process = places[row.process as usize];
            }
            self.processes.sort_unstable();
        }
        if !self.rows.is_sorted_by(|a, b| compare(a, b) != Ordering::Greater) {
            self.rows.sort_unstable_by(compare);
        }
        order_ties(&mut self.rows);
    }
}

fn compare(a: &MemoryRow, b: &MemoryRow) -> Ordering {
    a.start_ns.cmp(&b.start_ns).then_with(|| {
        let key = |row: &MemoryRow| {
            let is_alloc = row.action != Action::Free;
            (row.process, is_alloc, row.correlation, row.address, row.bytes, row.device, row.kind, row.stream)
        };
        key(a).cmp(&key(b)).then(a.context.cmp(&b.context))
    })
}

/// A block as far as ties go: process and address.
pub(crate) type Spot = (u32, u64);

pub(crate) fn spot(row: &MemoryRow) -> Spot {
    (row.process, row.address)
}

/// Puts frees behind the allocations that they end where both have the same time.
fn order_ties(rows: &mut [MemoryRow]) {
    let same = |a: &MemoryRow, b: &MemoryRow| a.start_ns == b.start_ns && a.process == b.process;
    let mut contested = FxHashSet::default();
    for tie in rows.chunk_by(same).filter(|tie| tie.len() > 1) {
        let frees: FxHashSet<Spot> = tie.iter().filter(|row| row.action == Action::Free).map(spot).collect();
        let allocs = tie.iter().filter(|row| row.action != Action::Free);
        contested.extend(allocs.map(spot).filter(|spot| frees.contains(spot)));
    }
    if contested.is_empty() {
        return;
    }
    let mut live: FxHashSet<Spot> = FxHashSet::default();
    for tie in rows.chunk_by_mut(same) {
        if tie.len() > 1 && tie.iter().any(|row| contested.contains(&spot(row))) {
            alternate(tie, &live, &contested);
        }
        for row in tie.iter().filter(|row| contested.contains(&spot(row))) {
            if row.action == Action::Free {
                live.remove(&spot(row));
            } else {
                live.insert(spot(row));
            }
        }
    }
}

/// Orders rows of one time so that allocations and frees of a contested address take turns, the one first
/// that can be.
fn alternate(tie: &mut [MemoryRow], live: &FxHashSet<Spot>, contested: &FxHashSet<Spot>) {
    let mut turns: FxHashMap<(Spot, Action), u32> = FxHashMap::default();
    let mut keyed: Vec<(u32, u32, MemoryRow)> = Vec::with_capacity(tie.len());
    for (at, row) in (0..).zip(tie.iter()) {
        let turn = turns.entry((spot(row), row.action)).or_default();
        let is_live = live.contains(&spot(row)) || !contested.contains(&spot(row));
        let is_second = (row.action == Action::Free) != is_live;
        keyed.push((*turn * 2 + u32::from(is_second), at, *row));
        *turn += 1;
    }
    // Turn 0 is what can happen at once: frees of live blocks, which go first as before, then allocations.
    keyed.sort_unstable_by_key(|(turn, at, _)| (*turn, *at));
    for (place, (_, _, row)) in tie.iter_mut().zip(keyed) {
        *place = row;
    }
}

/// Says what is missing if there is no table to read, or one that lacks columns.
fn check(export: &Export) -> Result<()> {
    if !export.has(TABLE) {
        return Err(super::no_memory(export));
    }
    let missing: Vec<&str> =
        COLUMNS[..REQUIRED].iter().copied().filter(|column| !export.has_column(TABLE, column)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let reason = format!("it has no column {}; export the report again: {RECIPE}", missing.join(", "));
    Err(export.malformed(TABLE, reason))
}

struct Reader<'a> {
    words: &'a Words,
    memory: Memory,
    processes: FxHashMap<ProcessKey, u32>,
    latest_process: Option<(ProcessKey, u32)>,
    kinds: FxHashMap<i64, u8>,
    names: FxHashMap<String, u32>,
    unknown_operations: u64,
}

impl<'a> Reader<'a> {
    fn new(words: &'a Words) -> Self {
        Self {
            words,
            // Index 0 of names is none.
            memory: Memory { names: vec![String::new()], ..Memory::default() },
            processes: FxHashMap::default(),
            latest_process: None,
            kinds: FxHashMap::default(),
            names: FxHashMap::default(),
            unknown_operations: 0,
        }
    }

    fn take(&mut self, row: &Row<'_>) -> std::result::Result<(), String> {
        let start_ns = row.need(0, COLUMNS[0])?;
        let process = row.need(1, COLUMNS[1])?;
        let address = row.need(2, COLUMNS[2])? as u64;
        let bytes = row.need(3, COLUMNS[3])?;
        let kind = row.need(4, COLUMNS[4])?;
        let operation = row.need(5, COLUMNS[5])?;
        let bytes =
            u64::try_from(bytes).map_err(|_| format!("bytes is {bytes}, more than any memory has"))?;
        let Some(action) = self.words.operation(operation) else {
            self.unknown_operations += 1;
            return Ok(());
        };
        let small = |column| row.int(column).and_then(|value| u32::try_from(value).ok());
        let device = row.int(6).and_then(|device| i32::try_from(device).ok()).filter(|device| *device >= 0);
        let name = row.text(10).filter(|name| !name.is_empty()).map_or(0, |name| self.name(&name));
        let row = MemoryRow {
            start_ns,
            address,
            bytes,
            correlation: row.int(8).unwrap_or(0),
            process: self.process(ProcessKey::of(process)),
            thread: 0,
            device: device.unwrap_or(NO_DEVICE),
            context: small(7).unwrap_or(0),
            stream: small(9).unwrap_or(0),
            name,
            origin: 0,
            kind: self.kind(kind)?,
            action,
            class: Class::Invalid,
            rank: 0,
        };
        self.memory.rows.push(row);
        Ok(())
    }

    #[inline]
    fn process(&mut self, key: ProcessKey) -> u32 {
        if let Some((_, index)) = self.latest_process.filter(|(latest, _)| *latest == key) {
            return index;
        }
        let processes = &mut self.memory.processes;
        let index = *self.processes.entry(key).or_insert_with(|| {
            processes.push(key);
            processes.len() as u32 - 1
        });
        self.latest_process = Some((key, index));
        index
    }

    fn kind(&mut self, id: i64) -> std::result::Result<u8, String> {
        if let Some(index) = self.kinds.get(&id) {
            return Ok(*index);
        }
        let index = u8::try_from(self.memory.kinds.len())
            .map_err(|_| format!("memKind is {id}, after 256 other kinds of memory"))?;
        self.memory.kinds.push(self.words.kind(id));
        self.kinds.insert(id, index);
        Ok(index)
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let index = self.memory.names.len() as u32;
        self.memory.names.push(name.to_owned());
        self.names.insert(name.to_owned(), index);
        index
    }
}
