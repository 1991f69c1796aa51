//! Which events an analysis looks at.
//!
//! Devices, processes and kinds narrow allocations and frees alike, where the kind of a free is that
//! of its allocation. Threads and streams narrow by the thread and stream that *allocated* the block,
//! whoever frees it. A free of an unknown block has no allocation and is judged by its own thread,
//! stream and kind (an unknown kind passes, because many sources do not state it on frees).
//!
//! The window `[from_ns, to_ns]` includes both ends. Events before it build up the live blocks
//! without being counted, so the watermark of a window includes blocks allocated before it; events
//! after it are ignored, so its end is the end of the trace for leaks.

use floodmark_event::units::Instant;
use floodmark_event::{Kind, ProcessId};

/// What to look at; `None` means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrow {
    /// Devices; [`NO_DEVICE`](floodmark_event::NO_DEVICE) selects what happened on none.
    pub devices: Option<Vec<i32>>,
    /// Processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Threads that allocated.
    pub threads: Option<Vec<u64>>,
    /// Streams on which was allocated.
    pub streams: Option<Vec<u64>>,
    /// Kinds. When given, figures are sums over these kinds; otherwise they cover the main kind.
    pub kinds: Option<Vec<Kind>>,
    /// First instant of the window.
    pub from_ns: Option<Instant>,
    /// Last instant of the window.
    pub to_ns: Option<Instant>,
}

/// An instant, once the first event is known.
pub fn resolve(instant: Instant, first_ns: i64) -> i64 {
    match instant {
        Instant::At(time_ns) => time_ns,
        Instant::AfterStart(after_ns) => first_ns.saturating_add_unsigned(after_ns),
    }
}
