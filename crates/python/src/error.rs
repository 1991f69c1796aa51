//! Errors as exceptions.
//!
//! Exceptions that a callback raised below a resource come back as they are. They cannot travel through
//! [`AllocError`], so the thread keeps the last one until the allocation that it made fail returns.

use std::cell::RefCell;

use floodmark_resource::{AllocError, OutOfMemory};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

thread_local! {
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps an exception of a callback and returns the error that stands for it.
pub(crate) fn keep(py: Python<'_>, raised: PyErr, bytes: u64, resource: &'static str) -> AllocError {
    let is_memory = raised.is_instance_of::<PyMemoryError>(py);
    let message = raised.value(py).to_string();
    let raised = if is_memory || raised.is_instance_of::<PyRuntimeError>(py) {
        raised
    } else {
        let outer = PyRuntimeError::new_err(message.clone());
        outer.set_cause(py, Some(raised));
        outer
    };
    RAISED.with(|kept| *kept.borrow_mut() = Some(raised));
    if is_memory {
        OutOfMemory { resource, request_bytes: bytes, ..OutOfMemory::default() }.into()
    } else {
        AllocError::Refused { message }
    }
}

/// Forgets exceptions of earlier allocations.
pub(crate) fn forget() {
    RAISED.with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut() {
            *kept = None;
        }
    });
}

/// The exception for an error.
pub(crate) fn raise(error: &AllocError) -> PyErr {
    let from_callback = match error {
        AllocError::Refused { .. } => true,
        AllocError::OutOfMemory(details) => innermost(details).resource == "callback",
        _ => false,
    };
    let kept = if from_callback { RAISED.with(|kept| kept.borrow_mut().take()) } else { None };
    match (kept, error) {
        (Some(raised), _) => raised,
        (None, AllocError::OutOfMemory(_)) => PyMemoryError::new_err(error.to_string()),
        (None, AllocError::Invalid { why, .. }) => PyRuntimeError::new_err(*why),
        (None, _) => PyRuntimeError::new_err(error.to_string()),
    }
}

fn innermost(details: &OutOfMemory) -> &OutOfMemory {
    match details.upstream.as_deref() {
        Some(AllocError::OutOfMemory(upstream)) => innermost(upstream),
        _ => details,
    }
}
