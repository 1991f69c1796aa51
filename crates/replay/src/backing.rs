//! The memory below the resources: that of a device of this machine, or of a simulated device, which has
//! addresses but no bytes.

use std::any::Any;
use std::sync::Arc;

use floodmark_resource::{
    ALIGNMENT, Cuda, CudaAsync, CudaDevice, CudaManaged, CudaMemory, CudaPinned, Resource,
    Result as AllocResult, Simulated, Stream,
};

use crate::error::{Error, Result};
use crate::stage::{Holds, Stage};

/// Memory that resources get their blocks from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A simulated device, which has addresses but no bytes.
    Simulated {
        /// Its capacity.
        bytes: u64,
    },
    /// A device of this machine.
    Device {
        /// Its number.
        ordinal: i32,
    },
}

/// A backing that was opened.
#[derive(Clone, Debug)]
pub(crate) enum OpenBacking {
    Simulated { bytes: u64 },
    Device { device: CudaDevice, free_bytes: u64 },
}

impl OpenBacking {
    pub(crate) fn open(backing: Backing) -> Result<Self> {
        match backing {
            Backing::Simulated { bytes } => Ok(Self::Simulated { bytes }),
            Backing::Device { ordinal } => {
                let open = || {
                    let device = Cuda::open()?.device(ordinal)?;
                    let free_bytes = device.memory_info()?.free_bytes;
                    Ok(Self::Device { device, free_bytes })
                };
                open().map_err(|why| Error::Device { why: Box::new(why) })
            }
        }
    }

    /// Returns the bytes that resources can get.
    pub(crate) const fn free_bytes(&self) -> u64 {
        match self {
            Self::Simulated { bytes } => *bytes,
            Self::Device { free_bytes, .. } => *free_bytes,
        }
    }

    /// Memory for one play.
    pub(crate) fn base(&self) -> Base {
        match self {
            Self::Simulated { bytes } => Base::Simulated(Arc::new(Simulated::new(*bytes))),
            Self::Device { device, .. } => Base::Device(device.clone()),
        }
    }
}

/// Memory for one play.
pub(crate) enum Base {
    Simulated(Arc<Simulated>),
    Device(CudaDevice),
}

impl Base {
    /// Its memory, block by block.
    pub(crate) fn memory(&self) -> Arc<dyn Resource> {
        match self {
            Self::Simulated(device) => Arc::clone(device) as Arc<dyn Resource>,
            Self::Device(device) => Arc::new(CudaMemory::new(device)),
        }
    }

    pub(crate) const fn holds(&self) -> Holds {
        match self {
            Self::Simulated(_) => Holds::Live,
            Self::Device(_) => Holds::Reserved,
        }
    }

    pub(crate) fn managed(&self) -> AllocResult<Arc<dyn Resource>> {
        Ok(Arc::new(CudaManaged::new(self.device()?)))
    }

    pub(crate) fn pinned(&self) -> AllocResult<Arc<dyn Resource>> {
        Ok(Arc::new(CudaPinned::new(self.device()?)))
    }

    pub(crate) fn cuda_async(&self) -> AllocResult<Arc<dyn Resource>> {
        Ok(Arc::new(CudaAsync::new(self.device()?)?))
    }

    fn device(&self) -> AllocResult<&CudaDevice> {
        match self {
            Self::Device(device) => Ok(device),
            Self::Simulated(_) => Err(floodmark_resource::AllocError::Refused {
                message: "simulated memory has no driver".into(),
            }),
        }
    }

    /// Gives a stage a stream for each that was logged. The default ones are what they are.
    pub(crate) fn equip(&self, logged: &[u64], stage: &mut Stage) -> AllocResult<()> {
        for handle in logged {
            let known = Stream::foreign(*handle);
            if known == Stream::DEFAULT || known == Stream::PER_THREAD {
                stage.streams.push(known);
                continue;
            }
            let (stream, alive): (Stream, Box<dyn Any + Send + Sync>) = match self {
                Self::Simulated(device) => {
                    let made = device.streams().create();
                    (made.stream(), Box::new(made))
                }
                Self::Device(device) => {
                    let made = device.stream()?;
                    (made.stream(), Box::new(made))
                }
            };
            stage.streams.push(stream);
            stage.alive.push(alive);
        }
        match self {
            Self::Simulated(device) => stage.order = Some(Arc::clone(device.streams())),
            Self::Device(device) => stage.device = Some(device.clone()),
        }
        Ok(())
    }
}

/// Rounds down to what all resources align to.
pub(crate) const fn aligned(bytes: u64) -> u64 {
    bytes / ALIGNMENT * ALIGNMENT
}

/// What the host could still hand out, as far as the system says.
pub(crate) fn available_host_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
