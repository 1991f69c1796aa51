//! Callbacks of `sys.monitoring`, all threads of the interpreter at once.
//!
//! The interpreter calls them by the vectorcall protocol, without what it does around functions of modules. It passes
//! borrowed arguments; `None` and `DISABLE` are immortal or kept.
#![expect(unsafe_code, reason = "the interpreter calls these functions")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use floodmark_event::CallAction;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::native_class;
use crate::trace::state;

type Arguments = *const *mut ffi::PyObject;

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

/// Takes an event of the function that runs `code`; `line_otherwise` returns the line of an instruction that has none.
///
/// # Safety
/// The interpreter calls it with a code object and an offset.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn own_event(action: CallAction, arguments: Arguments, line_otherwise: impl FnOnce() -> u32) -> bool {
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
        let (frame, mut line) = (known.frame, known.line(code, offset_of(*arguments.add(1))));
        if line == 0 {
            line = line_otherwise();
        }
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
            _: usize,
            _: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            // SAFETY: the interpreter's promise.
            if unsafe { own_event(CallAction::$action, arguments, || 0) } { none() } else { $hidden() }
        }
    )*};
}

own_callbacks! {
    on_start = Call, disable;
    on_resume = Resume, disable;
    on_return = Return, disable;
    on_yield = Yield, disable;
    // Cannot be disabled at a location, like the next one.
    on_throw = Resume, none;
}

unsafe extern "C" fn on_unwind(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a code object, an offset and the exception.
    unsafe {
        own_event(CallAction::Exception, arguments, || raised_line(*arguments, *arguments.add(2)));
    }
    none()
}

/// Returns the line of `code` that an exception came through: where the interpreter raises it again itself, as at the end
/// of generators, the instruction has none. 0 if that is not known.
///
/// # Safety
/// These are a code object and an exception that leaves it, and the interpreter is attached.
#[cold]
unsafe fn raised_line(code: *mut ffi::PyObject, exception: *mut ffi::PyObject) -> u32 {
    // SAFETY: the caller's promise; a traceback has a frame as long as it lives, and a frame its code. Attributes are not
    // asked for, because that runs hooks of audits.
    unsafe {
        if ffi::PyExceptionInstance_Check(exception) == 0 {
            return 0;
        }
        let traceback = ffi::PyException_GetTraceback(exception);
        if traceback.is_null() {
            return 0;
        }
        let entry = &*traceback.cast::<ffi::PyTracebackObject>();
        let own = ffi::PyFrame_GetCode(entry.tb_frame);
        // The latest entry is that of the function which the exception leaves.
        let is_own = std::ptr::eq(own.cast(), code);
        let line = if is_own { ffi::PyCode_Addr2Line(own, entry.tb_lasti) } else { 0 };
        ffi::Py_DECREF(own.cast());
        ffi::Py_DECREF(traceback);
        u32::try_from(line).unwrap_or(0)
    }
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
    _: usize,
    _: *mut ffi::PyObject,
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
            _: usize,
            _: *mut ffi::PyObject,
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
    _: usize,
    _: *mut ffi::PyObject,
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
    _: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise.
    if unsafe { leave(arguments) } { none() } else { disable() }
}

unsafe extern "C" fn on_leave_by_exception(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: usize,
    _: *mut ffi::PyObject,
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
    let of_lines: [(&'static str, ffi::vectorcallfunc); 4] = [
        ("LINE", on_line),
        ("PY_RETURN", on_leave),
        ("PY_YIELD", on_leave),
        ("PY_UNWIND", on_leave_by_exception),
    ];
    let of_calls: [(&'static str, ffi::vectorcallfunc); 9] = [
        ("PY_START", on_start),
        ("PY_RESUME", on_resume),
        ("PY_RETURN", on_return),
        ("PY_YIELD", on_yield),
        ("PY_UNWIND", on_unwind),
        ("PY_THROW", on_throw),
        ("CALL", on_call),
        ("C_RETURN", on_native_return),
        ("C_RAISE", on_native_raise),
    ];
    let all = if lines { &of_lines[..] } else { &of_calls[..] };
    let class = callback_class(py)?;
    all.iter().map(|(event, function)| Ok((*event, Callback::make(class, *function)?))).collect()
}

/// An object that the interpreter calls at events.
#[repr(C)]
struct Callback {
    ob_base: ffi::PyObject,
    function: ffi::vectorcallfunc,
}

impl Callback {
    fn make(class: &Bound<'_, PyType>, function: ffi::vectorcallfunc) -> PyResult<Py<PyAny>> {
        // SAFETY: the class is that of `callback_class`, whose objects are as large as `Self`.
        unsafe {
            let made = ffi::PyType_GenericAlloc(class.as_type_ptr(), 0);
            let made = Bound::from_owned_ptr_or_err(class.py(), made)?;
            (&raw mut (*made.as_ptr().cast::<Self>()).function).write(function);
            Ok(made.unbind())
        }
    }
}

/// Returns the class of [`Callback`].
fn callback_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let offset = std::mem::offset_of!(Callback, function);
        native_class::make::<Callback>(py, c"floodmark._native.Callback", offset, Vec::new())
    })?;
    Ok(class.bind(py))
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
