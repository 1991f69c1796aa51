//! Reads an input for a report: events and what was seen from outside, both in two passes.

use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{
    Cuts, FragmentationFold, FragmentationOptions, GroupBy, HoldersFold, LeaksFold, LeaksOptions,
    LifetimesFold, LifetimesOptions, Mark, MomentsOptions, MomentsPass, Narrow, RunFold, RunMemory,
    SeriesFold, StatsFold, UsageFold, UsageMode, WatermarkOptions,
};
use floodmark_convert::{OpenProps, Opened, SampleSource, Seen, open_any, open_samples};
use floodmark_event::units::{format_duration_ns, format_time_ns};
use floodmark_event::{SampleRow, ScopeAction, StackSampleRow, Tables};
use floodmark_store::{Trace, is_trace};
use floodmark_view::html::{MOST_STACKS, OutputLines, StackAt};
use floodmark_view::{EventsPart, Loss, Page, SamplesPart, plain};

use crate::error::hinted;
use crate::pass::{fold_over, losses, moments_over};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::run_memory::{self, PROCESSES};
use crate::{scopes, trace_info};

/// Points of the timeline of events, and of each line of samples.
const POINTS: usize = 20_000;
const SAMPLE_POINTS: usize = 4000;
/// Blocks that are listed.
const BLOCKS: usize = 200;

/// Reads all that a report shows.
pub(crate) fn page(path: &Path, narrow: &Narrow, props: &OpenProps, printer: &Printer) -> Result<Page> {
    let mut page = Page { source: path.display().to_string(), ..Page::default() };
    let (has_events, has_samples) = holds(path, props)?;
    if has_events {
        events(&mut page, path, narrow, props, printer)?;
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

/// Whether there are events, and whether there is anything else.
fn holds(path: &Path, props: &OpenProps) -> Result<(bool, bool)> {
    if is_trace(path) {
        return Ok((true, true));
    }
    Ok(match open_any(path, props)? {
        Opened::Events(_) => (true, false),
        Opened::Samples(_) => (false, true),
        Opened::Both(..) => (true, true),
    })
}

fn events(page: &mut Page, path: &Path, narrow: &Narrow, props: &OpenProps, printer: &Printer) -> Result<()> {
    let ways = [GroupBy::Thread, GroupBy::Stream, GroupBy::Size, GroupBy::Device, GroupBy::Process];
    let watermark =
        WatermarkOptions { group_by: ways.to_vec(), limit: Some(BLOCKS), ..WatermarkOptions::default() };
    let leaks =
        LeaksOptions { limit: Some(BLOCKS), scopes: scopes::roles(path, props)?, ..LeaksOptions::default() };
    let folds = (
        (StatsFold::default(), UsageFold::new(UsageMode::Reduced(POINTS))),
        HoldersFold::new(watermark),
        LeaksFold::new(leaks),
        LifetimesFold::new(LifetimesOptions { limit: Some(BLOCKS), ..LifetimesOptions::default() }),
        FragmentationFold::new(FragmentationOptions {
            limit: Some(BLOCKS),
            ..FragmentationOptions::default()
        }),
    );
    let mut source = floodmark_convert::open(path, props)?;
    let (report, pass) = fold_over(source.as_mut(), &page.source, narrow, folds, printer)?;
    page.losses.extend(report.losses);
    // Of a trace that has no events at all there may be samples.
    if report.caveats.events_read == 0 && is_trace(path) {
        return Ok(());
    }
    let ((stats, usage), (watermark, holders), leaks, lifetimes, fragmentation) = report.result;
    let cuts = Cuts::choose(&usage, &pass);
    drop(pass);
    let blocks = if cuts.has_few_blocks() { None } else { MomentsOptions::default().blocks };
    let options = MomentsOptions { blocks, scopes: scopes::paths(path, props)?, ..MomentsOptions::default() };
    let mut source = floodmark_convert::open(path, props)?;
    let second = MomentsPass::new(narrow, cuts, options);
    let moments = moments_over(source.as_mut(), &page.source, second, printer)?;
    let caveats = report.caveats;
    page.events = Some(EventsPart {
        stats,
        usage,
        watermark,
        holders,
        leaks,
        lifetimes,
        fragmentation,
        moments,
        caveats,
    });
    Ok(())
}

fn about(page: &mut Page, trace: &Trace) {
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

/// What the first look finds: marks, and how much there is.
#[derive(Default)]
struct First {
    marks: Vec<Mark>,
    rows: u64,
    stacks: u64,
}

fn samples(page: &mut Page, path: &Path, props: &OpenProps, printer: &Printer) -> Result<()> {
    let (mut first, mut source) = (First::default(), open_samples(path, props)?);
    each_row(source.as_mut(), &page.source, printer, |rows, tables| {
        for row in rows {
            match row {
                Seen::Scope(row) if row.action == ScopeAction::Mark => {
                    first.marks.push(Mark { time_ns: row.time_ns, name: tables.string(row.name).to_owned() });
                }
                Seen::Scope(_) | Seen::Log(_) => continue,
                Seen::Stack(_) => first.stacks += 1,
                Seen::Sample(_) | Seen::Output(_) => {}
            }
            first.rows += 1;
        }
    })?;
    if first.rows == 0 {
        return Ok(());
    }
    let subjects = source.tables().subjects.clone();
    let mut run = RunFold::new(&subjects, first.marks.clone());
    let mut series = SeriesFold::new(&subjects, SAMPLE_POINTS);
    let (mut output, mut stacks, mut batch) = (OutputLines::default(), Taken::new(first.stacks), Vec::new());
    let mut source = open_samples(path, props)?;
    each_row(source.as_mut(), &page.source, printer, |rows, tables| {
        batch.clear();
        for row in rows {
            match row {
                Seen::Sample(row) => batch.push(*row),
                Seen::Output(row) => output.add(row),
                Seen::Stack(row) => stacks.add(row, tables),
                Seen::Scope(_) | Seen::Log(_) => {}
            }
        }
        update(&mut run, &mut series, &batch);
    })?;
    output.finish();
    for loss in losses(&source.losses()) {
        add_loss(&mut page.losses, loss);
    }
    page.samples = Some(SamplesPart {
        memory: memory(path, &run)?,
        subjects,
        series: series.finish(),
        marks: first.marks,
        output,
        stacks: stacks.kept,
        stacks_omitted: stacks.omitted,
    });
    Ok(())
}

fn update(run: &mut RunFold, series: &mut SeriesFold, rows: &[SampleRow]) {
    run.update(rows);
    series.update(rows);
}

/// Both halves of a trace tell of the same loss.
fn add_loss(losses: &mut Vec<Loss>, loss: Loss) {
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

/// A trace knows more of its run than samples tell.
fn memory(path: &Path, run: &RunFold) -> Result<RunMemory> {
    let known = if is_trace(path) { run_memory::of(&Trace::open(path)?, Some(PROCESSES))? } else { None };
    Ok(known.map_or_else(|| run.finish(Some(PROCESSES)), |(memory, _)| memory))
}

fn each_row(
    source: &mut dyn SampleSource,
    name: &str,
    printer: &Printer,
    mut visit: impl FnMut(&[Seen], &Tables),
) -> Result<()> {
    let mut bar = Bar::new(name, printer);
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        bar.update(source.progress());
        visit(&rows, source.tables());
    }
    Ok(())
}

/// Stacks, evenly chosen where there are too many.
struct Taken {
    every: u64,
    seen: u64,
    kept: Vec<StackAt>,
    omitted: u64,
}

impl Taken {
    fn new(count: u64) -> Self {
        let every = count.div_ceil(MOST_STACKS as u64).max(1);
        Self { every, seen: 0, kept: Vec::new(), omitted: 0 }
    }

    fn add(&mut self, row: &StackSampleRow, tables: &Tables) {
        self.seen += 1;
        if !(self.seen - 1).is_multiple_of(self.every) {
            self.omitted += 1;
            return;
        }
        let subject = tables.subjects.get(&row.subject);
        self.kept.push(StackAt {
            time_ns: row.time_ns,
            process: subject.map_or_else(|| "process".into(), |subject| plain(&subject.name).into_owned()),
            pid: subject.map_or(0, |subject| subject.number),
            thread: row.thread,
            reason: row.reason.name(),
            frames: tables.stack_text(row.stack),
        });
    }
}
