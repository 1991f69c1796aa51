//! Whether what is at a path is still what was there.
//!
//! Who replaces a trace makes a new directory in its place. The old one is held on to, because its number
//! may be given to the new one otherwise.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};

/// What was at a path.
#[derive(Clone, Debug)]
pub struct Identity {
    path: PathBuf,
    _held: Option<Arc<File>>,
    marks: Marks,
}

/// What tells one from another. A trace grows, so only its directory counts; a file must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    device: u64,
    inode: u64,
    /// Bytes, and when they were last written.
    content: Option<(u64, i64, i64)>,
}

impl Marks {
    fn of(found: &Metadata) -> Self {
        let content = (found.len(), found.mtime(), found.mtime_nsec());
        Self { device: found.dev(), inode: found.ino(), content: found.is_file().then_some(content) }
    }
}

impl Identity {
    /// Remembers what is at `path`.
    ///
    /// # Errors
    /// There is nothing, or it cannot be looked at.
    pub fn of(path: &Path) -> Result<Self> {
        let found = fs::metadata(path).map_err(Error::io("opening", path))?;
        // Opening anything else may wait for somebody.
        let is_plain = found.is_file() || found.is_dir();
        let held = if is_plain { File::open(path).ok() } else { None };
        let found = held.as_ref().and_then(|held| held.metadata().ok()).unwrap_or(found);
        Ok(Self { path: path.to_owned(), _held: held.map(Arc::new), marks: Marks::of(&found) })
    }

    /// Fails if it is something else now.
    ///
    /// # Errors
    /// [`Error::Replaced`], or what is wrong with the path.
    pub fn check(&self) -> Result<()> {
        let found = fs::metadata(&self.path).map_err(Error::io("opening", &self.path))?;
        if Marks::of(&found) == self.marks {
            return Ok(());
        }
        Err(Error::Replaced { path: self.path.clone() })
    }
}
