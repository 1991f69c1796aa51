//! Unloading of libraries: other code may be at their addresses afterwards.

use libc::{c_int, c_void};

use crate::{capture, next};

/// Unloads a library.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
    let Some(dlclose) = next::dlclose() else { return -1 };
    // SAFETY: as the caller guarantees.
    let result = unsafe { dlclose(library) };
    capture::module_unloaded();
    result
}
