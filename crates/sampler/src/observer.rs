//! Observation of every sweep as it is made.
//!
//! To take stacks at a peak, it must be known within the same millisecond, and not from a trace.

use floodmark_event::SubjectId;

use crate::metrics::cgroup::Usage;

/// Observes every sweep. It runs between two sweeps, so a slow observer delays the next one.
///
/// It may start processes only where the kernel reports process events (see
/// [`Note::NoEvents`](crate::Note::NoEvents)): otherwise they cannot be distinguished from orphans of the
/// command, and are reaped with them.
pub trait Observer {
    /// Called once with the root of the tree: right after a command was started, or when a watch of a running
    /// process begins.
    fn started(&mut self, _root: i32) {}

    /// Called after a sweep, whose samples the sink has got.
    fn swept(&mut self, sweep: &Sweep<'_>);
}

/// Observes nothing.
impl Observer for () {
    fn swept(&mut self, _sweep: &Sweep<'_>) {}
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// Time in monotonic nanoseconds.
    pub at_ns: u64,
    /// Sum of resident bytes of all processes.
    pub rss_bytes: u64,
    /// Change of that sum since the previous sweep.
    pub change_bytes: i64,
    /// Whether the sum is the highest so far.
    pub level: Level,
    /// Total with shared memory counted once.
    pub total: Total,
    /// Usage of the cgroup, if there is one.
    pub cgroup: Option<Usage>,
    /// All processes whose memory was read.
    pub processes: &'a [ProcessSweep],
}

/// How a sum compares with earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Higher than all earlier ones.
    NewPeak,
    /// Not higher than an earlier one.
    BelowPeak,
}

/// Total of all processes, with shared memory counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Upper bound, by the last readings and the changes since.
    pub bytes: u64,
    /// How much less it may be.
    pub error_bytes: u64,
}

/// One process in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSweep {
    /// Its subject in the sink; 0 for a process that is too young to have one.
    pub subject: SubjectId,
    /// PID.
    pub pid: i32,
    /// Start in clock ticks since boot; 0 if not read yet.
    pub start_ticks: u64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Change since the previous sweep; all of it in the first sweep of a process.
    pub change_bytes: i64,
}
