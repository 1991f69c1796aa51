//! Writes inputs in formats that are one file.

mod chrome;

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use floodmark_analyze::{
    FlameOf, FrameChoice, OriginRow, OriginTotals, OriginTotalsFold, PathRules, SplitBy, UsageStream,
    WatermarkFold, WatermarkOptions,
};
use floodmark_convert::{OpenProps, StackTotals, folded, pprof, speedscope};
use floodmark_event::Filter;
use floodmark_event::units::{Instant, format_bytes, format_time_ns};
use floodmark_event::{EventBatch, Tables};
use floodmark_view::usage::{CSV_HEADER, csv_line, kinds_text};
use floodmark_view::{EventCsv, Loss, blocks, plain};

use crate::pass::{each_batch, fold_input, losses, open};
use crate::printer::Printer;
use crate::reading::Show;
use crate::select::Select;
use crate::whole_file::{Overwrite, fill, say_written};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// Chrome's trace events, with every event or without.
    Chrome(Show),
    Speedscope,
    Pprof,
    Folded(FlameOf),
    CsvEvents,
    CsvTimeline,
    CsvBlocks,
}

/// From where to where, and which of it.
pub(crate) struct Exporter<'a> {
    pub(crate) input: &'a Path,
    pub(crate) output: &'a Path,
    pub(crate) overwrite: Overwrite,
    pub(crate) at: Option<Instant>,
    pub(crate) filter: Filter,
    pub(crate) open: OpenProps,
    pub(crate) printer: &'a Printer,
}

impl Exporter<'_> {
    /// Writes the whole file, or none.
    pub(crate) fn write(&self, product: Product) -> Result<()> {
        let mut counting = 0;
        let lost = fill(self.output, self.overwrite, |out| {
            let mut out = Counting { out, bytes: &mut counting };
            match product {
                Product::Chrome(events) => chrome::write(self, events, &mut out),
                Product::Speedscope | Product::Pprof | Product::Folded(_) => self.profile(product, &mut out),
                Product::CsvEvents => self.events(&mut out),
                Product::CsvTimeline => {
                    timeline(&mut out, self.input, &self.open, &self.filter, self.printer)
                }
                Product::CsvBlocks => self.blocks(&mut out),
            }
        })?;
        say_written(self.output, &format_bytes(counting), self.printer);
        self.printer.lost(&lost);
        Ok(())
    }

    /// What the input is called.
    fn name(&self) -> String {
        self.input.display().to_string()
    }

    fn profile(&self, product: Product, out: &mut dyn Write) -> Result<Vec<Loss>> {
        let fold = OriginTotalsFold::new(self.at, SplitBy::Nothing);
        let ((report, pass), source) = fold_input(self.input, &self.open, &self.filter, fold, self.printer)?;
        let (weights, tables) = (report.result, source.tables());
        let stacks: Vec<StackTotals> = weights.rows.iter().map(|row| weighed(row, tables)).collect();
        let what = if self.at.is_some() { "live at the time asked for" } else { "live at the peak" };
        match product {
            Product::Pprof => {
                let counters = pass.live().counters();
                let span = counters.first_time_ns.zip(counters.last_time_ns);
                let duration_ns = span.map_or(0, |(from, to)| to.saturating_sub(from).max(0) as u64);
                let comment = format!("inuse: {what}{}", at_text(&weights));
                let props =
                    pprof::ProfileProps { time_ns: weights.marked_time_ns, duration_ns, comment: &comment };
                pprof::write(out, &props, &stacks, tables)?;
            }
            Product::Folded(of) => {
                let rules = PathRules { frames: FrameChoice::All, ..PathRules::default() };
                for (row, stack) in weights.rows.iter().zip(&stacks) {
                    let value = of.value(of.weight(row));
                    if value > 0 {
                        let path = rules.path(&row.origin, tables);
                        debug_assert_eq!(stack.stack, row.origin.stack, "both have one order");
                        folded::write_line(out, path.iter().map(|step| plain(step.text())), value)?;
                    }
                }
            }
            _ => {
                let file = self.input.file_name().and_then(|name| name.to_str()).unwrap_or("floodmark");
                let held = format!("{what}{}", at_text(&weights));
                speedscope::write(out, speedscope::Names { file, held: &held }, &stacks, tables)?;
            }
        }
        Ok(report.losses)
    }

    fn events(&self, out: &mut dyn Write) -> Result<Vec<Loss>> {
        let mut source = open(self.input, &self.open)?;
        let mut select = Select::new(self.filter.clone(), None);
        let mut csv = EventCsv::default();
        out.write_all(csv.text(&EventBatch::new(), &Tables::default()).as_bytes())?;
        each_batch(source.as_mut(), &self.name(), self.printer, |batch, tables| {
            select.pass_on(batch, |batch| Ok(out.write_all(csv.text(batch, tables).as_bytes())?))
        })?;
        Ok(losses(&source.losses()))
    }

    fn blocks(&self, out: &mut dyn Write) -> Result<Vec<Loss>> {
        let fold = WatermarkFold::new(WatermarkOptions { at: self.at, ..WatermarkOptions::default() });
        let ((report, _), _) = fold_input(self.input, &self.open, &self.filter, fold, self.printer)?;
        out.write_all(blocks::csv(&report.result.blocks).as_bytes())?;
        Ok(report.losses)
    }
}

/// Writes every change of live bytes as CSV, as it is read.
pub(crate) fn timeline(
    out: &mut dyn Write,
    input: &Path,
    open: &OpenProps,
    filter: &Filter,
    printer: &Printer,
) -> Result<Vec<Loss>> {
    let chosen = kinds_text(filter.kinds.as_deref().unwrap_or(&[]));
    let mut written = out.write_all(CSV_HEADER.as_bytes());
    let sink = |kind, point| {
        if written.is_ok() {
            written = out.write_all(csv_line(kind, &chosen, point).as_bytes());
        }
    };
    let ((report, mut pass), _) = fold_input(input, open, filter, UsageStream::new(filter, sink), printer)?;
    pass.fold_mut().0.flush();
    drop(pass);
    written.context("writing the timeline")?;
    Ok(report.losses)
}

fn at_text(weights: &OriginTotals) -> String {
    weights.marked_time_ns.map_or_else(String::new, |time_ns| format!(" ({})", format_time_ns(time_ns)))
}

fn weighed(row: &OriginRow, tables: &Tables) -> StackTotals {
    let steps = if row.origin.stack.0 == 0 {
        PathRules::default().path(&row.origin, tables).iter().map(|step| step.text().to_owned()).collect()
    } else {
        Vec::new()
    };
    let both = |weight: floodmark_analyze::Totals| [weight.bytes, weight.blocks];
    StackTotals {
        stack: row.origin.stack,
        steps,
        held: both(row.marked),
        left: both(row.end),
        allocated: both(row.allocated),
    }
}

/// Counts what is written.
struct Counting<'a> {
    out: &'a mut dyn Write,
    bytes: &'a mut u64,
}

impl Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
