//! Memory of the current resource by the two C functions that PyTorch's `CUDAPluggableAllocator` calls.
//!
//! They are called from any thread, with the interpreter attached or not. A block goes back to the resource that it came
//! from, whichever is current by then; a free names the address alone, so a table has the resource of each block.
#![expect(unsafe_code, reason = "is called by C++ with addresses of its blocks")]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use floodmark_resource::{ALIGNMENT, Address, AllocError, Stream, current};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::layers::Shared;

struct Owner {
    resource: Shared,
    bytes: u64,
}

static LIVE: LazyLock<Mutex<HashMap<u64, Owner>>> = LazyLock::new(Mutex::default);

fn live() -> MutexGuard<'static, HashMap<u64, Owner>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `act` detached from the interpreter: a resource may have to wait for a thread that needs it.
fn detached<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    // SAFETY: it can be asked on any thread, and after the interpreter has ended says no.
    if unsafe { ffi::Py_IsInitialized() != 0 && ffi::PyGILState_Check() != 0 } {
        Python::attach(|py| py.detach(act))
    } else {
        act()
    }
}

fn allocate(bytes: u64, device: i32, stream: u64) -> Result<Address, AllocError> {
    let resource = current::current(device)?;
    let address = resource.allocate(bytes, ALIGNMENT, Stream::foreign(stream))?;
    live().insert(address.0, Owner { resource, bytes });
    Ok(address)
}

/// Allocates `size` bytes on a device for work on a stream; throws `std::runtime_error` if it cannot.
///
/// # Safety
/// Called by C++, which catches the exception.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn floodmark_allocate(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let stream = stream.addr() as u64;
    let Ok(bytes) = u64::try_from(size) else { return null_mut() };
    if bytes == 0 {
        return null_mut();
    }
    match detached(|| allocate(bytes, device, stream)) {
        Ok(address) => std::ptr::with_exposed_provenance_mut(address.0 as usize),
        Err(error) => {
            // Programs that retry with a smaller batch look for the first words.
            let text = match &error {
                AllocError::OutOfMemory(_) => {
                    let text = error.to_string();
                    format!("CUDA out of memory. {}", text.strip_prefix("out of memory: ").unwrap_or(&text))
                }
                _ => error.to_string(),
            };
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            if let Some(throw) = throw_runtime_error() {
                // SAFETY: it copies the text and throws; the caller catches.
                unsafe { throw(text.as_ptr()) };
            }
            null_mut()
        }
    }
}

/// Frees what [`floodmark_allocate`] returned.
///
/// # Safety
/// The block is not used any more, save by work that was queued on `stream` before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn floodmark_deallocate(
    block: *mut c_void,
    _size: isize,
    _device: c_int,
    stream: *mut c_void,
) {
    let (address, stream) = (block.addr() as u64, stream.addr() as u64);
    let Some(Owner { resource, bytes }) = live().remove(&address) else { return };
    // SAFETY: the block came from this resource with this size, and the caller does not use it any more.
    detached(move || unsafe {
        resource.deallocate(Address(address), bytes, ALIGNMENT, Stream::foreign(stream));
    });
}

/// Bytes and blocks that C++ callers hold.
#[pyfunction]
pub(crate) fn pluggable_live() -> (u64, usize) {
    let live = live();
    (live.values().map(|owner| owner.bytes).sum(), live.len())
}

type Throw = unsafe extern "C-unwind" fn(*const c_char);

/// The function of the C++ library that throws `std::runtime_error`. A caller that is written in C++ has loaded it.
fn throw_runtime_error() -> Option<Throw> {
    // SAFETY: the library is only looked up; the function has this signature in every version of it.
    unsafe {
        let library = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let function = libc::dlsym(library, c"_ZSt21__throw_runtime_errorPKc".as_ptr());
        (!function.is_null()).then(|| std::mem::transmute::<*mut c_void, Throw>(function))
    }
}
