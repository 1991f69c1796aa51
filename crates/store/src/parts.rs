//! Writing the parts of all tables of a trace, splitting them where they get long.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch, TimestampNanosecondArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use floodmark_event::{EventBatch, StackId, Tables};

use crate::columns::{event_schema, time_type, to_record_batch, word_type};
use crate::error::Result;
use crate::manifest::{Manifest, Part};
use crate::merge::{ScopeAction, ScopeRow};
use crate::part::{PART_ROWS, PartWriter, next_number};
use crate::registry::{Definitions, process_records};

/// Writes parts that are not listed in a manifest yet.
pub(crate) struct PartsWriter {
    trace: PathBuf,
    listed: Vec<Part>,
    order: u32,
    done: Vec<Part>,
    events: Option<PartWriter>,
    scopes: Option<PartWriter>,
}

impl PartsWriter {
    /// Writes parts into the trace at `trace` beside those of `manifest`.
    pub(crate) fn new(trace: &Path, manifest: &Manifest) -> Self {
        Self {
            trace: trace.to_owned(),
            listed: manifest.parts.clone(),
            order: manifest.next_order(),
            done: Vec::new(),
            events: None,
            scopes: None,
        }
    }

    /// Starts a new order: what follows is merged by time with what came before.
    pub(crate) fn next_order(&mut self) -> Result<()> {
        if let Some(writer) = self.events.take() {
            self.done.push(writer.finish(self.order)?);
        }
        self.order += 1;
        Ok(())
    }

    fn number(&self, table: &str) -> u32 {
        next_number(self.listed.iter().chain(&self.done), table)
    }

    /// Appends events.
    pub(crate) fn events(
        &mut self,
        batch: &EventBatch,
        tables: &Tables,
        stack_key: &dyn Fn(StackId) -> u64,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.events.as_ref().is_some_and(|writer| writer.rows >= PART_ROWS)
            && let Some(writer) = self.events.take()
        {
            self.done.push(writer.finish(self.order)?);
        }
        if self.events.is_none() {
            let number = self.number("event");
            self.events = Some(PartWriter::create(&self.trace, "event", number, event_schema())?);
        }
        let times = (0..batch.len()).map(|row| batch.time_ns.at(row));
        let span = times.fold((i64::MAX, i64::MIN), |(from, to), time| (from.min(time), to.max(time)));
        let writer = self.events.as_mut().expect("made above");
        writer.write(&to_record_batch(batch, tables, stack_key), Some(span))
    }

    /// Appends scope rows.
    pub(crate) fn scopes(&mut self, rows: &[ScopeRow], tables: &Tables) -> Result<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        if self.scopes.is_none() {
            let number = self.number("scope");
            self.scopes = Some(PartWriter::create(&self.trace, "scope", number, scope_schema())?);
        }
        let writer = self.scopes.as_mut().expect("made above");
        writer.write(&scope_records(rows, tables), Some((first.time_ns, last.time_ns)))
    }

    /// Writes definitions, each table as a part of its own.
    pub(crate) fn definitions(&mut self, definitions: &Definitions, tables: &Tables) -> Result<()> {
        for (table, records) in definitions.to_records(tables) {
            self.whole(table, &records)?;
        }
        Ok(())
    }

    fn whole(&mut self, table: &str, records: &RecordBatch) -> Result<()> {
        let mut writer = PartWriter::create(&self.trace, table, self.number(table), records.schema())?;
        writer.write(records, None)?;
        self.done.push(writer.finish(self.order)?);
        Ok(())
    }

    /// Completes all parts; with `processes` also a new process table, which replaces earlier ones.
    pub(crate) fn finish(mut self, processes: bool, manifest: &mut Manifest) -> Result<Vec<Part>> {
        let open = [self.events.take(), self.scopes.take()];
        for writer in open.into_iter().flatten() {
            self.done.push(writer.finish(self.order)?);
        }
        if processes {
            self.whole("process", &process_records(manifest))?;
            // The file of the earlier table is deleted with the next sealing that finds it unlisted.
            manifest.parts.retain(|part| part.table != "process");
        }
        Ok(self.done)
    }
}

fn scope_schema() -> SchemaRef {
    let fields = vec![
        Field::new("time", time_type(), false),
        Field::new("process", DataType::UInt32, false),
        Field::new("thread", DataType::UInt64, false),
        Field::new("action", word_type(), false),
        Field::new("scope", DataType::UInt64, true),
        Field::new("parent", DataType::UInt64, true),
        Field::new("name", word_type(), true),
    ];
    Arc::new(Schema::new(fields))
}

fn scope_records(rows: &[ScopeRow], tables: &Tables) -> RecordBatch {
    let words = |words: &mut dyn Iterator<Item = Option<&str>>| {
        let mut builder = StringDictionaryBuilder::<Int32Type>::new();
        for word in words {
            builder.append_option(word);
        }
        Arc::new(builder.finish()) as ArrayRef
    };
    let action = |row: &ScopeRow| match row.action {
        ScopeAction::Enter => "enter",
        ScopeAction::Exit => "exit",
        ScopeAction::Mark => "mark",
    };
    let some = |value: u64| (value != 0).then_some(value);
    let times = TimestampNanosecondArray::from_iter_values(rows.iter().map(|row| row.time_ns));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times.with_timezone("UTC")),
        Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.process.0))),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.thread))),
        words(&mut rows.iter().map(|row| Some(action(row)))),
        Arc::new(rows.iter().map(|row| some(row.scope)).collect::<UInt64Array>()),
        Arc::new(rows.iter().map(|row| some(row.parent)).collect::<UInt64Array>()),
        words(&mut rows.iter().map(|row| Some(tables.string(row.name)).filter(|name| !name.is_empty()))),
    ];
    RecordBatch::try_new(scope_schema(), columns).expect("columns are built to the schema")
}
