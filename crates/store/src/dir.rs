//! Files of a trace: opening them without being led elsewhere, and writing them so that a crash leaves the
//! old one or the new one.
//!
//! A trace may come from another user, or lie in a directory that others can write to. So links inside it are
//! not followed (but for those to rings, which are read through them), pipes and devices are not read, and a
//! trace of another user is never written to.
#![expect(unsafe_code, reason = "asks for the user's number")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::{Error, Result};
use crate::steps;

/// Opens a file of a trace as `options` say. Anything but a plain file is an error.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // A pipe must not hold us up until it is known to be one.
    let file = match options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(io::Error::other("it is a symbolic link, which is not followed inside a trace"));
        }
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    Ok(file)
}

/// Opens a file of a trace for reading.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, File::options().read(true))
}

/// Creates a file that did not exist, in the place of a left-over one of that name.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    open(path, File::options().write(true).create_new(true))
}

/// Makes the directory at `path` inside a trace unless there is one; a link to one is an error.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_directory = fs::symlink_metadata(path)?.is_dir();
            if is_directory { Ok(()) } else { Err(io::Error::other("it is not a plain directory")) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            fs::create_dir(path)
        }
        made => made,
    }
}

/// Lists the directory at `path` inside a trace; nothing if it is none, or a link to one.
pub(crate) fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let entries = if is_directory { fs::read_dir(path).ok() } else { None };
    entries.into_iter().flatten().flatten()
}

/// Whether this user owns the directory at `path`: only then is a trace there recovered on disk.
pub(crate) fn is_own(path: &Path) -> bool {
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    fs::metadata(path).is_ok_and(|found| found.uid() == user)
}

/// Replaces the file at `path` by one with `bytes`, durably.
///
/// # Errors
/// [`Error::Io`]; the file is then as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let written = create_anew(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    steps::reach()?;
    let replaced = written.and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = replaced {
        let _ = fs::remove_file(&temporary);
        return Err(Error::io("writing", path)(error));
    }
    sync_parent(path);
    Ok(())
}

/// Makes a rename or removal in the directory of `path` durable.
///
/// A file system that cannot do this still keeps the order of what was renamed, so its refusal is
/// not an error.
pub(crate) fn sync_parent(path: &Path) {
    if let Some(parent) = path.parent() {
        let _ = File::open(parent).and_then(|directory| directory.sync_all());
    }
}
