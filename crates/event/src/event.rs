//! What happened: one allocation, free or failed allocation, and the ids it carries.
//!
//! Ids are indexes into [`Tables`](crate::tables::Tables); id 0 means "none" for strings, stacks and
//! scopes. Threads and streams are kept as the numbers their system gave them, because those are
//! what people see elsewhere.

/// A process of a trace, in the order in which the trace met them, from 1. 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// An interned string in [`Tables`](crate::tables::Tables); 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(pub u32);

/// An interned call stack in [`Tables`](crate::tables::Tables); 0 is "no stack recorded".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// The device of an event that happened on none.
pub const NO_DEVICE: i32 = -1;

/// The size of a free whose caller does not say how much it frees.
pub const UNKNOWN_BYTES: u64 = u64::MAX;

/// What an event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// A block came to life. Recorded after the memory was handed out.
    #[default]
    Alloc = 0,
    /// A block ended. Recorded before the memory is given back, so that a re-used address never
    /// looks allocated twice.
    Free = 1,
    /// An allocation failed; its size is what was asked for. Never changes live bytes.
    Failure = 2,
}

impl Action {
    /// All actions, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Alloc, Self::Free, Self::Failure];

    /// The word for it in traces, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::Failure => "failure",
        }
    }

    /// The action with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The action with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// What sort of memory a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Not known.
    #[default]
    Unknown = 0,
    /// Memory of an accelerator.
    Device = 1,
    /// Memory that migrates between host and accelerator.
    Managed = 2,
    /// Page-locked host memory.
    Pinned = 3,
    /// Ordinary host memory.
    Pageable = 4,
    /// A variable that lives as long as its module.
    Static = 5,
    /// Accelerator memory of an array type the hardware lays out itself.
    Array = 6,
    /// Memory that an allocator holds in order to divide it: what it hands out of it is blocks of
    /// their own, so the two are never added up.
    Reserved = 7,
    /// Address space that the program mapped itself (`mmap`): files, thread stacks, arenas of allocators. Other
    /// blocks may lie in it and pages of it may never be touched, so it is never added to other kinds.
    Mapped = 8,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Device,
        Self::Managed,
        Self::Pinned,
        Self::Pageable,
        Self::Static,
        Self::Array,
        Self::Reserved,
        Self::Mapped,
    ];

    /// The word for it in traces, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
            Self::Static => "static",
            Self::Array => "array",
            Self::Reserved => "reserved",
            Self::Mapped => "mapped",
        }
    }

    /// The kind with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The kind with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One event with all it carries.
///
/// Bulk code works on [`EventBatch`](crate::batch::EventBatch) columns; this is the row form for
/// building batches and for looking at single events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: i64,
    /// Process in which it happened.
    pub process: ProcessId,
    /// Operating system's number of the thread.
    pub thread: u64,
    /// What happened.
    pub action: Action,
    /// Address of the block; 0 for failures and zero-size blocks.
    pub address: u64,
    /// Bytes asked for; for a free what its caller said, or [`UNKNOWN_BYTES`].
    pub bytes: u64,
    /// Number of the device, or [`NO_DEVICE`].
    pub device: i32,
    /// Stream on which it was ordered; 0 for the default stream or none.
    pub stream: u64,
    /// Sort of memory.
    pub kind: Kind,
    /// Name of the resource that served it.
    pub resource: StringId,
    /// Innermost scope open on the thread: process in the upper half, its number there in the lower; 0 for none.
    pub scope: u64,
    /// Call stack.
    pub stack: StackId,
    /// Name of the variable or block, where the source gives one.
    pub name: StringId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_same_value() {
        for action in Action::ALL {
            assert_eq!(Action::from_number(action as u8), Some(action));
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Action::from_number(3), None);
        assert_eq!(Kind::from_number(Kind::ALL.len() as u8), None);
    }
}
