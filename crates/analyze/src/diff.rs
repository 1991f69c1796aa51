//! What changed from one run to another: figures, holders of memory at the peak, leaks, and a tree of calls.
//!
//! Nothing here knows where results come from; the same result against itself has no changes. Places are
//! matched by what lasts: addresses and process numbers are left out, and a place whose line moved is
//! found again by its function and file (see `pairing`).

mod pairing;

use floodmark_event::{Kind, Tables};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::block::{Group, GroupBy};
use crate::calls::CallTree;
use crate::leaks::{Leaks, Verdict};
use crate::origins::{OriginTotals, Totals};
use crate::paths::{Exactness, FrameChoice, PathBy, PathRules, Step};
use crate::run::RunMemory;
use crate::stats::Stats;
use crate::watermark::Watermark;

/// One of the two results that are compared.
#[derive(Clone, Debug, Default)]
pub struct DiffSide {
    /// What is known of allocations.
    pub events: Option<DiffEvents>,
    /// What was sampled of processes.
    pub run: Option<RunMemory>,
    /// Median and highest peak of the processes of a job, if jobs are compared by process.
    pub process_peaks: Option<(u64, u64)>,
}

/// What is known of the allocations of one side.
#[derive(Clone, Debug, Default)]
pub struct DiffEvents {
    stats: Stats,
    groups: Vec<(String, Totals)>,
    leaked: Totals,
    leaks: Vec<(String, Totals, Verdict)>,
    paths: Vec<(Vec<Step>, Totals)>,
}

/// Results of one pass over one side.
#[derive(Clone, Copy, Debug)]
pub struct DiffParts<'a> {
    /// Statistics.
    pub stats: &'a Stats,
    /// What origins held; split by scope if blocks are grouped so.
    pub weights: &'a OriginTotals,
    /// The watermark with its groups.
    pub watermark: &'a Watermark,
    /// The leaks.
    pub leaks: &'a Leaks,
    /// What ids point to.
    pub tables: &'a Tables,
}

impl DiffEvents {
    /// Takes from results what is compared. Groups by site, stack and scope are made of the weights by
    /// `rules`, all others are those of the watermark.
    pub fn new(parts: DiffParts<'_>, by: GroupBy, rules: &PathRules) -> Self {
        let DiffParts { stats, weights, watermark, leaks, tables } = parts;
        let lasting = |path_by, frames| PathRules {
            by: path_by,
            frames,
            exactness: Exactness::Lasting,
            ..rules.clone()
        };
        let marked = || weights.rows.iter().filter(|row| row.marked.blocks > 0);
        let of_rows = |rules: &PathRules| -> Vec<(Vec<Step>, Totals)> {
            marked().map(|row| (rules.path(&row.origin, tables), row.marked)).collect()
        };
        let groups = match by {
            GroupBy::Site => marked()
                .map(|row| (rules.sites.site(row.origin.stack, row.origin.name, tables), row.marked))
                .collect(),
            GroupBy::Stack => {
                let paths = of_rows(&lasting(PathBy::Stack, rules.frames));
                paths.into_iter().map(|(path, weight)| (stack_key(&path), weight)).collect()
            }
            GroupBy::Scope => {
                let paths = of_rows(&lasting(PathBy::Scope, FrameChoice::All));
                paths.into_iter().map(|(path, weight)| (scope_key(&path), weight)).collect()
            }
            by => watermark
                .groups
                .iter()
                .filter(|grouping| grouping.by == by)
                .flat_map(|grouping| &grouping.groups)
                .map(of_group)
                .collect(),
        };
        Self {
            stats: stats.clone(),
            groups,
            leaked: Totals { bytes: leaks.leaked_bytes, blocks: leaks.leaked_blocks },
            leaks: leaks
                .groups
                .iter()
                .map(|group| {
                    let weight = Totals { bytes: group.bytes, blocks: group.blocks };
                    (group.site.clone(), weight, group.verdict)
                })
                .collect(),
            paths: of_rows(&lasting(PathBy::Stack, rules.frames)),
        }
    }
}

impl DiffEvents {
    /// Takes what is compared from the answers of a job and divides it by the number of its processes, so that jobs of
    /// different size can be compared. Without a watermark nothing is known of holders.
    pub fn per_process(stats: &Stats, leaks: &Leaks, watermark: Option<&Watermark>, processes: u64) -> Self {
        let all = processes.max(1);
        let share = |figure: u64| ((u128::from(figure) + u128::from(all / 2)) / u128::from(all)) as u64;
        // What there is in some processes alone must not look as if it were gone.
        let totals = |bytes: u64, blocks: u64| Totals { bytes: share(bytes), blocks: blocks.div_ceil(all) };
        let groupings = watermark.iter().flat_map(|watermark| &watermark.groups);
        Self {
            stats: Stats {
                peak_bytes: share(stats.peak_bytes),
                peak_blocks: share(stats.peak_blocks),
                live_bytes: share(stats.live_bytes),
                allocations: share(stats.allocations),
                total_bytes: share(stats.total_bytes),
                failures: stats.failures.div_ceil(all),
                ..stats.clone()
            },
            groups: groupings
                .flat_map(|grouping| &grouping.groups)
                .map(|group| (group.key.clone(), totals(group.bytes, group.blocks)))
                .collect(),
            leaked: totals(leaks.leaked_bytes, leaks.leaked_blocks),
            leaks: leaks
                .groups
                .iter()
                .map(|group| (group.site.clone(), totals(group.bytes, group.blocks), group.verdict))
                .collect(),
            paths: Vec::new(),
        }
    }
}

fn of_group(group: &Group) -> (String, Totals) {
    (group.key.clone(), Totals { bytes: group.bytes, blocks: group.blocks })
}

/// A stack in one line, innermost first, without what is folded.
fn stack_key(path: &[Step]) -> String {
    let calls = path.iter().rev().filter(|step| matches!(step, Step::Call(_)));
    calls.map(Step::text).collect::<Vec<_>>().join(" ← ")
}

/// Scopes in one line, outermost first, without the site at the end.
fn scope_key(path: &[Step]) -> String {
    path[..path.len().saturating_sub(1)].iter().map(Step::text).collect::<Vec<_>>().join(" › ")
}

/// A figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Highest live bytes.
    PeakBytes,
    /// When live bytes were highest, since the origin of the input.
    PeakTimeNs,
    /// Blocks live at that instant.
    PeakBlocks,
    /// Bytes live at the end.
    LiveBytes,
    /// Bytes live at the end that are leaks or candidates.
    LeakedBytes,
    /// Blocks of those.
    LeakedBlocks,
    /// Allocations.
    Allocations,
    /// Bytes of all allocations.
    AllocatedBytes,
    /// Allocations that failed.
    Failures,
    /// Time from the start of a run, or from the first event, to the last event or sample.
    DurationNs,
    /// Highest sum of resident bytes of all processes.
    PeakRssBytes,
    /// When it was reached, since the origin of the input.
    PeakRssTimeNs,
    /// Highest total in which shared memory counts once.
    PeakPssBytes,
    /// Highest live bytes of a process, in the middle of all processes of a job.
    MedianProcessPeakBytes,
    /// Highest live bytes of a process, the most of all processes of a job.
    HighestProcessPeakBytes,
}

impl Figure {
    /// All figures, in the order in which they are shown.
    pub const ALL: [Self; 15] = [
        Self::PeakBytes,
        Self::MedianProcessPeakBytes,
        Self::HighestProcessPeakBytes,
        Self::PeakTimeNs,
        Self::PeakBlocks,
        Self::LiveBytes,
        Self::LeakedBytes,
        Self::LeakedBlocks,
        Self::Allocations,
        Self::AllocatedBytes,
        Self::Failures,
        Self::PeakRssBytes,
        Self::PeakRssTimeNs,
        Self::PeakPssBytes,
        Self::DurationNs,
    ];

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PeakBytes => "peak_bytes",
            Self::PeakTimeNs => "peak_time_ns",
            Self::PeakBlocks => "peak_blocks",
            Self::LiveBytes => "live_bytes",
            Self::LeakedBytes => "leaked_bytes",
            Self::LeakedBlocks => "leaked_blocks",
            Self::Allocations => "allocations",
            Self::AllocatedBytes => "allocated_bytes",
            Self::Failures => "failures",
            Self::DurationNs => "duration_ns",
            Self::PeakRssBytes => "peak_rss_bytes",
            Self::PeakRssTimeNs => "peak_rss_time_ns",
            Self::PeakPssBytes => "peak_pss_bytes",
            Self::MedianProcessPeakBytes => "median_process_peak_bytes",
            Self::HighestProcessPeakBytes => "highest_process_peak_bytes",
        }
    }

    fn of(self, side: &DiffSide) -> Option<u64> {
        let events = side.events.as_ref();
        let stats = events.map(|events| &events.stats);
        let leaked = events.map(|events| events.leaked);
        let run = side.run.as_ref();
        let span = |first: Option<i64>, last: Option<i64>| Some(last?.saturating_sub(first?).max(0) as u64);
        match self {
            Self::PeakBytes => stats.map(|stats| stats.peak_bytes),
            Self::PeakTimeNs => stats.and_then(|stats| span(stats.origin_time_ns, stats.peak_time_ns)),
            Self::PeakBlocks => stats.map(|stats| stats.peak_blocks),
            Self::LiveBytes => stats.map(|stats| stats.live_bytes),
            Self::LeakedBytes => leaked.map(|leaked| leaked.bytes),
            Self::LeakedBlocks => leaked.map(|leaked| leaked.blocks),
            Self::Allocations => stats.map(|stats| stats.allocations),
            Self::AllocatedBytes => stats.map(|stats| stats.total_bytes),
            Self::Failures => stats.map(|stats| stats.failures),
            Self::DurationNs => run
                .and_then(|run| span(run.origin_time_ns.or(run.first_time_ns), run.last_time_ns))
                .or_else(|| stats.and_then(|stats| span(stats.first_time_ns, stats.last_time_ns))),
            Self::PeakRssBytes => run.map(|run| run.peak_rss_bytes),
            Self::PeakRssTimeNs => {
                run.and_then(|run| span(run.origin_time_ns.or(run.first_time_ns), run.peak_time_ns))
            }
            Self::PeakPssBytes => run.and_then(|run| run.peak_pss_bytes),
            Self::MedianProcessPeakBytes => side.process_peaks.map(|(median, _)| median),
            Self::HighestProcessPeakBytes => side.process_peaks.map(|(_, highest)| highest),
        }
    }
}

/// A figure of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureChange {
    /// Which.
    pub figure: Figure,
    /// Of the first; none where it is not known.
    pub before: Option<u64>,
    /// Of the second.
    pub after: Option<u64>,
    /// By how much it grew; none unless both are known.
    pub change: Option<i64>,
}

/// On which sides something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// On both.
    Both,
    /// On the second only.
    New,
    /// On the first only.
    Gone,
}

impl Presence {
    /// The word for it in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }

    fn of(before: Totals, after: Totals) -> Self {
        match (before.blocks, after.blocks) {
            (0, 1..) => Self::New,
            (1.., 0) => Self::Gone,
            _ => Self::Both,
        }
    }
}

/// Blocks that have something in common, on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupChange {
    /// What they have in common, as the second side says it, or the first where they are gone.
    pub key: String,
    /// How the first side says it, where that differs: the line moved.
    pub key_before: Option<String>,
    /// On which sides they are.
    pub presence: Presence,
    /// Held at the peak of the first.
    pub before: Totals,
    /// Held at the peak of the second.
    pub after: Totals,
    /// By how many bytes they grew.
    pub change_bytes: i64,
}

/// A site that leaks more than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakChange {
    /// The site.
    pub site: String,
    /// Whether the first side has it too.
    pub presence: Presence,
    /// How sure it is that it leaks.
    pub verdict: Verdict,
    /// Live at the end of the first.
    pub before: Totals,
    /// Live at the end of the second.
    pub after: Totals,
    /// By how many bytes it grew.
    pub change_bytes: i64,
}

/// A call, and what was held below it on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffNode {
    /// Index of the caller.
    pub parent: Option<u32>,
    /// What it is called.
    pub text: String,
    /// Whether it stands for frames that say little.
    pub is_folded: bool,
    /// Held at the peak of the first.
    pub before: Totals,
    /// Held at the peak of the second.
    pub after: Totals,
    /// The more of both, added up over the paths below: how wide it is drawn.
    pub most_bytes: u64,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// Kinds of memory that figures of the first cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds_before: Vec<Kind>,
    /// Kinds of memory that figures of the second cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds_after: Vec<Kind>,
    /// The figures that at least one side has.
    pub figures: Vec<FigureChange>,
    /// By what blocks at the peak are grouped.
    pub by: GroupBy,
    /// Groups that changed, the largest change first.
    pub groups: Vec<GroupChange>,
    /// Groups that are on both sides and the same.
    pub groups_unchanged: u64,
    /// Sites that leak more than before, the largest change first.
    pub leaks: Vec<LeakChange>,
    /// Calls from the outermost to the innermost, depth first.
    pub nodes: Vec<DiffNode>,
}

/// `after - before`, at the ends of the range where it does not fit.
pub fn change(before: u64, after: u64) -> i64 {
    (i128::from(after) - i128::from(before)).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl Diff {
    /// Compares two sides.
    pub fn new(before: &DiffSide, after: &DiffSide, by: GroupBy) -> Self {
        let none = DiffEvents::default();
        let [first, second] = [before, after].map(|side| side.events.as_ref().unwrap_or(&none));
        let (groups, groups_unchanged) = groups(first, second, by);
        Self {
            kinds_before: first.stats.kinds.clone(),
            kinds_after: second.stats.kinds.clone(),
            figures: figures(before, after),
            by,
            groups,
            groups_unchanged,
            leaks: leaks(first, second),
            nodes: nodes(first, second),
        }
    }

    /// A figure, if at least one side has it.
    pub fn figure(&self, figure: Figure) -> Option<&FigureChange> {
        self.figures.iter().find(|change| change.figure == figure)
    }

    /// Whether nothing changed: all figures are the same, and all that is held.
    pub fn is_empty(&self) -> bool {
        self.figures.iter().all(|figure| figure.before == figure.after)
            && self.groups.is_empty()
            && self.leaks.is_empty()
            && self.nodes.iter().all(|node| node.before == node.after)
    }
}

fn figures(before: &DiffSide, after: &DiffSide) -> Vec<FigureChange> {
    let both = |figure: Figure| {
        let (before, after) = (figure.of(before), figure.of(after));
        let change = before.zip(after).map(|(before, after)| change(before, after));
        before.or(after).map(|_| FigureChange { figure, before, after, change })
    };
    Figure::ALL.into_iter().filter_map(both).collect()
}

fn groups(first: &DiffEvents, second: &DiffEvents, by: GroupBy) -> (Vec<GroupChange>, u64) {
    let pairs = pairing::pair(&first.groups, &second.groups, by);
    let all = pairs.into_iter().map(|pair| GroupChange {
        presence: Presence::of(pair.before, pair.after),
        change_bytes: change(pair.before.bytes, pair.after.bytes),
        key: pair.key,
        key_before: pair.key_before,
        before: pair.before,
        after: pair.after,
    });
    let (mut changed, unchanged): (Vec<_>, Vec<_>) = all.partition(|group| group.before != group.after);
    changed.sort_by(|a, b| {
        let order = |group: &GroupChange| {
            (group.change_bytes.unsigned_abs(), group.before.blocks.abs_diff(group.after.blocks))
        };
        order(b).cmp(&order(a)).then_with(|| a.key.cmp(&b.key))
    });
    (changed, unchanged.len() as u64)
}

fn leaks(first: &DiffEvents, second: &DiffEvents) -> Vec<LeakChange> {
    let weights = |side: &DiffEvents| -> Vec<(String, Totals)> {
        side.leaks.iter().map(|(site, weight, _)| (site.clone(), *weight)).collect()
    };
    let pairs = pairing::pair(&weights(first), &weights(second), GroupBy::Site);
    let certain = second.leaks.iter().filter(|(.., verdict)| *verdict == Verdict::Leak);
    let certain: FxHashSet<String> =
        certain.map(|(site, ..)| pairing::lasting(site, GroupBy::Site)).collect();
    let verdict = |key: &str| if certain.contains(key) { Verdict::Leak } else { Verdict::Candidate };
    let mut grown: Vec<LeakChange> = pairs
        .into_iter()
        .filter(|pair| (pair.after.bytes, pair.after.blocks) > (pair.before.bytes, pair.before.blocks))
        .map(|pair| LeakChange {
            presence: Presence::of(pair.before, pair.after),
            verdict: verdict(&pair.key),
            change_bytes: change(pair.before.bytes, pair.after.bytes),
            site: pair.key,
            before: pair.before,
            after: pair.after,
        })
        .collect();
    grown.sort_by(|a, b| b.change_bytes.cmp(&a.change_bytes).then_with(|| a.site.cmp(&b.site)));
    grown
}

fn nodes(first: &DiffEvents, second: &DiffEvents) -> Vec<DiffNode> {
    let mut tree = CallTree::<2>::default();
    for (path, weight) in &first.paths {
        tree.add(path, [*weight, Totals::default()]);
    }
    for (path, weight) in &second.paths {
        tree.add(path, [Totals::default(), *weight]);
    }
    let nodes = tree.finish(|[before, after]| before.bytes.max(after.bytes));
    let mut most: Vec<u64> = nodes.iter().map(|node| node.own[0].bytes.max(node.own[1].bytes)).collect();
    for at in (0..nodes.len()).rev() {
        if let Some(parent) = nodes[at].parent {
            most[parent as usize] = most[parent as usize].saturating_add(most[at]);
        }
    }
    nodes
        .into_iter()
        .zip(most)
        .map(|(node, most_bytes)| DiffNode {
            parent: node.parent,
            text: node.text,
            is_folded: node.is_folded,
            before: node.weights[0],
            after: node.weights[1],
            most_bytes,
        })
        .collect()
}
