//! What is asked of the driver itself: the context of the calling thread, its device, and how much memory is free.
//!
//! Only functions that change nothing are called. They are looked up in the driver's library as it is loaded, past the
//! functions of this library that take their place.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use floodmark_event::NO_DEVICE;
use floodmark_tail::global;

use crate::cold::run_cold;
use crate::thread::{Inside, current};

/// Contexts whose device is remembered.
const CONTEXTS: usize = 64;

/// Calls a function of the driver that takes pointers and numbers; none if there is no such function or it fails.
macro_rules! ask {
    ($name:literal, $($argument:expr),*) => {{
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        match function(&FOUND, $name) {
            // SAFETY: a function of the driver with arguments as its interface has them since CUDA 3.2; it writes to the
            // places alone.
            Some(found) => unsafe { call(found, [$($argument as u64),*].as_slice()) },
            None => None,
        }
    }};
}

/// Looks a function of the driver up, once.
fn function(found: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return Some(known);
    }
    let new = symbol(name)?;
    found.store(new, Ordering::Relaxed);
    Some(new)
}

/// A function in the library of the driver that is loaded.
pub(super) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: C strings; the library is loaded already or not at all.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = super::interpose::real_dlsym(library, name);
        // The driver's library is never unloaded by its users; this gives back only what was counted here.
        libc::dlclose(library);
        found
    };
    (!found.is_null()).then_some(found)
}

/// Calls a function of the driver with calls of hooked functions passed on.
///
/// # Safety
/// The function takes these arguments, at most three.
unsafe fn call(function: *mut c_void, arguments: &[u64]) -> Option<()> {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    let inside = current().inside.replace(Inside::Passing);
    // SAFETY: as the caller guarantees; arguments that a function does not have are in registers that it does not read.
    let result = unsafe {
        let function =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64, u64, u64) -> c_int>(function);
        function(argument(0), argument(1), argument(2))
    };
    current().inside.set(inside);
    (result == 0).then_some(())
}

/// The context of the calling thread; 0 if it has none.
pub(super) fn current_context() -> u64 {
    let mut context = 0_u64;
    match ask!(c"cuCtxGetCurrent", (&raw mut context).addr()) {
        Some(()) => context,
        None => 0,
    }
}

static KNOWN: [AtomicU64; CONTEXTS] = [const { AtomicU64::new(0) }; CONTEXTS];
/// Devices of these contexts, and one.
static DEVICES: [AtomicU32; CONTEXTS] = [const { AtomicU32::new(0) }; CONTEXTS];

/// The device of a context, which is the calling thread's.
pub(super) fn device_of(context: u64) -> i32 {
    if context == 0 {
        return NO_DEVICE;
    }
    let place = place_of(context);
    if KNOWN[place].load(Ordering::Acquire) == context {
        return DEVICES[place].load(Ordering::Relaxed) as i32 - 1;
    }
    let mut device: c_int = 0;
    if ask!(c"cuCtxGetDevice", (&raw mut device).addr()).is_none() || device < 0 {
        return NO_DEVICE;
    }
    KNOWN[place].store(0, Ordering::Release);
    DEVICES[place].store(device as u32 + 1, Ordering::Relaxed);
    KNOWN[place].store(context, Ordering::Release);
    define_device(device);
    device
}

fn place_of(context: u64) -> usize {
    (context.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % CONTEXTS
}

/// Forgets the device of a context that ends.
pub(super) fn forget(context: u64) {
    let known = &KNOWN[place_of(context)];
    let _ = known.compare_exchange(context, 0, Ordering::AcqRel, Ordering::Relaxed);
}

/// Says in the trace which device a number stands for.
pub(super) fn define_device(device: c_int) {
    let mut uuid = [0_u8; 16];
    if ask!(c"cuDeviceGetUuid", uuid.as_mut_ptr().addr(), device).is_none() {
        return;
    }
    run_cold(&mut || {
        let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(<[String]>::concat);
        global().define_device(device, &format!("GPU-{}", text.join("-")));
    });
}

/// Free and all bytes of the device of the calling thread's context.
pub(super) fn memory_info() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0_u64, 0_u64);
    ask!(c"cuMemGetInfo_v2", (&raw mut free).addr(), (&raw mut total).addr())?;
    Some((free, total))
}

/// Bytes of the allocation that an address is of; 0 if the driver does not say.
pub(super) fn bytes_of(address: u64) -> u64 {
    let (mut base, mut bytes) = (0_u64, 0_u64);
    match ask!(c"cuMemGetAddressRange_v2", (&raw mut base).addr(), (&raw mut bytes).addr(), address) {
        Some(()) => bytes,
        None => 0,
    }
}

/// Attributes of pools.
const RESERVED_NOW: u64 = 5;
const USED_NOW: u64 = 7;

/// Bytes that a pool holds, and those of them that are in use.
pub(super) fn pool_levels(pool: u64) -> Option<(u64, u64)> {
    let (mut reserved, mut used) = (0_u64, 0_u64);
    ask!(c"cuMemPoolGetAttribute", pool, RESERVED_NOW, (&raw mut reserved).addr())?;
    ask!(c"cuMemPoolGetAttribute", pool, USED_NOW, (&raw mut used).addr())?;
    Some((reserved, used))
}

/// The pool that a device allocates from where none is named.
pub(super) fn pool_of(device: i32) -> Option<u64> {
    let mut pool = 0_u64;
    ask!(c"cuDeviceGetMemPool", (&raw mut pool).addr(), device)?;
    Some(pool)
}

/// The version of CUDA that the driver is of, as in 12090.
pub(super) fn cuda_version() -> Option<u32> {
    let mut version: c_int = 0;
    ask!(c"cuDriverGetVersion", (&raw mut version).addr())?;
    u32::try_from(version).ok()
}
