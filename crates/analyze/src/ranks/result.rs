//! What is known of the ranks of a job, as views and programs get it.

use serde::{Deserialize, Serialize};

use super::{HighestTotal, RankSoFar, RanksFold};
use crate::run::{PeakStack, highest_rss};

/// Shares of the ranks whose peaks are listed.
pub(crate) const SHARES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];
/// A rank is an outlier if its peak is this many times the usual distance from the median, ...
const FAR: f64 = 5.0;
/// ... which the median distance estimates if multiplied by this, ...
const USUAL: f64 = 1.4826;
/// ... and at least this share of the median away from it.
const NOTABLE: f64 = 0.05;

/// The ranks of a job side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// Instant that elapsed times count from: the start of the run where it is known, which samples do not state.
    #[serde(default)]
    pub origin_time_ns: Option<i64>,
    /// Time of the first sample.
    pub first_time_ns: Option<i64>,
    /// Time of the last sample.
    pub last_time_ns: Option<i64>,
    /// Number of ranks.
    pub ranks: u64,
    /// Ranks of the job whose memory could not be read; no other figure includes them.
    #[serde(default)]
    pub ranks_without_samples: Vec<u64>,
    /// Rank with the highest peak, the lowest of those if there are several.
    pub highest_rank: Option<u64>,
    /// How far apart the peaks of ranks are.
    pub imbalance: Imbalance,
    /// Peaks that a share of the ranks does not exceed.
    pub quantiles: Vec<Quantile>,
    /// The ranks, highest peak first.
    pub rank_list: Vec<RankMemory>,
    /// How many more there are.
    pub ranks_omitted: u64,
    /// The ranks with the lowest peaks, lowest first, of those that were left out.
    pub lowest: Vec<RankMemory>,
    /// Numbers of the ranks whose peak is far from those of the others.
    pub outliers: Vec<u64>,
    /// The nodes, highest first.
    pub nodes: Vec<NodeMemory>,
    /// What the rank with the highest peak was doing then, if stacks were taken; samples do not say.
    #[serde(default)]
    pub peak_stack: Option<PeakStack>,
}

/// How far apart the peaks of ranks are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Imbalance {
    /// Mean of the peaks.
    pub mean_bytes: u64,
    /// Median of the peaks.
    pub median_bytes: u64,
    /// Highest peak over the mean; 1 if all are the same.
    pub highest_to_mean: f64,
    /// Highest peak over the median.
    pub highest_to_median: f64,
    /// Standard deviation over the mean.
    pub variation: f64,
}

/// A peak that a share of the ranks does not exceed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// Share of the ranks, from 0 to 1.
    pub share: f64,
    /// Their highest peak.
    pub bytes: u64,
    /// A rank with that peak.
    pub rank: u64,
}

/// How much memory one rank took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankMemory {
    /// The rank.
    pub rank: u64,
    /// Host that it ran on; empty if not known.
    pub host: String,
    /// Most resident bytes of its processes together.
    pub peak_rss_bytes: u64,
    /// When that was.
    pub peak_time_ns: i64,
    /// Whether parts were merged, so that the peak is an upper bound.
    pub peak_is_bound: bool,
    /// Its peak over the mean of all ranks.
    pub peak_to_mean: f64,
    /// Number of its processes.
    pub processes: u64,
    /// PID of the largest of them.
    pub pid: u64,
    /// Name of that process.
    pub name: String,
    /// Last line that it wrote before its peak, where it is known which rank wrote a line.
    #[serde(default)]
    pub last_output: Option<String>,
}

/// How much memory one node took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// The host; empty if not known.
    pub host: String,
    /// Number of ranks that ran on it.
    pub ranks: u64,
    /// Number of processes.
    pub processes: u64,
    /// Highest sum of resident bytes of its processes, in which shared memory counts several times.
    pub peak_rss_bytes: u64,
    /// When that was.
    pub peak_time_ns: i64,
    /// Highest total in which shared memory counts once, where it is known.
    pub peak_pss_bytes: Option<u64>,
    /// When that was.
    pub peak_pss_time_ns: Option<i64>,
    /// Rank with the highest peak on it.
    pub highest_rank: Option<u64>,
}

/// Memory of all ranks over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMap {
    /// Start of the first interval.
    pub first_ns: i64,
    /// Length of an interval.
    pub interval_ns: i64,
    /// The ranks, in order.
    pub ranks: Vec<u64>,
    /// Highest resident bytes of each rank in each interval; none where it did not run.
    pub values: Vec<Vec<Option<u64>>>,
}

/// How much memory the ranks had in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankBand {
    /// The lowest.
    pub lowest: u64,
    /// A quarter of the ranks had no more.
    pub lower_quartile: u64,
    /// Half of the ranks had no more.
    pub median: u64,
    /// Three quarters of the ranks had no more.
    pub upper_quartile: u64,
    /// The highest.
    pub highest: u64,
}

impl RankMap {
    /// Number of intervals.
    pub fn columns(&self) -> usize {
        self.values.first().map_or(0, Vec::len)
    }

    /// The highest value.
    pub fn highest_bytes(&self) -> u64 {
        self.values.iter().flatten().filter_map(|value| *value).max().unwrap_or(0)
    }

    /// Quantiles over the ranks that run in an interval; none where none does.
    pub fn band(&self, column: usize) -> Option<RankBand> {
        let mut values: Vec<u64> = self.values.iter().filter_map(|row| *row.get(column)?).collect();
        values.sort_unstable();
        let at = |share: f64| values.get(place(values.len(), share)).copied();
        Some(RankBand {
            lowest: at(0.0)?,
            lower_quartile: at(0.25)?,
            median: at(0.5)?,
            upper_quartile: at(0.75)?,
            highest: at(1.0)?,
        })
    }
}

/// Index of the first of `count` sorted values that a share of them does not exceed.
pub(crate) fn place(count: usize, share: f64) -> usize {
    ((count as f64 * share).ceil() as usize).saturating_sub(1)
}

/// Returns what a complete fold found.
pub(super) fn ranks(fold: &RanksFold, limit: usize) -> Ranks {
    let jobs = &fold.jobs;
    let mut peaks: Vec<(HighestTotal, &RankSoFar)> =
        jobs.ranks.iter().map(|rank| (rank.highest(&fold.samples), rank)).collect();
    let mut absent = jobs.expected.clone();
    absent.extend(jobs.wrapped.values());
    absent.extend(jobs.of_rank.keys());
    peaks.retain(|(peak, _)| peak.bytes > 0);
    for (_, rank) in &peaks {
        absent.remove(&rank.rank);
    }
    peaks.sort_by_key(|(peak, rank)| (peak.bytes, std::cmp::Reverse(rank.rank)));
    let bytes: Vec<u64> = peaks.iter().map(|(peak, _)| peak.bytes).collect();
    let imbalance = imbalance(&bytes);
    let quantile = |share: f64| {
        let (peak, rank) = peaks.get(place(peaks.len(), share))?;
        Some(Quantile { share, bytes: peak.bytes, rank: rank.rank })
    };
    let memory = |(peak, rank): &(HighestTotal, &RankSoFar)| memory(fold, *peak, rank, &imbalance);
    let shown = peaks.len().min(limit);
    let span_ns = fold.samples.span_ns();
    Ranks {
        origin_time_ns: None,
        first_time_ns: span_ns.map(|(first, _)| first),
        last_time_ns: span_ns.map(|(_, last)| last),
        ranks: peaks.len() as u64,
        ranks_without_samples: absent.into_iter().collect(),
        highest_rank: peaks.last().map(|(_, rank)| rank.rank),
        quantiles: SHARES.into_iter().filter_map(quantile).collect(),
        rank_list: peaks.iter().rev().take(limit).map(memory).collect(),
        ranks_omitted: (peaks.len() - shown) as u64,
        lowest: peaks.iter().take((peaks.len() - shown).min(limit)).map(memory).collect(),
        outliers: outliers(peaks.iter().map(|(peak, rank)| (rank.rank, peak.bytes)), &bytes),
        nodes: nodes(fold, &peaks),
        imbalance,
        peak_stack: None,
    }
}

pub(crate) fn imbalance(sorted: &[u64]) -> Imbalance {
    let Some(highest) = sorted.last().copied().filter(|highest| *highest > 0) else {
        return Imbalance::default();
    };
    let mean = sorted.iter().map(|bytes| *bytes as f64).sum::<f64>() / sorted.len() as f64;
    let median = sorted[place(sorted.len(), 0.5)];
    let variance =
        sorted.iter().map(|bytes| (*bytes as f64 - mean).powi(2)).sum::<f64>() / sorted.len() as f64;
    Imbalance {
        mean_bytes: mean.round() as u64,
        median_bytes: median,
        highest_to_mean: highest as f64 / mean,
        highest_to_median: if median > 0 { highest as f64 / median as f64 } else { 0.0 },
        variation: variance.sqrt() / mean,
    }
}

/// Finds which of `numbered` peaks, given with their number, are far from the `sorted` ones, in order of number.
pub(crate) fn outliers(numbered: impl Iterator<Item = (u64, u64)>, sorted: &[u64]) -> Vec<u64> {
    let Some(median) = sorted.get(place(sorted.len(), 0.5)).copied() else { return Vec::new() };
    let mut distances: Vec<u64> = sorted.iter().map(|bytes| bytes.abs_diff(median)).collect();
    distances.sort_unstable();
    let usual = USUAL * distances[place(distances.len(), 0.5)] as f64;
    let least = (FAR * usual).max(NOTABLE * median as f64);
    // With few ranks none is usual.
    let far = numbered.filter(|(_, bytes)| sorted.len() >= 5 && bytes.abs_diff(median) as f64 > least);
    let mut far: Vec<u64> = far.map(|(number, _)| number).collect();
    far.sort_unstable();
    far
}

fn memory(fold: &RanksFold, peak: HighestTotal, rank: &RankSoFar, imbalance: &Imbalance) -> RankMemory {
    let processes = rank.processes.iter().map(|at| &fold.samples.observed()[*at]);
    let largest = processes.max_by_key(|one| highest_rss(one));
    let mean = imbalance.mean_bytes;
    RankMemory {
        rank: rank.rank,
        host: fold.jobs.nodes[rank.node].host.clone(),
        peak_rss_bytes: peak.bytes,
        peak_time_ns: peak.time_ns,
        peak_is_bound: rank.is_bound,
        peak_to_mean: if mean > 0 { peak.bytes as f64 / mean as f64 } else { 0.0 },
        processes: rank.processes.len() as u64,
        pid: largest.map_or(0, |one| one.number),
        name: largest.map_or_else(String::new, |one| one.name.clone()),
        last_output: None,
    }
}

fn nodes(fold: &RanksFold, peaks: &[(HighestTotal, &RankSoFar)]) -> Vec<NodeMemory> {
    let of = |at: usize| peaks.iter().filter(move |(_, rank)| rank.node == at);
    let all = fold.jobs.nodes.iter().enumerate().filter(|(_, node)| node.processes > 0);
    let mut nodes: Vec<NodeMemory> = all
        .map(|(at, node)| NodeMemory {
            host: node.host.clone(),
            ranks: of(at).count() as u64,
            processes: node.processes,
            peak_rss_bytes: node.peak_rss.bytes,
            peak_time_ns: node.peak_rss.time_ns,
            peak_pss_bytes: node.has_pss.then_some(node.peak_pss.bytes),
            peak_pss_time_ns: node.has_pss.then_some(node.peak_pss.time_ns),
            highest_rank: of(at).next_back().map(|(_, rank)| rank.rank),
        })
        .collect();
    let size = |node: &NodeMemory| node.peak_pss_bytes.unwrap_or(node.peak_rss_bytes);
    nodes.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.host.cmp(&b.host)));
    nodes
}

/// Returns the memory of all ranks over time.
pub(super) fn map(fold: &RanksFold) -> Option<RankMap> {
    let mut jobs = fold.jobs.clone();
    jobs.fit();
    let (first, end) = jobs.columns()?;
    // What has not ended holds until the end.
    for rank in jobs.ranks.iter_mut().filter(|rank| rank.now > 0) {
        rank.row.hold_until(end - 1);
    }
    let ranks: Vec<&RankSoFar> = jobs.of_rank.values().map(|at| &jobs.ranks[*at]).collect();
    let is_running = |rank: &RankSoFar, column: i64| {
        // Between two instants at which it has nothing a rank may have ended and begun anew.
        rank.row.at(column).filter(|bytes| *bytes > 0)
    };
    Some(RankMap {
        first_ns: first << jobs.shift,
        interval_ns: 1 << jobs.shift,
        values: ranks.iter().map(|rank| (first..end).map(|at| is_running(rank, at)).collect()).collect(),
        ranks: ranks.iter().map(|rank| rank.rank).collect(),
    })
}
