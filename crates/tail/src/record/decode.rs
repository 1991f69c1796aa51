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

/// Events of a chunk that follow one another, by columns: of one thread, in one scope.
///
/// Decoding a run takes a third of the time that as many calls of [`Decoder::next`] take.
#[derive(Clone, Debug, Default)]
pub struct EventRun {
    /// Monotonic nanoseconds.
    pub time_ns: Vec<i64>,
    /// Address of the block.
    pub address: Vec<u64>,
    /// Bytes asked for, or [`UNKNOWN_BYTES`].
    pub bytes: Vec<u64>,
    /// Stack, with its id in the process.
    pub stack: Vec<StackId>,
    /// What happened.
    pub action: Vec<Action>,
    /// Slot of the domain, for [`Decoder::domain`], and 128 if the event has the domain's name.
    pub slot: Vec<u8>,
}

impl EventRun {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.time_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.time_ns.is_empty()
    }

    /// Removes all events and keeps the memory.
    pub fn clear(&mut self) {
        let Self { time_ns, address, bytes, stack, action, slot } = self;
        time_ns.clear();
        address.clear();
        bytes.clear();
        stack.clear();
        action.clear();
        slot.clear();
    }

    fn push(&mut self, event: &Event, event_slot: u8) {
        let event_slot = if event.name == StringId(0) { event_slot } else { event_slot | NAMED };
        let Self { time_ns, address, bytes, stack, action, slot } = self;
        time_ns.push(event.time_ns);
        address.push(event.address);
        bytes.push(event.bytes);
        stack.push(event.stack);
        action.push(event.action);
        slot.push(event_slot);
    }
}

/// Marks a slot of an [`EventRun`] whose event has the name of its domain.
const NAMED: u8 = 1 << 7;

/// Bytes that decoding an event without further checks may read: the longest one, and the rest of its last word.
const EVENT_WINDOW: usize = 40;
/// Bits of a value that has as many bytes as the index.
const MASKS: [u64; 9] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, u64::MAX >> 8, u64::MAX];

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

    /// Appends the events that come next to `run`, at most `most`, up to a record that is none.
    ///
    /// # Errors
    /// [`Damage`] if the bytes after the events that were appended do not decode.
    pub fn events(&mut self, bytes: &[u8], most: usize, run: &mut EventRun) -> Result<(), Damage> {
        if self.at < self.samples_end {
            return Ok(());
        }
        for _ in 0..most {
            let Some(first) = bytes.get(self.at).filter(|first| **first & 3 != NOT_AN_EVENT) else { break };
            let slot = bytes.get(self.at + 2).copied().unwrap_or(0);
            let window = bytes.get(self.at..).and_then(|rest| rest.first_chunk::<EVENT_WINDOW>());
            let is_defined = self.domains.get(usize::from(slot)).is_some_and(Option::is_some);
            match window {
                Some(window) if is_defined => self.event_in(window, *first, slot, run),
                // Near the end of the chunk, or damaged.
                _ => {
                    let event = self.event(bytes)?;
                    run.push(&event, slot);
                }
            }
        }
        Ok(())
    }

    /// Decodes an event of which all bytes are there.
    #[inline]
    fn event_in(&mut self, window: &[u8; EVENT_WINDOW], first: u8, slot: u8, run: &mut EventRun) {
        let word = |at: usize| window[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let head = word(0);
        let mut at = 3;
        let mut field = |len: u8| {
            let value = word(at) & MASKS[usize::from(len)];
            at += usize::from(len);
            value
        };
        let time = field(LENGTHS[(head >> 3 & 7) as usize]);
        let address = field(LENGTHS[(head >> 6 & 7) as usize]);
        let size = field(LENGTHS[(head >> 9 & 7) as usize]);
        let stack = field(STACK_LENGTHS[(head >> 12 & 3) as usize]);
        let difference = unzigzag(address).wrapping_shl(u32::from(first & 4) * 2);
        self.previous.time_ns = self.previous.time_ns.wrapping_add(time);
        self.previous.address = self.previous.address.wrapping_add(difference as u64);
        self.at += at;
        run.time_ns.push(self.previous.time_ns as i64);
        run.address.push(self.previous.address);
        run.bytes.push(if head & 1 << 14 != 0 { UNKNOWN_BYTES } else { size });
        run.stack.push(StackId(stack as u32));
        run.action
            .push([Action::Alloc, Action::Free, Action::Failure, Action::Failure][usize::from(first & 3)]);
        run.slot.push(slot | (head >> 8) as u8 & NAMED);
    }

    /// Domain in a slot of an [`EventRun`], as far as the chunk has been read; its name is that of the event.
    pub fn domain(&self, slot: u8) -> Option<AllocDomain> {
        let domain = self.domains.get(usize::from(slot & !NAMED)).copied().flatten()?;
        Some(AllocDomain { name: if slot & NAMED == 0 { StringId(0) } else { domain.name }, ..domain })
    }

    /// Thread whose records come next.
    pub fn thread(&self) -> u64 {
        self.thread
    }

    /// Scope that is open at this point; 0 for none.
    pub fn scope(&self) -> u32 {
        self.scope
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
            name: if head & 1 << 15 == 0 { StringId(0) } else { domain.name },
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
                    // Earlier versions wrote none.
                    name: StringId(number().unwrap_or(0) as u32),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{BlockEvent, Body, MAX_EVENT_BYTES, domain_payload, encode_event};
    use super::*;

    /// A chunk with events of two domains, and records that are none between them.
    fn chunk(events: &[(u8, u64, u64, u64, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for slot in 0..2 {
            let name = StringId(u32::from(slot) * 3);
            let domain = AllocDomain { device: i32::from(slot), name, ..AllocDomain::default() };
            bytes.extend_from_slice(domain_payload(slot, &domain).finish());
        }
        let mut previous = Previous::default();
        for (action, time, address, size, stack) in events {
            if *action > 2 {
                // A mark.
                bytes.extend_from_slice(&[6 << 2 | NOT_AN_EVENT, 2, 0, 5, 1]);
                previous.time_ns = previous.time_ns.wrapping_add(5);
                continue;
            }
            let action = Action::ALL[usize::from(*action)];
            let is_named = time % 3 == 0;
            let body = Body {
                what: BlockEvent { action, address: *address, bytes: *size, is_named },
                time_ns: previous.time_ns.wrapping_add(*time),
                stack: StackId(*stack),
            };
            let mut event = [0; MAX_EVENT_BYTES];
            let len = encode_event(&mut event, &mut previous, (*stack % 2) as u8, &body);
            bytes.extend_from_slice(&event[..len]);
        }
        bytes
    }

    /// All events, and whether the chunk was read to its end.
    fn one_by_one(bytes: &[u8]) -> (Vec<Event>, bool) {
        let (mut decoder, mut events) = (Decoder::new(7), Vec::new());
        loop {
            match decoder.next(bytes) {
                Ok(Some(Record::Event(event))) => events.push(event),
                Ok(Some(_)) => {}
                Ok(None) => return (events, true),
                Err(_) => return (events, false),
            }
        }
    }

    fn by_runs(bytes: &[u8], most: usize) -> (Vec<Event>, bool) {
        let (mut decoder, mut events) = (Decoder::new(7), Vec::new());
        loop {
            let mut run = EventRun::default();
            let decoded = decoder.events(bytes, most, &mut run);
            for row in 0..run.len() {
                let domain = decoder.domain(run.slot[row]).expect("was defined");
                events.push(Event {
                    time_ns: run.time_ns[row],
                    thread: decoder.thread(),
                    action: run.action[row],
                    address: run.address[row],
                    bytes: run.bytes[row],
                    device: domain.device,
                    stream: domain.stream,
                    kind: domain.kind,
                    resource: domain.resource,
                    scope: u64::from(decoder.scope()),
                    stack: run.stack[row],
                    name: domain.name,
                    ..Event::default()
                });
            }
            if decoded.is_err() {
                return (events, false);
            }
            if run.is_empty() {
                match decoder.next(bytes) {
                    // It follows a record that only changes the decoder's state.
                    Ok(Some(Record::Event(event))) => events.push(event),
                    Ok(Some(_)) => {}
                    Ok(None) => return (events, true),
                    Err(_) => return (events, false),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn runs_have_the_events_that_come_one_by_one(
            events in proptest::collection::vec(
                (
                    0u8..4,
                    prop_oneof![0u64..500, any::<u64>()],
                    prop_oneof![(0u64..9).prop_map(|page| page << 12), any::<u64>()],
                    prop_oneof![0u64..5_000, Just(UNKNOWN_BYTES), any::<u64>()],
                    prop_oneof![0u32..300, any::<u32>()],
                ),
                0..60,
            ),
            most in 1usize..70,
            wrong in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
            cut in 0usize..20,
        ) {
            let mut bytes = chunk(&events);
            bytes.truncate(bytes.len() - cut.min(bytes.len()) / 2);
            if let Some((at, byte)) = wrong {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            prop_assert_eq!(by_runs(&bytes, most), one_by_one(&bytes));
        }
    }
}
