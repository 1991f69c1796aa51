//! `malloc` and its like. `operator new` and `delete` of C++ and the allocators of other languages go through them.
//!
//! On x86-64 each hook begins with a few instructions that pass the caller's registers on: the walk of the stack starts
//! from there, and none of our own frames has to be unwound.

use floodmark_tail::When;
use floodmark_tail::clock::monotonic_ns;
use libc::{c_int, c_void, size_t};

use crate::capture::{Caller, allocated, failed, freed};
use crate::next::{self, early_memory, is_early};

/// Defines an exported function that calls another with the caller's stack pointer and base pointer as the last two
/// arguments, in the registers that are named.
macro_rules! hook {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $stack:literal, $base:literal, $body:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($(_: $type),*) -> $result {
            std::arch::naked_asm!(
                concat!("mov ", $stack, ", rsp"),
                concat!("mov ", $base, ", rbp"),
                "jmp {}",
                sym $body
            )
        }

        #[cfg(not(target_arch = "x86_64"))]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let here = 0_u8;
            // SAFETY: as the caller guarantees.
            unsafe { $body($($argument,)* (&raw const here).addr() as u64, 0) }
        }
    };
}

hook!(malloc(bytes: size_t) -> *mut c_void, "rsi", "rdx", malloc_from);
hook!(calloc(count: size_t, bytes: size_t) -> *mut c_void, "rdx", "rcx", calloc_from);
hook!(realloc(block: *mut c_void, bytes: size_t) -> *mut c_void, "rdx", "rcx", realloc_from);
hook!(reallocarray(block: *mut c_void, count: size_t, bytes: size_t) -> *mut c_void, "rcx", "r8", reallocarray_from);
hook!(memalign(alignment: size_t, bytes: size_t) -> *mut c_void, "rdx", "rcx", memalign_from);
hook!(aligned_alloc(alignment: size_t, bytes: size_t) -> *mut c_void, "rdx", "rcx", aligned_alloc_from);
hook!(posix_memalign(place: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int, "rcx", "r8", posix_memalign_from);
hook!(valloc(bytes: size_t) -> *mut c_void, "rsi", "rdx", valloc_from);
hook!(pvalloc(bytes: size_t) -> *mut c_void, "rsi", "rdx", pvalloc_from);

/// Records what an allocating function returned.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
fn returned(block: *mut c_void, bytes: usize, stack: u64, base: u64) -> *mut c_void {
    let caller = Caller { stack, base };
    if block.is_null() {
        failed(bytes, caller);
    } else {
        allocated(block.addr(), bytes, caller);
    }
    block
}

unsafe extern "C" fn malloc_from(bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    let Some(malloc) = next::malloc() else { return early_memory(bytes) };
    // SAFETY: as the caller guarantees.
    returned(unsafe { malloc(bytes) }, bytes, stack, base)
}

unsafe extern "C" fn calloc_from(count: size_t, bytes: size_t, stack: u64, base: u64) -> *mut c_void {
    let Some(calloc) = next::calloc() else {
        return count.checked_mul(bytes).map_or(std::ptr::null_mut(), early_memory);
    };
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
        libc::ENOMEM => failed(bytes, Caller { stack, base }),
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
    if is_early(block) {
        // SAFETY: as the caller guarantees.
        return unsafe { from_early(block, bytes, stack, base) };
    }
    let Some(realloc) = next::realloc() else { return std::ptr::null_mut() };
    let caller = Caller { stack, base };
    let (address, before) = (block.addr(), When::At(monotonic_ns()));
    // SAFETY: as the caller guarantees.
    let new = unsafe { realloc(block, bytes) };
    if !new.is_null() {
        freed(address, before);
        allocated(new.addr(), bytes, caller);
    } else if bytes == 0 {
        freed(address, before);
    } else {
        failed(bytes, caller);
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
        failed(usize::MAX, Caller { stack, base });
        // SAFETY: the location is the thread's own.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return std::ptr::null_mut();
    };
    // SAFETY: as the caller guarantees.
    unsafe { realloc_from(block, whole, stack, base) }
}

/// Moves a block that was handed out before there was an allocator.
#[cold]
unsafe fn from_early(block: *mut c_void, bytes: usize, stack: u64, base: u64) -> *mut c_void {
    // SAFETY: as the caller guarantees.
    let new = unsafe { malloc_from(bytes, stack, base) };
    if !new.is_null() {
        let room = next::early_bytes_from(block);
        // SAFETY: the new block has room for `bytes`, and what follows the old one is readable up to its end.
        unsafe { new.cast::<u8>().copy_from_nonoverlapping(block.cast::<u8>(), bytes.min(room)) };
    }
    new
}

/// Frees a block.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() || is_early(block) {
        return;
    }
    freed(block.addr(), When::Now);
    if let Some(free) = next::free() {
        // SAFETY: as the caller guarantees.
        unsafe { free(block) };
    }
}
