//! What identifies native functions and types that a program calls, and their names.
//!
//! Native functions are known by the definition of the method, which is static; types by their address and, where they
//! can be freed, by the hash of their name: another type may get the address, and has the same frame only if it has the
//! same name.
#![expect(unsafe_code, reason = "reads objects of the interpreter")]

use floodmark_event::tables::Frame;
use floodmark_tail as tail;
use pyo3::ffi;

use super::functions::Attribute;

/// Hash of a name that was not computed yet, as the interpreter keeps it.
const NO_HASH: i64 = -1;

/// Identifies something that is called.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct NativeKey {
    pub(super) address: usize,
    /// Hash of the name of a type that can be freed; 0 for what lives as long as the process.
    name_hash: i64,
}

impl NativeKey {
    const fn of_static(address: usize) -> Self {
        Self { address, name_hash: 0 }
    }

    /// Whether the key identifies one thing; the one of a type whose name has no hash does not.
    pub(super) const fn is_unique(self) -> bool {
        self.name_hash != NO_HASH
    }

    /// Returns the key of an object that is called; not a unique one if [`prepare`] is to be called first.
    ///
    /// # Safety
    /// `callable` is an object, and the interpreter is attached.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub(super) unsafe fn of(callable: *mut ffi::PyObject) -> Self {
        // SAFETY: the caller's promise; objects are read as what their type says they are.
        unsafe {
            let kind = ffi::Py_TYPE(callable);
            if kind == &raw mut ffi::PyCFunction_Type {
                return Self::of_static((*callable.cast::<CFunction>()).definition.addr());
            }
            if kind == &raw mut ffi::PyMethodDescr_Type {
                return Self::of_static((*callable.cast::<ffi::PyMethodDescrObject>()).d_method.addr());
            }
            if kind != &raw mut ffi::PyType_Type && ffi::PyCFunction_Check(callable) != 0 {
                return Self::of_static((*callable.cast::<CFunction>()).definition.addr());
            }
            let named = called_type(callable);
            // An odd address, because a call of an instance is not one of its type.
            let address = named.addr() | usize::from(named == kind);
            if (*named).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
                return Self::of_static(address);
            }
            let name = (*named.cast::<ffi::PyHeapTypeObject>()).ht_qualname;
            Self { address, name_hash: (*name.cast::<ffi::PyASCIIObject>()).hash as i64 }
        }
    }
}

/// Has the name of a type compute its hash, which it keeps. A name that is no plain string is left alone: its hash may
/// run code of the program.
///
/// # Safety
/// As for [`NativeKey::of`].
pub(super) unsafe fn prepare(callable: *mut ffi::PyObject) {
    // SAFETY: the caller's promise.
    unsafe {
        let named = called_type(callable);
        if (*named).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 {
            let name = (*named.cast::<ffi::PyHeapTypeObject>()).ht_qualname;
            if ffi::PyUnicode_CheckExact(name) != 0 {
                ffi::PyObject_Hash(name);
            }
        }
    }
}

/// Returns the type that is called, or that of an object which is.
///
/// # Safety
/// `callable` is an object.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn called_type(callable: *mut ffi::PyObject) -> *mut ffi::PyTypeObject {
    // SAFETY: the caller's promise.
    unsafe { if ffi::PyType_Check(callable) != 0 { callable.cast() } else { ffi::Py_TYPE(callable) } }
}

/// The start of an object of a native function.
#[repr(C)]
struct CFunction {
    ob_base: ffi::PyObject,
    definition: *mut ffi::PyMethodDef,
    self_object: *mut ffi::PyObject,
    module: *mut ffi::PyObject,
}

/// Names something that is called.
///
/// # Safety
/// `callable` is an object, and the interpreter is attached.
pub(super) unsafe fn frame_of(callable: *mut ffi::PyObject) -> Frame {
    // SAFETY: the caller's promise. None of these runs Python code: attributes of native functions and descriptors
    // are computed by the interpreter.
    unsafe {
        let is_function = ffi::PyCFunction_Check(callable) != 0;
        let (function, module);
        if is_function || ffi::Py_TYPE(callable) == &raw mut ffi::PyMethodDescr_Type {
            function = Attribute::of(callable, c"__qualname__");
            module = if is_function {
                Attribute::borrowed((*callable.cast::<CFunction>()).module)
            } else {
                Attribute::none()
            };
        } else {
            function = Attribute::owned(ffi::PyType_GetQualName(called_type(callable)));
            module = Attribute::none();
        }
        Frame {
            function: tail::intern(function.text()),
            module: tail::intern(module.text()),
            ..Frame::default()
        }
    }
}
