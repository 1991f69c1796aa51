//! Why an allocation failed, what held memory then, what had changed shortly before, and what would have been enough.
//!
//! Two passes find this out. The first one, [`FailureFold`], finds the failure that is to be explained and the free
//! memory around it. What was live then is asked of the blocks of the same process, device and kind, which the second
//! one selects: [`OutOfMemory::new`] puts the results together.

use std::cmp::Reverse;

use floodmark_event::{Kind, NO_DEVICE, ProcessId, StringId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::block::StackText;
use crate::change::{Failure, Space};
use crate::describe::Describe;
use crate::fold::{End, Fold};
use crate::fragmentation::{Basis, FailedRequest, FailureCause, Fragmentation};
use crate::site::{NO_SITE, SiteRules};
use crate::watermark::{Grouping, Watermark};

/// The failure that is to be explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhichFailure {
    /// The last one: a program that cannot go on ends with it.
    #[default]
    Last,
    /// The one with this number, counted from 1.
    Number(u64),
}

/// A failed allocation with all that its event says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedCall {
    /// Its number among all failures, from 1.
    pub number: u64,
    /// Its number among the failures of the same process, device and kind, from 1.
    #[serde(skip)]
    pub number_in_domain: u64,
    /// When it failed.
    pub time_ns: i64,
    /// Bytes that it asked for.
    pub asked_bytes: u64,
    /// Sort of memory, by name in JSON.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// Device, or none.
    pub device: Option<i32>,
    /// Id of the process in the trace.
    pub process: u32,
    /// Thread that asked.
    pub thread: u64,
    /// Stream on which it asked; `"0x…"` in JSON.
    #[serde(with = "crate::json::hex")]
    pub stream: u64,
    /// Place in the program that asked.
    pub site: String,
    /// Call stack, innermost frame first.
    pub stack: StackText,
}

/// Folds events into the number of failures and the one that is to be explained.
#[derive(Clone, Debug, Default)]
pub struct FailureFold {
    which: WhichFailure,
    sites: SiteRules,
    count: u64,
    /// Process and device of every space.
    places: Vec<(ProcessId, i32)>,
    /// Failures of every process, device and kind.
    counts: FxHashMap<(ProcessId, i32, Kind), u64>,
    /// The failure, its number among all, and its number among those of its process, device and kind.
    found: Option<(Failure, u64, u64)>,
}

impl FailureFold {
    /// Starts to look for a failure.
    pub fn new(which: WhichFailure, sites: SiteRules) -> Self {
        Self { which, sites, ..Self::default() }
    }
}

impl Fold for FailureFold {
    type Output = (u64, Option<FailedCall>);

    fn space(&mut self, _index: u32, space: Space) {
        self.places.push((space.process, space.device));
    }

    fn failure(&mut self, failure: &Failure) {
        self.count += 1;
        let (process, device) = self.places[failure.space as usize];
        let in_domain = self.counts.entry((process, device, failure.kind)).or_default();
        *in_domain += 1;
        let is_wanted = match self.which {
            WhichFailure::Last => true,
            WhichFailure::Number(number) => number == self.count,
        };
        if is_wanted {
            self.found = Some((*failure, self.count, *in_domain));
        }
    }

    fn finish(&self, end: &End<'_>) -> Self::Output {
        let mut describe = Describe::new(end, &self.sites);
        let found = self.found.map(|(failure, number, number_in_domain)| {
            let space = end.live.space(failure.space);
            let site = describe.site_id(failure.stack, StringId(0));
            FailedCall {
                number,
                number_in_domain,
                time_ns: failure.time_ns,
                asked_bytes: failure.bytes,
                kind: failure.kind,
                device: (space.device != NO_DEVICE).then_some(space.device),
                process: space.process.0,
                thread: failure.thread,
                stream: failure.stream,
                site: describe.site(site).to_owned(),
                stack: describe.stack(failure.stack),
            }
        });
        (self.count, found)
    }
}

/// What a site held before and at the failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteChange {
    /// The site.
    pub site: String,
    /// What it held at the beginning of the interval.
    pub before_bytes: u64,
    /// What it held at the failure.
    pub at_bytes: u64,
}

impl SiteChange {
    /// Bytes by which it grew; negative if it shrank.
    pub fn grown_bytes(&self) -> i64 {
        i64::try_from(i128::from(self.at_bytes) - i128::from(self.before_bytes)).unwrap_or(i64::MAX)
    }
}

/// What changed in the last seconds before a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentChange {
    /// Length of the interval; shorter than asked for if recording began later.
    pub interval_ns: u64,
    /// Live bytes at its beginning.
    pub before_bytes: u64,
    /// The sites that changed, the one that grew most first.
    pub sites: Vec<SiteChange>,
}

/// The free memory that a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeMemory {
    /// How the extents are known in which gaps lie.
    pub basis: Basis,
    /// Bytes of all gaps.
    pub free_bytes: u64,
    /// The largest of them, which is the largest request that would have fitted.
    pub largest_gap_bytes: u64,
    /// Why the request failed, as far as free memory tells.
    pub cause: FailureCause,
    /// Bytes that were missing: all gaps together, or the largest gap, were too small by so much.
    pub missing_bytes: u64,
}

/// Memory of a device when an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAtFailure {
    /// Bytes that were free.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
}

/// The failures of an input, and one of them explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Number of failed allocations.
    pub failures: u64,
    /// Instant that elapsed times count from.
    pub origin_time_ns: Option<i64>,
    /// The failure that is explained; none if there is none.
    pub failure: Option<FailedCall>,
    /// The free memory that it met; none if there are more failures than are kept.
    pub free: Option<FreeMemory>,
    /// What the device had when it failed, of all processes; none if it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<DeviceAtFailure>,
    /// Live bytes of its process, device and kind.
    pub live_bytes: u64,
    /// Their blocks.
    pub live_blocks: u64,
    /// The highest live bytes of its process, device and kind, then or at another time.
    pub peak_bytes: u64,
    /// Who held them: one entry per way to group, sites first.
    pub held_by: Vec<Grouping>,
    /// What changed shortly before.
    pub recent: RecentChange,
    /// The fewest sites, largest first, that together held as much as was missing; empty if none of them is known or
    /// free memory was fragmented.
    pub enough: Vec<String>,
}

impl OutOfMemory {
    /// Puts together what the two passes found. `at` and `before` are about the failure and an earlier instant, and are
    /// grouped by site first.
    pub fn new(
        (failures, failure): (u64, Option<FailedCall>),
        gaps: &Fragmentation,
        at: Watermark,
        before: &Watermark,
    ) -> Self {
        let Some(failure) = failure else { return Self { failures, ..Self::default() } };
        let free = free_memory(&failure, gaps);
        let from_ns = before.at_ns.unwrap_or(failure.time_ns);
        let from_ns = at.origin_time_ns.map_or(from_ns, |origin_ns| from_ns.max(origin_ns));
        let recent = RecentChange {
            interval_ns: failure.time_ns.abs_diff(from_ns),
            before_bytes: before.reported_bytes,
            sites: changes(before, &at),
        };
        let enough = free.map(|free| enough(&free, &at.groups)).unwrap_or_default();
        Self {
            failures,
            origin_time_ns: at.origin_time_ns,
            failure: Some(failure),
            free,
            device_memory: None,
            live_bytes: at.reported_bytes,
            live_blocks: at.reported_blocks,
            peak_bytes: at.peak_bytes,
            held_by: at.groups,
            recent,
            enough,
        }
    }
}

impl OutOfMemory {
    /// Adds what the device had when the request failed. Where the allocator is the driver itself, so that nothing tells of
    /// segments, that is the free memory which the request met.
    pub fn on_device(&mut self, device: DeviceAtFailure) {
        self.device_memory = Some(device);
        let Some(failure) = &self.failure else { return };
        if self.free.is_some_and(|free| free.basis == Basis::Segments) {
            return;
        }
        let missing_bytes = failure.asked_bytes.saturating_sub(device.free_bytes);
        let free = FreeMemory {
            basis: Basis::Inferred,
            free_bytes: device.free_bytes,
            largest_gap_bytes: device.free_bytes,
            cause: if missing_bytes > 0 { FailureCause::Exhaustion } else { FailureCause::Other },
            missing_bytes,
        };
        self.enough = enough(&free, &self.held_by);
        self.free = Some(free);
    }
}

/// Finds the free memory of a failure, which the first pass listed under the same number.
fn free_memory(failure: &FailedCall, gaps: &Fragmentation) -> Option<FreeMemory> {
    let at = usize::try_from(failure.number - 1).ok()?;
    let FailedRequest { free_bytes, largest_gap_bytes, cause, .. } = *gaps.failures.get(at)?;
    let is_segment = |space: &&crate::fragmentation::AddressSpaceReport| {
        (space.process, space.device, space.basis) == (failure.process, failure.device, Basis::Segments)
    };
    let basis = if gaps.address_spaces.iter().any(|space| is_segment(&space)) {
        Basis::Segments
    } else {
        Basis::Inferred
    };
    let missing_bytes = match cause {
        FailureCause::Exhaustion => failure.asked_bytes - free_bytes,
        FailureCause::Fragmentation => failure.asked_bytes - largest_gap_bytes,
        FailureCause::Other => 0,
    };
    Some(FreeMemory { basis, free_bytes, largest_gap_bytes, cause, missing_bytes })
}

fn by_site(groups: &[Grouping]) -> impl Iterator<Item = (&str, u64)> {
    let groups = groups.first().map(|grouping| grouping.groups.as_slice()).unwrap_or_default();
    groups.iter().map(|group| (group.key.as_str(), group.bytes))
}

/// What changed by site, the largest growth first.
fn changes(before: &Watermark, at: &Watermark) -> Vec<SiteChange> {
    let mut sites: FxHashMap<&str, (u64, u64)> = FxHashMap::default();
    for (site, bytes) in by_site(&before.groups) {
        sites.entry(site).or_default().0 += bytes;
    }
    for (site, bytes) in by_site(&at.groups) {
        sites.entry(site).or_default().1 += bytes;
    }
    let mut changes: Vec<SiteChange> = sites
        .into_iter()
        .filter(|(_, (before, at))| before != at)
        .map(|(site, (before_bytes, at_bytes))| SiteChange { site: site.to_owned(), before_bytes, at_bytes })
        .collect();
    changes.sort_by(|a, b| (Reverse(a.grown_bytes()), &a.site).cmp(&(Reverse(b.grown_bytes()), &b.site)));
    changes
}

/// The fewest sites that held as much as was missing.
fn enough(free: &FreeMemory, at: &[Grouping]) -> Vec<String> {
    if free.cause != FailureCause::Exhaustion || by_site(at).all(|(site, _)| site == NO_SITE) {
        return Vec::new();
    }
    let (mut sum, mut sites) = (0u64, Vec::new());
    for (site, bytes) in by_site(at).filter(|(site, _)| *site != NO_SITE) {
        sum = sum.saturating_add(bytes);
        sites.push(site.to_owned());
        if sum >= free.missing_bytes {
            return sites;
        }
    }
    Vec::new()
}
