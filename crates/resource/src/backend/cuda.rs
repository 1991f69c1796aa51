//! Memory of NVIDIA devices.
//!
//! The driver is a library that is looked for when it is needed: programs build and start without it,
//! and get an error that says what to do. Three storeys: `sys` has the driver's types and functions,
//! `driver` gives results for its numbers, and on those stand devices, streams and resources.

mod context;
mod device;
mod driver;
mod kernel;
mod live;
mod order;
mod plain;
mod pooled;
mod sys;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use device::{CudaDevice, MemoryInfo};
pub use kernel::CudaKernel;
pub use order::{Blocking, CudaOrder, CudaStream};
pub use plain::{CudaManaged, CudaMemory, CudaPinned};
pub use pooled::{CudaAsync, CudaAsyncProps, PoolUsage};

use context::Context;
use driver::{Driver, Failure};

use crate::current;
use crate::error::{AllocError, Result};

/// What the driver's library is called on every Linux.
const LIBRARY: &str = "libcuda.so.1";

/// The CUDA driver of this process; clones are the same.
#[derive(Clone, Debug)]
pub struct Cuda {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    driver: Arc<Driver>,
    /// Open devices: opening one again has to give the same order of streams.
    devices: Mutex<HashMap<i32, Weak<CudaOrder>>>,
}

/// The one that [`Cuda::open`] gives.
static OPEN: Mutex<Option<Cuda>> = Mutex::new(None);

impl Cuda {
    /// Loads the driver, the first time it is called; from then on the [`current`]
    /// resource of a device is its plain memory, unless another was set.
    ///
    /// # Errors
    /// [`AllocError::Device`] when there is no driver, it lacks a function, or it finds no device.
    pub fn open() -> Result<Self> {
        let loaded = {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(cuda) = &*open {
                return Ok(cuda.clone());
            }
            let loaded = Self::load(Path::new(LIBRARY));
            if let Ok(cuda) = &loaded {
                *open = Some(cuda.clone());
                current::set_defaults(|device| Ok(Arc::new(CudaMemory::new(&Self::open()?.device(device)?))));
            }
            loaded
        };
        Self::told(loaded)
    }

    /// Loads the driver from a given file: for tests, with a stand-in.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_at(path: &Path) -> Result<Self> {
        Self::told(Self::load(path))
    }

    fn load(path: &Path) -> Result<Self, Failure> {
        let driver = Arc::new(Driver::open(path)?);
        Ok(Self { shared: Arc::new(Shared { driver, devices: Mutex::default() }) })
    }

    /// Logs how loading went. Not under a lock: a subscriber may ask for memory of a device.
    fn told(loaded: Result<Self, Failure>) -> Result<Self> {
        let cuda = loaded.inspect_err(|failure| tracing::debug!("cuda: {failure}"))?;
        let driver = &cuda.shared.driver;
        tracing::info!("cuda: {} serves CUDA {}", driver.path().display(), driver.version());
        Ok(cuda)
    }

    /// The newest CUDA that the driver serves: 12040 for 12.4.
    pub fn version(&self) -> i32 {
        self.shared.driver.version()
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn device_count(&self) -> Result<i32> {
        Ok(self.shared.driver.device_count()?)
    }

    /// Opens a device, by its number from 0; opening one twice gives the same.
    ///
    /// # Errors
    /// When there is no such device, or it cannot be used.
    pub fn device(&self, ordinal: i32) -> Result<CudaDevice> {
        let (device, is_new) = self.find_or_open(ordinal)?;
        // After the lock: a subscriber may ask for the device.
        if is_new {
            let (name, total_bytes) = (device.name(), device.total_bytes());
            tracing::info!("cuda: device {ordinal} is {name}, {total_bytes} bytes");
        }
        Ok(device)
    }

    /// The device, and whether it was not open before.
    fn find_or_open(&self, ordinal: i32) -> Result<(CudaDevice, bool)> {
        let mut devices = self.shared.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = devices.get(&ordinal).and_then(Weak::upgrade) {
            return Ok((CudaDevice::new(order), false));
        }
        let count = self.device_count()?;
        if !(0..count).contains(&ordinal) {
            let message = match count {
                0 => "there is none".into(),
                1 => format!("there is no device {ordinal}, only device 0"),
                _ => format!("there is no device {ordinal}, only devices 0 to {}", count - 1),
            };
            return Err(AllocError::Device { act: "opening a CUDA device", message });
        }
        let context = Context::open(Arc::clone(&self.shared.driver), ordinal)?;
        let order = Arc::new(CudaOrder::new(context));
        devices.insert(ordinal, Arc::downgrade(&order));
        Ok((CudaDevice::new(order), true))
    }

    /// The context that is current in the calling thread, or 0.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn current_context(&self) -> Result<u64> {
        Ok(self.shared.driver.current().map(|context| context as u64)?)
    }
}
