//! Every allocation and free, for the debug log at its lowest level.
//!
//! Backends and suballocators log them; adaptors leave that to the resources they wrap. An allocation is
//! logged after it was served and a free before the block is returned, so the lines of one address are in order.
//!
//! Invariants: no resource logs while it holds a lock, and a step without a subscriber costs a load and a
//! branch.

use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::trace;

use crate::debug_log::{show_bytes, show_stream};
use crate::error::Result;
use crate::resource::Address;
use crate::stream::Stream;

/// Returns whether a subscriber in this process may want steps.
#[inline]
fn are_wanted() -> bool {
    LevelFilter::TRACE <= STATIC_MAX_LEVEL && LevelFilter::TRACE <= LevelFilter::current()
}

/// Tells how `name` answered a request, and passes the answer on.
#[inline]
pub(crate) fn answered(
    name: &'static str,
    bytes: u64,
    stream: Stream,
    answer: Result<Address>,
) -> Result<Address> {
    // Two ways to the end, so that an address needs no way through memory.
    match answer {
        Ok(address) => {
            if are_wanted() {
                tell_address(name, address, bytes, stream);
            }
            Ok(address)
        }
        Err(error) => {
            tell_refusal(name, bytes, stream);
            Err(error)
        }
    }
}

/// Tells that a block is about to go back to `name`.
#[inline]
pub(crate) fn gives_back(name: &'static str, address: Address, bytes: u64, stream: Stream) {
    if are_wanted() {
        tell_free(name, address, bytes, stream);
    }
}

#[cold]
#[inline(never)]
fn tell_address(name: &str, address: Address, bytes: u64, stream: Stream) {
    trace!("{name}: {} at {address} for stream {}", show_bytes(bytes), show_stream(stream));
}

#[cold]
#[inline(never)]
fn tell_refusal(name: &str, bytes: u64, stream: Stream) {
    trace!("{name}: no {} for stream {}", show_bytes(bytes), show_stream(stream));
}

#[cold]
#[inline(never)]
fn tell_free(name: &str, address: Address, bytes: u64, stream: Stream) {
    trace!("{name}: {} at {address} back from stream {}", show_bytes(bytes), show_stream(stream));
}
