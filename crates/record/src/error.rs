//! Why something could not be recorded, and what to do about it.

use std::io;
use std::path::Path;

use floodmark_tail::StartError;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] floodmark_store::Error),
    /// The recorder cannot be started.
    #[error(transparent)]
    Recorder(#[from] floodmark_tail::StartError),
    /// The command cannot be started or the process cannot be watched.
    #[error(transparent)]
    Sampler(#[from] floodmark_sampler::Error),
    /// Nodes of the job cannot be recorded.
    #[error(transparent)]
    Cluster(#[from] floodmark_cluster::Error),
    /// The destination cannot be used.
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
}

impl Error {
    pub(crate) fn refused(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), remedy: remedy.into() }
    }

    pub(crate) fn create(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let act = format!("creating {}", path.display());
        move |source| Self::Io { act, source }
    }

    /// Returns what to do about it, if that is known.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Trace(error) => error.hint(),
            Self::Sampler(error) => error.hint().map(str::to_owned),
            Self::Cluster(error) => error.remedy(),
            Self::Refused { remedy, .. } => Some(remedy.clone()),
            Self::Recorder(StartError::Io { source, .. }) | Self::Io { source, .. } => {
                match source.raw_os_error() {
                    Some(libc::EMFILE) => Some("raise the limit, as in 'ulimit -n 256'".to_owned()),
                    Some(libc::ENOMEM) => Some("recording maps 432 MiB; raise 'ulimit -v'".to_owned()),
                    _ => None,
                }
            }
            Self::Recorder(_) => None,
        }
    }

    /// Returns the exit code a shell would give for a command that could not be started.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Sampler(error) => error.exit_code(),
            _ => 2,
        }
    }
}
