//! The current resource of each device, which allocations use by default.
//!
//! There is one per device and process. Blocks belong to the resource they came from: setting another
//! one changes where the next comes from and nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use floodmark_event::NO_DEVICE;

use crate::backend::host::Host;
use crate::error::{AllocError, Result};
use crate::resource::Resource;

/// Makes the resource that a device begins with.
pub type MakeDefault = fn(device: i32) -> Result<Arc<dyn Resource>>;

#[derive(Default)]
struct Registry {
    current: BTreeMap<i32, Arc<dyn Resource>>,
    /// What devices begin with, each made once.
    defaults: BTreeMap<i32, Arc<dyn Resource>>,
    make_default: Option<MakeDefault>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn read<T>(with: impl FnOnce(&Registry) -> T) -> T {
    with(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner))
}

/// What `with` takes out it returns, so that no resource ends under the lock.
fn write<T>(with: impl FnOnce(&mut Registry) -> T) -> T {
    with(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner))
}

/// The resource of `device` ([`NO_DEVICE`] for the host): what was set last, or what it begins with.
///
/// # Errors
/// What [`MakeDefault`] says, or that there is none and so no memory of that device.
pub fn current(device: i32) -> Result<Arc<dyn Resource>> {
    let (set, made, make) = read(|registry| {
        let set = registry.current.get(&device).cloned();
        let made = if set.is_none() { registry.defaults.get(&device).cloned() } else { None };
        (set, made, registry.make_default)
    });
    if let Some(resource) = set.or(made) {
        return Ok(resource);
    }
    let resource: Arc<dyn Resource> = match make {
        _ if device == NO_DEVICE => Arc::new(Host::new()),
        // Without the lock: it may take its time, and ask for the resource of another device.
        Some(make) => make(device)?,
        None => return Err(unknown(device)),
    };
    // Another thread may have been faster; then this one goes, after the lock.
    let first = write(|registry| {
        Arc::clone(registry.defaults.entry(device).or_insert_with(|| Arc::clone(&resource)))
    });
    Ok(first)
}

fn unknown(device: i32) -> AllocError {
    let message = format!(
        "device {device} has none: CUDA is not initialized in this process, and no resource was set for the device"
    );
    AllocError::Device { act: "finding the current resource", message }
}

/// Makes `resource` the one of `device`; returns the one before, where there was one.
pub fn set_current(device: i32, resource: Arc<dyn Resource>) -> Option<Arc<dyn Resource>> {
    let name = resource.name();
    let (before, default) = write(|registry| {
        (registry.current.insert(device, resource), registry.defaults.get(&device).cloned())
    });
    let before = before.or(default);
    let was = before.as_ref().map_or("none", |before| before.name());
    tracing::info!("{}: the current resource is now {name}, was {was}", Shown(device));
    before
}

/// Goes back to what `device` begins with; returns what was set, where something was.
pub fn reset(device: i32) -> Option<Arc<dyn Resource>> {
    let before = write(|registry| registry.current.remove(&device))?;
    tracing::info!("{}: the current resource is the first one again, was {}", Shown(device), before.name());
    Some(before)
}

/// Sets how the first resource of a device is made; for code that initializes devices.
pub fn set_defaults(make_default: MakeDefault) {
    write(|registry| registry.make_default = Some(make_default));
}

/// A device in messages.
struct Shown(i32);

impl std::fmt::Display for Shown {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            NO_DEVICE => out.write_str("host"),
            device => write!(out, "device {device}"),
        }
    }
}
