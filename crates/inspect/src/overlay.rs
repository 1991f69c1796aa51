//! Live bytes over time, beside what devices reported of their memory.

use floodmark_analyze::{
    Align, DeviceSample, Overlay, OverlayFold, OverlayOptions, Usage, UsageFold, UsageMode,
};
use floodmark_event::units::format_time_ns;
use floodmark_event::{Metric, Row, SubjectKind, Tables};
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
            Some(log) => log.device_log()?,
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

    /// Reads a log of a device's memory.
    fn device_log(&self) -> Result<Vec<DeviceSample>> {
        let samples = self.device_samples()?;
        if samples.is_empty() {
            return Err(Error::no_content(
                format!("{} contains no samples of a device's memory", self.name()),
                "'nvidia-smi --query-gpu=timestamp,index,memory.used --format=csv -l 1' writes some",
            ));
        }
        Ok(samples)
    }

    /// Reads the samples of devices that a trace has beside its events.
    fn own_device_samples(&self) -> Result<Vec<DeviceSample>> {
        let has_devices = match self.trace() {
            Some(trace) => trace.subjects()?.values().any(|subject| subject.kind == SubjectKind::Device),
            None => false,
        };
        if has_devices { self.device_samples() } else { Ok(Vec::new()) }
    }

    fn device_samples(&self) -> Result<Vec<DeviceSample>> {
        let (mut source, mut rows) = (self.rows(&ScanProps::default())?, Vec::new());
        let mut samples = Vec::new();
        while source.next(&mut rows)? {
            for row in &rows {
                if let Row::Sample(row) = row
                    && row.metric == Metric::GpuUsed
                    && let Some(device) = device(row.subject, source.tables())
                {
                    samples.push(DeviceSample { time_ns: row.time_ns, device, used_bytes: row.value });
                }
            }
        }
        Ok(samples)
    }
}

fn device(subject: u64, tables: &Tables) -> Option<i32> {
    let subject = tables.subjects.get(&subject).filter(|subject| subject.kind == SubjectKind::Device)?;
    i32::try_from(subject.number).ok()
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
