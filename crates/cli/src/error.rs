//! Errors of the command: printed once, with their causes and a remedy.

use std::io;

use floodmark_view::plain;

/// Something the user can put right, and how.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Hinted {
    message: String,
    hint: String,
}

/// Returns an error with a remedy.
pub(crate) fn hinted(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { message: message.into(), hint: hint.into() }.into()
}

/// Whether whoever read the output has had enough of it.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// The messages of an error, outermost first, without what acts on a terminal.
pub(crate) fn causes(error: &anyhow::Error) -> Vec<String> {
    error.chain().map(|cause| plain(&cause.to_string()).into_owned()).collect()
}

/// The remedy, if one is known.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    let of = |cause: &(dyn std::error::Error + 'static)| {
        let own = cause.downcast_ref::<Hinted>().map(|hinted| hinted.hint.clone());
        let store = || cause.downcast_ref::<floodmark_store::Error>().and_then(floodmark_store::Error::hint);
        let sampler =
            || cause.downcast_ref::<floodmark_sampler::Error>().and_then(floodmark_sampler::Error::hint);
        own.or_else(store).or_else(|| sampler().map(str::to_owned))
    };
    error.chain().find_map(of).map(|hint| plain(&hint).into_owned())
}
