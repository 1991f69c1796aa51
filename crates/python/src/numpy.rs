//! NumPy's memory from our resources, by the handler that NEP 49 defines.
//!
//! A block has a header with its size and the resource that it came from, so blocks go back to where they came from
//! after another resource was made current or the handler was taken out. NumPy calls the handler with the interpreter
//! attached.
#![expect(unsafe_code, reason = "is called by NumPy with addresses of its blocks")]

use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock};

use floodmark_resource::{ALIGNMENT, Address, Host, Resource, Stream};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::current::{HostMemory, host_memory};
use crate::layers::Shared;
use crate::task_scope;

/// Bytes before the memory of an array; keeps it aligned to a line of the cache.
const HEADER_BYTES: usize = 64;

struct Header {
    /// Bytes of the block, the header included.
    bytes: u64,
    resource: HostMemory,
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// The struct that NEP 49 defines.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    context: *mut c_void,
    malloc: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: extern "C" fn(*mut c_void, *mut c_void, usize),
}

// SAFETY: the struct never changes, and its functions can be called from any thread.
unsafe impl Sync for Handler {}

static HANDLER: Handler =
    Handler { name: name(b"floodmark"), version: 1, context: null_mut(), malloc, calloc, realloc, free };

const fn name(text: &[u8]) -> [c_char; 127] {
    let mut name = [0; 127];
    let mut at = 0;
    while at < text.len() {
        name[at] = text[at] as c_char;
        at += 1;
    }
    name
}

/// For arrays that are made while a device has no resource, such as in the middle of `reinitialize`, or one of
/// memory that the process cannot use.
static FALLBACK: LazyLock<Shared> = LazyLock::new(|| Arc::new(Host::new()));

fn take(bytes: usize) -> *mut c_void {
    let Some(whole) = bytes.checked_add(HEADER_BYTES) else { return null_mut() };
    // SAFETY: NumPy allocates with the interpreter attached.
    let py = unsafe { Python::assume_attached() };
    let resource = host_memory(py).unwrap_or_else(|| HostMemory::Native(Arc::clone(&FALLBACK)));
    let native = native(&resource);
    let taken = task_scope::within(py, || native.allocate(whole as u64, ALIGNMENT, Stream::DEFAULT));
    let Ok(address) = taken else { return null_mut() };
    let block = std::ptr::with_exposed_provenance_mut::<Header>(address.0 as usize);
    // SAFETY: the block is ours, aligned to 256 and larger than a header.
    unsafe {
        block.write(Header { bytes: whole as u64, resource });
        block.byte_add(HEADER_BYTES).cast()
    }
}

#[inline]
fn native(resource: &HostMemory) -> &Shared {
    match resource {
        HostMemory::Python(resource) => resource.get().inner(),
        HostMemory::Native(resource) => resource,
    }
}

/// The header of the block that an array is in.
///
/// # Safety
/// `array` came from `take` and was not given back.
unsafe fn header(array: *mut c_void) -> *mut Header {
    // SAFETY: the header is right before it.
    unsafe { array.byte_sub(HEADER_BYTES).cast() }
}

/// # Safety
/// `array` came from `take` and was not given back.
unsafe fn give(array: *mut c_void) {
    // SAFETY: the header is taken out of a block that nothing uses any more, and the block goes back as it was taken.
    unsafe {
        let at = header(array);
        let Header { bytes, resource } = at.read();
        let address = Address(at.expose_provenance() as u64);
        native(&resource).deallocate(address, bytes, ALIGNMENT, Stream::DEFAULT);
        if let HostMemory::Python(resource) = resource {
            // NumPy frees with the interpreter attached, which need not be looked up.
            drop(resource.into_bound(Python::assume_attached()));
        }
    }
}

extern "C" fn malloc(_: *mut c_void, bytes: usize) -> *mut c_void {
    take(bytes)
}

extern "C" fn calloc(_: *mut c_void, count: usize, item: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(item) else { return null_mut() };
    let array = take(bytes);
    if !array.is_null() {
        // SAFETY: the array has so many bytes.
        unsafe { array.cast::<u8>().write_bytes(0, bytes) };
    }
    array
}

extern "C" fn realloc(_: *mut c_void, array: *mut c_void, bytes: usize) -> *mut c_void {
    if array.is_null() {
        return take(bytes);
    }
    let new = take(bytes);
    if !new.is_null() {
        // SAFETY: NumPy hands in an array of ours; both are as long as what is copied.
        unsafe {
            let old = ManuallyDrop::new(header(array).read());
            let kept = (old.bytes as usize - HEADER_BYTES).min(bytes);
            new.cast::<u8>().copy_from_nonoverlapping(array.cast(), kept);
            give(array);
        }
    }
    new
}

extern "C" fn free(_: *mut c_void, array: *mut c_void, _: usize) {
    if !array.is_null() {
        // SAFETY: NumPy hands in an array of ours that it does not use any more.
        unsafe { give(array) };
    }
}

/// Place of `PyDataMem_SetHandler` in NumPy's table of functions.
const SET_HANDLER: usize = 304;
type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// Make a handler the one of the calling thread's context: ours for None, else one that this returned.
#[pyfunction]
#[pyo3(signature = (table, handler = None))]
pub(crate) fn set_numpy_handler<'py>(
    table: &Bound<'py, PyAny>,
    handler: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    let handler = if let Some(handler) = handler {
        handler
    } else {
        let at = std::ptr::from_ref(&HANDLER).cast_mut().cast();
        // SAFETY: the handler lives as long as the process; NumPy asks for this name.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(at, c"mem_handler".as_ptr(), None))? }
    };
    // SAFETY: NumPy's capsule has no name and holds its table, whose order never changes.
    unsafe {
        let table = ffi::PyCapsule_GetPointer(table.as_ptr(), std::ptr::null()).cast::<*const c_void>();
        if table.is_null() {
            return Err(PyErr::fetch(py));
        }
        let function = *table.add(SET_HANDLER);
        if function.is_null() {
            return Err(PyRuntimeError::new_err(
                "this NumPy has no memory handlers; 1.22 is the first that does",
            ));
        }
        let set = std::mem::transmute::<*const c_void, SetHandler>(function);
        Bound::from_owned_ptr_or_err(py, set(handler.as_ptr()))
    }
}
