//! Live bytes over time, beside what devices reported of their memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use floodmark_analyze::{
    Align, DeviceSample, Overlay, OverlayFold, OverlayOptions, Usage, UsageFold, UsageMode,
};
use floodmark_event::units::format_time_ns;
use floodmark_event::{Metric, Row, SubjectKind, SubjectRow};
use floodmark_store::ScanProps;
use serde::Serialize;

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::Columns;
use crate::query::Query;

/// Live bytes over time and, where a device was sampled, what it reported.
#[derive(Clone, Debug, Serialize)]
pub struct UsageBeside {
    /// Live bytes over time.
    #[serde(flatten)]
    pub usage: Usage,
    /// What devices reported, and the difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Overlay>,
}

/// How to answer [`Input::usage`].
#[derive(Debug)]
pub struct UsageProps<'a> {
    /// How many points to keep.
    pub mode: UsageMode,
    /// A log of a device's memory; without one, samples of the input itself are used.
    pub device_log: Option<&'a Input>,
    /// How times of samples and events are put together.
    pub align: Align,
}

impl Input {
    /// Returns live bytes over time, beside what devices reported.
    ///
    /// # Errors
    /// If there are no events, no sample of `device_log` falls into their time, or either cannot be read.
    pub fn usage(&self, query: &Query<'_>, props: &UsageProps<'_>) -> Result<Answer<UsageBeside>> {
        let samples = match props.device_log {
            Some(log) => log.device_log(&self.device_ids()?, &self.pids()?)?,
            None => self.own_device_samples()?,
        };
        let overlay = OverlayOptions { samples, align: props.align };
        let overlay = (!overlay.samples.is_empty()).then(|| OverlayFold::new(overlay));
        let answer = self.ask(query, Columns::Figures, (UsageFold::new(props.mode), overlay))?;
        let answer = answer.map(|(usage, overlay)| UsageBeside { usage, overlay });
        if let Some(overlay) = answer.result.overlay.as_ref().filter(|_| props.device_log.is_some()) {
            refuse_disjoint(overlay)?;
        }
        Ok(answer)
    }

    /// Reads a log of a device's memory; `ids` identify the devices of the events and `pids` their processes. A
    /// log of processes alone counts for the device of the events, if there is only one.
    fn device_log(&self, ids: &DeviceIds, pids: &HashSet<u64>) -> Result<Vec<DeviceSample>> {
        let mut samples = self.device_samples(ids)?;
        if samples.is_empty() {
            samples = self.process_samples(ids.only_device(), pids)?;
        }
        if samples.is_empty() {
            return Err(Error::no_content(
                format!("{} contains no samples of a device or process of the input", self.name()),
                "'nvidia-smi --query-gpu=timestamp,index,uuid,memory.used --format=csv -l 1' writes some",
            ));
        }
        Ok(samples)
    }

    /// Reads what the processes of the events had on devices; all processes of the log if the input does not say
    /// which are its own.
    fn process_samples(&self, device: i32, pids: &HashSet<u64>) -> Result<Vec<DeviceSample>> {
        let (mut source, mut rows) = (self.rows(&ScanProps::default())?, Vec::new());
        let mut now: BTreeMap<u64, u64> = BTreeMap::new();
        let mut samples: Vec<DeviceSample> = Vec::new();
        while source.next(&mut rows)? {
            let subjects = &source.tables().subjects;
            for row in &rows {
                let Row::Sample(row) = row else { continue };
                let is_ours = |subject: &SubjectRow| {
                    let is_wanted = pids.is_empty() || pids.contains(&subject.number);
                    subject.kind == SubjectKind::Process && is_wanted
                };
                if row.metric != Metric::GpuUsed || !subjects.get(&row.subject).is_some_and(is_ours) {
                    continue;
                }
                now.insert(row.subject, row.value);
                let used_bytes = now.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
                match samples.last_mut().filter(|last| last.time_ns == row.time_ns) {
                    Some(last) => last.used_bytes = used_bytes,
                    None => samples.push(DeviceSample { time_ns: row.time_ns, device, used_bytes }),
                }
            }
        }
        Ok(samples)
    }

    /// Returns the PIDs of the processes of the events, as far as the input says.
    fn pids(&self) -> Result<HashSet<u64>> {
        let contents = self.contents();
        if !contents.has_events || !contents.can_rewind {
            return Ok(HashSet::new());
        }
        let source = self.events(&ScanProps::default())?;
        let pids = source.tables().processes.iter().map(|process| u64::from(process.pid));
        Ok(pids.filter(|pid| *pid != 0).collect())
    }

    /// Reads the samples of devices that a trace has beside its events.
    fn own_device_samples(&self) -> Result<Vec<DeviceSample>> {
        let has_devices = match self.trace() {
            Some(trace) => trace.subjects()?.values().any(|subject| subject.kind == SubjectKind::Device),
            None => false,
        };
        if has_devices { self.device_samples(&DeviceIds::default()) } else { Ok(Vec::new()) }
    }

    /// Returns what identifies the devices of the events, as far as the input says.
    pub(crate) fn device_ids(&self) -> Result<DeviceIds> {
        let contents = self.contents();
        // Traces, and formats that are parsed whole, know their devices before the first row.
        if !contents.has_rows || !contents.can_rewind {
            return Ok(DeviceIds::default());
        }
        let source = self.rows(&ScanProps::default())?;
        let tables = source.tables();
        let subjects = tables.subjects.values().filter(|subject| subject.kind == SubjectKind::Device);
        let subjects = subjects
            .filter_map(|subject| Some((device_id(&subject.detail)?, i32::try_from(subject.number).ok()?)));
        let recorded = tables.devices.iter();
        let recorded = recorded.filter_map(|((_, device), uuid)| Some((device_id(uuid)?, *device)));
        Ok(DeviceIds(subjects.chain(recorded).collect()))
    }

    fn device_samples(&self, ids: &DeviceIds) -> Result<Vec<DeviceSample>> {
        let (mut source, mut rows) = (self.rows(&ScanProps::default())?, Vec::new());
        let mut samples = Vec::new();
        while source.next(&mut rows)? {
            for row in &rows {
                if let Row::Sample(row) = row
                    && row.metric == Metric::GpuUsed
                    && let Some(device) =
                        source.tables().subjects.get(&row.subject).and_then(|row| ids.device(row))
                {
                    samples.push(DeviceSample { time_ns: row.time_ns, device, used_bytes: row.value });
                }
            }
        }
        Ok(samples)
    }
}

/// Devices of the events by their UUID or address on the bus.
#[derive(Debug, Default)]
pub(crate) struct DeviceIds(HashMap<String, i32>);

impl DeviceIds {
    /// Returns the device, if there is only one that is known; else the first.
    fn only_device(&self) -> i32 {
        self.0.values().copied().min().unwrap_or(0)
    }

    /// Returns the device that a subject of another input is: the one with the same UUID or bus address where both
    /// sides have one, else the one with the same number. A device that the events do not know has none.
    pub(crate) fn device(&self, subject: &SubjectRow) -> Option<i32> {
        if subject.kind != SubjectKind::Device {
            return None;
        }
        match device_id(&subject.detail) {
            Some(id) if self.0.keys().any(|known| is_uuid(known) == is_uuid(&id)) => self.0.get(&id).copied(),
            _ => i32::try_from(subject.number).ok(),
        }
    }
}

fn is_uuid(id: &str) -> bool {
    !id.contains(':')
}

/// Returns a UUID or bus address in the form in which both sides agree; none if there is none.
pub(crate) fn device_id(detail: &str) -> Option<String> {
    let id = detail.trim().to_ascii_lowercase();
    // nvidia-smi writes the domain with eight digits, others with four.
    let id = id.strip_prefix("gpu-").unwrap_or(&id);
    let id = match id.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}"),
        None => id.to_owned(),
    };
    (!id.is_empty()).then_some(id)
}

/// Refuses samples none of which falls into the time of the events.
fn refuse_disjoint(overlay: &Overlay) -> Result<()> {
    let (Some(samples), Some(events)) = (overlay.samples_span_ns, overlay.events_span_ns) else {
        return Ok(());
    };
    if !overlay.devices.is_empty() {
        return Ok(());
    }
    let span = |(from, to): (i64, i64)| format!("{} to {}", format_time_ns(from), format_time_ns(to));
    Err(Error::unsuitable(
        format!(
            "no sample falls into the time of the events: samples are from {}, events from {}",
            span(samples),
            span(events)
        ),
        "state the zone of the samples with --utc-offset or the day of the events with --date, or let both \
         begin together with --align start",
    ))
}
