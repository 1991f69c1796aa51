//! How a run went: its end, its peaks, and what watching it cost and missed.

use std::fmt;

use crate::sys::signal;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It ended by itself, with this code.
    Code(u8),
    /// A signal ended it.
    Signal {
        /// The signal's number.
        number: u8,
        /// Whether it left a core file.
        core: bool,
    },
}

impl Exit {
    /// Reads a status as `wait` gives it.
    pub const fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) as u8),
            number => Self::Signal { number: number as u8, core: status & 0x80 != 0 },
        }
    }

    /// The exit code a shell would give: the command's own, or 128 and the number of the signal.
    pub const fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal { number, .. } => 128 | number,
        }
    }

    /// Ends this process as the command ended, if a signal ended it: whoever waits for us then sees
    /// what they would have seen. Leaves no core file. Returns for a command that ended by itself, and
    /// should the signal not end us.
    pub fn die_likewise(self) {
        if let Self::Signal { number, .. } = self {
            signal::die_of(i32::from(number));
        }
    }
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the command ended; none where it was another's child, or where watching ended first.
    pub exit: Option<Exit>,
    /// Begin of watching, in monotonic nanoseconds.
    pub began_ns: u64,
    /// Time from the begin to the end of the last process.
    pub duration_ns: u64,
    /// Peaks of the whole job.
    pub peaks: Peaks,
    /// How many processes there were.
    pub processes: ProcessCounts,
    /// The processes with the highest peaks, highest first; no more than [`Outcome::LARGEST`].
    pub largest: Vec<ProcessPeak>,
    /// What watching cost.
    pub cost: Cost,
    /// What could not be done as it should be.
    pub notes: Vec<Note>,
}

impl Outcome {
    /// How many processes [`Outcome::largest`] lists at most.
    pub const LARGEST: usize = 64;
}

/// Peaks of all processes together.
///
/// No kernel keeps the peak of a sum. [`Peaks::rss_seen`] is the highest sum that a sweep found, and
/// never too high. Between two sweeps a single process may have been higher; its own mark says so.
/// [`Peaks::rss`] is the highest sum with the largest such excess of *one* process added, as if the
/// others had stood still: exact for a job of one process or one that dominates, and never below what
/// was seen. It is too high, by that excess at most, where others grew after that process had shrunk:
/// the truth lies between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Highest sum of resident bytes, with what marks of the kernel add to it.
    pub rss: Peak,
    /// Highest sum of resident bytes at a sweep.
    pub rss_seen: Peak,
    /// Highest total in which shared memory counts once; none where nothing could be read.
    pub total: Option<TotalPeak>,
    /// Most resident bytes of any single process; where the command was our own child this includes
    /// processes that nobody saw.
    pub largest_process_bytes: u64,
}

/// A highest value and when it was reached.
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
    /// Proportional set sizes, summed: last readings, and the changes of resident bytes since.
    pub peak: Peak,
    /// How much less it may have been, because memory that may be shared changed since it was last
    /// read; 0 for a reading.
    pub error_bytes: u64,
}

/// How many processes there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Processes that were seen.
    pub seen: u64,
    /// Most at one time.
    pub most: u64,
    /// Seen, but over before any memory could be read.
    pub unread: u64,
    /// Known to have been there only because they ended as our children.
    pub missed: u64,
    /// Numbers that the system gave to processes or threads, of the tree or not, which were gone before
    /// a look at them: no more than so many were missed on top. 0 where the kernel tells of births.
    pub vanished: u64,
    /// Still running when watching ended.
    pub left: u64,
}

/// The peak of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPeak {
    /// The system's number of the process.
    pub pid: i32,
    /// Name of the program.
    pub name: String,
    /// Most resident bytes.
    pub rss_bytes: u64,
    /// How this is known.
    pub known: PeakSource,
}

/// How the peak of a process is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeakSource {
    /// The highest value that a sweep saw; it may have been more in between.
    #[default]
    Seen,
    /// The kernel's own mark, when it was last read; nothing is known of the time after that.
    Mark,
    /// The kernel's last word, given at the end of the process: exact.
    LastWord,
}

/// What watching cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Processor time of this whole process while it watched.
    pub own_cpu_ns: u64,
    /// Of it, the time spent in reading proportional set sizes.
    pub totals_cpu_ns: u64,
    /// Sweeps made.
    pub sweeps: u64,
    /// Sweeps that began more than half an interval late.
    pub late_sweeps: u64,
    /// Sweeps that were not made because their time had passed.
    pub left_out_sweeps: u64,
    /// Longest time between two sweeps.
    pub longest_gap_ns: u64,
}

/// Something that could not be done as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The kernel tells us of no births; short-lived processes may be missed.
    NoEvents {
        /// Why.
        why: String,
    },
    /// Births came faster than they could be read, so some were looked for afterwards.
    EventsOverrun {
        /// How often.
        times: u64,
    },
    /// Found by looking, and something was gone before the look.
    Vanished {
        /// How many processes and threads, of the command or not.
        count: u64,
    },
    /// Proportional set sizes may not be read for some processes; their resident bytes count whole.
    TotalsDenied {
        /// One of the processes.
        pid: i32,
        /// What the system said.
        why: String,
    },
    /// Marks of the kernel may not be reset for some processes, so their peaks are of their whole life.
    ResetDenied {
        /// One of the processes.
        pid: i32,
        /// What the system said.
        why: String,
    },
    /// There are more processes than file descriptors; files are opened for each reading.
    FewDescriptors {
        /// How many there are.
        limit: u64,
    },
    /// The driver's process numbers are those of another namespace: memory of devices is known, who
    /// uses it is not.
    ForeignGpuProcesses,
    /// A library for devices is there but does not work.
    GpuFailed {
        /// What it said.
        why: String,
    },
    /// Somebody closed our output; the command's was closed in turn.
    OutputClosed {
        /// Which one.
        stream: floodmark_event::OutputStream,
    },
    /// Output could not be passed on.
    OutputFailed {
        /// Which one.
        stream: floodmark_event::OutputStream,
        /// What the system said.
        why: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvents { why } => {
                write!(out, "short-lived processes may be missed: the kernel reports no births ({why})")
            }
            Self::EventsOverrun { times } => {
                write!(out, "births came too fast {times} times; short-lived processes may be missed")
            }
            Self::Vanished { count } => {
                write!(out, "{count} processes or threads of the host, perhaps ours, came and went unseen")
            }
            Self::TotalsDenied { pid, why } => {
                write!(out, "shared memory of process {pid} and perhaps others counts whole: {why}")
            }
            Self::ResetDenied { pid, why } => {
                write!(out, "peaks of process {pid} and perhaps others are not per interval: {why}")
            }
            Self::FewDescriptors { limit } => {
                write!(out, "sampling costs more than it should: only {limit} descriptors; see 'ulimit -n'")
            }
            Self::ForeignGpuProcesses => {
                out.write_str("GPU memory is known per device only: the driver counts processes of the host")
            }
            Self::GpuFailed { why } => write!(out, "GPU memory is not recorded: {why}"),
            Self::OutputClosed { stream } => {
                write!(out, "our {} was closed by its reader, so the command's was too", stream.name())
            }
            Self::OutputFailed { stream, why } => {
                write!(out, "{} could not be passed on: {why}", stream.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_what_a_shell_would_say() {
        assert_eq!(Exit::from_wait_status(3 << 8), Exit::Code(3));
        assert_eq!(Exit::from_wait_status(15), Exit::Signal { number: 15, core: false });
        assert_eq!(Exit::from_wait_status(0x80 | 0xb), Exit::Signal { number: 11, core: true });
        assert_eq!(Exit::from_wait_status(0x80 | 0xb).code(), 139);
        assert_eq!(Exit::from_wait_status(255 << 8).code(), 255);
    }
}
