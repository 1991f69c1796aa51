//! Why the live view cannot go on, and what to do about it.

use std::io;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why the live view cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input cannot be read.
    #[error(transparent)]
    Inspect(#[from] floodmark_inspect::Error),
    /// Standard output is not a terminal.
    #[error("'top' draws on a terminal, and standard output is none")]
    NoTerminal,
    /// The operating system refused something.
    #[error("{act}")]
    Io {
        /// What was being done.
        act: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A thread of the view has failed.
    #[error("a part of 'top' failed, which is a bug in Floodmark")]
    Broken,
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Io { act: "drawing on the terminal", source }
    }
}

impl From<floodmark_store::Error> for Error {
    fn from(error: floodmark_store::Error) -> Self {
        Self::Inspect(error.into())
    }
}

impl Error {
    /// Wraps an I/O error with what was being done.
    pub(crate) fn io(act: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { act, source }
    }

    /// Returns what to do about it, if that is known.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Inspect(error) => error.remedy(),
            Self::NoTerminal => Some(
                "record with 'floodmark run', and draw with 'floodmark plot' or 'floodmark report'".into(),
            ),
            Self::Io { .. } | Self::Broken => None,
        }
    }
}
