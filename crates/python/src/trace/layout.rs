//! Where CPython keeps what the change-driven mode reads in a signal handler, by version.
//!
//! The handler cannot call the interpreter, so it reads its structures: those of 3.11, 3.12 and 3.13 are known, and
//! [`is_known`] compares them with what the interpreter itself says.
#![expect(unsafe_code, reason = "reads structures of the interpreter")]

use std::ffi::c_void;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

#[cfg(not(Py_3_12))]
mod offsets {
    pub(super) const CODE: usize = 32;
    pub(super) const PREVIOUS: usize = 48;
    pub(super) const FIRST_LINE: usize = 72;
    pub(super) const INSTRUCTIONS: usize = 184;
    pub(super) const ASCII_BYTES: usize = 48;
    pub(super) const COMPACT_BYTES: usize = 72;
}
#[cfg(Py_3_12)]
mod offsets {
    pub(super) const CODE: usize = 0;
    pub(super) const PREVIOUS: usize = 8;
    pub(super) const FIRST_LINE: usize = 68;
    #[cfg(not(Py_3_13))]
    pub(super) const INSTRUCTIONS: usize = 192;
    #[cfg(Py_3_13)]
    pub(super) const INSTRUCTIONS: usize = 200;
    pub(super) const ASCII_BYTES: usize = 40;
    pub(super) const COMPACT_BYTES: usize = 56;
}

/// Offsets that all versions share: of a frame, a code object, a `PyFrameObject`, a string and bytes.
const INSTRUCTION: usize = 56;
const FILE: usize = 112;
const FUNCTION: usize = 128;
const LINE_TABLE: usize = 136;
const FRAME_OF_OBJECT: usize = 24;
const TEXT_LENGTH: usize = 16;
const TEXT_STATE: usize = 32;
const BYTES_LENGTH: usize = 16;
const BYTES_DATA: usize = 32;

/// # Safety
/// There is a value of the type at the offset.
#[inline]
unsafe fn read<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// Returns the innermost frame of a thread; none if it runs no Python.
///
/// # Safety
/// `state` is null or the state of the calling thread.
pub(super) unsafe fn current_frame(state: *mut ffi::PyThreadState) -> Option<*const u8> {
    let state = state.cast::<u8>().cast_const();
    if state.is_null() {
        return None;
    }
    // SAFETY: the layout of this version.
    unsafe {
        #[cfg(Py_3_13)]
        let frame: *const u8 = read(state, 72);
        #[cfg(not(Py_3_13))]
        let frame: *const u8 = {
            let chain: *const u8 = read(state, 56);
            if chain.is_null() {
                return None;
            }
            read(chain, if cfg!(Py_3_12) { 0 } else { 8 })
        };
        (!frame.is_null()).then_some(frame)
    }
}

/// # Safety
/// `frame` is a frame of the interpreter.
pub(super) unsafe fn previous(frame: *const u8) -> Option<*const u8> {
    // SAFETY: the layout of this version.
    let previous: *const u8 = unsafe { read(frame, offsets::PREVIOUS) };
    (!previous.is_null()).then_some(previous)
}

/// Returns the code that a frame runs and the byte offset of its instruction; none for frames of the interpreter itself.
///
/// # Safety
/// `frame` is a frame of the interpreter.
pub(super) unsafe fn code_of(frame: *const u8) -> Option<(*const u8, i32)> {
    /// Offset of the kind of a frame; 3 is the kind of frames that stand for native code.
    #[cfg(Py_3_12)]
    const OWNER: usize = 70;
    // SAFETY: the layout of this version; what is no code object is not read.
    unsafe {
        #[cfg(Py_3_12)]
        if read::<u8>(frame, OWNER) == 3 {
            return None;
        }
        let code: *const u8 = read(frame, offsets::CODE);
        if code.is_null() || ffi::Py_TYPE(code.cast_mut().cast()) != &raw mut ffi::PyCode_Type {
            return None;
        }
        // The interpreter's own code, which runs around `__init__` of an object that is made, has one name for everything.
        if cfg!(Py_3_13) && file(code) == function(code) {
            return None;
        }
        let instruction: *const u8 = read(frame, INSTRUCTION);
        let offset = instruction.addr().wrapping_sub(code.addr() + offsets::INSTRUCTIONS) as isize;
        Some((code, i32::try_from(offset).unwrap_or(-1)))
    }
}

/// Returns the code that the frame of an object runs and the byte offset of its instruction, -1 before the first one.
///
/// # Safety
/// `object` is a frame object, and the layout is known.
#[cfg(not(Py_3_12))]
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(super) unsafe fn place_of(object: *mut ffi::PyFrameObject) -> (*mut ffi::PyObject, i32) {
    // SAFETY: the caller's promise.
    unsafe { place_in(read(object.cast(), FRAME_OF_OBJECT)) }
}

/// The same for a frame of the interpreter.
///
/// # Safety
/// `frame` is a frame that runs code, and the layout is known.
#[cfg(not(Py_3_12))]
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(super) unsafe fn place_in(frame: *const u8) -> (*mut ffi::PyObject, i32) {
    // SAFETY: the caller's promise.
    unsafe {
        let code: *mut ffi::PyObject = read(frame, offsets::CODE);
        let instruction: *const u8 = read(frame, INSTRUCTION);
        let offset = instruction.addr().wrapping_sub(code.addr() + offsets::INSTRUCTIONS) as i32;
        (code, offset.max(-1))
    }
}

/// Returns what was hung on a code object at an index; null if nothing was.
///
/// # Safety
/// `code` is a code object.
#[inline]
pub(super) unsafe fn extra_of(code: *const u8, index: isize) -> *mut c_void {
    // Before the instructions there is a pointer to a number and as many pointers.
    const EXTRA: usize = offsets::INSTRUCTIONS - size_of::<usize>();
    // SAFETY: the layout of this version.
    unsafe {
        let extras: *const isize = read(code, EXTRA);
        if extras.is_null() || *extras <= index {
            return std::ptr::null_mut();
        }
        extras.add(1).cast::<*mut c_void>().offset(index).read()
    }
}

/// Returns what tells a code object from another one at the same address: its table of lines and its name.
///
/// # Safety
/// `code` is a code object, as for the functions below.
pub(super) unsafe fn identity(code: *const u8) -> (usize, usize) {
    // SAFETY: the layout of this version.
    unsafe { (read(code, LINE_TABLE), read(code, FUNCTION)) }
}

/// # Safety
/// As for [`identity`].
pub(super) unsafe fn file(code: *const u8) -> *const u8 {
    // SAFETY: the layout of this version.
    unsafe { read(code, FILE) }
}

/// # Safety
/// As for [`identity`].
pub(super) unsafe fn function(code: *const u8) -> *const u8 {
    // SAFETY: the layout of this version.
    unsafe { read(code, FUNCTION) }
}

/// # Safety
/// As for [`identity`].
pub(super) unsafe fn first_line(code: *const u8) -> i32 {
    // SAFETY: the layout of this version.
    unsafe { read(code, offsets::FIRST_LINE) }
}

/// # Safety
/// As for [`identity`]; the result is used while the code object lives.
pub(super) unsafe fn line_table<'a>(code: *const u8) -> &'a [u8] {
    // SAFETY: the layout of this version; the table is a `bytes` object.
    unsafe {
        let table: *const u8 = read(code, LINE_TABLE);
        if table.is_null() || ffi::PyBytes_Check(table.cast_mut().cast()) == 0 {
            return &[];
        }
        std::slice::from_raw_parts(table.add(BYTES_DATA), read::<usize>(table, BYTES_LENGTH))
    }
}

/// Returns the text of a string, which stands in `buffer` if it is not ASCII; what does not fit is cut off.
///
/// # Safety
/// `text` is null or an object, and lives as long as the result is used.
pub(super) unsafe fn text(text: *const u8, buffer: &mut [u8; 512]) -> &str {
    // SAFETY: the layout of this version; what is no string is not read.
    unsafe {
        if text.is_null() || ffi::PyUnicode_Check(text.cast_mut().cast()) == 0 {
            return "?";
        }
        let (state, length) = (read::<u32>(text, TEXT_STATE), read::<usize>(text, TEXT_LENGTH));
        let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
        if !is_compact {
            return "?";
        }
        if is_ascii {
            let bytes = std::slice::from_raw_parts(text.add(offsets::ASCII_BYTES), length);
            return std::str::from_utf8_unchecked(bytes);
        }
        let data = text.add(offsets::COMPACT_BYTES);
        let mut len = 0;
        for index in 0..length {
            let number = match kind {
                1 => u32::from(read::<u8>(data, index)),
                2 => u32::from(read::<u16>(data, index * 2)),
                _ => read::<u32>(data, index * 4),
            };
            let letter = char::from_u32(number).unwrap_or('?');
            if len + letter.len_utf8() > buffer.len() {
                break;
            }
            len += letter.encode_utf8(&mut buffer[len..]).len();
        }
        std::str::from_utf8_unchecked(&buffer[..len])
    }
}

/// Fails if the interpreter is not laid out as this module thinks, which `mode` depends on.
pub(super) fn require_known(mode: &str) -> PyResult<()> {
    // SAFETY: functions that Python calls are attached to the interpreter.
    if unsafe { is_known() } {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "this build of Python lays frames out in a way that is not known: use another mode than {mode}"
    )))
}

/// Whether the interpreter is laid out as this module thinks.
///
/// # Safety
/// The interpreter is attached.
pub(super) unsafe fn is_known() -> bool {
    // SAFETY: the caller's promise. A frame that does not stand where it should is not read.
    unsafe {
        let object = ffi::PyEval_GetFrame();
        let Some(frame) = current_frame(ffi::PyThreadState_Get()) else { return false };
        if object.is_null() || read::<*const u8>(object.cast(), FRAME_OF_OBJECT) != frame {
            return false;
        }
        let Some((code, offset)) = code_of(frame) else { return false };
        let own = ffi::PyFrame_GetCode(object);
        ffi::Py_DECREF(own.cast());
        if !std::ptr::eq(code, own.cast()) || offset != ffi::PyFrame_GetLasti(object) {
            return false;
        }
        let line = super::functions::line_of(line_table(code), first_line(code), offset);
        line == ffi::PyFrame_GetLineNumber(object) as u32
    }
}
