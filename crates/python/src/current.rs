//! Which resource a device's memory comes from, as Python objects.
//!
//! The registry of `floodmark-resource` is kept the same, so that code below Python allocates from there too.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_resource::current;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::device;
use crate::resource::Resource;

struct Registry {
    resources: BTreeMap<i32, Py<Resource>>,
    /// Makes the first resource of a device.
    factory: Option<Py<PyAny>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { resources: BTreeMap::new(), factory: None });

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// Nothing in Python runs while it is held.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device that the calling thread allocates on.
#[pyfunction]
pub(crate) fn current_device() -> i32 {
    DEVICE.get()
}

/// Allocate on another device from now on, in the calling thread.
#[pyfunction]
pub(crate) fn set_current_device(device: i32) -> PyResult<()> {
    if let Some(gpu) = device::gpu(device)? {
        gpu.make_current().map_err(|error| crate::error::raise(&error))?;
    }
    DEVICE.set(device);
    Ok(())
}

/// The resource of the calling thread's device.
#[inline]
pub(crate) fn current(py: Python<'_>) -> PyResult<Py<Resource>> {
    get_resource(py, DEVICE.get())
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
    let first = registry.resources.entry(device).or_insert(made);
    Ok(first.clone_ref(py))
}

/// Make a resource the one of a device.
#[pyfunction]
pub(crate) fn set_resource(py: Python<'_>, device: i32, resource: Py<Resource>) {
    let below = resource.get().shared();
    let before = registry().resources.insert(device, resource);
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
    let before = std::mem::take(&mut registry().resources);
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
