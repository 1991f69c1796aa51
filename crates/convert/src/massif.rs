//! Files of massif, valgrind's heap profiler: the size of the heap over time, and what held it at some instants.
//!
//! | in the file | in a trace |
//! |---|---|
//! | `mem_heap_B` | sample `live` of the process |
//! | `mem_heap_B` and `mem_heap_extra_B` together | sample `reserved` |
//! | the tree of the peak (without one: of the largest detailed snapshot) | one block for each stack, in a scope `before capture` |
//!
//! Trees of other snapshots are counted in a remark. Times are what the file counts in; instructions and bytes
//! are shown as nanoseconds.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use floodmark_event::{Metric, Row, SampleRow, StackId, SubjectKind};
use floodmark_store::{Error, Result};

use crate::foreign::{EventsAndRows, Parsed, both};
use crate::live_at::LiveAt;
use crate::quote::quoted;
use crate::ready::Ready;
use crate::recognize::Candidate;
use crate::{Mode, OpenProps, valgrind};

/// Resource of the blocks.
pub const RESOURCE: &str = "malloc";
/// A longer line is refused.
const LINE_BYTES_MAX: u64 = if cfg!(fuzzing) { 512 } else { 1 << 20 };
/// A deeper tree is not believed; massif's own limit is 200.
const DEPTH_MAX: usize = 1024;

/// Opens a file; `path` is what messages call it.
///
/// # Errors
/// [`Error::Malformed`] names the line, and [`Error::Io`].
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    both(parse_input(input, path, props)?.as_ref())
}

/// Parses a file whole: which snapshot is the peak may be known only at the end.
pub(crate) fn parse(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let (path, _, input) = candidate.into_parts();
    parse_input(input, &path, props)
}

/// Whether the beginning of a file is that of massif's.
pub(crate) fn begins_file(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n');
    let is_begun = lines.next().is_some_and(|line| line.starts_with(b"desc:"));
    // A pipe may have given the first line only.
    is_begun && lines.next().is_none_or(|line| line.is_empty() || line.starts_with(b"cmd:"))
}

/// A snapshot.
#[derive(Debug, Default)]
struct Snapshot {
    time: u64,
    heap_bytes: u64,
    extra_bytes: u64,
    stack_bytes: u64,
    is_peak: bool,
    /// Leaves of its tree: bytes, and frames innermost first.
    leaves: Vec<(u64, Vec<String>)>,
}

#[derive(Debug, Default)]
struct File {
    command: String,
    time_unit: String,
    snapshots: Vec<Snapshot>,
    /// Lines of the tree that is being read: frames at every depth.
    path: Vec<String>,
}

type Taken = std::result::Result<(), String>;

fn parse_input(input: impl Read, path: &Path, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let mut ready = Ready::new(path, props);
    let mut input = BufReader::new(input);
    let (mut file, mut line, mut number) = (File::default(), Vec::new(), 0u64);
    loop {
        line.clear();
        let mut limited = input.by_ref().take(LINE_BYTES_MAX);
        let count = limited.read_until(b'\n', &mut line).map_err(Error::io("reading", path))?;
        if count == 0 {
            break;
        }
        number += 1;
        let malformed = |reason: String| Error::Malformed {
            path: path.to_owned(),
            place: format!("line {number}"),
            reason,
        };
        if line.last() != Some(&b'\n') {
            if count as u64 == LINE_BYTES_MAX {
                return Err(malformed(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
            }
            ready.losses.add(1, "the last line has no end and was left out");
            break;
        }
        let text = String::from_utf8_lossy(&line);
        if let Err(reason) = file.take(text.trim_end_matches(['\n', '\r'])) {
            match props.mode {
                Mode::Strict => return Err(malformed(reason)),
                Mode::Lenient => ready.losses.add(1, "malformed lines skipped"),
            }
        }
    }
    Ok(file.into_parsed(ready, props))
}

impl File {
    fn take(&mut self, line: &str) -> Taken {
        if line.starts_with('#') || line.trim().is_empty() || line.starts_with("desc:") {
            return Ok(());
        }
        if let Some(command) = line.strip_prefix("cmd:") {
            command.trim().clone_into(&mut self.command);
            return Ok(());
        }
        if let Some(unit) = line.strip_prefix("time_unit:") {
            unit.trim().clone_into(&mut self.time_unit);
            return Ok(());
        }
        if is_node(line) {
            return self.take_node(line);
        }
        let (key, value) = line.split_once('=').ok_or("a key and a value are expected")?;
        if key == "snapshot" {
            self.snapshots.push(Snapshot::default());
            self.path.clear();
            return Ok(());
        }
        let snapshot = self.snapshots.last_mut().ok_or("a value stands before the first snapshot")?;
        let whole = || value.parse().map_err(|_| format!("{} is no number", quoted(value.as_bytes())));
        match key {
            "time" => snapshot.time = whole()?,
            "mem_heap_B" => snapshot.heap_bytes = whole()?,
            "mem_heap_extra_B" => snapshot.extra_bytes = whole()?,
            "mem_stacks_B" => snapshot.stack_bytes = whole()?,
            "heap_tree" => snapshot.is_peak = value == "peak",
            _ => {}
        }
        Ok(())
    }

    /// Takes a line of a tree: `n1: 64 0x10923B: grow_buffer (work.c:28)`, with a blank for each step of depth.
    fn take_node(&mut self, line: &str) -> Taken {
        let depth = line.len() - line.trim_start_matches(' ').len();
        let (children, rest) = line.trim_start().split_once(": ").ok_or("a node is expected")?;
        let children: u64 = children
            .strip_prefix('n')
            .and_then(|count| count.parse().ok())
            .ok_or("a node has no number of callers")?;
        let (bytes, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let bytes: u64 = bytes.parse().map_err(|_| "a node has no number of bytes".to_owned())?;
        let snapshot = self.snapshots.last_mut().ok_or("a tree stands before the first snapshot")?;
        if depth > DEPTH_MAX || depth > self.path.len() + 1 {
            return Err("a node lies deeper than its caller".to_owned());
        }
        // The first line stands for all functions that allocate.
        self.path.truncate(depth.saturating_sub(1));
        let is_place = !text.starts_with("in ") && depth > 0;
        if is_place {
            self.path.push(text.to_owned());
        }
        if children == 0 {
            let mut frames = self.path.clone();
            if !is_place && depth > 0 {
                frames.truncate(depth - 1);
            }
            snapshot.leaves.push((bytes, frames));
        }
        Ok(())
    }

    fn into_parsed(self, mut ready: Ready, props: &OpenProps) -> Box<dyn Parsed> {
        let unit_ns = if self.time_unit == "ms" { 1_000_000 } else { 1 };
        if unit_ns == 1 {
            let unit = if self.time_unit == "B" { "bytes" } else { "instructions" };
            ready.losses.remark(format!("massif counted time in {unit}; they are shown as nanoseconds"));
        }
        let time_ns = |time: u64| i64::try_from(time.saturating_mul(unit_ns)).unwrap_or(i64::MAX);
        for tables in [&mut ready.tables, &mut ready.row_tables] {
            tables.processes[0].command.clone_from(&self.command);
        }
        let subject = u64::from(props.process.0) << 32 | 1;
        ready.subject(subject, SubjectKind::Process, 0, &self.command);
        let mut last_ns = i64::MIN;
        for snapshot in &self.snapshots {
            last_ns = last_ns.max(time_ns(snapshot.time));
            let reserved = snapshot.heap_bytes.saturating_add(snapshot.extra_bytes);
            for (metric, value) in [(Metric::Live, snapshot.heap_bytes), (Metric::Reserved, reserved)] {
                ready.rows.push(Row::Sample(SampleRow { time_ns: last_ns, subject, metric, value }));
            }
        }
        if self.snapshots.iter().any(|snapshot| snapshot.stack_bytes > 0) {
            ready.losses.remark("the sizes of stacks that massif measured are left out");
        }
        let detailed = self.snapshots.iter().filter(|snapshot| !snapshot.leaves.is_empty());
        let Some(peak) = detailed.clone().max_by_key(|snapshot| (snapshot.is_peak, snapshot.heap_bytes))
        else {
            return ready.parsed();
        };
        let others = detailed.count() as u64 - 1;
        if others > 0 {
            ready.losses.remark(format!(
                "stacks are those of the peak; {others} other detailed snapshots are shown by their sizes only"
            ));
        }
        let mut live = LiveAt::new(ready, props, RESOURCE, time_ns(peak.time));
        for (bytes, frames) in &peak.leaves {
            let tables = &mut live.ready.tables;
            let stack = frames.iter().rev().fold(StackId(0), |stack, text| {
                let frame = valgrind::frame(text, tables);
                tables.intern_stack(stack, frame)
            });
            live.add(stack, *bytes, u64::from(*bytes > 0));
        }
        live.ready.parsed()
    }
}

/// Whether a line belongs to a tree.
fn is_node(line: &str) -> bool {
    let node = line.trim_start_matches(' ').strip_prefix('n').and_then(|node| node.split_once(": "));
    node.is_some_and(|(count, _)| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
}
