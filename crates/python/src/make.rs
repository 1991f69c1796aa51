//! Making each kind of resource.

use std::path::PathBuf;
use std::sync::Arc;

use floodmark_resource::adaptor::tracking::{OnDrop, StackCapture, TrackingProps};
use floodmark_resource::{
    Address, AllocError, Arena, ArenaProps, Callback, CsvError, CsvLogging, CudaAsync, CudaAsyncProps,
    CudaDevice, CudaManaged, CudaMemory, CudaPinned, FailureCallback, FixedSize, FixedSizeProps, Flush, Host,
    Limiting, Logging, Memory, Pool, PoolProps, Prefetch, Prefetcher, Resource, Result, Retry, Statistics,
    Stream, Tracking,
};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::device;
use crate::error::{keep, raise};
use crate::layers::{Bin, GrowingBins, Measuring, Shared, SwitchedLog};
use crate::record::python_stack;

/// A resource, and whether it calls Python functions or a driver itself.
pub(crate) struct Made {
    pub(crate) inner: Shared,
    pub(crate) calls_out: bool,
}

/// Makes a resource of `kind` over `upstream`.
pub(crate) fn make(
    kind: &str,
    upstream: Option<Shared>,
    device: i32,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Made> {
    let options = Options(options);
    if let Some(inner) = backend(kind, device, &options)? {
        return Ok(inner);
    }
    if kind == "callback" {
        return callback(device, &options);
    }
    let upstream =
        upstream.ok_or_else(|| PyTypeError::new_err(format!("{kind} needs an upstream resource")))?;
    let made = |inner: Shared| Ok(Made { inner, calls_out: false });
    match kind {
        "pool" => {
            let initial_bytes = options.get("initial_bytes")?.unwrap_or(0);
            let props = PoolProps { initial_bytes, maximum_bytes: options.get("maximum_bytes")? };
            made(Arc::new(Pool::new(upstream, props).map_err(|error| raise(&error))?))
        }
        "arena" => {
            let mut props = ArenaProps::new(options.required("bytes")?);
            props.dump = options.get("dump")?;
            made(Arc::new(Arena::new(upstream, props).map_err(|error| raise(&error))?))
        }
        "fixed_size" => {
            let props = FixedSizeProps {
                block_bytes: options.required("block_bytes")?,
                blocks: options.required("blocks")?,
            };
            made(Arc::new(FixedSize::new(upstream, props).map_err(|error| raise(&error))?))
        }
        "binning" => {
            let sizes: Vec<u64> = options.get("sizes")?.unwrap_or_default();
            let planned = sizes.into_iter().map(|bytes| Bin { bytes, resource: None }).collect();
            made(Arc::new(GrowingBins::new(upstream, planned)))
        }
        "limiting" => {
            let limiting = Limiting::new(upstream, options.required("limit_bytes")?);
            let alignment = options.get("alignment")?.unwrap_or(256);
            made(Arc::new(limiting.counted_in(alignment).map_err(|error| raise(&error))?))
        }
        "tracking" => {
            let with_stacks = options.get("stacks")?.unwrap_or(false);
            let stacks = if with_stacks { StackCapture::On } else { StackCapture::Off };
            let props = TrackingProps { stacks, on_drop: OnDrop::Silent };
            made(Arc::new(Tracking::with_props(upstream, props)))
        }
        "statistics" => made(Arc::new(Statistics::new(upstream))),
        "measuring" => made(Arc::new(Measuring::new(upstream))),
        "logging" => {
            let file: PathBuf = options.required("file")?;
            // Each row is written before its allocation returns, so that a killed process leaves all of them.
            let buffered = options.get("buffered")?.unwrap_or(false);
            let flush = if buffered { Flush::Buffered } else { Flush::EveryRow };
            let logged = CsvLogging::create(Arc::clone(&upstream), file, flush);
            let logged = logged.map_err(|error| raise_csv(&error))?;
            // The header too.
            logged.handle().flush().map_err(|error| raise_csv(&error))?;
            made(Arc::new(SwitchedLog::new(upstream, logged)))
        }
        "recording" => {
            let logging = Logging::new(upstream);
            let with_stacks = options.get("stacks")?.unwrap_or(true);
            let logging = if with_stacks { logging.with_stacks(python_stack) } else { logging };
            made(Arc::new(logging))
        }
        "failure_callback" => {
            let function: Py<PyAny> = options.required("callback")?;
            let retry = move |bytes: u64, _: &AllocError| failed(&function, bytes);
            Ok(Made { inner: Arc::new(FailureCallback::new(upstream, retry)), calls_out: true })
        }
        "prefetch" => {
            let gpu = device::gpu(device)?;
            let prefetcher = gpu.map(|gpu| Arc::new(gpu) as Arc<dyn Prefetcher>);
            made(Arc::new(Prefetch::new(upstream, prefetcher)))
        }
        _ => Err(PyValueError::new_err(format!("there is no resource of kind {kind:?}"))),
    }
}

/// Resources with memory of their own. Without a GPU all of it is the host's.
fn backend(kind: &str, device: i32, options: &Options<'_, '_>) -> PyResult<Option<Made>> {
    if !["cuda", "managed", "pinned", "async", "system"].contains(&kind) {
        return Ok(None);
    }
    let gpu = if kind == "system" { None } else { device::gpu(device)? };
    let Some(gpu) = gpu else {
        // A request beyond all memory fails here as on a GPU, whether or not the system overcommits.
        let (_, total_bytes) = device::host_memory();
        let inner: Shared = Arc::new(Limiting::new(Host::new(), total_bytes));
        return Ok(Some(Made { inner, calls_out: false }));
    };
    let inner: Shared = match kind {
        "managed" => Arc::new(CudaManaged::new(&gpu)),
        "pinned" => Arc::new(CudaPinned::new(&gpu)),
        "async" => Arc::new(asynchronous(&gpu, options)?),
        _ => Arc::new(CudaMemory::new(&gpu)),
    };
    Ok(Some(Made { inner, calls_out: true }))
}

fn asynchronous(gpu: &CudaDevice, options: &Options<'_, '_>) -> PyResult<CudaAsync> {
    let mut props = CudaAsyncProps::default();
    if let Some(bytes) = options.get("initial_bytes")? {
        props.initial_bytes = bytes;
    }
    if let Some(bytes) = options.get("release_threshold_bytes")? {
        props.release_threshold_bytes = bytes;
    }
    CudaAsync::create(gpu, props).map_err(|error| raise(&error))
}

fn callback(device: i32, options: &Options<'_, '_>) -> PyResult<Made> {
    let allocate: Py<PyAny> = options.required("allocate")?;
    let deallocate: Py<PyAny> = options.required("deallocate")?;
    let take = move |bytes: u64, stream: Stream| -> Result<Address> {
        Python::attach(|py| {
            let taken = allocate.bind(py).call1((bytes, stream.handle())).and_then(|at| at.extract::<u64>());
            taken.map(Address).map_err(|raised| keep(py, raised, bytes, "callback"))
        })
    };
    let give = move |address: Address, bytes: u64, stream: Stream| {
        Python::attach(|py| {
            if let Err(raised) = deallocate.bind(py).call1((address.0, bytes, stream.handle())) {
                // Freeing cannot fail, so there is no caller that could get the exception.
                raised.write_unraisable(py, Some(deallocate.bind(py)));
            }
        });
    };
    let inner: Shared = match device::gpu(device)? {
        None => Arc::new(Callback::new(Memory::HOST, take, give)),
        Some(gpu) => {
            let memory = CudaMemory::new(&gpu).memory();
            let order: Arc<dyn floodmark_resource::StreamOrder> = gpu.order().clone();
            Arc::new(Callback::new(memory, take, give).ordered_by(order))
        }
    };
    Ok(Made { inner, calls_out: true })
}

fn failed(function: &Py<PyAny>, bytes: u64) -> Result<Retry> {
    Python::attach(|py| {
        let answer = function.bind(py).call1((bytes,)).and_then(|answer| answer.is_truthy());
        match answer {
            Ok(true) => Ok(Retry::Again),
            Ok(false) => Ok(Retry::GiveUp),
            Err(raised) => Err(keep(py, raised, bytes, "callback")),
        }
    })
}

/// The exception for a log that cannot be written.
pub(crate) fn raise_csv(error: &CsvError) -> PyErr {
    match error {
        CsvError::Io { act, file, source } => {
            let message = format!("{act} the log: {source}");
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), message, file.clone().into_os_string()))
        }
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Keyword arguments.
struct Options<'a, 'py>(Option<&'a Bound<'py, PyDict>>);

impl<'py> Options<'_, 'py> {
    /// The value of `name`, unless it is not there or None.
    fn get<T>(&self, name: &str) -> PyResult<Option<T>>
    where
        T: FromPyObjectOwned<'py>,
    {
        let Some(value) = self.0.map(|options| options.get_item(name)).transpose()?.flatten() else {
            return Ok(None);
        };
        if value.is_none() { Ok(None) } else { value.extract().map(Some).map_err(Into::into) }
    }

    fn required<T>(&self, name: &str) -> PyResult<T>
    where
        T: FromPyObjectOwned<'py>,
    {
        self.get(name)?.ok_or_else(|| PyTypeError::new_err(format!("missing {name}")))
    }
}
