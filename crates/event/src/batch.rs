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

    /// Empties the column and makes it an `Each` one, keeping its memory; returns the vector.
    pub fn each_cleared(&mut self) -> &mut Vec<T> {
        if let Self::Same(_) = self {
            *self = Self::Each(Vec::with_capacity(BATCH_ROWS));
        }
        let Self::Each(values) = self else { unreachable!("made an Each column above") };
        values.clear();
        values
    }

    /// Whether all rows agree, as far as the form of the column says.
    pub fn same(&self) -> Option<T> {
        match self {
            Self::Same(value) => Some(*value),
            Self::Each(_) => None,
        }
    }

    fn clear(&mut self, value: T) {
        match self {
            Self::Each(values) => values.clear(),
            Self::Same(same) => *same = value,
        }
    }
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
        check(&self.time_ns, len);
        check(&self.process, len);
        check(&self.thread, len);
        check(&self.action, len);
        check(&self.address, len);
        check(&self.bytes, len);
        check(&self.device, len);
        check(&self.stream, len);
        check(&self.kind, len);
        check(&self.resource, len);
        check(&self.scope, len);
        check(&self.stack, len);
        check(&self.name, len);
        self.len = len;
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
        self.time_ns.clear(0);
        self.process.clear(ProcessId(0));
        self.thread.clear(0);
        self.action.clear(Action::Alloc);
        self.address.clear(0);
        self.bytes.clear(0);
        self.device.clear(NO_DEVICE);
        self.stream.clear(0);
        self.kind.clear(Kind::Unknown);
        self.resource.clear(StringId(0));
        self.scope.clear(0);
        self.stack.clear(StackId(0));
        self.name.clear(StringId(0));
    }

    /// Appends one event.
    #[inline]
    pub fn push(&mut self, event: &Event) {
        let rows = self.len;
        self.time_ns.push(event.time_ns, rows);
        self.process.push(event.process, rows);
        self.thread.push(event.thread, rows);
        self.action.push(event.action, rows);
        self.address.push(event.address, rows);
        self.bytes.push(event.bytes, rows);
        self.device.push(event.device, rows);
        self.stream.push(event.stream, rows);
        self.kind.push(event.kind, rows);
        self.resource.push(event.resource, rows);
        self.scope.push(event.scope, rows);
        self.stack.push(event.stack, rows);
        self.name.push(event.name, rows);
        self.len = rows + 1;
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
}
