//! Why nodes of a job cannot be recorded, and what to do about it.

use std::io;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why nodes of a job cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that was asked for cannot be done.
    #[error("{message}")]
    Refused {
        /// What is in the way.
        message: String,
        /// What to do instead.
        remedy: String,
    },
    /// The operating system refused something.
    #[error("{act}")]
    Io {
        /// What was being done.
        act: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] floodmark_store::Error),
    /// The node's processes cannot be sampled.
    #[error(transparent)]
    Sampler(#[from] floodmark_sampler::Error),
    /// The node's samples cannot be recorded.
    #[error(transparent)]
    Recorder(#[from] floodmark_tail::StartError),
}

impl Error {
    pub(crate) fn refused(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), remedy: remedy.into() }
    }

    pub(crate) fn io(act: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let act = act.into();
        move |source| Self::Io { act, source }
    }

    /// Returns what to do about it, if that is known.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Refused { remedy, .. } => Some(remedy.clone()),
            Self::Trace(error) => error.hint(),
            Self::Sampler(error) => error.hint().map(str::to_owned),
            _ => None,
        }
    }
}
