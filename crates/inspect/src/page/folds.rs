//! What a report finds out, as folds that can be asked again and again while more comes.

use std::collections::BTreeMap;

use floodmark_analyze::usage::index::UsageIndexFold;
use floodmark_analyze::{
    Caveats, CaveatsFold, Cuts, FragmentationFold, FragmentationOptions, GroupBy, HoldersFold, LeaksFold,
    LeaksOptions, LifetimesFold, LifetimesOptions, LineLabels, LineRanks, Mark, Pass, RunFold, RunMemory,
    ScopeRoles, Snapshots, StatsFold, SubjectSeriesFold, UsageFold, UsageMode, WatermarkOptions,
};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::{EventBatch, Metric, ScopeAction, SubjectKind, SubjectRow, Tables};

use super::stacks::Moments;
use super::{EventsPart, OutputLines, SamplesPart};

/// Points of the timeline of events, and of each line of samples.
const POINTS: usize = 20_000;
const SAMPLE_POINTS: usize = 4000;
/// Blocks that are listed.
const BLOCKS: usize = 200;

/// What is found out about events.
type Folds = (Counts, HoldersFold, LeaksFold, LifetimesFold, Option<FragmentationFold>);
type Counts = (StatsFold, UsageFold, CaveatsFold, Option<UsageIndexFold>);

/// Whether to make an index of live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// No index.
    Off,
    /// An index, if the input can have one.
    On,
}

/// What events tell, so far.
pub struct EventFolds {
    pass: Pass<Folds>,
    events_read: u64,
}

impl EventFolds {
    /// Starts with what `narrow` selects; `scopes` says what scopes are about.
    pub fn new(filter: &Filter, scopes: ScopeRoles) -> Self {
        Self::start(filter, scopes, Some(gaps()), Indexing::Off)
    }

    /// The same for who looks at gaps elsewhere: that takes longer than all else together.
    pub fn without_gaps(filter: &Filter, scopes: ScopeRoles, indexing: Indexing) -> Self {
        Self::start(filter, scopes, None, indexing)
    }

    fn start(
        filter: &Filter,
        scopes: ScopeRoles,
        gaps: Option<FragmentationFold>,
        indexing: Indexing,
    ) -> Self {
        let ways = [GroupBy::Thread, GroupBy::Stream, GroupBy::Size, GroupBy::Device, GroupBy::Process];
        let watermark =
            WatermarkOptions { group_by: ways.to_vec(), limit: Some(BLOCKS), ..WatermarkOptions::default() };
        let leaks = LeaksOptions { limit: Some(BLOCKS), scopes, ..LeaksOptions::default() };
        let folds = (
            (
                StatsFold::default(),
                UsageFold::new(UsageMode::Reduced(POINTS)),
                CaveatsFold::default(),
                (indexing == Indexing::On).then(UsageIndexFold::default),
            ),
            HoldersFold::new(watermark),
            LeaksFold::new(leaks),
            LifetimesFold::new(LifetimesOptions { limit: Some(BLOCKS), ..LifetimesOptions::default() }),
            gaps,
        );
        Self { pass: Pass::new(filter, folds), events_read: 0 }
    }

    /// Takes in more events.
    pub fn update(&mut self, batch: &EventBatch) {
        self.events_read += batch.len() as u64;
        self.pass.update(batch);
    }

    /// Whether reading on is of no use.
    pub fn is_past_window(&self) -> bool {
        self.pass.is_past_window()
    }

    /// Whether there was no event at all.
    pub fn is_empty(&self) -> bool {
        self.events_read == 0
    }

    /// What is known so far.
    pub fn finish(&mut self, tables: &Tables) -> EventsPart {
        let ((stats, usage, caveats, usage_index), (watermark, holders), leaks, lifetimes, fragmentation) =
            self.pass.finish(tables);
        let caveats = Caveats { events_read: self.events_read, ..caveats };
        let (leaks, snapshots) = (Some(leaks), Snapshots::default());
        let fragmentation = fragmentation.unwrap_or_default();
        let by_domain = Vec::new();
        EventsPart {
            stats,
            usage,
            usage_index: usage_index.flatten(),
            watermark,
            holders,
            leaks,
            lifetimes,
            fragmentation,
            snapshots,
            by_domain,
            overlay: None,
            caveats,
        }
    }

    /// Which instants are worth a look, by what was found.
    pub fn cuts(&self, part: &EventsPart) -> Cuts {
        Cuts::choose(&part.usage, &self.pass)
    }
}

/// What looks at gaps between blocks.
pub(super) fn gaps() -> FragmentationFold {
    FragmentationFold::new(FragmentationOptions { limit: Some(BLOCKS), ..FragmentationOptions::default() })
}

/// How subjects and marks come to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowing {
    /// They are, all of them.
    Beforehand,
    /// While rows come.
    Meanwhile,
}

/// What samples, output and stacks tell, so far.
pub struct RowFolds {
    knowing: Knowing,
    subjects: BTreeMap<u64, SubjectRow>,
    marks: Vec<Mark>,
    run: RunFold,
    series: SubjectSeriesFold,
    output: OutputLines,
    /// Ranks whose output is read by a recorder of its own, by that recorder.
    output_ranks: BTreeMap<u32, u64>,
    stacks: Moments,
    is_empty: bool,
}

impl RowFolds {
    /// Starts with all subjects, all marks and the number of moments with stacks.
    pub fn of_known(subjects: &BTreeMap<u64, SubjectRow>, marks: Vec<Mark>, stacks: u64) -> Self {
        Self {
            knowing: Knowing::Beforehand,
            subjects: subjects.clone(),
            run: RunFold::new(subjects, marks.clone()),
            marks,
            series: SubjectSeriesFold::new(subjects, SAMPLE_POINTS),
            output: OutputLines::default(),
            output_ranks: BTreeMap::new(),
            stacks: Moments::new(stacks),
            is_empty: true,
        }
    }

    /// Starts with nothing: subjects and marks come while rows do.
    pub fn of_growing() -> Self {
        Self { knowing: Knowing::Meanwhile, ..Self::of_known(&BTreeMap::new(), Vec::new(), 0) }
    }

    /// Takes in more rows.
    pub fn update(&mut self, rows: &[Row], tables: &Tables) {
        if self.knowing == Knowing::Meanwhile {
            self.learn(rows, tables);
        }
        let mut samples = Vec::new();
        for row in rows {
            match row {
                Row::Sample(row) => {
                    if row.metric == Metric::Rank && is_job(tables.subjects.get(&row.subject)) {
                        self.output_ranks.insert((row.subject >> 32) as u32, row.value);
                    }
                    samples.push(*row);
                }
                Row::Output(row) => self.output.add(row),
                Row::Stack(row) => self.stacks.add(row, tables),
                Row::Scope(row) if row.action == ScopeAction::Mark => {}
                Row::Scope(_) | Row::Log(_) | Row::Call(_) => continue,
            }
            self.is_empty = false;
        }
        self.run.update(&samples);
        self.series.update(&samples);
    }

    /// Marks and ends go before samples that are later.
    fn learn(&mut self, rows: &[Row], tables: &Tables) {
        if self.subjects != tables.subjects {
            self.subjects.clone_from(&tables.subjects);
            self.run.learn(&self.subjects);
            self.series.learn(&self.subjects);
        }
        for mark in rows.iter().filter_map(|row| mark(row, tables)) {
            self.run.mark(mark.clone());
            self.marks.push(mark);
        }
    }

    /// Whether there was nothing to show.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// How high memory rose.
    pub fn run(&self) -> &RunFold {
        &self.run
    }

    /// Which rank wrote which line: a recorder's only one, or that of the launcher's label.
    fn line_ranks(&self) -> LineRanks {
        let mut jobs = self.subjects.values().filter(|subject| is_job(Some(subject)));
        let labels = jobs.find_map(|job| LineLabels::of_command(&job.detail));
        LineRanks::new(self.output_ranks.clone(), labels)
    }

    /// What is known so far; `memory` is what [`run`](Self::run) found, or what a trace knows beyond that.
    pub fn finish(&self, memory: RunMemory) -> SamplesPart {
        let mut output = self.output.clone();
        output.finish(&self.line_ranks());
        let (stacks, stacks_omitted) = self.stacks.finish(memory.peak_stack.as_ref());
        SamplesPart {
            memory,
            subjects: self.subjects.clone(),
            series: self.series.finish(),
            marks: self.marks.clone(),
            output,
            stacks,
            stacks_omitted,
        }
    }
}

fn is_job(subject: Option<&SubjectRow>) -> bool {
    subject.is_some_and(|subject| subject.kind == SubjectKind::Job)
}

/// The mark that a row is, if it is one.
pub(crate) fn mark(row: &Row, tables: &Tables) -> Option<Mark> {
    match row {
        Row::Scope(row) => Mark::of(row, tables),
        _ => None,
    }
}
