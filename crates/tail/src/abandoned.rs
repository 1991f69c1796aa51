//! Removes rings from shared memory whose trace was deleted.
//!
//! A process that is killed leaves its ring in shared memory, and the next open of its trace moves the records
//! into the trace. If the trace is deleted instead, no open ever comes. A ring's header therefore has the path of
//! its trace.
//!
//! Invariant: records of a trace that was only moved are kept. A moved trace still links to its ring, but the ring
//! does not know where it is. A ring is therefore removed only if it has not changed for [`KEPT_FOR`] and neither
//! the trace nor another one in its parent directory links to it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::reader::{Life, RingReader};
use crate::ring::effective_user;

/// Shared memory of the machine, where rings are unless another directory is given.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// Time for which a ring without a trace is kept: its trace may have been moved.
pub const KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// Removes rings of this user from `directory` that belong to no trace any more; returns how many.
///
/// Anything that cannot be read or determined is a reason to keep a ring.
pub fn remove_abandoned_rings(directory: &Path, now: SystemTime) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let rings = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let stem = name.as_bytes().strip_prefix(b"floodmark-")?.strip_suffix(b".ring")?;
        let link = OsStr::from_bytes(&[stem, b".ring"].concat()).to_owned();
        is_abandoned(&entry.path(), &link, now)?.then_some(entry.path())
    });
    rings.filter(|path| fs::remove_file(path).is_ok()).count()
}

/// Whether no trace will ever link to the ring at `path` by the name `link`; `None` if that is not known.
fn is_abandoned(path: &Path, link: &OsStr, now: SystemTime) -> Option<bool> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let is_ours = metadata.is_file() && metadata.uid() == effective_user();
    if !is_ours || now.duration_since(metadata.modified().ok()?).ok()? < KEPT_FOR {
        return Some(false);
    }
    let file: File =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let ring = RingReader::new(file).ok()?;
    if ring.process().ok()?.life != Life::Ended {
        return Some(false);
    }
    let segments: PathBuf = ring.segments_directory().ok()??;
    let parent = segments.parent()?.parent()?;
    if is_there(&segments.join(link))? {
        return Some(false);
    }
    // Without its parent directory the trace may be on a file system that is not mounted.
    for entry in fs::read_dir(parent).ok()? {
        if is_there(&entry.ok()?.path().join("segments").join(link))? {
            return Some(false);
        }
    }
    Some(true)
}

/// Whether there is anything at `path`; `None` if that is not known.
fn is_there(path: &Path) -> Option<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Some(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Some(false)
        }
        Err(_) => None,
    }
}
