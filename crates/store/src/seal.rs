//! Sealing: moving the tail into parts while the recording goes on, and after a crash.
//!
//! One sealer at a time works on a trace; a lock on `segments/lock` sees to that and goes with its
//! process. Invariants: a chunk is given back to its thread only once its bytes are in a file; the
//! files go only after a manifest that lists the parts holding their events; so a sealer that is
//! killed at any line leaves every event in at least one place, and the positions in the manifest
//! tell the next one which copy counts. What is received from elsewhere is in a file before the call that
//! accepts it returns.

#[cfg(test)]
mod tests;
mod thread;

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::mem::Discriminant;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floodmark_event::{EventBatch, ProcessId};
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::Control;
use floodmark_tail::segment::{self, Frame};
use floodmark_tail::stream::{self, StreamItem};

use crate::blocks::LiveBlocks;
use crate::dir;
use crate::error::{Error, Result};
use crate::intake::{TailItem, TailSource, is_plain_stem};
use crate::manifest::{Manifest, Part, Run};
use crate::merge::{TailMerge, TailRows, TailWanted};
use crate::part::PartFiles;
use crate::parts::{PartGroups, PartsWriter};
use crate::registry::{Needs, Registry};
use crate::scan::ScanProps;
use crate::source::Source as _;
use crate::stages::{SealStage, stage};
use crate::steps;
use crate::table::Table;
use crate::tail::{self, RemoteWriters, SEGMENTS, TailFile, TailSnapshot, parse_name};
use crate::trace::{self, Trace};

pub use self::thread::{Delivering, Inbox, SealerThread};

/// Drained bytes that make a sealing worth its while: about three million events.
const SEAL_BYTES: u64 = 32 << 20;
/// Batches of rows after which a sealing makes room in the rings: some hundred thousand events, or 20 ms.
const DRAIN_BATCHES: u32 = 32;
/// How often a sealing thread polls the rings: a lane's chunks last longer than this even at full speed,
/// except in bursts, which go to disk.
const POLL: Duration = Duration::from_millis(5);
/// The same while nothing happens, and while another process seals.
const POLL_IDLE: Duration = Duration::from_millis(100);

/// How long a sealing that failed, on a full disk say, is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// How long to wait for the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Seals one trace. Holds its lock.
pub struct Sealer {
    trace: PathBuf,
    manifest: Manifest,
    registry: Registry,
    rings: HashMap<String, Ring>,
    /// Files of processes whose frames are received.
    received: HashMap<String, Received>,
    /// Blocks that are live at the end of the parts; `None` until the first sealing, and after one that
    /// failed.
    blocks: Option<LiveBlocks>,
    /// Bytes of segment files that the last sealing had to leave.
    left_bytes: u64,
    /// When to try again after a sealing that failed.
    retry_at: Option<Instant>,
    drain_number: u32,
    remote: RemoteWriters,
    lock: File,
}

/// A ring that is being drained.
struct Ring {
    reader: RingReader<File>,
    utc_offset_ns: i64,
    drain: Option<File>,
}

/// Files that received frames of a process are appended to.
#[derive(Default)]
struct Received {
    header: Option<File>,
    drain: Option<File>,
    /// The latest of each kind that is in the header file.
    controls: HashMap<Discriminant<Control>, Control>,
}

/// Takes the lock of the trace's sealer; `None` if another has it.
pub(crate) fn lock(trace: &Path) -> Result<Option<File>> {
    let path = trace.join(SEGMENTS).join("lock");
    let folder = trace.join(SEGMENTS);
    dir::make_directory(&folder).map_err(Error::io("creating", &folder))?;
    let file = dir::open(&path, File::options().create(true).truncate(false).write(true));
    let file = file.map_err(Error::io("creating", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::io("locking", &path)(error)),
    }
}

impl Sealer {
    /// Takes over the sealing of the trace at `trace`, making the trace if there is none.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process seals it, or what went wrong with its files.
    pub fn open(trace: &Path, run: Run) -> Result<Self> {
        // A reader may hold the lock for the moment it takes to see that there is nothing to recover.
        Self::open_within(trace, run, LOCK_PATIENCE)
    }

    /// Does the same, and waits for at most `patience` while another process seals the trace.
    fn open_within(trace: &Path, run: Run, patience: Duration) -> Result<Self> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(lock) = lock(trace)? {
                return Self::with_lock(trace, run, lock, RemoteWriters::AssumeRunning);
            }
            if Instant::now() >= deadline {
                return Err(Error::Locked { path: trace.to_owned() });
            }
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn with_lock(trace: &Path, run: Run, lock: File, remote: RemoteWriters) -> Result<Self> {
        let manifest = match Manifest::load(trace)? {
            Some(manifest) => manifest,
            // Parts would be deleted as left over from a crash.
            None if trace::has_parts(trace) => return Err(trace::manifest_is_missing(trace)),
            None => {
                let mut manifest = Manifest::new(run);
                manifest.save(trace)?;
                manifest
            }
        };
        let mut registry = Registry::default();
        registry.load(&PartFiles::new(trace), &manifest, Needs::Everything)?;
        // Drain files of an earlier sealer are read, never appended to: their end may be torn.
        let numbers = tail::names(trace)?.into_iter().filter_map(|name| match parse_name(&name)? {
            TailFile::Segment { lane: None, number, .. } => Some(number.saturating_add(1)),
            _ => None,
        });
        let drain_number = numbers.max().unwrap_or(0);
        Ok(Self {
            trace: trace.to_owned(),
            manifest,
            registry,
            rings: HashMap::new(),
            received: HashMap::new(),
            blocks: None,
            left_bytes: 0,
            retry_at: None,
            drain_number,
            remote,
            lock,
        })
    }

    /// The manifest as it was last saved.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Makes room in the rings, and seals once that is worth its while. Returns whether anything was
    /// to be done.
    ///
    /// # Errors
    /// What went wrong with the trace's files; nothing is lost, and the next call tries again.
    pub fn tick(&mut self) -> Result<bool> {
        self.find_rings()?;
        let drained = stage(SealStage::Drain, || self.drain())?;
        let due = self.segment_bytes()?.saturating_sub(self.left_bytes) >= SEAL_BYTES;
        if due && self.retry_at.is_none_or(|at| Instant::now() >= at) {
            self.retry_at = Some(Instant::now() + RETRY);
            self.seal()?;
            self.retry_at = None;
            return Ok(true);
        }
        Ok(drained > 0)
    }

    /// Bytes in segment files: what was drained, and what threads wrote themselves.
    fn segment_bytes(&self) -> Result<u64> {
        let folder = self.trace.join(SEGMENTS);
        let names = tail::names(&self.trace)?;
        let segments = names.iter().filter(|name| name.ends_with(".seg"));
        Ok(segments.filter_map(|name| fs::metadata(folder.join(name)).ok()).map(|file| file.len()).sum())
    }

    /// Attaches rings that are new, and lets go of those that were moved into the trace.
    fn find_rings(&mut self) -> Result<()> {
        let mut fresh = false;
        for name in tail::names(&self.trace)? {
            let Some(TailFile::Ring { stem }) = parse_name(&name) else { continue };
            let moved = |ring: &Ring| ring.reader.is_unlinked().unwrap_or(true);
            if self.rings.get(stem).is_some_and(|ring| !moved(ring)) {
                continue;
            }
            // Readable and writable: draining gives chunks back.
            let path = self.trace.join(SEGMENTS).join(&name);
            let opened = File::options().read(true).write(true).open(&path).and_then(RingReader::new);
            let Ok(reader) = opened else { continue };
            let Ok(process) = reader.process() else { continue };
            let anchor = process.anchor;
            let utc_offset_ns = anchor.utc_ns.wrapping_sub(anchor.monotonic_ns as i64);
            self.rings.insert(stem.to_owned(), Ring { reader, utc_offset_ns, drain: None });
            fresh |= !self.manifest.processes.iter().any(|known| known.stem == stem);
        }
        if fresh {
            // Saved before anything is drained: a machine that stops now must not leave files whose
            // process and clock nobody knows.
            let snapshot = TailSnapshot::collect(&self.trace, &self.manifest, self.remote)?;
            snapshot.adopt(&mut self.manifest);
            self.manifest.save(&self.trace)?;
            steps::reach()?;
        }
        Ok(())
    }

    /// Appends full chunks to files and gives them back to their threads. Returns the bytes moved.
    fn drain(&mut self) -> Result<u64> {
        let mut bytes = 0;
        for (stem, ring) in &mut self.rings {
            let count = ring.reader.chunk_count().unwrap_or(0);
            for index in 0..count {
                let Ok(Some(chunk)) = ring.reader.chunk(index, true) else { continue };
                let path = self.trace.join(SEGMENTS).join(format!("{stem}.drain.{}.seg", self.drain_number));
                let frame = Frame {
                    lane: chunk.lane,
                    sequence: chunk.sequence,
                    base_time_ns: chunk.base_time_ns,
                    utc_offset_ns: ring.utc_offset_ns,
                    is_open: false,
                    is_disordered: chunk.is_disordered,
                    payload: &chunk.payload,
                };
                append(&mut ring.drain, &path, &[&frame.head(), frame.payload])
                    .map_err(Error::io("writing", &path))?;
                steps::reach()?;
                ring.reader.release(index).map_err(Error::io("releasing a chunk of", &path))?;
                steps::reach()?;
                bytes += frame.file_bytes() as u64;
            }
        }
        Ok(bytes)
    }

    /// Stores what `source` yields, until it yields nothing: frames of processes that record on other
    /// hosts, or anywhere. Returns the number of items; they are sealed with everything else.
    ///
    /// # Errors
    /// [`Error::Received`] if the items make no sense, or what went wrong with the source or the trace's
    /// files. Items before it are stored.
    pub fn accept(&mut self, source: &mut dyn TailSource) -> Result<u64> {
        let mut items = 0;
        while let Some(item) = source.next().map_err(|error| Error::Received(error.to_string()))? {
            items += self.accept_items(&[item])?;
        }
        Ok(items)
    }

    /// Stores items, which can be given again if that fails: what is stored already is known by its numbers.
    pub(crate) fn accept_items(&mut self, items: &[TailItem]) -> Result<u64> {
        for TailItem { stem, item } in items {
            if !is_plain_stem(stem) {
                return Err(Error::Received("a process has a name that cannot be a file's".into()));
            }
            self.store(stem, item)?;
        }
        Ok(items.len() as u64)
    }

    /// Notes something that is missing from the trace for another reason than its own tail. The same reason counts once.
    pub fn set_loss(&mut self, count: u64, reason: &str) {
        let losses = &mut self.manifest.losses;
        match losses.gaps.iter_mut().find(|gap| !gap.is_remark && gap.reason == reason) {
            Some(gap) => gap.count = count,
            None => losses.add(count, reason),
        }
    }

    /// Appends one received item to the files of its process.
    fn store(&mut self, stem: &str, item: &StreamItem) -> Result<()> {
        let folder = self.trace.join(SEGMENTS);
        let received = self.received.entry(stem.to_owned()).or_default();
        match item {
            StreamItem::Control(control) => {
                // A sender repeats what it said whenever it returns to a process.
                let kind = std::mem::discriminant(control);
                if received.controls.get(&kind) == Some(control) {
                    return Ok(());
                }
                let path = folder.join(format!("{stem}.process"));
                if received.header.is_none() {
                    cut_torn_end(&path).map_err(Error::io("reading", &path))?;
                }
                let frame = stream::control_frame(control);
                append(&mut received.header, &path, &[&frame]).map_err(Error::io("writing", &path))?;
                received.controls.insert(kind, control.clone());
                Ok(())
            }
            StreamItem::Chunk(chunk) => {
                let path = folder.join(format!("{stem}.drain.{}.seg", self.drain_number));
                let head = chunk.as_frame().head();
                append(&mut received.drain, &path, &[&head, &chunk.payload])
                    .map_err(Error::io("writing", &path))
            }
        }
    }

    /// Moves everything committed so far into parts.
    ///
    /// # Errors
    /// What went wrong with the trace's files; nothing is lost.
    pub fn seal(&mut self) -> Result<()> {
        // What is drained from now on goes to new files, so that the present ones can be deleted.
        self.drain_number = self.drain_number.saturating_add(1);
        for ring in self.rings.values_mut() {
            ring.drain = None;
        }
        for received in self.received.values_mut() {
            received.drain = None;
        }
        let mut snapshot = TailSnapshot::collect(&self.trace, &self.manifest, self.remote)?;
        let mut manifest = self.manifest.clone();
        snapshot.adopt(&mut manifest);
        let mut ended = Vec::new();
        let mut files = Vec::new();
        for (stem, tail) in &mut snapshot.processes {
            files.extend(tail.files.drain(..).map(|file| (stem.clone(), file)));
            if tail.has_ended(stem, self.remote) {
                ended.push((stem.clone(), tail.owns_ring()));
            }
        }
        steps::reach()?;
        // Not put back if this fails: it knows events by then that are sealed again later.
        let resumes = self.manifest.processes.iter().any(|process| snapshot.resumes(process));
        let mut blocks = match self.blocks.take() {
            // Those of processes that had ended were forgotten.
            Some(blocks) if !resumes => blocks,
            _ => self.blocks_of_parts(&snapshot)?,
        };
        let parts = self.write_parts(snapshot, &mut manifest, &mut blocks)?;
        manifest.parts.extend(parts);
        for process in &mut manifest.processes {
            process.sealed |= ended.iter().any(|(stem, _)| *stem == process.stem);
        }
        steps::reach()?;
        manifest.save(&self.trace)?;
        self.manifest = manifest;
        self.forget_ended(&mut blocks, &ended);
        self.blocks = Some(blocks);
        steps::reach()?;
        trace::sweep(&self.trace, &self.manifest);
        steps::reach()?;
        self.delete_sealed(&files, &ended)?;
        self.left_bytes = self.segment_bytes()?;
        Ok(())
    }

    /// Finds the blocks that are live at the end of the parts, of processes that still write or have more in `snapshot`: an
    /// earlier sealer, which may have been killed, wrote them.
    fn blocks_of_parts(&mut self, snapshot: &TailSnapshot) -> Result<LiveBlocks> {
        let mut blocks = LiveBlocks::default();
        let processes = self.manifest.processes.iter().enumerate();
        let writing: Vec<ProcessId> = processes
            .filter(|(_, process)| !process.sealed || snapshot.resumes(process))
            .map(|(index, _)| ProcessId(index as u32 + 1))
            .collect();
        let has_events = |part: &Part| {
            part.processes.as_ref().is_none_or(|of| writing.iter().any(|process| of.contains(*process)))
        };
        if !self.manifest.parts_of(Table::Event.name()).any(has_events) {
            return Ok(blocks);
        }
        let trace = Trace::with_manifest(&self.trace, self.manifest.clone());
        let mut scan = trace.scan(&ScanProps {
            columns: Some(vec!["process", "action", "address", "bytes", "device", "resource"]),
            processes: Some(writing),
            ..ScanProps::default()
        })?;
        let mut batch = EventBatch::new();
        while scan.next(&mut batch)? {
            blocks.resolve(&batch);
        }
        // The scan numbered the names of resources by itself.
        Ok(blocks.with_resources(|id| self.registry.tables.intern(scan.tables().string(id))))
    }

    /// Forgets the live blocks of processes that have ended.
    fn forget_ended(&self, blocks: &mut LiveBlocks, ended: &[(String, bool)]) {
        let processes = &self.manifest.processes;
        blocks.forget(|id| {
            let process = processes.get(id.0 as usize - 1);
            process.is_some_and(|process| ended.iter().any(|(stem, _)| *stem == process.stem))
        });
    }

    fn write_parts(
        &mut self,
        snapshot: TailSnapshot,
        manifest: &mut Manifest,
        blocks: &mut LiveBlocks,
    ) -> Result<Vec<Part>> {
        let groups = PartGroups::by_size(&snapshot.sizes(manifest));
        let mut merge = TailMerge::new(snapshot, manifest, &mut self.registry, &TailWanted::everything());
        self.registry.set_processes(manifest);
        let mut writer = PartsWriter::new(&self.trace, manifest, groups);
        let mut rows = TailRows::default();
        for batch in 1u32.. {
            if !merge.next(&mut rows, &self.registry) {
                break;
            }
            writer.tail(&mut rows, &self.registry, blocks)?;
            steps::reach()?;
            // Threads that find no free chunk write files themselves, which holds them up.
            if batch.is_multiple_of(DRAIN_BATCHES) {
                stage(SealStage::Drain, || self.drain())?;
            }
        }
        writer.definitions(&merge.definitions, &self.registry.tables)?;
        for (process, lane, position) in merge.positions() {
            if let Some(entry) = manifest.processes.get_mut(process.0 as usize - 1) {
                entry.lanes.insert(lane, position);
            }
        }
        manifest.losses.extend(&merge.losses);
        let is_new = manifest.rows_of(Table::Process) != manifest.processes.len() as u64;
        let anew = merge.definitions.rewritten(is_new.then_some(Table::Process));
        writer.finish(&anew, manifest, &self.registry.tables)
    }

    /// Deletes files whose events are all in parts.
    fn delete_sealed(
        &mut self,
        files: &[(String, tail::SegmentFile)],
        ended: &[(String, bool)],
    ) -> Result<()> {
        for (stem, file) in files {
            let entry = self.manifest.processes.iter().find(|process| process.stem == *stem);
            let Some(entry) = entry else { continue };
            let has_ended = ended.iter().any(|(ended, _)| ended == stem);
            // A thread may still append to the last of its files.
            let newest = file.lane.is_some()
                && !has_ended
                && !files.iter().any(|(other, later)| {
                    other == stem && later.lane == file.lane && later.number > file.number
                });
            if !newest && file.is_sealed(&entry.lanes, has_ended) {
                let _ = fs::remove_file(&file.path);
                steps::reach()?;
            }
        }
        for (stem, owns_ring) in ended {
            self.rings.remove(stem);
            self.received.remove(stem);
            let link = self.trace.join(SEGMENTS).join(format!("{stem}.ring"));
            // Only what is a ring, or was to become one, and is called as ours are: a link can be made to lead
            // anywhere.
            if let Ok(ring) = fs::read_link(&link)
                && *owns_ring
                && ring.file_name().is_some_and(|name| *name == *format!("floodmark-{stem}.ring"))
            {
                let _ = fs::remove_file(ring);
            }
            steps::reach()?;
            let _ = fs::remove_file(&link);
            steps::reach()?;
            let _ = fs::remove_file(link.with_extension("ring.tmp"));
            let _ = fs::remove_file(link.with_extension("process"));
        }
        Ok(())
    }

    /// Seals everything and ends. Processes that still run keep their rings.
    ///
    /// # Errors
    /// What went wrong with the trace's files; nothing is lost, the next open seals what is left.
    pub fn finish(mut self) -> Result<Manifest> {
        self.find_rings()?;
        self.seal()?;
        Ok(self.manifest.clone())
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        // Children that were forked meanwhile hold the same lock, which closing would leave to them.
        let _ = self.lock.unlock();
    }
}

/// Appends a frame, given in pieces, to the file at `path`, which is opened if it is not yet.
fn append(file: &mut Option<File>, path: &Path, frame: &[&[u8]]) -> io::Result<()> {
    if file.is_none() {
        *file = Some(dir::open(path, File::options().create(true).append(true))?);
    }
    let file = file.as_mut().expect("opened above");
    let start = file.metadata()?.len();
    let written = frame.iter().try_for_each(|piece| file.write_all(piece));
    if written.is_err() {
        // Frames after a torn one would not be found.
        let _ = file.set_len(start);
    }
    written
}

/// Cuts a file of frames behind the last sound one: frames after a torn one would not be found.
fn cut_torn_end(path: &Path) -> io::Result<()> {
    let mut file = match dir::open(path, File::options().read(true).write(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let sound: usize = segment::frames(&bytes).map(|frame| frame.file_bytes()).sum();
    if sound < bytes.len() { file.set_len(sound as u64) } else { Ok(()) }
}
