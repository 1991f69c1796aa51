//! Structs and constants of the C interface, as `floodmark.h` declares them.
//!
//! Invariant: a published field never moves. [`Options`] can grow, because callers state its size; the other
//! structs are fixed for one version of the ABI.

use std::ffi::c_char;

use floodmark_event::event::{Kind, StringId, UNKNOWN_BYTES};
use floodmark_event::sample::CallAction;
use floodmark_event::tables::Frame as EventFrame;
use floodmark_tail::{AllocDomain, Call as TailCall, Stamp as TailStamp, When};

/// Version of this interface; it changes when a program has to be compiled again.
pub const ABI_VERSION: u32 = 1;

/// The recorder that stands for the global recording of the process.
pub const GLOBAL: u64 = 0;
/// A recorder that does not exist; whatever is recorded with it is ignored.
pub const NO_RECORDER: u64 = u64::MAX;

/// Success.
pub const OK: i32 = 0;
/// An argument is null, empty or out of range.
pub const ERROR_ARGUMENT: i32 = -1;
/// The global recording has been started already.
pub const ERROR_ALREADY_RECORDING: i32 = -2;
/// The process has as many recorders as it can have.
pub const ERROR_TOO_MANY_RECORDERS: i32 = -3;
/// The system refused to create or open a file.
pub const ERROR_IO: i32 = -4;
/// The recorder has been stopped, or never existed.
pub const ERROR_STOPPED: i32 = -5;
/// The library has a defect.
pub const ERROR_INTERNAL: i32 = -6;

/// Options of a recording; fields that are 0 or null have their defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// Size of the struct in the caller's header.
    pub size: usize,
    /// Shared memory that the process may use beyond 64 KiB per thread.
    pub shared_memory_bytes: u64,
    /// Directory of the shared memory file.
    pub ring_directory: *const c_char,
}

/// The allocation domain of a block: what its alloc and its free share.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Domain {
    /// Number of the device, or -1.
    pub device: i32,
    /// Number of a [`Kind`].
    pub kind: u32,
    /// Stream; 0 for the default stream or none.
    pub stream: u64,
    /// String id of the resource's name; 0 for none.
    pub resource: u32,
    /// Padding, ignored.
    pub reserved: u32,
}

impl From<Domain> for AllocDomain {
    #[inline]
    fn from(domain: Domain) -> Self {
        let kind = u8::try_from(domain.kind).ok().and_then(Kind::from_number).unwrap_or_default();
        let resource = StringId(domain.resource);
        Self { device: domain.device, kind, stream: domain.stream, resource, ..Self::default() }
    }
}

/// Time and thread of a record that is made later than what it describes, or by another thread.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    /// Nanoseconds of the monotonic clock; 0 for now.
    pub time_ns: u64,
    /// Thread id; 0 for the calling thread.
    pub thread: u64,
}

impl From<Stamp> for TailStamp {
    fn from(stamp: Stamp) -> Self {
        Self { when: when(stamp.time_ns), thread: Some(stamp.thread).filter(|thread| *thread != 0) }
    }
}

/// Returns the time that a number of nanoseconds stands for; 0 stands for now.
pub(crate) fn when(time_ns: u64) -> When {
    match time_ns {
        0 => When::Now,
        time_ns => When::At(time_ns),
    }
}

/// One frame of a call stack; its names are string ids.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    /// Name of the function.
    pub function: u32,
    /// Source file.
    pub file: u32,
    /// Library or executable.
    pub module: u32,
    /// Line in the source file; 0 if unknown.
    pub line: u32,
    /// Instruction address; 0 if unknown.
    pub address: u64,
}

impl From<Frame> for EventFrame {
    fn from(frame: Frame) -> Self {
        Self {
            function: StringId(frame.function),
            file: StringId(frame.file),
            line: frame.line,
            module: StringId(frame.module),
            address: frame.address,
        }
    }
}

/// A call of a function, or the end of one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Call {
    /// Number of a [`CallAction`].
    pub action: u32,
    /// Frame id of the function; 0 if unknown.
    pub code: u32,
    /// Line that is being executed; 0 if unknown.
    pub line: u32,
    /// Padding, ignored.
    pub reserved: u32,
    /// Resident bytes of the process, a multiple of 4,096, or [`UNKNOWN_BYTES`] if unknown or unchanged.
    pub rss_bytes: u64,
}

impl Call {
    /// Returns the call for the tail; `None` if there is no such action.
    pub(crate) fn to_tail(self) -> Option<TailCall> {
        let action = u8::try_from(self.action).ok().and_then(CallAction::from_number)?;
        let rss_bytes = Some(self.rss_bytes).filter(|bytes| *bytes != UNKNOWN_BYTES);
        Some(TailCall { action, code: self.code, line: self.line, rss_bytes })
    }
}
