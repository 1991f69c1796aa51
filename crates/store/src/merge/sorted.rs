//! The rows of a lane whose times go back, in the order of time.
//!
//! Every chunk is sorted on its own when the first of its rows is due, and the open chunks are merged. When
//! that is, is known from an earlier pass over the lane. Memory: the rows of chunks that overlap in time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use floodmark_event::ProcessId;
use floodmark_tail::record::{Decoder, Record};

use super::Item;
use super::record_rows::{RowChoice, row, table_of};
use crate::registry::Registry;
use crate::table::Table;
use crate::tail::ChunkRef;

/// A chunk whose rows are not due yet.
struct Waiting {
    /// Time at which its first row sorts.
    earliest_ns: i64,
    chunk: ChunkRef,
    /// Records that are in parts already.
    skip: u64,
    /// Latest time of a sampler's row before this chunk.
    sampled_ns: i64,
}

/// The rows of a chunk, in the order of time.
type OpenChunk = std::vec::IntoIter<(i64, Item)>;

/// Merges the chunks of one lane.
pub(super) struct SortedChunks {
    process: ProcessId,
    utc_offset_ns: i64,
    choice: RowChoice,
    /// By time, the next one last.
    waiting: Vec<Waiting>,
    is_sorted: bool,
    open: Vec<OpenChunk>,
    /// Time of the first row of each open chunk, its sequence number, and its index.
    heap: BinaryHeap<Reverse<(i64, u64, usize)>>,
    /// Time at which the row that was returned last sorts.
    latest_ns: i64,
    /// State of the survey: latest time of a sampler's row before this chunk and up to here, and earliest
    /// time in this chunk.
    sampled_before_ns: i64,
    sampled_ns: i64,
    earliest_ns: Option<i64>,
}

/// Returns the monotonic time of a record that becomes a row.
fn time_ns(record: &Record<'_>) -> u64 {
    match record {
        Record::Event(event) => event.time_ns as u64,
        Record::EnterScope { time_ns, .. }
        | Record::ExitScope { time_ns, .. }
        | Record::Mark { time_ns, .. }
        | Record::BeginRange { time_ns, .. }
        | Record::EndRange { time_ns, .. }
        | Record::Call { time_ns, .. }
        | Record::Sample { time_ns, .. }
        | Record::Output { time_ns, .. }
        | Record::StackSample { time_ns, .. } => *time_ns,
        _ => 0,
    }
}

impl SortedChunks {
    pub(super) fn new(process: ProcessId, utc_offset_ns: i64, choice: RowChoice) -> Self {
        Self {
            process,
            utc_offset_ns,
            choice,
            waiting: Vec::new(),
            is_sorted: false,
            open: Vec::new(),
            heap: BinaryHeap::new(),
            latest_ns: i64::MIN,
            sampled_before_ns: i64::MIN,
            sampled_ns: i64::MIN,
            earliest_ns: None,
        }
    }

    /// Takes note of a record of the chunk that is being surveyed.
    pub(super) fn survey(&mut self, record: &Record<'_>) {
        let Some(table) = table_of(record).filter(|table| self.choice.wants(*table)) else {
            return;
        };
        let mut sorts_ns = (time_ns(record) as i64).wrapping_add(self.utc_offset_ns);
        if matches!(table, Table::Sample | Table::Output | Table::StackSample) {
            self.sampled_ns = self.sampled_ns.max(sorts_ns);
            sorts_ns = self.sampled_ns;
        }
        self.earliest_ns = Some(self.earliest_ns.map_or(sorts_ns, |earliest| earliest.min(sorts_ns)));
    }

    /// Adds the chunk that was surveyed, unless it has no rows.
    pub(super) fn end_chunk(&mut self, chunk: ChunkRef, skip: u64) {
        if let Some(earliest_ns) = self.earliest_ns.take() {
            self.waiting.push(Waiting { earliest_ns, chunk, skip, sampled_ns: self.sampled_before_ns });
        }
        self.sampled_before_ns = self.sampled_ns;
    }

    /// Time at which the row that was returned last sorts.
    pub(super) fn latest_ns(&self) -> i64 {
        self.latest_ns
    }

    /// Returns the next row of the lane.
    pub(super) fn next(&mut self, registry: &Registry) -> Option<Item> {
        if !self.is_sorted {
            self.waiting.sort_by_key(|waiting| Reverse((waiting.earliest_ns, waiting.chunk.sequence)));
            self.is_sorted = true;
        }
        let is_due = |waiting: &mut Waiting, heap: &BinaryHeap<Reverse<(i64, u64, usize)>>| {
            heap.peek().is_none_or(|Reverse((first_ns, ..))| waiting.earliest_ns <= *first_ns)
        };
        while let Some(waiting) = self.waiting.pop_if(|waiting| is_due(waiting, &self.heap)) {
            self.open_chunk(waiting, registry);
        }
        let Reverse((time_ns, sequence, index)) = self.heap.pop()?;
        let (_, item) = self.open[index].next()?;
        if let Some((next_ns, _)) = self.open[index].as_slice().first() {
            self.heap.push(Reverse((*next_ns, sequence, index)));
        } else {
            self.open[index] = OpenChunk::default();
        }
        self.latest_ns = time_ns;
        Some(item)
    }

    /// Decodes and sorts the rows of a chunk. What cannot be read any more was counted in the survey, or
    /// ends the chunk here.
    fn open_chunk(&mut self, waiting: Waiting, registry: &Registry) {
        let Waiting { chunk, skip, mut sampled_ns, .. } = waiting;
        let sequence = chunk.sequence;
        let Some((base_time_ns, payload)) = chunk.load() else { return };
        let mut decoder = Decoder::new(base_time_ns);
        let (mut rows, mut records) = (Vec::new(), 0);
        while let Ok(Some(record)) = decoder.next(&payload) {
            records += 1;
            if records <= skip {
                continue;
            }
            let Some(item) = row(&record, self.process, self.utc_offset_ns, registry, self.choice) else {
                continue;
            };
            let (mut sorts_ns, _) = item.turn();
            if item.keeps_order() {
                sampled_ns = sampled_ns.max(sorts_ns);
                sorts_ns = sampled_ns;
            }
            rows.push((sorts_ns, item));
        }
        // Stable: at equal times in the order of recording.
        rows.sort_by_key(|(sorts_ns, _)| *sorts_ns);
        let Some((first_ns, _)) = rows.first() else { return };
        // The place of a chunk that is done can be used again.
        let index = self.open.iter().position(|open| open.len() == 0).unwrap_or(self.open.len());
        self.heap.push(Reverse((*first_ns, sequence, index)));
        if index == self.open.len() {
            self.open.push(OpenChunk::default());
        }
        self.open[index] = rows.into_iter();
    }
}
