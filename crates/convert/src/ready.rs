//! Events and rows of a file that was parsed whole, yielded in batches any number of times.

use std::path::Path;
use std::sync::Arc;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Process;
use floodmark_event::{
    BEFORE_CAPTURE, Event, EventBatch, ProcessId, ScopeAction, ScopeRow, StringId, SubjectKind, SubjectRow,
    Tables,
};
use floodmark_store::{Losses, Progress, Result, Source};

use crate::OpenProps;
use crate::foreign::Parsed;
use floodmark_event::Row;
use floodmark_store::RowSource;

/// Events and rows of one file.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) events: Vec<Event>,
    pub(crate) tables: Tables,
    pub(crate) rows: Vec<Row>,
    /// What ids in rows point to.
    pub(crate) row_tables: Tables,
    pub(crate) losses: Losses,
}

impl Ready {
    /// Starts with one process, which stands for the writer of the file.
    pub(crate) fn new(path: &Path, props: &OpenProps) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let command = name.to_string_lossy().into_owned();
        let process = Process { id: props.process, command, ..Process::default() };
        let mut tables = Tables::default();
        tables.processes.push(process);
        let row_tables = tables.clone();
        Self { events: Vec::new(), tables, rows: Vec::new(), row_tables, losses: Losses::default() }
    }

    /// Adds a subject of which little is known.
    pub(crate) fn subject(&mut self, subject: u64, kind: SubjectKind, number: u64, name: &str) {
        let row = SubjectRow::new(subject, kind, number, name);
        self.row_tables.subjects.insert(subject, row);
    }

    /// Adds the scope of blocks that were live before recording began, and returns its number.
    pub(crate) fn before_capture(&mut self, process: ProcessId, time_ns: i64) -> u64 {
        let scope = u64::from(process.0) << 32 | 1;
        let name = self.row_tables.intern(BEFORE_CAPTURE);
        for (action, name) in [(ScopeAction::Enter, name), (ScopeAction::Exit, StringId(0))] {
            let row = ScopeRow { time_ns, process, thread: 0, action, scope, parent: 0, name };
            self.rows.push(Row::Scope(row));
        }
        scope
    }

    /// Sorts by time; what was read can then be yielded any number of times.
    pub(crate) fn parsed(mut self) -> Box<dyn Parsed> {
        self.events.sort_by_key(|event| event.time_ns);
        self.rows.sort_by_key(Row::time_ns);
        Box::new(Arc::new(self))
    }
}

impl Parsed for Arc<Ready> {
    fn events(&self) -> Result<Box<dyn Source>> {
        Ok(Box::new(ReadyEvents { ready: Self::clone(self), at: 0 }))
    }

    fn rows(&self) -> Result<Box<dyn RowSource>> {
        Ok(Box::new(ReadyRows { ready: Self::clone(self), at: 0 }))
    }
}

struct ReadyEvents {
    ready: Arc<Ready>,
    at: usize,
}

impl Source for ReadyEvents {
    fn tables(&self) -> &Tables {
        &self.ready.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        *batch = EventBatch::new();
        let to = (self.at + BATCH_ROWS).min(self.ready.events.len());
        for event in &self.ready.events[self.at..to] {
            batch.push(event);
        }
        self.at = to;
        Ok(!batch.is_empty())
    }

    fn losses(&self) -> Losses {
        self.ready.losses.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.at as u64, total: Some(self.ready.events.len() as u64) }
    }
}

struct ReadyRows {
    ready: Arc<Ready>,
    at: usize,
}

impl RowSource for ReadyRows {
    fn tables(&self) -> &Tables {
        let Ready { row_tables, .. } = &*self.ready;
        row_tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        let to = (self.at + BATCH_ROWS).min(self.ready.rows.len());
        rows.extend_from_slice(&self.ready.rows[self.at..to]);
        self.at = to;
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}
