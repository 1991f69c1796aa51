//! Reads inputs and runs analyses over them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::{Context as _, Result};
use floodmark_analyze::{Fold, Layer, Pass, SnapshotPass, Snapshots, WholeBlocksFold};
use floodmark_convert::{EventsAndRows, OpenProps};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::units::{format_count, format_duration_ns};
use floodmark_event::{EventBatch, Tables};
use floodmark_store::RowSource;
use floodmark_store::columns::EVENT_COLUMNS;
use floodmark_store::{Losses, ScanProps, Source, Trace, is_trace};
use floodmark_view::{Caveats, Loss, Report};

use crate::args::InputArgs;
use crate::caveats::CaveatsFold;
use crate::error::hinted;
use crate::printer::Printer;
use crate::progress::Bar;
use crate::whole_file::is_standard;

/// Batches that are read ahead.
const AHEAD: usize = 3;

/// Opens a trace or a log.
pub(crate) fn open(path: &Path, props: &OpenProps) -> Result<Box<dyn Source>> {
    opened(path, floodmark_convert::open(path, props))
}

/// What was opened. A failure of standard input says so, because it names no file.
pub(crate) fn opened<T>(path: &Path, opened: floodmark_store::Result<T>) -> Result<T> {
    if is_standard(path) { opened.context("reading standard input") } else { Ok(opened?) }
}

/// Refuses standard input where `who` says that an input is read more than once.
pub(crate) fn refuse_standard(path: &Path, who: &str) -> Result<()> {
    if is_standard(path) {
        return Err(hinted(
            format!("{who}, so it cannot read standard input"),
            "write it to a file first, or keep it as a trace with 'floodmark import'",
        ));
    }
    Ok(())
}

/// Opens a trace or a log, with what it has beside its events.
fn open_with_rows(path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    opened(path, floodmark_convert::open_events_and_rows(path, props))
}

/// Which columns of a trace to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// All of them.
    All,
    /// All but those that say who: stream, stack, scope and name.
    Figures,
}

impl Columns {
    /// The same for whoever scans.
    ///
    /// What is narrowed by has to be read whatever it says.
    pub(crate) fn props(self, filter: &Filter) -> ScanProps {
        let who = ["stream", "stack", "scope", "name"];
        let wanted =
            |column: &&str| !who.contains(column) || (*column == "stream" && filter.streams.is_some());
        let figures = EVENT_COLUMNS.into_iter().filter(wanted);
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
    analyze_with(args, columns, printer, |_, _| Ok(fold()))
}

/// Runs a fold over every input, each on its own; what the fold is to know of its input is read first.
pub(crate) fn analyze_with<F: Fold>(
    args: &InputArgs,
    columns: Columns,
    printer: &Printer,
    fold: impl Fn(&Path, &OpenProps) -> Result<F>,
) -> Result<Vec<Report<F::Output>>> {
    let folded = analyze_with_rows(args, columns, printer, fold)?;
    Ok(folded.into_iter().map(|(report, ..)| report).collect())
}

/// A report, where it comes from, and what was seen beside the events there.
pub(crate) type WithRows<T> = (Report<T>, PathBuf, Option<Box<dyn RowSource>>);

/// As [`analyze_with`], and keeps what a log has beside its events.
pub(crate) fn analyze_with_rows<F: Fold>(
    args: &InputArgs,
    columns: Columns,
    printer: &Printer,
    fold: impl Fn(&Path, &OpenProps) -> Result<F>,
) -> Result<Vec<WithRows<F::Output>>> {
    let filter = args.filter.props();
    let props = OpenProps { scan: columns.props(&filter), ..args.reading.props() };
    args.inputs
        .iter()
        .map(|path| {
            let fold = fold(path, &props)?;
            let (mut source, rows) = open_with_rows(path, &props)?;
            let (report, _) =
                fold_over(source.as_mut(), &path.display().to_string(), &filter, fold, printer)?;
            if report.caveats.events_read == 0 {
                refuse_samples(path)?;
            }
            Ok((report, path.clone(), rows))
        })
        .collect()
}

/// Gives layers what was sampled of them, by whom ever.
pub(crate) fn add_whole_blocks(
    layers: &mut [Layer],
    path: &Path,
    rows: Option<Box<dyn RowSource>>,
) -> Result<()> {
    let rows = match rows {
        Some(rows) => Some(rows),
        None if !layers.is_empty() && is_trace(path) => {
            Some(floodmark_convert::open_samples(path, &OpenProps::default())?)
        }
        None => None,
    };
    let Some(mut source) = rows.filter(|_| !layers.is_empty()) else { return Ok(()) };
    let (mut fold, mut rows) = (WholeBlocksFold::default(), Vec::new());
    while source.next(&mut rows)? {
        for row in &rows {
            if let Row::Sample(row) = row {
                fold.sample(row);
            }
        }
    }
    fold.finish(&source.tables().subjects, layers);
    Ok(())
}

/// Says so where there is nothing to analyze because the trace is one of samples.
pub(crate) fn refuse_samples(path: &Path) -> Result<()> {
    if !is_trace(path) || Trace::open(path)?.subjects()?.is_empty() {
        return Ok(());
    }
    let name = path.display();
    Err(hinted(
        format!("{name} has samples of processes and no allocations, which this command is about"),
        format!("'floodmark info {name}' shows its peaks, 'floodmark read {name}' its timeline"),
    ))
}

/// A report, and the pass that made it.
pub(crate) type Folded<F> = (Report<<F as Fold>::Output>, Pass<(F, CaveatsFold)>);

/// Runs a fold over all of `source`; returns the fold too, for those that hold something back.
pub(crate) fn fold_over<F: Fold>(
    source: &mut dyn Source,
    name: &str,
    filter: &Filter,
    fold: F,
    printer: &Printer,
) -> Result<Folded<F>> {
    let mut pass = Pass::new(filter, (fold, CaveatsFold::default()));
    let mut events_read = 0;
    read_ahead(source, name, printer, |batch| {
        events_read += batch.len() as u64;
        pass.update(batch);
        if pass.is_past_window() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let (result, caveats) = pass.finish(source.tables());
    let report = Report {
        caveats: Caveats { events_read, ..caveats },
        ..Report::new(name, losses(&source.losses()), result)
    };
    Ok((report, pass))
}

/// Looks at what is live at instants of `source`.
pub(crate) fn moments_over(
    source: &mut dyn Source,
    name: &str,
    mut pass: SnapshotPass,
    printer: &Printer,
) -> Result<Snapshots> {
    read_ahead(source, name, printer, |batch| {
        pass.update(batch);
        ControlFlow::Continue(())
    })?;
    Ok(pass.finish(source.tables()))
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
    tell_rate(name, printer, bar, events);
    Ok(())
}

/// Hands every batch of `source` to `visit` until that has had enough, while the next ones are read.
pub(crate) fn read_ahead(
    source: &mut dyn Source,
    name: &str,
    printer: &Printer,
    mut visit: impl FnMut(&EventBatch) -> ControlFlow<()>,
) -> Result<()> {
    let mut bar = Bar::new(name, printer);
    let mut events = 0;
    // Three batches go around: one is read, one waits, one is looked at.
    let (give, take) = mpsc::sync_channel(AHEAD);
    let (give_back, take_back) = mpsc::sync_channel(AHEAD);
    for _ in 0..AHEAD {
        give_back.send(EventBatch::new()).expect("the other end is here");
    }
    std::thread::scope(|scope| -> Result<()> {
        let read = move || -> floodmark_store::Result<()> {
            // Either end may have gone: the visitor has had enough.
            while let Ok(mut batch) = take_back.recv() {
                if !source.next(&mut batch)? || give.send((batch, source.progress())).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let reader = std::thread::Builder::new().name("floodmark-read".into()).spawn_scoped(scope, read)?;
        while let Ok((batch, progress)) = take.recv() {
            events += batch.len() as u64;
            bar.update(progress);
            if visit(&batch).is_break() {
                break;
            }
            let _ = give_back.send(batch);
        }
        drop((take, give_back));
        match reader.join() {
            Ok(read) => Ok(read?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    tell_rate(name, printer, bar, events);
    Ok(())
}

fn tell_rate(name: &str, printer: &Printer, bar: Bar, events: u64) {
    let elapsed = bar.elapsed();
    drop(bar);
    let rate = events as f64 / elapsed.as_secs_f64().max(1e-9) / 1e6;
    printer.detail(&format!(
        "read {} events of {} in {}, {rate:.1} million a second",
        format_count(events),
        floodmark_view::plain(name),
        format_duration_ns(elapsed.as_nanos() as u64),
    ));
}

/// Runs a fold over all of an input; returns what was read too, for names. Refuses what has samples instead.
pub(crate) fn fold_input<F: Fold>(
    path: &Path,
    props: &OpenProps,
    filter: &Filter,
    fold: F,
    printer: &Printer,
) -> Result<(Folded<F>, Box<dyn Source>)> {
    let mut source = open(path, props)?;
    let folded = fold_over(source.as_mut(), &path.display().to_string(), filter, fold, printer)?;
    if folded.0.caveats.events_read == 0 {
        refuse_samples(path)?;
    }
    Ok((folded, source))
}

/// Adds losses that are not known yet: several halves of a trace tell of the same ones.
pub(crate) fn join_losses(known: &mut Vec<Loss>, more: Vec<Loss>) {
    for loss in more {
        if !known.contains(&loss) {
            known.push(loss);
        }
    }
}

/// Losses as views show them.
pub(crate) fn losses(losses: &Losses) -> Vec<Loss> {
    losses.gaps.iter().map(|gap| Loss { count: gap.count, reason: gap.reason.clone() }).collect()
}
