//! What an input is, without analyzing it: format, size, time, processes, tables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use floodmark_analyze::RunMemory;
use floodmark_event::tables::Process;
use floodmark_event::{LogRow, Metric, Row, SampleRow, Tables};
use floodmark_store::manifest::ProcessEntry;
use floodmark_store::{Losses, Manifest, RowSource, ScanProps, Source, Trace};

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::{each_batch, each_row};
use crate::progress::ProgressListener;
use crate::query::Query;
use crate::run::PROCESSES;

/// What a trace or a log is.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Info {
    /// What the format is called.
    pub format: String,
    /// Version of the format, if it has versions.
    pub version: Option<u32>,
    /// Whether it is being recorded right now.
    pub live: bool,
    /// Whether its recording ended without being completed, because the recorder was killed or the disk was
    /// full.
    pub unfinished: bool,
    /// Events in it.
    pub events: u64,
    /// Bytes it takes on disk, if that is known.
    pub bytes: Option<u64>,
    /// Time of the earliest event.
    pub first_time_ns: Option<i64>,
    /// Time of the latest event.
    pub last_time_ns: Option<i64>,
    /// What was recorded, or imported.
    pub run: RunInfo,
    /// Processes in it.
    pub processes: Vec<ProcessInfo>,
    /// Memory of what was watched, in a trace that has samples.
    pub memory: Option<RunMemory>,
    /// What was seen from outside, in a log of that.
    pub seen: Option<SeenInfo>,
    /// Messages of the tool that recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageInfo>,
    /// Tables of a trace.
    pub tables: Vec<TableInfo>,
}

/// What a log of samples has.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SeenInfo {
    /// Samples.
    pub samples: u64,
    /// Pieces of output.
    pub outputs: u64,
    /// Stacks.
    pub stack_samples: u64,
    /// Scopes entered or left, and marks.
    pub scopes: u64,
    /// Messages.
    pub messages: u64,
    /// Calls, returns and exceptions of functions.
    pub calls: u64,
    /// What was observed, in the order of the log.
    pub subjects: Vec<SubjectInfo>,
}

/// Something that was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SubjectInfo {
    /// What sort of thing.
    pub kind: &'static str,
    /// The system's number of a process, a device's number; 0 for others.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// What was read of it.
    pub metrics: Vec<MetricInfo>,
}

/// What was read of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MetricInfo {
    /// The word for it.
    #[serde(serialize_with = "word")]
    pub metric: Metric,
    /// How often it was read.
    pub samples: u64,
    /// The lowest value.
    pub lowest: u64,
    /// The highest value.
    pub highest: u64,
    /// The latest value.
    pub last: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn word<S: serde::Serializer>(metric: &Metric, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(metric.name())
}

/// A message of the tool that recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MessageInfo {
    /// When.
    pub time_ns: i64,
    /// How much it matters.
    pub level: String,
    /// Part of the tool that says so.
    pub source: Option<String>,
    /// What it says.
    pub text: String,
}

/// What was recorded, or imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunInfo {
    /// Command that was recorded.
    pub command: Option<String>,
    /// Host on which it ran.
    pub host: Option<String>,
    /// User who ran it.
    pub user: Option<String>,
    /// When it began.
    pub start_time_ns: Option<i64>,
    /// When it ended.
    pub end_time_ns: Option<i64>,
    /// How the command ended: its exit code, or 128 and the number of the signal.
    pub exit_status: Option<i32>,
    /// Format it was imported from.
    pub imported_format: Option<String>,
    /// Files it was imported from.
    pub imported_files: Vec<String>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ProcessInfo {
    /// Its number in the trace, which `--process` takes.
    pub process: u32,
    /// Operating system's number, if known.
    pub pid: Option<u32>,
    /// Host, if known.
    pub host: Option<String>,
    /// Command line or name, if known.
    pub command: Option<String>,
}

/// A table of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TableInfo {
    /// Its name, which is also its folder.
    pub table: String,
    /// Files it consists of.
    pub parts: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Input {
    /// Returns what the input is, without analyzing it.
    ///
    /// # Errors
    /// If the input is damaged.
    pub fn info(&self, query: &Query<'_>) -> Result<Answer<Info>> {
        let (info, losses) = match self.trace() {
            Some(trace) => self.trace_info(trace, query)?,
            None => self.file_info(query)?,
        };
        Ok(Answer::new(self.name(), &losses, info))
    }

    fn file_info(&self, query: &Query<'_>) -> Result<(Info, Losses)> {
        let contents = self.contents();
        let (mut info, losses) = if contents.has_events {
            let mut source = self.events(&ScanProps::default())?;
            count_events(source.as_mut(), self.name(), query.progress)?
        } else {
            let mut source = self.rows(&ScanProps::default())?;
            count_rows(source.as_mut(), self.name(), query.progress)?
        };
        if contents.has_events && contents.has_rows {
            info.messages = messages_of(self.rows(&ScanProps::default())?.as_mut())?;
        }
        info.bytes = file_bytes(self.path());
        let format = if info.bytes.is_some() { self.format_name() } else { "log" };
        format.clone_into(&mut info.format);
        Ok((info, losses))
    }

    fn trace_info(&self, trace: &Trace, query: &Query<'_>) -> Result<(Info, Losses)> {
        let mut info = of_manifest(trace.manifest());
        let mut losses = trace.manifest().all_losses();
        if trace.has_tail() {
            // The manifest does not list the tail.
            let props = ScanProps { columns: Some(Vec::new()), ..ScanProps::default() };
            let (counted, missing) = count_events(&mut trace.scan(&props)?, self.name(), query.progress)?;
            losses = missing;
            info = Info {
                format: info.format,
                version: info.version,
                bytes: None,
                run: info.run,
                tables: info.tables,
                live: trace.is_live(),
                ..counted
            };
        }
        let mut scan = trace.rows::<LogRow>(&ScanProps::default())?;
        let mut rows = Vec::new();
        while scan.next(&mut rows)? {
            info.messages.extend(rows.iter().map(|row| message(row, scan.tables())));
            info.messages.truncate(MESSAGES_MAX);
        }
        if (info.events == 0 || self.is_watched()?)
            && let Some((memory, _)) = self.run_memory(Some(PROCESSES))?
        {
            // The process that recorded is not what was recorded.
            info.processes.clear();
            info.memory = Some(memory);
        }
        let has_no_end =
            info.memory.is_some() && info.run.command.is_some() && info.run.end_time_ns.is_none();
        info.unfinished = !info.live && (trace.has_tail() || has_no_end);
        Ok((info, losses))
    }
}

/// Returns the length of a regular file; none of a pipe or a folder.
pub fn file_bytes(path: &std::path::Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Messages that are kept; there are more only if something is very wrong.
const MESSAGES_MAX: usize = 1000;

/// Returns the messages of the recording tool.
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
fn count_events(
    source: &mut dyn Source,
    name: &str,
    progress: &dyn ProgressListener,
) -> Result<(Info, Losses)> {
    let mut info = Info::default();
    each_batch(source, name, progress, |batch, _| {
        info.events += batch.len() as u64;
        for row in 0..batch.len() {
            let time_ns = batch.time_ns.at(row);
            info.first_time_ns = Some(info.first_time_ns.map_or(time_ns, |first| first.min(time_ns)));
            info.last_time_ns = Some(info.last_time_ns.map_or(time_ns, |last| last.max(time_ns)));
        }
        Ok::<_, Error>(ControlFlow::Continue(()))
    })?;
    let process = |process: &Process| ProcessInfo {
        process: process.id.0,
        pid: (process.pid != 0).then_some(process.pid),
        host: Some(process.host.clone()).filter(|host| !host.is_empty()),
        command: Some(process.command.clone()).filter(|command| !command.is_empty()),
    };
    info.processes = source.tables().processes.iter().map(process).collect();
    Ok((info, source.losses()))
}

/// Counts rows other than events.
fn count_rows(
    source: &mut dyn RowSource,
    name: &str,
    progress: &dyn ProgressListener,
) -> Result<(Info, Losses)> {
    let (mut info, mut seen, mut gauges) = (Info::default(), SeenInfo::default(), BTreeMap::new());
    each_row(source, name, progress, |rows, _| {
        for row in rows {
            let time_ns = row.time_ns();
            info.first_time_ns = Some(info.first_time_ns.map_or(time_ns, |first| first.min(time_ns)));
            info.last_time_ns = Some(info.last_time_ns.map_or(time_ns, |last| last.max(time_ns)));
            match row {
                Row::Log(_) => seen.messages += 1,
                Row::Call(_) => seen.calls += 1,
                Row::Scope(_) => seen.scopes += 1,
                Row::Output(_) => seen.outputs += 1,
                Row::Stack(_) => seen.stack_samples += 1,
                Row::Sample(sample) => {
                    seen.samples += 1;
                    count(&mut gauges, sample);
                }
            }
        }
    })?;
    seen.subjects = subjects(&gauges, source.tables());
    info.seen = Some(seen);
    Ok((info, source.losses()))
}

/// Samples of each subject and metric.
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

/// Returns what the manifest of a sealed trace lists.
fn of_manifest(manifest: &Manifest) -> Info {
    let tables = tables(manifest);
    let events = manifest.parts_of("event").map(|part| part.rows).sum();
    let times = || manifest.parts_of("event").filter(|part| part.rows > 0);
    let run = &manifest.run;
    Info {
        format: "trace".into(),
        version: Some(manifest.version),
        live: false,
        unfinished: false,
        events,
        bytes: Some(tables.iter().map(|table| table.bytes).sum()),
        first_time_ns: times().map(|part| part.min_time_ns).min(),
        last_time_ns: times().map(|part| part.max_time_ns).max(),
        run: RunInfo {
            command: run.command.clone(),
            host: run.host.clone(),
            user: run.user.clone(),
            start_time_ns: run.start_ns.filter(|_| run.command.is_some()),
            end_time_ns: run.end_ns.filter(|_| run.command.is_some()),
            exit_status: run.exit_status,
            imported_format: run.imported_format.clone(),
            imported_files: run.imported_files.clone(),
        },
        processes: manifest.processes.iter().map(process).collect(),
        memory: None,
        seen: None,
        messages: Vec::new(),
        tables,
    }
}

fn process(entry: &ProcessEntry) -> ProcessInfo {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ProcessInfo {
        process: entry.id,
        pid: (entry.pid != 0).then_some(entry.pid),
        host: known(&entry.host),
        command: known(&entry.command),
    }
}

/// Sums up the parts of every table, in the order in which the manifest first names them.
fn tables(manifest: &Manifest) -> Vec<TableInfo> {
    let mut tables: Vec<TableInfo> = Vec::new();
    for part in &manifest.parts {
        let at = tables.iter().position(|table| table.table == part.table).unwrap_or_else(|| {
            tables.push(TableInfo { table: part.table.clone(), ..TableInfo::default() });
            tables.len() - 1
        });
        tables[at].parts += 1;
        tables[at].rows += part.rows;
        tables[at].bytes += part.bytes;
    }
    tables
}
