//! A fixed amount of memory, divided among threads and streams.
#![expect(unsafe_code, reason = "giving memory back is a promise of the caller")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_event::units::format_bytes;

use crate::error::{AllocError, Result};
use crate::reserve::{Growth, Reserve, ReserveProps, Sharing, divides};
use crate::resource::{ALIGNMENT, Address, Resource};
use crate::steps;
use crate::stream::Stream;

/// The least an arena can have.
const LEAST_BYTES: u64 = 1 << 20;

/// How large an arena is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaProps {
    /// All the memory it ever has; rounded down to 256.
    pub bytes: u64,
    /// Whether requests are rounded up to [`size_class`]es, which wastes some memory within blocks and
    /// saves some between them.
    pub rounding: Rounding,
    /// Where to describe the arena when a request fails.
    pub dump: Option<PathBuf>,
}

impl ArenaProps {
    /// Returns the properties of an arena of `bytes`, with all else at its default.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, rounding: Rounding::Exact, dump: None }
    }
}

/// What sizes are rounded up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Multiples of 256.
    Exact,
    /// [`size_class`]es.
    Classes,
}

/// A fixed amount of memory.
///
/// Unlike in a [`Pool`](crate::Pool), threads that share a stream have memory of their own too, and
/// never meet while it lasts.
pub struct Arena<R: Resource> {
    reserve: Arc<Reserve<R>>,
    rounding: Rounding,
    dump: Option<PathBuf>,
}

impl<R: Resource> Arena<R> {
    /// An arena out of `upstream`.
    ///
    /// # Errors
    /// [`AllocError::Invalid`] for less than 1 MiB; what the upstream says when it cannot give it.
    pub fn new(upstream: R, props: ArenaProps) -> Result<Self> {
        let bytes = props.bytes / ALIGNMENT * ALIGNMENT;
        if bytes < LEAST_BYTES {
            let why = "an arena has at least 1 MiB";
            return Err(AllocError::Invalid { bytes: props.bytes, alignment: ALIGNMENT, why });
        }
        let reserve = ReserveProps {
            name: "arena",
            initial_bytes: bytes,
            maximum_bytes: Some(bytes),
            growth: Growth::Never,
            sharing: Sharing::ByThread,
        };
        let ArenaProps { rounding, dump, .. } = props;
        Ok(Self { reserve: Reserve::new(upstream, reserve)?, rounding, dump })
    }

    #[inline]
    fn rounded(&self, bytes: u64) -> u64 {
        match self.rounding {
            Rounding::Exact => bytes,
            Rounding::Classes => size_class(bytes),
        }
    }

    #[cold]
    fn failed(&self, bytes: u64, error: AllocError) -> AllocError {
        let error = error.asked_for(bytes);
        if let Some(path) = &self.dump {
            self.dump(path, &error);
        }
        error
    }

    fn dump(&self, path: &Path, error: &AllocError) {
        let room = self.reserve.room();
        let mut text = format!("{error}\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Arena: {}", format_bytes(room.reserved_bytes));
        let _ = writeln!(text, "Live: {} in {} blocks", format_bytes(room.live_bytes), room.live_blocks);
        let _ = writeln!(text, "Free: {}", format_bytes(room.free_bytes()));
        let _ = writeln!(text, "Largest free: {}", format_bytes(room.largest_free_bytes.unwrap_or(0)));
        let _ = writeln!(text, "Fragmentation: {:.2} %", room.fragmentation() * 100.0);
        match std::fs::write(path, text) {
            Ok(()) => tracing::info!("arena: described in {}", path.display()),
            Err(error) => tracing::error!("arena: cannot write {}: {error}", path.display()),
        }
    }
}

impl<R: Resource> Resource for Arena<R> {
    #[inline]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        let answer = self.reserve.allocate(self.rounded(bytes), alignment, stream);
        steps::answered(self.name(), bytes, stream, answer.map_err(|error| self.failed(bytes, error)))
    }

    #[inline]
    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, stream: Stream) {
        steps::gives_back(self.name(), address, bytes, stream);
        self.reserve.deallocate(address, self.rounded(bytes), stream);
    }

    divides!("arena");

    fn release(&self) -> u64 {
        // An arena keeps what it has.
        self.reserve.upstream().release()
    }
}

/// Rounds up to a size that many requests share: each power of two is divided in four.
pub const fn size_class(bytes: u64) -> u64 {
    if bytes <= ALIGNMENT {
        return if bytes == 0 { 0 } else { ALIGNMENT };
    }
    let step = 1 << (bytes - 1).ilog2().saturating_sub(2);
    let step = if step < ALIGNMENT { ALIGNMENT } else { step };
    match bytes.checked_add(step - 1) {
        Some(sum) => sum / step * step,
        None => u64::MAX,
    }
}
