//! The functions that the hooks replace: those that the loader would have found without this library.
//!
//! They are looked up once, at the first call of each. Looking up may itself call `calloc` or `malloc`; such calls are served
//! by `own_memory`, as all that the C library makes for us.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void, intptr_t, off_t, pid_t, size_t};

use crate::thread::{Guard, SavedErrno, current};

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

/// Declares a function that returns the next one of a name, none if there is none.
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
    let _guard = Guard::preparing(thread);
    let _errno = SavedErrno::save();
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}
