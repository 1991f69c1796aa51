//! Traces of `PyTorch`'s profiler (Kineto): JSON as Chrome reads it, recorded with `profile_memory=True`.
//!
//! | in the file | in a trace |
//! |---|---|
//! | `[memory]` with `Bytes` above 0 | an allocation of whole blocks, at `Addr` on `Device Id` |
//! | `[memory]` with `Bytes` below 0 | a free |
//! | `Total Allocated`, `Total Reserved` | samples `live` and `reserved` of the device |
//! | `user_annotation`, as of `record_function` and steps | scopes |
//!
//! A device type of 0 is the processor: its memory is pageable and on no device. All other events are
//! passed over as they stream by; only what is listed here is held, because events are not in order and
//! the time they count from comes last.

mod json;

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;

use floodmark_event::{
    Action, Event, Kind, Metric, NO_DEVICE, SampleRow, ScopeAction, ScopeRow, StringId, SubjectKind,
};
use floodmark_store::{Error, Result};

use crate::foreign::{EventsAndRows, Parsed, both};
use crate::ready::Ready;
use crate::recognize::Candidate;
use crate::{Mode, OpenProps};
use floodmark_event::Row;

use json::{Memory, Range, Trace};

/// Resource of device memory.
pub const DEVICE: &str = "torch";
/// Resource of host memory.
pub const HOST: &str = "torch cpu";

/// Opens a trace; `path` is what messages call it.
///
/// # Errors
/// [`Error::Malformed`] names the line and column, [`Error::Unrecognized`] says that there is no memory in
/// it, and [`Error::Io`].
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    both(parse_input(input, path, props)?.as_ref())
}

/// Parses a file whole.
pub(crate) fn parse(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let (path, _, input) = candidate.into_parts();
    parse_input(input, &path, props)
}

fn parse_input(input: impl Read, path: &Path, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let trace = read(input, path, props)?;
    if trace.memory.is_empty() {
        let reason = "it is a profiler's trace without memory; record with profile_memory=True".to_owned();
        return Err(Error::Unrecognized { path: path.to_owned(), reason });
    }
    let mut ready = Ready::new(path, props);
    if trace.cut_off > 0 {
        ready.losses.add(0, "what follows the place where the file ends too early or is damaged");
    }
    if trace.malformed > 0 {
        ready.losses.add(trace.malformed, "events of memory without address, bytes or time");
    }
    let mut making = Making { ready, props, subjects: BTreeMap::new(), base_ns: trace.base_ns };
    for memory in &trace.memory {
        making.memory(memory);
    }
    making.ranges(trace.ranges, &trace.names);
    Ok(making.ready.parsed())
}

fn read(input: impl Read, path: &Path, props: &OpenProps) -> Result<Trace> {
    let mut trace = Trace::default();
    let result = json::read(BufReader::with_capacity(256 << 10, input), &mut trace);
    let malformed = |place: String, reason: String| Error::Malformed { path: path.to_owned(), place, reason };
    if let Err(error) = result {
        if error.is_io() {
            return Err(Error::io("reading", path)(error.into()));
        }
        if props.mode == Mode::Strict {
            let place = format!("line {}, column {}", error.line(), error.column());
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
            return Err(malformed(place, crate::quote::quoted(reason.as_bytes())));
        }
        trace.cut_off = 1;
    }
    if trace.malformed > 0 && props.mode == Mode::Strict {
        let reason = format!("{} [memory] events lack Addr, Bytes or ts", trace.malformed);
        return Err(malformed("traceEvents".to_owned(), reason));
    }
    Ok(trace)
}

/// Whether the beginning of a file is that of a trace.
pub(crate) fn begins_trace(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let has = |word: &[u8]| memchr::memmem::find(head, word).is_some();
    match head.first() {
        Some(b'{') => has(b"\"traceEvents\"") || has(b"\"schemaVersion\"") || has(b"\"deviceProperties\""),
        Some(b'[') => head[1..].trim_ascii_start().first() == Some(&b'{') && has(b"\"ph\""),
        _ => false,
    }
}

struct Making<'a> {
    ready: Ready,
    props: &'a OpenProps,
    /// By device; the host is [`NO_DEVICE`].
    subjects: BTreeMap<i32, u64>,
    base_ns: i64,
}

impl Making<'_> {
    fn numbered(&self, own: u64) -> u64 {
        u64::from(self.props.process.0) << 32 | own
    }

    fn subject(&mut self, device: i32) -> u64 {
        if let Some(subject) = self.subjects.get(&device) {
            return *subject;
        }
        let subject = self.numbered(self.subjects.len() as u64 + 1);
        let (kind, number, name) = match device {
            NO_DEVICE => (SubjectKind::Host, 0, HOST),
            device => (SubjectKind::Device, device as u64, DEVICE),
        };
        self.ready.subject(subject, kind, number, name);
        self.subjects.insert(device, subject);
        subject
    }

    fn memory(&mut self, memory: &Memory) {
        let time_ns = self.base_ns.saturating_add(memory.time_ns);
        let is_host = memory.device_type == 0;
        let device = if is_host { NO_DEVICE } else { memory.device };
        let resource = self.ready.tables.intern(if is_host { HOST } else { DEVICE });
        if memory.bytes != 0 {
            self.ready.events.push(Event {
                time_ns,
                process: self.props.process,
                thread: memory.thread,
                action: if memory.bytes > 0 { Action::Alloc } else { Action::Free },
                address: memory.address,
                bytes: memory.bytes.unsigned_abs(),
                device,
                kind: if is_host { Kind::Pageable } else { Kind::Device },
                resource,
                ..Event::default()
            });
        }
        for (metric, value) in [(Metric::Live, memory.live), (Metric::Reserved, memory.reserved)] {
            if let Some(value) = value {
                let subject = self.subject(device);
                self.ready.rows.push(Row::Sample(SampleRow { time_ns, subject, metric, value }));
            }
        }
    }

    /// Ranges as scopes: those of a thread lie in each other or apart.
    fn ranges(&mut self, mut ranges: Vec<Range>, names: &[String]) {
        ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns)));
        let mut open: BTreeMap<u64, Vec<(i64, u64)>> = BTreeMap::new();
        for (at, range) in ranges.into_iter().enumerate() {
            let scope = self.numbered(at as u64 + 1);
            let around = open.entry(range.thread).or_default();
            while around.last().is_some_and(|(end_ns, _)| *end_ns <= range.start_ns) {
                around.pop();
            }
            let parent = around.last().map_or(0, |(_, scope)| *scope);
            around.push((range.end_ns, scope));
            let name = self.ready.row_tables.intern(&names[range.name]);
            let (process, thread) = (self.props.process, range.thread);
            for (time_ns, action, parent, name) in [
                (range.start_ns, ScopeAction::Enter, parent, name),
                (range.end_ns, ScopeAction::Exit, 0, StringId(0)),
            ] {
                let time_ns = self.base_ns.saturating_add(time_ns);
                let row = ScopeRow { time_ns, process, thread, action, scope, parent, name };
                self.ready.rows.push(Row::Scope(row));
            }
        }
    }
}
