//! Logs of `memory_logger.py`, which comes with MOOSE: memory, output and stacks of a job, one row per
//! sample of a host.
//!
//! A log is CSV without a header: `TIMESTAMP,TOTAL,STDOUT,STACK,HOSTNAME,MEMORY`. Times are seconds since
//! 1970, sizes KiB, rows end in CRLF. Text with commas, quotes or line breaks stands between `|`, in which
//! `||` is one `|`; it may span many lines.
//!
//! | in the log | in a trace |
//! |---|---|
//! | TOTAL | `rss` of the one subject of kind `job` |
//! | HOSTNAME, MEMORY | `rss` of a subject of kind `host`, whose parent is the job |
//! | STDOUT | output; the program does not tell standard error apart |
//! | STACK | stack samples of the host: function, file, line, module and address of each frame |
//!
//! Backslashes: the program writes them as they are and takes them for escapes when it reads, so its own
//! reader loses them. Here they stay.
//!
//! What a debugger says of a function's arguments is not kept, because a trace names functions the same
//! way at every call; frames that had some are counted among the losses. A line that is no frame is kept
//! as the name of one. `True` stands for a stack that the debugger did not give, and is counted.

mod fields;
mod frames;
mod write;

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::{
    Metric, OutputRow, OutputStream, StackId, StackReason, StackSampleRow, SubjectId, SubjectKind, Tables,
};

use self::fields::{Fields, LogLine};
use self::frames::Thread;
use crate::OpenProps;
use crate::numbers::{seconds_ns, text, whole};
use crate::quote::quoted;
use crate::records::{LogReader, Out, subject};
use floodmark_event::Row;
use floodmark_store::RowSource;

pub use self::write::LogWriter;

/// Note on frames whose arguments were dropped.
const ARGUMENTS: &str = "arguments of functions in stacks are not kept";
/// What the program writes for a stack when the debugger did not answer in time.
const NO_ANSWER: &[u8] = b"True";

/// Opens a log; `path` is what messages call it.
pub fn open<'a>(input: impl Read + Send + 'a, path: &Path, props: &OpenProps) -> Box<dyn RowSource + 'a> {
    Box::new(reader(input, path, props))
}

pub(crate) fn reader<R: Read>(input: R, path: &Path, props: &OpenProps) -> LogReader<R, Fields> {
    LogReader::new(input, Fields::default(), path, props)
}

/// Whether the beginning of a file is the beginning of a log.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    fields::begins_row(head.trim_ascii_start())
}

/// Subjects of a log.
#[derive(Debug, Default)]
struct Subjects {
    job: Option<u64>,
    hosts: HashMap<Vec<u8>, u64>,
}

impl Subjects {
    fn job(&mut self, out: &mut Out) -> u64 {
        *self.job.get_or_insert_with(|| {
            let name = out.log_name();
            out.subject(subject(SubjectKind::Job, 0, name))
        })
    }

    fn host(&mut self, name: &[u8], out: &mut Out) -> u64 {
        if let Some(host) = self.hosts.get(name) {
            return *host;
        }
        let job = self.job(out) as u32;
        let host = subject(SubjectKind::Host, 0, String::from_utf8_lossy(name));
        let host = out.subject(floodmark_event::Subject { parent: SubjectId(job), ..host });
        self.hosts.insert(name.to_owned(), host);
        host
    }
}

/// Parses the time of a row.
fn parse_time(field: &[u8]) -> Result<i64, String> {
    text(field)
        .and_then(seconds_ns)
        .ok_or_else(|| format!("TIMESTAMP is {}, not seconds since 1970", quoted(field)))
}

/// Parses a size.
fn parse_kib(name: &str, field: &[u8]) -> Result<u64, String> {
    text(field)
        .and_then(whole)
        .and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| format!("{name} is {}, not a whole number of KiB", quoted(field)))
}

impl LogLine {
    /// Puts the rows of the tables that a row of the log stands for.
    fn put(&self, subjects: &mut Subjects, out: &mut Out) -> Result<(), String> {
        let time_ns = parse_time(&self.fields[0])?;
        let total = parse_kib("TOTAL", &self.fields[1])?;
        let memory = parse_kib("MEMORY", &self.fields[5])?;
        let job = subjects.job(out);
        let host = subjects.host(&self.fields[4], out);
        out.sample(time_ns, job, Metric::Rss, total);
        out.sample(time_ns, host, Metric::Rss, memory);
        put_output(time_ns, self.fields[2].clone(), out);
        if self.fields[3] == NO_ANSWER {
            out.losses.remark_times(1, "the debugger gave no stack");
            return Ok(());
        }
        for thread in frames::threads(&String::from_utf8_lossy(&self.fields[3])) {
            let with_arguments = thread.frames.iter().filter(|frame| frame.has_arguments).count() as u64;
            if with_arguments > 0 {
                out.losses.remark(ARGUMENTS);
            }
            let stack = intern(&thread, &mut out.tables);
            out.rows.push(Row::Stack(StackSampleRow {
                time_ns,
                subject: host,
                thread: thread.number,
                stack,
                reason: StackReason::Interval,
                pause_ns: 0,
            }));
        }
        Ok(())
    }
}

fn put_output(time_ns: i64, bytes: Vec<u8>, out: &mut Out) {
    if !bytes.is_empty() {
        let (process, stream) = (out.process, OutputStream::Stdout);
        out.rows.push(Row::Output(OutputRow { time_ns, process, stream, bytes }));
    }
}

fn intern(thread: &Thread, tables: &mut Tables) -> StackId {
    thread.frames.iter().rev().fold(StackId(0), |caller, frame| {
        let [function, file, module] =
            [&frame.function, &frame.file, &frame.module].map(|text| tables.intern(text));
        let (line, address) = (frame.line, frame.address);
        let frame = tables.intern_frame(Frame { function, file, line, module, address });
        tables.intern_stack(caller, frame)
    })
}
