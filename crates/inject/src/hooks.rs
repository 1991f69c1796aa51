//! The functions that replace those of the C library.
//!
//! An allocation is recorded after it succeeded and a free before it happens, so that an address which is used again at
//! once by another thread never looks allocated twice. `realloc` may fail and leave the old block as it is; the free is
//! therefore recorded afterwards, with the time from before the call.

use crate::next;

mod heap;
mod mapping;
mod module;
mod program;

/// Whether the program's calls of `malloc` come here. They do not if it brings an allocator of its own.
pub(crate) fn are_called() -> bool {
    // The address of our own `malloc` would be that of the program's too: the loader looks all names up.
    // SAFETY: the name is a C string.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    module_of(called) == module_of((are_called as *const ()).cast())
}

/// Whether `operator new` of C++ is one of an allocator that the program brings as a shared library: such a one does not
/// call `malloc`.
pub(crate) fn has_own_new() -> bool {
    // SAFETY: the name is a C string.
    let new = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Znwm".as_ptr()) };
    let malloc = next::malloc().map_or(std::ptr::null(), |malloc| malloc as *const libc::c_void);
    !new.is_null() && module_of(new) == module_of(malloc)
}

/// Where the library that an address is in begins; 0 if it is in none.
pub(crate) fn module_of(address: *const libc::c_void) -> usize {
    // SAFETY: zeros are valid for all fields.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the result.
    unsafe { libc::dladdr(address, &raw mut info) };
    info.dli_fbase.addr()
}
