//! The result of a watch: exit status, peaks, cost, and what could not be recorded.

use std::fmt;

use crate::sys::signal;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(u8),
    /// A signal killed it.
    Signal {
        /// Number of the signal.
        number: u8,
        /// Whether it left a core file.
        core: bool,
    },
}

impl Exit {
    /// Decodes a wait status.
    pub const fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) as u8),
            number => Self::Signal { number: number as u8, core: status & 0x80 != 0 },
        }
    }

    /// Exit code as a shell would return it: the command's own, or 128 plus the number of the signal.
    pub const fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal { number, .. } => 128 | number,
        }
    }

    /// Ends this process by the signal that killed the command, so that our parent sees the same wait status.
    /// Leaves no core file. Returns if the command exited, or if the signal does not end this process.
    pub fn reraise(self) {
        if let Self::Signal { number, .. } = self {
            signal::die_of(i32::from(number));
        }
    }
}

/// The result of a watch.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the command ended; none if it was another process's child, or if the watch ended first.
    pub exit: Option<Exit>,
    /// Start of the watch in monotonic nanoseconds.
    pub began_ns: u64,
    /// Time from the start to the end of the last process.
    pub duration_ns: u64,
    /// Peaks of the whole job.
    pub peaks: Peaks,
    /// Number of processes.
    pub processes: ProcessCounts,
    /// The processes with the highest peaks, highest first; no more than [`Outcome::LARGEST`].
    pub largest: Vec<ProcessPeak>,
    /// Cost of the watch.
    pub cost: Cost,
    /// Limitations and problems of the watch.
    pub notes: Vec<Note>,
}

impl Outcome {
    /// Maximum length of [`Outcome::largest`].
    pub const LARGEST: usize = 64;
}

/// Peaks of all processes together.
///
/// The kernel keeps no peak of a sum. [`Peaks::rss_seen`] is the highest sum at a sweep, which is never too
/// high. Between two sweeps a single process may have been higher, as its high-water mark shows.
/// [`Peaks::rss`] is the highest sum plus the largest such excess of *one* process, as if the others had not
/// changed: exact for a job of one process or one that dominates, and never below a sum that was seen. It is
/// too high, by that excess at most, if others grew after that process had shrunk: the truth lies between the
/// two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Highest sum of resident bytes, with the excess by high-water marks.
    pub rss: Peak,
    /// Highest sum of resident bytes at a sweep.
    pub rss_seen: Peak,
    /// Highest total with shared memory counted once; none if nothing could be read.
    pub total: Option<TotalPeak>,
    /// Peak of resident bytes of any single process. If the command was our own child, this includes
    /// processes that were not seen.
    pub largest_process_bytes: u64,
}

/// A highest value and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The value.
    pub bytes: u64,
    /// Time of the sweep that found it, in monotonic nanoseconds.
    pub at_ns: u64,
}

/// The highest total of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalPeak {
    /// Upper bound of the highest sum of proportional set sizes, and the time of the highest lower bound.
    pub peak: Peak,
    /// How much less it may have been: the truth lies between this difference and the bound.
    pub error_bytes: u64,
}

/// Numbers of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Processes that were seen.
    pub seen: u64,
    /// Largest number at one time.
    pub most: u64,
    /// Processes that were seen, but ended before their memory could be read.
    pub unread: u64,
    /// Processes that are known only because they ended as our children.
    pub missed: u64,
    /// PIDs of processes or threads, of the tree or not, that ended before they could be read: an upper bound
    /// of further missed processes. 0 with process events.
    pub vanished: u64,
    /// Processes that were still running at the end of the watch.
    pub left: u64,
}

/// The peak of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPeak {
    /// PID.
    pub pid: i32,
    /// Name of the program.
    pub name: String,
    /// Peak of resident bytes.
    pub rss_bytes: u64,
    /// Source of the peak.
    pub known: PeakSource,
}

/// Source of the peak of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeakSource {
    /// The highest value at a sweep; it may have been higher in between.
    #[default]
    Seen,
    /// The kernel's high-water mark at its last reading; the peak may have been higher after that.
    Mark,
    /// What the kernel reported at the end of the process: exact.
    Exit,
}

/// Why the kernel sends no exit statistics, which have the exact peaks of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoExitStats {
    /// They need a permission.
    Permission,
    /// This kernel or container has none.
    Unavailable,
    /// The caller disabled them.
    Disabled,
}

impl fmt::Display for NoExitStats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Permission => {
                "exact peaks of all processes need CAP_NET_ADMIN (setcap cap_net_admin+ep on the floodmark binary, or root)"
            }
            Self::Unavailable => "this kernel or container has no exit statistics (taskstats)",
            Self::Disabled => "exit statistics are disabled",
        })
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}es") }
}

/// Cost of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of this whole process during the watch.
    pub own_cpu_ns: u64,
    /// CPU time of reading proportional set sizes, which is part of it.
    pub totals_cpu_ns: u64,
    /// Number of sweeps.
    pub sweeps: u64,
    /// Number of sweeps that began more than half an interval late.
    pub late_sweeps: u64,
    /// Number of sweeps that were skipped because their time had passed.
    pub left_out_sweeps: u64,
    /// Longest time between two sweeps.
    pub longest_gap_ns: u64,
}

/// A limitation or problem of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The kernel reports no process events; short-lived processes may be missed.
    NoEvents {
        /// The reason.
        why: String,
    },
    /// Process events were lost, and the processes were searched for afterwards.
    EventsOverrun {
        /// Number of times.
        times: u64,
    },
    /// Processes were found by scanning, and some ended before they could be read.
    Vanished {
        /// Number of processes and threads, of the command or not.
        count: u64,
    },
    /// Proportional set sizes of some processes may not be read; all of their resident bytes count.
    TotalsDenied {
        /// PID of one of the processes.
        pid: i32,
        /// The system's error.
        why: String,
    },
    /// High-water marks of some processes may not be reset, so their peaks are those of their whole life.
    ResetDenied {
        /// PID of one of the processes.
        pid: i32,
        /// The system's error.
        why: String,
    },
    /// There are more processes than descriptors, so files are opened for each reading.
    FewDescriptors {
        /// Limit of descriptors.
        limit: u64,
    },
    /// Peaks of some processes are lower bounds, because the kernel sends no exit statistics.
    InexactPeaks {
        /// Number of ended processes whose peaks are lower bounds.
        bounds: u64,
        /// Number of processes that ended before their memory could be read.
        unread: u64,
        /// The reason.
        why: NoExitStats,
    },
    /// The driver reports PIDs of another namespace: GPU memory is known by device, but not by process.
    ForeignGpuProcesses,
    /// The library for GPUs is installed but does not work.
    GpuFailed {
        /// The reason.
        why: String,
    },
    /// The reader of our output closed it, so the command's was closed too.
    OutputClosed {
        /// The stream.
        stream: floodmark_event::OutputStream,
    },
    /// Output could not be forwarded.
    OutputFailed {
        /// The stream.
        stream: floodmark_event::OutputStream,
        /// The system's error.
        why: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvents { why } => {
                write!(
                    out,
                    "short-lived processes may be missed: the kernel reports no process events ({why})"
                )
            }
            Self::EventsOverrun { times } => {
                write!(out, "process events were lost {times} times; short-lived processes may be missed")
            }
            Self::Vanished { count } => {
                write!(
                    out,
                    "{count} processes or threads of the host ended before they could be read; some may be the command's"
                )
            }
            Self::TotalsDenied { pid, why } => {
                write!(out, "all shared memory of process {pid} and perhaps others is counted: {why}")
            }
            Self::ResetDenied { pid, why } => {
                write!(out, "peaks of process {pid} and perhaps others are not per interval: {why}")
            }
            Self::FewDescriptors { limit } => {
                write!(
                    out,
                    "sampling is slower than necessary: only {limit} descriptors are allowed; see 'ulimit -n'"
                )
            }
            Self::InexactPeaks { bounds, unread, why } => {
                write!(out, "peaks of {} are lower bounds", counted(*bounds, "process"))?;
                if *unread > 0 {
                    let unread = counted(*unread, "process");
                    write!(out, ", and {unread} ended before their memory could be read")?;
                }
                write!(out, ": {why}")
            }
            Self::ForeignGpuProcesses => {
                out.write_str("GPU memory is known per device only: the driver reports PIDs of the host")
            }
            Self::GpuFailed { why } => write!(out, "GPU memory is not recorded: {why}"),
            Self::OutputClosed { stream } => {
                write!(out, "our {} was closed by its reader, so the command's was too", stream.name())
            }
            Self::OutputFailed { stream, why } => {
                write!(out, "{} could not be forwarded: {why}", stream.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_decoded_as_by_a_shell() {
        assert_eq!(Exit::from_wait_status(3 << 8), Exit::Code(3));
        assert_eq!(Exit::from_wait_status(15), Exit::Signal { number: 15, core: false });
        assert_eq!(Exit::from_wait_status(0x80 | 0xb), Exit::Signal { number: 11, core: true });
        assert_eq!(Exit::from_wait_status(0x80 | 0xb).code(), 139);
        assert_eq!(Exit::from_wait_status(255 << 8).code(), 255);
    }
}
