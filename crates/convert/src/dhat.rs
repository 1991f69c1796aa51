//! Files of DHAT, valgrind's or that of the Rust crate `dhat`: sums by stack, in JSON.
//!
//! | in the file | in a trace |
//! |---|---|
//! | `gb`, `gbk`: live when the heap was largest | blocks, allocated at that instant (`tg`), in a scope `before capture` |
//! | sums of `gb` and `eb` | samples `live` of the process at the peak and at the end |
//! | `tb`, `tbk`: allocated in all | a remark with their sum: a trace has events, and there are none |
//!
//! Times are what the file counts in, which for valgrind is instructions; those are shown as nanoseconds.

use std::io::Read;
use std::path::Path;

use floodmark_event::units::format_count;
use floodmark_event::{Metric, Row, SampleRow, StackId, SubjectKind};
use floodmark_store::{Error, Result};
use serde::Deserialize;

use crate::OpenProps;
use crate::foreign::{EventsAndRows, Parsed, both};
use crate::live_at::LiveAt;
use crate::ready::Ready;
use crate::recognize::Candidate;
use crate::valgrind;

/// Resource of the blocks.
pub const RESOURCE: &str = "malloc";
/// A larger file is refused. Real ones have a few megabytes.
const FILE_BYTES_MAX: u64 = if cfg!(fuzzing) { 1 << 16 } else { 1 << 30 };

/// Opens a file; `path` is what messages call it.
///
/// # Errors
/// [`Error::Malformed`] names the line and column, and [`Error::Io`].
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    both(parse_input(input, path, props)?.as_ref())
}

/// Parses a file whole: frames come last.
pub(crate) fn parse(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let (path, _, input) = candidate.into_parts();
    parse_input(input, &path, props)
}

/// Whether the beginning of a file is that of DHAT's.
pub(crate) fn begins_file(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    head.starts_with(b"{") && head[1..].trim_ascii_start().starts_with(b"\"dhatFileVersion\"")
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "dhatFileVersion")]
    version: u64,
    mode: String,
    #[serde(default, rename = "bklt")]
    has_lifetimes: bool,
    #[serde(default, rename = "tu")]
    time_unit: String,
    #[serde(default)]
    cmd: String,
    #[serde(default)]
    pid: u64,
    #[serde(rename = "te")]
    end_time: u64,
    #[serde(default, rename = "tg")]
    peak_time: Option<u64>,
    #[serde(rename = "pps")]
    points: Vec<Point>,
    #[serde(rename = "ftbl")]
    frames: Vec<String>,
}

/// A stack that allocated.
#[derive(Deserialize)]
struct Point {
    #[serde(rename = "tb")]
    total_bytes: u64,
    #[serde(rename = "tbk")]
    total_blocks: u64,
    #[serde(default, rename = "gb")]
    peak_bytes: u64,
    #[serde(default, rename = "gbk")]
    peak_blocks: u64,
    #[serde(default, rename = "eb")]
    end_bytes: u64,
    /// Numbers of frames, innermost first.
    #[serde(rename = "fs")]
    frames: Vec<usize>,
}

fn parse_input(input: impl Read, path: &Path, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let malformed = |place: &str, reason: String| Error::Malformed {
        path: path.to_owned(),
        place: place.to_owned(),
        reason,
    };
    let mut bytes = Vec::new();
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::io("reading", path))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(malformed("byte 0", format!("the file is longer than {FILE_BYTES_MAX} bytes")));
    }
    let file: File = serde_json::from_slice(&bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        malformed(&place, error.to_string())
    })?;
    if file.version != 2 {
        let reason = format!("the file has version {}; version 2 can be read", file.version);
        return Err(malformed("dhatFileVersion", reason));
    }
    if file.mode != "heap" && file.mode != "rust-heap" {
        let reason = format!("the file is about {:?} and not about the heap", file.mode);
        return Err(malformed("mode", reason));
    }
    if !file.has_lifetimes {
        let reason = "the file does not say what was live: it has totals only".to_owned();
        return Err(malformed("bklt", reason));
    }
    make(&file, path, props).map_err(|reason| malformed("pps", reason))
}

fn make(file: &File, path: &Path, props: &OpenProps) -> std::result::Result<Box<dyn Parsed>, String> {
    let mut ready = Ready::new(path, props);
    for tables in [&mut ready.tables, &mut ready.row_tables] {
        tables.processes[0].command.clone_from(&file.cmd);
        tables.processes[0].pid = u32::try_from(file.pid).unwrap_or(0);
    }
    // Microseconds, as the Rust crate counts; instructions and bytes as valgrind does.
    let unit_ns = if file.time_unit == "µs" { 1000 } else { 1 };
    if unit_ns == 1 {
        let unit = if file.time_unit.is_empty() { "units" } else { &file.time_unit };
        ready.losses.remark(format!("the file counts time in {unit:?}; they are shown as nanoseconds"));
    }
    let time_ns = |time: u64| i64::try_from(time.saturating_mul(unit_ns)).unwrap_or(i64::MAX);
    let (peak_ns, end_ns) = (time_ns(file.peak_time.unwrap_or(file.end_time)), time_ns(file.end_time));
    let subject = u64::from(props.process.0) << 32 | 1;
    ready.subject(subject, SubjectKind::Process, file.pid, &file.cmd);
    let frames: Vec<u32> = file.frames.iter().map(|text| valgrind::frame(text, &mut ready.tables)).collect();
    let mut live = LiveAt::new(ready, props, RESOURCE, peak_ns);
    let (mut at_peak, mut at_end, mut total, mut blocks) = (0u64, 0u64, 0u64, 0u64);
    for point in &file.points {
        let mut stack = StackId(0);
        for number in point.frames.iter().rev() {
            let frame = frames.get(*number).ok_or_else(|| format!("there is no frame {number}"))?;
            stack = live.ready.tables.intern_stack(stack, *frame);
        }
        live.add(stack, point.peak_bytes, point.peak_blocks);
        at_peak = at_peak.saturating_add(point.peak_bytes);
        at_end = at_end.saturating_add(point.end_bytes);
        total = total.saturating_add(point.total_bytes);
        blocks = blocks.saturating_add(point.total_blocks);
    }
    let mut ready = live.ready;
    for (time_ns, value) in [(peak_ns, at_peak), (end_ns, at_end)] {
        ready.rows.push(Row::Sample(SampleRow { time_ns, subject, metric: Metric::Live, value }));
    }
    ready.losses.remark(format!(
        "DHAT counted {} bytes in {} blocks in all; blocks here are those that were live at the peak",
        format_count(total),
        format_count(blocks)
    ));
    Ok(ready.parsed())
}
