//! Properties of a watch.

use std::ffi::OsString;
use std::path::PathBuf;

use floodmark_event::units::format_count;

use crate::marks::Marks;
use crate::pace::Pace;

/// Properties of a watch.
#[derive(Clone, Debug)]
pub struct WatchProps {
    /// Interval between sweeps.
    pub pace: Pace,
    /// Which peaks of processes are recorded.
    pub peaks: PeakMode,
    /// How new processes are found.
    pub discovery: Discovery,
    /// When the watch ends.
    pub until: Until,
    /// Time in nanoseconds after which the watch ends in any case and leaves everything running.
    pub at_most_ns: Option<u64>,
    /// Share of a core that reading proportional set sizes may take, and mappings half as much beside it; 0 disables both.
    pub totals_share: f64,
    /// Patterns of output lines that are marks.
    pub marks: Marks,
    /// Root of the cgroup file system; none for the one that is mounted.
    pub cgroup_root: Option<PathBuf>,
    /// Called once if processes that the command left behind are still running seconds after its end.
    pub on_leftover: Option<fn(&Leftover)>,
    /// Library that reports GPU memory, if it is installed; none disables it.
    pub gpu_library: Option<OsString>,
}

impl Default for WatchProps {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            peaks: PeakMode::default(),
            discovery: Discovery::default(),
            until: Until::default(),
            at_most_ns: None,
            totals_share: 0.01,
            marks: Marks::default(),
            cgroup_root: None,
            on_leftover: None,
            gpu_library: Some("libnvidia-ml.so.1".into()),
        }
    }
}

/// Processes that a command left behind, and that the watch waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Number of processes.
    pub count: u64,
    /// PID of one of them.
    pub pid: i32,
    /// Name of that process.
    pub name: String,
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, pid, name } = self;
        let others =
            if *count > 1 { format!(" and {} more", format_count(count - 1)) } else { String::new() };
        write!(out, "the command has ended; recording until {name} (PID {pid}){others} ends. ")?;
        out.write_str("Ctrl-C stops recording and leaves it running.")
    }
}

/// Which peaks of processes are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeakMode {
    /// The high-water mark of each process is read and left as it is: its highest peak is exact, lower peaks
    /// between two sweeps are not seen.
    #[default]
    Kept,
    /// The mark is read at every sweep, and reset when memory has fallen below it: the peak of every interval
    /// is exact. This changes the maximum that the kernel reports at exit (`ru_maxrss`, as `time -v` prints
    /// it), and blocks while the process is mapping memory.
    Exact,
}

/// How new processes are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    /// By events of the kernel, or by scanning `/proc` where there are none.
    #[default]
    Events,
    /// By scanning `/proc`.
    Scan,
}

/// When a watch ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// When the last process of the tree has ended.
    #[default]
    Tree,
    /// When the command itself has ended. Processes that it left behind run on unwatched, and a process of
    /// ours forwards their output until they end.
    Command,
}
