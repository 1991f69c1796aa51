//! Rows of all tables in the order of their times.

use std::collections::VecDeque;

use floodmark_event::{LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow};

use super::Seen;

/// Turns a row of one table into a row of any.
pub(super) trait IntoSeen {
    fn into_seen(self) -> Seen;
}

impl IntoSeen for ScopeRow {
    fn into_seen(self) -> Seen {
        Seen::Scope(self)
    }
}

impl IntoSeen for SampleRow {
    fn into_seen(self) -> Seen {
        Seen::Sample(self)
    }
}

impl IntoSeen for OutputRow {
    fn into_seen(self) -> Seen {
        Seen::Output(self)
    }
}

impl IntoSeen for StackSampleRow {
    fn into_seen(self) -> Seen {
        Seen::Stack(self)
    }
}

impl IntoSeen for LogRow {
    fn into_seen(self) -> Seen {
        Seen::Log(self)
    }
}

/// Rows of one table that wait for those of others. A table keeps its order even where its times do not:
/// a row sorts at the latest time its table has had.
#[derive(Debug)]
pub(super) struct Queue {
    rows: VecDeque<(i64, Seen)>,
    latest_ns: i64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { rows: VecDeque::new(), latest_ns: i64::MIN }
    }
}

impl Queue {
    pub(super) fn push(&mut self, row: Seen) {
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
pub(super) fn drain_ready(queues: &mut [Queue], is_filled: &[bool], out: &mut Vec<Seen>, most: usize) {
    while out.len() < most {
        if (0..queues.len()).any(|at| queues[at].is_empty() && !is_filled[at]) {
            return;
        }
        let first = (0..queues.len()).filter_map(|at| Some((queues[at].first_ns()?, at))).min();
        let Some((_, at)) = first else { return };
        out.extend(queues[at].rows.pop_front().map(|(_, row)| row));
    }
}
