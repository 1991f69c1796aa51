//! Rows of several tables in the order of their times.

use std::collections::VecDeque;

use floodmark_event::Row;

/// Rows of one table that wait for those of others. A table keeps its order even where its times do not:
/// a row sorts at the latest time its table has had.
#[derive(Debug)]
pub(super) struct Queue {
    rows: VecDeque<(i64, Row)>,
    latest_ns: i64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { rows: VecDeque::new(), latest_ns: i64::MIN }
    }
}

impl Queue {
    pub(super) fn push(&mut self, row: Row) {
        self.latest_ns = self.latest_ns.max(row.time_ns());
        self.rows.push_back((self.latest_ns, row));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Row> {
        self.rows.pop_front().map(|(_, row)| row)
    }

    /// Time at which the first row sorts.
    pub(super) fn first_ns(&self) -> Option<i64> {
        self.rows.front().map(|(time_ns, _)| *time_ns)
    }
}
