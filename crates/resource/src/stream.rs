//! Streams, and what a resource needs to know about their order.
//!
//! Work on one stream runs in the order in which it was enqueued, work on two streams in any. A
//! resource that hands memory from one to the other records a [`Marker`] on the first and makes the
//! second wait for it.
//!
//! There are two kinds of streams. The end of a *lasting* one is announced, so a marker can be recorded
//! when it is needed. A foreign one may be gone by then, so its marker is recorded
//! whenever memory is given back on it; that costs a call into the driver each time.

use std::sync::{Arc, Weak};

use crate::copier::{Copier, HostCopier};
use crate::error::Result;

/// A queue of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    handle: u64,
    lasting: bool,
}

impl Stream {
    /// The default stream.
    pub const DEFAULT: Self = Self { handle: 0, lasting: true };
    /// The default stream that every thread has for itself, where the program asked for such.
    pub const PER_THREAD: Self = Self { handle: PER_THREAD_HANDLE, lasting: false };

    /// Returns a stream that other code made and may destroy without notice.
    pub const fn foreign(handle: u64) -> Self {
        // 1 is CUDA's other name for the default stream.
        if handle <= 1 { Self::DEFAULT } else { Self { handle, lasting: false } }
    }

    /// A stream whose maker tells [`StreamListener`]s before it ends, or which never ends.
    pub const fn lasting(handle: u64) -> Self {
        if handle <= 1 { Self::DEFAULT } else { Self { handle, lasting: handle != PER_THREAD_HANDLE } }
    }

    /// The number by which its maker knows it.
    pub const fn handle(self) -> u64 {
        self.handle
    }

    /// Whether we hear of its end.
    pub const fn is_lasting(self) -> bool {
        self.lasting
    }

    /// Whether it is a different stream in every thread.
    pub const fn is_per_thread(self) -> bool {
        self.handle == PER_THREAD_HANDLE
    }
}

const PER_THREAD_HANDLE: u64 = 2;

/// A point in a stream's work, made by a [`StreamOrder`]; recording it again moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Marker(pub u64);

/// Orders work between streams of one device.
pub trait StreamOrder: Send + Sync {
    /// A number that no other stream of this process has or had.
    ///
    /// Asked for foreign streams only: handles of lasting ones are not used again before their end
    /// was told. For [`Stream::PER_THREAD`] it is one of the calling thread.
    fn identity(&self, stream: Stream) -> u64;

    /// A new marker, not recorded anywhere yet.
    ///
    /// # Errors
    /// When the device cannot.
    fn marker(&self) -> Result<Marker>;

    /// Ends a marker.
    fn discard(&self, marker: Marker);

    /// Moves `marker` to after all that is enqueued on `stream` now.
    ///
    /// # Errors
    /// When the device cannot.
    fn record(&self, marker: Marker, stream: Stream) -> Result<()>;

    /// Lets nothing that is enqueued on `stream` from now on run before what `marker` stands after.
    ///
    /// # Errors
    /// When the device cannot.
    fn wait(&self, stream: Stream, marker: Marker) -> Result<()>;

    /// Waits until all that is enqueued on `stream` has run.
    ///
    /// # Errors
    /// When the device cannot, or when something enqueued has failed.
    fn synchronize(&self, stream: Stream) -> Result<()>;

    /// Waits until all that is enqueued anywhere on the device has run.
    ///
    /// # Errors
    /// When the device cannot, or when something enqueued has failed.
    fn synchronize_all(&self) -> Result<()>;

    /// Has `listener` told before a lasting stream ends.
    fn subscribe(&self, listener: Weak<dyn StreamListener>);

    /// Returns what copies the memory that is ordered here; none if it cannot be copied.
    fn copier(&self) -> Option<&dyn Copier> {
        None
    }
}

/// Wants to know when lasting streams end.
pub trait StreamListener: Send + Sync {
    /// `stream` is about to end; it can be recorded on for the last time.
    fn stream_ends(&self, stream: Stream);
}

/// The order of memory that only threads of this process use: they are done with it when they free it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOrder;

impl NoOrder {
    /// The same, to be shared.
    pub fn shared() -> Arc<dyn StreamOrder> {
        Arc::new(Self)
    }
}

impl StreamOrder for NoOrder {
    fn identity(&self, stream: Stream) -> u64 {
        stream.handle()
    }

    fn marker(&self) -> Result<Marker> {
        Ok(Marker(0))
    }

    fn discard(&self, _: Marker) {}

    fn record(&self, _: Marker, _: Stream) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _: Stream, _: Marker) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }

    fn synchronize_all(&self) -> Result<()> {
        Ok(())
    }

    fn subscribe(&self, _: Weak<dyn StreamListener>) {}

    fn copier(&self) -> Option<&dyn Copier> {
        Some(&HostCopier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_the_default_stream_are_one() {
        assert_eq!(Stream::foreign(1), Stream::DEFAULT);
        assert_eq!(Stream::lasting(0), Stream::DEFAULT);
        assert!(Stream::foreign(2).is_per_thread());
        assert!(!Stream::lasting(2).is_lasting());
        assert!(!Stream::foreign(0x7f00).is_lasting());
        assert!(Stream::lasting(0x7f00).is_lasting());
    }
}
