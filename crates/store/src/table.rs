//! The tables of a trace, each a folder of parts.

/// A table of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Table {
    /// Allocations, frees, failures.
    Event,
    /// Scopes entered and left, marks.
    Scope,
    /// Values that were read.
    Sample,
    /// Output that was read.
    Output,
    /// Stacks that were seen from outside.
    StackSample,
    /// Messages of the tool that recorded.
    Log,
    /// Processes that recorded.
    Process,
    /// What was observed.
    Subject,
    /// Text that ids point to.
    String,
    /// Entries of stacks.
    Frame,
    /// Call paths.
    Stack,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 11] = [
        Self::Event,
        Self::Scope,
        Self::Sample,
        Self::Output,
        Self::StackSample,
        Self::Log,
        Self::Process,
        Self::Subject,
        Self::String,
        Self::Frame,
        Self::Stack,
    ];

    /// Name of the table and of its folder.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Scope => "scope",
            Self::Sample => "sample",
            Self::Output => "output",
            Self::StackSample => "stack_sample",
            Self::Log => "log",
            Self::Process => "process",
            Self::Subject => "subject",
            Self::String => "string",
            Self::Frame => "frame",
            Self::Stack => "stack",
        }
    }
}
