//! Memory over time, line by line: our own layout, that of `memory_logger`, CSV and lines of JSON.
//!
//! All are written as samples arrive, so a trace may be longer than memory and still growing.

mod compact;
mod lines;
mod original;

use std::fmt::Write as _;

use floodmark_analyze::SeriesKey;
use floodmark_event::tables::Frame;
use floodmark_event::{StackSampleRow, SubjectKind, Tables};

use crate::plain::plain;

pub use compact::{CompactLayout, CompactProps};
pub use lines::{SCHEMA, SampleCsv, SampleJson};
pub use original::{OriginalLayout, OriginalProps};

/// How much memory there was at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAt {
    /// When.
    pub time_ns: i64,
    /// In all.
    pub total_bytes: u64,
    /// Who reported then, with what they had.
    pub reports: Vec<Reported>,
}

/// A subject that reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// What it is called.
    pub name: String,
    /// What it had.
    pub bytes: u64,
}

/// Whether to tell subjects apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Separate {
    /// Show the total.
    #[default]
    No,
    /// Show the total and who reported.
    Yes,
}

/// Names a sum over subjects, as in `rss of the job`.
pub fn series_title(key: SeriesKey) -> String {
    let whose = match key.kind {
        SubjectKind::Job => "the job",
        SubjectKind::Device => "all devices",
        SubjectKind::Host => "all hosts",
        SubjectKind::Process => "all processes",
        SubjectKind::Pool => "all pools",
        _ => "all control groups",
    };
    format!("{} of {whose}", key.metric.name())
}

/// The frames of a stack as a debugger prints them, innermost first.
pub fn stack_lines(row: &StackSampleRow, tables: &Tables) -> Vec<String> {
    tables.frames_of(row.stack).enumerate().map(|(at, frame)| frame_line(at, &frame, tables)).collect()
}

fn frame_line(at: usize, frame: &Frame, tables: &Tables) -> String {
    let mut line = format!("#{at:<2} ");
    if frame.address != 0 {
        let _ = write!(line, "{:#018x} in ", frame.address);
    }
    let function = plain(tables.string(frame.function));
    line += if function.is_empty() { "??" } else { &function };
    let (file, module) = (plain(tables.string(frame.file)), plain(tables.string(frame.module)));
    if !file.is_empty() {
        let _ = write!(line, " at {file}:{}", frame.line);
    } else if !module.is_empty() {
        let _ = write!(line, " from {module}");
    }
    line
}

/// The lines of output that are worth showing, without what acts on a terminal.
fn shown_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.split('\n')
        .map(plain)
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.trim_end().to_owned())
        .collect()
}
