//! The driver's functions with results instead of numbers.
//!
//! Nothing here knows which context is current; [`Context`](super::context::Context) does. Functions
//! that could make the device or the process use memory wrongly are unsafe, as in the driver.
#![expect(unsafe_code, reason = "calls the driver's functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use super::sys::{self, Device, DevicePointer, Handle, Library, Location, PoolAttribute, PoolProps, Table};
use crate::error::AllocError;

/// Something the driver refused.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    act: &'static str,
    status: sys::Status,
    message: String,
}

impl Failure {
    /// Whether there was not enough memory.
    pub(crate) const fn is_out_of_memory(&self) -> bool {
        self.status == sys::OUT_OF_MEMORY
    }
}

impl From<Failure> for AllocError {
    fn from(failure: Failure) -> Self {
        Self::Device { act: failure.act, message: failure.message }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.act, self.message)
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// The driver's status for success.
const SUCCESS: sys::Status = 0;
/// Status of failures that are not the driver's.
const OURS: sys::Status = -1;

/// An open driver.
#[derive(Debug)]
pub(crate) struct Driver {
    table: Table,
    version: c_int,
    path: PathBuf,
    _library: Library,
}

/// A grid of one-dimensional blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
}

impl Driver {
    /// Opens the driver and initializes it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        const LOADING: &str = "loading the CUDA driver";
        let ours = |message| Failure { act: LOADING, status: OURS, message };
        let library = Library::open(path).map_err(|why| {
            ours(format!(
                "{why}; install the NVIDIA driver, which brings this library, or use Simulated on a \
                 machine without a GPU"
            ))
        })?;
        let table = Table::load(&library).map_err(|symbol| {
            ours(format!(
                "{} has no function {symbol}: it is too old, or not NVIDIA's; install a newer NVIDIA \
                 driver, or use Simulated on a machine without a GPU",
                path.display()
            ))
        })?;
        let mut driver = Self { table, version: 0, path: path.to_owned(), _library: library };
        // SAFETY: flags must be 0.
        driver.check("initializing the CUDA driver", unsafe { (driver.table.init)(0) })?;
        // SAFETY: a valid place for the result.
        let status = unsafe { (driver.table.driver_version)(&raw mut driver.version) };
        driver.check("asking for the version of the CUDA driver", status)?;
        Ok(driver)
    }

    /// The newest CUDA it serves: 12040 for 12.4.
    pub(crate) const fn version(&self) -> i32 {
        self.version
    }

    /// Where it was loaded from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    fn check(&self, act: &'static str, status: sys::Status) -> Result<()> {
        if status == SUCCESS { Ok(()) } else { Err(self.failure(act, status)) }
    }

    #[cold]
    fn failure(&self, act: &'static str, status: sys::Status) -> Failure {
        let text = |of: unsafe extern "C" fn(sys::Status, *mut *const c_char) -> sys::Status| {
            let mut text = std::ptr::null();
            // SAFETY: a valid place for the result.
            let known = unsafe { of(status, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: the driver's strings end in NUL and live as long as the process.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let message = match (text(self.table.error_name), text(self.table.error_text)) {
            (Some(name), Some(text)) => format!("{name}: {text}"),
            (Some(name), None) => name,
            _ => format!("error {status} of the CUDA driver"),
        };
        Failure { act, status, message }
    }

    /// A function that this driver may be too old for.
    #[inline]
    fn newer<F>(&self, act: &'static str, function: Option<F>, since: &str) -> Result<F> {
        function.ok_or_else(|| {
            let (major, minor) = (self.version / 1000, self.version % 1000 / 10);
            let message = format!(
                "this driver serves CUDA {major}.{minor}, and CUDA {since} brought that; install a newer \
                 NVIDIA driver"
            );
            Failure { act, status: OURS, message }
        })
    }

    pub(crate) fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.device_count)(&raw mut count) };
        self.check("counting CUDA devices", status).map(|()| count)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<Device> {
        let mut device = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.device_get)(&raw mut device, ordinal) };
        self.check("opening a CUDA device", status).map(|()| device)
    }

    pub(crate) fn device_name(&self, device: Device) -> Result<String> {
        let mut name = [0_u8; 256];
        // SAFETY: the buffer is as long as stated; its last byte stays 0.
        let status = unsafe { (self.table.device_name)(name.as_mut_ptr().cast(), 255, device) };
        self.check("asking for the name of a CUDA device", status)?;
        let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy);
        Ok(name.map(std::borrow::Cow::into_owned).unwrap_or_default())
    }

    pub(crate) fn device_uuid(&self, device: Device) -> Result<[u8; 16]> {
        let mut uuid = [0; 16];
        // SAFETY: a valid place for the result, 16 bytes.
        let status = unsafe { (self.table.device_uuid)(&raw mut uuid, device) };
        self.check("asking for the identity of a CUDA device", status).map(|()| uuid)
    }

    pub(crate) fn device_total(&self, device: Device) -> Result<u64> {
        let mut total = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.device_total)(&raw mut total, device) };
        self.check("asking for the memory of a CUDA device", status).map(|()| total as u64)
    }

    pub(crate) fn device_attribute(&self, device: Device, attribute: c_int) -> Result<i32> {
        let mut value = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.device_attribute)(&raw mut value, attribute, device) };
        self.check("asking what a CUDA device can do", status).map(|()| value)
    }

    pub(crate) fn retain_primary(&self, device: Device) -> Result<Handle> {
        let mut context = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.primary_retain)(&raw mut context, device) };
        self.check("opening the context of a CUDA device", status).map(|()| context)
    }

    pub(crate) fn release_primary(&self, device: Device) -> Result<()> {
        // SAFETY: takes a number.
        let status = unsafe { (self.table.primary_release)(device) };
        self.check("closing the context of a CUDA device", status)
    }

    #[inline]
    pub(crate) fn current(&self) -> Result<Handle> {
        let mut context = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.context_get)(&raw mut context) };
        self.check("asking for the current context", status).map(|()| context)
    }

    pub(crate) fn set_current(&self, context: Handle) -> Result<()> {
        // SAFETY: a context that is retained, or was current a moment ago, or 0 for none.
        let status = unsafe { (self.table.context_set)(context) };
        self.check("switching to the context of a CUDA device", status)
    }

    pub(crate) fn synchronize_context(&self) -> Result<()> {
        // SAFETY: takes nothing.
        let status = unsafe { (self.table.context_synchronize)() };
        self.check("waiting for a CUDA device", status)
    }

    pub(crate) fn memory_info(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid places for the results.
        let status = unsafe { (self.table.memory_info)(&raw mut free, &raw mut total) };
        self.check("asking for free device memory", status).map(|()| (free as u64, total as u64))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<DevicePointer> {
        let mut address = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.allocate)(&raw mut address, bytes) };
        self.check("allocating device memory", status).map(|()| address)
    }

    pub(crate) fn allocate_managed(&self, bytes: usize) -> Result<DevicePointer> {
        let mut address = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.allocate_managed)(&raw mut address, bytes, sys::ATTACH_GLOBAL) };
        self.check("allocating managed memory", status).map(|()| address)
    }

    /// # Safety
    /// From [`allocate`](Self::allocate) or [`allocate_managed`](Self::allocate_managed), and used only
    /// by work that is enqueued already: the driver waits for the device.
    pub(crate) unsafe fn free(&self, address: DevicePointer) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.table.free)(address) };
        self.check("freeing device memory", status)
    }

    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<Handle> {
        let mut address = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.allocate_host)(&raw mut address, bytes, sys::HOST_PORTABLE) };
        self.check("allocating pinned memory", status).map(|()| address)
    }

    /// # Safety
    /// From [`allocate_host`](Self::allocate_host), and not used any more.
    pub(crate) unsafe fn free_host(&self, address: Handle) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.table.free_host)(address) };
        self.check("freeing pinned memory", status)
    }

    pub(crate) fn create_stream(&self, flags: u32) -> Result<Handle> {
        let mut stream = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.stream_create)(&raw mut stream, flags) };
        self.check("creating a stream", status).map(|()| stream)
    }

    pub(crate) fn destroy_stream(&self, stream: Handle) -> Result<()> {
        // SAFETY: the driver finishes what is enqueued; no more is enqueued.
        let status = unsafe { (self.table.stream_destroy)(stream) };
        self.check("ending a stream", status)
    }

    pub(crate) fn synchronize_stream(&self, stream: Handle) -> Result<()> {
        // SAFETY: a stream that lives, as the caller promised when it named it.
        let status = unsafe { (self.table.stream_synchronize)(stream) };
        self.check("waiting for a stream", status)
    }

    #[inline]
    pub(crate) fn stream_id(&self, stream: Handle) -> Result<u64> {
        const ACT: &str = "asking for the identity of a stream";
        let stream_id = self.newer(ACT, self.table.stream_id, "12.0")?;
        let mut id = 0;
        // SAFETY: a stream that lives, as the caller promised when it named it, and a valid place for the result.
        let status = unsafe { stream_id(stream, &raw mut id) };
        self.check(ACT, status).map(|()| id)
    }

    pub(crate) fn create_event(&self) -> Result<Handle> {
        let mut event = 0;
        // SAFETY: a valid place for the result.
        let status = unsafe { (self.table.event_create)(&raw mut event, sys::EVENT_DISABLE_TIMING) };
        self.check("creating an event", status).map(|()| event)
    }

    pub(crate) fn destroy_event(&self, event: Handle) -> Result<()> {
        // SAFETY: the driver keeps it for as long as streams wait for it.
        let status = unsafe { (self.table.event_destroy)(event) };
        self.check("ending an event", status)
    }

    #[inline]
    pub(crate) fn record_event(&self, event: Handle, stream: Handle) -> Result<()> {
        // SAFETY: an event of ours, and a stream that lives, as the caller promised when it named it.
        let status = unsafe { (self.table.event_record)(event, stream) };
        self.check("recording an event", status)
    }

    #[inline]
    pub(crate) fn wait_for_event(&self, stream: Handle, event: Handle) -> Result<()> {
        // SAFETY: an event of ours, and a stream that lives, as the caller promised when it named it.
        let status = unsafe { (self.table.stream_wait)(stream, event, 0) };
        self.check("making a stream wait for an event", status)
    }

    pub(crate) fn event_has_run(&self, event: Handle) -> Result<bool> {
        // SAFETY: an event of ours.
        match unsafe { (self.table.event_query)(event) } {
            sys::NOT_READY => Ok(false),
            status => self.check("asking for an event", status).map(|()| true),
        }
    }

    pub(crate) fn synchronize_event(&self, event: Handle) -> Result<()> {
        // SAFETY: an event of ours.
        let status = unsafe { (self.table.event_synchronize)(event) };
        self.check("waiting for an event", status)
    }

    /// Copies within and between the memories of host and devices; the driver knows which is which.
    ///
    /// # Safety
    /// Both are at least `bytes` long, and are neither changed nor given back before the copy has run.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.table.copy)(to, from, bytes, stream) };
        self.check("copying memory", status)
    }

    /// # Safety
    /// The block has at least `bytes` bytes and is not given back before the fill has run.
    pub(crate) unsafe fn fill_bytes(&self, at: u64, value: u8, bytes: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.table.fill_bytes)(at, value, bytes, stream) };
        self.check("filling memory", status)
    }

    /// # Safety
    /// The block has at least `words` words of four bytes and is not given back before the fill has run.
    pub(crate) unsafe fn fill_words(&self, at: u64, value: u32, words: usize, stream: Handle) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.table.fill_words)(at, value, words, stream) };
        self.check("filling memory", status)
    }

    /// Prefetches managed memory to a device, by whichever call this driver has.
    pub(crate) fn prefetch(&self, at: u64, bytes: usize, device: Device, stream: Handle) -> Result<()> {
        const ACT: &str = "prefetching managed memory";
        let status = if let Some(prefetch) = self.table.prefetch_location {
            // SAFETY: the driver refuses addresses that are no managed memory.
            unsafe { prefetch(at, bytes, Location::device(device), 0, stream) }
        } else {
            let prefetch = self.newer(ACT, self.table.prefetch, "8.0")?;
            // SAFETY: as above.
            unsafe { prefetch(at, bytes, device, stream) }
        };
        self.check(ACT, status)
    }
}

/// Memory pools.
impl Driver {
    pub(crate) fn create_pool(&self, device: Device) -> Result<Handle> {
        const ACT: &str = "creating a memory pool";
        let create = self.newer(ACT, self.table.pool_create, "11.2")?;
        let mut pool = 0;
        let props = PoolProps::of(device);
        // SAFETY: props as the driver has them, and a valid place for the result.
        let status = unsafe { create(&raw mut pool, &raw const props) };
        self.check(ACT, status).map(|()| pool)
    }

    pub(crate) fn destroy_pool(&self, pool: Handle) -> Result<()> {
        const ACT: &str = "ending a memory pool";
        let destroy = self.newer(ACT, self.table.pool_destroy, "11.2")?;
        // SAFETY: a pool of ours; blocks that are still used keep it alive in the driver.
        self.check(ACT, unsafe { destroy(pool) })
    }

    pub(crate) fn set_pool(&self, pool: Handle, attribute: PoolAttribute, value: u64) -> Result<()> {
        const ACT: &str = "setting up a memory pool";
        let set = self.newer(ACT, self.table.pool_set, "11.2")?;
        let mut value = value;
        // SAFETY: a pool of ours, and all attributes named in `PoolAttribute` are of 64 bits.
        self.check(ACT, unsafe { set(pool, attribute as c_int, &raw mut value) })
    }

    pub(crate) fn pool(&self, pool: Handle, attribute: PoolAttribute) -> Result<u64> {
        const ACT: &str = "asking a memory pool";
        let get = self.newer(ACT, self.table.pool_get, "11.2")?;
        let mut value = 0;
        // SAFETY: as in `set_pool`, and a valid place for the result.
        let status = unsafe { get(pool, attribute as c_int, &raw mut value) };
        self.check(ACT, status).map(|()| value)
    }

    pub(crate) fn trim_pool(&self, pool: Handle, keep_bytes: usize) -> Result<()> {
        const ACT: &str = "trimming a memory pool";
        let trim = self.newer(ACT, self.table.pool_trim, "11.2")?;
        // SAFETY: a pool of ours.
        self.check(ACT, unsafe { trim(pool, keep_bytes) })
    }

    #[inline]
    pub(crate) fn allocate_from_pool(
        &self,
        pool: Handle,
        bytes: usize,
        stream: Handle,
    ) -> Result<DevicePointer> {
        const ACT: &str = "allocating from a memory pool";
        let allocate = self.newer(ACT, self.table.pool_allocate, "11.2")?;
        let mut address = 0;
        // SAFETY: a pool of ours, a stream that lives, and a valid place for the result.
        let status = unsafe { allocate(&raw mut address, bytes, pool, stream) };
        self.check(ACT, status).map(|()| address)
    }

    /// # Safety
    /// From [`allocate_from_pool`](Self::allocate_from_pool), and nothing uses it after what is
    /// enqueued on `stream` now.
    #[inline]
    pub(crate) unsafe fn free_to_pool(&self, address: DevicePointer, stream: Handle) -> Result<()> {
        const ACT: &str = "freeing to a memory pool";
        let free = self.newer(ACT, self.table.pool_free, "11.2")?;
        // SAFETY: the caller's promise.
        self.check(ACT, unsafe { free(address, stream) })
    }
}

/// Programs for the device.
impl Driver {
    /// Loads a program in PTX.
    pub(crate) fn load_module(&self, ptx: &str) -> Result<Handle> {
        const ACT: &str = "loading a program for the device";
        let Ok(ptx) = CString::new(ptx) else {
            return Err(Failure { act: ACT, status: OURS, message: "there is a NUL in it".into() });
        };
        let mut module = 0;
        // SAFETY: PTX that ends in NUL, which the driver copies, and a valid place for the result.
        let status = unsafe { (self.table.module_load)(&raw mut module, ptx.as_ptr().cast()) };
        self.check(ACT, status).map(|()| module)
    }

    pub(crate) fn unload_module(&self, module: Handle) -> Result<()> {
        // SAFETY: a module of ours.
        let status = unsafe { (self.table.module_unload)(module) };
        self.check("unloading a program for the device", status)
    }

    pub(crate) fn function(&self, module: Handle, name: &str) -> Result<Handle> {
        const ACT: &str = "finding a kernel";
        let Ok(name) = CString::new(name) else {
            return Err(Failure { act: ACT, status: OURS, message: "there is a NUL in its name".into() });
        };
        let mut function = 0;
        // SAFETY: a module of ours, a name that ends in NUL, and a valid place for the result.
        let status = unsafe { (self.table.module_function)(&raw mut function, module, name.as_ptr()) };
        self.check(ACT, status).map(|()| function)
    }

    /// Starts a kernel whose parameters are all of eight bytes.
    ///
    /// # Safety
    /// The kernel takes these parameters, and uses their memory only as its owners allow.
    pub(crate) unsafe fn launch(
        &self,
        function: Handle,
        grid: Grid,
        stream: Handle,
        parameters: &mut [u64],
    ) -> Result<()> {
        let mut places: Vec<*mut c_void> =
            parameters.iter_mut().map(|parameter| std::ptr::from_mut(parameter).cast()).collect();
        // SAFETY: the caller's promise; the driver copies the parameters before it returns.
        let status = unsafe {
            (self.table.launch)(
                function,
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                0,
                stream,
                places.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.check("starting a kernel", status)
    }
}
