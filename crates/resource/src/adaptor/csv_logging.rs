//! RMM's log: one line of text per allocation, free and failure.
//!
//! The bytes are those that RMM's own logging adaptor writes, so its tools read them. Unlike there, lines
//! are in the order of their times, the line of a failure is in the file when the caller hears of it, and
//! a disk that is full is noticed.
//!
//! | module | what lives there |
//! |---|---|
//! | `log` | the buffer and where it goes |
//! | `row` | what a line looks like |
//! | `name` | what the file is called |
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

mod log;
mod name;
mod row;

use std::any::Any;
use std::io::Write;
use std::ops::Deref;
use std::path::Path;

pub use log::{CsvError, CsvHandle, CsvHealth, Flush};
use row::Action;

use crate::adaptor::delegate;
use crate::error::Result;
use crate::resource::{Address, Resource};
use crate::stream::Stream;

/// Writes a line of text per allocation, free and failure; all else is asked of its [`CsvHandle`], which
/// this dereferences to and which [`find`](crate::find) finds in any stack.
///
/// Lines are buffered (at most 64 KiB of them), and written at once with a failure, by
/// [`flush`](CsvHandle::flush), before a fork, when the adaptor is dropped, and when the process exits other than
/// by a signal or `_exit`.
#[derive(Debug)]
pub struct CsvLogging<R> {
    upstream: R,
    handle: CsvHandle,
}

impl<R: Resource> CsvLogging<R> {
    /// Logs into a file, which is emptied; folders it needs are made.
    ///
    /// # Errors
    /// [`CsvError::Io`] if it cannot be written.
    pub fn create(upstream: R, file: impl AsRef<Path>, flush: Flush) -> Result<Self, CsvError> {
        let handle = CsvHandle::create(file.as_ref(), flush)?;
        tracing::info!("csv_logging created over {}: into {}", upstream.name(), handle.label().display());
        Ok(Self { upstream, handle })
    }

    /// Logs into the file that the environment names; see [`CsvHandle::default_file_name`].
    ///
    /// # Errors
    /// [`CsvError`] if it names none, or one that cannot be written.
    pub fn from_environment(upstream: R, flush: Flush) -> Result<Self, CsvError> {
        Self::create(upstream, CsvHandle::default_file_name()?, flush)
    }

    /// Logs the same into each of `outs`.
    pub fn to_writers(upstream: R, outs: Vec<Box<dyn Write + Send>>, flush: Flush) -> Self {
        let plural = if outs.len() == 1 { "" } else { "s" };
        tracing::info!("csv_logging created over {}: into {} writer{plural}", upstream.name(), outs.len());
        Self { upstream, handle: CsvHandle::to_writers(outs, flush) }
    }

    /// The log, to be kept or sent elsewhere.
    pub const fn handle(&self) -> &CsvHandle {
        &self.handle
    }
}

impl<R> Deref for CsvLogging<R> {
    type Target = CsvHandle;

    fn deref(&self) -> &CsvHandle {
        &self.handle
    }
}

impl<R: Resource> Resource for CsvLogging<R> {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let result = self.upstream.allocate(bytes, alignment, stream);
        match &result {
            Ok(address) => self.handle.write(Action::Allocate, *address, bytes, stream),
            Err(_) => self.handle.write(Action::Failure, Address::NULL, bytes, stream),
        }
        result
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        self.handle.write(Action::Free, address, bytes, stream);
        // SAFETY: the caller's promise, passed on.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("csv_logging");

    fn part(&self) -> Option<&dyn Any> {
        Some(&self.handle)
    }
}

impl<R> Drop for CsvLogging<R> {
    fn drop(&mut self) {
        // The owner of the handle sees an error in its health.
        let _ = self.handle.flush();
    }
}
