//! Programs for the device, as far as benchmarks and checks need them.
#![expect(unsafe_code, reason = "starts programs on the device")]

use super::device::CudaDevice;
use super::driver::{Driver, Grid};
use super::sys::Handle;
use crate::error::Result;
use crate::stream::Stream;

/// A kernel whose parameters are all of eight bytes.
#[derive(Debug)]
pub struct CudaKernel {
    device: CudaDevice,
    module: Handle,
    function: Handle,
}

impl CudaKernel {
    /// Loads a program in PTX and finds the kernel of that name in it.
    ///
    /// # Errors
    /// When the driver cannot compile it, or does not find the kernel.
    pub fn load(device: &CudaDevice, ptx: &str, name: &str) -> Result<Self> {
        let module = device.context().enter(|driver| driver.load_module(ptx))?;
        let mut this = Self { device: device.clone(), module, function: 0 };
        this.function = device.context().enter(|driver| driver.function(module, name))?;
        Ok(this)
    }

    /// Enqueues `blocks` blocks of `threads` threads on `stream`.
    ///
    /// # Errors
    /// When the device cannot.
    ///
    /// # Safety
    /// The kernel takes these parameters, and uses no memory that it may not.
    pub unsafe fn launch(&self, blocks: u32, threads: u32, stream: Stream, parameters: &[u64]) -> Result<()> {
        let mut parameters = parameters.to_vec();
        let (grid, stream) = (Grid { blocks, threads }, stream.handle() as Handle);
        // SAFETY: the caller's promise.
        let launch = |driver: &Driver| unsafe { driver.launch(self.function, grid, stream, &mut parameters) };
        Ok(self.device.context().enter(launch)?)
    }
}

impl Drop for CudaKernel {
    fn drop(&mut self) {
        if let Err(failure) = self.device.context().enter(|driver| driver.unload_module(self.module)) {
            tracing::debug!("cuda: {failure}");
        }
    }
}
