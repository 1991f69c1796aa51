//! Callbacks of `sys.monitoring`, all threads of the interpreter at once.
//!
//! They are raw native functions: the interpreter passes borrowed arguments, and `None` and `DISABLE` are immortal or
//! kept.
#![expect(unsafe_code, reason = "the interpreter calls these functions")]

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use floodmark_event::CallAction;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::trace::state;

type Arguments = *mut *mut ffi::PyObject;

/// What a callback returns to have no more events at a location.
static DISABLE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(null_mut());

unsafe extern "C" {
    static mut PyMethod_Type: ffi::PyTypeObject;
}

/// The start of a bound method.
#[repr(C)]
struct Method {
    ob_base: ffi::PyObject,
    function: *mut ffi::PyObject,
}

/// Reads an argument that is an offset in code: never negative, nearly always one digit.
///
/// # Safety
/// `object` is an `int`.
#[inline]
unsafe fn offset_of(object: *mut ffi::PyObject) -> i32 {
    #[repr(C)]
    struct Int {
        ob_base: ffi::PyObject,
        /// Number of digits, from bit 3 on; 0 in the lower bits for positive numbers, 1 for zero.
        tag: usize,
        digit: u32,
    }
    // SAFETY: the caller's promise; integers are laid out like this from 3.12 on.
    unsafe {
        let int = &*object.cast::<Int>();
        match int.tag {
            8 => int.digit as i32,
            1 => 0,
            _ => ffi::PyLong_AsLong(object) as i32,
        }
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn none() -> *mut ffi::PyObject {
    // SAFETY: `None` is immortal from 3.12 on: it needs no new reference.
    unsafe { ffi::Py_None() }
}

#[cold]
fn disable() -> *mut ffi::PyObject {
    let disable = DISABLE.load(Ordering::Relaxed);
    // SAFETY: kept alive by `monitoring_callbacks`; the caller gets a reference of its own.
    unsafe { ffi::Py_INCREF(disable) };
    disable
}

/// Takes an event of the function that runs `code`.
///
/// # Safety
/// The interpreter calls it with a code object and an offset.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn own_event(action: CallAction, arguments: Arguments) -> bool {
    // SAFETY: the caller's promise; the interpreter is attached.
    unsafe {
        let code = *arguments;
        let tracer = state();
        let Some(known) = tracer.functions.code(code) else {
            tracer.event(action, 0, |_| (0, 0));
            return true;
        };
        if known.is_hidden {
            return false;
        }
        let (frame, line) = (known.frame, known.line(code, offset_of(*arguments.add(1))));
        tracer.event(action, frame, |_| (frame, line));
        true
    }
}

/// Takes an event of a native function that `code` calls.
///
/// # Safety
/// The interpreter calls it with a code object, an offset and what is called.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn native_event(action: CallAction, arguments: Arguments, callable: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise; the interpreter is attached.
    unsafe {
        let code = *arguments;
        let tracer = state();
        let (caller, line) = match tracer.functions.code(code) {
            Some(known) if known.is_hidden => return false,
            Some(known) => (known.frame, known.line(code, offset_of(*arguments.add(1)))),
            None => (0, 0),
        };
        tracer.event(action, caller, |functions| (functions.native(callable), line));
        true
    }
}

macro_rules! own_callbacks {
    ($($name:ident = $action:ident, $hidden:ident;)*) => {$(
        unsafe extern "C" fn $name(
            _: *mut ffi::PyObject,
            arguments: Arguments,
            _: ffi::Py_ssize_t,
        ) -> *mut ffi::PyObject {
            // SAFETY: the interpreter's promise.
            if unsafe { own_event(CallAction::$action, arguments) } { none() } else { $hidden() }
        }
    )*};
}

own_callbacks! {
    on_start = Call, disable;
    on_resume = Resume, disable;
    on_return = Return, disable;
    on_yield = Yield, disable;
    // These two cannot be disabled at a location.
    on_unwind = Exception, none;
    on_throw = Resume, none;
}

/// Returns what is called, without the object that it is bound to; none for a Python function, which has events of its
/// own.
///
/// # Safety
/// `callable` is an object.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn native_of(mut callable: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    // SAFETY: a bound method holds its function.
    unsafe {
        if ffi::Py_TYPE(callable) == &raw mut PyMethod_Type {
            callable = (*callable.cast::<Method>()).function;
        }
        (ffi::PyFunction_Check(callable) == 0).then_some(callable)
    }
}

unsafe extern "C" fn on_call(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a code object, an offset, what is called and its first argument.
    unsafe {
        let Some(callable) = native_of(*arguments.add(2)) else { return none() };
        if native_event(CallAction::CCall, arguments, callable) { none() } else { disable() }
    }
}

macro_rules! native_ends {
    ($($name:ident = $action:ident;)*) => {$(
        unsafe extern "C" fn $name(
            _: *mut ffi::PyObject,
            arguments: Arguments,
            _: ffi::Py_ssize_t,
        ) -> *mut ffi::PyObject {
            // SAFETY: the interpreter passes a code object, an offset and what was called. Neither can be disabled: they
            // come with the call.
            unsafe {
                // The end of a `with` block calls `__exit__` as a bound method, and its return comes here.
                if let Some(callable) = native_of(*arguments.add(2)) {
                    native_event(CallAction::$action, arguments, callable);
                }
            }
            none()
        }
    )*};
}

native_ends! {
    on_native_return = CReturn;
    on_native_raise = CException;
}

unsafe extern "C" fn on_line(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a code object and a line, and is attached.
    unsafe {
        let tracer = state();
        if tracer.functions.code(*arguments).is_some_and(|known| known.is_hidden) {
            return disable();
        }
        tracer.line_event(offset_of(*arguments.add(1)) as u32);
    }
    none()
}

/// # Safety
/// The interpreter calls it with a code object.
unsafe fn leave(arguments: Arguments) -> bool {
    // SAFETY: the caller's promise; the interpreter is attached.
    unsafe {
        let tracer = state();
        if tracer.functions.code(*arguments).is_some_and(|known| known.is_hidden) {
            return false;
        }
        tracer.leave_event();
    }
    true
}

unsafe extern "C" fn on_leave(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise.
    if unsafe { leave(arguments) } { none() } else { disable() }
}

unsafe extern "C" fn on_leave_by_exception(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise.
    unsafe { leave(arguments) };
    none()
}

/// Return the callbacks of `sys.monitoring` by the names of their events, for calls or for lines; `disable` is
/// `sys.monitoring.DISABLE`.
#[pyfunction]
pub(crate) fn monitoring_callbacks(
    py: Python<'_>,
    disable: Py<PyAny>,
    lines: bool,
) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
    // Kept for good: a callback may be running.
    DISABLE.store(disable.into_ptr(), Ordering::Relaxed);
    let of_lines: [(&'static CStr, &'static str, ffi::PyCFunctionFast); 4] = [
        (c"on_line", "LINE", on_line),
        (c"on_leave", "PY_RETURN", on_leave),
        (c"on_leave", "PY_YIELD", on_leave),
        (c"on_leave", "PY_UNWIND", on_leave_by_exception),
    ];
    let of_calls: [(&'static CStr, &'static str, ffi::PyCFunctionFast); 9] = [
        (c"on_start", "PY_START", on_start),
        (c"on_resume", "PY_RESUME", on_resume),
        (c"on_return", "PY_RETURN", on_return),
        (c"on_yield", "PY_YIELD", on_yield),
        (c"on_unwind", "PY_UNWIND", on_unwind),
        (c"on_throw", "PY_THROW", on_throw),
        (c"on_call", "CALL", on_call),
        (c"on_native_return", "C_RETURN", on_native_return),
        (c"on_native_raise", "C_RAISE", on_native_raise),
    ];
    let all = if lines { &of_lines[..] } else { &of_calls[..] };
    all.iter()
        .copied()
        .map(|(name, event, function)| {
            // Definitions of native functions live as long as the process; there are a few per trace.
            let definition = Box::leak(Box::new(ffi::PyMethodDef {
                ml_name: name.as_ptr(),
                ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: function },
                ml_flags: ffi::METH_FASTCALL,
                ml_doc: std::ptr::null(),
            }));
            // SAFETY: the definition lives as long as the process; the result is a new reference or null.
            let made = unsafe { ffi::PyCMethod_New(definition, null_mut(), null_mut(), null_mut()) };
            // SAFETY: as above.
            Ok((event, unsafe { Bound::from_owned_ptr_or_err(py, made) }?.unbind()))
        })
        .collect()
}

/// Not needed: events of an interpreter are those of all its threads.
pub(crate) fn poll() {}

/// Set the profile function of all threads.
#[pyfunction]
pub(crate) fn install_profile(lines: bool) -> PyResult<()> {
    let _ = lines;
    Err(PyRuntimeError::new_err("this version of Python has sys.monitoring"))
}

/// Not needed, as above.
#[pyfunction]
pub(crate) fn profile_thread(frame: Py<PyAny>, event: &str, arg: Py<PyAny>) {
    let _ = (frame, event, arg);
}

/// Remove the profile function of all threads.
#[pyfunction]
pub(crate) fn remove_profile() -> bool {
    true
}
