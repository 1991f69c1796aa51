//! Reads what devices said of their memory, from a log of `nvidia-smi` or from a trace.

use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{DeviceSample, Overlay};
use floodmark_convert::{OpenProps, open_samples};
use floodmark_event::Row;
use floodmark_event::units::format_time_ns;
use floodmark_event::{Metric, SubjectKind, Tables};
use floodmark_store::{Trace, is_trace};

use crate::error::hinted;

/// Reads the samples of a log.
pub(crate) fn of_log(path: &Path, props: &OpenProps) -> Result<Vec<DeviceSample>> {
    let samples = read(path, props)?;
    if samples.is_empty() {
        return Err(hinted(
            format!("{} has no samples of a device's memory", path.display()),
            "'nvidia-smi --query-gpu=timestamp,index,memory.used --format=csv -l 1' writes some",
        ));
    }
    Ok(samples)
}

/// Reads the samples that a trace has beside its events, if any.
pub(crate) fn of_trace(path: &Path, props: &OpenProps) -> Result<Vec<DeviceSample>> {
    let has_devices = |trace: &Trace| -> Result<bool> {
        Ok(trace.subjects()?.values().any(|subject| subject.kind == SubjectKind::Device))
    };
    if !is_trace(path) || !has_devices(&Trace::open(path)?)? {
        return Ok(Vec::new());
    }
    read(path, &OpenProps { scan: floodmark_store::ScanProps::default(), ..props.clone() })
}

fn read(path: &Path, props: &OpenProps) -> Result<Vec<DeviceSample>> {
    let mut source = open_samples(path, props)?;
    let (mut rows, mut samples) = (Vec::new(), Vec::new());
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

fn device(subject: u64, tables: &Tables) -> Option<i32> {
    let subject = tables.subjects.get(&subject).filter(|subject| subject.kind == SubjectKind::Device)?;
    i32::try_from(subject.number).ok()
}

/// Says so where no sample falls into the time of the events.
pub(crate) fn refuse_apart(overlay: &Overlay) -> Result<()> {
    let (Some(samples), Some(events)) = (overlay.samples_span_ns, overlay.events_span_ns) else {
        return Ok(());
    };
    if !overlay.devices.is_empty() {
        return Ok(());
    }
    let span = |(from, to): (i64, i64)| format!("{} to {}", format_time_ns(from), format_time_ns(to));
    Err(hinted(
        format!(
            "no sample falls into the time of the events: samples are from {}, events from {}",
            span(samples),
            span(events)
        ),
        "state the zone of the samples with --utc-offset or the day of the events with --date, or take both \
         to begin together with --align start",
    ))
}
