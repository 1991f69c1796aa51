//! A stack of resources as a Python object.
#![expect(unsafe_code, reason = "Python programs promise to free what they allocated")]

use std::sync::Arc;

use floodmark_event::Kind;
use floodmark_resource::adaptor::tracking::Block;
use floodmark_resource::{
    ALIGNMENT, Address, Counters, Holder, Limiting, NoScope, Pool, Resource as _, StatisticsHandle, Stream,
    TrackingState, find,
};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use crate::error::{forget, raise};
use crate::layers::{Bin, GrowingBins, LogSwitch, Measurement, Shared};
use crate::{make, task_scope};

/// Bytes (current, peak, total), then allocations (current, peak, total).
pub(crate) type Figures = (i64, i64, i64, i64, i64, i64);

/// A memory resource with all that is below it.
#[pyclass(frozen, subclass, weakref, module = "floodmark._native")]
pub(crate) struct Resource {
    inner: Shared,
    upstream: Option<Py<Self>>,
    /// Whether allocating may call a Python function or a driver.
    calls_out: bool,
    /// The uppermost statistics of the stack.
    statistics: Option<StatisticsHandle>,
    device: i32,
}

impl Resource {
    pub(crate) fn shared(&self) -> Shared {
        Arc::clone(&self.inner)
    }

    pub(crate) const fn inner(&self) -> &Shared {
        &self.inner
    }

    pub(crate) const fn calls_out(&self) -> bool {
        self.calls_out
    }

    pub(crate) const fn statistics(&self) -> Option<&StatisticsHandle> {
        self.statistics.as_ref()
    }

    /// Whether the process can read and write the memory itself.
    pub(crate) fn is_host_memory(&self) -> bool {
        matches!(self.inner.memory().kind, Kind::Pageable | Kind::Pinned | Kind::Managed)
    }

    /// Runs `act`, which allocates or frees, without holding up threads that it may have to wait for.
    #[inline]
    pub(crate) fn run<T: Send>(&self, py: Python<'_>, act: impl FnOnce() -> T + Send) -> T {
        task_scope::within(py, || {
            if self.calls_out {
                forget();
                py.detach(act)
            } else {
                act()
            }
        })
    }

    fn layer<T: 'static>(&self) -> PyResult<&T> {
        find(&*self.inner).ok_or_else(|| PyRuntimeError::new_err("no such layer in this stack of resources"))
    }
}

/// The stream that an argument stands for: an integer, or an object of one of the usual kinds.
pub(crate) fn parse_stream(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Stream> {
    let Some(stream) = stream else { return Ok(Stream::DEFAULT) };
    if let Ok(number) = stream.cast::<PyInt>() {
        return Ok(Stream::foreign(number.extract()?));
    }
    if stream.is_none() {
        return Err(PyTypeError::new_err("stream cannot be None; leave it out for the default stream"));
    }
    for name in ["handle", "ptr", "cuda_stream"] {
        if let Ok(handle) = stream.getattr(name)
            && let Ok(number) = handle.extract()
        {
            return Ok(Stream::foreign(number));
        }
    }
    if let Ok(pair) = stream.call_method0("__cuda_stream__") {
        let (_, handle): (i64, u64) = pair.extract()?;
        return Ok(Stream::foreign(handle));
    }
    let kind = stream.get_type();
    Err(PyTypeError::new_err(format!("{kind} is no stream: it has neither handle nor __cuda_stream__")))
}

pub(crate) fn figures(counters: Counters) -> Figures {
    let Counters { bytes, allocations } = counters;
    (bytes.value, bytes.peak, bytes.total, allocations.value, allocations.peak, allocations.total)
}

#[pymethods]
impl Resource {
    #[new]
    #[pyo3(signature = (kind, upstream = None, **options))]
    fn new(kind: &str, upstream: Option<Py<Self>>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let device = crate::current::current_device();
        let below = upstream.as_ref().map(|upstream| upstream.get().shared());
        let calls_below = upstream.as_ref().is_some_and(|upstream| upstream.get().calls_out);
        let make::Made { inner, calls_out } = make::make(kind, below, device, options)?;
        let statistics = find::<StatisticsHandle>(&*inner).cloned();
        Ok(Self { inner, upstream, calls_out: calls_out || calls_below, statistics, device })
    }

    /// The resource below this one.
    #[getter]
    fn upstream(&self, py: Python<'_>) -> Option<Py<Self>> {
        self.upstream.as_ref().map(|upstream| upstream.clone_ref(py))
    }

    /// One word for it in traces and messages.
    #[getter]
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    /// The device that it was made for.
    #[getter]
    const fn device(&self) -> i32 {
        self.device
    }

    /// The sort of memory: "device", "managed", "pinned" or "pageable".
    #[getter]
    fn memory_kind(&self) -> &'static str {
        self.inner.memory().kind.name()
    }

    /// Allocate bytes on a stream and return their address.
    #[pyo3(signature = (nbytes, stream = None))]
    fn allocate(&self, py: Python<'_>, nbytes: u64, stream: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let stream = parse_stream(stream)?;
        let taken = self.run(py, || self.inner.allocate(nbytes, ALIGNMENT, stream));
        taken.map(|address| address.0).map_err(|error| raise(&error))
    }

    /// Free what `allocate` returned.
    #[pyo3(signature = (ptr, nbytes, stream = None))]
    fn deallocate(
        &self,
        py: Python<'_>,
        ptr: u64,
        nbytes: u64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let stream = parse_stream(stream)?;
        // SAFETY: the program promises that the block came from `allocate` with this size and is not used any more.
        self.run(py, || unsafe { self.inner.deallocate(Address(ptr), nbytes, ALIGNMENT, stream) });
        Ok(())
    }

    /// Whether the stack counts what goes through it.
    #[getter]
    const fn has_statistics(&self) -> bool {
        self.statistics.is_some()
    }

    /// What the innermost scope of the calling thread counted, or the process where it has none open.
    fn counters(&self) -> Option<Figures> {
        self.statistics.as_ref().map(|statistics| figures(statistics.counters()))
    }

    /// What the whole process counted, whichever scopes are open.
    fn process_counters(&self) -> Option<Figures> {
        self.statistics.as_ref().map(|statistics| figures(statistics.process_counters()))
    }

    /// What the uppermost measuring adaptor of the stack counted.
    fn measured(&self) -> PyResult<Figures> {
        Ok(figures(self.layer::<Measurement>()?.0.process_counters()))
    }

    /// Open a scope on the calling thread; return the counters before.
    fn push(&self) -> Option<Figures> {
        self.statistics.as_ref().map(|statistics| figures(statistics.push()))
    }

    /// Close the calling thread's innermost scope; return what it counted.
    fn pop(&self) -> PyResult<Option<Figures>> {
        let Some(statistics) = &self.statistics else { return Ok(None) };
        let popped = statistics.pop().map_err(|error: NoScope| PyIndexError::new_err(error.to_string()))?;
        Ok(Some(figures(popped)))
    }

    /// Scopes that hold live memory: (name, bytes, blocks), most bytes first.
    fn holders(&self, limit: usize) -> Vec<(String, u64, u64)> {
        let holders =
            self.statistics.as_ref().map(|statistics| statistics.holders(limit)).unwrap_or_default();
        holders.into_iter().map(|Holder { who, bytes, blocks }| (who, bytes, blocks)).collect()
    }

    /// Path of the log that the stack writes, if it does.
    fn log_file(&self) -> Option<std::path::PathBuf> {
        let log = find::<LogSwitch>(&*self.inner).filter(|log| log.is_on())?;
        log.handle.file_name().map(std::path::Path::to_path_buf)
    }

    /// Stop the log of the stack; return whether there was one.
    fn stop_log(&self) -> bool {
        let log = find::<LogSwitch>(&*self.inner).filter(|log| log.is_on());
        log.inspect(|log| log.stop()).is_some()
    }

    /// Write what the log has buffered.
    fn flush_log(&self) -> PyResult<()> {
        let Some(log) = find::<LogSwitch>(&*self.inner) else { return Ok(()) };
        log.handle.flush().map_err(|error| make::raise_csv(&error))
    }

    /// Bytes of live blocks that the tracking adaptor of the stack knows.
    fn tracked_bytes(&self) -> PyResult<u64> {
        Ok(self.layer::<TrackingState>()?.live_bytes())
    }

    /// The live blocks as text.
    fn tracked_report(&self) -> PyResult<String> {
        Ok(self.layer::<TrackingState>()?.report())
    }

    /// Write the live blocks to the debug log.
    fn log_tracked(&self) -> PyResult<()> {
        self.layer::<TrackingState>()?.log_outstanding();
        Ok(())
    }

    /// The live blocks: (address, bytes, stream), oldest first.
    fn tracked_blocks(&self) -> PyResult<Vec<(u64, u64, u64)>> {
        let blocks = self.layer::<TrackingState>()?.outstanding();
        let row = |Block { address, bytes, stream, .. }: Block| (address.0, bytes, stream.handle());
        Ok(blocks.into_iter().map(row).collect())
    }

    /// Bytes that the limiting adaptor lets be live, and those that are.
    fn limit(&self) -> PyResult<(u64, u64)> {
        let limiting = self.layer::<Limiting<Shared>>()?;
        Ok((limiting.limit_bytes(), limiting.allocated_bytes()))
    }

    /// Bytes that a pool holds of its upstream.
    fn pool_bytes(&self) -> PyResult<u64> {
        Ok(self.layer::<Pool<Shared>>()?.pool_bytes())
    }

    /// Add a bin to a binning resource.
    #[pyo3(signature = (bytes, resource = None))]
    fn add_bin_of(&self, bytes: u64, resource: Option<Py<Self>>) -> PyResult<()> {
        let resource = resource.map(|resource| resource.get().shared());
        if self.layer::<GrowingBins>()?.add(Bin { bytes, resource }) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("bins can be added only before the first allocation"))
    }

    /// Reserved, live and largest free bytes of the stack.
    fn room(&self) -> (u64, u64, Option<u64>) {
        let room = self.inner.room();
        (room.reserved_bytes, room.live_bytes, room.largest_free_bytes)
    }

    /// Give memory that is not needed back to the upstreams; return how many bytes that was.
    fn release(&self, py: Python<'_>) -> u64 {
        self.run(py, || self.inner.release())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = slf.get_type().name()?.to_string();
        let this = slf.get();
        match &this.upstream {
            Some(upstream) => Ok(format!("{name}({})", upstream.bind(slf.py()).repr()?)),
            None => Ok(format!("{name}()")),
        }
    }
}
