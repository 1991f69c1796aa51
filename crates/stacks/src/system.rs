//! The unwinder that the language runtime brings along for panics and exceptions.
//!
//! It knows everything, tables that compilers registered at run time included, and takes a few hundred
//! nanoseconds for each frame.
#![expect(unsafe_code, reason = "calls the C runtime's unwinder")]

use libc::{c_int, c_void};

use super::MAX_FRAMES;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const NORMAL_STOP: c_int = 4;

struct Walk<'a> {
    above: u64,
    frames: &'a mut [u64; MAX_FRAMES],
    count: usize,
}

/// Finds the return addresses that are on the stack above `stack_pointer`; returns how many.
pub(super) fn walk(stack_pointer: u64, frames: &mut [u64; MAX_FRAMES]) -> usize {
    unsafe extern "C" fn each(frame: *mut c_void, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the walk below, which nothing else uses meanwhile.
        let walk = unsafe { &mut *data.cast::<Walk<'_>>() };
        // SAFETY: the unwinder's own frame, of which it can be asked while it calls us.
        let (at, instruction) = unsafe { (_Unwind_GetCFA(frame) as u64, _Unwind_GetIP(frame) as u64) };
        // Frames of our own are those that were entered after the stack pointer was read.
        if at <= walk.above {
            return GO_ON;
        }
        let Some(place) = walk.frames.get_mut(walk.count).filter(|_| instruction != 0) else {
            return NORMAL_STOP;
        };
        *place = instruction;
        walk.count += 1;
        GO_ON
    }
    let mut walk = Walk { above: stack_pointer, frames, count: 0 };
    // SAFETY: the walk lives until the call returns.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.count
}
