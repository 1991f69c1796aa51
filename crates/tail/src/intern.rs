//! Strings, frames, stacks, subjects and devices that records refer to by number.
//!
//! Tables in address space that is reserved at once and backed as it is used, so nothing ever
//! moves: looking up takes no lock and needs no allocator. Invariants: an id is handed out only after
//! its definition is committed to the tail, so a reader that sees an id and then reads the
//! definitions finds it; entries are never changed or removed; a forked child keeps its parent's
//! entries, because its program holds their ids, and writes them again into its own tail.
#![expect(unsafe_code, reason = "tables live in memory mapped for them")]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::record::{MAX_PAYLOAD_BYTES, NumbersPayload, RecordType, SubjectEntry, TextPayload};
use super::values::zigzag;
use floodmark_event::event::{StackId, StringId};
use floodmark_event::tables::Frame;

const MAX_STRINGS: usize = 1 << 19;
const MAX_FRAMES: usize = 1 << 19;
const MAX_STACKS: usize = 1 << 21;
const MAX_SUBJECTS: usize = 1 << 20;
const MAX_DEVICES: usize = 1 << 12;
const TEXT_BYTES: usize = 64 << 20;
/// Longest string that is kept whole; a longer one is cut, as its record would be.
const MAX_TEXT: usize = MAX_PAYLOAD_BYTES - 16;

/// Writes a definition into the tail; returns whether there was room.
type Write<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// A hash table of ids in mapped memory: linear probing, half full at most, never shrinks.
struct Table<T: 'static> {
    slots: &'static [AtomicU32],
    list: List<T>,
}

/// Maps zeroed memory for `count` values that zeros are valid for.
pub(super) fn reserve<T>(count: usize) -> Option<*mut T> {
    // SAFETY: a new anonymous mapping touches nothing of ours.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            count * size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (base != libc::MAP_FAILED).then_some(base.cast())
}

/// Gives the memory of a mapping by [`reserve`] back to the system; it reads as zeros afterwards.
fn release<T>(base: *mut T, count: usize) {
    // SAFETY: the mapping is ours, private and anonymous. A thread that still reads it sees zeros, which
    // are valid values of everything that is kept there.
    unsafe { libc::madvise(base.cast(), count * size_of::<T>(), libc::MADV_DONTNEED) };
}

/// Backs the first `count` values of a mapping by [`reserve`] with memory, where the system can.
fn populate<T>(base: *mut T, count: usize) {
    // SAFETY: the mapping is ours; its contents stay as they are.
    unsafe { libc::madvise(base.cast(), count * size_of::<T>(), libc::MADV_POPULATE_WRITE) };
}

/// Entries in the order of their ids, in mapped memory; never shrinks.
struct List<T: 'static> {
    entries: *mut T,
    capacity: usize,
    count: AtomicU32,
    inserting: AtomicBool,
}

impl<T: Copy + 'static> List<T> {
    fn new(capacity: usize) -> Option<Self> {
        let entries = reserve::<T>(capacity)?;
        Some(Self { entries, capacity, count: AtomicU32::new(0), inserting: AtomicBool::new(false) })
    }

    fn len(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    fn discard(&self) {
        release(self.entries, self.capacity);
    }

    /// Returns entry `id`, which must have been handed out (ids start at 1).
    fn entry(&self, id: u32) -> T {
        debug_assert!(id >= 1 && id <= self.len());
        // SAFETY: entries up to `count` were written before it was raised, and never change.
        unsafe { *self.entries.add(id as usize - 1) }
    }

    /// Calls `insert` while nobody else adds an entry.
    fn alone<R>(&self, insert: impl FnOnce() -> R) -> R {
        while self.inserting.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = insert();
        self.inserting.store(false, Ordering::Release);
        result
    }

    /// Adds what `make` gives and defines it. Called within [`Self::alone`] only.
    fn add(&self, make: impl FnOnce() -> Option<T>, define: impl FnOnce(u32) -> bool) -> Option<u32> {
        let id = self.len() + 1;
        if id as usize > self.capacity {
            return None;
        }
        let entry = make()?;
        // An id that could not be defined is not handed out; its number goes to the next.
        if !define(id) {
            return None;
        }
        // SAFETY: below the capacity, and only the holder of `inserting` writes.
        unsafe { self.entries.add(id as usize - 1).write(entry) };
        self.count.store(id, Ordering::Release);
        Some(id)
    }
}

impl<T: Copy + 'static> Table<T> {
    fn new(capacity: usize) -> Option<Self> {
        let slots = reserve::<AtomicU32>(capacity * 2)?;
        // SAFETY: mapped above for that many values, zeros are valid atomics, never unmapped.
        let slots = unsafe { std::slice::from_raw_parts(slots, capacity * 2) };
        Some(Self { slots, list: List::new(capacity)? })
    }

    fn discard(&self) {
        release(self.slots.as_ptr().cast_mut(), self.slots.len());
        self.list.discard();
    }

    /// Returns the id of the entry that `is` it, starting from `hash`, or the slot for a new one.
    fn find(&self, hash: u64, is: &impl Fn(T) -> bool) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at].load(Ordering::Acquire) {
                0 => return Err(at),
                id if is(self.list.entry(id)) => return Ok(id),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Returns the id of an entry, adding what `make` gives and defining it if there is none.
    fn intern(
        &self,
        hash: u64,
        is: impl Fn(T) -> bool,
        make: impl FnOnce() -> Option<T>,
        define: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        if let Ok(id) = self.find(hash, &is) {
            return Some(id);
        }
        self.list.alone(|| match self.find(hash, &is) {
            Ok(id) => Some(id),
            Err(slot) => {
                let id = self.list.add(make, define)?;
                self.slots[slot].store(id, Ordering::Release);
                Some(id)
            }
        })
    }
}

#[derive(Clone, Copy)]
struct Text {
    offset: u32,
    len: u32,
}

#[derive(Clone, Copy)]
struct Stack {
    parent: StackId,
    frame: u32,
}

/// The identity of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceEntry {
    pub(crate) device: i32,
    pub(crate) uuid: StringId,
}

/// All tables.
pub(crate) struct Interner {
    /// `None` if there was no address space for them.
    tables: Option<Tables>,
}

struct Tables {
    strings: Table<Text>,
    frames: Table<Frame>,
    stacks: Table<Stack>,
    subjects: List<SubjectEntry>,
    devices: Table<DeviceEntry>,
    texts: *mut u8,
    texts_used: AtomicU64,
}

// SAFETY: tables are read through atomics and written by the holder of their flag alone; text is
// written once, before the entry that points to it.
unsafe impl Sync for Interner {}

impl Tables {
    fn text(&self, text: Text) -> &str {
        // SAFETY: offset and length were handed out by `keep`, which wrote a whole `str` there.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.texts.add(text.offset as usize), text.len as usize);
            std::str::from_utf8_unchecked(bytes)
        }
    }

    /// Copies `text` into the tables' memory. Called by the holder of the strings' flag alone.
    fn keep(&self, text: &str) -> Option<Text> {
        let offset = self.texts_used.load(Ordering::Relaxed) as usize;
        if offset + text.len() > TEXT_BYTES {
            return None;
        }
        // SAFETY: in bounds as just checked; nobody else writes, nobody reads before the entry exists.
        unsafe { self.texts.add(offset).copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        self.texts_used.store((offset + text.len()) as u64, Ordering::Relaxed);
        Some(Text { offset: offset as u32, len: text.len() as u32 })
    }
}

fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

fn string_definition(id: u32, text: &str) -> TextPayload {
    TextPayload::new(RecordType::String).number(u64::from(id)).text(text)
}

fn frame_definition(id: u32, frame: &Frame) -> NumbersPayload {
    NumbersPayload::new(RecordType::Frame)
        .number(u64::from(id))
        .number(u64::from(frame.function.0))
        .number(u64::from(frame.file.0))
        .number(u64::from(frame.line))
        .number(u64::from(frame.module.0))
        .number(frame.address)
}

fn stack_definition(id: u32, stack: Stack) -> NumbersPayload {
    let payload = NumbersPayload::new(RecordType::Stack).number(u64::from(id));
    payload.number(u64::from(stack.parent.0)).number(u64::from(stack.frame))
}

fn subject_definition(id: u32, subject: &SubjectEntry) -> NumbersPayload {
    NumbersPayload::new(RecordType::Subject)
        .number(u64::from(id))
        .number(subject.kind as u64)
        .number(subject.number)
        .number(zigzag(subject.start_ns))
        .number(u64::from(subject.parent.0))
        .number(u64::from(subject.name.0))
        .number(u64::from(subject.detail.0))
}

fn device_definition(entry: DeviceEntry) -> NumbersPayload {
    let payload = NumbersPayload::new(RecordType::Device).number(u64::from(entry.device as u32));
    payload.number(u64::from(entry.uuid.0))
}

impl Interner {
    /// Makes empty tables that live as long as the process. If there is no address space for them,
    /// every look-up is a counted loss.
    pub(crate) fn new() -> &'static Self {
        let tables = || {
            Some(Tables {
                strings: Table::new(MAX_STRINGS)?,
                frames: Table::new(MAX_FRAMES)?,
                stacks: Table::new(MAX_STACKS)?,
                subjects: List::new(MAX_SUBJECTS)?,
                devices: Table::new(MAX_DEVICES)?,
                texts: reserve::<u8>(TEXT_BYTES)?,
                texts_used: AtomicU64::new(0),
            })
        };
        Box::leak(Box::new(Self { tables: tables() }))
    }

    pub(crate) fn string(&self, text: &str, write: Write<'_>) -> Option<u32> {
        if text.is_empty() {
            return Some(0);
        }
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        let tables = self.tables.as_ref()?;
        let hash = text.bytes().fold(text.len() as u64, |hash, byte| mix(hash, u64::from(byte)));
        tables.strings.intern(
            hash,
            |entry| tables.text(entry) == text,
            || tables.keep(text),
            |id| write(string_definition(id, text).finish()),
        )
    }

    pub(crate) fn frame(&self, frame: &Frame, write: Write<'_>) -> Option<u32> {
        let frames = &self.tables.as_ref()?.frames;
        let names = u64::from(frame.function.0) << 32 | u64::from(frame.file.0);
        let place = u64::from(frame.line) << 32 | u64::from(frame.module.0);
        let hash = mix(mix(mix(1, names), place), frame.address);
        frames.intern(
            hash,
            |entry| entry == *frame,
            || Some(*frame),
            |id| write(frame_definition(id, frame).finish()),
        )
    }

    pub(crate) fn stack(&self, parent: StackId, frame: u32, write: Write<'_>) -> Option<u32> {
        let stacks = &self.tables.as_ref()?.stacks;
        let stack = Stack { parent, frame };
        stacks.intern(
            mix(2, u64::from(parent.0) << 32 | u64::from(frame)),
            |entry| entry.parent == parent && entry.frame == frame,
            || Some(stack),
            |id| write(stack_definition(id, stack).finish()),
        )
    }

    /// Gives a subject an id, a new one every time: two things may look the same.
    pub(crate) fn subject(&self, subject: &SubjectEntry, write: Write<'_>) -> Option<u32> {
        let subjects = &self.tables.as_ref()?.subjects;
        let define = |id| write(subject_definition(id, subject).finish());
        subjects.alone(|| subjects.add(|| Some(*subject), define))
    }

    /// Defines the identity of a device. If it is defined more than once, the last one counts.
    pub(crate) fn device(&self, entry: DeviceEntry, write: Write<'_>) -> Option<u32> {
        let devices = &self.tables.as_ref()?.devices;
        devices.intern(
            mix(3, u64::from(entry.device as u32) << 32 | u64::from(entry.uuid.0)),
            |known| known == entry,
            || Some(entry),
            |_| write(device_definition(entry).finish()),
        )
    }

    /// Backs the memory of some 60,000 strings and frames.
    pub(crate) fn populate(&self) {
        const NAMES: usize = 1 << 16;
        let Some(tables) = &self.tables else { return };
        populate(tables.strings.slots.as_ptr().cast_mut(), tables.strings.slots.len());
        populate(tables.frames.slots.as_ptr().cast_mut(), tables.frames.slots.len());
        populate(tables.strings.list.entries, NAMES);
        populate(tables.frames.list.entries, NAMES);
        populate(tables.texts, NAMES * 32);
    }

    /// Releases the memory of the tables at the end of a recording. They stay mapped and read as empty.
    pub(crate) fn discard(&self) {
        let Some(tables) = &self.tables else { return };
        let Tables { strings, frames, stacks, subjects, devices, texts, .. } = tables;
        strings.discard();
        frames.discard();
        stacks.discard();
        subjects.discard();
        devices.discard();
        release(*texts, TEXT_BYTES);
    }

    /// Writes every definition again, for a process that inherited them.
    pub(crate) fn define_all(&self, write: Write<'_>) {
        let Some(tables) = &self.tables else { return };
        let Tables { strings, frames, stacks, subjects, devices, .. } = tables;
        let (strings, frames, stacks) = (&strings.list, &frames.list, &stacks.list);
        let devices = &devices.list;
        // A thread of the parent may have been adding something when it forked.
        let flags = [&strings.inserting, &frames.inserting, &stacks.inserting];
        for flag in flags.into_iter().chain([&subjects.inserting, &devices.inserting]) {
            flag.store(false, Ordering::Release);
        }
        for id in 1..=strings.len() {
            write(string_definition(id, tables.text(strings.entry(id))).finish());
        }
        for id in 1..=frames.len() {
            write(frame_definition(id, &frames.entry(id)).finish());
        }
        for id in 1..=stacks.len() {
            write(stack_definition(id, stacks.entry(id)).finish());
        }
        for id in 1..=devices.len() {
            write(device_definition(devices.entry(id)).finish());
        }
        for id in 1..=subjects.len() {
            write(subject_definition(id, &subjects.entry(id)).finish());
        }
    }
}
