//! `malloc` and its like. `operator new` and `delete` of C++ and the allocators of other languages go through them.
//!
//! On x86-64 each hook begins with a few instructions that pass the caller's registers on: the walk of the stack starts
//! from there, and none of our own frames has to be unwound.

use libc::{c_int, c_void, size_t};

use crate::capture::{Caller, Domain, allocated, failed, freed, is_free_left_out, is_left_out, ticks_before};
use crate::entry::with_caller;
use crate::thread::{Inside, current};
use crate::{next, own_memory};

with_caller!(#[unsafe(no_mangle)] malloc(bytes: size_t) -> *mut c_void, "rsi", "rdx", malloc_from);
with_caller!(#[unsafe(no_mangle)] calloc(count: size_t, bytes: size_t) -> *mut c_void, "rdx", "rcx", calloc_from);
with_caller!(#[unsafe(no_mangle)] realloc(block: *mut c_void, bytes: size_t) -> *mut c_void, "rdx", "rcx", realloc_from);
with_caller!(#[unsafe(no_mangle)] reallocarray(block: *mut c_void, count: size_t, bytes: size_t) -> *mut c_void, "rcx", "r8", reallocarray_from);
with_caller!(#[unsafe(no_mangle)] memalign(alignment: size_t, bytes: size_t) -> *mut c_void, "rdx", "rcx", memalign_from);
with_caller!(#[unsafe(no_mangle)] aligned_alloc(alignment: size_t, bytes: size_t) -> *mut c_void, "rdx", "rcx", aligned_alloc_from);
with_caller!(#[unsafe(no_mangle)] posix_memalign(place: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int, "rcx", "r8", posix_memalign_from);
with_caller!(#[unsafe(no_mangle)] valloc(bytes: size_t) -> *mut c_void, "rsi", "rdx", valloc_from);
with_caller!(#[unsafe(no_mangle)] pvalloc(bytes: size_t) -> *mut c_void, "rsi", "rdx", pvalloc_from);

/// Records what an allocating function returned.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn returned(block: *mut c_void, bytes: usize, stack: u64, base: u64) -> *mut c_void {
    let caller = Caller { stack, base };
    if block.is_null() {
        failed(Domain::Heap, bytes, caller);
    } else {
        allocated(Domain::Heap, block.addr(), bytes, caller, false);
    }
    block
}

/// Whether the C library calls for us.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn is_ours() -> bool {
    current().inside.get() == Inside::Preparing
}

unsafe extern "C" fn malloc_from(bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    if is_left_out(bytes)
        && let Some(malloc) = next::malloc()
    {
        // SAFETY: as the caller guarantees.
        return unsafe { malloc(bytes) };
    }
    // SAFETY: as the caller guarantees.
    unsafe { recorded_malloc(bytes, stack, base) }
}

/// A function of its own, so that the one above has nothing to save.
#[inline(never)]
unsafe extern "C" fn recorded_malloc(bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    if is_ours() {
        return own_memory::malloc(bytes);
    }
    let Some(malloc) = next::malloc() else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(unsafe { malloc(bytes) }, bytes, stack, base)
}

unsafe extern "C" fn calloc_from(count: size_t, bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    if let Some(whole) = count.checked_mul(bytes)
        && is_left_out(whole)
        && let Some(calloc) = next::calloc()
    {
        // SAFETY: as the caller guarantees.
        return unsafe { calloc(count, bytes) };
    }
    // SAFETY: as the caller guarantees.
    unsafe { recorded_calloc(count, bytes, stack, base) }
}

#[inline(never)]
unsafe extern "C" fn recorded_calloc(count: size_t, bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    if is_ours() {
        return count.checked_mul(bytes).map_or(std::ptr::null_mut(), own_memory::malloc);
    }
    let Some(calloc) = next::calloc() else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(unsafe { calloc(count, bytes) }, count.saturating_mul(bytes), stack, base)
}

unsafe extern "C" fn memalign_from(alignment: size_t, bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    let Some(memalign) = next::memalign() else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(unsafe { memalign(alignment, bytes) }, bytes, stack, base)
}

unsafe extern "C" fn aligned_alloc_from(
    alignment: size_t,
    bytes: size_t,
    stack: u64,
    base: u64,
) -> *mut c_void {
    let Some(aligned_alloc) = next::aligned_alloc() else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(unsafe { aligned_alloc(alignment, bytes) }, bytes, stack, base)
}

unsafe extern "C" fn valloc_from(bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    let Some(valloc) = next::valloc() else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(unsafe { valloc(bytes) }, bytes, stack, base)
}

unsafe extern "C" fn pvalloc_from(bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    let Some(pvalloc) = next::pvalloc() else { return std::ptr::null_mut() };
    // SAFETY: as the caller guarantees.
    returned(unsafe { pvalloc(bytes) }, bytes, stack, base)
}

unsafe extern "C" fn posix_memalign_from(
    place: *mut *mut c_void,
    alignment: size_t,
    bytes: size_t,
    stack: u64,
    base: u64,
) -> c_int {
    let Some(posix_memalign) = next::posix_memalign() else { return libc::ENOMEM };
    // SAFETY: as the caller guarantees.
    let result = unsafe { posix_memalign(place, alignment, bytes) };
    match result {
        0 => {
            // SAFETY: the function succeeded and stored the block there.
            returned(unsafe { *place }, bytes, stack, base);
        }
        libc::ENOMEM => failed(Domain::Heap, bytes, Caller { stack, base }),
        // A wrong alignment: nothing was asked for.
        _ => {}
    }
    result
}

unsafe extern "C" fn realloc_from(block: *mut c_void, bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    if block.is_null() {
        // SAFETY: as the caller guarantees.
        return unsafe { malloc_from(bytes, stack, base) };
    }
    if own_memory::is_own(block) {
        // SAFETY: as the caller guarantees.
        return unsafe { from_own(block, bytes, stack, base) };
    }
    let Some(realloc) = next::realloc() else { return std::ptr::null_mut() };
    let address = block.addr();
    if is_free_left_out(address) && is_left_out(bytes) {
        // SAFETY: as the caller guarantees.
        return unsafe { realloc(block, bytes) };
    }
    let caller = Caller { stack, base };
    let before = Some(ticks_before());
    // SAFETY: as the caller guarantees.
    let new = unsafe { realloc(block, bytes) };
    if !new.is_null() {
        let is_moved = freed(Domain::Heap, address, before);
        allocated(Domain::Heap, new.addr(), bytes, caller, is_moved);
    } else if bytes == 0 {
        freed(Domain::Heap, address, before);
    } else {
        failed(Domain::Heap, bytes, caller);
    }
    new
}

/// The function of the C library calls the hooked `realloc` itself; so does this one.
unsafe extern "C" fn reallocarray_from(
    block: *mut c_void,
    count: size_t,
    bytes: size_t,
    stack: u64,
    base: u64,
) -> *mut c_void {
    let Some(whole) = count.checked_mul(bytes) else {
        failed(Domain::Heap, usize::MAX, Caller { stack, base });
        // SAFETY: the location is the thread's own.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return std::ptr::null_mut();
    };
    // SAFETY: as the caller guarantees.
    unsafe { realloc_from(block, whole, stack, base) }
}

/// Moves a block that was allocated for us, to where the caller's blocks are.
#[cold]
unsafe fn from_own(block: *mut c_void, bytes: usize, stack: u64, base: u64) -> *mut c_void {
    // SAFETY: as the caller guarantees.
    let new = unsafe { malloc_from(bytes, stack, base) };
    if !new.is_null() {
        // SAFETY: both blocks have room for that, and the old one is not used any more.
        unsafe {
            let kept = own_memory::size_of_block(block).min(bytes);
            new.cast::<u8>().copy_from_nonoverlapping(block.cast::<u8>(), kept);
            own_memory::free(block);
        }
    }
    new
}

/// Frees a block.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    if is_free_left_out(block.addr())
        && let Some(free) = next::free()
    {
        // SAFETY: as the caller guarantees.
        return unsafe { free(block) };
    }
    // SAFETY: as the caller guarantees.
    unsafe { recorded_free(block) };
}

#[inline(never)]
unsafe extern "C" fn recorded_free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    if own_memory::is_own(block) {
        // SAFETY: the C library allocated it for us.
        unsafe { own_memory::free(block) };
        return;
    }
    freed(Domain::Heap, block.addr(), None);
    if let Some(free) = next::free() {
        // SAFETY: as the caller guarantees.
        unsafe { free(block) };
    }
}
