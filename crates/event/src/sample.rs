//! What was seen at an instant: gauges of processes, devices and groups, output, and stacks.
//!
//! A *subject* is what a sample is about. Subjects are numbered by whoever observes them, from 1; at
//! rest the observing process is in the upper half of the number, as for scopes.

use crate::event::StackId;

/// Something that is observed; 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectId(pub u32);

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $count:literal { $($(#[$variant_doc:meta])* $variant:ident = $number:literal $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; $count] = [$(Self::$variant,)*];

            /// The word for it in traces, JSON and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The one with this number, if there is one.
            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.into_iter().find(|one| *one as u8 == number)
            }

            /// The one with this name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}

numbered! {
    /// What sort of thing is observed.
    SubjectKind: 7 {
        /// A process.
        Process = 1 "process",
        /// A device, such as a GPU.
        Device = 2 "device",
        /// A control group.
        Cgroup = 3 "cgroup",
        /// All processes of the run together.
        Job = 4 "job",
        /// A machine.
        Host = 5 "host",
        /// A pool from which a driver or an allocator serves.
        Pool = 6 "pool",
        /// A file that a process, its parent, has mapped; named by its path.
        Mapping = 7 "mapping",
    }
}

numbered! {
    /// What was read.
    Metric: 29 {
        /// Resident bytes.
        Rss = 1 "rss",
        /// Resident bytes that belong to no file.
        RssAnon = 2 "rss_anon",
        /// Resident bytes of files.
        RssFile = 3 "rss_file",
        /// Resident bytes of shared memory.
        RssShmem = 4 "rss_shmem",
        /// Swapped-out bytes.
        Swap = 5 "swap",
        /// The kernel's mark of the most resident bytes so far, or since it was reset.
        Hwm = 6 "hwm",
        /// Resident bytes, shared pages divided by those who share them.
        Pss = 7 "pss",
        /// Resident bytes that nobody shares.
        Uss = 8 "uss",
        /// Threads.
        Threads = 9 "threads",
        /// Processes.
        Processes = 10 "processes",
        /// Bytes a control group uses.
        CgroupUsage = 11 "cgroup_usage",
        /// Bytes a control group may use.
        CgroupLimit = 12 "cgroup_limit",
        /// The most bytes a control group used.
        CgroupPeak = 13 "cgroup_peak",
        /// Bytes of a device in use, or in use by one process.
        GpuUsed = 14 "gpu_used",
        /// Bytes of a device.
        GpuTotal = 15 "gpu_total",
        /// Share of time a device was busy, in percent.
        GpuBusy = 16 "gpu_busy",
        /// Processor time used, in nanoseconds.
        CpuTime = 17 "cpu_time",
        /// Processor time the observer itself used, in nanoseconds.
        OwnCpuTime = 18 "own_cpu_time",
        /// Sweeps that came later than they should have.
        LateSweeps = 19 "late_sweeps",
        /// Processes that ended before they could be read.
        MissedProcesses = 20 "missed_processes",
        /// Bytes of virtual memory.
        Virtual = 21 "virtual",
        /// Bytes that a caching allocator holds, in use or not.
        Reserved = 22 "reserved",
        /// Bytes in use.
        Live = 23 "live",
        /// Time between two sweeps, in nanoseconds.
        Interval = 24 "interval",
        /// Number of a process in its MPI job; of a job, the one that all of it is.
        Rank = 25 "rank",
        /// Resident bytes of the heap that grows at its end (`[heap]`).
        RssHeap = 26 "rss_heap",
        /// Resident bytes of the stack of the first thread.
        RssStack = 27 "rss_stack",
        /// Resident bytes of mapped files, pages that were written to included.
        RssMapped = 28 "rss_mapped",
        /// Resident bytes of other memory: it belongs to no file and is neither heap nor stack.
        RssOther = 29 "rss_other",
    }
}

numbered! {
    /// Where output was written.
    OutputStream: 3 {
        /// Standard output.
        Stdout = 1 "stdout",
        /// Standard error.
        Stderr = 2 "stderr",
        /// A terminal, where the two are one.
        Terminal = 3 "terminal",
    }
}

numbered! {
    /// Why a stack was taken.
    StackReason: 6 {
        /// Memory reached a new peak.
        Peak = 1 "peak",
        /// Memory grew by more than a share.
        Growth = 2 "growth",
        /// It was time.
        Interval = 3 "interval",
        /// A limit came near.
        Limit = 4 "limit",
        /// It was requested.
        Request = 5 "request",
        /// The thread had most page faults of its process since stacks were last taken, which memory that
        /// reached a peak, grew or came near a limit triggered.
        Fault = 6 "fault",
    }
}

numbered! {
    /// How much a message matters.
    LogLevel: 5 {
        /// Of interest to those who look into the tool itself.
        Verbose = 1 "verbose",
        /// Good to know.
        Info = 2 "info",
        /// Something may be wrong or missing.
        Warning = 3 "warning",
        /// Something is wrong or missing.
        Error = 4 "error",
        /// Whoever wrote it did not say, or in a word that is not known.
        Unknown = 5 "unknown",
    }
}

numbered! {
    /// What a tracer of calls saw.
    CallAction: 8 {
        /// A function of the interpreted language was called.
        Call = 1 "call",
        /// It returned.
        Return = 2 "return",
        /// A generator or coroutine gave a value and was suspended.
        Yield = 3 "yield",
        /// It was resumed.
        Resume = 4 "resume",
        /// A function was left by an exception.
        Exception = 5 "exception",
        /// A native function was called.
        CCall = 6 "c_call",
        /// It returned.
        CReturn = 7 "c_return",
        /// It was left by an exception.
        CException = 8 "c_exception",
    }
}

/// Something that is observed, with what is known when it is first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// What sort of thing.
    pub kind: SubjectKind,
    /// Operating system's number of the process; the device's number; 0 for others.
    pub number: u64,
    /// When it began, in nanoseconds since 1970-01-01 UTC; 0 where unknown. With the number it
    /// identifies a process.
    pub start_ns: i64,
    /// The subject it came from: the parent process; 0 for none.
    pub parent: SubjectId,
    /// Name: of the program, the device, the group, the host.
    pub name: String,
    /// Command line, a device's UUID, a group's path.
    pub detail: String,
}

/// How something that was observed ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubjectEnd {
    /// Exit status as `wait` gives it; none where nobody of ours could ask.
    pub wait_status: Option<i32>,
    /// The most resident bytes it ever had, where the kernel said so.
    pub peak_rss_bytes: Option<u64>,
}

/// A stack of a thread, as somebody else saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSeen {
    /// Operating system's number of the thread.
    pub thread: u64,
    /// What it was doing.
    pub stack: StackId,
    /// Why it was looked at.
    pub reason: StackReason,
    /// How long it was held up for that.
    pub pause_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_same_value() {
        for metric in Metric::ALL {
            assert_eq!(Metric::from_number(metric as u8), Some(metric));
            assert_eq!(Metric::from_name(metric.name()), Some(metric));
        }
        for kind in SubjectKind::ALL {
            assert_eq!(SubjectKind::from_name(kind.name()), Some(kind));
        }
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::from_name(level.name()), Some(level));
        }
        assert_eq!(Metric::from_number(0), None);
        assert_eq!(OutputStream::from_number(3), Some(OutputStream::Terminal));
        assert_eq!(StackReason::from_name("limit"), Some(StackReason::Limit));
    }
}
