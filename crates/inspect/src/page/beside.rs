//! A log of the memory of devices on the page of another input.

use std::collections::HashMap;

use floodmark_analyze::{Align, SubjectSeries, UsageMode};
use floodmark_event::SubjectKind;

use super::{Page, SamplesPart};
use crate::error::Result;
use crate::input::Input;
use crate::overlay::{DeviceIds, UsageProps};
use crate::query::Query;

/// Set in the ids of the log's subjects, so that they are others than those of the input.
const OTHER_INPUT: u64 = 1 << 63;

/// Adds what `log` reports of the devices of `input`.
pub(super) fn add(page: &mut Page, input: &Input, log: &Input, query: &Query<'_>) -> Result<()> {
    if let Some(events) = &mut page.events {
        let mode = UsageMode::Reduced(2);
        let props = UsageProps { mode, device_log: Some(log), align: Align::default() };
        events.overlay = input.usage(query, &props)?.result.overlay;
    }
    let mut other = Page::default();
    log.samples_part(&mut other, query)?;
    page.losses.extend(other.losses);
    let Some(mut part) = other.samples else { return Ok(()) };
    pair_devices(&mut part, &input.device_ids()?);
    let span = page.events.as_ref().and_then(|events| {
        events.stats.first_time_ns.zip(events.usage.end_time_ns.or(events.stats.last_time_ns))
    });
    if let Some(span) = span {
        part.series.iter_mut().for_each(|series| clip(series, span));
    }
    match &mut page.samples {
        None => page.samples = Some(part),
        Some(own) => {
            own.subjects.extend(part.subjects);
            own.series.extend(part.series);
            own.memory.devices.extend(part.memory.devices);
        }
    }
    Ok(())
}

/// Gives devices the numbers that the input has for them, and leaves out those that it does not know.
fn pair_devices(part: &mut SamplesPart, ids: &DeviceIds) {
    let mut numbers = HashMap::new();
    for (id, mut row) in std::mem::take(&mut part.subjects) {
        if row.kind == SubjectKind::Device {
            let Some(number) = ids.device(&row).and_then(|device| u64::try_from(device).ok()) else {
                continue;
            };
            numbers.insert(row.number, number);
            row.number = number;
        }
        row.subject |= OTHER_INPUT;
        if row.parent != 0 {
            row.parent |= OTHER_INPUT;
        }
        part.subjects.insert(id | OTHER_INPUT, row);
    }
    let subjects = &part.subjects;
    part.series.retain_mut(|series| {
        series.subject = series.subject.map(|subject| subject | OTHER_INPUT);
        series.subject.is_some_and(|subject| subjects.contains_key(&subject))
    });
    part.memory.devices.retain_mut(|device| {
        let number = numbers.get(&device.device);
        device.device = number.copied().unwrap_or(device.device);
        number.is_some()
    });
}

/// Keeps what lies in the span of the events or shortly before and after: the rest would make them small.
fn clip(series: &mut SubjectSeries, (from_ns, to_ns): (i64, i64)) {
    let around = to_ns.saturating_sub(from_ns) / 10;
    let span = from_ns.saturating_sub(around)..=to_ns.saturating_add(around);
    series.points.retain(|point| span.contains(&point.time_ns));
}
