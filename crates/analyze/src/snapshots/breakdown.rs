//! What was live, divided in several ways: bands that add up to the live bytes at every instant.
//!
//! Sites, scopes, processes and resources are known of groups; what blocks of one group do not share (kind, stream,
//! thread, size) is counted while instants are looked at.

use std::cmp::Reverse;

use floodmark_event::Kind;
use floodmark_event::units::format_bytes;
use rustc_hash::FxHashMap;

use super::groups::{Groups, Held, HolderGroup};
use crate::change::Block;
use crate::paths::{NO_SCOPE, Step};
use crate::site::NO_SITE;

/// Bands of their own; all others are one.
const BANDS: usize = 11;

/// What live bytes are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakdownBy {
    /// Place in the program.
    Site,
    /// Outermost scope.
    Scope,
    /// Process.
    Process,
    /// Device and resource.
    Resource,
    /// Kind of memory.
    Kind,
    /// Stream.
    Stream,
    /// Thread.
    Thread,
    /// Size of the block, in powers of two.
    Size,
}

impl BreakdownBy {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Scope => "scope",
            Self::Process => "process",
            Self::Resource => "resource",
            Self::Kind => "kind",
            Self::Stream => "stream",
            Self::Thread => "thread",
            Self::Size => "size",
        }
    }
}

/// Live bytes as bands.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    /// What they are divided by.
    pub by: BreakdownBy,
    /// The bands, the one that held most first; at every instant they add up to all live bytes.
    pub bands: Vec<Band>,
    /// Whether the last band sums up all that have no band of their own.
    pub has_others: bool,
}

impl Breakdown {
    /// Returns the highest live bytes of all instants if a band had held nothing.
    pub fn peak_without(&self, band: &Band, totals: &[u64]) -> u64 {
        let mut held = band.held.iter().peekable();
        let mut bytes = 0;
        let mut highest = 0;
        for (at, total) in totals.iter().enumerate() {
            while let Some(step) = held.next_if(|step| step.snapshot <= at) {
                bytes = step.bytes;
            }
            highest = highest.max(total.saturating_sub(bytes));
        }
        highest
    }
}

/// What belongs together, and what it held.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Its name.
    pub name: String,
    /// What was held from which instant on; nothing before the first.
    pub held: Vec<Held>,
}

/// Sums of one property of blocks, by value.
#[derive(Clone, Debug, Default)]
struct Sums {
    ids: FxHashMap<u64, u32>,
    keys: Vec<u64>,
    /// The value that was counted last: neighbors often share it.
    recent: Option<(u64, u32)>,
    groups: Groups,
}

impl Sums {
    #[inline]
    fn add(&mut self, key: u64, bytes: u64) {
        let id = match self.recent {
            Some((recent, id)) if recent == key => id,
            _ => {
                let keys = &mut self.keys;
                let id = *self.ids.entry(key).or_insert_with(|| {
                    keys.push(key);
                    keys.len() as u32 - 1
                });
                self.recent = Some((key, id));
                id
            }
        };
        self.groups.add(id, bytes);
    }

    fn bands(self, name: impl Fn(u64) -> String) -> Vec<Band> {
        let held = self.groups.into_held().into_iter();
        held.zip(self.keys).map(|(held, key)| Band { name: name(key), held }).collect()
    }
}

/// Counts what blocks of one group do not share.
#[derive(Clone, Debug, Default)]
pub(super) struct Divided {
    kinds: Sums,
    streams: Sums,
    threads: Sums,
    sizes: Sums,
}

impl Divided {
    /// Counts a block of the instant at hand.
    #[inline]
    pub(super) fn add(&mut self, block: &Block) {
        self.kinds.add(block.kind as u64, block.bytes);
        self.streams.add(block.stream, block.bytes);
        self.threads.add(block.thread, block.bytes);
        self.sizes.add(u64::from(block.bytes.max(1).ilog2()), block.bytes);
    }

    fn each(&mut self, act: impl Fn(&mut Groups)) {
        for sums in [&mut self.kinds, &mut self.streams, &mut self.threads, &mut self.sizes] {
            act(&mut sums.groups);
        }
    }

    /// Keeps the sums of the instant.
    pub(super) fn keep(&mut self, snapshot: usize) {
        self.each(|groups| groups.keep(snapshot));
    }

    /// Forgets the sums of the instant.
    pub(super) fn drop_now(&mut self) {
        self.each(Groups::drop_now);
    }

    /// Gives up instants: `below` says how many are kept before each.
    pub(super) fn thin(&mut self, below: &[usize]) {
        self.each(|groups| groups.thin(below));
    }

    /// Returns the breakdowns that have more than one band; groups must have their texts.
    pub(super) fn finish(self, groups: &[HolderGroup]) -> Vec<Breakdown> {
        let kind = |key: u64| {
            let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == key);
            kind.map_or_else(|| key.to_string(), |kind| kind.name().to_owned())
        };
        let size = |power: u64| match power {
            0 => "below 2 B".to_owned(),
            power => format!(
                "{} to {}",
                format_bytes(1 << power),
                format_bytes(2u64.saturating_pow(power as u32 + 1))
            ),
        };
        let has_sites = groups.iter().any(|group| group.site != NO_SITE || group.path.len() == 1);
        let all = [
            (BreakdownBy::Site, if has_sites { of_groups(groups, site) } else { Vec::new() }),
            (BreakdownBy::Scope, of_groups(groups, |group| first_or(&group.scope, NO_SCOPE))),
            (BreakdownBy::Process, of_groups(groups, |group| first_or(&group.place, "(unknown)"))),
            (BreakdownBy::Resource, of_groups(groups, resource)),
            (BreakdownBy::Kind, self.kinds.bands(kind)),
            (BreakdownBy::Stream, self.streams.bands(|stream| format!("stream {stream:#x}"))),
            (BreakdownBy::Thread, self.threads.bands(|thread| format!("thread {thread}"))),
            (BreakdownBy::Size, self.sizes.bands(size)),
        ];
        let several = all.into_iter().filter(|(_, bands)| bands.len() > 1);
        several.map(|(by, bands)| largest(by, bands)).collect()
    }
}

fn site(group: &HolderGroup) -> String {
    match &group.path[..] {
        [Step::Call(name)] if group.site == NO_SITE => name.clone(),
        _ => group.site.clone(),
    }
}

fn resource(group: &HolderGroup) -> String {
    match group.place.get(1..) {
        None | Some([]) => "(no device)".to_owned(),
        Some(place) => place.join(", "),
    }
}

fn first_or(names: &[String], nothing: &str) -> String {
    names.first().map_or_else(|| nothing.to_owned(), Clone::clone)
}

/// Joins groups with the same name.
fn of_groups(groups: &[HolderGroup], name: impl Fn(&HolderGroup) -> String) -> Vec<Band> {
    let mut at: FxHashMap<String, usize> = FxHashMap::default();
    let mut parts: Vec<(String, Vec<&[Held]>)> = Vec::new();
    for group in groups.iter().filter(|group| !group.held.is_empty()) {
        let name = name(group);
        let index = *at.entry(name.clone()).or_insert_with(|| {
            parts.push((name, Vec::new()));
            parts.len() - 1
        });
        parts[index].1.push(&group.held);
    }
    parts.into_iter().map(|(name, parts)| Band { name, held: sum(&parts) }).collect()
}

/// Adds step functions up.
fn sum(parts: &[&[Held]]) -> Vec<Held> {
    if let [only] = parts {
        return only.to_vec();
    }
    let mut changes: Vec<(usize, i128, i128)> = Vec::new();
    for part in parts {
        let (mut bytes, mut blocks) = (0, 0);
        for held in *part {
            changes.push((held.snapshot, i128::from(held.bytes) - bytes, i128::from(held.blocks) - blocks));
            (bytes, blocks) = (i128::from(held.bytes), i128::from(held.blocks));
        }
    }
    changes.sort_unstable_by_key(|(snapshot, ..)| *snapshot);
    let mut sums: Vec<Held> = Vec::new();
    let (mut bytes, mut blocks) = (0i128, 0i128);
    for (snapshot, by, more) in changes {
        (bytes, blocks) = (bytes + by, blocks + more);
        // Bytes that cannot be counted are as many as can be.
        let number = |sum: i128| u64::try_from(sum.max(0)).unwrap_or(u64::MAX);
        let held = Held { snapshot, bytes: number(bytes), blocks: number(blocks) };
        match sums.last_mut() {
            Some(last) if last.snapshot == snapshot => *last = held,
            _ => sums.push(held),
        }
    }
    sums
}

/// Keeps the bands that held most and joins the others.
fn largest(by: BreakdownBy, mut bands: Vec<Band>) -> Breakdown {
    let most = |band: &Band| band.held.iter().map(|held| held.bytes).max().unwrap_or(0);
    bands.sort_by_cached_key(|band| (Reverse(most(band)), band.name.clone()));
    let has_others = bands.len() > BANDS + 1;
    if has_others {
        let rest = bands.split_off(BANDS);
        let parts: Vec<&[Held]> = rest.iter().map(|band| &band.held[..]).collect();
        bands.push(Band { name: format!("{} others", rest.len()), held: sum(&parts) });
    }
    Breakdown { by, bands, has_others }
}
