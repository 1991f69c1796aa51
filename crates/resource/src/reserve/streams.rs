//! The streams of a reserve: which memory each may use, and how one waits for another.
//!
//! A stream has a [`Tag`], under which it frees memory, and a [`Local`] heap (one per thread if threads are
//! separated) from which it allocates. Tags are reused once no memory has them.
//!
//! A call for a foreign stream holds [`Streams::foreign`], because the record of such a stream may be dropped
//! at any time. The record of a lasting stream is dropped when the stream ends, and then no call for it is
//! in progress.
#![expect(unsafe_code, reason = "remembers each thread's last heaps without counting references")]

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use super::heap::{Heap, Tag};
use crate::error::{AllocError, Result};
use crate::spin::{Spin, SpinGuard};
use crate::stream::{Marker, Stream, StreamOrder};
use crate::thread;

/// A heap of one stream.
#[derive(Debug)]
pub(super) struct Local {
    /// Changes when the heap is given to another stream.
    generation: AtomicU32,
    tag: AtomicU32,
    /// Index in the table.
    pub(super) number: u32,
    pub(super) heap: Spin<Heap>,
}

impl Local {
    #[inline]
    pub(super) fn tag(&self) -> Tag {
        Tag(self.tag.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn heap(&self) -> SpinGuard<'_, Heap> {
        self.heap.lock()
    }
}

#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether threads that use the same stream share a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One heap per stream.
    ByStream,
    /// One heap per stream and thread.
    ByThread,
}

/// Key of a local heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    stream: u64,
    thread: u32,
    lasting: bool,
}

#[derive(Clone, Copy)]
struct Cached {
    reserve: u64,
    key: Key,
    generation: u32,
    local: *const Local,
}

/// Number of threads with heaps of their own; beyond it, threads share.
const THREADS: u32 = 64;

const CACHED: usize = 8;
const NOTHING: Cached = Cached {
    reserve: 0,
    key: Key { stream: 0, thread: 0, lasting: true },
    generation: 0,
    local: std::ptr::null(),
};

thread_local! {
    static LAST: [Cell<Cached>; CACHED] = const { [const { Cell::new(NOTHING) }; CACHED] };
}

/// Number of the next reserve. Numbers are never reused, so a heap that a thread remembers cannot be
/// mistaken for one of another reserve.
static NEXT_RESERVE: AtomicU64 = AtomicU64::new(1);

/// Number of streams that ended, or may have, whose records are kept before they are dropped.
const REMEMBERED: usize = 64;

pub(super) struct Streams {
    reserve: u64,
    sharing: Sharing,
    order: Arc<dyn StreamOrder>,
    table: RwLock<Table>,
    records: Mutex<Vec<Record>>,
    foreign: RwLock<()>,
    /// Number of streams that ended, or may have.
    gone: AtomicUsize,
}

#[derive(Default)]
struct Table {
    locals: Vec<Arc<Local>>,
    vacant: Vec<u32>,
    by_key: HashMap<Key, u32>,
    tags: HashMap<(u64, bool), Tag>,
}

/// A stream; its index is its tag.
#[derive(Clone, Copy, Debug)]
struct Record {
    stream: Stream,
    state: State,
    marker: Option<Marker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A marker is recorded when another stream has to wait.
    Lasting,
    /// A marker is recorded at every free, because the stream may end unnoticed.
    Foreign,
    /// The last marker is recorded.
    Ended,
    /// The record is unused.
    Vacant,
}

impl Streams {
    pub(super) fn new(order: Arc<dyn StreamOrder>, sharing: Sharing) -> Self {
        let clean = Record { stream: Stream::DEFAULT, state: State::Ended, marker: None };
        Self {
            reserve: NEXT_RESERVE.fetch_add(1, Ordering::Relaxed),
            sharing,
            order,
            table: RwLock::default(),
            records: Mutex::new(vec![clean]),
            foreign: RwLock::default(),
            gone: AtomicUsize::new(0),
        }
    }

    pub(super) fn order(&self) -> &Arc<dyn StreamOrder> {
        &self.order
    }

    /// Guard to be held during a call for a foreign stream; none for other streams.
    #[inline]
    pub(super) fn foreign(&self, stream: Stream) -> Option<RwLockReadGuard<'_, ()>> {
        (!stream.is_lasting()).then(|| self.foreign.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The local heap that the calling thread uses for `stream`.
    #[inline]
    pub(super) fn local(&self, stream: Stream) -> &Local {
        let lasting = stream.is_lasting();
        let number = if lasting { stream.handle() } else { self.order.identity(stream) };
        let thread = if self.sharing == Sharing::ByThread { thread::number() % THREADS } else { 0 };
        let key = Key { stream: number, thread, lasting };
        let slot = ((number >> 4) ^ self.reserve ^ number ^ u64::from(thread)) as usize % CACHED;
        let cached = LAST.with(|last| last[slot].get());
        if cached.reserve == self.reserve && cached.key == key {
            // SAFETY: heaps live as long as their reserve, whose numbers are unique; this one is alive.
            let local = unsafe { &*cached.local };
            if local.generation.load(Ordering::Relaxed) == cached.generation {
                return local;
            }
        }
        self.look_up(key, stream, slot)
    }

    #[cold]
    fn look_up(&self, key: Key, stream: Stream, slot: usize) -> &Local {
        let known = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.by_key.get(&key).map(|number| Arc::as_ptr(&table.locals[*number as usize]))
        };
        let local = known.unwrap_or_else(|| self.make(key, stream));
        // SAFETY: as above; the table keeps every heap it ever made.
        let local = unsafe { &*local };
        let generation = local.generation.load(Ordering::Relaxed);
        LAST.with(|last| last[slot].set(Cached { reserve: self.reserve, key, generation, local }));
        local
    }

    fn make(&self, key: Key, stream: Stream) -> *const Local {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = table.by_key.get(&key) {
            return Arc::as_ptr(&table.locals[*number as usize]);
        }
        let tag = match table.tags.get(&(key.stream, key.lasting)) {
            Some(tag) => *tag,
            None => {
                let tag = self.new_tag(stream);
                table.tags.insert((key.stream, key.lasting), tag);
                tag
            }
        };
        let number = table.vacant.pop().unwrap_or_else(|| {
            let number = table.locals.len() as u32;
            let local = Local {
                generation: AtomicU32::new(0),
                tag: AtomicU32::new(0),
                number,
                heap: Spin::new(Heap::new()),
            };
            table.locals.push(Arc::new(local));
            number
        });
        table.by_key.insert(key, number);
        let local = &table.locals[number as usize];
        local.tag.store(tag.0, Ordering::Relaxed);
        local.heap().cache_for(tag);
        Arc::as_ptr(local)
    }

    fn new_tag(&self, stream: Stream) -> Tag {
        let state = if stream.is_lasting() { State::Lasting } else { State::Foreign };
        let record = Record { stream, state, marker: None };
        if state == State::Foreign {
            self.gone.fetch_add(1, Ordering::Relaxed);
        }
        let mut records = lock(&self.records);
        if let Some(number) = records.iter().position(|record| record.state == State::Vacant) {
            records[number] = record;
            return Tag(number as u32);
        }
        records.push(record);
        Tag(records.len() as u32 - 1)
    }

    /// All local heaps.
    pub(super) fn locals(&self) -> Vec<Arc<Local>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).locals.clone()
    }

    /// The local heap with this [`Local::number`].
    pub(super) fn numbered(&self, number: u32) -> Option<Arc<Local>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).locals.get(number as usize).cloned()
    }

    /// Records a marker on `stream`, a foreign one, before it frees memory.
    pub(super) fn mark(&self, tag: Tag, stream: Stream) {
        let mut records = lock(&self.records);
        let Some(record) = records.get_mut(tag.0 as usize) else { return };
        if let Err(error) = marker(&*self.order, record).and_then(|marker| self.order.record(marker, stream))
        {
            tracing::error!(
                "cannot record a marker on stream {:#x}, waiting for the device: {error}",
                stream.handle()
            );
            if let Err(error) = self.order.synchronize_all() {
                tracing::error!("cannot wait for the device: {error}");
            }
        }
    }

    /// Makes `stream`, whose tag is `own`, wait for everything that the streams of `others` freed.
    pub(super) fn wait(&self, others: &[Tag], own: Tag, stream: Stream) -> Result<()> {
        let mut waited = false;
        for tag in others.iter().filter(|tag| **tag != Tag::CLEAN && **tag != own) {
            waited |= self.wait_for(*tag, stream)?;
        }
        // A stream that waits for this one must wait for the others too. A lasting stream is marked then.
        if waited && !stream.is_lasting() {
            self.mark(own, stream);
        }
        Ok(())
    }

    fn wait_for(&self, tag: Tag, stream: Stream) -> Result<bool> {
        let mut records = lock(&self.records);
        let Some(record) = records.get_mut(tag.0 as usize) else { return Ok(false) };
        match record.state {
            // It has not freed anything.
            State::Foreign if record.marker.is_none() => return Ok(false),
            // Must not happen; waiting for the device is correct for any stream.
            State::Vacant => return self.order.synchronize_all().map(|()| true),
            _ => {}
        }
        tracing::debug!("stream {:#x} waits for stream {:#x}", stream.handle(), record.stream.handle());
        let waited = marker(&*self.order, record).and_then(|marker| {
            if record.state == State::Lasting {
                self.order.record(marker, record.stream)?;
            }
            self.order.wait(stream, marker)
        });
        waited.or_else(|error| {
            tracing::error!("cannot make a stream wait for another, waiting for the device: {error}");
            self.order.synchronize_all()
        })?;
        Ok(true)
    }

    /// Records the end of a lasting stream; returns the heaps it used.
    pub(super) fn end(&self, stream: Stream) -> Vec<Arc<Local>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(tag) = table.tags.remove(&(stream.handle(), stream.is_lasting())) else { return Vec::new() };
        {
            let mut records = lock(&self.records);
            let record = &mut records[tag.0 as usize];
            let recorded = marker(&*self.order, record).and_then(|marker| self.order.record(marker, stream));
            if recorded.is_err() && self.order.synchronize(stream).is_err() {
                tracing::error!("cannot wait for stream {:#x} at its end", stream.handle());
            }
            record.state = State::Ended;
            self.gone.fetch_add(1, Ordering::Relaxed);
        }
        table.retire(|key| key.stream == stream.handle() && key.lasting == stream.is_lasting())
    }

    /// Whether so many streams ended, or may have, that [`forget`](Self::forget) should be called.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.gone.load(Ordering::Relaxed) > REMEMBERED
    }

    /// Drops the records of foreign and ended streams. `clean` is called while no call for a foreign stream
    /// is in progress; it must leave no memory with their tags, or return false. Does nothing while such a
    /// call is in progress: waiting for it could mean waiting for ourselves.
    pub(super) fn forget(&self, clean: impl FnOnce() -> Result<bool>) -> Result<()> {
        let Ok(_alone) = self.foreign.try_write() else { return Ok(()) };
        // Streams that end in the meantime are left for the next call.
        let gone: Vec<usize> = {
            let records = lock(&self.records);
            let gone = |record: &Record| matches!(record.state, State::Foreign | State::Ended);
            (1..records.len()).filter(|number| gone(&records[*number])).collect()
        };
        // Even after a failure the next attempt is not made at once.
        self.gone.store(REMEMBERED / 2, Ordering::Relaxed);
        if !clean()? {
            return Ok(());
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.retire(|key| !key.lasting);
        table.tags.retain(|(_, lasting), _| *lasting);
        let mut records = lock(&self.records);
        for number in gone {
            let record = &mut records[number];
            record.state = State::Vacant;
            if let Some(marker) = record.marker.take() {
                self.order.discard(marker);
            }
        }
        self.gone.store(0, Ordering::Relaxed);
        Ok(())
    }
}

impl Table {
    /// Removes the heaps with such keys; they will be reused for other streams.
    fn retire(&mut self, gone: impl Fn(&Key) -> bool) -> Vec<Arc<Local>> {
        let numbers: Vec<u32> =
            self.by_key.extract_if(|key, _| gone(key)).map(|(_, number)| number).collect();
        let retired: Vec<Arc<Local>> =
            numbers.iter().map(|number| Arc::clone(&self.locals[*number as usize])).collect();
        for local in &retired {
            local.generation.fetch_add(1, Ordering::Relaxed);
        }
        self.vacant.extend(numbers);
        retired
    }
}

fn marker(order: &dyn StreamOrder, record: &mut Record) -> Result<Marker, AllocError> {
    match record.marker {
        Some(marker) => Ok(marker),
        None => {
            let marker = order.marker()?;
            record.marker = Some(marker);
            Ok(marker)
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for record in lock(&self.records).iter_mut() {
            if let Some(marker) = record.marker.take() {
                self.order.discard(marker);
            }
        }
    }
}
