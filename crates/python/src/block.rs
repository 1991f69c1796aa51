//! Context managers that are entered for nearly nothing: scopes of a recording, and scopes of statistics.
//!
//! Each can be open any number of times and on any threads, and each decorates functions.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use floodmark_event::StringId;
use floodmark_tail as tail;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::current;
use crate::resource::Resource;
use crate::vectorcall::{Arguments, FastCall, required};
use crate::with_block::WithBlock;

/// Has `floodmark._decorate` wrap a function in a context manager.
pub(crate) fn decorate<'py>(
    block: Bound<'py, PyAny>,
    func: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = block.py();
    py.import(intern!(py, "floodmark._decorate"))?.call_method1(intern!(py, "decorate"), (block, func))
}

/// A scope that a thread entered in a recording.
struct EnteredScope {
    /// Address of the object that entered it.
    key: usize,
    /// The scope to return to.
    outer: u32,
    /// Whether it was left while a scope inside of it was open, as coroutines do that take turns; it ends with that one.
    is_left: bool,
}

/// What a thread knows of its scopes in a recording.
#[derive(Default)]
struct Scopes {
    recording: u32,
    entered: Vec<EnteredScope>,
    /// Ids of names, each at the place of its string's address: interning takes a system call.
    names: [Option<(Py<PyString>, StringId)>; NAME_SLOTS],
}

/// Names whose strings share a place are interned again when they take turns.
const NAME_SLOTS: usize = 32;

thread_local! {
    static SCOPES: RefCell<Scopes> = RefCell::default();

    /// Scopes that `floodmark.scope(...)` made last, each at the place of its name: a scope is its name only and can be
    /// open any number of times, so `with floodmark.scope("load")` in a loop need not make one each time.
    static MADE: RefCell<[Option<Py<NamedScope>>; NAME_SLOTS]> = const { RefCell::new([const { None }; NAME_SLOTS]) };
}

/// Place of a name among [`NAME_SLOTS`].
fn slot(name: &Bound<'_, PyString>) -> usize {
    (name.as_ptr().addr() >> 4) % NAME_SLOTS
}

impl Scopes {
    fn enter(&mut self, recording: u32, key: usize, name: &Bound<'_, PyString>) -> PyResult<()> {
        if self.recording != recording {
            *self = Self { recording, ..Self::default() };
        }
        let slot = &mut self.names[slot(name)];
        let id = match slot {
            Some((known, id)) if known.is(name) => *id,
            _ => {
                let id = tail::intern(name.to_str()?);
                *slot = Some((name.clone().unbind(), id));
                id
            }
        };
        self.entered.push(EnteredScope { key, outer: tail::enter_scope(id), is_left: false });
        Ok(())
    }
}

/// Name what the calling thread does in a block or in a function; no effect while nothing is recorded.
///
/// >>> import floodmark
/// >>> with floodmark.scope("load"):
/// ...     buffer = floodmark.DeviceBuffer(size=1000)
/// >>> @floodmark.scope("work")
/// ... def work():
/// ...     return floodmark.DeviceBuffer(size=1000)
/// >>> len(work())
/// 1000
#[pyclass(frozen, weakref, name = "scope", module = "floodmark.recording")]
pub(crate) struct NamedScope {
    name: Py<PyString>,
}

impl NamedScope {
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[pymethods]
impl NamedScope {
    #[new]
    fn new(name: Py<PyString>) -> Self {
        Self { name }
    }

    /// Name of the scope.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    fn __call__<'py>(slf: Bound<'py, Self>, func: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        decorate(slf.into_any(), func)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("floodmark.scope({})", self.name.bind(py).repr()?))
    }
}

impl WithBlock for NamedScope {
    fn enter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let recording = tail::recording();
        if recording != 0 {
            let (key, name) = (slf.get().key(), slf.get().name.bind(slf.py()));
            SCOPES.with_borrow_mut(|scopes| scopes.enter(recording, key, name))?;
        }
        Ok(slf.as_any().clone())
    }

    fn exit(slf: &Bound<'_, Self>) -> PyResult<()> {
        SCOPES.with_borrow_mut(|scopes| {
            let is_own = |scope: &EnteredScope| scope.key == slf.get().key() && !scope.is_left;
            if let Some(at) = scopes.entered.iter().rposition(is_own) {
                scopes.entered[at].is_left = true;
            }
            while let Some(scope) = scopes.entered.pop_if(|scope| scope.is_left) {
                if scopes.recording == tail::recording() {
                    tail::exit_scope(scope.outer);
                }
            }
        });
        Ok(())
    }
}

impl FastCall for NamedScope {
    fn call(arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = arguments.py;
        let [name] = arguments.parse("scope", 1, || [intern!(py, "name")])?;
        let name = required("scope", "name", name)?.cast::<PyString>()?;
        let known = MADE.try_with(|made| {
            let scope =
                made.borrow()[slot(name)].as_ref().filter(|scope| scope.get().name.is(name))?.clone_ref(py);
            Some(scope)
        });
        if let Ok(Some(scope)) = known {
            return Ok(scope.into_any());
        }
        let scope = Py::new(py, Self { name: name.clone().unbind() })?;
        // The scope that had the place may call Python when it is dropped, so it is dropped at the end; a thread that
        // is ending keeps none.
        let _before = MADE.try_with(|made| made.borrow_mut()[slot(name)].replace(scope.clone_ref(py)));
        Ok(scope.into_any())
    }
}

/// Count in a scope of the calling thread, enabling statistics for the block where they are not.
///
/// >>> import floodmark
/// >>> floodmark.reinitialize()
/// >>> with floodmark.statistics.statistics():
/// ...     buffer = floodmark.DeviceBuffer(size=20)
/// ...     floodmark.statistics.get_statistics().current_bytes
/// 20
#[pyclass(frozen, weakref, name = "statistics", module = "floodmark.statistics")]
#[derive(Default)]
pub(crate) struct StatisticsBlock {
    entered: Mutex<EnteredBlocks>,
}

/// Where a block was entered and not left, in order; nearly always one, which takes no memory of its own.
#[derive(Default)]
struct EnteredBlocks {
    first: Option<EnteredBlock>,
    others: Vec<EnteredBlock>,
}

impl EnteredBlocks {
    fn push(&mut self, block: EnteredBlock) {
        if self.first.is_none() && self.others.is_empty() {
            self.first = Some(block);
        } else {
            self.others.push(block);
        }
    }

    /// Takes out the one that a thread entered last.
    fn take(&mut self, thread: ThreadId) -> Option<EnteredBlock> {
        match self.others.iter().rposition(|block| block.thread == thread) {
            Some(at) => Some(self.others.remove(at)),
            None => self.first.take_if(|block| block.thread == thread),
        }
    }
}

struct EnteredBlock {
    thread: ThreadId,
    /// The resource that counts.
    resource: Py<Resource>,
    /// The resource to return to, where statistics were enabled for the block.
    before: Option<Py<Resource>>,
}

#[pymethods]
impl StatisticsBlock {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __call__<'py>(slf: Bound<'py, Self>, func: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        decorate(slf.into_any(), func)
    }
}

impl WithBlock for StatisticsBlock {
    fn enter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let (current, thread) = (current::current(py)?.into_bound(py), std::thread::current().id());
        let block = if let Some(statistics) = current.get().statistics() {
            statistics.open();
            EnteredBlock { thread, resource: current.unbind(), before: None }
        } else {
            let class =
                py.import(intern!(py, "floodmark.mr"))?.getattr(intern!(py, "StatisticsResourceAdaptor"))?;
            let counting = class.call1((&current,))?.cast_into::<Resource>()?.unbind();
            // Replaces a resource, which is dropped: that needs PyO3 to know of the attachment.
            Python::attach(|py| {
                current::set_resource(py, current::current_device(), counting.clone_ref(py));
            });
            EnteredBlock { thread, resource: counting, before: Some(current.unbind()) }
        };
        slf.get().entered.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        Ok(py.None().into_bound(py))
    }

    fn exit(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = std::thread::current().id();
        let block = slf.get().entered.lock().unwrap_or_else(PoisonError::into_inner).take(this);
        let EnteredBlock { resource, before, .. } =
            block.ok_or_else(|| PyRuntimeError::new_err("the statistics block was not entered"))?;
        let resource = resource.into_bound(py);
        let before = before.map(|before| before.into_bound(py));
        if !current::current(py)?.into_bound(py).is(&resource) {
            return Err(PyValueError::new_err(
                "RMM memory source stack was changed while in the statistics context",
            ));
        }
        match (before, resource.get().statistics()) {
            // As above.
            (Some(before), _) => Python::attach(|py| {
                current::set_resource(py, current::current_device(), before.unbind());
            }),
            (None, Some(statistics)) => {
                statistics.pop().map_err(|error| PyIndexError::new_err(error.to_string()))?;
            }
            (None, None) => {}
        }
        Ok(())
    }
}

impl FastCall for StatisticsBlock {
    fn call(arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
        arguments.parse("statistics", 0, || [])?;
        Ok(Bound::new(arguments.py, Self::default())?.into_any().unbind())
    }
}
