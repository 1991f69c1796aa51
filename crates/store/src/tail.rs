//! A snapshot of what of a trace's tail is not in parts yet, found and put in order.
//!
//! A chunk's contents may be in the ring, in a file its thread wrote, in a file a sealer wrote, or in
//! several of them. A process on another host, whose frames were received, has a header file instead of a
//! ring. Invariants: rings are read before files, so that a chunk on its way from one to the other is
//! seen at least once; lane 0, which defines what the others refer to, is read again after them, so that
//! everything they refer to is found.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_event::ProcessId;
use floodmark_tail::reader::{Life, LossReason, RingProcess, RingReader, is_maker_gone};
use floodmark_tail::record::{Control, ProcessHeader};
use floodmark_tail::segment::{self, CONTROL_LANE, FRAME_HEAD_BYTES, Frame};
use floodmark_tail::stream;

use crate::dir;
use crate::error::{Error, Result};
use crate::manifest::{Clock, Manifest, Position, ProcessEntry};
use crate::source::Losses;

/// Folder of the tail in a trace.
pub(crate) const SEGMENTS: &str = "segments";
/// Reason for chunks that should be there and are not.
pub(crate) const MISSING: &str = "chunks of the live tail are missing; each holds up to about 6,000 events";
/// Longest header file that is read.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Reason for bytes that do not decode.
pub(crate) const DAMAGED: &str = "chunks of the live tail are damaged; each holds up to about 6,000 events";

/// A chunk that is not in parts, or not completely.
#[derive(Debug)]
pub(crate) struct ChunkRef {
    pub(crate) sequence: u64,
    base_time_ns: u64,
    /// Whether its thread is done with it.
    pub(crate) complete: bool,
    /// Whether times in it go back, or go back from the lane's previous chunk to it.
    pub(crate) is_disordered: bool,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    File { file: Arc<File>, offset: u64, len: usize },
}

impl ChunkRef {
    fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Memory(bytes) => bytes.len(),
            Bytes::File { len, .. } => *len - FRAME_HEAD_BYTES,
        }
    }

    /// Returns base time and records, for a first of several readings.
    pub(crate) fn read(&self) -> Option<(u64, Cow<'_, [u8]>)> {
        match &self.bytes {
            Bytes::Memory(bytes) => Some((self.base_time_ns, Cow::Borrowed(bytes))),
            Bytes::File { file, offset, len } => {
                let bytes = read_frame(file, *offset, *len)?;
                Some((self.base_time_ns, Cow::Owned(bytes)))
            }
        }
    }

    /// Returns base time and records; `None` if the file does not hold what it should.
    pub(crate) fn load(self) -> Option<(u64, Vec<u8>)> {
        match self.bytes {
            Bytes::Memory(bytes) => Some((self.base_time_ns, bytes)),
            Bytes::File { file, offset, len } => Some((self.base_time_ns, read_frame(&file, offset, len)?)),
        }
    }
}

/// Reads the records of the frame at `offset`; `None` if there is no sound one.
fn read_frame(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Frame::parse(&bytes)?;
    bytes.drain(..FRAME_HEAD_BYTES);
    Some(bytes)
}

/// The tail of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessTail {
    /// What its ring or its header file says, if there is one that could be read.
    pub(crate) ring: Option<RingProcess>,
    /// Offset of its host's clock and the error of that, if they were received.
    clock: Option<(i64, Option<u64>)>,
    /// When it ended, if that was received, in monotonic nanoseconds.
    ended_ns: Option<u64>,
    /// Whether its ring is being made, or its process did not live to finish it.
    unfinished: bool,
    /// Whether there is a ring that is none we know.
    strange: bool,
    /// Chunks by lane, in order.
    pub(crate) lanes: BTreeMap<u32, Vec<ChunkRef>>,
    /// Its segment files.
    pub(crate) files: Vec<SegmentFile>,
    /// What to add to times for UTC, as its frames say.
    utc_offset_ns: Option<i64>,
    damaged: u64,
}

/// A segment file and the chunks in it.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    /// Lane that appends to it, or `None` if a sealer does.
    pub(crate) lane: Option<u32>,
    pub(crate) number: u32,
    chunks: Vec<(u32, u64)>,
}

impl SegmentFile {
    /// Whether everything in it is in parts. The last chunk of a process that has ended may be one that was not full: its
    /// records are in parts then, and its position stays in it.
    pub(crate) fn is_sealed(&self, lanes: &BTreeMap<u32, Position>, has_ended: bool) -> bool {
        let position = |lane| lanes.get(lane).map_or(0, |position: &Position| position.sequence);
        let is_passed =
            |lane, sequence| sequence < position(lane) || (has_ended && sequence == position(lane));
        self.chunks.iter().all(|(lane, sequence)| is_passed(lane, *sequence))
    }
}

/// How processes count that ran on another host or in a container, where they cannot be looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RemoteWriters {
    /// They may write more, until they are known to have ended.
    #[default]
    AssumeRunning,
    /// They have ended: the caller has been told so.
    AssumeEnded,
}

/// The tails of all processes of a trace, by stem.
#[derive(Debug, Default)]
pub(crate) struct TailSnapshot {
    pub(crate) processes: BTreeMap<String, ProcessTail>,
}

/// Names of the tail's files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TailFile<'a> {
    Ring { stem: &'a str },
    Header { stem: &'a str },
    Segment { stem: &'a str, lane: Option<u32>, number: u32 },
}

impl<'a> TailFile<'a> {
    /// Returns the name that all files of a process share.
    pub(crate) fn stem(&self) -> &'a str {
        match self {
            Self::Ring { stem } | Self::Header { stem } | Self::Segment { stem, .. } => stem,
        }
    }
}

/// Tells what a file of the tail is by its name.
pub(crate) fn parse_name(name: &str) -> Option<TailFile<'_>> {
    if let Some(stem) = name.strip_suffix(".ring") {
        return Some(TailFile::Ring { stem });
    }
    if let Some(stem) = name.strip_suffix(".process") {
        return Some(TailFile::Header { stem });
    }
    let mut parts = name.strip_suffix(".seg")?.rsplitn(3, '.');
    let number = parts.next()?.parse().ok()?;
    let lane = match parts.next()? {
        "drain" => None,
        lane => Some(lane.parse().ok()?),
    };
    Some(TailFile::Segment { stem: parts.next()?, lane, number })
}

/// Names of all files in the trace's tail.
pub(crate) fn names(trace: &Path) -> Result<Vec<String>> {
    let folder = trace.join(SEGMENTS);
    if fs::symlink_metadata(&folder).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::corrupt(&folder, "it is not a plain directory"));
    }
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("reading", &folder)(error)),
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Opens a file of the tail; a ring through a link if it is one. `None` if there is none.
pub(crate) fn open_file(path: &Path) -> Result<Option<File>> {
    if path.extension().is_none_or(|extension| extension != "ring") {
        return match dir::open_to_read(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("opening", path)(error)),
        };
    }
    // A ring may be moved into the trace between looking up the link and what it leads to.
    for _ in 0..3 {
        // A pipe in its place must not hold us up.
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        match opened {
            Ok(file) => {
                let is_file = file.metadata().map_err(Error::io("reading", path))?.is_file();
                return Ok(is_file.then_some(file));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("opening", path)(error)),
        }
    }
    Ok(None)
}

impl TailSnapshot {
    /// Looks at everything in the tail of the trace at `trace`.
    ///
    /// # Errors
    /// [`Error::Io`] if something that is there cannot be read.
    pub(crate) fn collect(trace: &Path, manifest: &Manifest, remote: RemoteWriters) -> Result<Self> {
        let mut snapshot = Self::default();
        snapshot.look(trace, None)?;
        snapshot.look(trace, Some(0))?;
        for (stem, tail) in &mut snapshot.processes {
            if let Some(ring) = &mut tail.ring
                && ring.life == Life::Unknown
                && remote == RemoteWriters::AssumeEnded
            {
                ring.life = Life::Ended;
            }
            let entry = manifest.processes.iter().find(|process| process.stem == *stem);
            let ended = tail.has_ended(stem, remote);
            tail.order(entry.map(|entry| &entry.lanes), ended);
        }
        Ok(snapshot)
    }

    /// Looks at all rings and files, or again at one lane of those seen before.
    fn look(&mut self, trace: &Path, only: Option<u32>) -> Result<()> {
        let folder = trace.join(SEGMENTS);
        for name in &names(trace)? {
            if let Some(TailFile::Ring { stem }) = parse_name(name)
                && (only.is_none() || self.processes.contains_key(stem))
            {
                self.process(stem).read_ring(&folder.join(name), only)?;
            }
        }
        // Files may have appeared since the rings were read, and must not be missed.
        for name in &names(trace)? {
            if let Some(TailFile::Header { stem }) = parse_name(name)
                && only.is_none()
            {
                self.process(stem).read_header(&folder.join(name))?;
            }
            if let Some(TailFile::Segment { stem, lane, number }) = parse_name(name)
                && (only.is_none() || self.processes.contains_key(stem))
            {
                let file = SegmentFile { path: folder.join(name), lane, number, chunks: Vec::new() };
                self.process(stem).read_segment(file, only)?;
            }
        }
        Ok(())
    }

    fn process(&mut self, stem: &str) -> &mut ProcessTail {
        self.processes.entry(stem.to_owned()).or_default()
    }

    /// Whether there is more of a process that was sealed: it was lost, and the rest of its tail was found.
    pub(crate) fn resumes(&self, entry: &ProcessEntry) -> bool {
        entry.sealed && self.processes.get(&entry.stem).is_some_and(|tail| tail.record_bytes() > 0)
    }

    /// Whether every process whose tail is here has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.processes.iter().all(|(stem, tail)| tail.has_ended(stem, RemoteWriters::AssumeRunning))
    }

    /// Bytes of records that each process has in the tail, in the order of ids. The manifest must know all of
    /// them (see [`Self::adopt`]).
    pub(crate) fn sizes(&self, manifest: &Manifest) -> Vec<(ProcessId, u64)> {
        let size = |entry: &ProcessEntry| {
            let tail = self.processes.get(&entry.stem)?;
            Some((ProcessId(entry.id), tail.record_bytes())).filter(|(_, bytes)| *bytes > 0)
        };
        manifest.processes.iter().filter_map(size).collect()
    }

    /// Enters the processes that the manifest does not know, and what their rings say now.
    pub(crate) fn adopt(&self, manifest: &mut Manifest) {
        let mut tails: Vec<_> = self.processes.iter().collect();
        tails.retain(|(_, tail)| !tail.is_empty());
        tails.sort_by_key(|(_, tail)| tail.ring.as_ref().map(|ring| ring.anchor.monotonic_ns));
        for (stem, tail) in tails {
            let known = manifest.processes.iter().position(|process| process.stem == *stem);
            let index = known.unwrap_or_else(|| {
                let entry = tail.entry(stem, manifest);
                manifest.processes.push(entry);
                manifest.processes.len() - 1
            });
            if let Some(ring) = &tail.ring {
                let mut losses = Losses::default();
                for (reason, count) in &ring.losses {
                    losses.add(*count, reason.sentence());
                }
                manifest.processes[index].losses = losses;
            }
            if let Some((offset_ns, error_ns)) = tail.clock {
                let boot = manifest.processes[index].boot.clone();
                manifest.set_clock_offset(&boot, offset_ns, error_ns);
            }
            if let Some(ended_ns) = tail.ended_ns.filter(|ended_ns| *ended_ns != 0) {
                let offset_ns = tail.utc_offset_ns(&manifest.processes[index], manifest);
                manifest.processes[index].end_ns = Some((ended_ns as i64).wrapping_add(offset_ns));
            }
        }
    }
}

impl ProcessTail {
    /// Bytes of records other than definitions.
    pub(crate) fn record_bytes(&self) -> u64 {
        let lanes = self.lanes.iter().filter(|(lane, _)| **lane != 0);
        lanes.flat_map(|(_, chunks)| chunks).map(|chunk| chunk.len() as u64).sum()
    }

    /// Whether the process will write no more.
    pub(crate) fn has_ended(&self, stem: &str, remote: RemoteWriters) -> bool {
        match &self.ring {
            Some(ring) => ring.life == Life::Ended,
            None if remote == RemoteWriters::AssumeEnded => true,
            // A link without a ring: the process is about to make it, or did not live to, or the
            // machine was restarted, or we are on another one.
            None => !self.strange && is_maker_gone(stem),
        }
    }

    /// Whether its ring is ours to delete once it has ended.
    pub(crate) fn owns_ring(&self) -> bool {
        self.ring.is_some() || self.unfinished
    }

    /// Whether there is anything to read, or was.
    fn is_empty(&self) -> bool {
        self.ring.is_none() && self.lanes.is_empty()
    }

    fn read_ring(&mut self, path: &Path, only: Option<u32>) -> Result<()> {
        let Some(file) = open_file(path)? else { return Ok(()) };
        let mut magic = [0; 8];
        if file.read_exact_at(&mut magic, 0).is_err() || magic == [0; 8] {
            self.unfinished = true;
            return Ok(());
        }
        let Ok(reader) = RingReader::new(file) else {
            self.strange = true;
            return Ok(());
        };
        if only.is_none() {
            // Asked before the chunks are read: a process that ends meanwhile counts as running, and
            // what it wrote after our look is for the next one.
            self.ring = Some(reader.process().map_err(Error::io("reading", path))?);
        } else if self.ring.is_none() {
            return Ok(());
        }
        let count = reader.chunk_count().unwrap_or(0);
        for index in 0..count {
            match reader.chunk(index, false) {
                Ok(Some(chunk)) if only.is_none_or(|lane| lane == chunk.lane) => {
                    self.lanes.entry(chunk.lane).or_default().push(ChunkRef {
                        sequence: chunk.sequence,
                        base_time_ns: chunk.base_time_ns,
                        complete: chunk.full,
                        is_disordered: chunk.is_disordered,
                        bytes: Bytes::Memory(chunk.payload),
                    });
                }
                Ok(_) => {}
                Err(_) => self.damaged += u64::from(only.is_none()),
            }
        }
        Ok(())
    }

    /// Reads what was received about a process that has no ring here.
    fn read_header(&mut self, path: &Path) -> Result<()> {
        let Some(file) = open_file(path)? else { return Ok(()) };
        let mut bytes = Vec::new();
        file.take(MAX_HEADER_BYTES).read_to_end(&mut bytes).map_err(Error::io("reading", path))?;
        let (mut header, mut losses) = (None, Vec::new());
        let frames = segment::frames(&bytes).filter(|frame| frame.lane == CONTROL_LANE);
        for control in frames.flat_map(|frame| stream::controls(frame.payload)) {
            match control {
                Control::Process(process) => header = Some(process),
                Control::Ended { time_ns } => self.ended_ns = Some(time_ns),
                Control::Losses(now) => losses = now,
                Control::Clock { offset_ns, error_ns } => self.clock = Some((offset_ns, error_ns)),
            }
        }
        if self.ring.is_none()
            && let Some(header) = header
        {
            let life = if self.ended_ns.is_some() { Life::Ended } else { Life::Unknown };
            self.ring = Some(received(*header, losses, life));
        }
        Ok(())
    }

    /// Lists the frames of a segment by their heads.
    fn read_segment(&mut self, mut segment: SegmentFile, only: Option<u32>) -> Result<()> {
        let Some(file) = open_file(&segment.path)? else { return Ok(()) };
        let file = Arc::new(file);
        let mut offset = 0;
        let mut head = [0; FRAME_HEAD_BYTES];
        while file.read_exact_at(&mut head, offset).is_ok() {
            let Some(len) = Frame::end(&head) else { break };
            let Ok(file_len) = file.metadata().map(|metadata| metadata.len()) else { break };
            let last = offset + len as u64 >= file_len;
            let mut bytes = if last { vec![0; len] } else { Vec::new() };
            // The last frame may be half-written; its chunk is then still in the ring.
            if last && (file.read_exact_at(&mut bytes, offset).is_err() || Frame::parse(&bytes).is_none()) {
                break;
            }
            let Some(frame) = Frame::parse_head(&head) else { break };
            let (lane, sequence, start) = (frame.lane, frame.sequence, offset);
            offset += len as u64;
            if lane == CONTROL_LANE {
                continue;
            }
            self.utc_offset_ns = Some(frame.utc_offset_ns);
            segment.chunks.push((lane, sequence));
            if only.is_none_or(|only| only == lane) {
                self.lanes.entry(lane).or_default().push(ChunkRef {
                    sequence,
                    base_time_ns: frame.base_time_ns,
                    complete: !frame.is_open,
                    is_disordered: frame.is_disordered,
                    bytes: Bytes::File { file: Arc::clone(&file), offset: start, len },
                });
            }
        }
        self.files.retain(|known| known.path != segment.path);
        self.files.push(segment);
        Ok(())
    }

    /// Puts each lane in order, drops what is in parts, and keeps the fullest copy of each chunk.
    fn order(&mut self, sealed: Option<&BTreeMap<u32, Position>>, ended: bool) {
        if !ended {
            // A chunk that could not be read while it was written to is for the next look.
            self.damaged = 0;
        }
        for (lane, chunks) in &mut self.lanes {
            let next = sealed.and_then(|lanes| lanes.get(lane)).map_or(0, |position| position.sequence);
            chunks.retain(|chunk| chunk.sequence >= next);
            chunks.sort_by_key(|chunk| (chunk.sequence, !chunk.complete, usize::MAX - chunk.len()));
            chunks.dedup_by_key(|chunk| chunk.sequence);
            if ended {
                // A chunk with another one behind it is finished. The last one stays as its sender left it: the process may
                // have ended only as far as is known here, and what a lost node kept of that chunk can come later.
                let earlier = chunks.len().saturating_sub(1);
                for chunk in &mut chunks[..earlier] {
                    chunk.complete = true;
                }
                continue;
            }
            // A thread goes on while we look: it may have filled a chunk after we copied it, or gone
            // through one we saw as free, and we then saw the next. Only what follows without a hole
            // and is finished can be followed by more.
            let mut expected = next;
            let mut open = true;
            chunks.retain(|chunk| {
                let keep = open && chunk.sequence == expected;
                expected = expected.saturating_add(1);
                open = keep && chunk.complete;
                keep
            });
        }
    }

    /// What the manifest says of a process that is new to it.
    fn entry(&self, stem: &str, manifest: &mut Manifest) -> ProcessEntry {
        let mut entry = ProcessEntry {
            id: manifest.processes.len() as u32 + 1,
            stem: stem.to_owned(),
            pid: stem.rsplit('-').nth(2).and_then(|pid| pid.parse().ok()).unwrap_or(0),
            parent_pid: 0,
            host: String::new(),
            command: String::new(),
            start_ns: 0,
            boot: String::new(),
            lanes: BTreeMap::new(),
            losses: Losses::default(),
            sealed: false,
            end_ns: None,
        };
        let Some(ring) = &self.ring else { return entry };
        entry.boot = format!("{:032x}", u128::from_be_bytes(ring.boot_id));
        entry.pid = ring.pid;
        entry.parent_pid = ring.parent_pid;
        entry.host.clone_from(&ring.host);
        entry.command.clone_from(&ring.command);
        entry.start_ns = ring.anchor.utc_ns;
        if !manifest.clocks.iter().any(|clock| clock.boot == entry.boot) {
            manifest.clocks.push(Clock {
                boot: entry.boot.clone(),
                monotonic_ns: ring.anchor.monotonic_ns,
                utc_ns: ring.anchor.utc_ns,
                host: ring.host.clone(),
                offset_ns: 0,
                error_ns: None,
            });
        }
        entry
    }

    /// What to add to the process's times for UTC.
    pub(crate) fn utc_offset_ns(&self, entry: &ProcessEntry, manifest: &Manifest) -> i64 {
        let clock = manifest.clocks.iter().find(|clock| clock.boot == entry.boot);
        let from_clock = clock.map(Clock::utc_offset_ns);
        let anchor = self.ring.as_ref().map(|ring| ring.anchor);
        let from_ring = anchor.map(|anchor| anchor.utc_ns.wrapping_sub(anchor.monotonic_ns as i64));
        from_clock.or(self.utc_offset_ns).or(from_ring).unwrap_or(0)
    }

    /// Drops chunks that are known to hold nothing from `from_ns` on: those whose successor in the
    /// lane began before it.
    pub(crate) fn drop_before(&mut self, from_ns: i64, utc_offset_ns: i64) {
        for (_, chunks) in self.lanes.iter_mut().filter(|(lane, _)| **lane != 0) {
            if chunks.iter().any(|chunk| chunk.is_disordered) {
                continue;
            }
            let began = |chunk: &ChunkRef| (chunk.base_time_ns as i64).wrapping_add(utc_offset_ns);
            let later = chunks.iter().skip(1).take_while(|next| began(next) < from_ns).count();
            chunks.drain(..later);
        }
    }

    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }
}

/// Returns what a received header says in the form of a ring's.
fn received(header: ProcessHeader, losses: Vec<(LossReason, u64)>, life: Life) -> RingProcess {
    RingProcess {
        pid: header.pid,
        parent_pid: header.parent_pid,
        process_start: header.process_start,
        pid_namespace: header.pid_namespace,
        host: header.host,
        command: header.command,
        anchor: header.anchor,
        boot_id: header.boot_id,
        losses,
        life,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_a_file_is() {
        assert_eq!(parse_name("vm-7-a.ring"), Some(TailFile::Ring { stem: "vm-7-a" }));
        assert_eq!(parse_name("vm-7-a.process"), Some(TailFile::Header { stem: "vm-7-a" }));
        let segment = |lane| Some(TailFile::Segment { stem: "vm-7-a", lane, number: 3 });
        assert_eq!(parse_name("vm-7-a.12.3.seg"), segment(Some(12)));
        assert_eq!(parse_name("vm-7-a.drain.3.seg"), segment(None));
        for other in ["lock", "vm-7-a.ring.tmp", "x.seg", "a.b.c.seg"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
