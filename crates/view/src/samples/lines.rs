//! What was seen, row by row, for programs.

use std::fmt::Write as _;

use floodmark_event::{CallRow, LogRow, OutputRow, SampleRow, ScopeRow, StackSampleRow, Tables};
use serde::Serialize;

use crate::plain::plain;
use crate::report::json_line;

/// Name and version of a line of JSON.
pub const SCHEMA: &str = "floodmark.sample/1";

/// Writes samples as CSV with a header.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleCsv;

impl SampleCsv {
    /// The header.
    pub const HEADER: &str = "time_ns,subject,kind,number,name,metric,value\n";

    /// Writes a sample.
    pub fn text(self, row: &SampleRow, tables: &Tables) -> String {
        let subject = tables.subjects.get(&row.subject);
        let (kind, number) = subject.map_or(("", 0), |subject| (subject.kind.name(), subject.number));
        let name = plain(subject.map_or("", |subject| &subject.name));
        let name = if name.contains([',', '"']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name.into_owned()
        };
        let (time_ns, id, metric, value) = (row.time_ns, row.subject, row.metric.name(), row.value);
        let mut text = String::new();
        let _ = writeln!(text, "{time_ns},{id},{kind},{number},{name},{metric},{value}");
        text
    }
}

/// Writes rows of all tables as lines of JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleJson;

#[derive(Serialize)]
struct Line<'a, T> {
    schema: &'static str,
    table: &'static str,
    time_ns: i64,
    #[serde(flatten)]
    row: T,
    #[serde(flatten)]
    of: Option<Of<'a>>,
}

#[derive(Serialize)]
struct Of<'a> {
    subject: u64,
    kind: &'static str,
    number: u64,
    name: &'a str,
}

#[derive(Serialize)]
struct SampleFields {
    metric: &'static str,
    value: u64,
}

#[derive(Serialize)]
struct OutputFields<'a> {
    process: u32,
    stream: &'static str,
    /// Rank of the job that wrote it, if that is known.
    rank: Option<u64>,
    text: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
struct StackFields {
    thread: u64,
    reason: &'static str,
    pause_ns: u64,
    stack: Vec<String>,
}

#[derive(Serialize)]
struct ScopeFields<'a> {
    process: u32,
    thread: u64,
    action: &'static str,
    scope: u64,
    parent: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct LogFields<'a> {
    process: u32,
    level: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    source: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct CallFields<'a> {
    process: u32,
    thread: u64,
    action: &'static str,
    function: &'a str,
    file: &'a str,
    line: u32,
    rss: Option<u64>,
}

fn of(subject: u64, tables: &Tables) -> Option<Of<'_>> {
    let row = tables.subjects.get(&subject)?;
    Some(Of { subject, kind: row.kind.name(), number: row.number, name: &row.name })
}

impl SampleJson {
    /// Writes a sample.
    pub fn sample(self, row: &SampleRow, tables: &Tables) -> String {
        let sample = SampleFields { metric: row.metric.name(), value: row.value };
        line("sample", row.time_ns, sample, of(row.subject, tables))
    }

    /// Writes output and the rank that wrote it, if that is known; bytes that are no text are replaced.
    pub fn output(self, row: &OutputRow, rank: Option<u64>) -> String {
        let (process, stream) = (row.process.0, row.stream.name());
        let text = String::from_utf8_lossy(&row.bytes);
        line("output", row.time_ns, OutputFields { process, stream, rank, text }, None)
    }

    /// Writes a stack.
    pub fn stack(self, row: &StackSampleRow, tables: &Tables) -> String {
        let (thread, reason, pause_ns) = (row.thread, row.reason.name(), row.pause_ns);
        let stack = tables.stack_text(row.stack);
        line(
            "stack_sample",
            row.time_ns,
            StackFields { thread, reason, pause_ns, stack },
            of(row.subject, tables),
        )
    }

    /// Writes a message.
    pub fn log(self, row: &LogRow, tables: &Tables) -> String {
        let (process, level) = (row.process.0, row.level.name());
        let (source, text) = (tables.string(row.source), &*row.text);
        line("log", row.time_ns, LogFields { process, level, source, text }, None)
    }

    /// Writes a call.
    pub fn call(self, row: &CallRow, tables: &Tables) -> String {
        let frame = tables.frame(row.code);
        let call = CallFields {
            process: row.process.0,
            thread: row.thread,
            action: row.action.name(),
            function: tables.string(frame.function),
            file: tables.string(frame.file),
            line: if row.line == 0 { frame.line } else { row.line },
            rss: row.rss_bytes,
        };
        line("call", row.time_ns, call, None)
    }

    /// Writes a scope or a mark.
    pub fn scope(self, row: &ScopeRow, tables: &Tables) -> String {
        let scope = ScopeFields {
            process: row.process.0,
            thread: row.thread,
            action: row.action.name(),
            scope: row.scope,
            parent: row.parent,
            name: tables.string(row.name),
        };
        line("scope", row.time_ns, scope, None)
    }
}

fn line<T: Serialize>(table: &'static str, time_ns: i64, row: T, of: Option<Of<'_>>) -> String {
    json_line(&Line { schema: SCHEMA, table, time_ns, row, of })
}
