//! Which resource a device's memory comes from, as Python objects.
//!
//! The registry of `floodmark-resource` is kept the same, so that code below Python allocates from there too.

#![expect(unsafe_code, reason = "borrows the current resource from the registry without its lock")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_event::Kind;
use floodmark_resource::{Resource as _, current};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::device;
use crate::layers::Shared;
use crate::resource::Resource;

struct Registry {
    resources: BTreeMap<i32, Py<Resource>>,
    /// Makes the first resource of a device.
    factory: Option<Py<PyAny>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { resources: BTreeMap::new(), factory: None });

/// The resource of device 0 in the registry, to be found without a lock; null if there is none.
static FIRST: AtomicPtr<ffi::PyObject> = AtomicPtr::new(std::ptr::null_mut());

/// Whether the process can read and write what that hands out.
static FIRST_IS_HOST: AtomicBool = AtomicBool::new(true);

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// Whether a thread has chosen another device than 0; until then no thread has to look up its own choice.
static ANY_OTHER: AtomicBool = AtomicBool::new(false);

/// Nothing in Python runs while it is held.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device that the calling thread allocates on.
#[pyfunction]
#[inline]
pub(crate) fn current_device() -> i32 {
    if ANY_OTHER.load(Ordering::Relaxed) { DEVICE.get() } else { 0 }
}

/// Allocate on another device from now on, in the calling thread.
#[pyfunction]
pub(crate) fn set_current_device(device: i32) -> PyResult<()> {
    if let Some(gpu) = device::gpu(device)? {
        gpu.make_current().map_err(|error| crate::error::raise(&error))?;
    }
    DEVICE.set(device);
    if device != 0 {
        ANY_OTHER.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The resource of device 0, borrowed from the registry; none if it has none yet.
#[inline]
fn first(py: Python<'_>) -> Option<Bound<'_, Resource>> {
    let first = FIRST.load(Ordering::Relaxed);
    // SAFETY: the registry owns it, and changes only with the interpreter attached, as it is here.
    let first = unsafe { Bound::from_borrowed_ptr_or_opt(py, first) }?;
    // SAFETY: only resources are in the registry.
    Some(unsafe { first.cast_into_unchecked::<Resource>() })
}

/// The resource of the calling thread's device.
#[inline]
pub(crate) fn current(py: Python<'_>) -> PyResult<Py<Resource>> {
    let device = current_device();
    match first(py) {
        Some(first) if device == 0 => Ok(first.unbind()),
        _ => get_resource(py, device),
    }
}

/// A resource whose memory the process can read and write.
pub(crate) enum HostMemory {
    /// Kept by the Python object, whose references are counted without atomic operations.
    Python(Py<Resource>),
    Native(Shared),
}

/// The resource of the calling thread's device, if the process can read and write its memory.
#[inline]
pub(crate) fn host_memory(py: Python<'_>) -> Option<HostMemory> {
    let device = current_device();
    if device == 0
        && let Some(first) = first(py)
    {
        return FIRST_IS_HOST.load(Ordering::Relaxed).then(|| HostMemory::Python(first.unbind()));
    }
    let resource = current::current(device).ok()?;
    (resource.memory().kind != Kind::Device).then_some(HostMemory::Native(resource))
}

/// Makes `FIRST` what the registry has for device 0; call it before what the registry had is dropped.
fn update_first(registry: &Registry) {
    let first = registry.resources.get(&0).map_or(std::ptr::null_mut(), Py::as_ptr);
    FIRST.store(first, Ordering::Relaxed);
    let is_host = registry.resources.get(&0).is_none_or(|resource| resource.get().is_host_memory());
    FIRST_IS_HOST.store(is_host, Ordering::Relaxed);
}

/// The resource of a device.
#[pyfunction]
pub(crate) fn get_resource(py: Python<'_>, device: i32) -> PyResult<Py<Resource>> {
    let registry = registry();
    if let Some(resource) = registry.resources.get(&device) {
        return Ok(resource.clone_ref(py));
    }
    let factory = registry.factory.as_ref().map(|factory| factory.clone_ref(py));
    drop(registry);
    let factory = factory.ok_or_else(|| PyRuntimeError::new_err("floodmark is not imported"))?;
    let made: Py<Resource> = factory.bind(py).call1((device,))?.cast_into::<Resource>()?.unbind();
    let mut registry = self::registry();
    let resource = registry.resources.entry(device).or_insert(made).clone_ref(py);
    update_first(&registry);
    Ok(resource)
}

/// Make a resource the one of a device.
#[pyfunction]
pub(crate) fn set_resource(py: Python<'_>, device: i32, resource: Py<Resource>) {
    let below = resource.get().shared();
    let mut registry = registry();
    let before = registry.resources.insert(device, resource);
    update_first(&registry);
    drop(registry);
    let lower = current::set_current(device, below);
    drop(before);
    // The last owner may have to call Python to free what it holds.
    py.detach(|| drop(lower));
}

/// Devices that have a resource.
#[pyfunction]
pub(crate) fn registered_devices() -> Vec<i32> {
    registry().resources.keys().copied().collect()
}

/// Forget the resources of all devices.
#[pyfunction]
pub(crate) fn reset_resources(py: Python<'_>) {
    let mut registry = registry();
    let before = std::mem::take(&mut registry.resources);
    update_first(&registry);
    drop(registry);
    let lower: Vec<_> = before.keys().map(|device| current::reset(*device)).collect();
    drop(before);
    py.detach(|| drop(lower));
}

/// Set the function that makes the first resource of a device.
#[pyfunction]
pub(crate) fn set_default_factory(factory: Py<PyAny>) {
    let before = registry().factory.replace(factory);
    drop(before);
}
