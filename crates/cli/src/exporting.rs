//! Exports that are tables: events, live bytes over time, blocks.

use std::io::Write;

use anyhow::{Context as _, Result};
use floodmark_analyze::{UsageStream, WatermarkOptions};
use floodmark_event::units::Instant;
use floodmark_event::{EventBatch, Tables};
use floodmark_inspect::pass::each_batch;
use floodmark_inspect::select::Select;
use floodmark_inspect::{Columns, Input, Loss, Query};
use floodmark_store::ScanProps;
use floodmark_view::usage::{CSV_HEADER, csv_line, kinds_text};
use floodmark_view::{EventCsv, blocks};

/// Writes every selected event as CSV.
pub(crate) fn events(out: &mut dyn Write, input: &Input, query: &Query<'_>) -> Result<Vec<Loss>> {
    let mut source = input.events(&ScanProps::default())?;
    let mut select = Select::new(input.anchored(&query.filter)?, None);
    let mut csv = EventCsv::default();
    out.write_all(csv.text(&EventBatch::new(), &Tables::default()).as_bytes())?;
    each_batch(source.as_mut(), input.name(), query.progress, |batch, tables| -> Result<_> {
        select.pass_on(batch, |batch| Ok(out.write_all(csv.text(batch, tables).as_bytes())?))
    })?;
    Ok(source.losses().gaps)
}

/// Writes every change of live bytes as CSV, as it is read.
pub(crate) fn timeline(out: &mut dyn Write, input: &Input, query: &Query<'_>) -> Result<Vec<Loss>> {
    let chosen = kinds_text(query.filter.kinds.as_deref().unwrap_or(&[]));
    let mut written = out.write_all(CSV_HEADER.as_bytes());
    let sink = |kind, point| {
        if written.is_ok() {
            written = out.write_all(csv_line(kind, &chosen, point).as_bytes());
        }
    };
    let mut folded = input.fold(query, Columns::Figures, UsageStream::new(&query.filter, sink))?;
    folded.pass.fold_mut().0.flush();
    let losses = folded.answer.losses;
    drop(folded.pass);
    written.context("writing the timeline")?;
    Ok(losses)
}

/// Writes the blocks that were live at the peak, or at an instant, as CSV.
pub(crate) fn live_blocks(
    out: &mut dyn Write,
    input: &Input,
    query: &Query<'_>,
    at: Option<Instant>,
) -> Result<Vec<Loss>> {
    let answer = input.watermark(query, WatermarkOptions { at, ..WatermarkOptions::default() })?;
    out.write_all(blocks::csv(&answer.result.blocks).as_bytes())?;
    Ok(answer.losses)
}
