//! The ledger of a device: what the memory consists of that its driver says is in use.
//!
//! Samples tell what the driver knows: bytes in use of the device, and by whom. Events tell what programs asked for.
//! Neither is read when the other is, so every item says at which instant it was. The items of a ledger always add up to
//! what was in use at the peak; what nothing explains is an item too.

use std::collections::BTreeMap;

use floodmark_event::{Kind, Metric, ProcessId, SampleRow, StackId, StringId, SubjectKind, SubjectRow};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::fold::{End, Fold};
use crate::site::SiteRules;

/// What an item of a device's ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceLedgerClass {
    /// What an allocator of the program handed out, such as tensors.
    HandedOut,
    /// What it, or a pool of the driver, held beyond that.
    CacheSlack,
    /// What a library allocated from the driver itself.
    Library,
    /// Variables of modules.
    Static,
    /// What the driver counts for a process beyond what was recorded of it: its context, code, rounding.
    Context,
    /// What the driver counts for a process of which nothing was recorded on this device.
    OtherProcess,
    /// What was in use before anything was recorded: the driver itself, and processes that ran already.
    Before,
    /// What is in use and explained by nothing; negative if more was recorded than is in use.
    Residual,
}

/// An item of a device's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLedgerItem {
    /// What it is.
    pub class: DeviceLedgerClass,
    /// Resource, library, pool or program.
    pub name: Option<String>,
    /// PID of the process that the driver counts it for.
    pub pid: Option<u64>,
    /// Bytes on the device.
    pub bytes: i64,
    /// When the figure was read: events were taken up to then, samples at that instant; none for what is left over.
    pub read_time_ns: Option<i64>,
}

/// What the used memory of a device consisted of at its peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLedger {
    /// Number of the device, as the driver counts.
    pub device: u64,
    /// Name of the device.
    pub name: String,
    /// Instant of the first sample of it.
    pub start_time_ns: i64,
    /// The most bytes in use that were sampled.
    pub peak_used_bytes: u64,
    /// When that was sampled first.
    pub peak_time_ns: i64,
    /// Bytes of the device; none if not known.
    pub total_bytes: Option<u64>,
    /// Whether the driver said in time what processes had, so that their contexts can be told from the residual.
    pub has_process_use: bool,
    /// Whether memory of the device was recorded by its allocations.
    pub has_events: bool,
    /// Items, which add up to the bytes in use.
    pub items: Vec<DeviceLedgerItem>,
}

/// Something that was live on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedUse {
    /// Process.
    pub process: ProcessId,
    /// What it is.
    pub class: DeviceLedgerClass,
    /// Resource or library.
    pub name: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// When it was read, if not at the peak.
    pub read_time_ns: Option<i64>,
}

/// Which devices of processes are the one that is asked about.
#[derive(Clone, Debug, Default)]
pub struct DeviceIdentity {
    /// Number as the driver counts.
    pub number: i32,
    /// Numbers in processes of which it is known whether they are this one: programs can number devices otherwise.
    pub known: BTreeMap<(ProcessId, i32), bool>,
}

impl DeviceIdentity {
    fn is(&self, process: ProcessId, device: i32) -> bool {
        self.known.get(&(process, device)).copied().unwrap_or(device == self.number)
    }
}

/// Kinds of memory that a device's ledger is made of; managed memory may be on the host as well.
pub const DEVICE_KINDS: [Kind; 4] = [Kind::Device, Kind::Array, Kind::Static, Kind::Reserved];

/// Folds events up to an instant into what was live then on a device.
#[derive(Clone, Debug, Default)]
pub struct TrackedUseFold {
    device: DeviceIdentity,
    sites: SiteRules,
}

impl TrackedUseFold {
    /// Starts for a device.
    pub fn new(device: DeviceIdentity, sites: SiteRules) -> Self {
        Self { device, sites }
    }
}

/// Whether a resource is a function of the driver: what asks it directly is a library, not an allocator's client.
fn is_driver_function(resource: &str) -> bool {
    resource.is_empty()
        || resource.strip_prefix("cu").is_some_and(|rest| {
            rest.starts_with("da") || rest.starts_with(|first: char| first.is_ascii_uppercase())
        })
}

impl Fold for TrackedUseFold {
    type Output = Vec<TrackedUse>;

    fn finish(&self, end: &End<'_>) -> Self::Output {
        let mut modules: FxHashMap<StackId, String> = FxHashMap::default();
        let mut handed_out: BTreeMap<(ProcessId, StringId), u64> = BTreeMap::new();
        let mut held: BTreeMap<(ProcessId, StringId), u64> = BTreeMap::new();
        let mut libraries: BTreeMap<(ProcessId, String), u64> = BTreeMap::new();
        let mut variables: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for block in end.live.blocks() {
            let space = end.live.space(block.space);
            if !self.device.is(space.process, space.device) {
                continue;
            }
            let sum = match block.kind {
                Kind::Static => variables.entry(space.process).or_default(),
                Kind::Reserved => held.entry((space.process, space.resource)).or_default(),
                Kind::Device | Kind::Array if is_driver_function(end.tables.string(space.resource)) => {
                    let module = modules.entry(block.stack);
                    let module = module.or_insert_with(|| self.sites.module(block.stack, end.tables));
                    libraries.entry((space.process, module.clone())).or_default()
                }
                Kind::Device | Kind::Array => handed_out.entry((space.process, space.resource)).or_default(),
                _ => continue,
            };
            *sum = sum.saturating_add(block.bytes);
        }
        let mut uses = Vec::new();
        let mut add = |process, class, name: Option<String>, bytes: u64| {
            uses.push(TrackedUse { process, class, name, bytes, read_time_ns: None });
        };
        for ((process, resource), bytes) in &held {
            let name = end.tables.string(*resource);
            // Blocks made of what is held have its name with a word less.
            let divided = handed_out.iter().filter(|((owner, blocks), _)| {
                let blocks = end.tables.string(*blocks);
                owner == process && name.strip_prefix(blocks).is_some_and(|rest| rest.starts_with(' '))
            });
            let divided = divided.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
            let slack = bytes.saturating_sub(divided);
            add(*process, DeviceLedgerClass::CacheSlack, Some(name.to_owned()), slack);
        }
        for ((process, resource), bytes) in handed_out {
            let name = end.tables.string(resource).to_owned();
            add(process, DeviceLedgerClass::HandedOut, Some(name), bytes);
        }
        for ((process, module), bytes) in libraries {
            add(process, DeviceLedgerClass::Library, Some(module), bytes);
        }
        for (process, bytes) in variables {
            add(process, DeviceLedgerClass::Static, None, bytes);
        }
        uses
    }
}

/// The samples of a device that are its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Peak {
    used_bytes: u64,
    time_ns: i64,
    /// Instant of the next lower sample.
    left_ns: Option<i64>,
}

/// What was sampled of something beside the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Beside {
    /// Instant and value of the last sample at or before the peak.
    before: Option<(i64, u64)>,
    /// The same of the last one while as much was in use, if it was more than nothing.
    within: Option<(i64, u64)>,
    /// Whether it had memory when the device was sampled first.
    had_at_first: bool,
}

/// Folds samples into what is known of a device: in a first pass its peak, in a second what was sampled beside it then.
#[derive(Clone, Debug, Default)]
pub struct DeviceSamplesFold {
    subject: u64,
    first: Option<(i64, u64)>,
    peak: Option<Peak>,
    total_bytes: Option<u64>,
    /// What the driver counted for each process.
    processes: BTreeMap<u64, Beside>,
    /// What pools held, and what was in use of it.
    pools: BTreeMap<u64, [Beside; 2]>,
}

impl DeviceSamplesFold {
    /// Starts for the device that this subject is.
    pub fn new(subject: u64) -> Self {
        Self { subject, ..Self::default() }
    }

    /// Takes in a sample in the first pass; those of a subject come in the order of time.
    pub fn sample(&mut self, row: &SampleRow) {
        match row.metric {
            Metric::GpuUsed if row.subject == self.subject => self.used((row.time_ns, row.value)),
            Metric::GpuTotal if row.subject == self.subject => self.total_bytes = Some(row.value),
            _ => {}
        }
    }

    fn used(&mut self, (time_ns, used_bytes): (i64, u64)) {
        self.first.get_or_insert((time_ns, used_bytes));
        match &mut self.peak {
            Some(peak) if used_bytes <= peak.used_bytes => {
                if used_bytes < peak.used_bytes {
                    peak.left_ns.get_or_insert(time_ns);
                }
            }
            _ => self.peak = Some(Peak { used_bytes, time_ns, left_ns: None }),
        }
    }

    /// Takes in a sample in the second pass.
    pub fn sample_beside(&mut self, row: &SampleRow, subjects: &BTreeMap<u64, SubjectRow>) {
        let (Some(peak), Some((first_ns, _))) = (self.peak, self.first) else { return };
        let Some(subject) = subjects.get(&row.subject) else { return };
        let beside = match (subject.kind, row.metric) {
            (SubjectKind::Process, Metric::GpuUsed) => self.processes.entry(row.subject).or_default(),
            (SubjectKind::Pool, Metric::Reserved) => &mut self.pools.entry(row.subject).or_default()[0],
            (SubjectKind::Pool, Metric::Live) => &mut self.pools.entry(row.subject).or_default()[1],
            _ => return,
        };
        let point = Some((row.time_ns, row.value));
        if row.time_ns <= peak.time_ns {
            beside.before = point;
        }
        // One that ended while as much was in use had memory at the peak all the same.
        let is_left = peak.left_ns.is_some_and(|left_ns| row.time_ns >= left_ns);
        if row.time_ns >= peak.time_ns && !is_left && row.value > 0 {
            beside.within = point;
        }
        beside.had_at_first |= row.time_ns <= first_ns && row.value > 0;
    }

    /// The instant that the ledger is about: the first sample with most bytes in use. None without samples.
    pub fn instant(&self) -> Option<i64> {
        self.peak.map(|peak| peak.time_ns)
    }

    /// What pools of the driver held at the peak beyond what was in use, as their own samples say.
    pub fn pool_slack(
        &self,
        device: &DeviceIdentity,
        subjects: &BTreeMap<u64, SubjectRow>,
    ) -> Vec<TrackedUse> {
        let mut uses = Vec::new();
        for (subject, [reserved, live]) in &self.pools {
            let Some(row) = subjects.get(subject) else { continue };
            // A pool's name ends with its device, and the upper half of its number is its process.
            let number = row.name.rsplit_once(" of device ").and_then(|(_, number)| number.parse().ok());
            let process = ProcessId((subject >> 32) as u32);
            if !number.is_some_and(|number| device.is(process, number)) {
                continue;
            }
            let Some((time_ns, reserved)) = reserved.before else { continue };
            let live = live.before.map_or(0, |(_, live)| live);
            uses.push(TrackedUse {
                process,
                class: DeviceLedgerClass::CacheSlack,
                name: Some(row.name.clone()),
                bytes: reserved.saturating_sub(live),
                read_time_ns: Some(time_ns),
            });
        }
        uses
    }

    /// What the driver counted for processes at the peak: while as much was in use, as long as that was so, else before.
    /// Their list is read less often than the device.
    fn process_uses(&self) -> impl Iterator<Item = (u64, i64, u64)> {
        self.processes.iter().filter_map(|(subject, beside)| {
            let (time_ns, value) = beside.within.or(beside.before)?;
            (value > 0).then_some((*subject, time_ns, value))
        })
    }

    /// Draws the ledger up from what was `tracked` at the peak, none where no events were recorded; `pids` names the
    /// processes of events. What the driver counts for processes is of all devices, so it counts only where there
    /// is but one.
    ///
    /// None without samples.
    pub fn ledger(
        &self,
        tracked: Option<&[TrackedUse]>,
        pids: &BTreeMap<ProcessId, u64>,
        subjects: &BTreeMap<u64, SubjectRow>,
        first_event_ns: Option<i64>,
    ) -> Option<DeviceLedger> {
        use DeviceLedgerClass::{Before, CacheSlack, Context, OtherProcess, Residual};
        let peak = self.peak?;
        let device = subjects.get(&self.subject);
        let mut items: Vec<DeviceLedgerItem> = Vec::new();
        let mut sums: BTreeMap<(DeviceLedgerClass, Option<&str>, Option<i64>), u64> = BTreeMap::new();
        let mut of_pids: BTreeMap<u64, u64> = BTreeMap::new();
        for one in tracked.unwrap_or_default() {
            let sum = sums.entry((one.class, one.name.as_deref(), one.read_time_ns)).or_default();
            *sum = sum.saturating_add(one.bytes);
            if let Some(pid) = pids.get(&one.process) {
                let sum = of_pids.entry(*pid).or_default();
                *sum = sum.saturating_add(one.bytes);
            }
        }
        for ((class, name, read_time_ns), bytes) in sums {
            // A cache without slack says something too; other items without bytes do not.
            if bytes > 0 || class == CacheSlack {
                items.push(DeviceLedgerItem {
                    class,
                    name: name.map(str::to_owned),
                    pid: None,
                    bytes: signed(bytes),
                    read_time_ns: Some(read_time_ns.unwrap_or(peak.time_ns)),
                });
            }
        }
        let is_only = subjects.values().filter(|row| row.kind == SubjectKind::Device).count() == 1;
        let mut has_process_use = false;
        for (subject, time_ns, bytes) in self.process_uses().filter(|_| is_only) {
            let Some(row) = subjects.get(&subject) else { continue };
            let own = of_pids.remove(&row.number);
            // A reading from before allocations that are known is out of date, and says nothing of the context.
            if own.is_some_and(|own| own > bytes) {
                continue;
            }
            has_process_use = true;
            items.push(DeviceLedgerItem {
                class: if own.is_some() { Context } else { OtherProcess },
                name: Some(row.name.clone()),
                pid: Some(row.number),
                bytes: signed(bytes).saturating_sub(signed(own.unwrap_or(0))),
                read_time_ns: Some(time_ns),
            });
        }
        // What was in use at first is nobody's of the run only if nobody had begun.
        if let Some((time_ns, bytes)) = self.first
            && time_ns < peak.time_ns
            && first_event_ns.is_none_or(|first_ns| time_ns < first_ns)
            && !self.processes.values().any(|process| process.had_at_first)
        {
            items.push(DeviceLedgerItem {
                class: Before,
                name: None,
                pid: None,
                bytes: signed(bytes),
                read_time_ns: Some(time_ns),
            });
        }
        items.sort_by(|one, other| {
            one.class.cmp(&other.class).then(other.bytes.cmp(&one.bytes)).then(one.name.cmp(&other.name))
        });
        // Wide enough that no figure of a damaged trace is cut off.
        let explained: i128 = items.iter().map(|item| i128::from(item.bytes)).sum();
        let residual = i128::from(signed(peak.used_bytes)) - explained;
        items.push(DeviceLedgerItem {
            class: Residual,
            name: None,
            pid: None,
            bytes: residual.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
            read_time_ns: None,
        });
        Some(DeviceLedger {
            device: device.map_or(0, |device| device.number),
            name: device.map_or_else(String::new, |device| device.name.clone()),
            start_time_ns: self.first.map_or(peak.time_ns, |(time_ns, _)| time_ns),
            peak_used_bytes: peak.used_bytes,
            peak_time_ns: peak.time_ns,
            total_bytes: self.total_bytes,
            has_process_use,
            has_events: tracked.is_some(),
            items,
        })
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
