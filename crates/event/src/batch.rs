//! Events by columns: what sources produce and analyses consume.
//!
//! Invariants: every [`Column::Each`] has exactly [`EventBatch::len`] values; a column that is the
//! same for all rows, or was not asked for, is a [`Column::Same`] and costs nothing to fill or read.
//! Rows are in the order in which they happened.

use crate::event::{Action, Event, Kind, NO_DEVICE, ProcessId, StackId, StringId};

/// How many rows sources put into a batch: few enough that the columns stay in the second-level
/// cache between producer and fold, enough that per-batch work disappears.
pub const BATCH_ROWS: usize = 8192;

/// The values of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column<T> {
    /// Every row has this value.
    Same(T),
    /// Each row has its own.
    Each(Vec<T>),
}

impl<T: Copy + PartialEq> Column<T> {
    /// Returns the value of `row`.
    #[inline]
    pub fn at(&self, row: usize) -> T {
        match self {
            Self::Same(value) => *value,
            Self::Each(values) => values[row],
        }
    }

    /// Appends `value` to a column that has `rows` rows so far.
    ///
    /// A `Same` column stays one while the values agree.
    #[inline]
    pub fn push(&mut self, value: T, rows: usize) {
        match self {
            Self::Each(values) => values.push(value),
            Self::Same(same) if *same == value => {}
            Self::Same(same) if rows == 0 => *same = value,
            Self::Same(same) => {
                let mut values = Vec::with_capacity(BATCH_ROWS.max(rows + 1));
                values.resize(rows, *same);
                values.push(value);
                *self = Self::Each(values);
            }
        }
    }

    /// Appends `count` times the same value to a column that has `rows` rows so far.
    pub fn append_same(&mut self, value: T, count: usize, rows: usize) {
        match self {
            Self::Same(same) if *same == value || count == 0 => {}
            Self::Same(same) if rows == 0 => *same = value,
            _ => self.make_each(rows).resize(rows + count, value),
        }
    }

    /// Appends values to a column that has `rows` rows so far.
    ///
    /// A `Same` column stays one while the values agree.
    pub fn append(&mut self, values: &[T], rows: usize) {
        match (self.same(), values.first()) {
            (_, None) => {}
            (Some(same), Some(first))
                if (rows == 0 || same == *first) && values.iter().all(|value| value == first) =>
            {
                *self = Self::Same(*first);
            }
            _ => self.make_each(rows).extend_from_slice(values),
        }
    }

    /// Makes it an `Each` column of `rows` rows; returns the vector.
    fn make_each(&mut self, rows: usize) -> &mut Vec<T> {
        if let Self::Same(value) = *self {
            let mut values = Vec::with_capacity(BATCH_ROWS.max(rows));
            values.resize(rows, value);
            *self = Self::Each(values);
        }
        let Self::Each(values) = self else { unreachable!("made an Each column above") };
        values
    }

    /// Empties the column and makes it an `Each` one, keeping its memory; returns the vector.
    pub fn each_cleared(&mut self) -> &mut Vec<T> {
        if let Self::Same(_) = self {
            *self = Self::Each(Vec::with_capacity(BATCH_ROWS));
        }
        let Self::Each(values) = self else { unreachable!("made an Each column above") };
        values.clear();
        values
    }

    /// Returns the value of all rows if the column is stored as one value.
    pub fn same(&self) -> Option<T> {
        match self {
            Self::Same(value) => Some(*value),
            Self::Each(_) => None,
        }
    }

    fn each(&self) -> Option<&[T]> {
        match self {
            Self::Each(values) => Some(values),
            Self::Same(_) => None,
        }
    }

    fn clear(&mut self, value: T) {
        match self {
            Self::Each(values) => values.clear(),
            Self::Same(same) => *same = value,
        }
    }

    /// Appends rows of `sources` to a column that has `rows` rows so far.
    ///
    /// The column stays a `Same` one where it and all sources agree on one value.
    fn gather(&mut self, rows: usize, sources: &[&Self], picks: &[RowPick]) {
        let agreed = sources.first().and_then(|source| source.same());
        if let Some(value) = agreed
            && sources.iter().all(|source| source.same() == agreed)
            && (rows == 0 || self.same() == agreed)
        {
            *self = Self::Same(value);
            return;
        }
        let values = self.make_each(rows);
        // All sources mostly have the same form, and a loop without branches is several times as fast.
        let each: Vec<&[T]> = sources.iter().filter_map(|source| source.each()).collect();
        let same: Vec<T> = sources.iter().filter_map(|source| source.same()).collect();
        if each.len() == sources.len() {
            values.extend(picks.iter().map(|pick| each[pick.source as usize][pick.row as usize]));
        } else if same.len() == sources.len() {
            values.extend(picks.iter().map(|pick| same[pick.source as usize]));
        } else {
            values.extend(picks.iter().map(|pick| sources[pick.source as usize].at(pick.row as usize)));
        }
    }

    /// Keeps the rows for which `keep` is true.
    fn retain(&mut self, keep: &[bool]) {
        if let Self::Each(values) = self {
            let mut keep = keep.iter();
            values.retain(|_| *keep.next().expect("one flag per row"));
        }
    }
}

/// A row of one of several batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPick {
    /// Index of the batch among the sources.
    pub source: u32,
    /// Index of the row in the batch.
    pub row: u32,
}

/// One column of every source.
fn column_of<'a, T>(sources: &[&'a EventBatch], column: fn(&EventBatch) -> &Column<T>) -> Vec<&'a Column<T>> {
    sources.iter().map(|source| column(source)).collect()
}

/// Calls `$visit!(column, none)` for every column of a batch, with the value that stands for "none".
macro_rules! each_column {
    ($visit:ident) => {
        $visit!(time_ns, 0);
        $visit!(process, ProcessId(0));
        $visit!(thread, 0);
        $visit!(action, Action::Alloc);
        $visit!(address, 0);
        $visit!(bytes, 0);
        $visit!(device, NO_DEVICE);
        $visit!(stream, 0);
        $visit!(kind, Kind::Unknown);
        $visit!(resource, StringId(0));
        $visit!(scope, 0);
        $visit!(stack, StackId(0));
        $visit!(name, StringId(0));
    };
}

/// A run of events, column by column. See [`Event`] for what each column means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    len: usize,
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: Column<i64>,
    /// Process.
    pub process: Column<ProcessId>,
    /// Operating system's thread number.
    pub thread: Column<u64>,
    /// What happened.
    pub action: Column<Action>,
    /// Address of the block.
    pub address: Column<u64>,
    /// Bytes asked for or freed.
    pub bytes: Column<u64>,
    /// Device, or [`NO_DEVICE`].
    pub device: Column<i32>,
    /// Stream.
    pub stream: Column<u64>,
    /// Sort of memory.
    pub kind: Column<Kind>,
    /// Resource that served it.
    pub resource: Column<StringId>,
    /// Innermost scope.
    pub scope: Column<u64>,
    /// Call stack.
    pub stack: Column<StackId>,
    /// Name of the variable or block.
    pub name: Column<StringId>,
}

impl Default for EventBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl EventBatch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self {
            len: 0,
            time_ns: Column::Each(Vec::new()),
            process: Column::Same(ProcessId(0)),
            thread: Column::Same(0),
            action: Column::Each(Vec::new()),
            address: Column::Each(Vec::new()),
            bytes: Column::Each(Vec::new()),
            device: Column::Same(NO_DEVICE),
            stream: Column::Same(0),
            kind: Column::Same(Kind::Unknown),
            resource: Column::Same(StringId(0)),
            scope: Column::Same(0),
            stack: Column::Same(StackId(0)),
            name: Column::Same(StringId(0)),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// States the number of rows after the columns were filled directly.
    ///
    /// # Panics
    /// If an `Each` column has another length: the producer is wrong.
    pub fn set_len(&mut self, len: usize) {
        fn check<T>(column: &Column<T>, len: usize) {
            if let Column::Each(values) = column {
                assert_eq!(values.len(), len, "a column differs in length from its batch");
            }
        }
        macro_rules! check_column {
            ($column:ident, $none:expr) => {
                check(&self.$column, len)
            };
        }
        each_column!(check_column);
        self.len = len;
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        macro_rules! clear_column {
            ($column:ident, $none:expr) => {
                self.$column.clear($none)
            };
        }
        each_column!(clear_column);
        self.len = 0;
    }

    /// Appends one event.
    #[inline]
    pub fn push(&mut self, event: &Event) {
        let rows = self.len;
        macro_rules! push_value {
            ($column:ident, $none:expr) => {
                self.$column.push(event.$column, rows)
            };
        }
        each_column!(push_value);
        self.len = rows + 1;
    }

    /// Appends rows of other batches, column by column, in the order of `picks`.
    ///
    /// # Panics
    /// If there is no such row or source.
    pub fn gather(&mut self, sources: &[&Self], picks: &[RowPick]) {
        let rows = self.len;
        macro_rules! gather_column {
            ($column:ident, $none:expr) => {
                self.$column.gather(rows, &column_of(sources, |batch| &batch.$column), picks)
            };
        }
        each_column!(gather_column);
        self.set_len(rows + picks.len());
    }

    /// Keeps the rows for which `keep`, which has one flag per row, is true.
    ///
    /// # Panics
    /// If there are fewer flags than rows.
    pub fn retain(&mut self, keep: &[bool]) {
        macro_rules! retain_rows {
            ($column:ident, $none:expr) => {
                self.$column.retain(keep)
            };
        }
        each_column!(retain_rows);
        self.len = keep.iter().take(self.len).filter(|keep| **keep).count();
    }

    /// Returns one row.
    #[inline]
    pub fn event(&self, row: usize) -> Event {
        Event {
            time_ns: self.time_ns.at(row),
            process: self.process.at(row),
            thread: self.thread.at(row),
            action: self.action.at(row),
            address: self.address.at(row),
            bytes: self.bytes.at(row),
            device: self.device.at(row),
            stream: self.stream.at(row),
            kind: self.kind.at(row),
            resource: self.resource.at(row),
            scope: self.scope.at(row),
            stack: self.stack.at(row),
            name: self.name.at(row),
        }
    }

    /// Iterates over the rows.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.len).map(|row| self.event(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_events_come_back_in_order_whatever_columns_vary() {
        let mut batch = EventBatch::new();
        let events: Vec<Event> = (0..100u64)
            .map(|i| Event {
                time_ns: i as i64,
                thread: if i < 50 { 7 } else { i },
                device: if i == 99 { 3 } else { 0 },
                bytes: i * 10,
                action: Action::ALL[i as usize % 3],
                ..Event::default()
            })
            .collect();
        for event in &events {
            batch.push(event);
        }
        assert_eq!(batch.events().collect::<Vec<_>>(), events);
        assert_eq!(batch.stream, Column::Same(0));
        batch.clear();
        assert!(batch.is_empty());
        batch.push(&events[0]);
        assert_eq!(batch.event(0), events[0]);
    }

    #[test]
    fn rows_of_several_batches_are_gathered_in_the_order_of_the_picks() {
        let event = |number: u64, process| Event {
            time_ns: number as i64,
            process: ProcessId(process),
            bytes: number * 10,
            device: i32::from(number == 7),
            ..Event::default()
        };
        let batch = |numbers: std::ops::Range<u64>, process| {
            let mut batch = EventBatch::new();
            numbers.for_each(|number| batch.push(&event(number, process)));
            batch
        };
        let (first, second) = (batch(0..6, 1), batch(6..9, 2));
        let picks = |picks: &[(u32, u32)]| -> Vec<RowPick> {
            picks.iter().map(|(source, row)| RowPick { source: *source, row: *row }).collect()
        };
        let mut merged = EventBatch::new();
        merged.gather(&[&first, &second], &picks(&[(0, 0), (0, 1), (1, 0), (0, 2)]));
        merged.gather(&[&second, &first], &picks(&[(0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]));
        let expected = [(0, 1), (1, 1), (6, 2), (2, 1), (7, 2), (8, 2), (3, 1), (4, 1), (5, 1)];
        let expected = expected.map(|(number, process)| event(number, process));
        assert_eq!(merged.events().collect::<Vec<_>>(), expected);
        assert_eq!(merged.thread, Column::Same(0));
        merged.retain(&expected.map(|event| event.process == ProcessId(2)));
        assert_eq!(merged.events().map(|event| event.bytes).collect::<Vec<_>>(), [60, 70, 80]);
        // A value that all agree on stays one value.
        let mut same = EventBatch::new();
        same.gather(&[&first], &picks(&[(0, 1), (0, 2)]));
        assert_eq!((same.len(), same.process), (2, Column::Same(ProcessId(1))));
    }
}
