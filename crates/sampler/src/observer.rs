//! Being told of every sweep while it is fresh.
//!
//! Whoever takes stacks at a peak must know of it within the same millisecond, not from a trace.

use floodmark_event::SubjectId;

use crate::metrics::cgroup::Usage;

/// Looks at every sweep. It runs between two sweeps: what it takes long for, it delays.
///
/// It may start processes of its own only where the kernel tells of births
/// ([`Note::NoEvents`](crate::Note::NoEvents)): elsewhere they cannot be told from orphans of the
/// command, and are reaped with them.
pub trait Observer {
    /// A sweep was made, and told to the sink.
    fn swept(&mut self, sweep: &Sweep<'_>);
}

/// Looks at nothing.
impl Observer for () {
    fn swept(&mut self, _sweep: &Sweep<'_>) {}
}

/// What a sweep found.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// When, in monotonic nanoseconds.
    pub at_ns: u64,
    /// Resident bytes of all processes, summed.
    pub rss_bytes: u64,
    /// Change of that sum since the sweep before.
    pub change_bytes: i64,
    /// Whether the sum is the highest so far.
    pub level: Level,
    /// The total in which shared memory counts once.
    pub total: Total,
    /// The control group, where there is one.
    pub cgroup: Option<Usage>,
    /// All processes whose memory was read.
    pub processes: &'a [ProcessSweep],
}

/// Where a sum stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Higher than ever before.
    NewPeak,
    /// Not.
    BelowPeak,
}

/// All processes together, shared memory counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Last readings, and the changes of resident bytes since.
    pub bytes: u64,
    /// How much less it may be.
    pub error_bytes: u64,
}

/// One process in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSweep {
    /// What stands for it in the sink; 0 for one that is too young to be told of.
    pub subject: SubjectId,
    /// The system's number.
    pub pid: i32,
    /// Its start in clock ticks since boot; 0 if not read yet.
    pub start_ticks: u64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Change since the sweep before; for the first sweep of a process all of it.
    pub change_bytes: i64,
}
