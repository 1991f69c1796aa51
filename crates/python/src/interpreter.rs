//! Which interpreter may use the module.
#![expect(unsafe_code, reason = "asks the interpreter for its number")]

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Refuses all interpreters of the process but the first that imports the module: resources, which are shared by the
/// whole process, hold Python objects of one.
pub(crate) fn require_first() -> PyResult<()> {
    static FIRST: AtomicI64 = AtomicI64::new(-1);
    // SAFETY: a module is initialized with its interpreter attached.
    let this = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match FIRST.compare_exchange(-1, this, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(first) if first == this => Ok(()),
        Err(_) => Err(PyImportError::new_err(
            "floodmark is in use by another interpreter of this process; subinterpreters are not supported",
        )),
    }
}
