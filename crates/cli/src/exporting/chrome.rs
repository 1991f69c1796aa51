//! Chrome's trace events: counters of live bytes and of what was sampled, scopes, marks, and events.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::Result;
use floodmark_analyze::DomainSeriesFold;
use floodmark_convert::chrome::ChromeWriter;
use floodmark_convert::open_samples;
use floodmark_event::Row;
use floodmark_event::{Metric, NO_DEVICE, ProcessId, SampleRow, SubjectKind, Tables};
use floodmark_view::Loss;

use super::Exporter;
use crate::pass::{each_batch, fold_over, join_losses, losses, open, refuse_standard};
use crate::reading::Show;
use crate::reporting::{each_row, holds};
use crate::select::Select;
use crate::whole_file::is_standard;

/// Instants that are kept of every counter of live bytes; peaks are among them.
const POINTS: usize = 20_000;

/// Writes a trace.
pub(super) fn write(exporter: &Exporter<'_>, events: Show, out: &mut dyn Write) -> Result<Vec<Loss>> {
    let Exporter { input, open: props, filter, printer, .. } = exporter;
    let (has_events, has_rows) = if is_standard(input) { (true, false) } else { holds(input, props)? };
    if events == Show::Yes {
        refuse_standard(input, "--events looks at its input twice")?;
    }
    let mut lost: Vec<Loss> = Vec::new();
    let mut tables = Tables::default();
    let mut courses = Vec::new();
    let mut start_ns = None;
    if has_events {
        let mut source = open(input, props)?;
        let fold = DomainSeriesFold::new(POINTS);
        let (report, pass) = fold_over(source.as_mut(), &exporter.name(), filter, fold, printer)?;
        start_ns = pass.live().counters().first_time_ns;
        tables = source.tables().clone();
        lost = report.losses;
        courses = report.result;
    }
    if has_rows {
        let (mut source, mut rows) = (open_samples(input, props)?, Vec::new());
        if source.next(&mut rows)? {
            let first_ns = rows.iter().map(Row::time_ns).min();
            start_ns = start_ns.into_iter().chain(first_ns).min();
        }
    }
    let first_point =
        courses.iter().filter_map(|course| course.points.first()).map(|point| point.time_ns).min();
    let start_ns = start_ns.into_iter().chain(first_point).min().unwrap_or(0);
    let mut writer = ChromeWriter::begin(out, start_ns)?;
    let mut named = BTreeSet::new();
    for process in &tables.processes {
        let pid = pid_of(process.id, &tables);
        let name = if process.command.is_empty() { "process" } else { &process.command };
        if named.insert(pid) {
            writer.process(pid, name)?;
        }
    }
    for thread in &tables.threads {
        writer.thread(pid_of(thread.process, &tables), thread.thread, &thread.name)?;
    }
    for course in &courses {
        let (process, device, kind) = course.group;
        let on = if device == NO_DEVICE { String::new() } else { format!(" on device {device}") };
        let name = format!("live {} memory{on}", kind.name());
        let mut before = None;
        for point in &course.points {
            if before.replace(point.live_bytes) != Some(point.live_bytes) {
                writer.counter(pid_of(process, &tables), &name, point.time_ns, point.live_bytes)?;
            }
        }
    }
    if events == Show::Yes && has_events {
        let mut source = open(input, props)?;
        let mut select = Select::new(filter.clone(), None);
        each_batch(source.as_mut(), &exporter.name(), printer, |batch, tables| {
            select.pass_on(batch, |batch| {
                batch
                    .events()
                    .try_for_each(|event| writer.event(pid_of(event.process, tables), &event, tables))?;
                Ok(())
            })
        })?;
        tables = source.tables().clone();
    }
    if has_rows {
        join_losses(&mut lost, rows(exporter, &mut writer, &mut named)?);
    }
    let unmatched = writer.finish(&tables)?;
    if unmatched > 0 {
        lost.push(Loss { count: unmatched, reason: "scopes that were left had never been entered".into() });
    }
    Ok(lost)
}

/// The system's number of a process, or its number in the trace where that is not known.
fn pid_of(process: ProcessId, tables: &Tables) -> u64 {
    let known = tables.process(process).map(|process| u64::from(process.pid)).filter(|pid| *pid != 0);
    known.unwrap_or_else(|| u64::from(process.0))
}

/// What was seen beside events.
fn rows(
    exporter: &Exporter<'_>,
    writer: &mut ChromeWriter<'_>,
    named: &mut BTreeSet<u64>,
) -> Result<Vec<Loss>> {
    let mut source = open_samples(exporter.input, &exporter.open)?;
    let mut failed = Ok(());
    // A value that stays is written once.
    let mut latest: BTreeMap<(u64, u8), u64> = BTreeMap::new();
    each_row(source.as_mut(), &exporter.name(), exporter.printer, |rows, tables| {
        for row in rows {
            if failed.is_err() {
                return;
            }
            failed = match row {
                Row::Scope(row) => writer.scope(pid_of(row.process, tables), row, tables.string(row.name)),
                Row::Sample(row)
                    if latest.insert((row.subject, row.metric as u8), row.value) != Some(row.value) =>
                {
                    sample(row, tables, writer, named)
                }
                Row::Sample(_) | Row::Output(_) | Row::Stack(_) | Row::Log(_) => Ok(()),
            };
        }
    })?;
    failed?;
    Ok(losses(&source.losses()))
}

fn sample(
    row: &SampleRow,
    tables: &Tables,
    writer: &mut ChromeWriter<'_>,
    named: &mut BTreeSet<u64>,
) -> std::io::Result<()> {
    let metric = match row.metric {
        Metric::Rss => "RSS",
        Metric::Pss => "PSS",
        Metric::Swap => "swap",
        Metric::GpuUsed => "used memory",
        Metric::CgroupUsage => "usage",
        Metric::Reserved => "reserved",
        Metric::Live => "live",
        _ => return Ok(()),
    };
    let Some(subject) = tables.subjects.get(&row.subject) else { return Ok(()) };
    if subject.kind != SubjectKind::Process {
        let name = format!("{} {}: {metric}", subject.kind.name(), subject.number);
        return writer.counter(0, &name, row.time_ns, row.value);
    }
    if named.insert(subject.number) {
        writer.process(subject.number, &subject.name)?;
    }
    writer.counter(subject.number, metric, row.time_ns, row.value)
}
