//! How long blocks live, and which sites allocate only to free at once (churn).
//!
//! A lifetime is known when a block is freed; blocks that ended unseen are left out. Each site keeps a
//! histogram of its lifetimes whose buckets are at most 1/16 wide, so memory grows with sites only.

use std::cmp::Reverse;

use floodmark_event::Kind;
use floodmark_event::units::format_bytes;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Block, Ending};
use crate::describe::{Describe, Origin, share};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::loglinear::{CLASSES, bucket, bucket_count, class, class_range, middle};
use crate::merge::{Merge, SpaceMap};
use crate::partial::PartialError;
use crate::partial::ids::{Compact, Expand, OriginData};
use crate::site::SiteRules;

/// How to report lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifetimesOptions {
    /// A block that lives shorter than this is churn.
    pub threshold_ns: u64,
    /// How many sites to list, most churned bytes first; all if none.
    pub limit: Option<usize>,
    /// Which frames cannot be sites.
    pub sites: SiteRules,
}

impl Default for LifetimesOptions {
    fn default() -> Self {
        Self { threshold_ns: 1_000_000, limit: None, sites: SiteRules::default() }
    }
}

/// How long blocks live.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lifetimes {
    /// Kinds the figures cover.
    #[serde(with = "crate::json::kinds")]
    pub kinds: Vec<Kind>,
    /// Lifetimes below this are churn.
    pub threshold_ns: u64,
    /// Blocks that were freed.
    pub ended_blocks: u64,
    /// Blocks that are live at the end.
    pub live_blocks: u64,
    /// Blocks that lived shorter than the threshold.
    pub churned_blocks: u64,
    /// Bytes of those.
    pub churned_bytes: u64,
    /// Mean lifetime of blocks that were freed.
    pub mean_ns: Option<f64>,
    /// Median lifetime of blocks that were freed, within 1/16.
    pub median_ns: Option<u64>,
    /// Sites, most churned bytes first. Without stacks and names: classes of sizes.
    pub sites: Vec<LifetimeSite>,
    /// Sites that are not listed because of the limit.
    pub sites_omitted: u64,
    /// Blocks that were freed, by lifetime in powers of two; empty classes are left out.
    pub histogram: Vec<LifetimeBar>,
}

/// Lifetimes of the blocks of one site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LifetimeSite {
    /// Place in the program that allocated them, or a class of sizes.
    pub site: String,
    /// Blocks, freed or live at the end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that were freed.
    pub ended_blocks: u64,
    /// Mean lifetime of those.
    pub mean_ns: Option<f64>,
    /// Median lifetime of those, within 1/16.
    pub median_ns: Option<u64>,
    /// Blocks that lived shorter than the threshold.
    pub churned_blocks: u64,
    /// Bytes of those.
    pub churned_bytes: u64,
    /// Churned blocks as a share of those that were freed, from 0 to 1.
    pub churn: f64,
}

/// Blocks that lived from `from_ns` to below `to_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeBar {
    /// Shortest lifetime of the class.
    pub from_ns: u64,
    /// First lifetime beyond the class.
    pub to_ns: u64,
    /// Blocks.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Folds events into [`Lifetimes`].
#[derive(Clone, Debug, Default)]
pub struct LifetimesFold {
    options: LifetimesOptions,
    places: FxHashMap<Place, u32>,
    lives: Vec<Lives>,
    /// Ended blocks and their bytes by tally and power-of-two class of their lifetime.
    classes: Vec<[(u64, u64); CLASSES]>,
}

impl LifetimesFold {
    /// Whether a stack or name tells where a block was allocated that has ended.
    pub(crate) fn has_origins(&self) -> bool {
        self.places.keys().any(|(origin, _)| origin.is_known())
    }
}

/// A site while stacks are still numbers; without stack and name, with the class of the size plus 1.
pub(crate) type Place = (Origin, u8);

pub(crate) fn place(block: &Block) -> Place {
    let origin = Origin::of(block);
    (origin, if origin.is_known() { 0 } else { class(block.bytes) as u8 + 1 })
}

pub(crate) fn place_text((origin, size_class): Place, describe: &mut Describe<'_>) -> String {
    if size_class == 0 {
        let site = describe.site_id(origin.stack, origin.name);
        return describe.site(site).to_owned();
    }
    let (from, to) = class_range(usize::from(size_class - 1));
    match to - from {
        1 => format!("blocks of {}", format_bytes(from)),
        _ => format!("blocks from {} to below {}", format_bytes(from), format_bytes(to)),
    }
}

/// Lifetimes of the blocks of one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Lives {
    blocks: u64,
    bytes: u64,
    ended_blocks: u64,
    ended_ns: u128,
    churned_blocks: u64,
    churned_bytes: u64,
    spread: Spread,
}

/// Counts by bucket, for the range of buckets that occur.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Spread {
    first: usize,
    counts: Vec<u64>,
}

/// Leading bits after the first in which lifetimes of one bucket agree.
const BITS: u32 = 4;

impl Spread {
    fn add(&mut self, bucket: usize, count: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - bucket));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }

    fn merge(&mut self, other: &Self) {
        for (at, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(other.first + at, *count);
        }
    }

    /// Whether the buckets are there, as those that were read from a file may not be.
    fn is_sound(&self) -> bool {
        self.first.saturating_add(self.counts.len()) <= bucket_count::<BITS>()
    }

    /// The bucket with the lower one of the two middle values; its middle.
    fn median(&self) -> Option<u64> {
        let count: u64 = self.counts.iter().sum();
        let mut passed = 0;
        let at = self.counts.iter().position(|bucket| {
            passed += bucket;
            passed * 2 >= count && passed > 0
        })?;
        Some(middle::<BITS>(self.first + at))
    }
}

impl Lives {
    fn merge(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ended_blocks += other.ended_blocks;
        self.ended_ns += other.ended_ns;
        self.churned_blocks += other.churned_blocks;
        self.churned_bytes = self.churned_bytes.saturating_add(other.churned_bytes);
        self.spread.merge(&other.spread);
    }

    fn mean_ns(&self) -> Option<f64> {
        (self.ended_blocks > 0).then(|| self.ended_ns as f64 / self.ended_blocks as f64)
    }

    fn site(&self, site: String) -> LifetimeSite {
        LifetimeSite {
            site,
            blocks: self.blocks,
            bytes: self.bytes,
            ended_blocks: self.ended_blocks,
            mean_ns: self.mean_ns(),
            median_ns: self.spread.median(),
            churned_blocks: self.churned_blocks,
            churned_bytes: self.churned_bytes,
            churn: share(self.churned_blocks, self.ended_blocks),
        }
    }
}

impl LifetimesFold {
    /// Starts to measure lifetimes.
    pub fn new(options: LifetimesOptions) -> Self {
        Self { options, ..Self::default() }
    }

    fn id(&mut self, place: Place) -> usize {
        let id = *self.places.entry(place).or_insert_with(|| {
            self.lives.push(Lives::default());
            self.lives.len() as u32 - 1
        });
        id as usize
    }

    /// Sums up a tally by the texts of its sites, blocks that are live at the end included.
    fn by_site(&self, tally: u8, end: &End<'_>) -> FxHashMap<String, Lives> {
        let mut describe = Describe::new(end, &self.options.sites);
        let mut sites: FxHashMap<String, Lives> = FxHashMap::default();
        for (place, id) in self.places.iter().filter(|(place, _)| place.0.tally == tally) {
            sites.entry(place_text(*place, &mut describe)).or_default().merge(&self.lives[*id as usize]);
        }
        let mut live: FxHashMap<Place, (u64, u64)> = FxHashMap::default();
        for block in end.live.blocks().filter(|block| block.tally == tally) {
            let sum = live.entry(place(block)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(block.bytes));
        }
        for (place, (blocks, bytes)) in live {
            let lives = sites.entry(place_text(place, &mut describe)).or_default();
            lives.blocks += blocks;
            lives.bytes = lives.bytes.saturating_add(bytes);
        }
        sites
    }

    fn histogram(&self, tally: u8) -> Vec<LifetimeBar> {
        let classes = self.classes.get(usize::from(tally)).into_iter().flatten().enumerate();
        let used = classes.filter(|(_, (count, _))| *count > 0);
        used.map(|(class, (count, bytes))| {
            let (from_ns, to_ns) = class_range(class);
            LifetimeBar { from_ns, to_ns, count: *count, bytes: *bytes }
        })
        .collect()
    }
}

/// What partial results have of a [`LifetimesFold`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LifetimesData {
    pub(crate) threshold_ns: u64,
    places: Vec<(OriginData, u8, Lives)>,
    /// Ended blocks and their bytes, by tally and class of lifetime.
    classes: Vec<Vec<(u64, u64)>>,
}

impl LifetimesFold {
    pub(crate) fn data(&self, ids: &mut Compact<'_>) -> LifetimesData {
        let place = |((origin, class), id): (&Place, &u32)| {
            (ids.origin(*origin), *class, self.lives[*id as usize].clone())
        };
        LifetimesData {
            threshold_ns: self.options.threshold_ns,
            places: self.places.iter().map(place).collect(),
            classes: self.classes.iter().map(|classes| classes.to_vec()).collect(),
        }
    }

    /// Returns the fold that `data` is of.
    pub(crate) fn of(data: LifetimesData, ids: &Expand) -> Result<Self, PartialError> {
        let mut fold = Self::default();
        fold.options.threshold_ns = data.threshold_ns;
        for (origin, class, lives) in data.places {
            let is_sound = usize::from(class) <= CLASSES && lives.spread.is_sound();
            if !is_sound || lives.ended_blocks > lives.blocks {
                return Err(PartialError::Damaged("a lifetime"));
            }
            let at = fold.id((ids.origin(origin)?, class));
            fold.lives[at] = lives;
        }
        for classes in data.classes {
            let classes = classes.try_into().map_err(|_| PartialError::Damaged("a class of lifetimes"))?;
            fold.classes.push(classes);
        }
        Ok(fold)
    }

    /// Below which lifetime blocks count as churn.
    pub(crate) fn threshold_ns(&self) -> u64 {
        self.options.threshold_ns
    }

    /// Reports with other options; the threshold stays.
    pub(crate) fn set_report(&mut self, limit: Option<usize>, sites: SiteRules) {
        (self.options.limit, self.options.sites) = (limit, sites);
    }
}

impl Merge for LifetimesFold {
    fn merge(&mut self, other: Self, _spaces: &SpaceMap) {
        for (place, id) in &other.places {
            let ours = self.id(*place);
            self.lives[ours].merge(&other.lives[*id as usize]);
        }
        if self.classes.len() < other.classes.len() {
            self.classes.resize(other.classes.len(), [(0, 0); CLASSES]);
        }
        for (ours, theirs) in self.classes.iter_mut().flatten().zip(other.classes.iter().flatten()) {
            *ours = (ours.0 + theirs.0, ours.1.saturating_add(theirs.1));
        }
    }
}

impl Fold for LifetimesFold {
    type Output = Lifetimes;

    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        let lifetime_ns = ending.time_ns.saturating_sub(block.time_ns).max(0) as u64;
        let tally = usize::from(block.tally);
        if tally >= self.classes.len() {
            self.classes.resize(tally + 1, [(0, 0); CLASSES]);
        }
        let class = &mut self.classes[tally][class(lifetime_ns)];
        *class = (class.0 + 1, class.1.saturating_add(block.bytes));
        let id = self.id(place(block));
        let lives = &mut self.lives[id];
        lives.blocks += 1;
        lives.bytes = lives.bytes.saturating_add(block.bytes);
        lives.ended_blocks += 1;
        lives.ended_ns += u128::from(lifetime_ns);
        if lifetime_ns < self.options.threshold_ns {
            lives.churned_blocks += 1;
            lives.churned_bytes = lives.churned_bytes.saturating_add(block.bytes);
        }
        lives.spread.add(bucket::<BITS>(lifetime_ns), 1);
    }

    fn finish(&self, end: &End<'_>) -> Lifetimes {
        let tallies = end.live.tallies();
        let main = tallies.main();
        let by_site = self.by_site(main, end);
        let mut whole = Lives::default();
        for lives in by_site.values() {
            whole.merge(lives);
        }
        let mut sites: Vec<LifetimeSite> =
            by_site.into_iter().map(|(site, lives)| lives.site(site)).collect();
        let rank = |site: &LifetimeSite| (Reverse(site.churned_bytes), Reverse(site.bytes));
        sites.sort_by(|a, b| (rank(a), &a.site).cmp(&(rank(b), &b.site)));
        let limit = self.options.limit.unwrap_or(usize::MAX).min(sites.len());
        let sites_omitted = (sites.len() - limit) as u64;
        sites.truncate(limit);
        Lifetimes {
            kinds: tallies.main_kinds(),
            threshold_ns: self.options.threshold_ns,
            ended_blocks: whole.ended_blocks,
            live_blocks: whole.blocks - whole.ended_blocks,
            churned_blocks: whole.churned_blocks,
            churned_bytes: whole.churned_bytes,
            mean_ns: whole.mean_ns(),
            median_ns: whole.spread.median(),
            sites,
            sites_omitted,
            histogram: self.histogram(main),
        }
    }
}
