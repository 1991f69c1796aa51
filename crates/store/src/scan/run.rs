//! One sequence of rows that a scan merges with others: the parts of an import or a sealing, or the tail.

use super::batch::Batch;
use super::cursor::RunCursor;
use super::part_run::{PartRow, PartRun, ReadContext};
use crate::error::Result;
use crate::merge::{TailMerge, TailRows};

/// Where the rows of a run come from.
pub(super) enum Rows {
    Parts(Box<PartRun>),
    Tail(Box<(TailMerge, TailRows)>),
}

/// A sequence of rows in an order of its own.
///
/// A row sorts at the latest time its run has had, never before an earlier row of the run.
pub(super) struct Run<B> {
    pub(super) rows: Rows,
    /// Index among the runs of parts; none for the tail.
    pub(super) of: Option<usize>,
    pub(super) batch: B,
    /// Row of the batch that is handed out next.
    at: usize,
    /// Row of the parts that is handed out next.
    pub(super) next: PartRow,
    /// Times at which the rows of the batch sort; empty until they are needed.
    sorts_ns: Vec<i64>,
    /// No row of the batch sorts before this.
    floor_ns: i64,
    /// No row behind the batch sorts before this.
    reached_ns: i64,
}

impl<B: Batch> Run<B> {
    /// Starts before the row `next`, which sorts at `sorts_ns` or later.
    pub(super) fn new(rows: Rows, of: Option<usize>, next: PartRow, sorts_ns: i64) -> Self {
        Self {
            rows,
            of,
            batch: B::default(),
            at: 0,
            next,
            sorts_ns: Vec::new(),
            floor_ns: sorts_ns,
            reached_ns: sorts_ns,
        }
    }

    /// Whether the batch has no more rows.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.batch.len()
    }

    /// Time at which the next row sorts; the earliest possible one if the batch has no more.
    pub(super) fn next_ns(&self) -> i64 {
        if self.is_empty() {
            return self.reached_ns;
        }
        match self.sorts_ns.get(self.at) {
            Some(sorts_ns) => *sorts_ns,
            None => self.floor_ns.max(self.batch.time_ns(0)),
        }
    }

    /// Earliest time at which a row can sort that is not among the next `most` ones of the batch.
    pub(super) fn bound_ns(&mut self, most: usize) -> i64 {
        if self.batch.len() - self.at <= most {
            return self.reached_ns;
        }
        self.sort();
        self.sorts_ns[self.at + most - 1]
    }

    /// Position behind the rows that were passed.
    pub(super) fn cursor(&self) -> RunCursor {
        RunCursor { next: self.next, sorts_ns: self.next_ns(), is_ended: false }
    }

    /// Position before a row of the batch that was passed.
    pub(super) fn cursor_at(&self, row: usize) -> RunCursor {
        let PartRow { part, row: next } = self.next;
        let next = PartRow { part, row: next.saturating_sub((self.at - row) as u64) };
        RunCursor { next, sorts_ns: self.sorts_ns[row], is_ended: false }
    }

    /// Whether none of the batch was passed and it has at least `rows`.
    pub(super) fn has_whole(&self, rows: usize) -> bool {
        self.at == 0 && !self.is_empty() && self.batch.len() >= rows
    }

    /// Reads the next batch; `false` if there are no more. The batch may be empty.
    pub(super) fn refill(&mut self, context: &mut ReadContext<'_, B>) -> Result<bool> {
        // Rows that were handed out must not be there if reading fails.
        self.batch.clear();
        self.sorts_ns.clear();
        self.at = 0;
        let (is_filled, skipped_ns) = match &mut self.rows {
            Rows::Parts(parts) => {
                let is_filled = parts.next(&mut self.batch, context)?;
                let PartRow { part, row } = parts.next_row();
                self.next = PartRow { part, row: row.saturating_sub(self.batch.len() as u64) };
                (is_filled, parts.skipped_ns())
            }
            Rows::Tail(tail) => {
                let (tail, rows) = tail.as_mut();
                let is_filled = tail.next(rows, context.registry);
                self.batch.take(rows, context.layout, context.registry);
                (is_filled, i64::MIN)
            }
        };
        self.floor_ns = self.reached_ns.max(skipped_ns);
        self.reached_ns = self.floor_ns.max(self.batch.latest_ns());
        if let Some(keep) = self.batch.wanted(context.props)
            && keep.contains(&false)
        {
            self.sort();
            self.batch.retain(&keep);
            let mut keep = keep.iter();
            self.sorts_ns.retain(|_| *keep.next().expect("one flag per row"));
        }
        Ok(is_filled)
    }

    /// Finds out at which times the rows of the batch sort.
    fn sort(&mut self) {
        if self.sorts_ns.len() < self.batch.len() {
            let mut latest_ns = self.floor_ns;
            let batch = &self.batch;
            self.sorts_ns.extend((0..batch.len()).map(|row| {
                latest_ns = latest_ns.max(batch.time_ns(row));
                latest_ns
            }));
        }
    }

    /// Passes at most `most` rows of the batch for which `comes_first` is true of the time at which they sort.
    /// Returns the first of them, and the times of all.
    pub(super) fn pass(&mut self, most: usize, comes_first: impl Fn(i64) -> bool) -> (usize, &[i64]) {
        self.sort();
        let start = self.at;
        let end = self.batch.len().min(start.saturating_add(most));
        let count = self.sorts_ns[start..end].partition_point(|sorts_ns| comes_first(*sorts_ns));
        self.at += count;
        self.next.row += count as u64;
        (start, &self.sorts_ns[start..self.at])
    }

    /// Swaps the whole batch with `out`.
    pub(super) fn pass_whole(&mut self, out: &mut B) {
        std::mem::swap(out, &mut self.batch);
        self.next.row += out.len() as u64;
        self.batch.clear();
        self.sorts_ns.clear();
    }
}
