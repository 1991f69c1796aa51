//! Why a question could not be answered, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a question could not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A trace or a foreign file cannot be read or written.
    #[error(transparent)]
    Trace(#[from] floodmark_store::Error),
    /// Standard input cannot be read.
    #[error("reading standard input")]
    Stdin(#[source] floodmark_store::Error),
    /// An input that can be read only once would have to be read again.
    #[error("{question}, so it cannot read standard input")]
    ReadOnce {
        /// Why the input is read more than once.
        question: String,
    },
    /// The input has nothing that the question is about.
    #[error("{message}")]
    NoContent {
        /// The input and what it lacks.
        message: String,
        /// What to do instead.
        remedy: String,
    },
    /// Filters select nothing.
    #[error("{input}: none of its {events_read} events is selected, so there is nothing to check")]
    NothingSelected {
        /// The input.
        input: String,
        /// Events that were read.
        events_read: String,
    },
    /// The question does not fit the input or contradicts itself.
    #[error("{message}")]
    Unsuitable {
        /// What does not fit.
        message: String,
        /// What to do instead.
        remedy: String,
    },
    /// A file cannot be written.
    #[error("{act} {path}")]
    Write {
        /// What was being done, as in "creating".
        act: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The operating system refused something that concerns no file.
    #[error("{act}")]
    System {
        /// What was being done.
        act: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// Returns an error for a question that does not fit, with a remedy.
    pub fn unsuitable(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unsuitable { message: message.into(), remedy: remedy.into() }
    }

    /// Returns an error for an input that lacks what the question is about, with a remedy.
    pub fn no_content(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::NoContent { message: message.into(), remedy: remedy.into() }
    }

    /// Returns what to do about it, if that is known.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Trace(error) | Self::Stdin(error) => error.hint(),
            Self::ReadOnce { .. } => {
                Some("write it to a file first, or keep it as a trace with 'floodmark import'".into())
            }
            Self::NoContent { remedy, .. } | Self::Unsuitable { remedy, .. } => Some(remedy.clone()),
            Self::NothingSelected { .. } => Some(
                "correct --device, --process, --thread, --stream, --kind, --from or --to; 'floodmark info' \
                 shows what an input contains"
                    .into(),
            ),
            Self::Write { .. } | Self::System { .. } => None,
        }
    }
}
