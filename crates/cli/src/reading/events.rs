//! Shows single events, of a source or of a growing trace.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use floodmark_event::{EventBatch, Filter, Tables};
use floodmark_inspect::input::follow_events as follow;
use floodmark_inspect::pass::each_batch;
use floodmark_inspect::select::Select;
use floodmark_inspect::{Input, OpenProps};
use floodmark_store::{Follow, ScanProps, Step};
use floodmark_view::{EventCsv, EventJson, EventTable};

use crate::printer::Printer;
use crate::progress::Bars;

/// Form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventForm {
    /// For people.
    Table,
    /// CSV.
    Csv,
    /// Lines of JSON.
    Json,
}

/// What to show and how.
#[derive(Clone, Debug)]
pub(crate) struct EventProps {
    pub(crate) form: EventForm,
    pub(crate) filter: Filter,
    pub(crate) limit: Option<usize>,
}

/// How events are written.
enum Writer {
    Table(EventTable),
    Csv(EventCsv),
    Json(EventJson),
}

impl Writer {
    /// Begins; a table without rows has its columns all the same if it is CSV.
    fn begin(form: EventForm, printer: &Printer) -> Result<Self> {
        let mut writer = match form {
            EventForm::Table => Self::Table(EventTable::default()),
            EventForm::Csv => Self::Csv(EventCsv::default()),
            EventForm::Json => Self::Json(EventJson),
        };
        if form == EventForm::Csv {
            writer.write(&EventBatch::new(), &Tables::default(), printer)?;
        }
        Ok(writer)
    }

    fn write(&mut self, batch: &EventBatch, tables: &Tables, printer: &Printer) -> Result<()> {
        match self {
            Self::Table(table) => printer.text(&table.text(batch, tables, &printer.layout(None))),
            Self::Csv(csv) => printer.data(&csv.text(batch, tables)),
            Self::Json(json) => printer.data(&json.text(batch, tables)),
        }
    }
}

/// Shows the events of an input.
pub(crate) fn read_events(input: &Input, props: &EventProps, printer: &Printer) -> Result<()> {
    let mut source = input.events(&ScanProps::default())?;
    let mut writer = Writer::begin(props.form, printer)?;
    let mut select = Select::new(input.anchored(&props.filter)?, props.limit);
    each_batch(source.as_mut(), input.name(), &Bars::new(printer), |batch, tables| {
        select.pass_on(batch, |batch| writer.write(batch, tables, printer))
    })?;
    printer.lost(&source.losses().gaps);
    Ok(())
}

/// Shows the events of a trace while it grows.
pub(crate) fn follow_events(path: &Path, props: &EventProps, printer: &Printer) -> Result<()> {
    let mut writer = Writer::begin(props.form, printer)?;
    let filter = Input::open(path, &OpenProps::default())?.anchored(&props.filter)?;
    let mut select = Select::new(filter, props.limit);
    let mut follow = follow(path)?;
    let mut batch = EventBatch::new();
    loop {
        match follow.next(&mut batch)? {
            Step::Waiting => std::thread::sleep(Follow::PAUSE),
            Step::Ended => break,
            Step::Events => {
                let tables = follow.tables();
                let write = |batch: &EventBatch| writer.write(batch, tables, printer);
                if matches!(select.pass_on(&batch, write)?, ControlFlow::Break(())) {
                    break;
                }
            }
        }
    }
    printer.lost(&follow.losses().gaps);
    Ok(())
}
