//! Errors of the command: printed once, with their causes and a remedy.

use std::error::Error;
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

/// Returns whether the reader of the output has closed it.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// An error and its causes, outermost first.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The messages of an error, outermost first, without what acts on a terminal.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    chain(error).map(|cause| plain(&cause.to_string()).into_owned()).collect()
}

/// The remedy, if one is known.
pub(crate) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let of = |cause: &(dyn Error + 'static)| {
        let own = cause.downcast_ref::<Hinted>().map(|hinted| hinted.hint.clone());
        let store = || cause.downcast_ref::<floodmark_store::Error>().and_then(floodmark_store::Error::hint);
        let sampler =
            || cause.downcast_ref::<floodmark_sampler::Error>().and_then(floodmark_sampler::Error::hint);
        let inspect =
            || cause.downcast_ref::<floodmark_inspect::Error>().and_then(floodmark_inspect::Error::remedy);
        let record =
            || cause.downcast_ref::<floodmark_record::Error>().and_then(floodmark_record::Error::remedy);
        let cluster =
            || cause.downcast_ref::<floodmark_cluster::Error>().and_then(floodmark_cluster::Error::remedy);
        let serve =
            || cause.downcast_ref::<floodmark_serve::Error>().and_then(floodmark_serve::Error::remedy);
        let top = || cause.downcast_ref::<floodmark_top::Error>().and_then(floodmark_top::Error::remedy);
        own.or_else(inspect)
            .or_else(record)
            .or_else(cluster)
            .or_else(serve)
            .or_else(top)
            .or_else(store)
            .or_else(|| sampler().map(str::to_owned))
    };
    chain(error).find_map(of).map(|hint| plain(&hint).into_owned())
}
