//! Everything a report page shows, read in two passes over one open input.
//!
//! The first pass finds peaks, leaks and lifetimes while another thread finds the gaps between blocks, which
//! takes longest; the second pass, which needs to know the peaks, takes snapshots of what was live at chosen
//! instants. A growing trace keeps the folds of the first pass going (`Growing`).

mod beside;
mod folds;
mod growing;
mod output;
mod peak;
mod stacks;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use floodmark_analyze::usage::index::UsageIndex;
use floodmark_analyze::{
    CallOrder, Calls, CallsOptions, Caveats, DomainSeriesFold, Fragmentation, HolderSite, Leaks, Lifetimes,
    Mark, Overlay, Pass, Ranges, RangesFold, RankMap, Ranks, RunMemory, SnapshotOptions, SnapshotPass,
    Snapshots, Stats, SubjectSeries, Usage, UsagePoint, Watermark,
};
use floodmark_event::units::{Instant, format_duration_ns, format_time_ns};
use floodmark_event::{EventBatch, Filter, Kind, NO_DEVICE, ProcessId, Row, SubjectRow, Tables};
use floodmark_store::{Run, ScanProps};

pub(crate) use folds::mark as mark_of;
pub use folds::{EventFolds, Indexing, RowFolds};
pub use growing::{Growing, ReadOutcome};
pub use output::{OutputLine, OutputLines};

use crate::answer::{Loss, join_losses};
use crate::compare::Compared;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::{read_ahead, read_ahead_twice};
use crate::query::Query;
use crate::run::PROCESSES;

/// Points of a time series of one process, device and kind.
const DOMAIN_POINTS: usize = 4000;

/// Largest number of moments with stack samples on a page.
pub const MOST_STACKS: usize = 300;

/// Largest number of threads of one moment.
pub const MOST_THREADS: usize = 32;

/// Largest number of ranks that are listed at either end.
const MOST_RANKS: usize = 500;
/// Largest number of functions that are listed.
const MOST_FUNCTIONS: usize = 500;

/// Everything a page shows.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// File or trace as the user named it.
    pub source: String,
    /// Filter options as one gives them to a command; empty if everything is shown.
    pub filters: String,
    /// Instant that times count from; the first one on the page if none.
    pub origin_ns: Option<i64>,
    /// Facts about the run: names and values.
    pub about: Vec<(String, String)>,
    /// Losses that concern the page.
    pub losses: Vec<Loss>,
    /// Scopes and ranges over time.
    pub ranges: Ranges,
    /// Results of allocations and frees, if there are any.
    pub events: Option<EventsPart>,
    /// Results of samples, output and stacks, if there are any.
    pub samples: Option<SamplesPart>,
    /// The ranks of a job, if there are several.
    pub ranks: Option<RanksPart>,
    /// What functions gained, if calls were recorded.
    pub calls: Option<Calls>,
    /// What changed since an earlier recording, if one is given.
    pub since: Option<Compared>,
}

/// The ranks of a job.
#[derive(Clone, Debug)]
pub struct RanksPart {
    /// The ranks side by side.
    pub ranks: Ranks,
    /// Their memory over time.
    pub map: RankMap,
}

/// Results of allocations and frees.
#[derive(Clone, Debug, Default)]
pub struct EventsPart {
    /// Counters and sizes.
    pub stats: Stats,
    /// Live bytes over time.
    pub usage: Usage,
    /// Live bytes in fine intervals, if an index was wanted and the input can have one.
    pub usage_index: Option<UsageIndex>,
    /// The peak.
    pub watermark: Watermark,
    /// Sites that held memory at the peak, most bytes first.
    pub holders: Vec<HolderSite>,
    /// Leak candidates; none while the recording goes on.
    pub leaks: Option<Leaks>,
    /// How long blocks lived.
    pub lifetimes: Lifetimes,
    /// How fragmented free memory was.
    pub fragmentation: Fragmentation,
    /// What was live at many instants.
    pub snapshots: Snapshots,
    /// Live bytes over time of every process, device and kind, the highest peak first.
    pub by_domain: Vec<(String, Vec<UsagePoint>)>,
    /// What devices reported beside the events, if a log of them was given.
    pub overlay: Option<Overlay>,
    /// Counts of events that make figures less certain.
    pub caveats: Caveats,
}

/// Results of samples, output and stacks.
#[derive(Clone, Debug, Default)]
pub struct SamplesPart {
    /// Memory of the run.
    pub memory: RunMemory,
    /// Processes, devices and other subjects.
    pub subjects: BTreeMap<u64, SubjectRow>,
    /// Values over time.
    pub series: Vec<SubjectSeries>,
    /// Where phases begin.
    pub marks: Vec<Mark>,
    /// Output of the command.
    pub output: OutputLines,
    /// Moments at which stacks were taken, in order.
    pub stacks: Vec<StacksAt>,
    /// Number of such moments that are left out.
    pub stacks_omitted: u64,
}

/// The stacks of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StacksAt {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// Why they were taken.
    pub reason: &'static str,
    /// Threads: that at the peak of the run first, then those that work, then those that wait.
    pub threads: Vec<ThreadStack>,
    /// Number of threads that are left out; waiting ones go first.
    pub threads_omitted: u64,
}

/// A stack sample of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStack {
    /// Name of the process.
    pub process: String,
    /// PID.
    pub pid: u64,
    /// Thread id.
    pub thread: u64,
    /// Whether it waited for something.
    pub is_waiting: bool,
    /// Frames, innermost first.
    pub frames: Vec<String>,
}

impl Input {
    /// Reads everything a report page shows.
    ///
    /// # Errors
    /// [`Error::NoContent`] if there is nothing to report on, or what is wrong with the input.
    pub fn page(&self, query: &Query<'_>) -> Result<Page> {
        self.page_beside(query, None)
    }

    /// Reads everything a report page shows; `smi` is a log of the memory of devices to show beside it.
    ///
    /// # Errors
    /// [`Error::NoContent`] if there is nothing to report on, or what is wrong with an input.
    pub fn page_beside(&self, query: &Query<'_>, smi: Option<&Self>) -> Result<Page> {
        self.read_page(query, smi, Indexing::Off)
    }

    /// Reads everything a report page shows, and makes an index to zoom with.
    ///
    /// # Errors
    /// [`Error::NoContent`] if there is nothing to report on, or what is wrong with the input.
    pub fn indexed_page(&self, query: &Query<'_>) -> Result<Page> {
        self.read_page(query, None, Indexing::On)
    }

    fn read_page(&self, query: &Query<'_>, smi: Option<&Self>, indexing: Indexing) -> Result<Page> {
        self.need_rewind("a report reads its input more than once")?;
        let contents = self.contents();
        let query = &Query::new(self.anchored(&query.filter)?, query.progress);
        let mut page = Page {
            source: self.name().to_owned(),
            filters: options(&query.filter),
            origin_ns: query.filter.origin_ns,
            ..Page::default()
        };
        if contents.has_events {
            self.events_part(&mut page, query, indexing)?;
        }
        if contents.has_rows {
            self.samples_part(&mut page, query)?;
        }
        if let Some(log) = smi {
            beside::add(&mut page, self, log, query)?;
        }
        page.ranks = self.several_ranks(MOST_RANKS)?.map(|(ranks, map)| RanksPart { ranks, map });
        if self.has_calls() {
            let options = CallsOptions {
                order: CallOrder::default(),
                limit: Some(MOST_FUNCTIONS),
                tree_depth: 0,
                tree_rows: None,
            };
            // A trace that is being recorded may have none after all.
            page.calls = self.calls(query, &options).ok().map(|answer| answer.result);
        }
        page.about = about(&self.run());
        if page.events.is_none() && page.samples.is_none() {
            return Err(Error::no_content(
                format!("{} contains nothing to report on", self.name()),
                "'floodmark info' shows what it contains",
            ));
        }
        Ok(page)
    }

    fn events_part(&self, page: &mut Page, query: &Query<'_>, indexing: Indexing) -> Result<()> {
        // Both are needed, and are read at once.
        let paths = self.scope_paths()?;
        let mut folds = EventFolds::without_gaps(&query.filter, self.scope_roles()?, indexing);
        let mut gaps = Pass::new(&query.filter, folds::gaps());
        let mut source = self.events(&ScanProps::default())?;
        let fold = |batch: &EventBatch| {
            folds.update(batch);
            if folds.is_past_window() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let find_gaps = |batch: &EventBatch| gaps.update(batch);
        read_ahead_twice(source.as_mut(), self.name(), query.progress, fold, find_gaps)?;
        join_losses(&mut page.losses, &source.losses());
        if folds.is_empty() && self.trace().is_some() {
            return Ok(());
        }
        let mut part = folds.finish(source.tables());
        page.origin_ns = page.origin_ns.or(part.usage.origin_time_ns);
        part.fragmentation = gaps.finish(source.tables());
        let cuts = folds.cuts(&part);
        drop((folds, gaps, source));
        let blocks = if cuts.has_few_blocks() { None } else { SnapshotOptions::default().blocks };
        let options = SnapshotOptions { blocks, scopes: paths, ..SnapshotOptions::default() };
        let mut ledgers = part.stats.ledgers.iter().map(|ledger| (ledger.process, ledger.device));
        let first = ledgers.next();
        let has_several = ledgers.any(|domain| Some(domain) != first);
        let second = SecondPass {
            snapshots: SnapshotPass::new(&query.filter, cuts, options),
            domains: has_several.then(|| Pass::new(&query.filter, DomainSeriesFold::new(DOMAIN_POINTS))),
        };
        second.run(self, query, &mut part)?;
        self.add_pools(&mut part.watermark, query)?;
        page.events = Some(part);
        Ok(())
    }

    fn samples_part(&self, page: &mut Page, query: &Query<'_>) -> Result<()> {
        let (mut marks, mut stacks, mut count) = (Vec::new(), 0, 0u64);
        let (mut latest_ns, mut ranges) = (None, RangesFold::default());
        let end_ns = page.events.as_ref().and_then(|part| part.usage.end_time_ns);
        if let Some(end_ns) = end_ns {
            ranges.reach(end_ns);
        }
        let source = self.each_row(query.progress, |rows, tables| {
            marks.extend(rows.iter().filter_map(|row| folds::mark(row, tables)));
            for row in rows {
                ranges.row(row, tables);
            }
            for row in rows.iter().filter(|row| matches!(row, Row::Stack(_))) {
                stacks += u64::from(latest_ns.replace(row.time_ns()) != Some(row.time_ns()));
            }
            count +=
                rows.iter().filter(|row| !matches!(row, Row::Scope(_) | Row::Log(_) | Row::Call(_))).count()
                    as u64;
        })?;
        page.ranges = ranges.finish(source.tables());
        if count == 0 && marks.is_empty() {
            return Ok(());
        }
        let mut folds = RowFolds::of_known(&source.tables().subjects, marks, stacks);
        drop(source);
        let source = self.each_row(query.progress, |rows, tables| folds.update(rows, tables))?;
        join_losses(&mut page.losses, &source.losses());
        // A trace knows more of its run than samples alone show.
        let memory = self.run_memory(Some(PROCESSES))?;
        let mut memory = memory.map_or_else(|| folds.run().finish(Some(PROCESSES)), |(memory, _)| memory);
        memory.origin_time_ns = page.origin_ns.or(memory.origin_time_ns);
        page.samples = Some(folds.finish(memory));
        Ok(())
    }
}

/// Folds of the second pass.
struct SecondPass {
    snapshots: SnapshotPass,
    domains: Option<Pass<DomainSeriesFold>>,
}

impl SecondPass {
    fn run(mut self, input: &Input, query: &Query<'_>, part: &mut EventsPart) -> Result<()> {
        let mut source = input.events(&ScanProps::default())?;
        let (snapshots, domains) = (&mut self.snapshots, &mut self.domains);
        match domains {
            None => read_ahead(source.as_mut(), input.name(), query.progress, |batch| {
                snapshots.update(batch);
                ControlFlow::Continue(())
            })?,
            Some(domains) => {
                let take = |batch: &EventBatch| {
                    snapshots.update(batch);
                    ControlFlow::Continue(())
                };
                let fold = |batch: &EventBatch| domains.update(batch);
                read_ahead_twice(source.as_mut(), input.name(), query.progress, take, fold)?;
            }
        }
        let tables = source.tables();
        part.snapshots = self.snapshots.finish(tables);
        if let Some(domains) = &mut self.domains {
            part.by_domain = named_domains(domains.finish(tables), tables);
        }
        Ok(())
    }
}

/// Live bytes of every process, device and kind, by name.
fn named_domains(
    mut series: Vec<floodmark_analyze::GroupSeries<(ProcessId, i32, Kind)>>,
    tables: &Tables,
) -> Vec<(String, Vec<UsagePoint>)> {
    series.sort_by_key(|series| std::cmp::Reverse(series.peak.live_bytes));
    let several = series.iter().any(|one| one.group.0 != series[0].group.0);
    let name = |(process, device, kind): (ProcessId, i32, Kind)| {
        let mut words = vec![kind.name().to_owned()];
        words.extend((device != NO_DEVICE).then(|| format!("device {device}")));
        if several {
            let pid = tables.process(process).map_or(0, |process| process.pid);
            words.push(if pid == 0 { format!("process {}", process.0) } else { format!("pid {pid}") });
        }
        words.join(", ")
    };
    series.into_iter().map(|series| (name(series.group), series.points)).collect()
}

/// Returns the options that select what `filter` does.
fn options(filter: &Filter) -> String {
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

/// Returns the facts that are known of a run.
pub fn about(run: &Run) -> Vec<(String, String)> {
    // Times of an imported file are those of its events, not of a run.
    let is_run = run.command.is_some();
    let (start_ns, end_ns) = (run.start_ns.filter(|_| is_run), run.end_ns.filter(|_| is_run));
    let span = start_ns.zip(end_ns).map(|(from, to)| to.saturating_sub(from).max(0) as u64);
    let facts = [
        ("command", run.command.clone()),
        ("host", run.host.clone()),
        ("user", run.user.clone()),
        ("began", start_ns.map(format_time_ns)),
        ("took", span.map(format_duration_ns)),
        ("exit status", run.exit_status.map(|status| status.to_string())),
        ("imported from", (!run.imported_files.is_empty()).then(|| run.imported_files.join(", "))),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
