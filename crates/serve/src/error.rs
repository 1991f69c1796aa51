//! Why a page cannot be served, and what to do about it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a page cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input cannot be read.
    #[error(transparent)]
    Inspect(#[from] floodmark_inspect::Error),
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The operating system refused something.
    #[error("{act}")]
    Io {
        /// What was being done.
        act: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Blocks were asked for where no allocations were recorded.
    #[error("no allocations were recorded")]
    NoEvents,
    /// The thread that computes has failed.
    #[error("a part of 'serve' failed, which is a bug in Floodmark")]
    Broken,
}

impl From<floodmark_store::Error> for Error {
    fn from(error: floodmark_store::Error) -> Self {
        Self::Inspect(error.into())
    }
}

impl Error {
    /// Returns what to do about it, if that is known.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Inspect(error) => error.remedy(),
            Self::Bind { source, .. } => Some(
                match source.kind() {
                    ErrorKind::AddrInUse => "choose another --port, or leave it out to get one that is free",
                    ErrorKind::PermissionDenied => {
                        "ports below 1024 belong to the system; choose a higher --port"
                    }
                    _ => "--bind takes an address of this machine; leave it out to use 127.0.0.1",
                }
                .into(),
            ),
            Self::Io { .. } | Self::NoEvents | Self::Broken => None,
        }
    }

    /// Returns its message and those of its causes, outermost first.
    pub(crate) fn messages(&self) -> String {
        let chain = std::iter::successors(Some(self as &dyn std::error::Error), |error| error.source());
        let messages: Vec<String> =
            chain.map(|error| floodmark_view::plain(&error.to_string()).into_owned()).collect();
        messages.join(": ")
    }
}
