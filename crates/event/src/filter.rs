//! Selects the events that an analysis counts.
//!
//! Devices, processes and kinds select allocations and frees alike; the kind of a free is that of its
//! allocation. Threads and streams select by the thread and stream that *allocated* the block, whichever
//! thread frees it. A free of an unknown block has no allocation and is judged by its own thread, stream
//! and kind (an unknown kind passes, because many sources do not state it on frees).
//!
//! The window `[from_ns, to_ns]` includes both ends. Events before it build up the live blocks without
//! being counted, so the peak of a window includes blocks allocated before it. Events after it are
//! ignored, so for leaks the window's end is the end of the trace.

use crate::units::Instant;
use crate::{Kind, ProcessId};

/// Selection of events; `None` in a field selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Devices; [`NO_DEVICE`](crate::NO_DEVICE) selects events on no device.
    pub devices: Option<Vec<i32>>,
    /// Processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Threads that allocated.
    pub threads: Option<Vec<u64>>,
    /// Streams that were allocated on.
    pub streams: Option<Vec<u64>>,
    /// Kinds of memory. If given, figures are sums over these kinds; otherwise they cover the main kind.
    pub kinds: Option<Vec<Kind>>,
    /// First instant of the window.
    pub from_ns: Option<Instant>,
    /// Last instant of the window.
    pub to_ns: Option<Instant>,
}

/// Returns the UTC nanoseconds of `instant` in an input whose first event is at `first_ns`.
pub fn resolve(instant: Instant, first_ns: i64) -> i64 {
    match instant {
        Instant::At(time_ns) => time_ns,
        Instant::AfterStart(after_ns) => first_ns.saturating_add_unsigned(after_ns),
    }
}
