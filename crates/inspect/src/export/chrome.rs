//! Chrome's trace events: counters of live bytes and of samples, scopes, marks, and events.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use floodmark_analyze::DomainSeriesFold;
use floodmark_convert::chrome::ChromeWriter;
use floodmark_event::{Metric, NO_DEVICE, ProcessId, Row, SampleRow, SubjectKind, Tables};
use floodmark_store::{Losses, ScanProps};

use crate::answer::{Loss, join_losses};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::{Columns, each_batch};
use crate::query::Query;
use crate::select::Select;

/// Points of every counter of live bytes; peaks are among them.
const POINTS: usize = 20_000;

/// Whether every event is written too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EveryEvent {
    /// Write counters alone.
    Omit,
    /// Write every event as an instant.
    Include,
}

fn write_error(source: io::Error) -> Error {
    Error::System { act: "writing trace events", source }
}

/// Writes an input as Chrome's trace events.
///
/// # Errors
/// If the input cannot be read, or `out` cannot be written.
pub fn write_chrome(
    input: &Input,
    query: &Query<'_>,
    every_event: EveryEvent,
    out: &mut dyn Write,
) -> Result<Vec<Loss>> {
    let contents = input.contents();
    let has_rows = contents.has_rows && contents.can_rewind;
    if every_event == EveryEvent::Include {
        input.need_rewind("--events reads its input twice")?;
    }
    let mut lost: Vec<Loss> = Vec::new();
    let mut tables = Tables::default();
    let mut series = Vec::new();
    let mut start_ns = None;
    if contents.has_events {
        let folded = input.fold_any(query, Columns::All, DomainSeriesFold::new(POINTS))?;
        start_ns = folded.pass.live().counters().first_time_ns;
        tables = folded.source.tables().clone();
        lost = folded.answer.losses;
        series = folded.answer.result;
    }
    if has_rows {
        let (mut source, mut rows) = (input.rows(&ScanProps::default())?, Vec::new());
        let has_first = source.next(&mut rows)?;
        if !contents.has_events {
            tables = source.tables().clone();
        }
        if has_first {
            let first_ns = rows.iter().map(Row::time_ns).min();
            start_ns = start_ns.into_iter().chain(first_ns).min();
        }
    }
    let first_point = series.iter().filter_map(|one| one.points.first()).map(|point| point.time_ns).min();
    let start_ns = start_ns.into_iter().chain(first_point).min().unwrap_or(0);
    let mut writer = ChromeWriter::begin(out, start_ns).map_err(write_error)?;
    let mut named = BTreeSet::new();
    write_names(&mut writer, &tables, &mut named).map_err(write_error)?;
    for one in &series {
        let (process, device, kind) = one.group;
        let on = if device == NO_DEVICE { String::new() } else { format!(" on device {device}") };
        let name = format!("live {} memory{on}", kind.name());
        let mut before = None;
        for point in &one.points {
            if before.replace(point.live_bytes) != Some(point.live_bytes) {
                let pid = pid_of(process, &tables);
                writer.counter(pid, &name, point.time_ns, point.live_bytes).map_err(write_error)?;
            }
        }
    }
    if every_event == EveryEvent::Include && contents.has_events {
        let mut source = input.events(&ScanProps::default())?;
        let mut select = Select::new(input.anchored(&query.filter)?, None);
        each_batch(source.as_mut(), input.name(), query.progress, |batch, tables| {
            select.pass_on(batch, |batch| {
                let mut events = batch.events();
                let pid = |process| pid_of(process, tables);
                let written = events.try_for_each(|event| writer.event(pid(event.process), &event, tables));
                written.map_err(write_error)
            })
        })?;
        tables = source.tables().clone();
    }
    if has_rows {
        join_losses(&mut lost, &write_rows(input, query, &mut writer, &mut named)?);
    }
    let unmatched = writer.finish(&tables).map_err(write_error)?;
    if unmatched > 0 {
        lost.push(Loss::remark(unmatched, "a scope was left that had never been entered"));
    }
    Ok(lost)
}

fn write_names(writer: &mut ChromeWriter<'_>, tables: &Tables, named: &mut BTreeSet<u64>) -> io::Result<()> {
    for process in &tables.processes {
        let pid = pid_of(process.id, tables);
        let name = if process.command.is_empty() { "process" } else { &process.command };
        if named.insert(pid) {
            writer.process(pid, name)?;
        }
    }
    for thread in &tables.threads {
        writer.thread(pid_of(thread.process, tables), thread.thread, &thread.name)?;
    }
    Ok(())
}

/// Returns the PID, or the number in the trace where the PID is not known.
fn pid_of(process: ProcessId, tables: &Tables) -> u64 {
    let known = tables.process(process).map(|process| u64::from(process.pid)).filter(|pid| *pid != 0);
    known.unwrap_or_else(|| u64::from(process.0))
}

/// Writes scopes, marks and samples.
fn write_rows(
    input: &Input,
    query: &Query<'_>,
    writer: &mut ChromeWriter<'_>,
    named: &mut BTreeSet<u64>,
) -> Result<Losses> {
    let mut failed = Ok(());
    // A value that stays is written once.
    let mut latest: BTreeMap<(u64, u8), u64> = BTreeMap::new();
    let source = input.each_row(query.progress, |rows, tables| {
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
                Row::Sample(_) | Row::Output(_) | Row::Stack(_) | Row::Log(_) | Row::Call(_) => Ok(()),
            };
        }
    })?;
    failed.map_err(write_error)?;
    Ok(source.losses())
}

fn sample(
    row: &SampleRow,
    tables: &Tables,
    writer: &mut ChromeWriter<'_>,
    named: &mut BTreeSet<u64>,
) -> io::Result<()> {
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
