//! Keeps out of the library what only new versions of the C library have, so that it can be loaded with glibc from 2.31 on
//! wherever it was built.
//!
//! Two sorts of functions would need a later one. `stat64` and `fstat64` became functions of the library with 2.33; the
//! standard library gets those of this file instead, which nothing outside of this library sees. Functions for threads
//! and for loading moved from libraries of their own with 2.34; the symbols of before are still there, and these libraries
//! are named as needed (`build.rs`), where they are found with earlier versions.

use libc::{c_char, c_int};

unsafe extern "C" fn stat_by_call(path: *const c_char, result: *mut libc::stat64) -> c_int {
    // SAFETY: as the caller guarantees; the kernel's structure is that of the C library on this processor.
    unsafe { libc::syscall(libc::SYS_stat, path, result) as c_int }
}

unsafe extern "C" fn fstat_by_call(file: c_int, result: *mut libc::stat64) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_fstat, file, result) as c_int }
}

std::arch::global_asm!(
    ".pushsection .text.floodmark_stat,\"ax\",@progbits",
    ".globl stat64",
    ".hidden stat64",
    ".type stat64,@function",
    "stat64: jmp {stat}",
    ".size stat64, . - stat64",
    ".globl fstat64",
    ".hidden fstat64",
    ".type fstat64,@function",
    "fstat64: jmp {fstat}",
    ".size fstat64, . - fstat64",
    ".popsection",
    stat = sym stat_by_call,
    fstat = sym fstat_by_call
);

/// Defines functions that go on to those of a name and version, for all of this library and nothing outside of it.
#[cfg(old_symbols)]
macro_rules! of_version {
    ($($name:literal, $version:literal;)*) => {$(
        std::arch::global_asm!(
            concat!(".symver floodmark_old_", $name, ", ", $name, "@", $version),
            concat!(".pushsection .text.floodmark_", $name, ",\"ax\",@progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ": jmp qword ptr [rip + floodmark_old_", $name, "@GOTPCREL]"),
            concat!(".size ", $name, ", . - ", $name),
            ".popsection"
        );
    )*};
}

#[cfg(old_symbols)]
of_version! {
    "dladdr", "GLIBC_2.2.5";
    "dladdr1", "GLIBC_2.3.3";
    "dlopen", "GLIBC_2.2.5";
    "dlvsym", "GLIBC_2.2.5";
    "pthread_getattr_np", "GLIBC_2.2.5";
    "pthread_key_create", "GLIBC_2.2.5";
    "pthread_key_delete", "GLIBC_2.2.5";
    "pthread_setspecific", "GLIBC_2.2.5";
}
