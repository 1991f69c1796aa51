//! `floodmark info`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_convert::{Opened, open_any};
use floodmark_event::Row;
use floodmark_event::tables::Process;
use floodmark_event::{LogRow, SampleRow, Tables};
use floodmark_store::RowSource;
use floodmark_store::{ScanProps, Source, Trace, is_trace};
use floodmark_view::{Info, Loss, MessageInfo, MetricInfo, ProcessInfo, Report, SeenInfo, SubjectInfo};

use crate::args::{OutputArgs, ReadingArgs};
use crate::exit::ExitStatus;
use crate::importing::{file_bytes, format_name};
use crate::pass::{each_batch, losses};
use crate::printer::Printer;
use crate::progress::Bar;
use crate::reading::is_watched;
use crate::run_memory::{self, PROCESSES};
use crate::trace_info;

/// Show what a trace or a log is
///
/// Tells format, size, time and processes of traces and logs, what a trace was recorded or imported
/// from, its tables, and what is missing from it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InfoArgs {
    /// Traces or logs; '-' is standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark info run.flood
  floodmark info *.flood --json | jq '.inputs[].run.command'";

impl InfoArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let reports: Result<Vec<_>> = self.inputs.iter().map(|path| self.info(path, printer)).collect();
        printer.reports(&reports?, self.output)?;
        Ok(ExitStatus::Success)
    }

    fn info(&self, path: &Path, printer: &Printer) -> Result<Report<Info>> {
        let name = path.display().to_string();
        if !is_trace(path) {
            let opened = open_any(path, &self.reading.props());
            let opened = if name == "-" { opened.context("reading standard input")? } else { opened? };
            let (mut info, lost) = match opened {
                Opened::Events(mut source) => census(source.as_mut(), &name, printer)?,
                Opened::Both(mut source, mut beside) => {
                    let (info, lost) = census(source.as_mut(), &name, printer)?;
                    (Info { messages: messages_of(beside.as_mut())?, ..info }, lost)
                }
                Opened::Samples(mut source) => sample_census(source.as_mut(), &name, printer)?,
            };
            info.bytes = file_bytes(path);
            format_name(path)?.unwrap_or("log").clone_into(&mut info.format);
            return Ok(Report::new(name, lost, info));
        }
        let trace = Trace::open(path)?;
        let mut info = trace_info::of(trace.manifest());
        let mut lost = losses(&trace.manifest().all_losses());
        if trace.is_live() {
            // What is in the tail is in no list yet.
            let props = ScanProps { columns: Some(Vec::new()), ..ScanProps::default() };
            let (counted, missing) = census(&mut trace.scan(&props)?, &name, printer)?;
            lost = missing;
            info = Info {
                format: info.format,
                version: info.version,
                bytes: None,
                run: info.run,
                tables: info.tables,
                live: true,
                ..counted
            };
        }
        info.messages = messages_of_trace(&trace)?;
        let is_watched = info.events == 0 || is_watched(&trace)?;
        if let Some((memory, _)) =
            is_watched.then(|| run_memory::of(&trace, Some(PROCESSES))).transpose()?.flatten()
        {
            // The one that recorded is not what was recorded.
            info.processes.clear();
            info.memory = Some(memory);
        }
        Ok(Report::new(name, lost, info))
    }
}

/// Messages that are kept; there are more only if something is very wrong.
const MESSAGES_MAX: usize = 1000;

fn messages_of_trace(trace: &Trace) -> Result<Vec<MessageInfo>> {
    let mut scan = trace.rows::<LogRow>(&ScanProps::default())?;
    let (mut rows, mut messages) = (Vec::new(), Vec::new());
    while scan.next(&mut rows)? {
        messages.extend(rows.iter().map(|row| message(row, scan.tables())));
        messages.truncate(MESSAGES_MAX);
    }
    Ok(messages)
}

/// Messages among what a log has beside its events.
fn messages_of(source: &mut dyn RowSource) -> Result<Vec<MessageInfo>> {
    let mut messages = Vec::new();
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        let logs = rows.iter().filter_map(|row| if let Row::Log(row) = row { Some(row) } else { None });
        messages.extend(logs.map(|row| message(row, source.tables())));
        messages.truncate(MESSAGES_MAX);
    }
    Ok(messages)
}

fn message(row: &LogRow, tables: &Tables) -> MessageInfo {
    MessageInfo {
        time_ns: row.time_ns,
        level: row.level.name().to_owned(),
        source: Some(tables.string(row.source).to_owned()).filter(|source| !source.is_empty()),
        text: row.text.clone(),
    }
}

/// Counts the events of a source.
fn census(source: &mut dyn Source, name: &str, printer: &Printer) -> Result<(Info, Vec<Loss>)> {
    let mut info = Info::default();
    each_batch(source, name, printer, |batch, _| {
        info.events += batch.len() as u64;
        for row in 0..batch.len() {
            let time_ns = batch.time_ns.at(row);
            info.first_time_ns = Some(info.first_time_ns.map_or(time_ns, |first| first.min(time_ns)));
            info.last_time_ns = Some(info.last_time_ns.map_or(time_ns, |last| last.max(time_ns)));
        }
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    let process = |process: &Process| ProcessInfo {
        process: process.id.0,
        pid: (process.pid != 0).then_some(process.pid),
        host: Some(process.host.clone()).filter(|host| !host.is_empty()),
        command: Some(process.command.clone()).filter(|command| !command.is_empty()),
    };
    info.processes = source.tables().processes.iter().map(process).collect();
    Ok((info, losses(&source.losses())))
}

/// Counts what was seen from outside.
fn sample_census(source: &mut dyn RowSource, name: &str, printer: &Printer) -> Result<(Info, Vec<Loss>)> {
    let (mut info, mut seen, mut gauges) = (Info::default(), SeenInfo::default(), BTreeMap::new());
    let mut bar = Bar::new(name, printer);
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        bar.update(source.progress());
        for row in &rows {
            let time_ns = row.time_ns();
            info.first_time_ns = Some(info.first_time_ns.map_or(time_ns, |first| first.min(time_ns)));
            info.last_time_ns = Some(info.last_time_ns.map_or(time_ns, |last| last.max(time_ns)));
            match row {
                Row::Log(_) => seen.messages += 1,
                Row::Scope(_) => seen.scopes += 1,
                Row::Output(_) => seen.outputs += 1,
                Row::Stack(_) => seen.stack_samples += 1,
                Row::Sample(sample) => {
                    seen.samples += 1;
                    count(&mut gauges, sample);
                }
            }
        }
    }
    seen.subjects = subjects(&gauges, source.tables());
    info.seen = Some(seen);
    Ok((info, losses(&source.losses())))
}

/// What was read of each subject, by its number and that of the metric.
type Gauges = BTreeMap<(u64, u8), MetricInfo>;

fn count(gauges: &mut Gauges, sample: &SampleRow) {
    let &SampleRow { subject, metric, value, .. } = sample;
    let new = MetricInfo { metric, samples: 0, lowest: value, highest: value, last: value };
    let gauge = gauges.entry((subject, metric as u8)).or_insert(new);
    gauge.samples += 1;
    gauge.lowest = gauge.lowest.min(value);
    gauge.highest = gauge.highest.max(value);
    gauge.last = value;
}

fn subjects(gauges: &Gauges, tables: &Tables) -> Vec<SubjectInfo> {
    let mut subjects: Vec<SubjectInfo> = Vec::new();
    let mut latest = None;
    for ((subject, _), metric) in gauges {
        if latest != Some(*subject) {
            latest = Some(*subject);
            let known = tables.subjects.get(subject);
            subjects.push(SubjectInfo {
                kind: known.map_or("unknown", |known| known.kind.name()),
                number: known.map_or(0, |known| known.number),
                name: known.map(|known| known.name.clone()).unwrap_or_default(),
                metrics: Vec::new(),
            });
        }
        if let Some(subject) = subjects.last_mut() {
            subject.metrics.push(*metric);
        }
    }
    subjects
}
