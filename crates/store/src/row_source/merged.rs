//! Rows of all tables in the order of their times.

use std::collections::VecDeque;

use floodmark_event::{LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow};

use floodmark_event::Row;

/// Turns a row of one table into a row of any.
pub(super) trait IntoRow {
    fn into_row(self) -> Row;
}

impl IntoRow for ScopeRow {
    fn into_row(self) -> Row {
        Row::Scope(self)
    }
}

impl IntoRow for SampleRow {
    fn into_row(self) -> Row {
        Row::Sample(self)
    }
}

impl IntoRow for OutputRow {
    fn into_row(self) -> Row {
        Row::Output(self)
    }
}

impl IntoRow for StackSampleRow {
    fn into_row(self) -> Row {
        Row::Stack(self)
    }
}

impl IntoRow for LogRow {
    fn into_row(self) -> Row {
        Row::Log(self)
    }
}

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

    fn first_ns(&self) -> Option<i64> {
        self.rows.front().map(|(time_ns, _)| *time_ns)
    }
}

/// Moves rows to `out` in the order of their times, at equal times in that of the queues, as long as no
/// queue is empty that may still be filled.
pub(super) fn drain_ready(queues: &mut [Queue], is_filled: &[bool], out: &mut Vec<Row>, most: usize) {
    while out.len() < most {
        if (0..queues.len()).any(|at| queues[at].is_empty() && !is_filled[at]) {
            return;
        }
        let first = (0..queues.len()).filter_map(|at| Some((queues[at].first_ns()?, at))).min();
        let Some((_, at)) = first else { return };
        out.extend(queues[at].rows.pop_front().map(|(_, row)| row));
    }
}
