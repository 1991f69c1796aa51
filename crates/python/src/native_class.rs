//! Classes whose objects Python calls by the vectorcall protocol, made without PyO3: it has no such classes.
#![expect(unsafe_code, reason = "describes classes to the interpreter")]

use std::ffi::{CStr, c_int, c_uint, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Makes a class of objects that are laid out as `T`, which has the function that calls it at `vectorcall_offset`. Python
/// code cannot make objects of it.
pub(crate) fn make<T>(
    py: Python<'_>,
    name: &'static CStr,
    vectorcall_offset: usize,
    mut slots: Vec<ffi::PyType_Slot>,
) -> PyResult<Py<PyType>> {
    // The interpreter does not copy them: they live as long as the process.
    let members = Box::leak(Box::new([
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: vectorcall_offset as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: std::ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ]));
    slots.extend([
        ffi::PyType_Slot { slot: ffi::Py_tp_call, pfunc: ffi::PyVectorcall_Call as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_members, pfunc: members.as_mut_ptr().cast() },
        ffi::PyType_Slot::default(),
    ]);
    let flags =
        ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_VECTORCALL | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: size_of::<T>() as c_int,
        itemsize: 0,
        flags: flags as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete; the result is a new class or null.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }?;
    Ok(made.cast_into::<PyType>()?.unbind())
}
