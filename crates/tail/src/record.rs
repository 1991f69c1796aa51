//! How records are encoded in a chunk, and decoded.
//!
//! Invariants: a chunk decodes on its own, because every chunk starts from the same state (its base
//! time, address 0, no places); a record is never split over two chunks; a decoder never reads past
//! the committed bytes and never panics on any bytes.
//!
//! An event is a 3-byte head, then as many little-endian bytes as each value needs:
//!
//! ```text
//! bits 0-1  action (3: not an event, see below)
//! bit  2    the address difference is a multiple of 256 and stored divided by it
//! bits 3-5  length code of the time since the previous record, ns
//! bits 6-8  length code of the zigzag difference to the previous event's address
//! bits 9-11 length code of the bytes
//! bits 12-13 length of the stack id: 0, 1, 2 or 4 bytes
//! bit  14   bytes are not known
//! bit  15   0
//! byte 2    slot of the place (device, stream, kind, resource), defined earlier in the chunk
//! length codes 0..7 stand for 0, 1, 2, 3, 4, 5, 6 and 8 bytes
//! ```
//!
//! Any other record is one byte `type << 2 | 3`, two bytes of length (one byte for types from 32 on),
//! and its payload of varints and text. Unknown types are skipped and counted, so a later version can
//! add some.

mod observed;

use self::observed::Observed;
use super::values::Slots;
use floodmark_event::event::{Action, Event, Kind, NO_DEVICE, StackId, StringId, UNKNOWN_BYTES};
use floodmark_event::sample::{Metric, OutputStream, StackSeen, SubjectEnd, SubjectId, SubjectKind};

/// Most bytes an event can take, with the slack its unconditional 8-byte stores need.
pub const MAX_EVENT_BYTES: usize = 48;
/// Most bytes a place definition can take.
pub const MAX_PLACE_BYTES: usize = 32;
/// Slots for places in a chunk.
pub const PLACE_SLOTS: usize = 64;
/// Longest payload of a record that is not an event.
pub const MAX_PAYLOAD_BYTES: usize = 4096;

const LENGTHS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
const STACK_LENGTHS: [u8; 4] = [0, 1, 2, 4];
const NOT_AN_EVENT: u8 = 3;

/// Where memory comes from: what alloc and free of a block share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Device, or [`NO_DEVICE`].
    pub device: i32,
    /// Sort of memory.
    pub kind: Kind,
    /// Stream; 0 for the default stream or none.
    pub stream: u64,
    /// Resource that serves it, from [`intern`](crate::intern).
    pub resource: StringId,
}

impl Default for Place {
    fn default() -> Self {
        Self { device: NO_DEVICE, kind: Kind::Unknown, stream: 0, resource: StringId(0) }
    }
}

/// Types of records that are not events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordType {
    Place = 1,
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
    Samples = SHORT_TYPES,
    SamplesAtOnce = 33,
}

/// Types from this one on have one byte of length.
const SHORT_TYPES: u8 = 32;

/// What both ends remember between two records of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Previous {
    pub(crate) time_ns: u64,
    pub(crate) address: u64,
}

/// What an event says beyond its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) action: Action,
    pub(crate) time_ns: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
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

/// Encodes an event and returns its length.
#[inline]
pub(crate) fn encode_event(
    out: &mut [u8; MAX_EVENT_BYTES],
    previous: &mut Previous,
    slot: u8,
    body: &Body,
) -> usize {
    let time = body.time_ns.saturating_sub(previous.time_ns);
    let difference = body.address.wrapping_sub(previous.address) as i64;
    previous.time_ns += time;
    previous.address = body.address;
    let coarse = difference.trailing_zeros() >= 8;
    let difference = if coarse { difference >> 8 } else { difference };
    let address = ((difference << 1) ^ (difference >> 63)) as u64;
    let unknown = body.bytes == UNKNOWN_BYTES;
    let bytes = if unknown { 0 } else { body.bytes };
    let stack = u64::from(body.stack.0);
    let stack_code = match stack {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 3,
    };
    let codes = [length_code(time), length_code(address), length_code(bytes)];
    let head = body.action as u64
        | u64::from(coarse) << 2
        | (codes[0] as u64) << 3
        | (codes[1] as u64) << 6
        | (codes[2] as u64) << 9
        | stack_code << 12
        | u64::from(unknown) << 14
        | u64::from(slot) << 16;
    // Each store writes 8 bytes and the next one starts where the value ends: no branch on lengths.
    put(out, 0, head);
    let mut at = 3;
    for (value, code) in [time, address, bytes].into_iter().zip(codes) {
        put(out, at, value);
        at += usize::from(LENGTHS[code & 7]);
    }
    put(out, at, stack);
    at + usize::from(STACK_LENGTHS[stack_code as usize & 3])
}

/// Builds a record that is not an event, on the stack, which may be a signal handler's: no more of it
/// than the record needs.
pub(crate) struct Payload<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// A record of numbers alone, seven at most.
pub(crate) type NumbersPayload = Payload<80>;
/// A record that ends with text.
pub(crate) type TextPayload = Payload<{ MAX_PAYLOAD_BYTES + 16 }>;

impl<const N: usize> Payload<N> {
    pub(crate) fn new(kind: RecordType) -> Self {
        let mut payload = Self { bytes: [0; N], len: 3 };
        payload.bytes[0] = (kind as u8) << 2 | NOT_AN_EVENT;
        payload
    }

    pub(crate) fn number(mut self, mut value: u64) -> Self {
        while value >= 0x80 && self.len < N - 1 {
            self.bytes[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.bytes[self.len] = value as u8;
        self.len += 1;
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

/// Builds the record that defines `place` as `slot`.
pub(crate) fn place_payload(slot: u8, place: &Place) -> NumbersPayload {
    NumbersPayload::new(RecordType::Place)
        .number(u64::from(slot))
        .number(u64::from(place.device as u32))
        .number(place.kind as u64)
        .number(place.stream)
        .number(u64::from(place.resource.0))
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
        /// What it said.
        name: StringId,
        /// Thread that said it.
        thread: u64,
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
    /// A stack of somebody else was taken.
    StackSample {
        /// Monotonic nanoseconds.
        time_ns: u64,
        /// Whose, with the id of the process.
        subject: SubjectId,
        /// What was seen, with the stack's id in the process.
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

/// Decodes the committed bytes of one chunk. The bytes are given to each call, so that a decoder can
/// be kept beside them.
#[derive(Clone, Debug)]
pub struct Decoder {
    at: usize,
    previous: Previous,
    places: [Option<Place>; PLACE_SLOTS],
    thread: u64,
    scope: u32,
    /// Subject of the samples that are being read, and where they end; behind us if there are none.
    subject: SubjectId,
    samples_end: usize,
    /// Latest values of this chunk, once there are samples in it.
    seen: Option<Box<Slots>>,
    /// Records of types this version does not know.
    pub skipped: u64,
}

/// The bytes are not what a writer writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the chunk's payload.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl Decoder {
    /// Starts with a chunk that began at `base_time_ns`.
    pub fn new(base_time_ns: u64) -> Self {
        Self {
            at: 0,
            previous: Previous { time_ns: base_time_ns, address: 0 },
            places: [None; PLACE_SLOTS],
            thread: 0,
            scope: 0,
            subject: SubjectId(0),
            samples_end: 0,
            seen: None,
            skipped: 0,
        }
    }

    /// Returns the next record of `bytes`, the chunk's payload, or `None` at the end.
    ///
    /// # Errors
    /// [`Damage`] if the bytes do not decode; nothing can be read after that.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Record<'a>>, Damage> {
        loop {
            if self.at < self.samples_end {
                match self.sample(bytes)? {
                    Some(sample) => return Ok(Some(sample)),
                    None => continue,
                }
            }
            let Some(first) = bytes.get(self.at) else { return Ok(None) };
            if first & 3 != NOT_AN_EVENT {
                return self.event(bytes).map(|event| Some(Record::Event(event)));
            }
            if let Some(record) = self.other(bytes, first >> 2)? {
                return Ok(Some(record));
            }
        }
    }

    fn damage(&self, what: &'static str) -> Damage {
        Damage { offset: self.at, what }
    }

    #[inline]
    fn event(&mut self, bytes: &[u8]) -> Result<Event, Damage> {
        let cut = self.damage("an event is cut off");
        let head = bytes_at(bytes, self.at, 3).ok_or(cut.clone())?;
        let mut at = self.at + 3;
        let mut field = |len: u8| {
            let value = bytes_at(bytes, at, usize::from(len));
            at += usize::from(len);
            value.ok_or(cut.clone())
        };
        let time = field(LENGTHS[(head >> 3 & 7) as usize])?;
        let address = field(LENGTHS[(head >> 6 & 7) as usize])?;
        let size = field(LENGTHS[(head >> 9 & 7) as usize])?;
        let stack = field(STACK_LENGTHS[(head >> 12 & 3) as usize])?;
        let place = self.places.get((head >> 16 & 0xff) as usize).copied().flatten();
        let Some(place) = place else {
            return Err(self.damage("an event has a place that was never defined"));
        };
        let mut difference = (address >> 1) as i64 ^ -((address & 1) as i64);
        if head & 4 != 0 {
            difference = difference.wrapping_shl(8);
        }
        self.previous.time_ns = self.previous.time_ns.wrapping_add(time);
        self.previous.address = self.previous.address.wrapping_add(difference as u64);
        self.at = at;
        let action = match head & 3 {
            0 => Action::Alloc,
            1 => Action::Free,
            _ => Action::Failure,
        };
        Ok(Event {
            time_ns: self.previous.time_ns as i64,
            process: floodmark_event::event::ProcessId(0),
            thread: self.thread,
            action,
            address: self.previous.address,
            bytes: if head & 1 << 14 != 0 { UNKNOWN_BYTES } else { size },
            device: place.device,
            stream: place.stream,
            kind: place.kind,
            resource: place.resource,
            scope: u64::from(self.scope),
            stack: StackId(stack as u32),
            name: StringId(0),
        })
    }

    /// Decodes a record that is not an event; `None` if it only changes the decoder's state.
    fn other<'a>(&mut self, bytes: &'a [u8], kind: u8) -> Result<Option<Record<'a>>, Damage> {
        let len_bytes = if kind >= SHORT_TYPES { 1 } else { 2 };
        let len = bytes_at(bytes, self.at + 1, len_bytes).ok_or(self.damage("a record is cut off"))? as usize;
        let start = self.at + 1 + len_bytes;
        let payload = bytes.get(start..start + len).ok_or(self.damage("a record is cut off"))?;
        let mut fields = Fields { rest: payload };
        let short = self.damage("a record is too short for its type");
        let mut number = || fields.number().ok_or(short.clone());
        let record = match kind {
            1 => {
                let (slot, device, kind, stream, resource) =
                    (number()?, number()?, number()?, number()?, number()?);
                let place = Place {
                    device: device as u32 as i32,
                    kind: Kind::from_number(kind as u8).unwrap_or_default(),
                    stream,
                    resource: StringId(resource as u32),
                };
                let Some(slot) = self.places.get_mut(slot as usize) else {
                    return Err(self.damage("a place has a slot that does not exist"));
                };
                *slot = Some(place);
                None
            }
            2 => {
                self.thread = number()?;
                None
            }
            3 => {
                self.scope = number()? as u32;
                None
            }
            4 => {
                let (time, scope, name) = (number()?, number()? as u32, StringId(number()? as u32));
                let time_ns = self.advance(time);
                let parent = std::mem::replace(&mut self.scope, scope);
                Some(Record::EnterScope { time_ns, scope, parent, name, thread: self.thread })
            }
            5 => {
                let (time, parent) = (number()?, number()? as u32);
                let time_ns = self.advance(time);
                let scope = std::mem::replace(&mut self.scope, parent);
                Some(Record::ExitScope { time_ns, scope, thread: self.thread })
            }
            6 => {
                let (time, name) = (number()?, StringId(number()? as u32));
                let time_ns = self.advance(time);
                Some(Record::Mark { time_ns, name, thread: self.thread })
            }
            7 => {
                let id = StringId(number()? as u32);
                Some(Record::String { id, text: fields.rest })
            }
            8 => {
                let id = number()? as u32;
                let frame = floodmark_event::tables::Frame {
                    function: StringId(number()? as u32),
                    file: StringId(number()? as u32),
                    line: number()? as u32,
                    module: StringId(number()? as u32),
                    address: number()?,
                };
                Some(Record::Frame { id, frame })
            }
            9 => {
                let (id, parent) = (StackId(number()? as u32), StackId(number()? as u32));
                Some(Record::Stack { id, parent, frame: number()? as u32 })
            }
            _ => match self.observed(kind, payload) {
                Observed::Record(record) => Some(record),
                Observed::Samples { at } => {
                    self.samples_end = start + len;
                    self.at = start + at;
                    return Ok(None);
                }
                Observed::Unknown => {
                    self.skipped += 1;
                    None
                }
                Observed::Short => return Err(short),
            },
        };
        self.at = start + len;
        Ok(record)
    }

    fn advance(&mut self, time: u64) -> u64 {
        self.previous.time_ns = self.previous.time_ns.wrapping_add(time);
        self.previous.time_ns
    }
}

/// Reads up to 8 little-endian bytes at `at`.
#[inline]
fn bytes_at(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    if let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let shift = (64 - 8 * len as u32) & 63;
        let word = u64::from_le_bytes(*word);
        return Some(if len == 0 { 0 } else { word << shift >> shift });
    }
    let tail = bytes.get(at..at + len)?;
    let mut word = [0; 8];
    word[..len].copy_from_slice(tail);
    Some(u64::from_le_bytes(word))
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
