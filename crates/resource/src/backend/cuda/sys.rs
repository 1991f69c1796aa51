//! The part of the CUDA driver's interface that is used here: its types, its numbers, its functions.
//!
//! Nothing of it is needed to build: the functions are looked up by name in a library opened at run
//! time. Names end in the version of the call whose signature stands here (`cuMemFree_v2`); the driver
//! keeps old versions for ever.
#![expect(unsafe_code, reason = "functions of a library opened at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

/// What every function returns: 0, or the number of an error.
pub(crate) type Status = c_int;
/// A device's number within the driver.
pub(crate) type Device = c_int;
/// Handles are pointers of the driver that are never followed here, kept as numbers.
pub(crate) type Handle = usize;
/// An address that the device knows.
pub(crate) type DevicePointer = u64;

/// There is not enough memory.
pub(crate) const OUT_OF_MEMORY: Status = 2;
/// What was asked about has not run yet.
pub(crate) const NOT_READY: Status = 600;
/// Managed memory that every stream may use.
pub(crate) const ATTACH_GLOBAL: c_uint = 1;
/// Pinned memory that every context knows as such.
pub(crate) const HOST_PORTABLE: c_uint = 1;
/// A stream that does not wait for the default stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// An event that keeps no time, which makes it cheaper.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// Whether the device has memory pools.
pub(crate) const ATTRIBUTE_MEMORY_POOLS: c_int = 115;

/// What a memory pool can be asked, or told.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum PoolAttribute {
    ReleaseThreshold = 4,
    ReservedCurrent = 5,
    ReservedHigh = 6,
    UsedCurrent = 7,
    UsedHigh = 8,
}

/// Where memory lies.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    pub(crate) const fn device(device: Device) -> Self {
        Self { kind: 1, id: device }
    }
}

/// What a memory pool is made of.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProps {
    allocation: c_int,
    shared_as: c_int,
    location: Location,
    security: Handle,
    most_bytes: usize,
    reserved: [u8; 56],
}

impl PoolProps {
    /// Memory of a device that stays in this process.
    pub(crate) const fn of(device: Device) -> Self {
        let location = Location::device(device);
        Self { allocation: 1, shared_as: 0, location, security: 0, most_bytes: 0, reserved: [0; 56] }
    }
}

/// Declares the table once: its fields, its names, and how it is filled.
macro_rules! table {
    (
        required { $($field:ident = $symbol:literal ($($type:ty),*);)* }
        optional { $($newer:ident = $newer_symbol:literal ($($newer_type:ty),*);)* }
    ) => {
        /// The driver's functions.
        #[derive(Debug)]
        pub(crate) struct Table {
            $(pub(crate) $field: unsafe extern "C" fn($($type),*) -> Status,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_type),*) -> Status>,)*
        }

        /// Names of the functions without which nothing works.
        #[cfg(test)]
        const REQUIRED: &[&str] = &[$($symbol),*];
        /// Names of the functions that older drivers lack.
        #[cfg(test)]
        const OPTIONAL: &[&str] = &[$($newer_symbol),*];

        impl Table {
            /// Looks up every function.
            ///
            /// # Errors
            /// The name of the first required one that is not there.
            pub(crate) fn load(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the driver's header gives the functions of these names these signatures, and
                // a null pointer is what `None` of a function pointer is.
                unsafe {
                    Ok(Self {
                        $($field: std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($type),*) -> Status>,
                        >(library.symbol($symbol)).ok_or($symbol)?,)*
                        $($newer: std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($newer_type),*) -> Status>,
                        >(library.symbol($newer_symbol)),)*
                    })
                }
            }
        }
    };
}

table! {
    required {
        init = "cuInit"(c_uint);
        driver_version = "cuDriverGetVersion"(*mut c_int);
        error_name = "cuGetErrorName"(Status, *mut *const c_char);
        error_text = "cuGetErrorString"(Status, *mut *const c_char);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut Device, c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, Device);
        device_uuid = "cuDeviceGetUuid"(*mut [u8; 16], Device);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, Device);
        device_total = "cuDeviceTotalMem_v2"(*mut usize, Device);
        primary_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, Device);
        primary_release = "cuDevicePrimaryCtxRelease_v2"(Device);
        context_set = "cuCtxSetCurrent"(Handle);
        context_get = "cuCtxGetCurrent"(*mut Handle);
        context_synchronize = "cuCtxSynchronize"();
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
        allocate = "cuMemAlloc_v2"(*mut DevicePointer, usize);
        allocate_managed = "cuMemAllocManaged"(*mut DevicePointer, usize, c_uint);
        free = "cuMemFree_v2"(DevicePointer);
        allocate_host = "cuMemHostAlloc"(*mut Handle, usize, c_uint);
        free_host = "cuMemFreeHost"(Handle);
        stream_create = "cuStreamCreate"(*mut Handle, c_uint);
        stream_destroy = "cuStreamDestroy_v2"(Handle);
        stream_synchronize = "cuStreamSynchronize"(Handle);
        stream_wait = "cuStreamWaitEvent"(Handle, Handle, c_uint);
        event_create = "cuEventCreate"(*mut Handle, c_uint);
        event_destroy = "cuEventDestroy_v2"(Handle);
        event_record = "cuEventRecord"(Handle, Handle);
        event_query = "cuEventQuery"(Handle);
        event_synchronize = "cuEventSynchronize"(Handle);
        copy = "cuMemcpyAsync"(DevicePointer, DevicePointer, usize, Handle);
        fill_bytes = "cuMemsetD8Async"(DevicePointer, u8, usize, Handle);
        fill_words = "cuMemsetD32Async"(DevicePointer, c_uint, usize, Handle);
        module_load = "cuModuleLoadData"(*mut Handle, *const c_void);
        module_unload = "cuModuleUnload"(Handle);
        module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        launch = "cuLaunchKernel"(
            Handle,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            Handle,
            *mut *mut c_void,
            *mut *mut c_void
        );
    }
    optional {
        // 11.2
        pool_create = "cuMemPoolCreate"(*mut Handle, *const PoolProps);
        pool_destroy = "cuMemPoolDestroy"(Handle);
        pool_set = "cuMemPoolSetAttribute"(Handle, c_int, *mut u64);
        pool_get = "cuMemPoolGetAttribute"(Handle, c_int, *mut u64);
        pool_trim = "cuMemPoolTrimTo"(Handle, usize);
        pool_allocate = "cuMemAllocFromPoolAsync"(*mut DevicePointer, usize, Handle, Handle);
        pool_free = "cuMemFreeAsync"(DevicePointer, Handle);
        // 12.0
        stream_id = "cuStreamGetId"(Handle, *mut u64);
        // 8.0, and since 12.2 with a location
        prefetch = "cuMemPrefetchAsync"(DevicePointer, usize, Device, Handle);
        prefetch_location = "cuMemPrefetchAsync_v2"(DevicePointer, usize, Location, c_uint, Handle);
    }
}

/// A shared library, open for as long as the process lives: a driver that has threads cannot be closed.
#[derive(Debug)]
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle of `dlopen` may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by name, or by path.
    ///
    /// # Errors
    /// What the loader says.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        use std::os::unix::ffi::OsStrExt as _;
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
            return Err(format!("{}: there is a NUL in the name", path.display()));
        };
        // SAFETY: a string that ends in NUL. What the library does when it is loaded is the driver's
        // own matter: naming another library vouches for it.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !library.is_null() {
            return Ok(Self(library));
        }
        // SAFETY: after a failure this is a message of this thread, or null.
        let message = unsafe { libc::dlerror() };
        if message.is_null() {
            return Err(format!("{}: cannot be opened", path.display()));
        }
        // SAFETY: not null, and valid until this thread's next call of the loader.
        Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
    }

    /// The function of that name, or null.
    fn symbol(&self, name: &str) -> *mut c_void {
        let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
        // SAFETY: the library is open and the name ends in NUL.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn every_function_is_named_once() {
        let all: Vec<&str> = REQUIRED.iter().chain(OPTIONAL).copied().collect();
        let set: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len());
        assert!(all.iter().all(|name| name.starts_with("cu")), "{all:?}");
    }

    #[test]
    fn structs_are_laid_out_as_the_driver_has_them() {
        assert_eq!(size_of::<PoolProps>(), 88);
        assert_eq!(offset_of!(PoolProps, location), 8);
        assert_eq!(offset_of!(PoolProps, security), 16);
        assert_eq!(offset_of!(PoolProps, most_bytes), 24);
        assert_eq!(size_of::<Location>(), 8);
    }
}
