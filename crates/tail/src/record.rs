//! How records are encoded in a chunk, and what they decode to.
//!
//! Invariants: a chunk decodes on its own, because every chunk starts from the same state (its base
//! time, address 0, no domains, no resident bytes); a record is never split over two chunks; a decoder
//! never reads past the committed bytes and never panics on any bytes.
//!
//! An event is a 3-byte head, then as many little-endian bytes as each value needs:
//!
//! ```text
//! bits 0-1  action (3: not an event, see below)
//! bit  2    the address difference is a multiple of 256 and stored divided by it
//! bits 3-5  length code of the time since the previous record, ns; where time goes back, a record of
//!           type `Time` goes before the event
//! bits 6-8  length code of the zigzag difference to the previous event's address
//! bits 9-11 length code of the bytes
//! bits 12-13 length of the stack id: 0, 1, 2 or 4 bytes
//! bit  14   bytes are not known
//! bit  15   the event has the name of its domain
//! byte 2    slot of the domain (device, stream, kind, resource), defined earlier in the chunk
//! length codes 0..7 stand for 0, 1, 2, 3, 4, 5, 6 and 8 bytes
//! ```
//!
//! Any other record is one byte `type << 2 | 3`, two bytes of length (one byte for types from 32 on),
//! and its payload of varints and text. Unknown types are skipped and counted, so a later version can
//! add some.

mod calls;
mod control;
mod decode;
mod observed;

pub(crate) use self::calls::{CallRecord, MAX_CALL_BYTES, plain_call};
pub use self::control::{Control, ProcessHeader};
pub use self::decode::{Damage, Decoder, EventRun};
use crate::values::zigzag;
use floodmark_event::event::{Action, Event, Kind, NO_DEVICE, StackId, StringId, UNKNOWN_BYTES};
use floodmark_event::sample::{
    CallAction, Metric, OutputStream, StackSeen, SubjectEnd, SubjectId, SubjectKind,
};

/// Most bytes an event can take, with the slack its unconditional 8-byte stores need.
pub const MAX_EVENT_BYTES: usize = 48;
/// Most bytes a domain definition can take.
pub const MAX_DOMAIN_BYTES: usize = 32;
/// Most bytes that records which change the thread, the scope and twice the time can take before an event.
pub(crate) const MAX_CONTEXT_BYTES: usize = 48;
/// Slots for domains in a chunk.
pub const DOMAIN_SLOTS: usize = 64;
/// Longest payload of a record that is not an event.
pub const MAX_PAYLOAD_BYTES: usize = 4096;

const LENGTHS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
const STACK_LENGTHS: [u8; 4] = [0, 1, 2, 4];
const NOT_AN_EVENT: u8 = 3;

/// The allocation domain of a block: device, kind, stream and resource, which its alloc and its free share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocDomain {
    /// Device, or [`NO_DEVICE`].
    pub device: i32,
    /// Sort of memory.
    pub kind: Kind,
    /// Stream; 0 for the default stream or none.
    pub stream: u64,
    /// Resource that serves it, from [`intern`](crate::intern).
    pub resource: StringId,
    /// Name of those events that say that they have it; see [`BlockEvent`].
    pub name: StringId,
}

impl Default for AllocDomain {
    fn default() -> Self {
        Self { device: NO_DEVICE, kind: Kind::Unknown, stream: 0, resource: StringId(0), name: StringId(0) }
    }
}

/// Types of records that are not events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordType {
    Domain = 1,
    Thread = 2,
    Scope = 3,
    EnterScope = 4,
    ExitScope = 5,
    Mark = 6,
    String = 7,
    Frame = 8,
    Stack = 9,
    Subject = 10,
    SubjectEnded = 11,
    Output = 12,
    StackSample = 13,
    BeginRange = 14,
    EndRange = 15,
    Device = 16,
    Process = 17,
    ProcessEnded = 18,
    Losses = 19,
    Clock = 20,
    Samples = SHORT_TYPES,
    SamplesAtOnce = 33,
    Time = 34,
    Call = 35,
}

/// Types from this one on have one byte of length.
const SHORT_TYPES: u8 = 32;

/// What both ends remember between two records of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Previous {
    pub(crate) time_ns: u64,
    pub(crate) address: u64,
}

/// What happens to a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockEvent {
    /// What happens.
    pub action: Action,
    /// Where the block is.
    pub address: u64,
    /// Its size, or [`UNKNOWN_BYTES`].
    pub bytes: u64,
    /// Whether the event has the name of its domain.
    pub is_named: bool,
}

/// What an event says beyond its domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) what: BlockEvent,
    pub(crate) time_ns: u64,
    pub(crate) stack: StackId,
}

#[inline]
fn length_code(value: u64) -> usize {
    let bytes = (71 - (value | 1).leading_zeros() as usize) / 8;
    // One byte for zero would be wasted: most differences of steady programs are zero.
    if value == 0 { 0 } else { bytes.min(7) }
}

#[inline]
fn put(out: &mut [u8; MAX_EVENT_BYTES], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Encodes an event, which must not be earlier than the previous record, and returns its length.
#[inline(always)]
#[expect(clippy::inline_always, reason = "called twice on the recording path, once per kind of writer")]
pub(crate) fn encode_event(
    out: &mut [u8; MAX_EVENT_BYTES],
    previous: &mut Previous,
    slot: u8,
    body: &Body,
) -> usize {
    let time = body.time_ns.wrapping_sub(previous.time_ns);
    let what = &body.what;
    let difference = what.address.wrapping_sub(previous.address) as i64;
    previous.time_ns = body.time_ns;
    previous.address = what.address;
    let coarse = difference.trailing_zeros() >= 8;
    let difference = if coarse { difference >> 8 } else { difference };
    let address = ((difference << 1) ^ (difference >> 63)) as u64;
    let unknown = what.bytes == UNKNOWN_BYTES;
    let bytes = if unknown { 0 } else { what.bytes };
    let stack = u64::from(body.stack.0);
    let stack_code = match stack {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 3,
    };
    let codes = [length_code(time), length_code(address), length_code(bytes)];
    let head = what.action as u64
        | u64::from(coarse) << 2
        | (codes[0] as u64) << 3
        | (codes[1] as u64) << 6
        | (codes[2] as u64) << 9
        | stack_code << 12
        | u64::from(unknown) << 14
        | u64::from(what.is_named) << 15
        | u64::from(slot) << 16;
    // Each store writes 8 bytes and the next one starts where the value ends: no branch on lengths.
    put(out, 0, head);
    let mut at = 3;
    for (value, code) in [time, address, bytes].into_iter().zip(codes) {
        // At most 27, which the compiler cannot see.
        put(out, at & 31, value);
        at += usize::from(LENGTHS[code & 7]);
    }
    put(out, at & 31, stack);
    at + usize::from(STACK_LENGTHS[stack_code as usize & 3])
}

/// Builds a record that is not an event, on the stack, which may be a signal handler's: no more of it
/// than the record needs.
pub(crate) struct Payload<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// Writes a number to `bytes[at..]`, seven bits a byte, and returns where it ends.
#[inline]
fn put_number(bytes: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 && at < bytes.len() - 1 {
        bytes[at] = value as u8 | 0x80;
        at += 1;
        value >>= 7;
    }
    bytes[at] = value as u8;
    at + 1
}

/// Writes a record of numbers where it stays, in a chunk: building it on the stack and copying it took longer than
/// reading the clock.
pub(crate) struct NumbersInPlace<'a> {
    bytes: &'a mut [u8; MAX_NUMBERS_BYTES],
    len: usize,
}

impl<'a> NumbersInPlace<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a mut [u8; MAX_NUMBERS_BYTES], kind: RecordType) -> Self {
        bytes[0] = (kind as u8) << 2 | NOT_AN_EVENT;
        Self { bytes, len: 3 }
    }

    #[inline]
    pub(crate) fn number(mut self, value: u64) -> Self {
        self.len = put_number(self.bytes, self.len, value);
        self
    }

    /// Completes the record and returns its length.
    #[inline]
    pub(crate) fn finish(self) -> usize {
        let payload = (self.len - 3) as u16;
        self.bytes[1..3].copy_from_slice(&payload.to_le_bytes());
        self.len
    }
}

/// Bytes of the longest record of numbers alone, seven at most.
pub(crate) const MAX_NUMBERS_BYTES: usize = 80;
/// A record of numbers alone.
pub(crate) type NumbersPayload = Payload<MAX_NUMBERS_BYTES>;
/// A record that ends with text.
pub(crate) type TextPayload = Payload<{ MAX_PAYLOAD_BYTES + 16 }>;

impl<const N: usize> Payload<N> {
    pub(crate) fn new(kind: RecordType) -> Self {
        let mut payload = Self { bytes: [0; N], len: 3 };
        payload.bytes[0] = (kind as u8) << 2 | NOT_AN_EVENT;
        payload
    }

    pub(crate) fn number(mut self, value: u64) -> Self {
        self.len = put_number(&mut self.bytes, self.len, value);
        self
    }

    /// Appends text as the rest of the payload, cut to what fits.
    pub(crate) fn text(mut self, text: &str) -> Self {
        let room = (N - 13).saturating_sub(self.len);
        let len = text.floor_char_boundary(room);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        self
    }

    pub(crate) fn finish(&mut self) -> &[u8] {
        self.finish_before(0)
    }

    /// Completes a record whose payload goes on with `more` bytes that stand elsewhere.
    pub(crate) fn finish_before(&mut self, more: usize) -> &[u8] {
        let payload = (self.len - 3 + more) as u16;
        self.bytes[1..3].copy_from_slice(&payload.to_le_bytes());
        &self.bytes[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Builds the record that defines `domain` as `slot`.
pub(crate) fn domain_payload(slot: u8, domain: &AllocDomain) -> NumbersPayload {
    let payload = NumbersPayload::new(RecordType::Domain)
        .number(u64::from(slot))
        .number(u64::from(domain.device as u32))
        .number(domain.kind as u64)
        .number(domain.stream)
        .number(u64::from(domain.resource.0));
    if domain.name == StringId(0) { payload } else { payload.number(u64::from(domain.name.0)) }
}

/// Builds the record that moves the time of the records that follow by `difference_ns`.
pub(crate) fn time_record(difference_ns: i64) -> ([u8; 12], usize) {
    let mut record = [0; 12];
    record[0] = (RecordType::Time as u8) << 2 | NOT_AN_EVENT;
    let mut len = 2;
    let mut value = zigzag(difference_ns);
    while value >= 0x80 {
        record[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    record[len] = value as u8;
    record[1] = len as u8 - 1;
    (record, len + 1)
}

/// A call of a function, or the end of one, as a tracer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What happened.
    pub action: CallAction,
    /// The function, from [`intern_frame`](crate::Writer::intern_frame); 0 where unknown.
    pub code: u32,
    /// Line that is being executed; 0 where unknown.
    pub line: u32,
    /// Resident bytes of the process, in multiples of 4,096; `None` if they have not changed since the
    /// thread's previous call, or are not known. Only changes are stored.
    pub rss_bytes: Option<u64>,
}

/// A call as a tracer records it that sees millions of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// What happened.
    pub action: CallAction,
    /// The function, from [`intern_frame`](crate::Writer::intern_frame); 0 where unknown.
    pub code: u32,
    /// Line that is being executed; 0 where unknown.
    pub line: u32,
    /// Resident bytes of the process, in units of 4,096.
    pub rss_pages: u32,
    /// When it happened, as a reading of [`ticks`](crate::ticks()).
    pub ticks: u64,
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An allocation, free or failure. Its time is monotonic, its ids are those of the process.
    Event(Event),
    /// A scope was entered.
    EnterScope {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Number of the scope, unique in the process.
        scope: u32,
        /// The scope around it; 0 for none.
        parent: u32,
        /// Its name.
        name: StringId,
        /// Thread that entered it.
        thread: u64,
    },
    /// The innermost scope was left.
    ExitScope {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Number of the scope.
        scope: u32,
        /// Thread that left it.
        thread: u64,
    },
    /// Something the program wanted to be remembered.
    Mark {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Its name.
        name: StringId,
        /// Thread that recorded it.
        thread: u64,
    },
    /// A range began: a scope that may end on any thread and nests in none.
    BeginRange {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Number of the range, unique in the process, among those of scopes.
        scope: u32,
        /// Its name.
        name: StringId,
        /// Thread that began it.
        thread: u64,
    },
    /// A range ended.
    EndRange {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Number of the range.
        scope: u32,
        /// Thread that ended it.
        thread: u64,
    },
    /// A function was called or ended.
    Call {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Thread that called.
        thread: u64,
        /// The call, with the code's id in the process and the resident bytes known at this point.
        call: Call,
    },
    /// A string got its id.
    String {
        /// Its id in the process.
        id: StringId,
        /// The text.
        text: &'a [u8],
    },
    /// A frame got its id.
    Frame {
        /// Its id in the process.
        id: u32,
        /// The frame, with ids of the process.
        frame: floodmark_event::tables::Frame,
    },
    /// A stack got its id.
    Stack {
        /// Its id in the process.
        id: StackId,
        /// The caller's stack.
        parent: StackId,
        /// Innermost frame.
        frame: u32,
    },
    /// A device got its identity.
    Device {
        /// Number of the device in this process.
        device: i32,
        /// Its UUID.
        uuid: StringId,
    },
    /// Something about the process itself.
    Control(Control),
    /// Something to observe got its id.
    Subject {
        /// Its id in the process.
        id: SubjectId,
        /// What is known of it, with ids of the process.
        entry: SubjectEntry,
    },
    /// Something that was observed ended.
    SubjectEnded {
        /// Its id in the process.
        id: SubjectId,
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// How it ended.
        end: SubjectEnd,
    },
    /// Something was read at an instant.
    Sample {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// What it is about, with the id of the process.
        subject: SubjectId,
        /// What was read.
        metric: Metric,
        /// What it was.
        value: u64,
    },
    /// Output was read; a long one is several records.
    Output {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Where it was written.
        stream: OutputStream,
        /// What was written.
        bytes: &'a [u8],
    },
    /// A stack of a thread of another process was taken.
    StackSample {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Whose, with the id of the process.
        subject: SubjectId,
        /// The stack, with its id in the process.
        seen: StackSeen,
    },
}

/// What the definition of a subject says, with ids of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubjectEntry {
    /// What sort of thing.
    pub kind: SubjectKind,
    /// Operating system's number of the process; the device's number; 0 for others.
    pub number: u64,
    /// When it began, in nanoseconds since 1970-01-01 UTC; 0 where unknown.
    pub start_ns: i64,
    /// The subject it came from; 0 for none.
    pub parent: SubjectId,
    /// Its name.
    pub name: StringId,
    /// Command line, a device's UUID, a group's path.
    pub detail: StringId,
}
