//! Python functions that call nothing, on Python 3.11: comprehensions, keys of sorts, `__init__` of dataclasses.
//!
//! While a thread has a profile function, the interpreter of 3.11 takes every instruction the slow way and does not
//! specialize it, which costs more than our function does. Code without calls has no events but those of its own frame.
//! So an evaluation function (PEP 523) records these, and the frame runs at full speed in between: without the flag of
//! the interpreter that says that the thread is traced.
//!
//! Invariants: the flag is off only while a frame of such code is the innermost one. What the frame calls nevertheless,
//! such as the `__add__` of a class, comes through the evaluation function too, which switches it on again; the flag
//! of a thread whose frame found it on again is left alone, because the interpreter has recorded the return then.
//!
//! With an evaluation function a call of a Python function takes room on the stack of the thread, whether that is traced
//! or not. Before that can overflow where it would not have otherwise, all frames run without, until the trace ends.
//!
//! Another evaluation function that is there first stays, and the trace does without ours. One that comes later stays,
//! too; if it puts ours back after the trace has ended, ours removes itself.
//!
//! The interpreter ends threads that outlive it with `pthread_exit`, which unwinds their stacks, also long after the
//! trace. So the functions here are `C-unwind`, and no value that needs to be dropped lives while a frame runs.
#![expect(unsafe_code, reason = "the interpreter calls this function")]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use floodmark_event::CallAction;
use floodmark_tail as tail;
use pyo3::ffi;

use super::profile::{Hook, ThreadStart, for_each_thread, is_profiling, is_suspended, is_yield};
use crate::trace::{CURRENT, layout, state, thread_pointer};

type Evaluate = unsafe extern "C-unwind" fn(*mut ffi::PyThreadState, *mut u8, c_int) -> *mut ffi::PyObject;

unsafe extern "C" {
    fn _PyInterpreterState_GetEvalFrameFunc(interpreter: *mut ffi::PyInterpreterState) -> Evaluate;
    fn _PyInterpreterState_SetEvalFrameFunc(interpreter: *mut ffi::PyInterpreterState, function: Evaluate);
}

unsafe extern "C-unwind" {
    fn _PyEval_EvalFrameDefault(
        thread: *mut ffi::PyThreadState,
        frame: *mut u8,
        throw: c_int,
    ) -> *mut ffi::PyObject;
}

/// What the flag of a traced thread is.
const TRACED: u8 = 255;

/// Address below which the stack of the thread of [`CURRENT`] may not grow through the evaluation function.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Evaluates a frame.
unsafe extern "C-unwind" fn evaluate(
    thread: *mut ffi::PyThreadState,
    frame: *mut u8,
    throw: c_int,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes the calling thread and the frame to run, whose code lives as long as it does, with
    // its lock held. `install` has checked the layout.
    unsafe {
        let start = thread.cast::<ThreadStart>();
        // That of the caller: the frame takes it over, and gives its own back when it ends.
        let flag = &raw mut (*(*start).chain).use_tracing;
        if !(*start).is_traced_by(Hook::Profile) {
            remove_unless_needed((&raw const frame).addr());
            return _PyEval_EvalFrameDefault(thread, frame, throw);
        }
        // A frame that would be one too many fails before it begins: the interpreter has no events of it.
        if throw == 0 && (*start).can_recurse() && begin_leaf(frame) {
            let is_nested = *flag == 0;
            *flag = 0;
            let result = _PyEval_EvalFrameDefault(thread, frame, throw);
            if *flag == 0 {
                end_leaf(frame, result);
                *flag = if is_nested { 0 } else { (*start).flag() };
            }
            return result;
        }
        let is_in_leaf = *flag == 0;
        if is_in_leaf {
            *flag = TRACED;
        }
        let result = _PyEval_EvalFrameDefault(thread, frame, throw);
        // Another profile or trace function that was set meanwhile has the events of the rest of the function.
        if is_in_leaf && is_installed() && (*start).is_traced_by(Hook::Profile) {
            *flag = 0;
        }
        result
    }
}

/// Records that the frame of a function that calls nothing begins; returns `false` if it is another one.
///
/// # Safety
/// As for [`evaluate`].
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn begin_leaf(frame: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let tracer = state();
        let address = (&raw const frame).addr();
        if CURRENT.load(Ordering::Relaxed) != thread_pointer() && tracer.refresh(tail::ticks()).is_none() {
            remove_unless_needed(address);
            return false;
        }
        if address < LOWEST.load(Ordering::Relaxed) {
            give_up();
            return false;
        }
        let (code, offset) = layout::place_in(frame);
        let Some(known) = tracer.functions.code(code) else { return false };
        // The call of a generator's function makes the generator, and is no event.
        if !known.is_leaf || known.is_hidden || (known.is_generator && offset < 0) {
            return false;
        }
        let is_resumed = known.is_generator && is_suspended(code, offset);
        let action = if is_resumed { CallAction::Resume } else { CallAction::Call };
        let (own, line) = (known.frame, known.line(code, offset));
        tracer.event(action, own, |_| (own, line));
        true
    }
}

/// Records that the frame of a function that calls nothing ends.
///
/// # Safety
/// As for [`evaluate`]; `result` is what the frame returned.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn end_leaf(frame: *const u8, result: *mut ffi::PyObject) {
    // SAFETY: the caller's promise: whoever asked for the frame clears it later.
    unsafe {
        let (code, offset) = layout::place_in(frame);
        if result.is_null() {
            return end_with_exception(code, offset);
        }
        let tracer = state();
        // Another trace may have begun meanwhile.
        let Some(known) = tracer.functions.named_code(code) else { return };
        let is_suspended = known.is_generator && is_yield(code, offset);
        let action = if is_suspended { CallAction::Yield } else { CallAction::Return };
        let (own, line) = (known.frame, known.line(code, offset));
        tracer.event(action, own, |_| (own, line));
    }
}

/// # Safety
/// `code` is the code of a frame that has just ended at `offset`, and the interpreter is attached.
#[cold]
unsafe fn end_with_exception(code: *mut ffi::PyObject, offset: c_int) {
    use std::ptr::null_mut;
    // SAFETY: the caller's promise. The exception is set aside: a new thread that is found may have audit hooks run.
    unsafe {
        let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback);
        let tracer = state();
        if let Some(known) = tracer.functions.named_code(code) {
            let (own, line) = (known.frame, known.line(code, offset));
            tracer.event(CallAction::Exception, own, |_| (own, line));
        }
        ffi::PyErr_Restore(kind, value, traceback);
    }
}

/// Whether our evaluation function is the interpreter's.
fn is_installed() -> bool {
    // SAFETY: the interpreter is attached.
    let current = unsafe { _PyInterpreterState_GetEvalFrameFunc(ffi::PyInterpreterState_Get()) };
    std::ptr::fn_addr_eq(current, evaluate as Evaluate)
}

/// Installs the evaluation function, unless there is another one or the flag is not where it should be.
pub(super) fn install() {
    // SAFETY: the interpreter is attached; the layout of frames and threads is compared with what it says itself.
    unsafe {
        let interpreter = ffi::PyInterpreterState_Get();
        let current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
        let start = ffi::PyThreadState_Get().cast::<ThreadStart>();
        if std::ptr::fn_addr_eq(current, _PyEval_EvalFrameDefault as Evaluate)
            && state().functions.is_layout_known
            && (*(*start).chain).use_tracing == TRACED
            && (*start).is_traced_by(Hook::Profile)
        {
            _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
        }
    }
}

/// Removes the evaluation function.
pub(super) fn remove() {
    if is_installed() {
        // SAFETY: the interpreter is attached.
        unsafe {
            _PyInterpreterState_SetEvalFrameFunc(ffi::PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
        }
    }
}

/// Has all frames run as if there were no evaluation function.
#[cold]
fn give_up() {
    remove();
    for_each_thread(|thread| {
        // SAFETY: the thread's state is alive, and its innermost frame does not change meanwhile.
        unsafe {
            let start = thread.cast::<ThreadStart>();
            if (*start).is_traced_by(Hook::Profile) {
                (*(*start).chain).use_tracing = TRACED;
            }
        }
    });
}

/// Takes the evaluation function away before a frame of a thread without events, if no trace goes on any more or the
/// stack of the thread, which is at `address`, gets short.
#[inline(never)]
fn remove_unless_needed(address: usize) {
    if !is_profiling() {
        remove();
    } else if address < lowest_of_thread() {
        give_up();
    }
}

/// Takes note that the calling thread is now the one of [`CURRENT`].
pub(crate) fn enter_thread() {
    LOWEST.store(lowest_of_thread(), Ordering::Relaxed);
}

/// Returns the address below which the stack of the calling thread may not grow through the evaluation function.
fn lowest_of_thread() -> usize {
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(0) };
    }
    let lowest = OWN.try_with(|own| {
        if own.get() == 0 {
            own.set(middle_of_stack());
        }
        own.get()
    });
    lowest.unwrap_or(usize::MAX)
}

/// Returns the address in the middle of the thread's stack, or the highest one if it is not known.
fn middle_of_stack() -> usize {
    // SAFETY: the system fills both; what it allocates is given back.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return usize::MAX;
        }
        let (mut base, mut bytes) = (std::ptr::null_mut(), 0);
        let result = libc::pthread_attr_getstack(&raw const attributes, &raw mut base, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
        if result == 0 { base.addr() + bytes / 2 } else { usize::MAX }
    }
}
