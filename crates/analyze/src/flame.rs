//! Flame graphs: calls, and what was held, left or allocated below each; or how often each was seen.
//!
//! Made of [`OriginTotals`] or of stack samples, which share everything but their unit.

use floodmark_event::{Kind, StackId, StackSampleRow, Tables};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::block::KindSummary;
use crate::calls::CallTree;
use crate::origins::{BlockOrigin, OriginRow, OriginTotals, Totals};
use crate::paths::{FrameChoice, PathRules, Step};

/// What a flame graph measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlameOf {
    /// Bytes live at the peak, or at the instant that was weighed.
    #[default]
    #[serde(rename = "peak")]
    Marked,
    /// Bytes live at the end.
    End,
    /// Bytes ever allocated.
    Allocated,
    /// Allocations.
    Count,
    /// Stack samples.
    Samples,
    /// Resident bytes that calls gained.
    Gained,
}

impl FlameOf {
    /// The word for it on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Marked => "peak",
            Self::End => "end",
            Self::Allocated => "allocated",
            Self::Count => "count",
            Self::Samples => "samples",
            Self::Gained => "gained",
        }
    }

    /// What this measures of an origin.
    pub fn weight(self, row: &OriginRow) -> Totals {
        match self {
            Self::Marked => row.marked,
            Self::End => row.end,
            Self::Allocated | Self::Count => row.allocated,
            Self::Samples | Self::Gained => Totals::default(),
        }
    }

    /// The figure that decides how wide a call is.
    pub fn value(self, weight: Totals) -> u64 {
        match self {
            Self::Marked | Self::End | Self::Allocated | Self::Gained => weight.bytes,
            Self::Count | Self::Samples => weight.blocks,
        }
    }
}

/// Which end of a stack is the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The outermost call.
    #[default]
    FromCaller,
    /// The innermost call.
    FromCallee,
}

/// A flame graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flame {
    /// What is measured.
    pub of: FlameOf,
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Instant that elapsed times count from.
    #[serde(default)]
    pub origin_time_ns: Option<i64>,
    /// The instant it is about; none if it is about all of the time.
    pub time_ns: Option<i64>,
    /// The instant, if one was asked for instead of the peak.
    pub at_ns: Option<i64>,
    /// All of it.
    pub total: Totals,
    /// Whether there are stacks.
    pub has_stacks: bool,
    /// Stack samples of waiting threads, which are not in the total and have no nodes.
    #[serde(default)]
    pub waiting_samples: u64,
    /// The calls, depth first, a parent before its children, the heaviest of those first.
    pub nodes: Vec<FlameNode>,
    /// Kinds that are not covered.
    pub others: Vec<KindSummary>,
}

/// A call, and what is below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameNode {
    /// Index of the node around it.
    pub parent: Option<u32>,
    /// What it is called.
    pub text: String,
    /// Whether it stands for frames that say little.
    pub is_folded: bool,
    /// What is below it, its own included.
    pub weight: Totals,
    /// Its own.
    pub own: Totals,
}

impl Flame {
    /// Makes a flame graph of what was weighed.
    pub fn of_weights(
        weights: &OriginTotals,
        tables: &Tables,
        rules: &PathRules,
        of: FlameOf,
        direction: Direction,
    ) -> Self {
        let measured = weights.rows.iter().map(|row| (row, of.weight(row)));
        let paths = measured
            // Blocks of no bytes are blocks.
            .filter(|(_, weight)| weight.blocks > 0)
            .map(|(row, weight)| (oriented(rules.path(&row.origin, tables), direction), weight));
        Self {
            kinds: weights.kinds.clone(),
            origin_time_ns: weights.origin_time_ns,
            time_ns: match of {
                FlameOf::Marked => weights.marked_time_ns,
                FlameOf::End => weights.end_time_ns,
                FlameOf::Allocated | FlameOf::Count | FlameOf::Samples | FlameOf::Gained => None,
            },
            at_ns: weights.at_ns,
            has_stacks: weights.has_stacks(),
            others: weights.others.clone(),
            ..Self::of_paths(paths, of)
        }
    }

    pub(crate) fn of_paths(paths: impl Iterator<Item = (Vec<Step>, Totals)>, of: FlameOf) -> Self {
        let (mut tree, mut total) = (CallTree::<1>::default(), Totals::default());
        for (path, weight) in paths {
            total.add(weight);
            tree.add(&path, [weight]);
        }
        let node = |node: crate::calls::CallNode<1>| FlameNode {
            parent: node.parent,
            text: node.text,
            is_folded: node.is_folded,
            weight: node.weights[0],
            own: node.own[0],
        };
        let nodes = tree.finish(|[weight]| of.value(*weight)).into_iter().map(node).collect();
        Self { of, total, nodes, ..Self::default() }
    }

    /// Hands every path that holds something of its own to `visit`, with that.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn each_path<E>(&self, mut visit: impl FnMut(&[&str], u64) -> Result<(), E>) -> Result<(), E> {
        let (mut path, mut depths): (Vec<&str>, Vec<usize>) = (Vec::new(), Vec::new());
        for node in &self.nodes {
            let depth = node.parent.map_or(0, |parent| depths[parent as usize] + 1);
            depths.push(depth);
            path.truncate(depth);
            path.push(&node.text);
            let own = self.of.value(node.own);
            if own > 0 {
                visit(&path, own)?;
            }
        }
        Ok(())
    }

    /// The figure that decides how wide a node is.
    pub fn value(&self, node: &FlameNode) -> u64 {
        self.of.value(node.weight)
    }
}

/// A path from the end that is asked for.
fn oriented(mut path: Vec<Step>, direction: Direction) -> Vec<Step> {
    if direction == Direction::FromCallee {
        path.reverse();
    }
    // What every allocation goes through, or every thread begins with, is no place to begin: a function
    // would be split by how it was reached.
    if path.len() > 1 && matches!(path[0], Step::Folded(_)) {
        path.remove(0);
    }
    path
}

/// Counts stack samples.
#[derive(Clone, Debug, Default)]
pub struct StackCounts {
    counts: FxHashMap<(u64, StackId), u64>,
}

impl StackCounts {
    /// Takes in a sample.
    pub fn add(&mut self, row: &StackSampleRow) {
        if row.stack.0 != 0 {
            *self.counts.entry((row.subject, row.stack)).or_default() += 1;
        }
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Makes a flame graph; where several processes were seen, each is a root.
    ///
    /// Where frames are folded, threads that wait are left out and counted, unless all of them do: programs
    /// with pools of threads would show little else.
    pub fn flame(&self, tables: &Tables, rules: &PathRules, direction: Direction) -> Flame {
        let processes: FxHashSet<u64> = self.counts.keys().map(|(subject, _)| *subject).collect();
        let known = |subject: &u64| tables.subjects.get(subject);
        let name_of = |subject: &u64| known(subject).map_or("process", |known| known.name.as_str());
        let mut sharing: FxHashMap<&str, u32> = FxHashMap::default();
        for subject in &processes {
            *sharing.entry(name_of(subject)).or_default() += 1;
        }
        let name = |subject: &u64| {
            let name = name_of(subject);
            if let Some(known) = known(subject)
                && sharing.get(name).is_some_and(|count| *count > 1)
            {
                return format!("{name} (pid {})", known.number);
            }
            name.to_owned()
        };
        let mut counts: Vec<_> = self.counts.iter().collect();
        counts.sort_unstable();
        let (mut working, mut waiting) = (counts, Vec::new());
        if rules.frames == FrameChoice::Folded {
            (waiting, working) =
                working.into_iter().partition(|((_, stack), _)| crate::run::waits(*stack, tables));
        }
        if working.is_empty() {
            std::mem::swap(&mut working, &mut waiting);
        }
        let waiting_samples = waiting.iter().map(|(_, count)| **count).sum();
        let paths = working.into_iter().map(|((subject, stack), count)| {
            let origin = BlockOrigin { stack: *stack, ..BlockOrigin::default() };
            let mut path = oriented(rules.path(&origin, tables), direction);
            if processes.len() > 1 {
                path.insert(0, Step::Call(name(subject)));
            }
            (path, Totals { bytes: 0, blocks: *count })
        });
        Flame { has_stacks: true, waiting_samples, ..Flame::of_paths(paths, FlameOf::Samples) }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::tables::Frame;
    use floodmark_event::{StackReason, SubjectKind, SubjectRow};

    use super::*;

    #[test]
    fn processes_of_one_name_are_told_apart_by_their_numbers() {
        let mut tables = Tables::default();
        let function = tables.intern("main");
        let frame = tables.intern_frame(Frame { function, ..Frame::default() });
        let stack = tables.intern_stack(StackId(0), frame);
        let mut counts = StackCounts::default();
        for (id, number, name) in [(1, 71, "python3"), (2, 72, "python3"), (3, 73, "sh")] {
            let row = SubjectRow::new(id, SubjectKind::Process, number, name);
            tables.subjects.insert(id, row);
            let reason = StackReason::ALL[0];
            counts.add(&StackSampleRow { time_ns: 0, subject: id, thread: 1, stack, reason, pause_ns: 0 });
        }
        let flame = counts.flame(&tables, &PathRules::default(), Direction::FromCaller);
        let mut roots: Vec<&str> =
            flame.nodes.iter().filter(|node| node.parent.is_none()).map(|node| node.text.as_str()).collect();
        roots.sort_unstable();
        assert_eq!(roots, ["python3 (pid 71)", "python3 (pid 72)", "sh"]);
    }

    #[test]
    fn a_function_is_one_root_however_it_was_reached() {
        let (main, folded) = (Step::Call("main".into()), Step::Folded(3));
        for direction in [Direction::FromCaller, Direction::FromCallee] {
            let path = [folded.clone(), main.clone(), folded.clone()];
            let oriented = [oriented(path.into(), direction), oriented(vec![main.clone()], direction)];
            assert_eq!(oriented.map(|path| path[0].clone()), [main.clone(), main.clone()]);
        }
        assert_eq!(oriented(vec![folded.clone()], Direction::FromCaller), [folded]);
    }

    #[test]
    fn waiting_threads_are_left_out_and_counted() {
        let mut tables = Tables::default();
        let mut stack = |functions: [&str; 2]| {
            functions.iter().rev().fold(StackId(0), |parent, name| {
                let function = tables.intern(name);
                let frame = tables.intern_frame(Frame { function, ..Frame::default() });
                tables.intern_stack(parent, frame)
            })
        };
        let (idle, busy) = (stack(["__futex_abstimed_wait_common", "pool"]), stack(["grow", "main"]));
        let counted = |stacks: &[StackId]| {
            let mut counts = StackCounts::default();
            for stack in stacks {
                let reason = StackReason::ALL[0];
                let row =
                    StackSampleRow { time_ns: 0, subject: 1, thread: 1, stack: *stack, reason, pause_ns: 0 };
                counts.add(&row);
            }
            counts
        };
        let rules = PathRules::default();
        let flame = |counts: &StackCounts, rules: &PathRules| {
            let flame = counts.flame(&tables, rules, Direction::FromCaller);
            (flame.total.blocks, flame.waiting_samples, flame.nodes.len())
        };
        let both = counted(&[idle, idle, idle, busy]);
        assert_eq!(flame(&both, &rules), (1, 3, 2));
        assert_eq!(flame(&both, &PathRules { frames: FrameChoice::All, ..PathRules::default() }), (4, 0, 4));
        assert_eq!(flame(&counted(&[idle, idle]), &rules), (2, 0, 2));
    }
}
