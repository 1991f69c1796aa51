//! Scopes of asynchronous tasks.
//!
//! Tasks take turns on a thread, so a block that one of them is in must not count what another one allocates. Inside an
//! event loop a block is therefore kept in a context variable, which every task has for itself and passes on to the
//! tasks it starts; each allocation looks there for the blocks that it belongs to.
//!
//! Invariant: while no such block is open in the process, an allocation only reads a counter.
#![expect(unsafe_code, reason = "asks which modules are loaded")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use floodmark_resource::ProfiledTask;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Blocks that are open in all tasks.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A block that a task is in, and the one around it.
#[pyclass(frozen, module = "floodmark._native")]
pub(crate) struct TaskScope {
    /// Identifies the context that opened it.
    key: usize,
    /// None once it was left; tasks that it started may still refer to it.
    task: Mutex<Option<ProfiledTask>>,
    outer: Option<Py<Self>>,
}

/// The context variable with the innermost block.
fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || {
        let named = PyDict::new(py);
        named.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        class.call(("floodmark_scope",), Some(&named)).map(Bound::unbind)
    };
    VARIABLE.get_or_try_init(py, make).map(|variable| variable.bind(py))
}

fn innermost(py: Python<'_>) -> PyResult<Option<Py<TaskScope>>> {
    let value = variable(py)?.call_method0(intern!(py, "get"))?;
    if value.is_none() { Ok(None) } else { Ok(Some(value.cast_into::<TaskScope>()?.unbind())) }
}

/// Whether the calling thread runs an event loop.
pub(crate) fn is_in_event_loop(py: Python<'_>) -> PyResult<bool> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(function) = RUNNING.get(py) {
        return Ok(!function.bind(py).call0()?.is_none());
    }
    // SAFETY: the interpreter is attached, and the dictionary of modules lives as long as it.
    let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
    if !modules.cast::<PyDict>()?.contains(intern!(py, "asyncio.events"))? {
        return Ok(false);
    }
    let function = py.import("asyncio.events")?.getattr("_get_running_loop")?.unbind();
    let function = RUNNING.get_or_init(py, || function);
    Ok(!function.bind(py).call0()?.is_none())
}

/// Enters a block of the running task.
pub(crate) fn enter(py: Python<'_>, key: usize, task: ProfiledTask) -> PyResult<()> {
    let outer = innermost(py)?;
    let scope = Py::new(py, TaskScope { key, task: Mutex::new(Some(task)), outer })?;
    variable(py)?.call_method1(intern!(py, "set"), (scope,))?;
    OPEN.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Whether any task is in a block.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// Leaves the innermost block of the running task that `key` entered; returns whether there is one.
pub(crate) fn leave(py: Python<'_>, key: usize) -> PyResult<bool> {
    let mut next = innermost(py)?;
    let is_innermost = next.as_ref().is_some_and(|scope| scope.get().key == key);
    while let Some(scope) = next {
        let this = scope.get();
        if this.key == key
            && let Some(task) = this.task.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            drop(task);
            if is_innermost {
                let outer = this.outer.as_ref().map(|outer| outer.clone_ref(py));
                variable(py)?.call_method1(intern!(py, "set"), (outer,))?;
            }
            return Ok(true);
        }
        next = this.outer.as_ref().map(|outer| outer.clone_ref(py));
    }
    Ok(false)
}

/// Runs `act`, which allocates, in the blocks of the running task.
#[inline]
pub(crate) fn within<T>(py: Python<'_>, act: impl FnOnce() -> T) -> T {
    if OPEN.load(Ordering::Relaxed) == 0 { act() } else { within_blocks(py, act) }
}

#[cold]
fn within_blocks<T>(py: Python<'_>, act: impl FnOnce() -> T) -> T {
    let mut chain = Vec::new();
    let mut next = innermost(py).unwrap_or_default();
    while let Some(scope) = next {
        next = scope.get().outer.as_ref().map(|outer| outer.clone_ref(py));
        chain.push(scope);
    }
    // The outermost first, as they were entered.
    let steps: Vec<_> = chain
        .iter()
        .rev()
        .map(|scope| {
            let task = scope.get().task.lock().unwrap_or_else(PoisonError::into_inner);
            task.as_ref().map(ProfiledTask::step)
        })
        .collect();
    let result = act();
    // The innermost first.
    steps.into_iter().rev().for_each(drop);
    result
}
