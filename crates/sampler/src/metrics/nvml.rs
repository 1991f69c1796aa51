//! NVIDIA's management library (NVML), loaded at run time if it is installed.
//!
//! Types and names are those of the library's public interface. All functions are required except for
//! optional details.
#![expect(unsafe_code, reason = "calls a driver's library")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt as _;

const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
/// Value for "not available".
const NOT_AVAILABLE: u64 = u64::MAX;
/// Size of the buffer for a name or UUID.
const TEXT_BYTES: usize = 96;
/// Largest number of processes.
const MOST_PROCESSES: c_uint = 65_536;

type Handle = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

const _: () = assert!(size_of::<ProcessInfo>() == 24, "as the third version of the call has it");

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

type PlainFn = unsafe extern "C" fn() -> c_int;
type CountFn = unsafe extern "C" fn(*mut c_uint) -> c_int;
type HandleFn = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type TextFn = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type MemoryInfoFn = unsafe extern "C" fn(Handle, *mut MemoryInfo) -> c_int;
type ProcessesFn = unsafe extern "C" fn(Handle, *mut c_uint, *mut ProcessInfo) -> c_int;
type UtilizationFn = unsafe extern "C" fn(Handle, *mut Utilization) -> c_int;

/// The functions that are used.
pub(crate) struct Nvml {
    memory_info: MemoryInfoFn,
    processes: ProcessesFn,
    utilization: Option<UtilizationFn>,
    uuid: TextFn,
    name: TextFn,
    shutdown: Option<PlainFn>,
    devices: Vec<Handle>,
}

/// The reason why the library cannot be used.
#[derive(Debug)]
pub(crate) enum Missing {
    /// It is not installed.
    Absent,
    /// It is installed and does not work.
    Broken(String),
}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) total: u64,
    /// Used bytes, including those reserved by the driver.
    pub(crate) used: u64,
    /// Utilization in percent.
    pub(crate) busy: Option<u64>,
}

impl Nvml {
    /// Loads and initializes the library.
    pub(crate) fn load(path: &OsStr) -> Result<Self, Missing> {
        let name = CString::new(path.as_bytes()).map_err(|_| Missing::Absent)?;
        // SAFETY: the name is a C string. Initializers of the library are the driver's responsibility.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(Missing::Absent);
        }
        // Null if there is no such function.
        // SAFETY: the library was just loaded and is never unloaded; the name is a C string.
        let find = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        let need = |name: &CStr| {
            let symbol = find(name);
            let missing = || Missing::Broken(format!("it has no {}", name.to_string_lossy()));
            (!symbol.is_null()).then_some(symbol).ok_or_else(missing)
        };
        let memory_info = need(c"nvmlDeviceGetMemoryInfo")?;
        let processes = need(c"nvmlDeviceGetComputeRunningProcesses_v3")?;
        let (uuid, name) = (need(c"nvmlDeviceGetUUID")?, need(c"nvmlDeviceGetName")?);
        let utilization = find(c"nvmlDeviceGetUtilizationRates");
        let shutdown = find(c"nvmlShutdown");
        let (init, count) = (need(c"nvmlInit_v2")?, need(c"nvmlDeviceGetCount_v2")?);
        let handle = need(c"nvmlDeviceGetHandleByIndex_v2")?;
        // SAFETY: these are the signatures that the library's public interface gives these names, and
        // null is how an optional function is absent.
        let (mut nvml, init, count, handle) = unsafe {
            let nvml = Self {
                memory_info: transmute::<*mut c_void, MemoryInfoFn>(memory_info),
                processes: transmute::<*mut c_void, ProcessesFn>(processes),
                utilization: transmute::<*mut c_void, Option<UtilizationFn>>(utilization),
                uuid: transmute::<*mut c_void, TextFn>(uuid),
                name: transmute::<*mut c_void, TextFn>(name),
                shutdown: transmute::<*mut c_void, Option<PlainFn>>(shutdown),
                devices: Vec::new(),
            };
            let init = transmute::<*mut c_void, PlainFn>(init);
            let count = transmute::<*mut c_void, CountFn>(count);
            (nvml, init, count, transmute::<*mut c_void, HandleFn>(handle))
        };
        // SAFETY: it takes nothing.
        match unsafe { init() } {
            SUCCESS => {}
            code => return Err(Missing::Broken(format!("it does not start (error {code})"))),
        }
        let mut devices = 0;
        // SAFETY: the library was started; the place is valid.
        if unsafe { count(&raw mut devices) } != SUCCESS {
            return Err(Missing::Broken("it cannot count devices".into()));
        }
        for index in 0..devices {
            let mut device = std::ptr::null_mut();
            // SAFETY: as above. A device that may not be used has no handle, and keeps its index.
            let code = unsafe { handle(index, &raw mut device) };
            nvml.devices.push(if code == SUCCESS { device } else { std::ptr::null_mut() });
        }
        Ok(nvml)
    }

    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    fn device(&self, index: usize) -> Option<Handle> {
        self.devices.get(index).copied().filter(|device| !device.is_null())
    }

    /// Name and UUID of a device.
    pub(crate) fn describe(&self, index: usize) -> (String, String) {
        let text = |function: TextFn| {
            let mut buffer = [0u8; TEXT_BYTES];
            let device = self.device(index)?;
            // SAFETY: the handle is the library's own, and the buffer has this length.
            let code = unsafe { function(device, buffer.as_mut_ptr().cast(), TEXT_BYTES as c_uint) };
            let text = CStr::from_bytes_until_nul(&buffer).ok()?;
            (code == SUCCESS).then(|| text.to_string_lossy().into_owned())
        };
        (text(self.name).unwrap_or_default(), text(self.uuid).unwrap_or_default())
    }

    /// Memory of a device.
    pub(crate) fn memory(&self, index: usize) -> Option<Device> {
        let device = self.device(index)?;
        let mut info = MemoryInfo::default();
        // SAFETY: the handle is the library's own, the place is valid.
        if unsafe { (self.memory_info)(device, &raw mut info) } != SUCCESS {
            return None;
        }
        let busy = self.utilization.and_then(|function| {
            let mut utilization = Utilization::default();
            // SAFETY: as above.
            let code = unsafe { function(device, &raw mut utilization) };
            (code == SUCCESS).then_some(u64::from(utilization.gpu))
        });
        Some(Device { total: info.total, used: info.used, busy })
    }

    /// Appends the compute processes of a device with their bytes; processes of unknown usage are left out.
    pub(crate) fn processes(&self, index: usize, out: &mut Vec<(i32, u64)>) {
        let Some(device) = self.device(index) else { return };
        let mut infos: Vec<ProcessInfo> = Vec::new();
        // Processes come and go between two calls.
        for _ in 0..4 {
            let mut count = infos.len() as c_uint;
            // SAFETY: there is room for `count` entries.
            let code = unsafe { (self.processes)(device, &raw mut count, infos.as_mut_ptr()) };
            match code {
                SUCCESS => {
                    infos.truncate(count as usize);
                    let known = infos.iter().filter(|info| info.used != NOT_AVAILABLE);
                    out.extend(known.map(|info| (info.pid as i32, info.used)));
                    return;
                }
                INSUFFICIENT_SIZE if count < MOST_PROCESSES => {
                    infos.resize(2 * count as usize + 5, ProcessInfo::default());
                }
                _ => return,
            }
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Some(shutdown) = self.shutdown {
            // SAFETY: the library was started, and no handle is used after this.
            unsafe { shutdown() };
        }
    }
}
