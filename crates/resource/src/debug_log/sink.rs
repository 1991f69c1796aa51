//! Destination of the debug log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A destination of lines.
pub(super) enum Sink {
    /// Stderr.
    Stderr,
    /// A file opened for appending, so that lines of several threads do not mix without a lock.
    File(File),
    Writer(Mutex<Box<dyn io::Write + Send>>),
}

impl Sink {
    /// Opens a file without truncating it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self::File)
    }

    pub(super) const fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Truncates a file.
    pub(super) fn truncate(&self) {
        if let Self::File(file) = self {
            // A pipe, for example, cannot be truncated.
            let _ = file.set_len(0);
        }
    }

    pub(super) fn write(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().write_all(line),
            Self::File(file) => (&mut &*file).write_all(line),
            Self::Writer(out) => {
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                out.write_all(line).and_then(|()| out.flush())
            }
        }
    }
}
