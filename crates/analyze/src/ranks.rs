//! Ranks of a job side by side: which one peaks, when, how far from the others, and what nodes hold.
//!
//! The memory of a rank is the sum of the resident bytes of its processes: a script and what it runs have one rank. A
//! process without a rank of its own, under a recorder that wraps one rank, belongs to that rank. Processes without any
//! rank, such as launchers, count in their node alone.

pub(crate) mod grid;
mod output;
pub(crate) mod result;

use std::collections::{BTreeMap, BTreeSet};

use floodmark_event::{Metric, SampleRow, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;

use crate::run::{PeakStackFold, began_since, highest_rss};
use crate::samples::{Observed, SampleState, SampleVisitor, TakenSample};
use grid::{FIRST_SHIFT, GridRow, MOST_COLUMNS};

pub use output::{LineLabels, LineRanks, RankOutputFold, RankedOutput, RankedRow};
pub use result::{Imbalance, NodeMemory, Quantile, RankBand, RankMap, RankMemory, Ranks};

/// Folds samples into [`Ranks`].
///
/// Partial results merge if no subject has samples in both, such as those of different hosts. A rank that is in both
/// parts then gets the sum of its peaks, which the true one cannot exceed.
#[derive(Clone, Debug)]
pub struct RanksFold {
    samples: SampleState,
    jobs: JobRanks,
}

/// Ranks and nodes so far.
#[derive(Clone, Debug, Default)]
struct JobRanks {
    /// Node of each recording, by its process.
    node_of: FxHashMap<u64, usize>,
    nodes: Vec<NodeSoFar>,
    ranks: Vec<RankSoFar>,
    of_rank: BTreeMap<u64, usize>,
    /// Rank that a recording wraps.
    wrapped: FxHashMap<u64, u64>,
    /// Ranks that are known to belong to the job, whether they have samples or not.
    expected: BTreeSet<u64>,
    /// What each thing counts for, by the index of what was observed.
    counted: Vec<Counted>,
    /// Things with a new value in this sweep.
    moved: Vec<usize>,
    shift: u32,
}

/// What a process or a job counts for now.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    rank: Option<usize>,
    node: usize,
    bytes: u64,
    pss_bytes: u64,
}

/// A rank so far.
#[derive(Clone, Debug)]
struct RankSoFar {
    rank: u64,
    node: usize,
    now: u64,
    peak: HighestTotal,
    row: GridRow,
    /// Its processes, by the index of what was observed.
    processes: Vec<usize>,
    is_bound: bool,
}

/// A node so far.
#[derive(Clone, Debug, Default)]
struct NodeSoFar {
    host: String,
    rss: u64,
    pss: u64,
    has_pss: bool,
    peak_rss: HighestTotal,
    peak_pss: HighestTotal,
    processes: u64,
}

/// The highest of sums, and its first instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HighestTotal {
    bytes: u64,
    time_ns: i64,
}

impl HighestTotal {
    fn reach(&mut self, bytes: u64, time_ns: i64) {
        if bytes > self.bytes {
            *self = Self { bytes, time_ns };
        }
    }

    fn add(&mut self, other: Self) {
        if other.bytes > 0 {
            self.time_ns = if self.bytes >= other.bytes { self.time_ns } else { other.time_ns };
            self.bytes = self.bytes.saturating_add(other.bytes);
        }
    }
}

impl RanksFold {
    /// Starts with what was observed and the host of each recording, by its process.
    pub fn new(subjects: &BTreeMap<u64, SubjectRow>, hosts: &BTreeMap<u32, String>) -> Self {
        let mut jobs = JobRanks { shift: FIRST_SHIFT, ..JobRanks::default() };
        for (recording, host) in hosts {
            let node = jobs.node(host);
            jobs.node_of.insert(u64::from(*recording), node);
        }
        let mut fold = Self { samples: SampleState::default(), jobs };
        fold.learn(subjects);
        fold
    }

    /// Learns what is known of subjects by now; see [`SampleState::learn`].
    pub fn learn(&mut self, subjects: &BTreeMap<u64, SubjectRow>) {
        self.samples.learn(subjects);
        self.jobs.counted.resize(self.samples.observed().len(), Counted::default());
    }

    /// Learns which ranks belong to the job. The result names those of them that have no samples.
    pub fn expect(&mut self, ranks: impl IntoIterator<Item = u64>) {
        self.jobs.expected.extend(ranks);
    }

    /// Takes in more samples.
    pub fn update(&mut self, rows: &[SampleRow]) {
        for row in rows {
            self.samples.push(row, &mut self.jobs);
        }
    }

    /// Takes in what `other` found in samples of other subjects.
    pub fn merge(&mut self, mut other: Self) {
        self.samples.finish(&mut self.jobs);
        other.samples.finish(&mut other.jobs);
        let offset = self.samples.observed().len();
        let (ours, theirs) = (&mut self.jobs, other.jobs);
        let mut theirs = theirs;
        while ours.shift < theirs.shift {
            ours.coarsen();
        }
        while theirs.shift < ours.shift {
            theirs.coarsen();
        }
        let nodes: Vec<usize> = theirs.nodes.iter().map(|node| ours.node(&node.host)).collect();
        for (node, at) in theirs.nodes.iter().zip(&nodes) {
            ours.nodes[*at].merge(node);
        }
        for rank in theirs.ranks {
            let at = ours.rank(rank.rank, nodes[rank.node]);
            let known = &mut ours.ranks[at];
            known.is_bound |= rank.is_bound || (known.peak.bytes > 0 && rank.peak.bytes > 0);
            known.peak.add(rank.peak);
            known.row.add(&rank.row);
            known.processes.extend(rank.processes.iter().map(|process| process + offset));
        }
        ours.wrapped.extend(theirs.wrapped);
        ours.expected.extend(theirs.expected);
        // All of it has ended.
        ours.counted.extend(theirs.counted.iter().map(|_| Counted::default()));
        ours.fit();
        self.samples.merge(other.samples);
    }

    /// Returns the result so far; the fold may go on afterwards. The list of ranks has at most `limit` entries.
    pub fn finish(&self, limit: Option<usize>) -> Ranks {
        let mut whole = self.clone();
        whole.samples.finish(&mut whole.jobs);
        result::ranks(&whole, limit.unwrap_or(usize::MAX))
    }

    /// Takes in what the last sweep showed: nothing more comes.
    pub fn complete(&mut self) {
        self.samples.finish(&mut self.jobs);
    }

    /// Whether no rank was found, not even one without samples.
    pub fn is_empty(&self) -> bool {
        self.jobs.ranks.is_empty() && self.jobs.wrapped.is_empty() && self.jobs.expected.is_empty()
    }

    /// Returns the memory of all ranks over time; none if there are no ranks.
    pub fn map(&self) -> Option<RankMap> {
        let mut whole = self.clone();
        whole.samples.finish(&mut whole.jobs);
        result::map(&whole)
    }

    /// Recordings that wrap one rank each, by their process.
    pub fn wrapped_ranks(&self) -> BTreeMap<u32, u64> {
        let known = self.jobs.wrapped.iter();
        known.filter_map(|(recording, rank)| Some((u32::try_from(*recording).ok()?, *rank))).collect()
    }

    /// Returns a fold that finds the stack which a rank had at its peak; none if there is no such rank.
    pub fn peak_stack(&self, rank: u64, peak_ns: i64) -> Option<PeakStackFold> {
        let one = &self.jobs.ranks[*self.jobs.of_rank.get(&rank)?];
        let subjects = self.samples.subjects().filter(|(_, at)| one.processes.contains(at));
        Some(PeakStackFold::of_processes(
            peak_ns,
            subjects.map(|(id, at)| (id, &self.samples.observed()[at])),
        ))
    }
}

impl SampleVisitor for JobRanks {
    fn sample(&mut self, state: &SampleState, sample: &TakenSample) {
        let TakenSample { at, row, .. } = *sample;
        let one = &state.observed()[at];
        match (one.kind, row.metric) {
            (SubjectKind::Job, Metric::Rank) => {
                self.wrapped.insert(recording(one), row.value);
            }
            (SubjectKind::Process, Metric::Rss | Metric::Rank) | (SubjectKind::Job, Metric::Pss) => {
                self.moved.push(at);
            }
            _ => {}
        }
    }

    fn ended(&mut self, state: &SampleState, ended: &[usize], end_ns: i64) {
        for at in ended {
            self.count(&state.observed()[*at], *at, 0, 0);
        }
        for at in ended {
            self.show(*at, end_ns);
        }
    }

    fn settled(&mut self, state: &SampleState, time_ns: i64) {
        let mut moved = std::mem::take(&mut self.moved);
        moved.sort_unstable();
        moved.dedup();
        for at in &moved {
            let one = &state.observed()[*at];
            let is_job = one.kind == SubjectKind::Job;
            let (bytes, pss) = if is_job { (0, one.last(Metric::Pss)) } else { (one.last(Metric::Rss), 0) };
            self.count(one, *at, bytes, pss);
        }
        for at in &moved {
            self.show(*at, time_ns);
        }
        moved.clear();
        self.moved = moved;
    }
}

/// Process that recorded something.
fn recording(one: &Observed) -> u64 {
    one.subject >> 32
}

impl JobRanks {
    fn node(&mut self, host: &str) -> usize {
        let known = self.nodes.iter().position(|node| node.host == host);
        known.unwrap_or_else(|| {
            self.nodes.push(NodeSoFar { host: host.to_owned(), ..NodeSoFar::default() });
            self.nodes.len() - 1
        })
    }

    fn node_of(&mut self, one: &Observed) -> usize {
        match self.node_of.get(&recording(one)) {
            Some(node) => *node,
            None => {
                let node = self.node("");
                self.node_of.insert(recording(one), node);
                node
            }
        }
    }

    fn rank(&mut self, rank: u64, node: usize) -> usize {
        let next = self.ranks.len();
        let at = *self.of_rank.entry(rank).or_insert(next);
        if at == next {
            let (peak, row) = (HighestTotal::default(), GridRow::default());
            self.ranks.push(RankSoFar {
                rank,
                node,
                now: 0,
                peak,
                row,
                processes: Vec::new(),
                is_bound: false,
            });
        }
        at
    }

    /// Changes what a process or a job counts for.
    fn count(&mut self, one: &Observed, at: usize, bytes: u64, pss_bytes: u64) {
        let node = self.node_of(one);
        let before = self.counted[at];
        let mut rank = before.rank;
        if rank.is_none() && one.kind == SubjectKind::Process {
            let number = one.rank().or_else(|| self.wrapped.get(&recording(one)).copied());
            rank = number.map(|number| self.rank(number, node));
            if let Some(rank) = rank {
                self.ranks[rank].processes.push(at);
                // What it had while its rank was not known counted in its node alone.
                self.ranks[rank].now = self.ranks[rank].now.saturating_add(before.bytes);
            }
        }
        if let Some(rank) = rank {
            let now = &mut self.ranks[rank].now;
            *now = now.saturating_sub(before.bytes).saturating_add(bytes);
        }
        let number = node;
        let node = &mut self.nodes[node];
        node.rss = node.rss.saturating_sub(before.bytes).saturating_add(bytes);
        node.pss = node.pss.saturating_sub(before.pss_bytes).saturating_add(pss_bytes);
        node.has_pss |= pss_bytes > 0;
        node.processes += u64::from(one.kind == SubjectKind::Process && before.bytes == 0 && bytes > 0);
        self.counted[at] = Counted { rank, node: number, bytes, pss_bytes };
    }

    /// Takes the sums that a thing is part of over into peaks and the grid.
    fn show(&mut self, at: usize, time_ns: i64) {
        let Counted { rank, node, .. } = self.counted[at];
        let node = &mut self.nodes[node];
        node.peak_rss.reach(node.rss, time_ns);
        node.peak_pss.reach(node.pss, time_ns);
        let Some(rank) = rank else { return };
        let is_far = |first: i64, shift: u32| (time_ns >> shift).saturating_sub(first) >= MOST_COLUMNS as i64;
        while self.ranks[rank].row.first().is_some_and(|first| is_far(first, self.shift)) {
            self.coarsen();
        }
        let one = &mut self.ranks[rank];
        one.peak.reach(one.now, time_ns);
        one.row.set(time_ns >> self.shift, one.now);
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        self.ranks.iter_mut().for_each(|rank| rank.row.coarsen());
    }

    /// Makes intervals longer until all ranks together have few enough of them.
    fn fit(&mut self) {
        while self.shift < 62
            && self.columns().is_some_and(|(first, end)| (end - first) as usize > MOST_COLUMNS)
        {
            self.coarsen();
        }
    }

    /// First interval of all ranks, and the one after the last.
    fn columns(&self) -> Option<(i64, i64)> {
        let first = self.ranks.iter().filter_map(|rank| rank.row.first()).min()?;
        let end = self.ranks.iter().map(|rank| rank.row.end()).max()?;
        Some((first, end))
    }
}

impl RankSoFar {
    /// The peak, with what the kernel's high-water marks add to that of one process.
    fn highest(&self, state: &SampleState) -> HighestTotal {
        let first_ns = state.span_ns().map_or(0, |(first, _)| first);
        let mut peak = self.peak;
        for at in &self.processes {
            let one = &state.observed()[*at];
            if began_since(one, first_ns) {
                let time_ns = one.gauge(Metric::Rss).map_or(self.peak.time_ns, |gauge| gauge.high_ns);
                peak.reach(highest_rss(one), time_ns);
            }
        }
        peak
    }
}

impl NodeSoFar {
    fn merge(&mut self, other: &Self) {
        self.rss = self.rss.saturating_add(other.rss);
        self.pss = self.pss.saturating_add(other.pss);
        self.has_pss |= other.has_pss;
        self.peak_rss.add(other.peak_rss);
        self.peak_pss.add(other.peak_pss);
        self.processes += other.processes;
    }
}
