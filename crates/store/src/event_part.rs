//! Writes events to a part, straight from batches.

use std::fs::File;
use std::sync::Arc;

use floodmark_event::EventBatch;
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use crate::codec::{AtRest, ColumnEncoding};
use crate::columns::{EVENT_ENCODINGS, EndedBlocks, event_schema, push_columns};
use crate::pages::{ColumnWriter, PageCompressor};
use crate::stages::{SealStage, stage};

/// A part of the event table that is being written.
pub(crate) struct EventWriter {
    file: SerializedFileWriter<File>,
    columns: Vec<ColumnWriter>,
    compressor: PageCompressor,
    /// Rows of the row group so far, and of a full one.
    rows: usize,
    full_rows: usize,
}

impl EventWriter {
    /// Starts a part whose row groups have about `full_rows` rows.
    pub(crate) fn new(file: File, mut properties: WriterProperties, full_rows: usize) -> Result<Self> {
        let schema = event_schema();
        let descr = ArrowSchemaConverter::new().convert(&schema)?;
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let is_ascending = |name: &str| EVENT_ENCODINGS.contains(&(name, ColumnEncoding::Ascending));
        let columns = descr
            .columns()
            .iter()
            .map(|column| ColumnWriter::new(column.clone(), is_ascending(column.name())));
        let columns = columns.collect();
        let file = SerializedFileWriter::new(file, descr.root_schema_ptr(), Arc::new(properties))?;
        Ok(Self { file, columns, compressor: PageCompressor::new()?, rows: 0, full_rows })
    }

    /// Appends events and the blocks that their frees end.
    pub(crate) fn write(
        &mut self,
        batch: &EventBatch,
        at_rest: &AtRest<'_>,
        ended: &EndedBlocks,
    ) -> Result<()> {
        push_columns(batch, at_rest, ended, &mut self.columns);
        self.rows += batch.len();
        if self.rows >= self.full_rows {
            return self.end_group();
        }
        self.columns.iter_mut().try_for_each(|column| column.cut(&mut self.compressor))
    }

    /// Bytes in memory that are to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.iter().map(ColumnWriter::bytes).sum()
    }

    /// Writes the row group, if it has rows.
    pub(crate) fn end_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let (bytes, close) = column.finish(&mut self.compressor)?;
            stage(SealStage::Write, || group.append_column(&bytes, close))?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    /// Completes the part.
    pub(crate) fn into_inner(mut self) -> Result<File> {
        self.end_group()?;
        self.file.into_inner()
    }
}
