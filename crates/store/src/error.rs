//! What can go wrong with a trace or a foreign file.
//!
//! Every error names the file, the place in it where there is one, and what to do about it where we
//! know. Bad data ([`Error::Corrupt`], [`Error::Malformed`]), a format from the future
//! ([`Error::Incompatible`]), the machine ([`Error::Io`]) and our own bugs ([`Error::Internal`]) can
//! be told apart by type.

use std::io;
use std::path::{Path, PathBuf};

use crate::table::Table;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{act} {path}")]
    Io {
        /// What was being done, as in "opening".
        act: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file of a trace does not hold what its format promises.
    #[error("{path} is damaged: {what}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// The trace was written by a newer Floodmark.
    #[error("{path} has format version {found}; this Floodmark reads up to {supported}")]
    Incompatible {
        /// The manifest.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Newest version we know.
        supported: u32,
    },
    /// A foreign file has a line or record that cannot be read.
    #[error("{path}:{place}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number or other place in the file.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// Nothing here knows the file.
    #[error("{path} is not recognized: {reason}")]
    Unrecognized {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        reason: String,
    },
    /// A foreign file was recognized, but has other content than the command needs.
    #[error("{path} is a {format}: it has {content}")]
    WrongContent {
        /// The file.
        path: PathBuf,
        /// Name of its format.
        format: &'static str,
        /// What it has and has not, as in "samples but no allocations".
        content: &'static str,
    },
    /// A pipe was to be read a second time.
    #[error("{path} can be read only once")]
    ReadOnce {
        /// The pipe.
        path: PathBuf,
    },
    /// A trace would be overwritten.
    #[error("{path} exists already")]
    Exists {
        /// The trace.
        path: PathBuf,
    },
    /// Something else is where a trace, or another file, was.
    #[error("{path}: this trace was replaced by another recording")]
    Replaced {
        /// The trace.
        path: PathBuf,
    },
    /// Another process is sealing the trace.
    #[error("{path} is being sealed by another process")]
    Locked {
        /// The trace.
        path: PathBuf,
    },
    /// The trace would be changed, but belongs to another user.
    #[error("{path} belongs to another user, so it is not changed")]
    NotOwn {
        /// The trace.
        path: PathBuf,
    },
    /// A column was asked for that its table does not have.
    #[error("the table '{table}' has no column '{column}'")]
    NoColumn {
        /// Name of the table.
        table: &'static str,
        /// Name of the column.
        column: String,
    },
    /// A table cannot be written to where it is to go.
    #[error("writing a table")]
    Output(#[source] io::Error),
    /// Frames of a process on another host make no sense, or their stream broke off.
    #[error("receiving a recording: {0}")]
    Received(String),
    /// Floodmark contradicts itself.
    #[error("internal error: {0} (please report this)")]
    Internal(String),
}

impl Error {
    /// Wraps an I/O error with what was being done to which file.
    pub fn io(act: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { act, path, source }
    }

    /// Says what is wrong with a file of a trace.
    pub(crate) fn corrupt(path: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.as_ref().to_owned(), what: what.into() }
    }

    /// A remedy, if we know one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Some("check the path".into()),
                io::ErrorKind::PermissionDenied => {
                    Some("check who owns it; reading needs read access, recovery needs write access".into())
                }
                io::ErrorKind::StorageFull => {
                    Some("free some space and run the command again; nothing recorded is lost".into())
                }
                _ => None,
            },
            Self::Corrupt { .. } => Some("'floodmark repair' keeps everything up to the damage".into()),
            Self::Incompatible { .. } => Some("install a newer Floodmark".into()),
            Self::Malformed { place, .. } => {
                place.starts_with("line").then(|| "--lenient skips such lines and counts them".into())
            }
            Self::Unrecognized { .. } => Some("'floodmark import --help' lists the formats".into()),
            Self::WrongContent { .. } => Some("'floodmark info' shows what a file contains".into()),
            Self::ReadOnce { .. } => {
                Some("write it to a file first, or keep it as a trace with 'floodmark import'".into())
            }
            Self::Exists { .. } => Some("choose another name or add --force".into()),
            Self::Replaced { .. } => Some("start again".into()),
            Self::Locked { .. } => Some("wait until the recording has ended".into()),
            Self::NotOwn { .. } => Some("copy it, or run the command as its owner".into()),
            Self::NoColumn { table, .. } => {
                let columns = Table::from_name(table)?.schema();
                let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
                Some(format!("its columns are {}", names.join(", ")))
            }
            Self::Received(_) => Some("everything up to there is stored; connect again to go on".into()),
            Self::Output(_) | Self::Internal(_) => None,
        }
    }
}
