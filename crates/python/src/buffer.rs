//! `DeviceBuffer`: memory that is freed with the Python object that owns it.
#![expect(unsafe_code, reason = "hands addresses to Python")]

use std::ffi::c_int;
use std::os::raw::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use floodmark_resource as native;
use floodmark_resource::{ALIGNMENT, Address, RawBuffer, Resource as _, Stream};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict};

use crate::current;
use crate::error::raise;
use crate::resource::{Resource, parse_stream};
use crate::vectorcall::{Arguments, FastCall};

/// Memory of a resource, freed with this object.
#[pyclass(frozen, subclass, weakref, module = "floodmark")]
pub(crate) struct DeviceBuffer {
    state: Mutex<State>,
    /// Keeps the Python object of the resource, and with it what that refers to, alive.
    resource: Py<Resource>,
    /// Keeps the stream, which the free names again.
    _stream: Option<Py<PyAny>>,
}

struct State {
    block: Block,
    /// Views of the memory that Python objects have.
    exports: usize,
}

/// The memory of a buffer. It is the resource's own block and not a buffer of the Rust library, which would count
/// references to the resource once more: the Python object keeps that alive already.
#[derive(Clone, Copy)]
struct Block {
    stream: Stream,
    address: Address,
    size: u64,
    /// Bytes that are allocated; the address is null if there are none.
    capacity: u64,
}

impl Block {
    const EMPTY: Self = Self { stream: Stream::DEFAULT, address: Address::NULL, size: 0, capacity: 0 };
}

/// Arguments of a new buffer.
struct Request<'a, 'py> {
    ptr: u64,
    size: u64,
    stream: Option<&'a Bound<'py, PyAny>>,
    mr: Option<&'a Bound<'py, PyAny>>,
}

impl DeviceBuffer {
    fn create(py: Python<'_>, request: &Request<'_, '_>) -> PyResult<Self> {
        let stream = match request.stream {
            None => Stream::DEFAULT,
            some => parse_stream(some)?,
        };
        let resource = match request.mr {
            Some(mr) if !mr.is_none() => mr.cast::<Resource>()?.clone().unbind(),
            _ => current::current(py)?,
        };
        let (this, size) = (resource.get(), request.size);
        let address = if size == 0 {
            Address::NULL
        } else {
            this.run(py, || this.inner().allocate(size, ALIGNMENT, stream)).map_err(|error| raise(&error))?
        };
        let state = Mutex::new(State { block: Block { stream, address, size, capacity: size }, exports: 0 });
        let made = Self { state, resource, _stream: request.stream.map(|stream| stream.clone().unbind()) };
        if request.ptr != 0 {
            made.copy_from_address(request.ptr, size)?;
        }
        Ok(made)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The thread that has it may need the interpreter before it lets go.
            Err(TryLockError::WouldBlock) => {
                Python::attach(|py| self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    fn block(&self) -> Block {
        self.state().block
    }

    /// Calls `act` with the memory as a buffer of the Rust library.
    fn with_native<T>(&self, state: &mut State, act: impl FnOnce(&mut native::DeviceBuffer) -> T) -> T {
        // If `act` panics, the library's buffer frees the memory and this one has none.
        let Block { stream, address, size, capacity } = std::mem::replace(&mut state.block, Block::EMPTY);
        let resource = self.resource.get().shared();
        // SAFETY: the resource allocated it with this capacity, and this buffer gives it up until it is handed back.
        let mut buffer = unsafe {
            native::DeviceBuffer::from_raw(RawBuffer { resource, stream, address, size, capacity })
        };
        let result = act(&mut buffer);
        let RawBuffer { stream, address, size, capacity, .. } = buffer.into_raw();
        state.block = Block { stream, address, size, capacity };
        result
    }

    /// Changes the buffer, which must not move while Python objects view its memory.
    fn change<T>(
        &self,
        act: &str,
        change: impl FnOnce(&mut native::DeviceBuffer) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut state = self.state();
        if state.exports > 0 {
            let views = state.exports;
            return Err(PyBufferError::new_err(format!(
                "cannot {act} a buffer with {views} views of its memory"
            )));
        }
        self.with_native(&mut state, change)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.block().size as usize, |bytes| self.copy_to(bytes))
    }

    /// Copies the contents to memory of the same size.
    fn copy_to(&self, bytes: &mut [u8]) -> PyResult<()> {
        let mut state = self.state();
        self.with_native(&mut state, |buffer| buffer.copy_to_host(bytes)).map_err(|error| raise(&error))
    }

    fn require_host_memory(&self) -> PyResult<()> {
        if self.resource.get().is_host_memory() {
            return Ok(());
        }
        Err(PyBufferError::new_err("the memory is a GPU's; copy_to_host() copies it"))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let Block { stream, address, capacity, .. } =
            self.state.get_mut().unwrap_or_else(PoisonError::into_inner).block;
        if capacity == 0 {
            return;
        }
        let resource = self.resource.get();
        // SAFETY: the resource allocated it with this capacity, and nothing uses it any more.
        let free = || unsafe { resource.inner().deallocate(address, capacity, ALIGNMENT, stream) };
        if resource.calls_out() {
            Python::attach(|py| py.detach(free));
        } else {
            free();
        }
    }
}

/// Bytes that an object exposes, read-only.
struct HostBytes(pyo3::buffer::PyBuffer<u8>);

impl HostBytes {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Views of other items than bytes are cast, as NumPy's arrays are.
        let buffer = pyo3::buffer::PyBuffer::<u8>::get(object).or_else(|error| {
            let view = object.py().import(intern!(object.py(), "builtins"))?;
            let view =
                view.getattr(intern!(object.py(), "memoryview"))?.call1((object,)).map_err(|_| error)?;
            let bytes = view.call_method1(intern!(object.py(), "cast"), ("B",))?;
            pyo3::buffer::PyBuffer::<u8>::get(&bytes)
        })?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the bytes have to be contiguous"));
        }
        Ok(Self(buffer))
    }

    fn address(&self) -> u64 {
        self.0.buf_ptr() as u64
    }

    fn len(&self) -> u64 {
        self.0.len_bytes() as u64
    }
}

#[pymethods]
impl DeviceBuffer {
    #[new]
    #[pyo3(signature = (size = 0, *, ptr = 0, stream = None, mr = None))]
    fn new(
        py: Python<'_>,
        size: u64,
        ptr: u64,
        stream: Option<&Bound<'_, PyAny>>,
        mr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Self::create(py, &Request { ptr, size, stream, mr })
    }

    /// Address of the memory; 0 for an empty buffer.
    #[getter]
    fn ptr(&self) -> u64 {
        self.block().address.0
    }

    /// Number of bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.block().size
    }

    /// Number of bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.size()
    }

    /// The resource that the memory came from.
    #[getter]
    fn mr(&self, py: Python<'_>) -> Py<Resource> {
        self.resource.clone_ref(py)
    }

    /// Handle of the stream on which the memory is used; 0 for the default stream.
    #[getter]
    fn stream(&self) -> u64 {
        self.block().stream.handle()
    }

    /// Bytes that are allocated, at least the size.
    fn capacity(&self) -> u64 {
        self.block().capacity
    }

    fn __len__(&self) -> usize {
        self.size() as usize
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.to_bytes(py)
    }

    /// The contents as bytes.
    #[pyo3(signature = (stream = None))]
    fn tobytes<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        parse_stream(stream)?;
        self.to_bytes(py)
    }

    /// Copy the contents to `ary`, or to a new NumPy array of bytes, and return that.
    #[pyo3(signature = (ary = None, stream = None))]
    fn copy_to_host<'py>(
        &self,
        py: Python<'py>,
        ary: Option<Bound<'py, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        parse_stream(stream)?;
        let size = self.size();
        let target = match ary {
            Some(target) => target,
            None => match py.import(intern!(py, "numpy")) {
                Ok(numpy) => numpy.call_method1(intern!(py, "empty"), (size, "u1"))?,
                Err(_) => {
                    py.import(intern!(py, "builtins"))?.call_method1(intern!(py, "bytearray"), (size,))?
                }
            },
        };
        let host = HostBytes::of(&target)?;
        if host.0.readonly() {
            return Err(PyTypeError::new_err("the target cannot be written"));
        }
        if host.len() < size {
            let message = format!("Argument `ary` is too small. Need space for {size} bytes.");
            return Err(PyValueError::new_err(message));
        }
        let at = std::ptr::with_exposed_provenance_mut::<u8>(host.address() as usize);
        if size > 0 {
            // SAFETY: the view is writable, contiguous and at least as long, and it is held until the copy is done.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at, size as usize) };
            self.copy_to(bytes)?;
        }
        Ok(target)
    }

    /// Set the contents to the bytes of `ary`, which is at most as large.
    #[pyo3(signature = (ary, stream = None))]
    fn copy_from_host(&self, ary: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        parse_stream(stream)?;
        let host = HostBytes::of(ary)?;
        self.copy_from_address(host.address(), host.len())
    }

    /// Set the contents to those of another buffer, or of an array on the device.
    #[pyo3(signature = (cuda_ary, stream = None))]
    fn copy_from_device(
        &self,
        cuda_ary: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        parse_stream(stream)?;
        if let Ok(other) = cuda_ary.cast::<Self>() {
            let Block { address, size, .. } = other.get().block();
            return self.copy_from_address(address.0, size);
        }
        let py = cuda_ary.py();
        let Ok(interface) = cuda_ary.getattr(intern!(py, "__cuda_array_interface__")) else {
            return self.copy_from_host(cuda_ary, None);
        };
        let (address, _): (u64, bool) = interface.get_item(intern!(py, "data"))?.extract()?;
        let shape: Vec<u64> = interface.get_item(intern!(py, "shape"))?.extract()?;
        let kind: String = interface.get_item(intern!(py, "typestr"))?.extract()?;
        let item: u64 = kind.get(2..).and_then(|digits| digits.parse().ok()).unwrap_or(1);
        self.copy_from_address(address, shape.iter().product::<u64>() * item)
    }

    /// Make a buffer with the bytes of an object of the host.
    #[staticmethod]
    #[pyo3(signature = (b, stream = None, mr = None))]
    fn to_device(
        py: Python<'_>,
        b: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        mr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let host = HostBytes::of(b)?;
        Self::create(py, &Request { ptr: host.address(), size: host.len(), stream, mr })
    }

    /// A new buffer with the same contents, of the same resource.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        let Block { address: Address(ptr), size, .. } = self.block();
        let mr = self.resource.bind(py).as_any();
        Self::create(py, &Request { ptr, size, stream: None, mr: Some(mr) })
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.copy(py)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.copy(py)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let make = slf.get_type().getattr(intern!(slf.py(), "to_device"))?;
        Ok((make, (slf.get().to_bytes(slf.py())?,)))
    }

    /// Make it larger or smaller; a smaller one keeps its capacity.
    #[pyo3(signature = (new_size, stream = None))]
    fn resize(&self, py: Python<'_>, new_size: u64, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        parse_stream(stream)?;
        let resource = self.resource.get();
        self.change("resize", |buffer| {
            resource.run(py, || buffer.resize(new_size)).map_err(|error| raise(&error))
        })
    }

    /// Make room for this many bytes in all, and keep the size.
    #[pyo3(signature = (new_capacity, stream = None))]
    fn reserve(&self, py: Python<'_>, new_capacity: u64, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        parse_stream(stream)?;
        let resource = self.resource.get();
        self.change("grow", |buffer| {
            resource.run(py, || buffer.reserve(new_capacity)).map_err(|error| raise(&error))
        })
    }

    /// Bring memory that migrates to the device; no effect on other memory.
    #[pyo3(signature = (device = None, stream = None))]
    fn prefetch(&self, device: Option<i32>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = parse_stream(stream)?;
        if let Some(gpu) = crate::device::gpu(device.unwrap_or_else(current::current_device))? {
            let Block { address, size, .. } = self.block();
            // Memory that does not migrate stays where it is.
            let _ = gpu.prefetch(address, size, stream);
        }
        Ok(())
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.resource.get().is_host_memory() && !crate::device::has_cuda()? {
            return Err(PyAttributeError::new_err(
                "this buffer is in host memory; use memoryview(buffer) or numpy.asarray(buffer)",
            ));
        }
        let interface = self.interface(py, 0)?;
        interface.set_item(intern!(py, "strides"), py.None())?;
        Ok(interface)
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.require_host_memory().map_err(|error| PyAttributeError::new_err(error.to_string()))?;
        self.interface(py, 3)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        this.require_host_memory()?;
        let mut state = this.state();
        let Block { address: Address(address), size, .. } = state.block;
        // SAFETY: Python hands in a view to fill; the memory stays where it is while views are counted.
        let filled = unsafe {
            let at = std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at, size as ffi::Py_ssize_t, 0, flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        state.exports += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }

    fn __repr__(&self) -> String {
        let Block { address: Address(address), size, .. } = self.block();
        format!("DeviceBuffer(size={size}, ptr={address:#x})")
    }
}

impl DeviceBuffer {
    fn copy_from_address(&self, address: u64, size: u64) -> PyResult<()> {
        // The lock keeps the memory where it is until the copy is done.
        let state = self.state();
        let Block { stream, address: to, size: capacity, .. } = state.block;
        if size > capacity {
            let message =
                format!("Argument is too large. Need space for {size} bytes, the buffer has {capacity}.");
            return Err(PyValueError::new_err(message));
        }
        if size == 0 {
            return Ok(());
        }
        let order = self.resource.get().inner().order();
        let copier =
            order.copier().ok_or_else(|| PyValueError::new_err("this memory cannot be copied to"))?;
        // SAFETY: the source is kept alive by the caller, both are so long, and the copy is waited for.
        let copied = unsafe { copier.copy(to, Address(address), size, stream) };
        copied.and_then(|()| order.synchronize(stream)).map_err(|error| raise(&error))
    }

    fn interface<'py>(&self, py: Python<'py>, version: u32) -> PyResult<Bound<'py, PyDict>> {
        let Block { address: Address(address), size, .. } = self.block();
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "data"), (address, false))?;
        interface.set_item(intern!(py, "shape"), (size,))?;
        interface.set_item(intern!(py, "typestr"), intern!(py, "|u1"))?;
        interface.set_item(intern!(py, "version"), version)?;
        Ok(interface)
    }
}

impl FastCall for DeviceBuffer {
    fn call(arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = arguments.py;
        let parameters =
            || [intern!(py, "size"), intern!(py, "ptr"), intern!(py, "stream"), intern!(py, "mr")];
        let [size, ptr, stream, mr] = arguments.parse("DeviceBuffer", 1, parameters)?;
        let number = |value: Option<&Bound<'_, PyAny>>| value.map_or(Ok(0), PyAnyMethods::extract);
        let request = Request { size: number(size)?, ptr: number(ptr)?, stream, mr };
        Ok(Bound::new(py, Self::create(py, &request)?)?.into_any().unbind())
    }
}
