//! Reads an input for a report: events and what was seen from outside, both in two passes.
//!
//! What is found out is in `folds`, which a growing trace keeps going.

mod folds;

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{
    DomainSeriesFold, Fold, Fragmentation, Pass, RunFold, RunMemory, SnapshotOptions, SnapshotPass,
    UsagePoint,
};
use floodmark_convert::{OpenProps, Opened, open_any, open_samples};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::units::{Instant, format_duration_ns, format_time_ns};
use floodmark_event::{EventBatch, Kind, NO_DEVICE, ProcessId, Tables};
use floodmark_store::RowSource;
use floodmark_store::{Source, Trace, is_trace};
use floodmark_view::{EventsPart, Loss, Page};

pub(crate) use self::folds::{EventFolds, RowFolds, mark};
use crate::error::hinted;
use crate::pass::{join_losses, losses, moments_over, read_ahead};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::run_memory::{self, PROCESSES};
use crate::{scopes, trace_info};

/// Points of a line of one process and device.
const PLACE_POINTS: usize = 4000;

/// Reads all that a report shows.
pub(crate) fn page(path: &Path, filter: &Filter, props: &OpenProps, printer: &Printer) -> Result<Page> {
    let narrowed = narrowing(filter);
    let mut page = Page { source: path.display().to_string(), narrowed, ..Page::default() };
    let (has_events, has_samples) = holds(path, props)?;
    if has_events {
        events(&mut page, path, filter, props, printer)?;
    }
    if has_samples {
        samples(&mut page, path, props, printer)?;
    }
    if is_trace(path) {
        about(&mut page, &Trace::open(path)?);
    }
    if page.events.is_none() && page.samples.is_none() {
        return Err(hinted(
            format!("{} has nothing to report on", path.display()),
            "'floodmark info' says what it holds",
        ));
    }
    Ok(page)
}

/// The options that narrow so.
fn narrowing(filter: &Filter) -> String {
    fn list<T>(name: &str, values: Option<&Vec<T>>, text: impl Fn(&T) -> String) -> Option<String> {
        let texts: Vec<String> = values?.iter().map(text).collect();
        Some(format!("--{name} {}", texts.join(",")))
    }
    let instant = |name: &str, instant: Option<Instant>| match instant? {
        Instant::AfterStart(ns) => Some(format!("--{name} +{ns}ns")),
        Instant::At(ns) => {
            let (seconds, rest) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
            Some(format!("--{name} @{seconds}.{rest:09}"))
        }
    };
    let device = |device: &i32| if *device == NO_DEVICE { "none".into() } else { device.to_string() };
    let options = [
        list("device", filter.devices.as_ref(), device),
        list("process", filter.processes.as_ref(), |process| process.0.to_string()),
        list("thread", filter.threads.as_ref(), u64::to_string),
        list("stream", filter.streams.as_ref(), |stream| format!("{stream:#x}")),
        list("kind", filter.kinds.as_ref(), |kind| kind.name().to_owned()),
        instant("from", filter.from_ns),
        instant("to", filter.to_ns),
    ];
    options.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Whether there are events, and whether there is anything else.
pub(crate) fn holds(path: &Path, props: &OpenProps) -> Result<(bool, bool)> {
    if is_trace(path) {
        return Ok((true, true));
    }
    Ok(match open_any(path, props)? {
        Opened::Events(_) => (true, false),
        Opened::Samples(_) => (false, true),
        Opened::Both(..) => (true, true),
    })
}

fn events(page: &mut Page, path: &Path, filter: &Filter, props: &OpenProps, printer: &Printer) -> Result<()> {
    std::thread::scope(|scope| {
        let look = || gaps(path, filter, props);
        let gaps = std::thread::Builder::new().name("floodmark-gaps".into()).spawn_scoped(scope, look)?;
        let part = instants(page, path, filter, props, printer)?;
        let found = gaps.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        page.events = part.map(|part| EventsPart { fragmentation: found, ..part });
        Ok(())
    })
}

/// Looks at gaps between blocks, which takes as long as all else.
fn gaps(path: &Path, filter: &Filter, props: &OpenProps) -> Result<Fragmentation> {
    Ok(silently(path, filter, props, folds::gaps())?.0)
}

/// Runs a fold over all of an input beside others that say how far they are; returns what was read, for names.
fn silently<F: Fold>(
    path: &Path,
    filter: &Filter,
    props: &OpenProps,
    fold: F,
) -> Result<(F::Output, Box<dyn Source>)> {
    let mut pass = Pass::new(filter, fold);
    let mut source = floodmark_convert::open(path, props)?;
    let mut batch = EventBatch::new();
    while !pass.is_past_window() && source.next(&mut batch)? {
        pass.update(&batch);
    }
    Ok((pass.finish(source.tables()), source))
}

/// All else of events; none if a trace has none at all, because there may be samples.
fn instants(
    page: &mut Page,
    path: &Path,
    filter: &Filter,
    props: &OpenProps,
    printer: &Printer,
) -> Result<Option<EventsPart>> {
    let mut folds = EventFolds::without_gaps(filter, scopes::roles(path, props)?);
    let mut source = floodmark_convert::open(path, props)?;
    read_ahead(source.as_mut(), &page.source, printer, |batch| {
        folds.update(batch);
        if folds.is_past_window() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    page.losses.extend(losses(&source.losses()));
    if folds.is_empty() && is_trace(path) {
        return Ok(None);
    }
    let mut part = folds.finish(source.tables());
    let cuts = folds.cuts(&part);
    drop(folds);
    let blocks = if cuts.has_few_blocks() { None } else { SnapshotOptions::default().blocks };
    let options =
        SnapshotOptions { blocks, scopes: scopes::paths(path, props)?, ..SnapshotOptions::default() };
    let mut source = floodmark_convert::open(path, props)?;
    let second = SnapshotPass::new(filter, cuts, options);
    part.moments = moments_over(source.as_mut(), &page.source, second, printer)?;
    let mut ledgers = part.stats.ledgers.iter().map(|ledger| (ledger.process, ledger.device));
    let first = ledgers.next();
    if ledgers.any(|place| Some(place) != first) {
        part.places = places(path, filter, props)?;
    }
    Ok(Some(part))
}

/// Live bytes of every process, device and kind by itself, whichever had most first.
fn places(path: &Path, filter: &Filter, props: &OpenProps) -> Result<Vec<(String, Vec<UsagePoint>)>> {
    let (mut courses, source) = silently(path, filter, props, DomainSeriesFold::new(PLACE_POINTS))?;
    courses.sort_by_key(|course| std::cmp::Reverse(course.peak.live_bytes));
    let several = courses.iter().any(|course| course.group.0 != courses[0].group.0);
    let name = |(process, device, kind): (ProcessId, i32, Kind)| {
        let mut words = vec![kind.name().to_owned()];
        words.extend((device != NO_DEVICE).then(|| format!("device {device}")));
        if several {
            let pid = source.tables().process(process).map_or(0, |process| process.pid);
            words.push(if pid == 0 { format!("process {}", process.0) } else { format!("pid {pid}") });
        }
        words.join(", ")
    };
    Ok(courses.into_iter().map(|course| (name(course.group), course.points)).collect())
}

/// Says what is known of the run.
pub(crate) fn about(page: &mut Page, trace: &Trace) {
    let run = trace_info::of(trace.manifest()).run;
    let mut fact = |name: &str, value: Option<String>| {
        page.about.extend(value.map(|value| (name.to_owned(), value)));
    };
    let span = run.start_time_ns.zip(run.end_time_ns).map(|(from, to)| to.saturating_sub(from).max(0) as u64);
    fact("command", run.command);
    fact("host", run.host);
    fact("user", run.user);
    fact("began", run.start_time_ns.map(format_time_ns));
    fact("took", span.map(format_duration_ns));
    fact("exit status", run.exit_status.map(|status| status.to_string()));
    fact("imported from", (!run.imported_files.is_empty()).then(|| run.imported_files.join(", ")));
}

fn samples(page: &mut Page, path: &Path, props: &OpenProps, printer: &Printer) -> Result<()> {
    let (mut marks, mut stacks, mut count) = (Vec::new(), 0, 0u64);
    let mut source = open_samples(path, props)?;
    each_row(source.as_mut(), &page.source, printer, |rows, tables| {
        marks.extend(rows.iter().filter_map(|row| mark(row, tables)));
        stacks += rows.iter().filter(|row| matches!(row, Row::Stack(_))).count() as u64;
        count += rows.iter().filter(|row| !matches!(row, Row::Scope(_) | Row::Log(_))).count() as u64;
    })?;
    if count == 0 && marks.is_empty() {
        return Ok(());
    }
    let mut folds = RowFolds::of_known(&source.tables().subjects, marks, stacks);
    let mut source = open_samples(path, props)?;
    each_row(source.as_mut(), &page.source, printer, |rows, tables| folds.update(rows, tables))?;
    add_losses(page, losses(&source.losses()));
    page.samples = Some(folds.finish(memory(path, folds.run())?));
    Ok(())
}

/// Both halves of a trace tell of the same losses.
pub(crate) fn add_losses(page: &mut Page, losses: Vec<Loss>) {
    join_losses(&mut page.losses, losses);
}

/// A trace knows more of its run than samples tell.
fn memory(path: &Path, run: &RunFold) -> Result<RunMemory> {
    let known = if is_trace(path) { run_memory::of(&Trace::open(path)?, Some(PROCESSES))? } else { None };
    Ok(known.map_or_else(|| run.finish(Some(PROCESSES)), |(memory, _)| memory))
}

pub(crate) fn each_row(
    source: &mut dyn RowSource,
    name: &str,
    printer: &Printer,
    mut visit: impl FnMut(&[Row], &Tables),
) -> Result<()> {
    let mut bar = Bar::new(name, printer);
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        bar.update(source.progress());
        visit(&rows, source.tables());
    }
    Ok(())
}
