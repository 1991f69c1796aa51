//! Tails that come from anywhere: frames of recording processes as items, from this machine's rings or
//! over any stream of bytes.
//!
//! An agent reads the tail of the processes on its host with [`LocalTail`] and sends it with [`ship`];
//! the receiver hands a [`ReceivedTail`] over its connection to [`Sealer::accept`](crate::Sealer::accept).
//! Invariant: definitions go before what refers to them, so a receiver can seal after any item.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_tail::reader::{Chunk, Life, LossReason, RingReader};
use floodmark_tail::record::{Control, ProcessHeader};
use floodmark_tail::segment::{self, CONTROL_LANE};
use floodmark_tail::stream::{self, ChunkFrame, StreamItem, StreamReader};

use crate::error::{Error, Result};
use crate::seal;
use crate::tail::{self, SEGMENTS, parse_name};

/// An item of a process's tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailItem {
    /// Name of the process's files, unique in a trace.
    pub stem: Arc<str>,
    /// The item. The first one of a process is its [`Control::Process`].
    pub item: StreamItem,
}

/// Yields the tails of recording processes, item by item.
pub trait TailSource {
    /// Returns the next item; `None` if there is none at the moment, or any more.
    ///
    /// # Errors
    /// If the source cannot be read on; items before are good.
    fn next(&mut self) -> io::Result<Option<TailItem>>;
}

/// Tails that come over a stream of bytes: a file, a pipe, a connection, blocking or not.
#[derive(Debug)]
pub struct ReceivedTail<R> {
    stream: StreamReader<R>,
    /// Process whose items are being read.
    stem: Option<Arc<str>>,
}

impl<R: Read> ReceivedTail<R> {
    /// Reads what [`ship`] wrote.
    pub fn new(bytes: R) -> Self {
        Self { stream: StreamReader::new(bytes), stem: None }
    }

    /// Returns the stream that is read, for one that is fed by hand.
    pub fn bytes_mut(&mut self) -> &mut R {
        self.stream.bytes_mut()
    }
}

impl<R: Read> TailSource for ReceivedTail<R> {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        let item = match self.stream.next_item() {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if let StreamItem::Control(Control::Process(header)) = &item {
            if !is_plain_stem(&header.stem) {
                return Err(invalid("a process has a name that cannot be a file's"));
            }
            self.stem = Some(header.stem.as_str().into());
        }
        let stem = self.stem.clone().ok_or_else(|| invalid("frames come before their process"))?;
        Ok(Some(TailItem { stem, item }))
    }
}

/// Writes what `source` yields to `out`, until it yields nothing. Returns the number of items.
///
/// # Errors
/// What the source or the stream says.
pub fn ship(source: &mut dyn TailSource, out: &mut impl Write) -> io::Result<u64> {
    let mut items = 0;
    while let Some(TailItem { item, .. }) = source.next()? {
        stream::write(out, &item)?;
        items += 1;
    }
    Ok(items)
}

/// Whether a name that came from elsewhere can be a part of file names here.
pub(crate) fn is_plain_stem(stem: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !stem.is_empty() && stem.len() <= 200 && stem.bytes().all(plain)
}

/// The tail in a trace's directory on this machine, as items.
///
/// [`next`](TailSource::next) yields what was there when [`poll`](Self::poll) was called last; what was
/// yielded before is not yielded again.
#[derive(Debug)]
pub struct LocalTail {
    trace: PathBuf,
    processes: BTreeMap<String, Shipped>,
    /// Process whose items were yielded last.
    current: Option<Arc<str>>,
    items: VecDeque<TailItem>,
    /// Full chunks of rings that were yielded since [`release`](Self::release).
    full: Vec<(String, usize, u64)>,
    /// Lock of the trace's sealer, if chunks are to be released.
    lock: Option<File>,
    patience: Duration,
}

/// What was yielded of a process.
#[derive(Debug, Default)]
struct Shipped {
    header: Option<ProcessHeader>,
    losses: Vec<(LossReason, u64)>,
    has_ended: bool,
    /// What was yielded of each chunk that is still there, by lane and sequence number.
    chunks: BTreeMap<(u32, u64), ShippedChunk>,
    /// Bytes of each segment file that were read.
    files: BTreeMap<String, u64>,
}

/// What was yielded of a chunk.
#[derive(Clone, Copy, Debug)]
enum ShippedChunk {
    /// This many bytes, at this time.
    Open { bytes: usize, at: Instant },
    /// All of it.
    Complete,
}

impl ShippedChunk {
    /// Whether `chunk` has so much that is new that it is worth yielding.
    fn wants(self, chunk: &ChunkFrame, patience: Duration) -> bool {
        match self {
            Self::Complete => false,
            Self::Open { .. } if !chunk.is_open => true,
            Self::Open { bytes, at } => {
                let has_grown = chunk.payload.len() > bytes;
                // Others may refer to any definition.
                has_grown && (chunk.lane == 0 || at.elapsed() >= patience)
            }
        }
    }
}

impl LocalTail {
    /// Reads the tail of the trace at `trace` without changing anything.
    pub fn open(trace: &Path) -> Self {
        Self {
            trace: trace.to_owned(),
            processes: BTreeMap::new(),
            current: None,
            items: VecDeque::new(),
            full: Vec::new(),
            lock: None,
            patience: Duration::ZERO,
        }
    }

    /// Reads the tail in the place of a sealer, so that chunks can be [released](Self::release).
    ///
    /// # Errors
    /// [`Error::Locked`] if the trace is being sealed, or what went wrong with its files.
    pub fn open_exclusively(trace: &Path) -> Result<Self> {
        let lock = seal::lock(trace)?.ok_or_else(|| Error::Locked { path: trace.to_owned() })?;
        Ok(Self { lock: Some(lock), ..Self::open(trace) })
    }

    /// Sets how long a chunk that still grows is left alone: it is yielded as a whole every time, so a reader in a hurry
    /// gets the same bytes many times.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Makes the next item come after the header of its process, as if it were the first one: a new file of items
    /// begins with it.
    pub fn repeat_header(&mut self) {
        self.current = None;
    }

    /// Returns the number of chunks that are remembered: those that were there at the last poll.
    pub fn remembered_chunks(&self) -> usize {
        self.processes.values().map(|process| process.chunks.len()).sum()
    }

    /// Reads what is new. Returns whether there is anything to yield.
    ///
    /// # Errors
    /// If the tail's files cannot be read.
    pub fn poll(&mut self) -> Result<bool> {
        let names = tail::names(&self.trace)?;
        let mut stems: Vec<&str> =
            names.iter().filter_map(|name| parse_name(name)).map(|file| file.stem()).collect();
        stems.dedup();
        for stem in stems {
            self.poll_process(stem, &names)?;
        }
        Ok(!self.items.is_empty())
    }

    /// Tells processes that their full chunks which have been yielded so far are stored elsewhere. Does
    /// nothing unless the tail was opened [exclusively](Self::open_exclusively).
    ///
    /// # Errors
    /// If a ring cannot be written.
    pub fn release(&mut self) -> Result<()> {
        if self.lock.is_none() || !self.items.is_empty() {
            return Ok(());
        }
        for (stem, index, sequence) in std::mem::take(&mut self.full) {
            let path = self.trace.join(SEGMENTS).join(format!("{stem}.ring"));
            let opened = File::options().read(true).write(true).open(&path).and_then(RingReader::new);
            let Ok(ring) = opened else { continue };
            // Only the holder of the lock frees chunks, so a full chunk stays what it was.
            if matches!(ring.chunk(index, true), Ok(Some(chunk)) if chunk.sequence == sequence) {
                ring.release(index).map_err(Error::io("releasing a chunk of", &path))?;
            }
        }
        Ok(())
    }

    fn poll_process(&mut self, stem: &str, names: &[String]) -> Result<()> {
        let patience = self.patience;
        let path = self.trace.join(SEGMENTS).join(format!("{stem}.ring"));
        let reader = tail::open_file(&path)?.and_then(|file| RingReader::new(file).ok());
        let process = reader.as_ref().and_then(|reader| reader.process().ok());
        let offset_ns = process
            .as_ref()
            .map_or(0, |process| process.anchor.utc_ns.wrapping_sub(process.anchor.monotonic_ns as i64));
        let mut chunks = Vec::new();
        if let Some(reader) = &reader {
            read_chunks(reader, offset_ns, None, &mut chunks);
        }
        // Files after rings, so that a chunk on its way is seen at least once.
        let shipped = self.processes.entry(stem.to_owned()).or_default();
        for name in names.iter().filter(|name| parse_name(name).is_some_and(|file| file.stem() == stem)) {
            let read = shipped.files.entry(name.clone()).or_default();
            read_frames(&self.trace.join(SEGMENTS).join(name), read, &mut chunks)?;
        }
        // Definitions last, and before the others in the stream.
        if let Some(reader) = &reader {
            read_chunks(reader, offset_ns, Some(0), &mut chunks);
        }
        chunks.sort_by_key(|(_, chunk)| (chunk.lane != 0, chunk.lane, chunk.sequence, chunk.payload.len()));
        let mut items = Vec::new();
        if let Some(process) = &process {
            let header = ProcessHeader::from_ring(stem, process);
            if shipped.header.as_ref() != Some(&header) {
                items.push(StreamItem::Control(Control::Process(Box::new(header.clone()))));
                shipped.header = Some(header);
            }
            if shipped.losses != process.losses {
                items.push(StreamItem::Control(Control::Losses(process.losses.clone())));
                shipped.losses.clone_from(&process.losses);
            }
        }
        // A chunk that is gone does not come back: its thread got it back after it was released.
        let present: BTreeSet<(u32, u64)> =
            chunks.iter().map(|(_, chunk)| (chunk.lane, chunk.sequence)).collect();
        shipped.chunks.retain(|key, _| present.contains(key));
        for (index, chunk) in chunks {
            let key = (chunk.lane, chunk.sequence);
            let now = Instant::now();
            // A chunk that is seen for the first time waits as well: its thread may end it soon.
            let known = shipped.chunks.entry(key).or_insert(ShippedChunk::Open { bytes: 0, at: now });
            if known.wants(&chunk, patience) {
                *known = if chunk.is_open {
                    ShippedChunk::Open { bytes: chunk.payload.len(), at: now }
                } else {
                    ShippedChunk::Complete
                };
                items.push(StreamItem::Chunk(chunk));
            }
            if let Some(index) = index
                && matches!(known, ShippedChunk::Complete)
            {
                self.full.push((stem.to_owned(), index, key.1));
            }
        }
        // Asked before the chunks were read, so all of them are here.
        if process.is_some_and(|process| process.life == Life::Ended) && !shipped.has_ended {
            items.push(StreamItem::Control(Control::Ended { time_ns: 0 }));
            shipped.has_ended = true;
        }
        let stem: Arc<str> = stem.into();
        self.items.extend(items.into_iter().map(|item| TailItem { stem: Arc::clone(&stem), item }));
        Ok(())
    }
}

/// Reads the chunks of a ring, with their index there.
fn read_chunks(
    reader: &RingReader<File>,
    utc_offset_ns: i64,
    only: Option<u32>,
    chunks: &mut Vec<(Option<usize>, ChunkFrame)>,
) {
    for index in 0..reader.chunk_count().unwrap_or(0) {
        // One that cannot be read while it is written to is for the next poll.
        let Ok(Some(chunk)) = reader.chunk(index, false) else { continue };
        if only.is_none_or(|lane| lane == chunk.lane) {
            let Chunk { lane, sequence, base_time_ns, full, is_disordered, payload } = chunk;
            let is_open = !full;
            chunks.push((
                Some(index).filter(|_| full),
                ChunkFrame { lane, sequence, base_time_ns, utc_offset_ns, is_open, is_disordered, payload },
            ));
        }
    }
}

/// Reads the frames of a segment file from byte `read` on, and moves that behind the last sound one; other files have
/// none.
fn read_frames(path: &Path, read: &mut u64, chunks: &mut Vec<(Option<usize>, ChunkFrame)>) -> Result<()> {
    if path.extension().is_none_or(|extension| extension != "seg") {
        return Ok(());
    }
    let Some(mut file) = tail::open_file(path)? else { return Ok(()) };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(*read)).map_err(Error::io("reading", path))?;
    file.read_to_end(&mut bytes).map_err(Error::io("reading", path))?;
    for frame in segment::frames(&bytes) {
        *read += frame.file_bytes() as u64;
        if frame.lane != CONTROL_LANE {
            chunks.push((None, ChunkFrame::from_frame(&frame)));
        }
    }
    Ok(())
}

impl TailSource for LocalTail {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        let Some(TailItem { stem, item }) = self.items.front() else { return Ok(None) };
        // Items of another process than before: its header goes first.
        if self.current.as_ref() != Some(stem) {
            let is_header = matches!(item, StreamItem::Control(Control::Process(_)));
            let header = self.processes.get(&**stem).and_then(|shipped| shipped.header.clone());
            let stem = Arc::clone(stem);
            self.current = Some(Arc::clone(&stem));
            if !is_header && let Some(header) = header {
                let item = StreamItem::Control(Control::Process(Box::new(header)));
                return Ok(Some(TailItem { stem, item }));
            }
        }
        Ok(self.items.pop_front())
    }
}
