//! `with` blocks without the two objects of methods that Python makes for each.
//!
//! At a `with` statement Python looks `__enter__` and `__exit__` up and has their descriptors bind them to the context
//! manager. For methods of native classes each of the two is an object of the garbage collector, and a third of what such
//! a block costs. Here a bound method is three words, and used again.
#![expect(unsafe_code, reason = "binds methods as descriptors do")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::native_class;

/// A context manager.
///
/// Both functions run without the count that PyO3 keeps of attachments, so references are dropped as `Bound`: a `Py`
/// would be dropped later.
pub(crate) trait WithBlock: PyTypeInfo {
    /// Enters the block; returns what `as` gives a name to.
    fn enter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>>;
    /// Leaves the block, whatever it was left by.
    fn exit(slf: &Bound<'_, Self>) -> PyResult<()>;
}

/// Gives a class `__enter__` and `__exit__`.
pub(crate) fn enable<T: WithBlock>(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<T>();
    class.setattr("__enter__", Method::make(&class, call_enter::<T>)?)?;
    class.setattr("__exit__", Method::make(&class, call_exit::<T>)?)
}

/// What wrappers of functions call before and after each call.
pub(crate) trait Bracket: PyTypeInfo {
    fn begin(slf: &Bound<'_, Self>) -> PyResult<()>;
    fn end(slf: &Bound<'_, Self>) -> PyResult<()>;
}

/// Gives a class the methods `enter` and `leave`, without arguments.
pub(crate) fn enable_bracket<T: Bracket>(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<T>();
    class.setattr("enter", Method::make(&class, call_begin::<T>)?)?;
    class.setattr("leave", Method::make(&class, call_end::<T>)?)
}

/// Defines what Python calls for each method: how many arguments it takes, and what it does.
macro_rules! methods {
    ($($name:ident<$class:ident: $bound:ident>($count:literal, $takes:literal) = $act:expr;)*) => {$(
        unsafe extern "C" fn $name<$class: $bound>(
            method: *mut ffi::PyObject,
            _: *const *mut ffi::PyObject,
            count_and_flags: usize,
            names: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            // SAFETY: the interpreter calls a bound method of the class, attached.
            unsafe { call::<$class>(method, $count, count_and_flags, names, $takes, $act) }
        }
    )*};
}

methods! {
    call_enter<T: WithBlock>(0, "__enter__() takes no arguments") = |slf| T::enter(slf).map(Bound::into_ptr);
    call_exit<T: WithBlock>(3, "__exit__() takes three positional arguments") = |slf| nothing(slf, T::exit);
    call_begin<T: Bracket>(0, "enter() takes no arguments") = |slf| nothing(slf, T::begin);
    call_end<T: Bracket>(0, "leave() takes no arguments") = |slf| nothing(slf, T::end);
}

/// Returns `None` if `act` succeeds.
fn nothing<T>(
    slf: &Bound<'_, T>,
    act: impl FnOnce(&Bound<'_, T>) -> PyResult<()>,
) -> PyResult<*mut ffi::PyObject> {
    act(slf)?;
    Ok(slf.py().None().into_ptr())
}

/// # Safety
/// `method` is a [`BoundMethod`] of an object of class `T`, and the interpreter is attached.
#[inline]
unsafe fn call<T: PyTypeInfo>(
    method: *mut ffi::PyObject,
    expected: ffi::Py_ssize_t,
    count_and_flags: usize,
    names: *mut ffi::PyObject,
    takes: &'static str,
    act: impl FnOnce(&Bound<'_, T>) -> PyResult<*mut ffi::PyObject>,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise; the bound method keeps its object alive.
    let result = unsafe {
        let py = Python::assume_attached();
        if ffi::PyVectorcall_NARGS(count_and_flags) != expected || !names.is_null() {
            Err(PyTypeError::new_err(takes))
        } else {
            act(Bound::ref_from_ptr(py, &(*method.cast::<BoundMethod>()).object).cast_unchecked::<T>())
        }
        .map_err(|error| error.restore(py))
    };
    result.unwrap_or(null_mut())
}

/// A method as a class has it.
#[repr(C)]
struct Method {
    ob_base: ffi::PyObject,
    call_unbound: ffi::vectorcallfunc,
    call_bound: ffi::vectorcallfunc,
    /// The class that it is of, which lives as long as the interpreter.
    class: *mut ffi::PyTypeObject,
    bound_class: *mut ffi::PyTypeObject,
}

impl Method {
    fn make<'py>(class: &Bound<'py, PyType>, call_bound: ffi::vectorcallfunc) -> PyResult<Bound<'py, PyAny>> {
        static METHOD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        static BOUND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = class.py();
        let method = METHOD.get_or_try_init(py, || {
            let get = ffi::PyType_Slot { slot: ffi::Py_tp_descr_get, pfunc: bind as *mut c_void };
            let offset = std::mem::offset_of!(Self, call_unbound);
            native_class::make::<Self>(py, c"floodmark._native.block_method", offset, vec![get])
        })?;
        let bound = BOUND.get_or_try_init(py, || {
            let dealloc = ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: free as *mut c_void };
            let offset = std::mem::offset_of!(BoundMethod, call);
            native_class::make::<BoundMethod>(
                py,
                c"floodmark._native.bound_block_method",
                offset,
                vec![dealloc],
            )
        })?;
        // SAFETY: objects of the class are as large as `Self`, and its fields come after the header.
        unsafe {
            let made = ffi::PyType_GenericAlloc(method.as_ptr().cast(), 0);
            let made = Bound::from_owned_ptr_or_err(py, made)?;
            let this = made.as_ptr().cast::<Self>();
            (*this).call_unbound = call_unbound;
            (*this).call_bound = call_bound;
            (*this).class = class.as_type_ptr();
            (*this).bound_class = bound.as_ptr().cast();
            Ok(made)
        }
    }
}

/// A method of an object.
#[repr(C)]
struct BoundMethod {
    ob_base: ffi::PyObject,
    call: ffi::vectorcallfunc,
    /// The object; the next unused bound method while this one is not used.
    object: *mut ffi::PyObject,
}

/// Bound methods that are not used, and how many. Threads hold the interpreter's lock where they use them.
static UNUSED: AtomicPtr<BoundMethod> = AtomicPtr::new(null_mut());
static UNUSED_COUNT: AtomicUsize = AtomicUsize::new(0);
const MAX_UNUSED: usize = 64;

/// Binds a method to an object: what Python calls to get it as an attribute. `object` is null for an attribute of the
/// class.
unsafe extern "C" fn bind(
    method: *mut ffi::PyObject,
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a `Method` and an object or null, attached. What `UNUSED` has is memory of bound
    // methods, which `PyObject_Init` makes objects again.
    unsafe {
        let this = &*method.cast::<Method>();
        if object.is_null() {
            ffi::Py_INCREF(method);
            return method;
        }
        if ffi::PyObject_TypeCheck(object, this.class) == 0 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"this is a method of another class".as_ptr());
            return null_mut();
        }
        let mut bound = UNUSED.load(Ordering::Relaxed);
        if bound.is_null() {
            bound = ffi::PyType_GenericAlloc(this.bound_class, 0).cast();
            if bound.is_null() {
                return null_mut();
            }
        } else {
            UNUSED.store((*bound).object.cast(), Ordering::Relaxed);
            UNUSED_COUNT.store(UNUSED_COUNT.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            ffi::PyObject_Init(bound.cast(), this.bound_class);
        }
        ffi::Py_INCREF(object);
        (*bound).object = object;
        (*bound).call = this.call_bound;
        bound.cast()
    }
}

/// Takes back a bound method that nothing refers to.
unsafe extern "C" fn free(bound: *mut ffi::PyObject) {
    // SAFETY: the interpreter passes a `BoundMethod` without references. Its object is dropped last: that may run Python
    // code which uses the list.
    unsafe {
        let class = ffi::Py_TYPE(bound);
        let this = bound.cast::<BoundMethod>();
        let object = (*this).object;
        let count = UNUSED_COUNT.load(Ordering::Relaxed);
        if count < MAX_UNUSED {
            (*this).object = UNUSED.load(Ordering::Relaxed).cast();
            UNUSED.store(this, Ordering::Relaxed);
            UNUSED_COUNT.store(count + 1, Ordering::Relaxed);
        } else if let Some(free) = (*class).tp_free {
            free(bound.cast());
        }
        ffi::Py_DECREF(class.cast());
        ffi::Py_XDECREF(object);
    }
}

/// Calls a method as an attribute of its class, with the object as the first argument.
unsafe extern "C" fn call_unbound(
    method: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count_and_flags: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a `Method` and as many arguments, attached.
    unsafe {
        let count = ffi::PyVectorcall_NARGS(count_and_flags) as usize;
        if count == 0 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"this method needs an object".as_ptr());
            return null_mut();
        }
        let bound = bind(method, *arguments, null_mut());
        if bound.is_null() {
            return null_mut();
        }
        let result = ffi::PyObject_Vectorcall(bound, arguments.add(1), count - 1, names);
        ffi::Py_DECREF(bound);
        result
    }
}
