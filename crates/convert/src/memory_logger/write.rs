//! Writes logs as `memory_logger.py` does.
//!
//! A row is written for every sample of a job, with the output and the stacks since the row before. Output
//! without a sample at its time has a row of its own, which repeats the memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use floodmark_event::{Metric, Row, SampleRow, StackSampleRow, SubjectKind, Tables};

const KIB: u64 = 1024;
const NS_PER_S: u64 = 1_000_000_000;

/// A row of the log that is not written yet.
#[derive(Debug, Default)]
struct PendingLine {
    time_ns: i64,
    /// Host and its memory, if a host was sampled.
    host: Option<(String, u64)>,
    output: Vec<u8>,
    stacks: String,
}

/// Writes a log.
pub struct LogWriter<'a> {
    out: &'a mut dyn Write,
    /// Host of rows without one.
    host: String,
    /// Resident bytes of each job.
    jobs: BTreeMap<u64, u64>,
    /// The host of the last row and its memory.
    last: Option<(String, u64)>,
    line: Option<PendingLine>,
    count: u64,
}

impl std::fmt::Debug for LogWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("line", &self.line)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl<'a> LogWriter<'a> {
    /// Writes to `out`; `host` is the host of samples that name none.
    pub fn new(out: &'a mut dyn Write, host: &str) -> Self {
        Self { out, host: host.to_owned(), jobs: BTreeMap::new(), last: None, line: None, count: 0 }
    }

    /// Adds a row of a trace; rows come in the order of time.
    ///
    /// # Errors
    /// If a row of the log cannot be written.
    pub fn row(&mut self, row: &Row, tables: &Tables) -> io::Result<()> {
        match row {
            Row::Sample(row) if row.metric == Metric::Rss => self.sample(row, tables),
            Row::Output(row) => {
                self.at(row.time_ns)?.output.extend_from_slice(&row.bytes);
                Ok(())
            }
            Row::Stack(row) => self.stack(row, tables),
            Row::Sample(_) | Row::Scope(_) | Row::Log(_) | Row::Call(_) => Ok(()),
        }
    }

    /// Writes the last row; returns how many there are.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.out.flush()?;
        Ok(self.count)
    }

    fn sample(&mut self, row: &SampleRow, tables: &Tables) -> io::Result<()> {
        let Some(subject) = tables.subjects.get(&row.subject) else { return Ok(()) };
        match subject.kind {
            SubjectKind::Job => {
                self.begin(row.time_ns)?;
                self.jobs.insert(row.subject, row.value);
            }
            SubjectKind::Host => {
                let is_open =
                    self.line.as_ref().is_some_and(|line| line.time_ns == row.time_ns && line.host.is_none());
                if !is_open {
                    self.begin(row.time_ns)?;
                }
                let host = Some((subject.name.clone(), row.value));
                self.last.clone_from(&host);
                if let Some(line) = &mut self.line {
                    line.host = host;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn stack(&mut self, row: &StackSampleRow, tables: &Tables) -> io::Result<()> {
        let mut text = format!("Thread 1 (LWP {}):\n", row.thread);
        for (number, frame) in tables.frames_of(row.stack).enumerate() {
            let [function, file, module] =
                [frame.function, frame.file, frame.module].map(|text| tables.string(text));
            let _ = write!(text, "#{number}  ");
            if frame.address != 0 {
                let _ = write!(text, "0x{:016x} in ", frame.address);
            }
            let _ = write!(text, "{} ()", if function.is_empty() { "??" } else { function });
            if !file.is_empty() {
                let _ = write!(text, " at {file}:{}", frame.line);
            } else if !module.is_empty() {
                let _ = write!(text, " from {module}");
            }
            text.push('\n');
        }
        self.at(row.time_ns)?.stacks.push_str(&text);
        Ok(())
    }

    /// The row at a time; a new one that repeats the memory if there is none.
    fn at(&mut self, time_ns: i64) -> io::Result<&mut PendingLine> {
        if self.line.as_ref().is_some_and(|line| line.time_ns != time_ns) {
            self.flush()?;
        }
        let host = self.last.clone();
        Ok(self.line.get_or_insert_with(|| PendingLine { time_ns, host, ..PendingLine::default() }))
    }

    fn begin(&mut self, time_ns: i64) -> io::Result<()> {
        self.flush()?;
        self.line = Some(PendingLine { time_ns, ..PendingLine::default() });
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(line) = self.line.take() else { return Ok(()) };
        let total = self.jobs.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let (host, memory) = line.host.unwrap_or_else(|| (self.host.clone(), total));
        let time_ns = line.time_ns.max(0) as u64;
        let decimals = format!("{:09}", time_ns % NS_PER_S);
        let decimals = decimals.trim_end_matches('0');
        let decimals = if decimals.is_empty() { "0" } else { decimals };
        write!(self.out, "{}.{decimals},{},", time_ns / NS_PER_S, total / KIB)?;
        self.out.write_all(&field(&line.output))?;
        self.out.write_all(b",")?;
        self.out.write_all(&field(line.stacks.as_bytes()))?;
        self.out.write_all(b",")?;
        self.out.write_all(&field(host.as_bytes()))?;
        write!(self.out, ",{}\r\n", memory / KIB)?;
        self.count += 1;
        Ok(())
    }
}

/// A field, in quotes if it needs them.
fn field(text: &[u8]) -> Vec<u8> {
    if !text.iter().any(|byte| b",|\"\r\n".contains(byte)) {
        return text.to_owned();
    }
    let mut quoted = vec![b'|'];
    for &byte in text {
        if byte == b'|' {
            quoted.push(b'|');
        }
        quoted.push(byte);
    }
    quoted.push(b'|');
    quoted
}
