//! What a snapshot says beside its events: scopes, marks, and the sums that `PyTorch` itself would tell.

use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::units::format_bytes;
use floodmark_event::{
    BEFORE_CAPTURE, LIVE_SNAPSHOT, Metric, NO_DEVICE, SampleRow, ScopeAction, ScopeRow, StringId,
    SubjectKind, SubjectRow, Tables,
};
use floodmark_store::{Losses, Result};

use super::blocks::{whole_at_end, whole_blocks};
use super::shape::{Did, Entry};
use super::snapshot::{Place, Snapshot};
use super::start::{Start, start_of};
use floodmark_event::Row;
use floodmark_store::RowSource;

/// Hands out the rows of a snapshot. They are made when they are first asked for.
pub(super) struct SnapshotRows {
    snapshot: Arc<Snapshot>,
    tables: Tables,
    /// The latest first; none until they are made.
    rows: Option<Vec<Row>>,
    losses: Losses,
}

impl SnapshotRows {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        let mut tables = Tables::default();
        tables.processes.clone_from(&snapshot.tables.processes);
        for (at, place) in snapshot.places.iter().enumerate() {
            let subject = subject_of(&snapshot, at);
            let is_host = place.device == NO_DEVICE;
            let row = SubjectRow::new(
                subject,
                if is_host { SubjectKind::Host } else { SubjectKind::Device },
                if is_host { 0 } else { place.device as u64 },
                snapshot.tables.string(place.blocks),
            );
            tables.subjects.insert(subject, row);
        }
        Self { snapshot, tables, rows: None, losses: Losses::default() }
    }
}

fn subject_of(snapshot: &Snapshot, place: usize) -> u64 {
    u64::from(snapshot.process.0) << 32 | (place as u64 + 1)
}

/// Makes rows.
struct Making<'a> {
    snapshot: &'a Snapshot,
    tables: &'a mut Tables,
    rows: Vec<Row>,
}

impl Making<'_> {
    fn scope(&mut self, time_ns: i64, action: ScopeAction, scope: u64, parent: u64, name: &str) {
        let name = if name.is_empty() { StringId(0) } else { self.tables.intern(name) };
        let process = self.snapshot.process;
        self.rows.push(Row::Scope(ScopeRow { time_ns, process, thread: 0, action, scope, parent, name }));
    }

    fn place(&mut self, at: usize, losses: &mut Losses) {
        let place = &self.snapshot.places[at];
        let start = start_of(place, &self.snapshot.entries);
        for change in self.snapshot.scopes.on(place.device) {
            self.scope(change.time_ns, change.action, change.scope, change.parent, &change.name);
        }
        for entry in place.trace.iter().map(|at| &self.snapshot.entries[*at as usize]) {
            if let Some(text) = mark(entry, place, self.snapshot) {
                self.scope(entry.time_ns.unwrap_or(0), ScopeAction::Mark, 0, 0, &text);
            }
        }
        self.sums(at, place, &start, losses);
    }

    /// What is reserved, and what is in use in whole blocks.
    fn sums(&mut self, at: usize, place: &Place, start: &Start, losses: &mut Losses) {
        let subject = subject_of(self.snapshot, at);
        let mut sample = |time_ns, metric, value| {
            self.rows.push(Row::Sample(SampleRow { time_ns, subject, metric, value }));
        };
        let sum = |sum: u64, bytes: u64| sum.saturating_add(bytes);
        let mut reserved = start.segments.iter().map(|before| before.bytes).fold(0, sum);
        if reserved > 0 {
            sample(place.first_ns, Metric::Reserved, reserved);
        }
        let mut last_ns = place.first_ns;
        for entry in place.trace.iter().map(|at| &self.snapshot.entries[*at as usize]) {
            last_ns = last_ns.max(entry.time_ns.unwrap_or(0));
            reserved = match entry.did {
                Did::SegmentAlloc => reserved.saturating_add(entry.bytes),
                Did::SegmentFree => reserved.saturating_sub(entry.bytes),
                _ => continue,
            };
            sample(entry.time_ns.unwrap_or(0), Metric::Reserved, reserved);
        }
        match whole_blocks(place, start, self.snapshot) {
            Some(levels) => {
                for level in levels {
                    sample(level.time_ns, Metric::Live, level.bytes);
                }
            }
            None if place.state.is_empty() => {}
            None => {
                if !place.trace.is_empty() {
                    losses.remark("how large whole blocks were is known only at the end");
                }
                sample(last_ns, Metric::Live, whole_at_end(place));
            }
        }
    }
}

fn mark(entry: &Entry, place: &Place, snapshot: &Snapshot) -> Option<String> {
    let name = snapshot.tables.string(entry.name);
    match entry.did {
        Did::Snapshot => Some("snapshot".to_owned()),
        Did::Annotate => Some(if name.is_empty() { "annotate".to_owned() } else { name.to_owned() }),
        Did::OutOfMemory => Some(format!(
            "out of memory: device {} was asked for {} and had {} free",
            place.device,
            format_bytes(entry.bytes),
            format_bytes(entry.address),
        )),
        _ => None,
    }
}

fn rows_of(snapshot: &Snapshot, tables: &mut Tables, losses: &mut Losses) -> Vec<Row> {
    let mut made = Making { snapshot, tables, rows: Vec::new() };
    if let Some(first_ns) = snapshot.places.iter().map(|place| place.first_ns).min() {
        let last_ns = snapshot.places.iter().map(|place| place.first_ns).max().unwrap_or(first_ns);
        let before = snapshot.scopes.before;
        made.scope(first_ns, ScopeAction::Enter, before, 0, BEFORE_CAPTURE);
        made.scope(last_ns, ScopeAction::Exit, before, 0, "");
    }
    for at in 0..snapshot.places.len() {
        made.place(at, losses);
    }
    if let Some(end_ns) = made.rows.iter().map(Row::time_ns).max() {
        made.scope(end_ns, ScopeAction::Enter, snapshot.scopes.live, 0, LIVE_SNAPSHOT);
        made.scope(end_ns, ScopeAction::Exit, snapshot.scopes.live, 0, "");
    }
    made.rows.sort_by_key(Row::time_ns);
    made.rows.reverse();
    made.rows
}

impl RowSource for SnapshotRows {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        let made =
            self.rows.get_or_insert_with(|| rows_of(&self.snapshot, &mut self.tables, &mut self.losses));
        let rest = made.len().saturating_sub(BATCH_ROWS);
        rows.extend(made.drain(rest..).rev());
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}
