//! Rows as a scan hands them out: events by columns, everything else row by row.

use arrow_array::RecordBatch;
use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::{Column, EventBatch};

use super::ScanProps;
use super::part_run::Constant;
use crate::columns::{EVENT_COLUMNS, FromRecords, Value};
use crate::merge::TailRows;
use crate::registry::{Needs, Registry};
use crate::rows::Columns;
use crate::table::Table;

/// What a scan, which knows runs and times, has to know of the rows it merges.
pub trait Batch: Default + Send {
    /// Table they are in.
    const TABLE: Table;
    /// Which small tables must be there to read them.
    const NEEDS: Needs;
    /// Rows to read at once.
    const ROWS: usize;

    /// Columns of which those that are wanted and vary are decoded; none if always all are.
    fn columns() -> &'static [&'static str];
    /// Number of rows.
    fn len(&self) -> usize;
    /// Removes all rows and keeps the memory.
    fn clear(&mut self);
    /// Time of one row.
    fn time_ns(&self, row: usize) -> i64;
    /// Latest time of all rows.
    fn latest_ns(&self) -> i64;
    /// Appends a row of another batch.
    fn push_from(&mut self, from: &Self, row: usize);
    /// Replaces the rows by those of `records`. Returns how many were left out because of words that
    /// this version does not know; `None` if a column is not what the format says.
    fn read(
        &mut self,
        records: RecordBatch,
        constants: &[(&'static str, Constant)],
        registry: &mut Registry,
    ) -> Option<u64>;
    /// Replaces the rows by those of its table in `rows`.
    fn take(&mut self, rows: &mut TailRows);
    /// Removes the rows that are not wanted.
    fn filter(&mut self, props: &ScanProps);
}

impl Batch for EventBatch {
    const TABLE: Table = Table::Event;
    const NEEDS: Needs = Needs::Everything;
    const ROWS: usize = BATCH_ROWS;

    fn columns() -> &'static [&'static str] {
        &EVENT_COLUMNS
    }

    fn len(&self) -> usize {
        EventBatch::len(self)
    }

    fn clear(&mut self) {
        EventBatch::clear(self);
    }

    fn time_ns(&self, row: usize) -> i64 {
        self.time_ns.at(row)
    }

    fn latest_ns(&self) -> i64 {
        match &self.time_ns {
            Column::Same(time) => *time,
            Column::Each(times) => times.iter().copied().max().unwrap_or(i64::MIN),
        }
    }

    fn push_from(&mut self, from: &Self, row: usize) {
        self.push(&from.event(row));
    }

    fn read(
        &mut self,
        records: RecordBatch,
        constants: &[(&'static str, Constant)],
        registry: &mut Registry,
    ) -> Option<u64> {
        let mut converter = FromRecords { tables: &mut registry.tables, stacks: &registry.stacks };
        converter.convert(records, self)?;
        for (name, value) in constants {
            let value = match value {
                Constant::Null => None,
                Constant::Number(number) => Some(Value::Number(*number)),
                Constant::Word(word) => Some(Value::Word(word)),
            };
            converter.set(name, value.as_ref(), self);
        }
        Some(0)
    }

    fn take(&mut self, rows: &mut TailRows) {
        std::mem::swap(self, &mut rows.events);
    }

    fn filter(&mut self, props: &ScanProps) {
        if props.processes.is_none() && props.from_ns.is_none() && props.to_ns.is_none() {
            return;
        }
        let keep: Vec<bool> = (0..self.len())
            .map(|row| props.wants_row(self.time_ns.at(row), self.process.at(row), None))
            .collect();
        if keep.iter().all(|keep| *keep) {
            return;
        }
        retain(&mut self.time_ns, &keep);
        retain(&mut self.process, &keep);
        retain(&mut self.thread, &keep);
        retain(&mut self.action, &keep);
        retain(&mut self.address, &keep);
        retain(&mut self.bytes, &keep);
        retain(&mut self.device, &keep);
        retain(&mut self.stream, &keep);
        retain(&mut self.kind, &keep);
        retain(&mut self.resource, &keep);
        retain(&mut self.scope, &keep);
        retain(&mut self.stack, &keep);
        retain(&mut self.name, &keep);
        self.set_len(keep.iter().filter(|keep| **keep).count());
    }
}

impl<T: Columns> Batch for Vec<T> {
    const TABLE: Table = T::TABLE;
    const NEEDS: Needs = T::NEEDS;
    const ROWS: usize = T::ROWS;

    fn columns() -> &'static [&'static str] {
        &[]
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

    fn push_from(&mut self, from: &Self, row: usize) {
        self.push(from[row].clone());
    }

    fn read(
        &mut self,
        records: RecordBatch,
        _: &[(&'static str, Constant)],
        registry: &mut Registry,
    ) -> Option<u64> {
        self.clear();
        T::from_records(&records, registry, self)
    }

    fn take(&mut self, rows: &mut TailRows) {
        std::mem::swap(self, T::of_tail(rows));
    }

    fn filter(&mut self, props: &ScanProps) {
        self.retain(|row| props.wants_row(row.time_ns(), row.process(), row.subject()));
    }
}

fn retain<T>(column: &mut Column<T>, keep: &[bool]) {
    if let Column::Each(values) = column {
        let mut keep = keep.iter();
        values.retain(|_| *keep.next().expect("as many as rows"));
    }
}
