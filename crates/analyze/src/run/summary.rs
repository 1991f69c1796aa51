//! The summary of a run: how it ended, how high its memory rose, and what sampling it cost.

use floodmark_event::Kind;
use serde::{Deserialize, Serialize};

use super::RunMemory;

/// A command that was run, or a process that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// What was run.
    pub command: Option<String>,
    /// How it ended: its exit code, or 128 and the number of the signal; none where that is not known.
    pub exit_status: Option<i32>,
    /// Name of the signal that ended it.
    pub signal: Option<String>,
    /// When it began.
    pub start_time_ns: Option<i64>,
    /// How long it took.
    pub duration_ns: Option<u64>,
    /// What watching it cost and missed.
    #[serde(flatten)]
    pub cost: RunCost,
    /// Its memory.
    #[serde(flatten)]
    pub memory: RunMemory,
    /// Its heap, where it was recorded from inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapSummary>,
    /// Its CUDA memory, where it was recorded from inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSummary>,
    /// What could not be done as it should be.
    pub notes: Vec<String>,
}

/// What was recorded of the heaps of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapSummary {
    /// PIDs of the processes whose heap was recorded.
    pub pids: Vec<u32>,
    /// Allocations that were recorded.
    pub allocations: u64,
    /// Frees of those.
    pub frees: u64,
    /// Average bytes between two samples of a thread; none if every allocation was recorded.
    pub sample_period_bytes: Option<u64>,
    /// Highest live bytes of all processes together; an estimate if allocations were sampled.
    pub peak_bytes: u64,
    /// When they were reached.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
    /// Remarks of the recorder in the processes, each once.
    pub remarks: Vec<String>,
    /// Programs of the run that were not recorded, or not completely.
    pub not_recorded: Vec<NotRecorded>,
}

/// What was recorded of the CUDA memory of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSummary {
    /// How memory was seen: calls of the driver by `cupti` or `preload`, what PyTorch's cache hands out as `torch`; none if
    /// no process used CUDA.
    pub ways: Vec<String>,
    /// Allocations of device memory.
    pub allocations: u64,
    /// Frees of those.
    pub frees: u64,
    /// Allocations of any kind that failed for lack of memory.
    pub failures: u64,
    /// Highest live bytes of device memory, of all processes and devices together.
    pub peak_bytes: u64,
    /// When they were reached.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
    /// Other kinds of memory that were allocated.
    pub others: Vec<GpuKind>,
    /// Remarks of the recorder in the processes, each once.
    pub remarks: Vec<String>,
}

/// What was recorded of a kind of memory beside that of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuKind {
    /// The kind, by name in JSON.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// Allocations.
    pub allocations: u64,
    /// Live bytes at the end.
    pub live_bytes: u64,
}

/// A program whose heap was not recorded, or not completely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRecorded {
    /// Name of its file.
    pub program: String,
    /// Why not.
    pub reason: String,
    /// Number of its processes.
    pub processes: u64,
}

/// What watching a run cost and missed, beside what its samples tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCost {
    /// Sweeps made.
    pub sweeps: Option<u64>,
    /// Sweeps that were not made because their time had passed.
    pub left_out_sweeps: Option<u64>,
    /// Longest time between two of them.
    pub longest_gap_ns: Option<u64>,
    /// Processes that were left running.
    pub left_processes: Option<u64>,
    /// How much less the total that counts shared memory once may have been.
    pub peak_pss_error_bytes: Option<u64>,
}

/// Name of a signal, as in `SIGKILL`.
pub fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(number - 1).ok().and_then(|at| NAMES.get(at)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}
