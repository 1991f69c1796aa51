//! Names of functions and lines of code, found once per function.
//!
//! What is known of a code object hangs on the object itself and is freed with it, so that an address that is used
//! again is another function. Native functions and types are known by their keys, see `natives`.
#![expect(unsafe_code, reason = "reads objects of the interpreter")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use floodmark_event::tables::Frame;
use floodmark_tail as tail;
use pyo3::ffi;

use super::arena::{Arena, Unit};
use super::filter::Filter;
use super::layout;
use super::natives::{self, NativeKey};

/// Flags of code that runs as a generator, coroutine or asynchronous generator.
const GENERATORS: i64 = 0x20 | 0x80 | 0x200;
/// Line of an instruction that has none.
const NO_LINE: i16 = i16::MIN;
/// Line of an instruction that is too far from the function's first.
const FAR_LINE: i16 = i16::MIN + 1;

/// What is known of a code object; the lines of its instructions follow in memory, as differences to the first line.
#[repr(C, align(8))]
pub(super) struct Code {
    /// The trace that `frame` and `is_hidden` are of.
    epoch: u32,
    pub(super) frame: u32,
    first_line: i32,
    units: u32,
    pub(super) is_hidden: bool,
    /// Whether it is a generator or coroutine.
    pub(super) is_generator: bool,
    /// Whether nothing in it can be an event but that it begins and ends; known on Python 3.11.
    #[cfg(not(Py_3_12))]
    pub(super) is_leaf: bool,
}

impl Code {
    fn block_bytes(units: u32) -> usize {
        size_of::<Self>() + units as usize * size_of::<i16>()
    }

    /// Returns the line of the instruction at a byte offset; 0 if it has none.
    ///
    /// # Safety
    /// `code` is the object that this value is about.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) unsafe fn line(&self, code: *mut ffi::PyObject, offset: i32) -> u32 {
        let unit = (offset >> 1) as u32;
        if offset < 0 {
            return self.first_line as u32;
        }
        if unit < self.units {
            // SAFETY: the block has `units` lines behind this value.
            let line = unsafe { *std::ptr::from_ref(self).add(1).cast::<i16>().add(unit as usize) };
            if line > FAR_LINE {
                return self.first_line.wrapping_add(i32::from(line)) as u32;
            }
            if line == NO_LINE {
                return 0;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { slow_line(code, offset) }
    }
}

/// # Safety
/// `code` is a code object.
#[cold]
unsafe fn slow_line(code: *mut ffi::PyObject, offset: i32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyCode_Addr2Line(code.cast(), offset as c_int).max(0) as u32 }
}

/// A native function or type that is known.
#[derive(Clone, Copy)]
#[repr(C)]
struct Native {
    key: NativeKey,
    frame: u32,
}

const NATIVE_SHIFT: u32 = 13;
const NATIVES: usize = 1 << NATIVE_SHIFT;

/// All that is known of functions. Used by the thread that holds the interpreter's lock.
pub(super) struct Functions {
    arena: Arena,
    /// Number of the trace; ids of another one are not valid.
    epoch: u32,
    /// Where the interpreter keeps our pointer in code objects; -1 before the first trace.
    extra_index: ffi::Py_ssize_t,
    /// Whether that place is where `layout` has it, so that no function of the interpreter is needed to read it.
    pub(super) is_layout_known: bool,
    is_extra_known: bool,
    natives: *mut Native,
    native_count: usize,
    pub(super) filter: Filter,
    /// Frames by their ids, and those of native functions in the file of a caller; used where not every event is recorded.
    frames: BTreeMap<u32, Frame>,
    called_from: BTreeMap<(u32, u32), u32>,
    /// Events of functions that there was no memory for.
    pub(super) unnamed: u64,
}

impl Functions {
    pub(super) const fn new() -> Self {
        Self {
            arena: Arena::new(),
            epoch: 0,
            extra_index: -1,
            is_layout_known: false,
            is_extra_known: false,
            natives: std::ptr::null_mut(),
            native_count: 0,
            filter: Filter::new(),
            frames: BTreeMap::new(),
            called_from: BTreeMap::new(),
            unnamed: 0,
        }
    }

    /// Begins a trace: everything is named anew.
    pub(super) fn begin(&mut self, filter: Filter, is_layout_known: bool) {
        self.filter = filter;
        self.is_layout_known = is_layout_known;
        self.frames.clear();
        self.called_from.clear();
        self.unnamed = 0;
        self.epoch += 1;
        self.arena.prepare();
        if self.extra_index < 0 {
            // SAFETY: the interpreter is attached; the function lives as long as the process.
            self.extra_index = unsafe { ffi::PyUnstable_Eval_RequestCodeExtraIndex(free_code) };
        }
        if self.natives.is_null() {
            let table = self.arena.allocate(NATIVES * size_of::<Native>());
            self.natives = table.map_or(std::ptr::null_mut(), |table| table.as_ptr().cast());
        }
        if !self.natives.is_null() {
            // SAFETY: the table has that many entries, for which zeros are valid.
            unsafe { self.natives.write_bytes(0, NATIVES) };
        }
        self.native_count = 0;
    }

    /// Returns what is known of a code object; `None` if there is no memory for it.
    ///
    /// # Safety
    /// `code` is a code object, and the interpreter is attached.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) unsafe fn code(&mut self, code: *mut ffi::PyObject) -> Option<&Code> {
        // SAFETY: the caller's promise; what hangs on the object is ours and lives as long as it.
        unsafe {
            let known = self.extra(code);
            if let Some(entry) = known.cast::<Code>().as_ref()
                && entry.epoch == self.epoch
            {
                return Some(entry);
            }
            self.name_code(code, known.cast())
        }
    }

    /// Returns what is known of a code object that had events in this trace; runs nothing of the interpreter.
    ///
    /// # Safety
    /// As for [`code`](Self::code).
    #[cfg(not(Py_3_12))]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) unsafe fn named_code(&self, code: *mut ffi::PyObject) -> Option<&Code> {
        // SAFETY: as in `code`.
        unsafe { self.extra(code).cast::<Code>().as_ref() }.filter(|entry| entry.epoch == self.epoch)
    }

    /// Returns what hangs on a code object; null if nothing does.
    ///
    /// # Safety
    /// As for [`code`](Self::code).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    unsafe fn extra(&self, code: *mut ffi::PyObject) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_extra_known {
                return layout::extra_of(code.cast(), self.extra_index);
            }
            let mut known: *mut c_void = std::ptr::null_mut();
            ffi::PyUnstable_Code_GetExtra(code, self.extra_index, &raw mut known);
            known
        }
    }

    /// # Safety
    /// As for [`code`](Self::code); `known` hangs on the object or is null.
    #[cold]
    #[inline(never)]
    unsafe fn name_code(&mut self, code: *mut ffi::PyObject, known: *mut Code) -> Option<&Code> {
        // SAFETY: the caller's promise. Attributes of code objects are read without running any Python code.
        unsafe {
            let mut entry = known;
            if entry.is_null() {
                let table = Attribute::of(code, c"co_linetable");
                let first_line = Attribute::of(code, c"co_firstlineno").number() as i32;
                let flags = Attribute::of(code, c"co_flags").number();
                self.reclaim();
                let mut units = table.bytes().map_or(0, count_units);
                let mut block = self.arena.allocate(Code::block_bytes(units));
                if block.is_none() {
                    units = 0;
                    block = self.arena.allocate(Code::block_bytes(0));
                }
                self.unnamed += u64::from(block.is_none());
                entry = block?.as_ptr().cast();
                let is_generator = flags & GENERATORS != 0;
                entry.write(Code {
                    epoch: 0,
                    frame: 0,
                    first_line,
                    units,
                    is_hidden: false,
                    is_generator,
                    #[cfg(not(Py_3_12))]
                    is_leaf: Attribute::of(code, c"co_code").bytes().is_some_and(calls_nothing),
                });
                if let (Some(table), true) = (table.bytes(), units > 0) {
                    fill_lines(table, std::slice::from_raw_parts_mut(entry.add(1).cast(), units as usize));
                }
                if ffi::PyUnstable_Code_SetExtra(code, self.extra_index, entry.cast()) != 0 {
                    ffi::PyErr_Clear();
                    self.arena.free(NonNull::new(entry.cast())?, Code::block_bytes(units));
                    return None;
                }
                self.is_extra_known = self.is_layout_known
                    && std::ptr::eq(layout::extra_of(code.cast(), self.extra_index), entry.cast());
            }
            let file = Attribute::of(code, c"co_filename");
            let function = Attribute::of(code, c"co_qualname");
            let (file, function) = (file.text(), function.text());
            let entry = &mut *entry;
            entry.is_hidden = self.filter.hides(file);
            entry.frame = if entry.is_hidden {
                0
            } else {
                let frame = Frame {
                    function: tail::intern(function),
                    file: tail::intern(file),
                    line: u32::try_from(entry.first_line).unwrap_or(0),
                    ..Frame::default()
                };
                let id = tail::intern_frame(&frame);
                self.frames.insert(id, frame);
                id
            };
            entry.epoch = self.epoch;
            Some(entry)
        }
    }

    /// Returns the frame of something that is called and is no Python function.
    ///
    /// # Safety
    /// `callable` is an object, and the interpreter is attached.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) unsafe fn native(&mut self, callable: *mut ffi::PyObject) -> u32 {
        // SAFETY: the caller's promise.
        let key = unsafe { NativeKey::of(callable) };
        let first = (key.address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NATIVE_SHIFT)) & (NATIVES - 1);
        if !self.natives.is_null() {
            // SAFETY: below the number of entries.
            let known = unsafe { *self.natives.add(first) };
            // Keys in the table are unique.
            if known.key == key {
                return known.frame;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.find_native(callable, first) }
    }

    /// # Safety
    /// As for [`native`](Self::native).
    #[cold]
    #[inline(never)]
    unsafe fn find_native(&mut self, callable: *mut ffi::PyObject, first: usize) -> u32 {
        const MOST: usize = NATIVES / 4 * 3;
        let mut at = first;
        // SAFETY: `at` stays below the number of entries, of which some are empty.
        unsafe {
            natives::prepare(callable);
            let key = NativeKey::of(callable);
            if self.natives.is_null() || !key.is_unique() {
                return self.name_native(callable);
            }
            while (*self.natives.add(at)).key.address != 0
                && (*self.natives.add(at)).key.address != key.address
            {
                at = (at + 1) & (NATIVES - 1);
            }
            let entry = &mut *self.natives.add(at);
            if entry.key == key {
                return entry.frame;
            }
            let frame = self.name_native(callable);
            let is_new = entry.key.address == 0;
            if !is_new || self.native_count < MOST {
                self.native_count += usize::from(is_new);
                *entry = Native { key, frame };
            }
            frame
        }
    }

    /// # Safety
    /// As for [`native`](Self::native).
    unsafe fn name_native(&mut self, callable: *mut ffi::PyObject) -> u32 {
        // SAFETY: the caller's promise.
        let frame = unsafe { natives::frame_of(callable) };
        let id = tail::intern_frame(&frame);
        self.frames.insert(id, frame);
        id
    }

    /// Returns the frame of a native function with the file that it is called from: where the calls around it are not
    /// recorded, nothing else says that.
    pub(super) fn called_from(&mut self, native: u32, caller: u32) -> u32 {
        if let Some(id) = self.called_from.get(&(native, caller)) {
            return *id;
        }
        let (Some(frame), Some(caller_frame)) = (self.frames.get(&native), self.frames.get(&caller)) else {
            return native;
        };
        let id = tail::intern_frame(&Frame { file: caller_frame.file, ..*frame });
        self.called_from.insert((native, caller), id);
        id
    }

    /// Takes back the memory of code objects that were freed.
    fn reclaim(&mut self) {
        let mut freed = FREED.swap(std::ptr::null_mut(), Ordering::Relaxed);
        while let Some(block) = NonNull::new(freed.cast::<Unit>()) {
            // SAFETY: `free_code` put it there, so it is from the arena, and nothing else refers to it.
            unsafe {
                freed = freed.cast::<*mut Code>().read();
                let bytes = Code::block_bytes((*block.as_ptr().cast::<Code>()).units);
                self.arena.free(block, bytes);
            }
        }
    }
}

/// What hung on code objects that were freed, each with the address of the next in its first bytes. Objects may be freed
/// while the state of the tracer is in use, by the garbage collector.
static FREED: AtomicPtr<Code> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn free_code(code: *mut c_void) {
    if code.is_null() {
        return;
    }
    // SAFETY: the interpreter passes what hung on a code object; nothing refers to it any more, and the first bytes are
    // not those of `units`. Threads hold the interpreter's lock here, so none comes in between.
    unsafe { code.cast::<*mut Code>().write(FREED.load(Ordering::Relaxed)) };
    FREED.store(code.cast(), Ordering::Relaxed);
}

const _: () = assert!(std::mem::offset_of!(Code, units) >= size_of::<usize>());

/// An attribute of an object of the interpreter, or nothing.
pub(super) struct Attribute(*mut ffi::PyObject);

impl Attribute {
    /// # Safety
    /// `object` is an object, and the interpreter is attached as long as the result is used.
    pub(super) unsafe fn of(object: *mut ffi::PyObject, name: &CStr) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::owned(ffi::PyObject_GetAttrString(object, name.as_ptr())) }
    }

    /// # Safety
    /// `object` is a new reference or null with an exception set; the interpreter is attached.
    pub(super) unsafe fn owned(object: *mut ffi::PyObject) -> Self {
        if object.is_null() {
            // SAFETY: the caller's promise.
            unsafe { ffi::PyErr_Clear() };
        }
        Self(object)
    }

    /// # Safety
    /// `object` is null or an object that the caller may use; the interpreter is attached.
    pub(super) unsafe fn borrowed(object: *mut ffi::PyObject) -> Self {
        // SAFETY: the caller's promise.
        unsafe { ffi::Py_XINCREF(object) };
        Self(object)
    }

    pub(super) const fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    pub(super) fn text(&self) -> &str {
        // SAFETY: the object is checked; the text belongs to it, which this value keeps alive.
        unsafe {
            if self.0.is_null() || ffi::PyUnicode_Check(self.0) == 0 {
                return "";
            }
            let mut len = 0;
            let text = ffi::PyUnicode_AsUTF8AndSize(self.0, &raw mut len);
            if text.is_null() {
                // A lone surrogate.
                ffi::PyErr_Clear();
                return "?";
            }
            std::str::from_utf8_unchecked(std::slice::from_raw_parts(text.cast(), len as usize))
        }
    }

    fn number(&self) -> i64 {
        // SAFETY: the object is checked.
        unsafe {
            if self.0.is_null() || ffi::PyLong_Check(self.0) == 0 {
                return 0;
            }
            ffi::PyLong_AsLongLong(self.0)
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the object is checked; the bytes belong to it, which this value keeps alive.
        unsafe {
            if self.0.is_null() || ffi::PyBytes_Check(self.0) == 0 {
                return None;
            }
            let len = ffi::PyBytes_Size(self.0) as usize;
            Some(std::slice::from_raw_parts(ffi::PyBytes_AsString(self.0).cast(), len))
        }
    }
}

impl Drop for Attribute {
    fn drop(&mut self) {
        // SAFETY: this value owns a reference, and the interpreter is attached.
        unsafe { ffi::Py_XDECREF(self.0) };
    }
}

/// Whether none of the instructions of Python 3.11 calls a function or hands over to another generator, which are events.
/// Operators and attributes may call Python functions, whose frames are events of their own; but subscripts run those in
/// the frame's own evaluation.
#[cfg(not(Py_3_12))]
fn calls_nothing(instructions: &[u8]) -> bool {
    const BINARY_SUBSCR: u8 = 25;
    const ASYNC_GEN_WRAP: u8 = 87;
    const SEND: u8 = 123;
    const CALL_FUNCTION_EX: u8 = 142;
    const PRECALL: u8 = 166;
    const CALL: u8 = 171;
    // Each has two bytes, the second of which is an argument; what the interpreter caches between them reads as zeros.
    instructions.iter().step_by(2).all(|instruction| {
        !matches!(*instruction, BINARY_SUBSCR | ASYNC_GEN_WRAP | SEND | CALL_FUNCTION_EX | PRECALL | CALL)
    })
}

/// Goes through a table of locations as CPython 3.11 and later have them (`Objects/locations.md`); calls `each` with the
/// number of code units and the difference to the line before, or none for code without a line.
fn walk_locations(table: &[u8], mut each: impl FnMut(u32, Option<i32>)) {
    let mut rest = table.iter().copied();
    let signed = |rest: &mut dyn Iterator<Item = u8>| {
        let (mut value, mut shift) = (0u32, 0);
        for byte in rest {
            value |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
            shift += 6;
            if byte & 64 == 0 {
                break;
            }
        }
        if value & 1 == 0 { (value >> 1) as i32 } else { -((value >> 1) as i32) }
    };
    while let Some(head) = rest.next() {
        let units = u32::from(head & 7) + 1;
        let difference = match head >> 3 & 15 {
            15 => None,
            14 => {
                let line = signed(&mut rest);
                for _ in 0..3 {
                    signed(&mut rest);
                }
                Some(line)
            }
            13 => Some(signed(&mut rest)),
            code @ 10..=12 => {
                rest.nth(1);
                Some(i32::from(code) - 10)
            }
            _ => {
                rest.next();
                Some(0)
            }
        };
        each(units, difference);
    }
}

/// Returns the line of the instruction at a byte offset, by a table of locations; 0 if it has none.
pub(super) fn line_of(table: &[u8], first_line: i32, offset: i32) -> u32 {
    let (mut at, mut line, mut found) = (0u32, first_line, 0);
    let unit = (offset.max(0) >> 1) as u32;
    walk_locations(table, |count, difference| {
        line = line.wrapping_add(difference.unwrap_or(0));
        if (at..at.saturating_add(count)).contains(&unit) && difference.is_some() {
            found = line;
        }
        at = at.saturating_add(count);
    });
    u32::try_from(found).unwrap_or(0)
}

fn count_units(table: &[u8]) -> u32 {
    let mut units = 0;
    walk_locations(table, |count, _| units += count);
    units
}

fn fill_lines(table: &[u8], lines: &mut [i16]) {
    let (mut at, mut line) = (0, 0i32);
    walk_locations(table, |count, difference| {
        line = line.wrapping_add(difference.unwrap_or(0));
        let stored = match difference {
            None => NO_LINE,
            Some(_) => i16::try_from(line).ok().filter(|line| *line > FAR_LINE).unwrap_or(FAR_LINE),
        };
        for slot in lines.iter_mut().skip(at).take(count as usize) {
            *slot = stored;
        }
        at += count as usize;
    });
}
