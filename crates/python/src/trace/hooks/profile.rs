//! The profile function of Python 3.11, which every thread has for itself.
#![expect(unsafe_code, reason = "the interpreter calls this function")]

use std::ffi::c_int;
use std::ptr::null_mut;

use floodmark_event::CallAction;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::trace::state;

unsafe extern "C" {
    /// Sets the profile function of a thread; exported by CPython 3.11 for the use of profilers.
    fn _PyEval_SetProfile(
        thread: *mut ffi::PyThreadState,
        function: Option<ffi::Py_tracefunc>,
        argument: *mut ffi::PyObject,
    ) -> c_int;
}

/// The start of a thread's state in Python 3.11.
#[repr(C)]
struct ThreadStart {
    links: [usize; 3],
    numbers: [c_int; 7],
    cframe: usize,
    profile: Option<ffi::Py_tracefunc>,
}

/// The highest number of a thread that has the profile function; under the interpreter's lock.
struct Latest(std::cell::Cell<u64>);
// SAFETY: used by threads that hold the interpreter's lock alone.
unsafe impl Sync for Latest {}
static LATEST: Latest = Latest(std::cell::Cell::new(u64::MAX));

/// Takes an event.
unsafe extern "C" fn on_event(
    _: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    argument: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: the interpreter passes the frame that runs and, for native functions, what is called. The code lives
    // as long as its frame.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
        ffi::Py_DECREF(code);
        let offset = ffi::PyFrame_GetLasti(frame);
        let tracer = state();
        let (own, line, is_generator) = match tracer.functions.code(code) {
            Some(known) if known.is_hidden => return 0,
            Some(known) => (known.frame, known.line(code, offset), known.is_generator),
            None => (0, 0, false),
        };
        let action = match what {
            ffi::PyTrace_CALL if is_generator && offset >= 0 => CallAction::Resume,
            ffi::PyTrace_CALL => CallAction::Call,
            ffi::PyTrace_RETURN if argument.is_null() => CallAction::Exception,
            ffi::PyTrace_RETURN if is_generator && is_yield(code, offset) => CallAction::Yield,
            ffi::PyTrace_RETURN => CallAction::Return,
            ffi::PyTrace_C_CALL => CallAction::CCall,
            ffi::PyTrace_C_RETURN => CallAction::CReturn,
            ffi::PyTrace_C_EXCEPTION => CallAction::CException,
            _ => return 0,
        };
        match what {
            ffi::PyTrace_CALL | ffi::PyTrace_RETURN => tracer.event(action, own, |_| (own, line)),
            _ => tracer.event(action, own, |functions| (functions.native(argument), line)),
        }
        0
    }
}

/// Whether the instruction at `offset` suspends a generator.
///
/// # Safety
/// `code` is a code object.
unsafe fn is_yield(code: *mut ffi::PyObject, offset: c_int) -> bool {
    const YIELD_VALUE: u8 = 86;
    /// Where Python 3.11 keeps the instructions of a code object.
    const INSTRUCTIONS_OFFSET: usize = 184;
    // SAFETY: the offset is that of an instruction of the code.
    let opcode = unsafe { *code.cast::<u8>().add(INSTRUCTIONS_OFFSET + offset.max(0) as usize) };
    opcode == YIELD_VALUE
}

/// Calls `each` with all threads of the interpreter.
fn for_each_thread(mut each: impl FnMut(*mut ffi::PyThreadState)) {
    // SAFETY: the interpreter is attached, so no thread ends meanwhile.
    unsafe {
        let mut thread = ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Get());
        while !thread.is_null() {
            each(thread);
            thread = ffi::PyThreadState_Next(thread);
        }
    }
}

/// Gives threads that have begun since the last call the profile function.
pub(crate) fn poll() {
    let latest = LATEST.0.get();
    if latest == u64::MAX {
        return;
    }
    for_each_thread(|thread| {
        // SAFETY: the thread's state is alive, see above.
        let id = unsafe { ffi::PyThreadState_GetID(thread) } as u64;
        if id > latest {
            LATEST.0.set(LATEST.0.get().max(id));
            // SAFETY: as above; a thread that has a profile function of its own keeps it.
            unsafe {
                if (*thread.cast::<ThreadStart>()).profile.is_none() {
                    _PyEval_SetProfile(thread, Some(on_event), null_mut());
                }
            }
        }
    });
}

/// Set the profile function of all threads, which must have none.
#[pyfunction]
pub(crate) fn install_profile() -> PyResult<()> {
    // SAFETY: the interpreter is attached. The layout of a thread's state is checked with our own function.
    unsafe {
        ffi::PyEval_SetProfile(Some(on_event), null_mut());
        let own = ffi::PyThreadState_Get().cast::<ThreadStart>();
        if !is_ours((*own).profile) {
            ffi::PyEval_SetProfile(None, null_mut());
            return Err(PyRuntimeError::new_err(
                "this build of Python lays threads out in a way that is not known",
            ));
        }
    }
    LATEST.0.set(0);
    poll();
    Ok(())
}

fn is_ours(function: Option<ffi::Py_tracefunc>) -> bool {
    function.is_some_and(|function| std::ptr::fn_addr_eq(function, on_event as ffi::Py_tracefunc))
}

/// Take the first event of a thread that `threading` started, and give the thread its profile function.
#[pyfunction]
pub(crate) fn profile_thread(frame: Bound<'_, PyAny>, event: &str, arg: Bound<'_, PyAny>) {
    let what = match event {
        "call" => ffi::PyTrace_CALL,
        "return" => ffi::PyTrace_RETURN,
        "c_call" => ffi::PyTrace_C_CALL,
        "c_return" => ffi::PyTrace_C_RETURN,
        "c_exception" => ffi::PyTrace_C_EXCEPTION,
        _ => return,
    };
    // SAFETY: the interpreter calls it as a profile function of this thread, with a frame and what belongs to the event.
    unsafe {
        if LATEST.0.get() == u64::MAX
            || ffi::PyObject_TypeCheck(frame.as_ptr(), &raw mut ffi::PyFrame_Type) == 0
        {
            return;
        }
        ffi::PyEval_SetProfile(Some(on_event), null_mut());
        // What set this function is still to return; that is no call of the program's.
        if what == ffi::PyTrace_CALL {
            on_event(null_mut(), frame.as_ptr().cast(), what, arg.as_ptr());
        }
    }
}

/// Remove the profile function of all threads; return whether the calling thread still had it.
#[pyfunction]
pub(crate) fn remove_profile() -> bool {
    LATEST.0.set(u64::MAX);
    // SAFETY: the interpreter is attached, so threads do not end meanwhile.
    unsafe {
        let had = is_ours((*ffi::PyThreadState_Get().cast::<ThreadStart>()).profile);
        for_each_thread(|thread| {
            if is_ours((*thread.cast::<ThreadStart>()).profile) {
                _PyEval_SetProfile(thread, None, null_mut());
            }
        });
        had
    }
}

/// Return the callbacks of `sys.monitoring`.
#[pyfunction]
pub(crate) fn monitoring_callbacks(disable: Py<PyAny>) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
    drop(disable);
    Err(PyRuntimeError::new_err("this version of Python has no sys.monitoring"))
}
