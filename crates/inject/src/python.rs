//! `CPython`: the objects that its own allocator divides, and its frames in stacks.
//!
//! Everything here is looked up by name in the process, so programs without Python are not concerned. Where its data is
//! kept differs between versions: 3.11 to 3.13 are known, builds without the global lock are not.

mod frames;
mod objects;

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::path::PathBuf;

use floodmark_stacks::module_files;

use crate::python::frames::Layout;

pub(crate) use frames::{PythonThread, merged_stack};

/// What of the interpreter is called.
#[derive(Clone, Copy)]
pub(crate) struct Python {
    /// Version, as in 311 for 3.11.
    pub(crate) version: u32,
    layout: Layout,
    /// The function that runs Python code: where it begins and ends.
    eval: (u64, u64),
    has_lock: unsafe extern "C" fn() -> c_int,
    thread_state: unsafe extern "C" fn() -> *const u8,
    line_of: unsafe extern "C" fn(*const u8, c_int) -> c_int,
    text_of: unsafe extern "C" fn(*const u8, *mut isize) -> *const c_char,
}

/// Whether the program is Python.
pub(crate) enum Found {
    None,
    /// A version that is not known.
    Unknown,
    Known(Python),
}

/// Looks for the interpreter in this process.
pub(crate) fn find() -> Found {
    // Looking a name up in vain leaves an error message behind, which the program would be seen to free later. So only
    // programs that are called so are asked.
    let is_python = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.as_encoded_bytes().windows(6).any(|word| word == b"python"))
    };
    if !module_files().iter().any(is_python) {
        return Found::None;
    }
    let version_text = symbol(c"Py_GetVersion");
    if version_text.is_null() {
        return Found::None;
    }
    match known(version_text) {
        Some(python) => Found::Known(python),
        None => Found::Unknown,
    }
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

fn known(version_text: *mut c_void) -> Option<Python> {
    let number = symbol(c"Py_Version");
    let names = [
        c"PyGILState_Check",
        c"PyGILState_GetThisThreadState",
        c"PyCode_Addr2Line",
        c"PyUnicode_AsUTF8AndSize",
    ];
    let functions = names.map(symbol);
    let eval = symbol(c"_PyEval_EvalFrameDefault");
    if number.is_null() || eval.is_null() || functions.iter().any(|function| function.is_null()) {
        return None;
    }
    // SAFETY: the interpreter's own version, as 0x030B07F0 for 3.11.7.
    let number = unsafe { *number.cast::<libc::c_ulong>() };
    let (major, minor) = (number >> 24 & 0xff, number >> 16 & 0xff);
    let layout = Layout::of((major, minor))?;
    // SAFETY: the function has no arguments and returns a string that stays.
    let text = unsafe {
        let function =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(version_text);
        CStr::from_ptr(function())
    };
    // Builds without the global lock keep frames elsewhere.
    if text.to_bytes().windows(14).any(|words| words == b"free-threading") {
        return None;
    }
    let [has_lock, thread_state, line_of, text_of] = functions;
    // SAFETY: the functions of these names have these types in all known versions.
    unsafe {
        Some(Python {
            version: (major * 100 + minor) as u32,
            layout,
            eval: extent_of(eval),
            has_lock: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(has_lock),
            thread_state: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const u8>(
                thread_state,
            ),
            line_of: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const u8, c_int) -> c_int>(
                line_of,
            ),
            text_of: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const u8, *mut isize) -> *const c_char,
            >(text_of),
        })
    }
}

/// Where a function begins and ends, as the symbol table says.
fn extent_of(function: *mut c_void) -> (u64, u64) {
    const SYMBOL_ENTRY: c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
    }
    let start = function.addr() as u64;
    let mut entry: *mut c_void = std::ptr::null_mut();
    // SAFETY: both places are valid; zeros are valid for all fields.
    let found = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        dladdr1(function, &raw mut info, &raw mut entry, SYMBOL_ENTRY)
    };
    if found == 0 || entry.is_null() {
        return (start, start);
    }
    // SAFETY: the loader's own entry of the symbol, which stays while the library is loaded.
    let bytes = unsafe { (*entry.cast::<libc::Elf64_Sym>()).st_size };
    (start, start + bytes)
}

impl Python {
    /// Makes the interpreter's allocators call this library; returns whether they do.
    pub(crate) fn record_objects() -> bool {
        objects::install(symbol(c"PyMem_GetAllocator"), symbol(c"PyMem_SetAllocator"))
    }
}

/// A word at an offset of one of the interpreter's structures.
///
/// # Safety
/// The structure has a word there.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn word(structure: *const u8, offset: usize) -> *const u8 {
    // SAFETY: as the caller guarantees.
    unsafe { structure.add(offset).cast::<c_void>().cast::<*const u8>().read_unaligned() }
}

const _: () = assert!(size_of::<c_long>() == 8);
