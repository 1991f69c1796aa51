//! Strings, frames, stacks, scopes, ranges, marks and calls.
//!
//! What [`floodmark_enter_scope`] and [`floodmark_begin_range`] return holds the recording's number, so that
//! a scope whose recording has ended, or was started while it was open, leaves no exit without an entry.
#![expect(unsafe_code, reason = "the interface is C: exported names, pointers of the caller")]

use std::ffi::c_char;

use floodmark_event::event::{StackId, StringId};
use floodmark_tail::{RangeId, Writer};

use crate::abi::{Call, Frame, Stamp, when};
use crate::events::stamp_of;
use crate::recorders::with_writer;
use crate::text::with_text;

/// Returns the id of a string.
///
/// # Safety
/// `text` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_intern(recorder: u64, text: *const c_char) -> u32 {
    with_writer(recorder, |writer| {
        // SAFETY: as the caller guarantees.
        unsafe { with_text(text, |text| if text.is_empty() { 0 } else { writer.intern(text).0 }) }
            .unwrap_or(0)
    })
}

/// Returns the id of a frame.
///
/// # Safety
/// `frame` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_intern_frame(recorder: u64, frame: *const Frame) -> u32 {
    // SAFETY: as the caller guarantees.
    let frame = unsafe { frame.as_ref() };
    with_writer(recorder, |writer| frame.map_or(0, |frame| writer.intern_frame(&(*frame).into())))
}

/// Returns the id of the stack that is `frame` called from `parent`.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_intern_stack(recorder: u64, parent: u32, frame: u32) -> u32 {
    with_writer(recorder, |writer| writer.intern_stack(StackId(parent), frame).0)
}

/// Records which device `device` of this process is.
///
/// # Safety
/// `uuid` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_define_device(recorder: u64, device: i32, uuid: *const c_char) {
    with_writer(recorder, |writer| {
        // SAFETY: as the caller guarantees.
        unsafe { with_text(uuid, |uuid| writer.define_device(device, uuid)) };
    });
}

/// Returns `id` together with the number of the recording that goes on.
///
/// Called after the record was made: a forked child gets its number with its first record.
fn token(writer: &Writer, id: u32) -> u64 {
    match writer.recording() {
        0 => 0,
        recording => u64::from(recording) << 32 | u64::from(id),
    }
}

/// Returns the id in a token, if it is one of the recording that goes on.
fn id_of(writer: &Writer, token: u64) -> Option<u32> {
    let recording = (token >> 32) as u32;
    (recording != 0 && recording == writer.recording()).then_some(token as u32)
}

/// Enters a scope on the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_enter_scope(recorder: u64, name: u32) -> u64 {
    floodmark_enter_scope_at(recorder, name, 0)
}

/// Enters a scope on the calling thread, at a time of its own.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_enter_scope_at(recorder: u64, name: u32, time_ns: u64) -> u64 {
    with_writer(recorder, |writer| {
        let outer = writer.enter_scope_at(StringId(name), when(time_ns));
        token(writer, outer)
    })
}

/// Leaves the innermost scope of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_exit_scope(recorder: u64, scope: u64) {
    floodmark_exit_scope_at(recorder, scope, 0);
}

/// Leaves the innermost scope of the calling thread, at a time of its own.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_exit_scope_at(recorder: u64, scope: u64, time_ns: u64) {
    with_writer(recorder, |writer| {
        if let Some(outer) = id_of(writer, scope) {
            writer.exit_scope_at(outer, when(time_ns));
        }
    });
}

/// Begins a range.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_begin_range(recorder: u64, name: u32) -> u64 {
    // SAFETY: a null stamp is allowed.
    unsafe { floodmark_begin_range_at(recorder, name, std::ptr::null()) }
}

/// Begins a range, at a time and on a thread of its own.
///
/// # Safety
/// `stamp` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_begin_range_at(recorder: u64, name: u32, stamp: *const Stamp) -> u64 {
    with_writer(recorder, |writer| {
        // SAFETY: as the caller guarantees.
        let range = writer.begin_range_at(StringId(name), unsafe { stamp_of(stamp) });
        if range == RangeId(0) { 0 } else { token(writer, range.0) }
    })
}

/// Ends a range.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_end_range(recorder: u64, range: u64) {
    // SAFETY: a null stamp is allowed.
    unsafe { floodmark_end_range_at(recorder, range, std::ptr::null()) };
}

/// Ends a range, at a time and on a thread of its own.
///
/// # Safety
/// `stamp` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_end_range_at(recorder: u64, range: u64, stamp: *const Stamp) {
    with_writer(recorder, |writer| {
        if let Some(range) = id_of(writer, range).filter(|range| *range != 0) {
            // SAFETY: as the caller guarantees.
            writer.end_range_at(RangeId(range), unsafe { stamp_of(stamp) });
        }
    });
}

/// Records a mark.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_mark(recorder: u64, name: u32) {
    floodmark_mark_at(recorder, name, 0);
}

/// Records a mark, at a time of its own.
#[unsafe(no_mangle)]
pub extern "C" fn floodmark_mark_at(recorder: u64, name: u32, time_ns: u64) {
    with_writer(recorder, |writer| writer.mark_at(StringId(name), when(time_ns)));
}

/// Records that a function was called or ended.
///
/// # Safety
/// `call` and `stamp` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_record_call(recorder: u64, call: *const Call, stamp: *const Stamp) {
    // SAFETY: as the caller guarantees.
    let (call, stamp) = unsafe { (call.as_ref(), stamp_of(stamp)) };
    with_writer(recorder, |writer| {
        if let Some(call) = call.and_then(|call| call.to_tail()) {
            writer.call_at(&call, stamp);
        }
    });
}
