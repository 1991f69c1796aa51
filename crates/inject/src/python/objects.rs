//! The allocators of `CPython` for memory and objects, wrapped: pymalloc divides arenas among small objects, which no hook
//! of `malloc` sees. What an allocator passes on to `malloc` is recorded here and not there.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use crate::capture::{Caller, Domain, allocated, failed, freed, ticks_before};
use crate::entry::with_caller;
use crate::thread::{Inside, current};

/// `PyMemAllocatorEx`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    calloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    realloc: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

const NONE: Allocator =
    Allocator { context: std::ptr::null_mut(), malloc: None, calloc: None, realloc: None, free: None };

/// The domains for memory and for objects. That for raw memory calls `malloc`, which is hooked.
const DOMAINS: [c_int; 2] = [1, 2];

struct Originals(UnsafeCell<[Allocator; 2]>);

// SAFETY: written once, when the recording starts, before anything reads it.
unsafe impl Sync for Originals {}

/// What is wrapped.
static ORIGINALS: Originals = Originals(UnsafeCell::new([NONE; 2]));

/// Wraps the allocators with the interpreter's functions for that; returns whether it did.
pub(super) fn install(get: *mut c_void, set: *mut c_void) -> bool {
    type Access = unsafe extern "C" fn(c_int, *mut Allocator);
    if get.is_null() || set.is_null() {
        return false;
    }
    // SAFETY: the functions of these names have these types.
    let (get, set) = unsafe {
        (std::mem::transmute::<*mut c_void, Access>(get), std::mem::transmute::<*mut c_void, Access>(set))
    };
    for (at, domain) in DOMAINS.into_iter().enumerate() {
        // SAFETY: within the array; called once, while the recording starts.
        let original = unsafe { ORIGINALS.0.get().cast::<Allocator>().add(at) };
        let mut hooks = Allocator {
            context: original.cast(),
            malloc: Some(malloc),
            calloc: Some(calloc),
            realloc: Some(realloc),
            free: Some(free),
        };
        // SAFETY: the places are valid, and the originals stay as long as the process.
        unsafe {
            get(domain, original);
            if (*original).malloc.is_none() {
                return false;
            }
            set(domain, &raw mut hooks);
        }
    }
    true
}

/// Calls an original function, with what it calls in turn not recorded.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn original<R>(call: impl FnOnce() -> R) -> R {
    let inside = &current().inside;
    let before = inside.get();
    if before == Inside::No {
        inside.set(Inside::Passing);
    }
    let result = call();
    inside.set(before);
    result
}

with_caller!(malloc(context: *mut c_void, bytes: usize) -> *mut c_void, "rdx", "rcx", malloc_from);
with_caller!(calloc(context: *mut c_void, count: usize, bytes: usize) -> *mut c_void, "rcx", "r8", calloc_from);
with_caller!(realloc(context: *mut c_void, block: *mut c_void, bytes: usize) -> *mut c_void, "rcx", "r8", realloc_from);

fn returned(block: *mut c_void, bytes: usize, stack: u64, base: u64, is_moved: bool) -> *mut c_void {
    let caller = Caller { stack, base };
    if block.is_null() {
        failed(Domain::Object, bytes, caller);
    } else {
        allocated(Domain::Object, block.addr(), bytes, caller, is_moved);
    }
    block
}

unsafe extern "C" fn malloc_from(context: *mut c_void, bytes: usize, stack: u64, base: u64) -> *mut c_void {
    // SAFETY: the context is one of the originals.
    let to = unsafe { &*context.cast::<Allocator>() };
    let Some(malloc) = to.malloc else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(original(|| unsafe { malloc(to.context, bytes) }), bytes, stack, base, false)
}

unsafe extern "C" fn calloc_from(
    context: *mut c_void,
    count: usize,
    bytes: usize,
    stack: u64,
    base: u64,
) -> *mut c_void {
    // SAFETY: the context is one of the originals.
    let to = unsafe { &*context.cast::<Allocator>() };
    let Some(calloc) = to.calloc else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    let block = original(|| unsafe { calloc(to.context, count, bytes) });
    returned(block, count.saturating_mul(bytes), stack, base, false)
}

unsafe extern "C" fn realloc_from(
    context: *mut c_void,
    block: *mut c_void,
    bytes: usize,
    stack: u64,
    base: u64,
) -> *mut c_void {
    // SAFETY: the context is one of the originals.
    let to = unsafe { &*context.cast::<Allocator>() };
    let Some(realloc) = to.realloc else { return std::ptr::null_mut() };
    let (address, before) = (block.addr(), Some(ticks_before()));
    // SAFETY: as the caller guarantees.
    let new = original(|| unsafe { realloc(to.context, block, bytes) });
    let is_moved = !new.is_null() && address != 0 && freed(Domain::Object, address, before);
    returned(new, bytes, stack, base, is_moved)
}

unsafe extern "C" fn free(context: *mut c_void, block: *mut c_void) {
    // SAFETY: the context is one of the originals.
    let to = unsafe { &*context.cast::<Allocator>() };
    if !block.is_null() {
        freed(Domain::Object, block.addr(), None);
    }
    if let Some(free) = to.free {
        // SAFETY: as the caller guarantees.
        original(|| unsafe { free(to.context, block) });
    }
}
