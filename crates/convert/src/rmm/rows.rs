//! The columns of a batch while they are being filled.
//!
//! Their vectors keep their full length from batch to batch and are cut to what was filled at the end:
//! writing a value is then a store without a check of the capacity. Threads and streams are often the
//! same in all rows; whether they are is found out on the way.

use std::mem;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Action, Column, EventBatch};

/// How many rows a batch takes.
const ROWS: usize = if cfg!(fuzzing) { 8 } else { BATCH_ROWS };

/// A row whose time is an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedRow {
    pub(super) thread: u64,
    pub(super) time_ns: i64,
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
}

/// The columns that rows of a log fill.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) count: usize,
    time_ns: Vec<i64>,
    action: Vec<Action>,
    address: Vec<u64>,
    bytes: Vec<u64>,
    thread: Vec<u64>,
    stream: Vec<u64>,
}

impl Rows {
    /// Begins anew with the memory of `batch`.
    pub(super) fn begin(&mut self, batch: &mut EventBatch) {
        self.count = 0;
        reuse(&mut self.time_ns, &mut batch.time_ns);
        reuse(&mut self.action, &mut batch.action);
        reuse(&mut self.address, &mut batch.address);
        reuse(&mut self.bytes, &mut batch.bytes);
        reuse(&mut self.thread, &mut batch.thread);
        reuse(&mut self.stream, &mut batch.stream);
        // Columns that another source may have filled become the same for all rows.
        *batch = EventBatch::new();
    }

    /// Time of the last row, if there is one.
    pub(super) fn last_ns(&self) -> Option<i64> {
        self.time_ns.get(self.count.checked_sub(1)?).copied()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == ROWS
    }

    /// Appends a row; there must be room.
    pub(super) fn push(&mut self, row: &TimedRow) {
        let mut next = Some(*row);
        self.fill(|| next.take());
    }

    /// Appends rows, after [`Self::begin`], until there is no more room or `next` has no more.
    #[inline]
    pub(super) fn fill(&mut self, mut next: impl FnMut() -> Option<TimedRow>) {
        let time_ns = full_length(&mut self.time_ns);
        let action = full_length(&mut self.action);
        let address = full_length(&mut self.address);
        let bytes = full_length(&mut self.bytes);
        let thread = full_length(&mut self.thread);
        let stream = full_length(&mut self.stream);
        let mut count = self.count;
        while count < ROWS
            && let Some(row) = next()
        {
            time_ns[count] = row.time_ns;
            action[count] = row.action;
            address[count] = row.address;
            bytes[count] = row.bytes;
            thread[count] = row.thread;
            stream[count] = row.stream;
            count += 1;
        }
        self.count = count;
    }

    /// Hands the rows over to `batch`; returns how many there are.
    pub(super) fn finish(&mut self, batch: &mut EventBatch) -> usize {
        let count = self.count;
        hand_over(&mut self.time_ns, &mut batch.time_ns, count);
        hand_over(&mut self.action, &mut batch.action, count);
        hand_over(&mut self.address, &mut batch.address, count);
        hand_over(&mut self.bytes, &mut batch.bytes, count);
        hand_over_if_varied(&mut self.thread, &mut batch.thread, count);
        hand_over_if_varied(&mut self.stream, &mut batch.stream, count);
        batch.set_len(count);
        count
    }
}

fn full_length<T>(values: &mut [T]) -> &mut [T; ROWS] {
    values.first_chunk_mut().expect("`begin` gave it its full length")
}

fn reuse<T: Copy + Default>(values: &mut Vec<T>, column: &mut Column<T>) {
    if let Column::Each(each) = column
        && each.capacity() > values.capacity()
    {
        mem::swap(values, each);
    }
    values.resize(ROWS, T::default());
}

fn hand_over<T>(values: &mut Vec<T>, column: &mut Column<T>, count: usize) {
    values.truncate(count);
    *column = Column::Each(mem::take(values));
}

fn hand_over_if_varied(values: &mut Vec<u64>, column: &mut Column<u64>, count: usize) {
    let first = values.first().copied().unwrap_or_default();
    // All are looked at, without a way out, so that it takes a fraction of a nanosecond per value.
    let differences = values[..count].iter().fold(0, |differences, value| differences | (value ^ first));
    if differences == 0 {
        *column = Column::Same(if count == 0 { 0 } else { first });
    } else {
        hand_over(values, column, count);
    }
}
