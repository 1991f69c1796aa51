//! Decoding the records of a chunk.

use super::control;
use super::observed::Observed;
use super::{
    AllocDomain, DOMAIN_SLOTS, LENGTHS, NOT_AN_EVENT, Previous, Record, RecordType, SHORT_TYPES,
    STACK_LENGTHS,
};
use crate::values::{Slots, unzigzag};
use floodmark_event::event::{Action, Event, Kind, StackId, StringId, UNKNOWN_BYTES};
use floodmark_event::sample::SubjectId;

/// Decodes the committed bytes of one chunk. The bytes are given to each call, so that a decoder can
/// be kept beside them.
#[derive(Clone, Debug)]
pub struct Decoder {
    pub(super) at: usize,
    pub(super) previous: Previous,
    domains: [Option<AllocDomain>; DOMAIN_SLOTS],
    pub(super) thread: u64,
    scope: u32,
    /// Resident pages of 4,096 bytes that calls of this chunk gave last.
    pub(super) rss_pages: Option<u64>,
    /// Subject of the samples that are being read, and where they end; behind us if there are none.
    pub(super) subject: SubjectId,
    pub(super) samples_end: usize,
    /// Latest values of this chunk, once there are samples in it.
    pub(super) seen: Option<Box<Slots>>,
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
            domains: [None; DOMAIN_SLOTS],
            thread: 0,
            scope: 0,
            rss_pages: None,
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
            if first >> 2 == RecordType::Call as u8 {
                return self.call(bytes).map(Some);
            }
            if let Some(record) = self.other(bytes, first >> 2)? {
                return Ok(Some(record));
            }
        }
    }

    pub(super) fn damage(&self, what: &'static str) -> Damage {
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
        let domain = self.domains.get((head >> 16 & 0xff) as usize).copied().flatten();
        let Some(domain) = domain else {
            return Err(self.damage("an event has a domain that was never defined"));
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
            device: domain.device,
            stream: domain.stream,
            kind: domain.kind,
            resource: domain.resource,
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
                let domain = AllocDomain {
                    device: device as u32 as i32,
                    kind: Kind::from_number(kind as u8).unwrap_or_default(),
                    stream,
                    resource: StringId(resource as u32),
                };
                let Some(slot) = self.domains.get_mut(slot as usize) else {
                    return Err(self.damage("a domain has a slot that does not exist"));
                };
                *slot = Some(domain);
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
            14 => {
                let (time, scope) = (number()?, number()? as u32);
                let (name, time_ns) = (StringId(number()? as u32), self.shift(time));
                Some(Record::BeginRange { time_ns, scope, name, thread: self.thread })
            }
            15 => {
                let (time, scope) = (number()?, number()? as u32);
                let time_ns = self.shift(time);
                Some(Record::EndRange { time_ns, scope, thread: self.thread })
            }
            16 => {
                let (device, uuid) = (number()? as u32 as i32, StringId(number()? as u32));
                Some(Record::Device { device, uuid })
            }
            17..=20 => match control::decode(kind, payload) {
                Some(control) => Some(Record::Control(control)),
                None => return Err(short),
            },
            34 => {
                let time = number()?;
                self.shift(time);
                None
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

    /// Moves the clock by a difference that may be negative.
    pub(super) fn shift(&mut self, difference: u64) -> u64 {
        self.advance(unzigzag(difference) as u64)
    }

    pub(super) fn advance(&mut self, time: u64) -> u64 {
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

pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads as many bytes as given, if there are so many.
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
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
