//! The functions that the hooks replace: those that the loader would have found without this library.
//!
//! They are looked up once, at the first call of each. Looking up may itself call `calloc` or `malloc`; these calls get a
//! few bytes of the library's own, which are never given back.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{c_char, c_int, c_void, intptr_t, off_t, pid_t, size_t};

use crate::thread::{Guard, Inside, SavedErrno, current};

pub(crate) type Malloc = unsafe extern "C" fn(size_t) -> *mut c_void;
pub(crate) type Free = unsafe extern "C" fn(*mut c_void);
pub(crate) type Calloc = unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
pub(crate) type Realloc = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
pub(crate) type Aligned = unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
pub(crate) type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, size_t, size_t) -> c_int;
pub(crate) type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
pub(crate) type Munmap = unsafe extern "C" fn(*mut c_void, size_t) -> c_int;
pub(crate) type Mremap = unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;

pub(crate) type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type Exec =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
pub(crate) type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
pub(crate) type Sbrk = unsafe extern "C" fn(intptr_t) -> *mut c_void;

/// Declares a function that returns the next one of a name, none if there is none or it is being looked up.
macro_rules! next {
    ($($function:ident: $type:ty = $name:literal;)*) => {$(
        #[inline]
        pub(crate) fn $function() -> Option<$type> {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut found = NEXT.load(Ordering::Relaxed);
            if found.is_null() {
                found = find($name);
                NEXT.store(found, Ordering::Relaxed);
            }
            // SAFETY: the function of that name has this type; null is none.
            unsafe { std::mem::transmute::<*mut c_void, Option<$type>>(found) }
        }
    )*};
}

next! {
    malloc: Malloc = c"malloc";
    free: Free = c"free";
    calloc: Calloc = c"calloc";
    realloc: Realloc = c"realloc";
    memalign: Aligned = c"memalign";
    aligned_alloc: Aligned = c"aligned_alloc";
    posix_memalign: PosixMemalign = c"posix_memalign";
    valloc: Malloc = c"valloc";
    pvalloc: Malloc = c"pvalloc";
    mmap: Mmap = c"mmap";
    munmap: Munmap = c"munmap";
    mremap: Mremap = c"mremap";
    brk: Brk = c"brk";
    sbrk: Sbrk = c"sbrk";
    dlclose: Dlclose = c"dlclose";
    execve: Exec = c"execve";
    execvpe: Exec = c"execvpe";
    posix_spawn: Spawn = c"posix_spawn";
    posix_spawnp: Spawn = c"posix_spawnp";
}

/// Looks up the functions that start programs: a child of `fork` must not, whose loader may have been busy in another
/// thread.
pub(crate) fn prepare_for_children() {
    let _ = (execve(), execvpe(), posix_spawn(), posix_spawnp());
}

#[cold]
#[inline(never)]
fn find(name: &CStr) -> *mut c_void {
    let thread = current();
    if thread.inside.get() == Inside::Preparing {
        // Called by the look-up below, or for us: there is no function yet.
        if LOOKING_UP.load(Ordering::Relaxed) > 0 {
            return std::ptr::null_mut();
        }
    }
    let _guard = Guard::preparing(thread);
    let _errno = SavedErrno::save();
    LOOKING_UP.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    LOOKING_UP.fetch_sub(1, Ordering::Relaxed);
    found
}

/// Threads that are looking a function up.
static LOOKING_UP: AtomicUsize = AtomicUsize::new(0);

const EARLY_BYTES: usize = 1 << 14;

#[repr(C, align(16))]
struct EarlyMemory(UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: each caller gets bytes of its own.
unsafe impl Sync for EarlyMemory {}

static EARLY: EarlyMemory = EarlyMemory(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Returns zeroed memory for a call that the look-up of the real function makes; null if there is no more.
#[cold]
pub(crate) fn early_memory(bytes: usize) -> *mut c_void {
    let Some(needed) = bytes.checked_next_multiple_of(16) else { return std::ptr::null_mut() };
    let room = |used: usize| used.checked_add(needed).filter(|end| *end <= EARLY_BYTES);
    match EARLY_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
        // SAFETY: within the array, as just checked.
        Ok(at) => unsafe { EARLY.0.get().cast::<u8>().add(at).cast() },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Whether [`early_memory`] returned `block`.
#[inline]
pub(crate) fn is_early(block: *mut c_void) -> bool {
    block.addr().wrapping_sub(EARLY.0.get().addr()) < EARLY_BYTES
}

/// Returns how many bytes there are from an early block to the end of all of them.
pub(crate) fn early_bytes_from(block: *mut c_void) -> usize {
    EARLY_BYTES - block.addr().wrapping_sub(EARLY.0.get().addr()).min(EARLY_BYTES)
}
