//! Writing the parts of all tables of a trace, splitting them where they get long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use floodmark_event::{EventBatch, Tables};

use crate::columns::to_record_batch;
use crate::error::Result;
use crate::manifest::{Manifest, Part};
use crate::merge::TailRows;
use crate::part::{PART_ROWS, PartWriter, next_number};
use crate::registry::{Definitions, Registry, process_records};
use crate::rows::{Columns, StackKey, to_records};
use crate::subjects;
use crate::table::Table;

/// Writes parts that are not listed in a manifest yet.
pub(crate) struct PartsWriter {
    trace: PathBuf,
    listed: Vec<Part>,
    order: u32,
    done: Vec<Part>,
    open: BTreeMap<Table, PartWriter>,
}

impl PartsWriter {
    /// Writes parts into the trace at `trace` beside those of `manifest`.
    pub(crate) fn new(trace: &Path, manifest: &Manifest) -> Self {
        Self {
            trace: trace.to_owned(),
            listed: manifest.parts.clone(),
            order: manifest.next_order(),
            done: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    /// Starts a new order: what follows is merged by time with what came before.
    pub(crate) fn next_order(&mut self) -> Result<()> {
        self.finish_open()?;
        self.order += 1;
        Ok(())
    }

    fn finish_open(&mut self) -> Result<()> {
        for (_, writer) in std::mem::take(&mut self.open) {
            self.done.push(writer.finish(self.order)?);
        }
        Ok(())
    }

    fn create(&self, table: Table, schema: SchemaRef) -> Result<PartWriter> {
        let number = next_number(self.listed.iter().chain(&self.done), table.name());
        PartWriter::create(&self.trace, table.name(), number, schema)
    }

    /// Appends rows whose times are `times`, of which there is at least one.
    fn append(
        &mut self,
        table: Table,
        records: &RecordBatch,
        times: impl Iterator<Item = i64>,
    ) -> Result<()> {
        if self.open.get(&table).is_some_and(|writer| writer.rows >= PART_ROWS)
            && let Some(writer) = self.open.remove(&table)
        {
            self.done.push(writer.finish(self.order)?);
        }
        if !self.open.contains_key(&table) {
            self.open.insert(table, self.create(table, records.schema())?);
        }
        let span = times.fold((i64::MAX, i64::MIN), |(from, to), time| (from.min(time), to.max(time)));
        self.open.get_mut(&table).expect("made above").write(records, Some(span))
    }

    /// Appends events.
    pub(crate) fn events(
        &mut self,
        batch: &EventBatch,
        tables: &Tables,
        stack_key: StackKey<'_>,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let times = (0..batch.len()).map(|row| batch.time_ns.at(row));
        self.append(Table::Event, &to_record_batch(batch, tables, stack_key), times)
    }

    /// Appends rows of another table.
    pub(crate) fn rows<T: Columns>(
        &mut self,
        rows: &[T],
        tables: &Tables,
        stack_key: StackKey<'_>,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.append(T::TABLE, &to_records(rows, tables, stack_key), rows.iter().map(T::time_ns))
    }

    /// Appends what came from the tail.
    pub(crate) fn tail(&mut self, rows: &TailRows, registry: &Registry) -> Result<()> {
        let (tables, stack_key) = (&registry.tables, &|stack| registry.stack_key(stack));
        self.events(&rows.events, tables, stack_key)?;
        self.rows(&rows.scopes, tables, stack_key)?;
        self.rows(&rows.samples, tables, stack_key)?;
        self.rows(&rows.output, tables, stack_key)?;
        self.rows(&rows.stack_samples, tables, stack_key)
    }

    /// Writes definitions, each table as a part of its own.
    pub(crate) fn definitions(&mut self, definitions: &Definitions, tables: &Tables) -> Result<()> {
        for (table, records) in definitions.to_records(tables) {
            self.whole(table, &records)?;
        }
        Ok(())
    }

    fn whole(&mut self, table: Table, records: &RecordBatch) -> Result<()> {
        let mut writer = self.create(table, records.schema())?;
        writer.write(records, None)?;
        self.done.push(writer.finish(self.order)?);
        Ok(())
    }

    /// Completes all parts. The tables of `anew`, of processes or subjects, are written as a whole and
    /// replace earlier ones, whose files are deleted once they are not listed any more.
    pub(crate) fn finish(
        mut self,
        anew: &[Table],
        manifest: &mut Manifest,
        tables: &Tables,
    ) -> Result<Vec<Part>> {
        self.finish_open()?;
        for table in anew {
            let records = match table {
                Table::Process => process_records(manifest),
                _ => subjects::to_records(tables),
            };
            self.whole(*table, &records)?;
            manifest.parts.retain(|part| part.table != table.name());
        }
        Ok(self.done)
    }
}
