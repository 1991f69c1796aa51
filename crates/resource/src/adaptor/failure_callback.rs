//! Asks the program what to do when there is no memory.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::fmt;

use crate::adaptor::delegate;
use crate::debug_log::show_bytes;
use crate::error::{AllocError, Result};
use crate::resource::{Address, Resource};
use crate::stream::Stream;

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again: something was given back meanwhile.
    Again,
    /// Let the failure stand.
    GiveUp,
}

impl From<Retry> for Result<Retry> {
    fn from(retry: Retry) -> Self {
        Ok(retry)
    }
}

/// Which failures a callback is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Catch {
    /// Those that more memory would help against.
    #[default]
    OutOfMemory,
    /// All.
    Everything,
}

/// Calls a function when an allocation fails, and tries again as long as it says so.
///
/// The function gets the bytes asked for and the error, and returns a [`Retry`]; or a `Result` of one,
/// whose error then takes the place of the failure. It runs on the thread that allocates, and may itself
/// allocate and free. Below a pool it runs while that grows: what it asks of the same pool is then served
/// from what is at hand or refused, and nothing is released.
pub struct FailureCallback<R, F> {
    upstream: R,
    callback: F,
    catch: Catch,
}

impl<R, F, D> FailureCallback<R, F>
where
    R: Resource,
    F: Fn(u64, &AllocError) -> D + Send + Sync + 'static,
    D: Into<Result<Retry>>,
{
    /// Calls `callback` when `upstream` runs out of memory.
    pub fn new(upstream: R, callback: F) -> Self {
        tracing::info!("failure_callback created over {}", upstream.name());
        Self { upstream, callback, catch: Catch::OutOfMemory }
    }

    /// Asks about these failures.
    #[must_use]
    pub const fn catching(mut self, catch: Catch) -> Self {
        self.catch = catch;
        self
    }

    #[cold]
    fn failed(&self, bytes: u64, alignment: u64, stream: Stream, mut error: AllocError) -> Result<Address> {
        let mut tries = 1u64;
        loop {
            if self.catch == Catch::OutOfMemory && !error.is_out_of_memory() {
                return Err(error);
            }
            if (self.callback)(bytes, &error).into()? == Retry::GiveUp {
                tracing::debug!(
                    "failure_callback: gave up on {} after try {tries}: {error}",
                    show_bytes(bytes)
                );
                return Err(error);
            }
            tries += 1;
            tracing::debug!("failure_callback: try {tries} of {}", show_bytes(bytes));
            match self.upstream.allocate(bytes, alignment, stream) {
                Ok(address) => return Ok(address),
                Err(next) => error = next,
            }
        }
    }
}

impl<R, F, D> Resource for FailureCallback<R, F>
where
    R: Resource,
    F: Fn(u64, &AllocError) -> D + Send + Sync + 'static,
    D: Into<Result<Retry>>,
{
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        match self.upstream.allocate(bytes, alignment, stream) {
            Ok(address) => Ok(address),
            Err(error) => self.failed(bytes, alignment, stream, error),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("failure_callback");
}

impl<R: fmt::Debug, F> fmt::Debug for FailureCallback<R, F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("FailureCallback");
        out.field("upstream", &self.upstream).field("catch", &self.catch).finish_non_exhaustive()
    }
}
