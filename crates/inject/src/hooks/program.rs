//! `execve` and its like: see `exec` for programs that this library must not be preloaded into.
//!
//! Functions with a variable number of arguments (`execl`) are left alone: Rust cannot define them.

use libc::{c_char, c_int, c_void, pid_t};

use crate::exec::{ProgramPath, with_environment};
use crate::next;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Replaces the program of this process.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let Some(execve) = next::execve() else { return -1 };
    // SAFETY: as the caller guarantees.
    unsafe { with_environment(path, variables, |variables| execve(path, arguments, variables)) }
}

/// Replaces the program of this process, with its environment as it is.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as the caller guarantees; the variable is the C library's.
    unsafe { execve(path, arguments, environ) }
}

/// Replaces the program of this process with one that is found in `PATH`.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    name: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let Some(execvpe) = next::execvpe() else { return -1 };
    let mut path = ProgramPath::new();
    // SAFETY: as the caller guarantees.
    unsafe { with_environment(path.find(name), variables, |variables| execvpe(name, arguments, variables)) }
}

/// Replaces the program of this process with one that is found in `PATH`, with its environment as it is.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(name: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as the caller guarantees; the variable is the C library's.
    unsafe { execvpe(name, arguments, environ) }
}

/// Starts a process.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let Some(spawn) = next::posix_spawn() else { return libc::ENOSYS };
    // SAFETY: as the caller guarantees.
    unsafe {
        with_environment(path, variables, |variables| {
            spawn(pid, path, actions, attributes, arguments, variables)
        })
    }
}

/// Starts a process with a program that is found in `PATH`.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let Some(spawn) = next::posix_spawnp() else { return libc::ENOSYS };
    let mut path = ProgramPath::new();
    // SAFETY: as the caller guarantees.
    unsafe {
        with_environment(path.find(name), variables, |variables| {
            spawn(pid, name, actions, attributes, arguments, variables)
        })
    }
}
