//! Events and rows that were read at once and are handed out in batches.

use std::path::Path;

use floodmark_event::batch::BATCH_ROWS;
use floodmark_event::tables::Process;
use floodmark_event::{Event, EventBatch, SubjectKind, SubjectRow, Tables};
use floodmark_store::{Losses, Progress, Result, Source};

use crate::OpenProps;
use crate::open::Halves;
use floodmark_event::Row;
use floodmark_store::RowSource;

/// What was read of a file.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) events: Vec<Event>,
    pub(crate) tables: Tables,
    pub(crate) rows: Vec<Row>,
    pub(crate) row_tables: Tables,
    pub(crate) losses: Losses,
}

impl Ready {
    /// Begins with the process that stands for whoever wrote the file.
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

    /// Sorts by time and hands out.
    pub(crate) fn halves(mut self) -> Halves {
        self.events.sort_by_key(|event| event.time_ns);
        self.rows.sort_by_key(Row::time_ns);
        let Self { events, tables, mut rows, row_tables, losses } = self;
        rows.reverse();
        (
            Box::new(ReadyEvents { events, at: 0, tables, losses }),
            Box::new(ReadyRows { rows, tables: row_tables }),
        )
    }
}

struct ReadyEvents {
    events: Vec<Event>,
    at: usize,
    tables: Tables,
    losses: Losses,
}

impl Source for ReadyEvents {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        *batch = EventBatch::new();
        let to = (self.at + BATCH_ROWS).min(self.events.len());
        for event in &self.events[self.at..to] {
            batch.push(event);
        }
        self.at = to;
        Ok(!batch.is_empty())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.at as u64, total: Some(self.events.len() as u64) }
    }
}

struct ReadyRows {
    /// The latest first.
    rows: Vec<Row>,
    tables: Tables,
}

impl RowSource for ReadyRows {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        rows.clear();
        let rest = self.rows.len().saturating_sub(BATCH_ROWS);
        rows.extend(self.rows.drain(rest..).rev());
        Ok(!rows.is_empty())
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}
