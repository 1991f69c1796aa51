//! The profile function of Python 3.11, or its trace function for lines, which every thread has for itself.
#![expect(unsafe_code, reason = "the interpreter calls this function")]

use std::ffi::c_int;
use std::ptr::null_mut;

use floodmark_event::CallAction;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::leaves;
use crate::trace::{layout, state};

unsafe extern "C" {
    /// Set the profile function and the trace function of a thread; exported by CPython 3.11 for the use of profilers.
    fn _PyEval_SetProfile(
        thread: *mut ffi::PyThreadState,
        function: Option<ffi::Py_tracefunc>,
        argument: *mut ffi::PyObject,
    ) -> c_int;
    fn _PyEval_SetTrace(
        thread: *mut ffi::PyThreadState,
        function: Option<ffi::Py_tracefunc>,
        argument: *mut ffi::PyObject,
    ) -> c_int;
}

/// The start of a thread's state in Python 3.11.
#[repr(C)]
pub(super) struct ThreadStart {
    links: [usize; 3],
    flags: [c_int; 2],
    /// How many frames more there may be.
    recursion_remaining: c_int,
    recursion_limits: [c_int; 2],
    /// How many profile and trace functions of the thread are running.
    tracing: c_int,
    event: c_int,
    /// Where its innermost frames are, and how they run.
    pub(super) chain: *mut FrameChain,
    profile: Option<ffi::Py_tracefunc>,
    trace: Option<ffi::Py_tracefunc>,
}

/// What the interpreter keeps of the frames that run in one call of it.
#[repr(C)]
pub(super) struct FrameChain {
    /// 255 if there is a profile or trace function to call, else 0.
    pub(super) use_tracing: u8,
}

impl ThreadStart {
    /// Whether our function, and no other, is called at the events of the thread.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) fn is_traced_by(&self, hook: Hook) -> bool {
        let (own, other) = match hook {
            Hook::Profile => (self.profile, self.trace),
            Hook::Trace => (self.trace, self.profile),
        };
        let is_ours = own.is_some_and(|function| std::ptr::fn_addr_eq(function, hook.ours()));
        is_ours && other.is_none() && self.tracing == 0
    }

    /// Whether the interpreter lets another frame begin.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) fn can_recurse(&self) -> bool {
        self.recursion_remaining > 0
    }

    /// What the interpreter would set `use_tracing` to.
    pub(super) fn flag(&self) -> u8 {
        if self.tracing == 0 && (self.profile.is_some() || self.trace.is_some()) { 255 } else { 0 }
    }
}

/// Which of the two functions of threads is ours.
#[derive(Clone, Copy)]
pub(super) enum Hook {
    Profile,
    Trace,
}

impl Hook {
    fn ours(self) -> ffi::Py_tracefunc {
        match self {
            Self::Profile => on_event,
            Self::Trace => on_line,
        }
    }

    /// # Safety
    /// The thread's state is alive, and the interpreter attached.
    unsafe fn get(self, thread: *mut ffi::PyThreadState) -> Option<ffi::Py_tracefunc> {
        // SAFETY: the caller's promise; `install_profile` checks the layout.
        unsafe {
            match self {
                Self::Profile => (*thread.cast::<ThreadStart>()).profile,
                Self::Trace => (*thread.cast::<ThreadStart>()).trace,
            }
        }
    }

    /// Sets the function of a thread, unless an audit hook of the program refuses that.
    ///
    /// # Safety
    /// As for [`get`](Self::get); no exception is set.
    unsafe fn set(
        self,
        thread: *mut ffi::PyThreadState,
        function: Option<ffi::Py_tracefunc>,
    ) -> PyResult<()> {
        // SAFETY: the caller's promise.
        let result = unsafe {
            match self {
                Self::Profile => _PyEval_SetProfile(thread, function, null_mut()),
                Self::Trace => _PyEval_SetTrace(thread, function, null_mut()),
            }
        };
        // SAFETY: the interpreter is attached.
        if result == 0 { Ok(()) } else { Err(PyErr::fetch(unsafe { Python::assume_attached() })) }
    }

    /// # Safety
    /// As for [`get`](Self::get).
    unsafe fn is_ours(self, thread: *mut ffi::PyThreadState) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.get(thread) }.is_some_and(|function| std::ptr::fn_addr_eq(function, self.ours()))
    }
}

/// The highest number of a thread that has our function, and which one; under the interpreter's lock.
struct Latest(std::cell::Cell<u64>, std::cell::Cell<Hook>);
// SAFETY: used by threads that hold the interpreter's lock alone.
unsafe impl Sync for Latest {}
static LATEST: Latest = Latest(std::cell::Cell::new(u64::MAX), std::cell::Cell::new(Hook::Profile));

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
        let tracer = state();
        let (code, offset) = if tracer.functions.is_layout_known {
            layout::place_of(frame)
        } else {
            let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
            ffi::Py_DECREF(code);
            (code, ffi::PyFrame_GetLasti(frame))
        };
        let (own, line, is_generator) = match tracer.functions.code(code) {
            Some(known) if known.is_hidden => return 0,
            Some(known) => (known.frame, known.line(code, offset), known.is_generator),
            None => (0, 0, false),
        };
        let action = match what {
            ffi::PyTrace_C_CALL => CallAction::CCall,
            ffi::PyTrace_C_RETURN => CallAction::CReturn,
            ffi::PyTrace_C_EXCEPTION => CallAction::CException,
            ffi::PyTrace_CALL if is_generator && is_suspended(code, offset) => CallAction::Resume,
            ffi::PyTrace_CALL => CallAction::Call,
            ffi::PyTrace_RETURN if argument.is_null() => CallAction::Exception,
            ffi::PyTrace_RETURN if is_generator && is_yield(code, offset) => CallAction::Yield,
            ffi::PyTrace_RETURN => CallAction::Return,
            _ => return 0,
        };
        let is_native = matches!(action, CallAction::CCall | CallAction::CReturn | CallAction::CException);
        tracer
            .event(action, own, |functions| (if is_native { functions.native(argument) } else { own }, line));
        0
    }
}

/// Takes an event of lines.
unsafe extern "C" fn on_line(
    _: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    _: *mut ffi::PyObject,
) -> c_int {
    if what != ffi::PyTrace_LINE && what != ffi::PyTrace_RETURN {
        return 0;
    }
    // SAFETY: the interpreter passes the frame that runs; its code lives as long as it.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
        ffi::Py_DECREF(code);
        let tracer = state();
        if tracer.functions.code(code).is_some_and(|known| known.is_hidden) {
            return 0;
        }
        if what == ffi::PyTrace_LINE {
            tracer.line_event(ffi::PyFrame_GetLineNumber(frame) as u32);
        } else {
            tracer.leave_event();
        }
    }
    0
}

const YIELD_VALUE: u8 = 86;

/// Returns the instruction at `offset` and its argument.
///
/// # Safety
/// `code` is a code object, and the offset is that of one of its instructions.
unsafe fn instruction(code: *mut ffi::PyObject, offset: c_int) -> [u8; 2] {
    /// Where Python 3.11 keeps the instructions of a code object.
    const INSTRUCTIONS_OFFSET: usize = 184;
    // SAFETY: the caller's promise; an instruction has two bytes.
    unsafe { *code.cast::<u8>().add(INSTRUCTIONS_OFFSET + offset.max(0) as usize).cast() }
}

/// Whether the instruction at `offset` suspends a generator.
///
/// # Safety
/// As for [`instruction`].
pub(super) unsafe fn is_yield(code: *mut ffi::PyObject, offset: c_int) -> bool {
    // SAFETY: the caller's promise.
    unsafe { instruction(code, offset)[0] == YIELD_VALUE }
}

/// Whether a generator that is called was suspended, and does not begin.
///
/// # Safety
/// As for [`instruction`].
pub(super) unsafe fn is_suspended(code: *mut ffi::PyObject, offset: c_int) -> bool {
    // SAFETY: the caller's promise.
    let [opcode, argument] = unsafe { instruction(code, offset) };
    // One that goes on is at an instruction that says after which kind of suspension it does, 0 being the beginning; one
    // that is thrown into is where it was suspended, or where it was made.
    opcode == YIELD_VALUE || argument != 0
}

/// Calls `each` with all threads of the interpreter.
pub(super) fn for_each_thread(mut each: impl FnMut(*mut ffi::PyThreadState)) {
    // SAFETY: the interpreter is attached, so no thread ends meanwhile.
    unsafe {
        let mut thread = ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Get());
        while !thread.is_null() {
            each(thread);
            thread = ffi::PyThreadState_Next(thread);
        }
    }
}

/// Whether a trace goes on that has our function called.
pub(super) fn is_profiling() -> bool {
    LATEST.0.get() != u64::MAX
}

/// Gives threads that have begun since the last call our function.
pub(crate) fn poll() {
    let (latest, hook) = (LATEST.0.get(), LATEST.1.get());
    if latest == u64::MAX {
        return;
    }
    for_each_thread(|thread| {
        // SAFETY: the thread's state is alive, see above.
        let id = unsafe { ffi::PyThreadState_GetID(thread) } as u64;
        if id > latest {
            LATEST.0.set(LATEST.0.get().max(id));
            // SAFETY: as above; a thread that has a function of its own keeps it.
            unsafe {
                if hook.get(thread).is_none() {
                    // The program that is running now has not asked for it: it gets no exception if that is refused.
                    drop(hook.set(thread, Some(hook.ours())));
                }
            }
        }
    });
}

/// Set the profile function of all threads, or their trace function for lines; they must have none.
#[pyfunction]
pub(crate) fn install_profile(lines: bool) -> PyResult<()> {
    let hook = if lines { Hook::Trace } else { Hook::Profile };
    // SAFETY: the interpreter is attached. The layout of a thread's state is checked with our own function.
    unsafe {
        let own = ffi::PyThreadState_Get();
        hook.set(own, Some(hook.ours()))?;
        if !hook.is_ours(own) {
            hook.set(own, None)?;
            return Err(PyRuntimeError::new_err(
                "this build of Python lays threads out in a way that is not known",
            ));
        }
    }
    LATEST.0.set(0);
    LATEST.1.set(hook);
    poll();
    if !lines {
        leaves::install();
    }
    Ok(())
}

/// Take the first event of a thread that `threading` started, and give the thread our function.
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
        let hook = LATEST.1.get();
        drop(hook.set(ffi::PyThreadState_Get(), Some(hook.ours())));
        // What set this function is still to return; that is no call of the program's.
        if what == ffi::PyTrace_CALL {
            hook.ours()(null_mut(), frame.as_ptr().cast(), what, arg.as_ptr());
        }
    }
}

/// Remove our function from all threads; return whether the calling thread still had it.
#[pyfunction]
pub(crate) fn remove_profile() -> bool {
    LATEST.0.set(u64::MAX);
    leaves::remove();
    // SAFETY: the interpreter is attached, so threads do not end meanwhile.
    unsafe {
        let hook = LATEST.1.get();
        let had = hook.is_ours(ffi::PyThreadState_Get());
        for_each_thread(|thread| {
            if hook.is_ours(thread) {
                // Refused: the function stays, and finds that no trace goes on.
                drop(hook.set(thread, None));
            }
        });
        had
    }
}

/// Return the callbacks of `sys.monitoring`.
#[pyfunction]
pub(crate) fn monitoring_callbacks(
    disable: Py<PyAny>,
    lines: bool,
) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
    let _ = (disable, lines);
    Err(PyRuntimeError::new_err("this version of Python has no sys.monitoring"))
}
