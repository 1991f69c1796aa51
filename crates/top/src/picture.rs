//! What there is to see at one moment, gathered from folds that go on.
//!
//! Everything here is a result of a fold or text that was recorded; nothing knows how it is drawn.

use std::collections::{BTreeMap, BTreeSet};

use floodmark_analyze::{
    DeviceNow, GroupBy, Mark, Pass, ProcessNow, RunFold, SubjectSeries, SubjectSeriesFold, Usage, UsageFold,
    UsageMode, Watermark, WatermarkFold, WatermarkOptions,
};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::units::Instant;
use floodmark_event::{EventBatch, Kind, Metric, SampleRow, ScopeAction, SubjectKind, Tables};
use floodmark_inspect::Loss;

use super::tail::Tail;

/// Points that are kept of a line: enough for a wide screen at every zoom that makes sense.
const POINTS: usize = 6000;
/// Processes whose own lines are kept where there is no job that stands for all.
const PROCESSES: usize = 1000;

/// How far the recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is nothing yet.
    #[default]
    Beginning,
    /// More will come.
    Recording,
    /// All of it was read.
    Ended,
}

/// Where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: String,
    pub(crate) command: Option<String>,
}

/// All there is to see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    pub(crate) origin: Origin,
    pub(crate) progress: Progress,
    /// How it ended, in words.
    pub(crate) ending: Option<String>,
    /// First and last instant.
    pub(crate) span: Option<(i64, i64)>,
    /// Instant that times count from; the first one if none.
    pub(crate) origin_ns: Option<i64>,
    pub(crate) lines: Vec<Line>,
    pub(crate) processes: Vec<ProcessNow>,
    /// Node of each process, by what sampled it; empty unless there are several.
    pub(crate) nodes: BTreeMap<u32, String>,
    pub(crate) devices: Vec<DeviceNow>,
    /// Who holds blocks, at the peak and now.
    pub(crate) holders: Option<[Watermark; 2]>,
    pub(crate) phases: Vec<Phase>,
    /// The last lines of output.
    pub(crate) output: Vec<String>,
    pub(crate) losses: Vec<Loss>,
}

/// Values over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Instants and the values from there on.
    pub(crate) points: Vec<(i64, u64)>,
    pub(crate) peak_bytes: u64,
    pub(crate) peak_time_ns: Option<i64>,
    pub(crate) now_bytes: u64,
}

/// Time from a mark to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phase {
    /// What the mark says; none for what was before the first.
    pub(crate) name: Option<String>,
    pub(crate) start_ns: Option<i64>,
    pub(crate) peak_bytes: u64,
    pub(crate) peak_time_ns: Option<i64>,
}

/// Gathers what comes.
pub(crate) struct Gather {
    run: RunFold,
    series: SubjectSeriesFold,
    pass: Pass<(UsageFold, WatermarkFold, WatermarkFold)>,
    marks: Vec<Mark>,
    output: Tail,
    span: Option<(i64, i64)>,
    samples: u64,
    events: u64,
    batch: Vec<SampleRow>,
}

impl Gather {
    pub(crate) fn new() -> Self {
        let by_site = |at| WatermarkOptions {
            at,
            group_by: vec![GroupBy::Site],
            limit: Some(0),
            ..WatermarkOptions::default()
        };
        let folds = (
            UsageFold::new(UsageMode::Reduced(POINTS)),
            WatermarkFold::new(by_site(None)),
            // All that is live is live before the end of time.
            WatermarkFold::new(by_site(Some(Instant::At(i64::MAX)))),
        );
        Self {
            run: RunFold::new(&BTreeMap::default(), Vec::new()),
            series: SubjectSeriesFold::new(&BTreeMap::default(), POINTS),
            pass: Pass::new(&Filter::default(), folds),
            marks: Vec::new(),
            output: Tail::default(),
            span: None,
            samples: 0,
            events: 0,
            batch: Vec::new(),
        }
    }

    /// Takes in events.
    pub(crate) fn events(&mut self, batch: &EventBatch) {
        self.events += batch.len() as u64;
        for row in [0, batch.len().wrapping_sub(1)].into_iter().filter(|row| *row < batch.len()) {
            self.reach(batch.time_ns.at(row));
        }
        self.pass.update(batch);
    }

    /// Takes in rows, with what is known of subjects by now.
    pub(crate) fn rows(&mut self, rows: &[Row], tables: &Tables) {
        self.learn(tables);
        let of = |kind| tables.subjects.values().filter(move |subject| subject.kind == kind);
        let has_job = of(SubjectKind::Job).next().is_some() || of(SubjectKind::Process).count() > PROCESSES;
        for row in rows {
            self.reach(row.time_ns());
            match row {
                Row::Sample(row) => {
                    self.samples += 1;
                    self.run.update(std::slice::from_ref(row));
                    let kind = tables.subjects.get(&row.subject).map(|subject| subject.kind);
                    if !(has_job && kind == Some(SubjectKind::Process)) {
                        self.batch.push(*row);
                    }
                }
                Row::Scope(row) if row.action == ScopeAction::Mark => {
                    let mark = Mark { time_ns: row.time_ns, name: tables.string(row.name).to_owned() };
                    self.marks.push(mark.clone());
                    self.run.mark(mark);
                }
                Row::Output(row) => self.output.add(&row.bytes),
                Row::Scope(_) | Row::Stack(_) | Row::Log(_) | Row::Call(_) => {}
            }
        }
        self.series.update(&self.batch);
        self.batch.clear();
    }

    /// Learns what became of subjects, which may have no rows of its own.
    pub(crate) fn learn(&mut self, tables: &Tables) {
        self.run.learn(&tables.subjects);
        self.series.learn(&tables.subjects);
    }

    fn reach(&mut self, time_ns: i64) {
        let (first, last) = self.span.unwrap_or((time_ns, time_ns));
        self.span = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// Returns the picture so far; ids of events are those of `tables`. Where it comes from, how far it is
    /// and what is missing is for others to say.
    pub(crate) fn picture(&mut self, tables: &Tables) -> Picture {
        let (mut lines, now) = (Vec::new(), self.run.now());
        let memory = self.run.finish(Some(0));
        if self.samples > 0 {
            lines = sampled(&self.series.finish(), tables);
            if let Some(total) = lines.iter_mut().find(|line| line.name == TOTAL) {
                // The kernel's own marks know of peaks between two samples.
                if memory.peak_rss_bytes >= total.peak_bytes {
                    (total.peak_bytes, total.peak_time_ns) = (memory.peak_rss_bytes, memory.peak_time_ns);
                }
                total.now_bytes = now.rss_bytes;
            }
        }
        let mut holders = None;
        if self.events > 0 {
            let (usage, peak, live) = self.pass.finish(tables);
            lines.insert(usize::from(!lines.is_empty()), live_line(&usage));
            holders = Some([peak, live]);
        }
        let mut phases: Vec<Phase> = memory.phases.into_iter().map(Phase::from).collect();
        if self.samples == 0 {
            phases = phases_of(&self.marks, lines.first());
        }
        Picture {
            span: self.span,
            lines,
            nodes: nodes_of(&now.processes, tables),
            processes: now.processes,
            devices: now.devices,
            holders,
            phases,
            output: self.output.lines(),
            ..Picture::default()
        }
    }
}

/// Returns the nodes on which processes were sampled, if there are several.
fn nodes_of(processes: &[ProcessNow], tables: &Tables) -> BTreeMap<u32, String> {
    let recorders: BTreeSet<u32> = processes.iter().map(|one| one.recorder).collect();
    let of = tables.processes.iter().filter(|process| recorders.contains(&process.id.0));
    let nodes: BTreeMap<u32, String> = of.map(|process| (process.id.0, process.host.clone())).collect();
    let names: BTreeSet<&String> = nodes.values().collect();
    if names.len() > 1 { nodes } else { BTreeMap::new() }
}

/// Name of the line of all processes.
pub(crate) const TOTAL: &str = "resident memory";

fn sampled(series: &[SubjectSeries], tables: &Tables) -> Vec<Line> {
    let line = |name: String, one: &SubjectSeries| Line {
        name,
        points: one.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect(),
        peak_bytes: one.peak_bytes,
        peak_time_ns: (one.peak_bytes > 0).then_some(one.peak_time_ns),
        now_bytes: one.points.last().map_or(0, |point| point.live_bytes),
    };
    let total = series.iter().filter(|one| one.subject.is_none() && one.metric == Metric::Rss);
    let mut lines: Vec<Line> = total.map(|one| line(TOTAL.to_owned(), one)).collect();
    for one in series.iter().filter(|one| one.metric == Metric::GpuUsed) {
        let subject = one.subject.and_then(|subject| tables.subjects.get(&subject));
        if let Some(subject) = subject.filter(|subject| subject.kind == SubjectKind::Device) {
            lines.push(line(format!("device {} in use", subject.number), one));
        }
    }
    if lines.is_empty() {
        let named = series.iter().take(8).map(|one| {
            let subject = one.subject.and_then(|subject| tables.subjects.get(&subject));
            let whose = subject.map_or_else(|| "all".to_owned(), |subject| subject.name.clone());
            line(format!("{} of {whose}", one.metric.name()), one)
        });
        lines.extend(named);
    }
    lines
}

fn live_line(usage: &Usage) -> Line {
    let kinds: Vec<&str> =
        usage.kinds.iter().filter(|kind| **kind != Kind::Unknown).map(|kind| kind.name()).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    Line {
        name: format!("live blocks{kinds}"),
        points: usage.points.iter().map(|point| (point.time_ns, point.live_bytes)).collect(),
        peak_bytes: usage.peak_bytes,
        peak_time_ns: usage.peak_time_ns,
        now_bytes: usage.live_bytes,
    }
}

impl From<floodmark_analyze::PhaseMemory> for Phase {
    fn from(phase: floodmark_analyze::PhaseMemory) -> Self {
        Self {
            name: phase.name,
            start_ns: phase.start_time_ns,
            peak_bytes: phase.peak_rss_bytes,
            peak_time_ns: phase.peak_time_ns,
        }
    }
}

/// Phases of a line without samples: the highest of the points that are drawn.
fn phases_of(marks: &[Mark], line: Option<&Line>) -> Vec<Phase> {
    if marks.is_empty() {
        return Vec::new();
    }
    let mut phases = vec![Phase::default()];
    phases.extend(marks.iter().map(|mark| Phase {
        name: Some(mark.name.clone()),
        start_ns: Some(mark.time_ns),
        ..Phase::default()
    }));
    for (time_ns, bytes) in line.into_iter().flat_map(|line| &line.points) {
        let phase = &mut phases[marks.partition_point(|mark| mark.time_ns <= *time_ns)];
        if *bytes > phase.peak_bytes {
            (phase.peak_bytes, phase.peak_time_ns) = (*bytes, Some(*time_ns));
        }
    }
    phases
}
