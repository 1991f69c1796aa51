//! Rows as a scan merges and hands them out: events by columns, other tables row by row.
//!
//! `records` has a third form, Arrow record batches.

use arrow_array::RecordBatch;
use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Column, EventBatch, RowPick};

use super::ScanProps;
use crate::columns::{Constant, EVENT_COLUMNS, read_record_batch, set_constant};
use crate::merge::TailRows;
use crate::registry::{Needs, Registry};
use crate::rows::TableRow;
use crate::table::Table;

/// What a scan, which knows runs and times, has to know of the rows it merges.
pub trait Batch: Default + Send {
    /// What a scan has to know beside the type.
    type Layout: Clone + Send;

    /// Table the rows are in.
    fn table(layout: &Self::Layout) -> Table;
    /// Which small tables must be loaded to read them.
    fn needs(layout: &Self::Layout) -> Needs;
    /// Rows of a full batch.
    fn full_rows(layout: &Self::Layout) -> usize;
    /// Columns to read; all if `None`.
    fn columns<'a>(layout: &'a Self::Layout, props: &ScanProps) -> Option<Vec<&'a str>>;
    /// Whether [`Self::read`] takes the value of a column that has only one, instead of decoded rows.
    fn takes_constant(layout: &Self::Layout, column: &str) -> bool;

    /// Number of rows.
    fn len(&self) -> usize;
    /// Removes all rows and keeps the memory.
    fn clear(&mut self);
    /// Time of one row.
    fn time_ns(&self, row: usize) -> i64;
    /// Latest time of all rows.
    fn latest_ns(&self) -> i64;
    /// Appends rows of other batches, in the order of `picks`.
    fn gather(&mut self, sources: &[&Self], picks: &[RowPick]);
    /// Replaces the rows by those of `records`. Returns how many were left out because of words that
    /// this version does not know; `None` if a column is not what the format says.
    fn read(
        &mut self,
        records: RecordBatch,
        constants: &[(String, Constant)],
        layout: &Self::Layout,
        registry: &mut Registry,
    ) -> Option<u64>;
    /// Replaces the rows by those of its table in `rows`.
    fn take(&mut self, rows: &mut TailRows, layout: &Self::Layout, registry: &Registry);
    /// Says for each row whether it is wanted; `None` if all are.
    fn wanted(&self, props: &ScanProps) -> Option<Vec<bool>>;
    /// Keeps the rows for which `keep` is true.
    fn retain(&mut self, keep: &[bool]);
}

impl Batch for EventBatch {
    type Layout = ();

    fn takes_constant((): &(), _: &str) -> bool {
        true
    }

    fn table((): &()) -> Table {
        Table::Event
    }

    fn needs((): &()) -> Needs {
        Needs::Everything
    }

    fn full_rows((): &()) -> usize {
        BATCH_ROWS
    }

    fn columns<'a>((): &'a (), props: &ScanProps) -> Option<Vec<&'a str>> {
        Some(EVENT_COLUMNS.into_iter().filter(|column| props.wants(column)).collect())
    }

    fn len(&self) -> usize {
        EventBatch::len(self)
    }

    fn clear(&mut self) {
        EventBatch::clear(self);
    }

    #[inline]
    fn time_ns(&self, row: usize) -> i64 {
        self.time_ns.at(row)
    }

    fn latest_ns(&self) -> i64 {
        match &self.time_ns {
            Column::Same(_) if self.is_empty() => i64::MIN,
            Column::Same(time) => *time,
            Column::Each(times) => times.iter().copied().max().unwrap_or(i64::MIN),
        }
    }

    fn gather(&mut self, sources: &[&Self], picks: &[RowPick]) {
        EventBatch::gather(self, sources, picks);
    }

    fn read(
        &mut self,
        records: RecordBatch,
        constants: &[(String, Constant)],
        (): &(),
        registry: &mut Registry,
    ) -> Option<u64> {
        read_record_batch(records, self, registry)?;
        for (name, value) in constants {
            set_constant(name, value, self, registry);
        }
        Some(0)
    }

    fn take(&mut self, rows: &mut TailRows, (): &(), _: &Registry) {
        std::mem::swap(self, &mut rows.events);
    }

    fn wanted(&self, props: &ScanProps) -> Option<Vec<bool>> {
        if props.wants_all_rows() {
            return None;
        }
        let wanted = |row| props.wants_row(self.time_ns.at(row), self.process.at(row), None);
        Some((0..self.len()).map(wanted).collect())
    }

    fn retain(&mut self, keep: &[bool]) {
        EventBatch::retain(self, keep);
    }
}

impl<T: TableRow> Batch for Vec<T> {
    type Layout = ();

    fn takes_constant((): &(), _: &str) -> bool {
        false
    }

    fn table((): &()) -> Table {
        T::TABLE
    }

    fn needs((): &()) -> Needs {
        T::NEEDS
    }

    fn full_rows((): &()) -> usize {
        T::ROWS
    }

    fn columns<'a>((): &'a (), _: &ScanProps) -> Option<Vec<&'a str>> {
        None
    }

    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn time_ns(&self, row: usize) -> i64 {
        self[row].time_ns()
    }

    fn latest_ns(&self) -> i64 {
        self.iter().map(T::time_ns).max().unwrap_or(i64::MIN)
    }

    fn gather(&mut self, sources: &[&Self], picks: &[RowPick]) {
        self.extend(picks.iter().map(|pick| sources[pick.source as usize][pick.row as usize].clone()));
    }

    fn read(
        &mut self,
        records: RecordBatch,
        _: &[(String, Constant)],
        (): &(),
        registry: &mut Registry,
    ) -> Option<u64> {
        self.clear();
        T::from_records(&records, registry, self)
    }

    fn take(&mut self, rows: &mut TailRows, (): &(), _: &Registry) {
        std::mem::swap(self, T::of_tail(rows));
    }

    fn wanted(&self, props: &ScanProps) -> Option<Vec<bool>> {
        if props.wants_all_rows() && props.subjects.is_none() {
            return None;
        }
        let wanted = |row: &T| props.wants_row(row.time_ns(), row.process(), row.subject());
        Some(self.iter().map(wanted).collect())
    }

    fn retain(&mut self, keep: &[bool]) {
        let mut keep = keep.iter();
        Vec::retain(self, |_| *keep.next().expect("one flag per row"));
    }
}
