//! Starting other programs: the library is not preloaded into those that would fail or complain because of it.
//!
//! The loader of musl ends a program if a preloaded library needs one that it does not have; a program with the shared
//! runtime of a sanitizer ends if any library is preloaded before it; and loaders for another architecture complain on
//! standard error. These are told by their files just before they are started, and get an environment in which
//! `LD_PRELOAD` does not name this library.
//!
//! Callers may be the child of `vfork`, which borrows its parent's memory, or of `fork` in a program with threads:
//! nothing here allocates or takes a lock, and what is needed is on the stack.

use std::ffi::CStr;

use libc::{c_char, c_int};

use crate::thread::SavedErrno;

/// Name of the variable, with the sign before its value.
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Part of the path of this library's file.
const OWN_NAME: &[u8] = b"libfloodmark_inject";
/// Most variables of an environment that is changed.
const MAX_VARIABLES: usize = 1024;
/// Most bytes of the value of `LD_PRELOAD`.
const MAX_VALUE: usize = 2048;
/// Most bytes of the path of a program that is found by its name.
const MAX_PROGRAM_PATH: usize = 1024;
/// Most bytes of the path of an interpreter.
const MAX_PATH: usize = 256;
/// How often the first line of a script leads to another one.
const MAX_SCRIPTS: u32 = 4;
/// Most entries of a program's tables that are looked at.
const MAX_ENTRIES: u64 = 256;
/// How the names of the shared runtimes of sanitizers begin.
const SANITIZERS: [&[u8]; 10] = [
    b"libasan.so",
    b"libhwasan.so",
    b"liblsan.so",
    b"libmsan.so",
    b"libtsan.so",
    b"libclang_rt.asan",
    b"libclang_rt.hwasan",
    b"libclang_rt.lsan",
    b"libclang_rt.msan",
    b"libclang_rt.tsan",
];

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Calls `start` with the environment for a program: a copy without this library if it must not be preloaded, else the
/// one that was given, as also if there is no room for a copy.
///
/// # Safety
/// The path is a C string or null, and the environment is as `execve` takes it.
#[inline]
pub(crate) unsafe fn with_environment(
    path: *const c_char,
    variables: *const *const c_char,
    start: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller guarantees.
    match unsafe { harmful_preload(path, variables) } {
        // SAFETY: as the caller guarantees.
        Some((at, value)) => unsafe { with_copy(variables, at, value, start) },
        None => start(variables),
    }
}

/// Finds `LD_PRELOAD` if it names this library and the program must not have it preloaded.
#[inline(never)]
unsafe fn harmful_preload<'a>(
    path: *const c_char,
    variables: *const *const c_char,
) -> Option<(usize, &'a [u8])> {
    if path.is_null() || variables.is_null() {
        return None;
    }
    let _errno = SavedErrno::save();
    // SAFETY: a C string and an environment, as the caller guarantees.
    let (path, found) = unsafe { (CStr::from_ptr(path), find_preload(variables)?) };
    is_harmed(path).then_some(found)
}

/// Calls `start` with a copy of an environment whose variable `at` is `LD_PRELOAD` with this value. A function of its own:
/// only it needs much of the stack.
#[cold]
#[inline(never)]
unsafe fn with_copy(
    variables: *const *const c_char,
    at: usize,
    value: &[u8],
    start: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    let mut copy = Copy { variables: [std::ptr::null(); MAX_VARIABLES], preload: [0; MAX_VALUE] };
    // SAFETY: as the caller guarantees.
    start(unsafe { copy.fill(variables, at, value) }.unwrap_or(variables))
}

/// A copy of an environment.
struct Copy {
    variables: [*const c_char; MAX_VARIABLES],
    /// The variable `LD_PRELOAD` with what is left of its value.
    preload: [u8; MAX_VALUE],
}

impl Copy {
    /// Copies an environment whose variable `at` is `LD_PRELOAD` with this value.
    unsafe fn fill(
        &mut self,
        environment: *const *const c_char,
        at: usize,
        value: &[u8],
    ) -> Option<*const *const c_char> {
        let mut length = PRELOAD.len();
        self.preload.get_mut(..length)?.copy_from_slice(PRELOAD);
        let mut is_first = true;
        for entry in
            value.split(|byte| b" :".contains(byte)).filter(|entry| !entry.is_empty() && !is_own(entry))
        {
            if !is_first {
                *self.preload.get_mut(length)? = b':';
                length += 1;
            }
            is_first = false;
            self.preload.get_mut(length..length + entry.len())?.copy_from_slice(entry);
            length += entry.len();
        }
        *self.preload.get_mut(length)? = 0;
        let mut count = 0;
        for from in 0.. {
            // SAFETY: the list ends with a null pointer, at which the loop ends.
            let variable = unsafe { *environment.add(from) };
            if from == at && is_first {
                continue;
            }
            let is_last = variable.is_null();
            *self.variables.get_mut(count)? =
                if from == at { self.preload.as_ptr().cast() } else { variable };
            count += 1;
            if is_last {
                break;
            }
        }
        Some(self.variables.as_ptr())
    }
}

/// The path of a program that is found by its name, on the stack of the caller.
pub(crate) struct ProgramPath([u8; MAX_PROGRAM_PATH]);

impl ProgramPath {
    /// Returns an empty one.
    pub(crate) const fn new() -> Self {
        Self([0; MAX_PROGRAM_PATH])
    }

    /// Finds a program as `execvp` does; the name itself if it is a path, null if the program is not found.
    ///
    /// # Safety
    /// The name is a C string or null.
    pub(crate) unsafe fn find(&mut self, name: *const c_char) -> *const c_char {
        if name.is_null() {
            return name;
        }
        // SAFETY: a C string, as the caller guarantees.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        if bytes.contains(&b'/') {
            return name;
        }
        let _errno = SavedErrno::save();
        // SAFETY: the name of the variable is a C string; the value is used before anything can change it.
        let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
        if path.is_null() {
            return path;
        }
        // SAFETY: values of variables are C strings.
        let directories = unsafe { CStr::from_ptr(path) }.to_bytes();
        for directory in directories.split(|byte| *byte == b':') {
            let length = directory.len() + 1 + bytes.len();
            if length >= MAX_PROGRAM_PATH {
                continue;
            }
            self.0[..directory.len()].copy_from_slice(directory);
            self.0[directory.len()] = b'/';
            self.0[directory.len() + 1..length].copy_from_slice(bytes);
            self.0[length] = 0;
            // SAFETY: it ends with a zero.
            if unsafe { libc::access(self.0.as_ptr().cast(), libc::X_OK) } == 0 {
                return self.0.as_ptr().cast();
            }
        }
        std::ptr::null()
    }
}

fn is_own(entry: &[u8]) -> bool {
    entry.windows(OWN_NAME.len()).any(|part| part == OWN_NAME)
}

/// Finds `LD_PRELOAD` in an environment if it names this library.
unsafe fn find_preload<'a>(environment: *const *const c_char) -> Option<(usize, &'a [u8])> {
    for at in 0.. {
        // SAFETY: the list ends with a null pointer, at which the loop ends.
        let variable = unsafe { *environment.add(at) };
        if variable.is_null() {
            return None;
        }
        // SAFETY: variables are C strings.
        let variable = unsafe { CStr::from_ptr(variable) }.to_bytes();
        if let Some(value) = variable.strip_prefix(PRELOAD) {
            return is_own(value).then_some((at, value));
        }
    }
    None
}

/// Whether a program must not have this library preloaded.
fn is_harmed(path: &CStr) -> bool {
    let mut file = File::open(path);
    for _ in 0..MAX_SCRIPTS {
        let Some(opened) = file else { return false };
        let mut line = [0; MAX_PATH];
        let length = opened.read_at(&mut line[..MAX_PATH - 1], 0);
        if !line[..length].starts_with(b"#!") {
            return is_harmed_file(&opened).unwrap_or(false);
        }
        let rest = &mut line[2..length];
        let is_blank = |byte: &u8| b" \t".contains(byte);
        let start = rest.iter().position(|byte| !is_blank(byte)).unwrap_or(0);
        let rest = &mut rest[start..];
        let Some(end) = rest.iter().position(|byte| is_blank(byte) || *byte == b'\n') else { return false };
        rest[end] = 0;
        file = CStr::from_bytes_until_nul(rest).ok().and_then(File::open);
    }
    false
}

/// Whether the program in a file is harmed; none if it is no program, or damaged.
fn is_harmed_file(file: &File) -> Option<bool> {
    let mut header = [0; 64];
    if file.read_at(&mut header, 0) < header.len() || !header.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = u16::from_ne_bytes(header[18..20].try_into().ok()?);
    if header[4] != 2 || machine != MACHINE {
        return Some(true);
    }
    let headers = ProgramHeaders {
        file,
        start: word(&header, 32)?,
        count: u64::from(header[56]) | u64::from(header[57]) << 8,
    };
    let Some(interpreter) = headers.find(INTERPRETER) else { return Some(false) };
    let mut loader = [0; MAX_PATH];
    let length = file.read_at(&mut loader, interpreter.offset).min(interpreter.bytes as usize);
    let is_glibc = loader[..length].windows(8).any(|part| part == b"ld-linux");
    Some(!is_glibc || has_sanitizer(file, &headers).unwrap_or(false))
}

/// Whether a program needs the shared runtime of a sanitizer.
fn has_sanitizer(file: &File, headers: &ProgramHeaders<'_>) -> Option<bool> {
    let dynamic = headers.find(DYNAMIC)?;
    let entries = || {
        let count = (dynamic.bytes / 16).min(MAX_ENTRIES);
        (0..count).map_while(move |at| {
            let mut entry = [0; 16];
            let is_whole = file.read_at(&mut entry, dynamic.offset + at * 16) == entry.len();
            let (tag, value) = (word(&entry, 0)?, word(&entry, 8)?);
            (is_whole && tag != 0).then_some((tag, value))
        })
    };
    let strings = entries().find(|(tag, _)| *tag == STRING_TABLE)?.1;
    let strings = headers.offset_of(strings)?;
    let is_sanitizer = |(_, name): (u64, u64)| {
        let mut text = [0; 32];
        let length = file.read_at(&mut text, strings.saturating_add(name));
        SANITIZERS.iter().any(|prefix| text[..length].starts_with(prefix))
    };
    Some(entries().filter(|(tag, _)| *tag == NEEDED).any(is_sanitizer))
}

const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const NEEDED: u64 = 1;
const STRING_TABLE: u64 = 5;

/// The list of a program's segments.
struct ProgramHeaders<'a> {
    file: &'a File,
    start: u64,
    count: u64,
}

/// A segment of a program.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl ProgramHeaders<'_> {
    fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        (0..self.count.min(MAX_ENTRIES)).map_while(|at| {
            let mut header = [0; 56];
            let is_whole = self.file.read_at(&mut header, self.start.checked_add(at * 56)?) == header.len();
            let kind = u32::from_ne_bytes(header[..4].try_into().ok()?);
            let (offset, address, bytes) = (word(&header, 8)?, word(&header, 16)?, word(&header, 32)?);
            is_whole.then_some(Segment { kind, offset, address, bytes })
        })
    }

    fn find(&self, kind: u32) -> Option<Segment> {
        self.segments().find(|segment| segment.kind == kind)
    }

    /// Where in the file an address is.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments().filter(|segment| segment.kind == LOADED).find_map(|segment| {
            let inside = address.checked_sub(segment.address).filter(|inside| *inside < segment.bytes)?;
            segment.offset.checked_add(inside)
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A file that is read by system calls alone.
struct File(c_int);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a C string. The call neither allocates nor locks.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        (file >= 0).then_some(Self(file))
    }

    /// Reads bytes at an offset; returns how many there were.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> usize {
        let Ok(offset) = libc::off_t::try_from(offset) else { return 0 };
        // SAFETY: the buffer is valid for its length, and the descriptor is ours.
        let count = unsafe { libc::pread(self.0, bytes.as_mut_ptr().cast(), bytes.len(), offset) };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(self.0) };
    }
}
