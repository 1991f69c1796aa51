//! Rows of the tables beside the event table, as readers of a trace get them.
//!
//! Times are nanoseconds since 1970-01-01 UTC. A subject's or scope's number has the process that
//! recorded it in the upper half and the process's own number in the lower; 0 stands for none. Strings
//! and stacks are ids into [`Tables`](crate::tables::Tables), which also has the subjects.

use crate::event::{ProcessId, StackId, StringId};
use crate::sample::{CallAction, LogLevel, Metric, OutputStream, StackReason, SubjectKind};

/// Name of the scope of blocks that were live before recording began: when they were allocated is not
/// known, and they stand at the first instant.
pub const BEFORE_CAPTURE: &str = "before capture";

/// Name of the scope of frees that the program did not ask for: what was live ended with its context.
pub const CONTEXT_TEARDOWN: &str = "context teardown";

/// Name of a scope that says that the trace is a snapshot of a running program: what is live at its end
/// is in use, and no leak.
pub const LIVE_SNAPSHOT: &str = "live snapshot";

/// Name of a block that `realloc` returned: the free that the same thread recorded just before it is that of the
/// block it grew out of.
pub const REALLOC: &str = "realloc";

/// Something that was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectRow {
    /// Its number.
    pub subject: u64,
    /// What sort of thing.
    pub kind: SubjectKind,
    /// Operating system's number of the process; the device's number; 0 for others.
    pub number: u64,
    /// When it began; none where unknown.
    pub start_ns: Option<i64>,
    /// The subject it came from.
    pub parent: u64,
    /// Name: of the program, the device, the group, the host.
    pub name: String,
    /// Command line, a device's UUID, a group's path.
    pub detail: String,
    /// When it ended; none as far as it is not known to have.
    pub end_ns: Option<i64>,
    /// Exit status as `wait` gives it.
    pub wait_status: Option<i32>,
    /// The most resident bytes it ever had, where the kernel said so.
    pub peak_rss_bytes: Option<u64>,
}

impl SubjectRow {
    /// A subject of which no more is known.
    pub fn new(subject: u64, kind: SubjectKind, number: u64, name: impl Into<String>) -> Self {
        Self {
            subject,
            kind,
            number,
            start_ns: None,
            parent: 0,
            name: name.into(),
            detail: String::new(),
            end_ns: None,
            wait_status: None,
            peak_rss_bytes: None,
        }
    }
}

/// A value that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRow {
    /// When.
    pub time_ns: i64,
    /// Of what.
    pub subject: u64,
    /// What it says.
    pub metric: Metric,
    /// The value.
    pub value: u64,
}

/// Output that was read. A long piece may come as several rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRow {
    /// When it was read.
    pub time_ns: i64,
    /// Process that read it.
    pub process: ProcessId,
    /// Where it was written.
    pub stream: OutputStream,
    /// What was written, in whatever encoding.
    pub bytes: Vec<u8>,
}

/// A stack that somebody else saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSampleRow {
    /// When.
    pub time_ns: i64,
    /// Whose.
    pub subject: u64,
    /// Operating system's number of the thread.
    pub thread: u64,
    /// What it was doing.
    pub stack: StackId,
    /// Why it was looked at.
    pub reason: StackReason,
    /// How long it was held up for that.
    pub pause_ns: u64,
}

/// A message of the tool that recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// When.
    pub time_ns: i64,
    /// Process it is about; none if it is about the run as a whole.
    pub process: ProcessId,
    /// How much it matters.
    pub level: LogLevel,
    /// Part of the tool that says so; none where unknown.
    pub source: StringId,
    /// What it says.
    pub text: String,
}

/// A function that was called or ended, as a tracer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// Nanoseconds since 1970-01-01 UTC, in whole microseconds.
    pub time_ns: i64,
    /// Process in which it happened.
    pub process: ProcessId,
    /// Operating system's number of the thread.
    pub thread: u64,
    /// What happened.
    pub action: CallAction,
    /// The function, a frame of [`Tables`](crate::tables::Tables) with the line where it begins; 0 where
    /// unknown.
    pub code: u32,
    /// Line that was being executed; 0 where unknown.
    pub line: u32,
    /// Resident bytes of the process; `None` where unknown.
    pub rss_bytes: Option<u64>,
}

/// What happened to a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScopeAction {
    /// It was entered.
    Enter = 0,
    /// It was left.
    Exit = 1,
    /// No scope: the program came to a point worth remembering.
    Mark = 2,
    /// A range began: a scope that nests in none and may end on another thread.
    Begin = 3,
    /// A range ended.
    End = 4,
}

impl ScopeAction {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Enter, Self::Exit, Self::Mark, Self::Begin, Self::End];

    /// The word for it in traces, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
            Self::Mark => "mark",
            Self::Begin => "begin",
            Self::End => "end",
        }
    }

    /// The one with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// A scope entered or left, a range that began or ended, or a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeRow {
    /// When.
    pub time_ns: i64,
    /// Process in which it happened.
    pub process: ProcessId,
    /// Operating system's number of the thread.
    pub thread: u64,
    /// What happened.
    pub action: ScopeAction,
    /// The scope; 0 for marks.
    pub scope: u64,
    /// The scope around one that is entered.
    pub parent: u64,
    /// Name of one that is entered, or what a mark says.
    pub name: StringId,
}

/// A row of any table that is read row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A scope was entered or left, or a mark was set.
    Scope(ScopeRow),
    /// A metric of a subject was sampled.
    Sample(SampleRow),
    /// A command wrote output.
    Output(OutputRow),
    /// A thread's stack was sampled.
    Stack(StackSampleRow),
    /// The recording tool logged a message.
    Log(LogRow),
    /// A function was called or ended. Only logs of tracers have such rows among others; a trace's are read apart.
    Call(CallRow),
}

impl Row {
    /// Nanoseconds since the Unix epoch.
    pub fn time_ns(&self) -> i64 {
        match self {
            Self::Scope(row) => row.time_ns,
            Self::Sample(row) => row.time_ns,
            Self::Output(row) => row.time_ns,
            Self::Stack(row) => row.time_ns,
            Self::Log(row) => row.time_ns,
            Self::Call(row) => row.time_ns,
        }
    }
}
