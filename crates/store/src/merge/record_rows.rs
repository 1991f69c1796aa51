//! Turns records of a lane into rows of the tables.

use floodmark_event::{
    CallRow, Event, OutputRow, ProcessId, SampleRow, ScopeAction, ScopeRow, StackId, StackSampleRow, StringId,
};
use floodmark_tail::record::Record;

use super::Item;
use crate::registry::{Registry, key};
use crate::table::Table;

/// Times of calls are whole multiples of this.
const CALL_TIME_NS: i64 = 1000;

/// Which rows are wanted, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowChoice {
    /// No other tables.
    pub(super) only: Option<Table>,
    /// Stacks keep the numbers of their process.
    pub(super) has_own_stacks: bool,
}

impl RowChoice {
    /// Whether rows of a table are wanted.
    pub(super) fn wants(self, table: Table) -> bool {
        self.only.is_none_or(|only| only == table)
    }
}

/// Returns the table of the row that a record becomes; `None` if it becomes none.
pub(super) fn table_of(record: &Record<'_>) -> Option<Table> {
    match record {
        Record::Event(_) => Some(Table::Event),
        Record::EnterScope { .. }
        | Record::ExitScope { .. }
        | Record::Mark { .. }
        | Record::BeginRange { .. }
        | Record::EndRange { .. } => Some(Table::Scope),
        Record::Call { .. } => Some(Table::Call),
        Record::Sample { .. } => Some(Table::Sample),
        Record::Output { .. } => Some(Table::Output),
        Record::StackSample { .. } => Some(Table::StackSample),
        // Definitions were read before everything else.
        _ => None,
    }
}

/// Turns a record into the row it becomes; `None` if it becomes none, or one that is not wanted.
#[inline]
pub(super) fn row(
    record: &Record<'_>,
    process: ProcessId,
    utc_offset_ns: i64,
    registry: &Registry,
    choice: RowChoice,
) -> Option<Item> {
    let table = table_of(record)?;
    if !choice.wants(table) {
        return None;
    }
    let stack = |id| if choice.has_own_stacks { id } else { stack(id, process, registry) };
    Some(match *record {
        Record::Event(event) => Item::Event(Event {
            time_ns: utc(event.time_ns as u64, utc_offset_ns),
            process,
            resource: string(event.resource, process, registry),
            scope: key_or_none(process, event.scope as u32),
            stack: stack(event.stack),
            ..event
        }),
        Record::Call { time_ns, thread, call } => {
            let time_ns = utc(time_ns, utc_offset_ns);
            let row = CallRow {
                time_ns: time_ns.div_euclid(CALL_TIME_NS).saturating_mul(CALL_TIME_NS),
                process,
                thread,
                action: call.action,
                code: registry.frame(key_or_none(process, call.code)),
                line: call.line,
                rss_bytes: call.rss_bytes,
            };
            Item::Call(time_ns, row)
        }
        Record::Sample { time_ns, subject, metric, value } => {
            let time_ns = utc(time_ns, utc_offset_ns);
            Item::Sample(SampleRow { time_ns, subject: key_or_none(process, subject.0), metric, value })
        }
        Record::Output { time_ns, stream, bytes } => {
            let (time_ns, bytes) = (utc(time_ns, utc_offset_ns), bytes.to_vec());
            Item::Output(OutputRow { time_ns, process, stream, bytes })
        }
        Record::StackSample { time_ns, subject, seen } => Item::StackSample(StackSampleRow {
            time_ns: utc(time_ns, utc_offset_ns),
            subject: key_or_none(process, subject.0),
            thread: seen.thread,
            stack: stack(seen.stack),
            reason: seen.reason,
            pause_ns: seen.pause_ns,
        }),
        _ => Item::Scope(scope_row(record, process, utc_offset_ns, registry)?),
    })
}

fn utc(time_ns: u64, utc_offset_ns: i64) -> i64 {
    (time_ns as i64).wrapping_add(utc_offset_ns)
}

/// Puts a process and one of its own numbers together; 0 stays 0.
pub(super) fn key_or_none(process: ProcessId, number: u32) -> u64 {
    if number == 0 { 0 } else { key(process, number) }
}

pub(super) fn string(id: StringId, process: ProcessId, registry: &Registry) -> StringId {
    match id.0 {
        0 => id,
        local => registry.string(key(process, local)),
    }
}

pub(super) fn stack(id: StackId, process: ProcessId, registry: &Registry) -> StackId {
    match id.0 {
        0 => id,
        local => registry.stack(key(process, local)),
    }
}

fn scope_row(
    record: &Record<'_>,
    process: ProcessId,
    utc_offset_ns: i64,
    registry: &Registry,
) -> Option<ScopeRow> {
    let row = |time_ns, thread, action, scope, parent, name| ScopeRow {
        time_ns: utc(time_ns, utc_offset_ns),
        process,
        thread,
        action,
        scope: key_or_none(process, scope),
        parent: key_or_none(process, parent),
        name: string(name, process, registry),
    };
    match *record {
        Record::EnterScope { time_ns, scope, parent, name, thread } => {
            Some(row(time_ns, thread, ScopeAction::Enter, scope, parent, name))
        }
        Record::ExitScope { time_ns, scope, thread } => {
            Some(row(time_ns, thread, ScopeAction::Exit, scope, 0, StringId(0)))
        }
        Record::BeginRange { time_ns, scope, name, thread } => {
            Some(row(time_ns, thread, ScopeAction::Begin, scope, 0, name))
        }
        Record::EndRange { time_ns, scope, thread } => {
            Some(row(time_ns, thread, ScopeAction::End, scope, 0, StringId(0)))
        }
        Record::Mark { time_ns, name, thread } => Some(row(time_ns, thread, ScopeAction::Mark, 0, 0, name)),
        _ => None,
    }
}
