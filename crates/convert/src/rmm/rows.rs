//! The columns of a batch while they are being filled.
//!
//! Their vectors keep their full length from batch to batch and are cut to what was filled at the end:
//! writing a value is then a store without a check of the capacity. Threads and streams are often the
//! same in all rows; whether they are is found out on the way.

#![expect(clippy::inline_always, reason = "a call would take longer than all stores of a row")]

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
        let at = self.count;
        self.slices().set(at, row);
        self.count += 1;
    }

    /// Appends rows, after [`Self::begin`], that `read` writes; it returns how many they are, and something else.
    pub(super) fn fill<T>(&mut self, read: impl FnOnce(RowSlices<'_>) -> (usize, T)) -> T {
        let before = self.count;
        let (count, other) = read(self.slices().from(before));
        self.count = (before + count).min(ROWS);
        other
    }

    fn slices(&mut self) -> RowSlices<'_> {
        RowSlices {
            time_ns: &mut self.time_ns,
            action: &mut self.action,
            address: &mut self.address,
            bytes: &mut self.bytes,
            thread: &mut self.thread,
            stream: &mut self.stream,
        }
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

/// Room for rows, column by column.
pub(super) struct RowSlices<'a> {
    time_ns: &'a mut [i64],
    action: &'a mut [Action],
    address: &'a mut [u64],
    bytes: &'a mut [u64],
    thread: &'a mut [u64],
    stream: &'a mut [u64],
}

impl RowSlices<'_> {
    /// How many rows there is room for.
    pub(super) fn room(&self) -> usize {
        self.time_ns.len()
    }

    /// The room from a row on.
    pub(super) fn from(&mut self, row: usize) -> RowSlices<'_> {
        RowSlices {
            time_ns: &mut self.time_ns[row..],
            action: &mut self.action[row..],
            address: &mut self.address[row..],
            bytes: &mut self.bytes[row..],
            thread: &mut self.thread[row..],
            stream: &mut self.stream[row..],
        }
    }

    /// Writes a row.
    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, row: &TimedRow) {
        self.time_ns[at] = row.time_ns;
        self.action[at] = row.action;
        self.address[at] = row.address;
        self.bytes[at] = row.bytes;
        self.thread[at] = row.thread;
        self.stream[at] = row.stream;
    }
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
