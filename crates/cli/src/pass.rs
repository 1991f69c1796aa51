//! Reads inputs and runs analyses over them.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, Result};
use floodmark_analyze::{Fold, Narrow, Pass};
use floodmark_convert::OpenProps;
use floodmark_event::units::{format_count, format_duration_ns};
use floodmark_event::{EventBatch, Tables};
use floodmark_store::columns::EVENT_COLUMNS;
use floodmark_store::{Losses, ScanProps, Source};
use floodmark_view::{Caveats, Loss, Report};

use crate::args::InputArgs;
use crate::caveats::CaveatsFold;
use crate::printer::Printer;
use crate::progress::Bar;

/// Opens a trace or a log.
pub(crate) fn open(path: &Path, props: &OpenProps) -> Result<Box<dyn Source>> {
    let opened = floodmark_convert::open(path, props);
    if path == Path::new("-") { opened.context("reading standard input") } else { Ok(opened?) }
}

/// Which columns of a trace to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// All of them.
    All,
    /// All but those that say who: stack, scope and name.
    Figures,
}

impl Columns {
    fn props(self) -> ScanProps {
        let who = ["stack", "scope", "name"];
        let figures = EVENT_COLUMNS.into_iter().filter(|column| !who.contains(column));
        ScanProps { columns: (self == Self::Figures).then(|| figures.collect()), ..ScanProps::default() }
    }
}

/// Runs a fold over every input, each on its own.
pub(crate) fn analyze<F: Fold>(
    args: &InputArgs,
    columns: Columns,
    printer: &Printer,
    fold: impl Fn() -> F,
) -> Result<Vec<Report<F::Output>>> {
    let props = OpenProps { scan: columns.props(), ..args.reading.props() };
    let narrow = args.narrow.props();
    args.inputs
        .iter()
        .map(|path| {
            let mut source = open(path, &props)?;
            let (report, _) =
                fold_over(source.as_mut(), &path.display().to_string(), &narrow, fold(), printer)?;
            Ok(report)
        })
        .collect()
}

/// A report, and the pass that made it.
pub(crate) type Folded<F> = (Report<<F as Fold>::Output>, Pass<(F, CaveatsFold)>);

/// Runs a fold over all of `source`; returns the fold too, for those that hold something back.
pub(crate) fn fold_over<F: Fold>(
    source: &mut dyn Source,
    name: &str,
    narrow: &Narrow,
    fold: F,
    printer: &Printer,
) -> Result<Folded<F>> {
    let mut pass = Pass::new(narrow, (fold, CaveatsFold::default()));
    let mut events_read = 0;
    each_batch(source, name, printer, |batch, _| {
        events_read += batch.len() as u64;
        pass.update(batch);
        Ok(if pass.is_past_window() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let (result, caveats) = pass.finish(source.tables());
    let report = Report {
        caveats: Caveats { events_read, ..caveats },
        ..Report::new(name, losses(&source.losses()), result)
    };
    Ok((report, pass))
}

/// Hands every batch of `source` to `visit` until that has had enough.
pub(crate) fn each_batch(
    source: &mut dyn Source,
    name: &str,
    printer: &Printer,
    mut visit: impl FnMut(&EventBatch, &Tables) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut batch = EventBatch::new();
    let mut bar = Bar::new(name, printer);
    let mut events = 0;
    while source.next(&mut batch)? {
        events += batch.len() as u64;
        bar.update(source.progress());
        if visit(&batch, source.tables())?.is_break() {
            break;
        }
    }
    let elapsed = bar.elapsed();
    drop(bar);
    let rate = events as f64 / elapsed.as_secs_f64().max(1e-9) / 1e6;
    printer.detail(&format!(
        "read {} events of {} in {}, {rate:.1} million a second",
        format_count(events),
        floodmark_view::plain(name),
        format_duration_ns(elapsed.as_nanos() as u64),
    ));
    Ok(())
}

/// Losses as views show them.
pub(crate) fn losses(losses: &Losses) -> Vec<Loss> {
    losses.gaps.iter().map(|gap| Loss { count: gap.count, reason: gap.reason.clone() }).collect()
}
