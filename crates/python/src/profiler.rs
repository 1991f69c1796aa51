//! Records, scopes and tasks of the profiler.
//!
//! One context can be open any number of times on any threads, so what is open is kept per thread. A context that is
//! entered while nothing is counted records nothing, whatever is switched on before it is left.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use floodmark_resource as native;
use floodmark_resource::profiler::{OpenBlock, ProfiledStep};
use floodmark_resource::{MemoryRecord, OrderedBy, ProfiledTask};
use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::vectorcall::{Arguments, FastCall, required};
use crate::with_block::{Bracket, WithBlock};
use crate::{current, task_scope};

/// Calls, peak and total bytes of functions and code blocks, by name.
#[pyclass(frozen, subclass, weakref, module = "floodmark._native")]
#[derive(Default)]
pub(crate) struct ProfilerRecords {
    records: native::ProfilerRecords,
}

#[pymethods]
impl ProfilerRecords {
    #[new]
    #[pyo3(signature = (*, shared = false))]
    fn new(shared: bool) -> Self {
        if shared { Self { records: native::ProfilerRecords::global().clone() } } else { Self::default() }
    }

    /// Add one call of `name`.
    fn add_call(&self, name: &str, total_bytes: i64, peak_bytes: i64) {
        self.records.add(&Arc::from(name), MemoryRecord { calls: 1, peak_bytes, total_bytes });
    }

    /// (name, calls, total, peak) of each name, first recorded first.
    fn rows(&self) -> Vec<(String, u64, i64, i64)> {
        let row = |(name, record): (Arc<str>, MemoryRecord)| {
            (name.as_ref().to_owned(), record.calls, record.total_bytes, record.peak_bytes)
        };
        self.records.rows().into_iter().map(row).collect()
    }

    /// Forget all names.
    fn clear(&self) {
        self.records.clear();
    }

    /// The records as a table, ordered by "memory_peak", "memory_total" or "num_calls".
    #[pyo3(signature = (ordered_by = "memory_peak"))]
    fn report(&self, ordered_by: &str) -> PyResult<String> {
        let column = OrderedBy::ALL.into_iter().find(|column| column.name() == ordered_by);
        let column = column.ok_or_else(|| {
            PyAttributeError::new_err(format!(
                "{ordered_by:?} is no column; there are num_calls, memory_peak and memory_total"
            ))
        })?;
        Ok(self.records.report(column))
    }
}

/// What a thread has open.
enum Open {
    /// None if nothing was counted when it began.
    Block(Option<OpenBlock>),
    Step {
        _step: Option<ProfiledStep>,
    },
}

thread_local! {
    static OPEN: RefCell<Vec<(usize, Open)>> = const { RefCell::new(Vec::new()) };
}

fn open(key: usize, what: Open) {
    OPEN.with(|open| open.borrow_mut().push((key, what)));
}

/// Takes out what `key` opened last on the calling thread.
fn take(key: usize) -> Option<Open> {
    OPEN.with(|open| {
        let mut open = open.borrow_mut();
        let at = open.iter().rposition(|(other, _)| *other == key)?;
        Some(open.remove(at).1)
    })
}

/// Profile a code block as a context manager, or a function as a decorator.
///
/// It can be entered any number of times, on any threads.
#[pyclass(frozen, subclass, weakref, module = "floodmark.statistics")]
pub(crate) struct ProfilerContext {
    records: native::ProfilerRecords,
    /// The object of `records`.
    owner: Py<ProfilerRecords>,
    name: Arc<str>,
}

impl ProfilerContext {
    fn create(owner: &Bound<'_, ProfilerRecords>, name: &str) -> Self {
        Self { records: owner.get().records.clone(), owner: owner.clone().unbind(), name: Arc::from(name) }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Begins a block of the running task.
    fn enter_task(&self, py: Python<'_>) -> PyResult<()> {
        let current = current::current(py)?;
        if let Some(statistics) = current.get().statistics() {
            task_scope::enter(py, self.key(), self.records.task(statistics, Arc::clone(&self.name)))?;
        }
        Ok(())
    }
}

#[pymethods]
impl ProfilerContext {
    #[new]
    #[pyo3(signature = (records, name = ""))]
    fn new(records: &Bound<'_, ProfilerRecords>, name: &str) -> Self {
        Self::create(records, name)
    }

    /// Name of the record; empty for that of the function that it decorates.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Where calls, peak and total bytes go.
    #[getter]
    fn records(&self, py: Python<'_>) -> Py<ProfilerRecords> {
        self.owner.clone_ref(py)
    }

    /// Profile every call of a function, generator, coroutine or method.
    fn __call__<'py>(slf: Bound<'py, Self>, func: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import(intern!(py, "floodmark._decorate"))?.call_method1(intern!(py, "profile"), (slf, func))
    }
}

impl Bracket for ProfilerContext {
    /// Begins a block on the calling thread.
    fn begin(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let current = current::current(py)?.into_bound(py);
        let block = current.get().statistics().map(|statistics| this.records.open(statistics, &this.name));
        open(this.key(), Open::Block(block));
        Ok(())
    }

    /// Ends the block that began last on the calling thread.
    fn end(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        if let Some(Open::Block(Some(block))) = take(this.key()) {
            this.records.finish(&this.name, block);
        }
        Ok(())
    }
}

impl WithBlock for ProfilerContext {
    fn enter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().name.is_empty() {
            return Err(PyValueError::new_err(
                "When profiler is used as a context manager, a name must be provided",
            ));
        }
        let (py, this) = (slf.py(), slf.get());
        if task_scope::is_in_event_loop(py)? {
            // Keeps and drops objects: PyO3 has to know of the attachment.
            Python::attach(|py| this.enter_task(py))?;
        } else {
            Self::begin(slf)?;
        }
        Ok(slf.as_any().clone())
    }

    fn exit(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        // As above.
        if !task_scope::is_open() || !Python::attach(|py| task_scope::leave(py, this.key()))? {
            Self::end(slf)?;
        }
        Ok(())
    }
}

impl FastCall for ProfilerContext {
    fn call(arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = arguments.py;
        let parameters = || [intern!(py, "records"), intern!(py, "name")];
        let [records, name] = arguments.parse("ProfilerContext", 2, parameters)?;
        let records = required("ProfilerContext", "records", records)?.cast::<ProfilerRecords>()?;
        let name = name.map(|name| name.cast::<PyString>()).transpose()?;
        let name = name.map(|name| name.to_str()).transpose()?.unwrap_or_default();
        Ok(Bound::new(py, Self::create(records, name))?.into_any().unbind())
    }
}

/// Profiles one generator or coroutine: `enter` and `leave` each of its steps, then `finish`.
#[pyclass(frozen, weakref, module = "floodmark._native")]
pub(crate) struct ProfilerTask {
    records: native::ProfilerRecords,
    name: Arc<str>,
    task: Mutex<Task>,
}

enum Task {
    New,
    /// None if nothing was counted when it began.
    Begun(Option<ProfiledTask>),
}

#[pymethods]
impl ProfilerTask {
    #[new]
    fn new(context: &Bound<'_, ProfilerContext>) -> Self {
        let context = context.get();
        Self {
            records: context.records.clone(),
            name: Arc::clone(&context.name),
            task: Mutex::new(Task::New),
        }
    }

    /// Begin a step on the calling thread.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        let current = current::current(py)?;
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*task, Task::New) {
            let statistics = current.get().statistics();
            let begun = statistics.map(|statistics| self.records.task(statistics, Arc::clone(&self.name)));
            *task = Task::Begun(begun);
        }
        let step = match &*task {
            Task::Begun(Some(task)) => Some(task.step()),
            _ => None,
        };
        drop(task);
        open(std::ptr::from_ref(self).addr(), Open::Step { _step: step });
        Ok(())
    }

    /// End the step that began last on the calling thread.
    fn leave(&self) {
        drop(take(std::ptr::from_ref(self).addr()));
    }

    /// Record the task as one call.
    fn finish(&self) {
        let finished = {
            let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *task, Task::Begun(None))
        };
        drop(finished);
    }
}
