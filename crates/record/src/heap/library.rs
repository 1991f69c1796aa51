//! The library that is preloaded into a command: embedded in this program, and a file while a command runs.
//!
//! The dynamic loader of every program in the tree opens it by its path, also of programs that outlive the recorder.
//! So it is a file with a name in a directory that only this user can write to, and it stays where processes are left
//! behind that may still start others: without it, the loader would complain on their standard error. Files that stayed
//! are removed by a later recording.

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// The library as it was built with this program, if it was.
#[cfg(heap_library)]
const EMBEDDED: Option<&[u8]> = Some(include_bytes!(env!("FLOODMARK_BUILT_HEAP_LIBRARY")));
#[cfg(not(heap_library))]
const EMBEDDED: Option<&[u8]> = None;

/// Name of the file.
const FILE_NAME: &str = "libfloodmark_inject.so";
/// How the names of directories begin that have the file.
const DIRECTORY_PREFIX: &str = "floodmark-heap-";
/// How long a file is kept that its recorder left to processes that it did not wait for.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// How many names of directories are tried.
const MOST_NAMES: u32 = 1_000;

/// A file of the library that programs can load.
#[derive(Debug)]
pub(crate) struct LibraryFile {
    path: PathBuf,
    /// The directory that was made for it; none for a file of the user's.
    directory: Option<PathBuf>,
}

impl LibraryFile {
    /// Takes the library that the user named, or writes the embedded one.
    pub(crate) fn open(named: Option<&Path>) -> Result<Self> {
        if let Some(path) = named {
            let found =
                std::path::absolute(path).and_then(|path| fs::metadata(&path).map(|found| (path, found)));
            let (path, found) =
                found.map_err(|source| Error::Io { act: format!("opening {}", path.display()), source })?;
            if !found.is_file() || !is_loadable_name(&path) {
                let message = format!("{} cannot be preloaded", path.display());
                return Err(Error::refused(message, "name a file in a path without spaces and colons"));
            }
            return Ok(Self { path, directory: None });
        }
        let Some(bytes) = EMBEDDED else {
            let message = "this program was built without the library that records heaps";
            return Err(Error::refused(message, "name its file with --heap-library"));
        };
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // What root runs may drop its rights, and then cannot read a directory that is root's alone.
        let runtime = runtime.filter(|_| own_user() != 0);
        let candidates =
            runtime.into_iter().chain([std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()]);
        let mut refused = None;
        for candidate in candidates.filter(|candidate| can_hold_programs(candidate)) {
            remove_abandoned(&candidate, SystemTime::now());
            match Self::write(&candidate, bytes) {
                Ok(file) => return Ok(file),
                Err(error) => refused = refused.or(Some((candidate, error))),
            }
        }
        Err(match refused {
            Some((candidate, source)) => {
                Error::Io { act: format!("writing the library to {}", candidate.display()), source }
            }
            None => Error::refused(
                "no directory is known that programs can load the recording library from",
                "set TMPDIR to a directory that is not mounted with noexec, in a path without spaces and colons",
            ),
        })
    }

    fn write(parent: &Path, bytes: &[u8]) -> io::Result<Self> {
        let directory = make_directory(parent)?;
        let path = directory.join(FILE_NAME);
        let written = OpenOptions::new().write(true).create_new(true).mode(0o555).open(&path);
        match written.and_then(|mut file| file.write_all(bytes)) {
            Ok(()) => Ok(Self { path, directory: Some(directory) }),
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    /// Its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file to processes that may still load it.
    pub(crate) fn leave(mut self) {
        self.directory = None;
    }
}

impl Drop for LibraryFile {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            // A process that has loaded it keeps what it has.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// The user that this process runs as: the owner of its directory of the process file system.
fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |found| found.uid())
}

/// Makes a directory whose name no other process can have guessed and taken: an existing one is never used.
fn make_directory(parent: &Path) -> io::Result<PathBuf> {
    let own = std::process::id();
    for number in 0..MOST_NAMES {
        let path = parent.join(format!("{DIRECTORY_PREFIX}{own}-{number}"));
        match DirBuilder::new().mode(0o711).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Whether programs can load a library from a directory.
fn can_hold_programs(directory: &Path) -> bool {
    directory.is_absolute()
        && directory.is_dir()
        && is_loadable_name(directory)
        && !is_mounted_noexec(directory)
}

/// Whether `LD_PRELOAD`, whose entries are separated by spaces and colons, can name a path. A dollar sign begins a name
/// that the loader replaces.
fn is_loadable_name(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b" :$".contains(byte))
}

#[expect(unsafe_code, reason = "asks the system for the options of a mount")]
fn is_mounted_noexec(directory: &Path) -> bool {
    let Ok(name) = CString::new(directory.as_os_str().as_bytes()) else { return true };
    // SAFETY: zeros are valid for this structure of numbers, and both pointers are valid for the call.
    let options = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &raw mut found) == 0).then_some(found.f_flag)
    };
    options.is_none_or(|options| options & libc::ST_NOEXEC != 0)
}

/// Removes directories that recorders of this user left behind, and that no process is likely to need any more.
fn remove_abandoned(parent: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_old = || {
            let found = fs::symlink_metadata(entry.path()).ok()?;
            let age = now.duration_since(found.modified().ok()?).ok()?;
            Some(found.is_dir() && found.uid() == own_user() && age >= KEPT_FOR)
        };
        if is_of_ended_recorder(&name) && is_old() == Some(true) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether this is the name of a directory whose recorder has ended.
fn is_of_ended_recorder(name: &OsStr) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY_PREFIX));
    let pid = rest.and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use floodmark_testkit::TempDir;

    use super::*;

    /// See `crates/inject/src/versions.rs`.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_embedded_library_needs_no_later_c_library_than_2_31() {
        let Some(bytes) = EMBEDDED else { return };
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(bytes).expect("an ELF file");
        let needed = file.elf_section_table().versions(file.endian(), bytes).unwrap().expect("versions");
        let mut versions = Vec::new();
        for symbol in file.elf_dynamic_symbol_table().enumerate().map(|(index, _)| index) {
            let index = needed.version_index(file.endian(), symbol);
            let Ok(Some(version)) = needed.version(index.into()) else { continue };
            let Some(minor) = version.name().strip_prefix(b"GLIBC_2.") else { continue };
            let digits = minor.iter().take_while(|byte| byte.is_ascii_digit());
            versions.push(digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0')));
        }
        assert!(!versions.is_empty(), "the library names no version of the C library");
        assert!(versions.iter().all(|version| *version <= 31), "{versions:?}");
    }

    #[test]
    fn the_file_is_there_while_it_is_used_and_cannot_be_written_to() {
        let test = TempDir::new("heap-library");
        let file = LibraryFile::write(test.path(), b"library").unwrap();
        let path = file.path().to_owned();
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o555);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o711);
        let second = LibraryFile::write(test.path(), b"another").unwrap();
        assert_ne!(second.path(), path);
        drop(file);
        assert!(!path.exists() && !path.parent().unwrap().exists());
        let left = second.path().to_owned();
        second.leave();
        assert!(left.exists(), "processes that outlive the recorder load it");
    }

    #[test]
    fn files_that_were_left_are_removed_when_they_are_old() {
        let test = TempDir::new("heap-library-old");
        let make = |name: &str, days: u64| {
            let path = test.join(name);
            fs::create_dir(&path).unwrap();
            let time = SystemTime::now() - Duration::from_hours(24 * days);
            File::open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        // Above the highest number that the kernel gives to a process.
        let old = make("floodmark-heap-4294967290-0", 8);
        let young = make("floodmark-heap-4294967290-1", 6);
        let running = make(&format!("floodmark-heap-{}-0", std::process::id()), 8);
        let foreign = make("floodmark-heap-notes", 8);
        remove_abandoned(test.path(), SystemTime::now());
        assert_eq!([old, young, running, foreign].map(|path| path.exists()), [false, true, true, true]);
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_not_used() {
        assert!(can_hold_programs(&std::env::temp_dir()));
        for path in ["/tmp/a b", "/tmp/a:b", "/tmp/$LIB", "relative", "/no/such/directory"] {
            assert!(!can_hold_programs(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_library_that_does_not_exist_is_refused() {
        let error = LibraryFile::open(Some(Path::new("/no/such/library.so"))).unwrap_err();
        assert_eq!(error.to_string(), "opening /no/such/library.so");
        let error = LibraryFile::open(Some(Path::new("/"))).unwrap_err();
        assert!(error.to_string().contains("cannot be preloaded"), "{error}");
    }
}
