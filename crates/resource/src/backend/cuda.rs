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
use driver::Driver;

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
    /// Open devices: whoever opens one again must get the same order of streams.
    devices: Mutex<HashMap<i32, Weak<CudaOrder>>>,
}

/// The one that [`Cuda::open`] gives.
static OPEN: Mutex<Option<Cuda>> = Mutex::new(None);

impl Cuda {
    /// Loads the driver, the first time it is called; from then on the [`current`](crate::current)
    /// resource of a device is its plain memory, unless somebody set another.
    ///
    /// # Errors
    /// [`AllocError::Device`] when there is no driver, it lacks a function, or it finds no device.
    pub fn open() -> Result<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cuda) = &*open {
            return Ok(cuda.clone());
        }
        let cuda = Self::open_at(Path::new(LIBRARY))?;
        *open = Some(cuda.clone());
        current::set_defaults(|device| Ok(Arc::new(CudaMemory::new(&Self::open()?.device(device)?))));
        Ok(cuda)
    }

    /// Loads the driver from a given file: for tests, with a stand-in.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_at(path: &Path) -> Result<Self> {
        let driver =
            Driver::open(path).inspect_err(|failure| tracing::debug!("cuda: {failure}")).map(Arc::new)?;
        tracing::info!("cuda: {} serves CUDA {}", driver.path().display(), driver.version());
        Ok(Self { shared: Arc::new(Shared { driver, devices: Mutex::default() }) })
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
        let mut devices = self.shared.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = devices.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(CudaDevice::new(order));
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
        tracing::info!("cuda: device {ordinal} is {}, {} bytes", context.name(), context.total_bytes());
        let order = Arc::new(CudaOrder::new(context));
        devices.insert(ordinal, Arc::downgrade(&order));
        Ok(CudaDevice::new(order))
    }

    /// The context that is current in the calling thread, or 0.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn current_context(&self) -> Result<u64> {
        Ok(self.shared.driver.current().map(|context| context as u64)?)
    }
}
