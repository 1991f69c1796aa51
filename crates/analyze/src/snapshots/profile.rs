//! What functions held and allocated: sums over all stacks that they are in.
//!
//! What a function asked for by itself is what has it as its site, so allocators and runtimes own nothing;
//! they are left out, unless there is nothing else.

use std::cmp::Reverse;

use floodmark_event::tables::Frame;
use floodmark_event::{StringId, Tables};
use rustc_hash::{FxHashMap, FxHashSet};

use super::HolderGroup;
use crate::paths::PathRules;

/// What a function held and allocated, by itself and through those it called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionProfile {
    /// The function.
    pub function: String,
    /// File or module it is in; empty if unknown.
    pub file: String,
    /// Held at the peak.
    pub peak_bytes: u64,
    /// Of those, what it allocated by itself.
    pub own_peak_bytes: u64,
    /// Most that was held at any instant looked at.
    pub most_bytes: u64,
    /// Index of that instant.
    pub most_at: usize,
    /// Held at the last instant.
    pub end_bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// Bytes of those.
    pub allocated_bytes: u64,
    /// Of those, what it allocated by itself.
    pub own_allocated_bytes: u64,
}

/// A function: its name, and its file or module.
type Function = (StringId, StringId);

#[derive(Default)]
struct Sums {
    groups: Vec<usize>,
    own: Vec<usize>,
}

/// Sums up groups by function, most held at any instant first.
pub(super) fn functions(
    groups: &[HolderGroup],
    when: (Option<usize>, usize),
    rules: &PathRules,
    tables: &Tables,
) -> Vec<FunctionProfile> {
    let mut sums: FxHashMap<Function, Sums> = FxHashMap::default();
    let mut met = FxHashSet::default();
    for (at, group) in groups.iter().enumerate() {
        met.clear();
        let site = rules.sites.frame_of(group.stack_id, tables);
        let frames: Vec<Frame> = tables.frames_of(group.stack_id).collect();
        for (frame, is_shown) in frames.iter().zip(rules.shown(&frames, tables)) {
            let is_site = site == Some(*frame);
            if !is_site && !is_shown {
                continue;
            }
            let file = if tables.string(frame.file).is_empty() { frame.module } else { frame.file };
            let function = (frame.function, file);
            if tables.string(frame.function).is_empty() {
                continue;
            }
            // One that calls itself counts once.
            let sum = sums.entry(function).or_default();
            if met.insert(function) {
                sum.groups.push(at);
            }
            if is_site && sum.own.last() != Some(&at) {
                sum.own.push(at);
            }
        }
    }
    let mut profiles: Vec<FunctionProfile> =
        sums.iter().map(|(function, sum)| profile(*function, sum, groups, when, tables)).collect();
    profiles.sort_by(|a, b| {
        let key = |p: &FunctionProfile| {
            (Reverse(p.most_bytes), Reverse(p.own_peak_bytes), Reverse(p.allocated_bytes))
        };
        key(a).cmp(&key(b)).then_with(|| (&a.function, &a.file).cmp(&(&b.function, &b.file)))
    });
    profiles
}

fn profile(
    (function, file): Function,
    sum: &Sums,
    groups: &[HolderGroup],
    (peak, snapshots): (Option<usize>, usize),
    tables: &Tables,
) -> FunctionProfile {
    let total = |of: &[usize], what: &dyn Fn(&HolderGroup) -> u64| {
        of.iter().fold(0u64, |sum, at| sum.saturating_add(what(&groups[*at])))
    };
    let held_at = |at: Option<usize>| move |group: &HolderGroup| at.map_or(0, |at| group.at(at).bytes);
    let (most_bytes, most_at) = most(sum.groups.iter().map(|at| &groups[*at]));
    FunctionProfile {
        function: tables.string(function).to_owned(),
        file: tables.string(file).to_owned(),
        peak_bytes: total(&sum.groups, &held_at(peak)),
        own_peak_bytes: total(&sum.own, &held_at(peak)),
        most_bytes,
        most_at,
        end_bytes: total(&sum.groups, &held_at(snapshots.checked_sub(1))),
        allocations: total(&sum.groups, &|group| group.allocations),
        allocated_bytes: total(&sum.groups, &|group| group.allocated_bytes),
        own_allocated_bytes: total(&sum.own, &|group| group.allocated_bytes),
    }
}

/// The most that groups held together, and the first instant of it.
fn most<'a>(groups: impl Iterator<Item = &'a HolderGroup>) -> (u64, usize) {
    let mut changes: Vec<(usize, i128)> = Vec::new();
    for group in groups {
        let mut before = 0;
        for held in &group.held {
            changes.push((held.snapshot, i128::from(held.bytes) - before));
            before = i128::from(held.bytes);
        }
    }
    changes.sort_unstable_by_key(|(snapshot, _)| *snapshot);
    let (mut now, mut most) = (0i128, (0u64, 0));
    for (at, (snapshot, change)) in changes.iter().enumerate() {
        now += change;
        let is_last = changes.get(at + 1).is_none_or(|(next, _)| next != snapshot);
        if is_last && now > i128::from(most.0) {
            most = (u64::try_from(now).unwrap_or(u64::MAX), *snapshot);
        }
    }
    most
}
