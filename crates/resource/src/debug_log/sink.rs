//! Where the debug log goes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

pub(super) enum Sink {
    /// Standard error.
    Stderr,
    /// A file that is only ever appended to, so threads need no lock to keep their lines apart.
    File(File),
    Writer(Mutex<Box<dyn io::Write + Send>>),
}

impl Sink {
    /// Opens a file and leaves what is in it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self::File)
    }

    pub(super) const fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Empties a file.
    pub(super) fn truncate(&self) {
        if let Self::File(file) = self {
            // What cannot be emptied, a pipe say, is appended to.
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
