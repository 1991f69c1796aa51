//! Files of `mprof`, which comes with `memory_profiler`: memory of a process and its children over time,
//! and of functions that were marked.
//!
//! | line | in a trace |
//! |---|---|
//! | `CMDLINE python app.py` | the command of the process |
//! | `MEM 30.898438 1794748400.6492` | `rss` of the process, in MiB |
//! | `CHLD 9546 38.468750 1794748400.6508` | `rss` of a child, which follows the MEM of its sweep; a child that is not listed any more has 0 |
//! | `FUNC module.name 22.8 1794748403.5864 42.8 1794748403.8563 1` | a scope from the first time to the second; the memory at both is in the samples already |
//!
//! The job's `rss` is the sum of process and children, told when a sweep is complete; the last one is
//! taken for complete if no child is missing from it.
//!
//! Functions are written when they end or when the program does, so their lines are out of order. Of a
//! file they are read beforehand and come out in the order of their times; of standard input they come
//! last. With `--include-children` MEM holds the children already, which the file does not say.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use floodmark_event::{Metric, ProcessId, ScopeAction, ScopeRow, SubjectId, SubjectKind};
use floodmark_store::{Error, Result};

use crate::numbers::{mib, seconds_ns, whole};
use crate::quote::quoted;
use crate::records::{Lines, LogReader, Out, ParseLine, subject};
use crate::{Mode, OpenProps};
use floodmark_event::Row;
use floodmark_store::RowSource;

/// Opens a file of `mprof`; `path` is what messages call it. Functions come last.
pub fn open<'a>(input: impl Read + Send + 'a, path: &Path, props: &OpenProps) -> Box<dyn RowSource + 'a> {
    Box::new(reader(input, path, props))
}

pub(crate) fn reader<R: Read>(input: R, path: &Path, props: &OpenProps) -> LogReader<R, Lines<Format>> {
    LogReader::new(input, Lines::of(Format::default()), path, props)
}

/// Opens a file whose functions can be read beforehand.
pub(crate) fn file_reader<R: Read>(
    input: R,
    path: &Path,
    props: &OpenProps,
) -> Result<LogReader<R, Lines<Format>>> {
    let file = File::open(path).map_err(Error::io("opening", path))?;
    // What is wrong with a line shows when it is read.
    let lenient = OpenProps { mode: Mode::Lenient, ..props.clone() };
    let mut gathering = LogReader::new(file, Lines::of(Gather::default()), path, &lenient);
    let (mut scopes, mut rows) = (Vec::new(), Vec::new());
    while gathering.next(&mut rows)? {
        scopes.append(&mut rows);
    }
    scopes.reverse();
    let format = Format { calls: Calls::Known(scopes), ..Format::default() };
    let reader = LogReader::new(input, Lines::of(format), path, props);
    Ok(reader.with_tables(gathering.into_tables()))
}

/// Whether the beginning of a file is one of `mprof`.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let Some(line) = line.and_then(|line| str::from_utf8(line).ok()) else { return false };
    let (word, rest) = line.trim().split_once(' ').unwrap_or((line, ""));
    match word {
        "CMDLINE" => !rest.is_empty(),
        "MEM" | "CHLD" => rest.split(' ').all(|number| number.parse::<f64>().is_ok()),
        "FUNC" => parse_call(rest).is_ok(),
        _ => false,
    }
}

/// A function that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    name: String,
    start_ns: i64,
    end_ns: i64,
}

fn parse_call(rest: &str) -> std::result::Result<Call, String> {
    let fields: Vec<&str> = rest.split(' ').collect();
    // Names of functions hold no blank, but those of lambdas and locals might.
    let numbers = fields.iter().rev().take_while(|field| field.parse::<f64>().is_ok()).count();
    let bad = || format!("FUNC is {}, not a name and two pairs of memory and time", quoted(rest.as_bytes()));
    let at = fields.len() - numbers.min(5);
    // The level of nesting was added later.
    let (at, times) = match fields.len() - at {
        4 | 5 if at > 0 => (at, [fields[at + 1], fields[at + 3]]),
        _ => return Err(bad()),
    };
    let [start_ns, end_ns] = times.map(seconds_ns);
    let (start_ns, end_ns) = start_ns.zip(end_ns).ok_or_else(bad)?;
    Ok(Call { name: fields[..at].join(" "), start_ns, end_ns: end_ns.max(start_ns) })
}

/// Scopes of calls, in the order of their times.
fn scopes(mut calls: Vec<Call>, out: &mut Out) -> Vec<Row> {
    calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.end_ns)));
    let mut rows = Vec::with_capacity(calls.len() * 2);
    // Calls that have not ended: number and end.
    let mut open: Vec<(u64, i64)> = Vec::new();
    let row = |time_ns, action, scope, parent, name, process: ProcessId| {
        Row::Scope(ScopeRow { time_ns, process, thread: 0, action, scope, parent, name })
    };
    let none = floodmark_event::StringId(0);
    for (at, call) in calls.iter().enumerate() {
        while let Some((scope, end_ns)) = open.last().copied().filter(|(_, end_ns)| *end_ns <= call.start_ns)
        {
            open.pop();
            rows.push(row(end_ns, ScopeAction::Exit, scope, 0, none, out.process));
        }
        let scope = out.numbered(at as u64 + 1);
        let parent = open.last().map_or(0, |(scope, _)| *scope);
        let name = out.tables.intern(&call.name);
        rows.push(row(call.start_ns, ScopeAction::Enter, scope, parent, name, out.process));
        open.push((scope, call.end_ns));
        // Calls of several threads may overlap; the one that ends first is left first.
        open.sort_by_key(|(_, end_ns)| std::cmp::Reverse(*end_ns));
    }
    for (scope, end_ns) in open.into_iter().rev() {
        rows.push(row(end_ns, ScopeAction::Exit, scope, 0, none, out.process));
    }
    rows
}

/// Gathers the calls of a file and nothing else.
#[derive(Debug, Default)]
struct Gather {
    calls: Vec<Call>,
}

impl ParseLine for Gather {
    fn line(&mut self, line: &str, _: &mut Out) -> std::result::Result<(), String> {
        if let Some(rest) = line.strip_prefix("FUNC ")
            && let Ok(call) = parse_call(rest)
        {
            self.calls.push(call);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) {
        let rows = scopes(std::mem::take(&mut self.calls), out);
        out.rows.extend(rows);
    }
}

/// What is known of calls while the rest is read.
#[derive(Debug)]
enum Calls {
    /// They are gathered on the way.
    Unknown(Vec<Call>),
    /// Their scopes, the earliest last.
    Known(Vec<Row>),
}

/// Parses lines.
#[derive(Debug)]
pub(crate) struct Format {
    command: String,
    subjects: Option<Subjects>,
    children: BTreeMap<u64, Child>,
    calls: Calls,
    /// The sweep at hand: when it was last added to, and the process's own bytes.
    sweep: Option<(i64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Subjects {
    job: u64,
    process: u64,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    subject: u64,
    bytes: u64,
    is_listed: bool,
    is_over: bool,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            command: String::new(),
            subjects: None,
            children: BTreeMap::new(),
            calls: Calls::Unknown(Vec::new()),
            sweep: None,
        }
    }
}

impl Format {
    fn subjects(&mut self, out: &mut Out) -> Subjects {
        let (command, log) = (&self.command, out.log_name());
        *self.subjects.get_or_insert_with(|| {
            let word = command.split(' ').next().unwrap_or_default();
            let program = word.rsplit('/').next().unwrap_or_default();
            let name = if program.is_empty() { &*log } else { program };
            let named = |kind| floodmark_event::Subject { detail: command.clone(), ..subject(kind, 0, name) };
            Subjects {
                job: out.subject(named(SubjectKind::Job)),
                process: out.subject(named(SubjectKind::Process)),
            }
        })
    }

    fn command(&mut self, command: &str, out: &mut Out) {
        command.clone_into(&mut self.command);
        if let Some(process) = out.tables.processes.first_mut() {
            command.clone_into(&mut process.command);
        }
        // It need not be the first line.
        if let Some(Subjects { job, process }) = self.subjects {
            for subject in [job, process] {
                if let Some(row) = out.tables.subjects.get_mut(&subject) {
                    command.clone_into(&mut row.detail);
                }
            }
        }
    }

    /// Hands out the scopes up to `time_ns`.
    fn scopes_until(&mut self, time_ns: i64, out: &mut Out) {
        if let Calls::Known(scopes) = &mut self.calls {
            while let Some(scope) = scopes.pop_if(|scope| scope.time_ns() <= time_ns) {
                out.rows.push(scope);
            }
        }
    }

    fn memory(&mut self, bytes: u64, time_ns: i64, out: &mut Out) {
        self.finish_sweep(out);
        self.scopes_until(time_ns, out);
        let Subjects { process, .. } = self.subjects(out);
        out.sample(time_ns, process, Metric::Rss, bytes);
        self.sweep = Some((time_ns, bytes));
    }

    fn child(&mut self, number: u64, bytes: u64, time_ns: i64, out: &mut Out) {
        self.scopes_until(time_ns, out);
        let Subjects { process, .. } = self.subjects(out);
        let child = self.children.entry(number).or_insert_with(|| {
            let new = subject(SubjectKind::Process, number, "");
            let parent = SubjectId(process as u32);
            let subject = out.subject(floodmark_event::Subject { parent, ..new });
            Child { subject, bytes: 0, is_listed: false, is_over: false }
        });
        *child = Child { bytes, is_listed: true, is_over: false, ..*child };
        out.sample(time_ns, child.subject, Metric::Rss, bytes);
        let own = self.sweep.map_or(0, |(_, own)| own);
        self.sweep = Some((time_ns, own));
    }

    /// Tells what the sweep at hand adds up to.
    fn finish_sweep(&mut self, out: &mut Out) {
        let Some((time_ns, own)) = self.sweep.take() else { return };
        let mut total = own;
        for child in self.children.values_mut() {
            if std::mem::take(&mut child.is_listed) {
                total = total.saturating_add(child.bytes);
            } else if !std::mem::replace(&mut child.is_over, true) {
                out.sample(time_ns, child.subject, Metric::Rss, 0);
                out.ended(child.subject, time_ns);
            }
        }
        let Subjects { job, .. } = self.subjects(out);
        out.sample(time_ns, job, Metric::Rss, total);
    }
}

impl ParseLine for Format {
    fn line(&mut self, line: &str, out: &mut Out) -> std::result::Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let bad =
            || format!("{word} is {}, not as in MEM 30.898438 1794748400.6492", quoted(rest.as_bytes()));
        let size_and_time = |rest: &str| {
            let (size, time) = rest.split_once(' ')?;
            mib(size).zip(seconds_ns(time.trim()))
        };
        match word {
            "CMDLINE" => self.command(rest.trim(), out),
            "MEM" => {
                let (bytes, time_ns) = size_and_time(rest).ok_or_else(bad)?;
                self.memory(bytes, time_ns, out);
            }
            "CHLD" => {
                let (number, rest) = rest.split_once(' ').ok_or_else(bad)?;
                let (bytes, time_ns) = size_and_time(rest).ok_or_else(bad)?;
                self.child(whole(number).ok_or_else(bad)?, bytes, time_ns, out);
            }
            "FUNC" => {
                let call = parse_call(rest)?;
                if let Calls::Unknown(calls) = &mut self.calls {
                    calls.push(call);
                }
            }
            _ => {
                return Err(format!("{} is not one of CMDLINE, MEM, CHLD and FUNC", quoted(word.as_bytes())));
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) {
        // Children that are missing at the end may have been cut off with it.
        if self.children.values().all(|child| child.is_listed || child.is_over) {
            self.finish_sweep(out);
        }
        self.scopes_until(i64::MAX, out);
        if let Calls::Unknown(calls) = &mut self.calls {
            let rows = scopes(std::mem::take(calls), out);
            out.rows.extend(rows);
        }
    }
}
