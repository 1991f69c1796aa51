//! How samples are made small: each is stored as the difference to an earlier value of the same subject
//! and metric, divided by a unit that memory and clocks come in.
//!
//! Both ends keep the same table of earlier values, so nothing has to be said about it. Invariants: it
//! starts empty in every chunk; an entry is where subject and metric put it, and another one with the
//! same place replaces it; what is not in the table had the value 0.

use floodmark_event::sample::{Metric, SubjectId};

const SLOTS: usize = 4096;
/// What differences are divided by, by the lowest two bits of a metric's number.
const UNITS: [i64; 4] = [1, 1024, 4096, 1_000_000];
/// Units in the order in which they are tried: the largest one that divides says it in the fewest bytes.
const TRIED: [usize; 3] = [3, 2, 1];

/// Most bytes of a value with its metric: both numbers, at their longest.
const MAX_PAIR_BYTES: usize = 12;
/// Most bytes of a short record: type, length, and as much as a byte of length can say.
pub(super) const MAX_SHORT_BYTES: usize = 2 + 255;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Slot {
    subject: u32,
    /// Number of the metric; 0 if the slot is empty.
    metric: u32,
    value: u64,
}

/// Memory for a table; all zeros are an empty one.
pub(super) type Slots = [Slot; SLOTS];

/// Makes an empty table on the heap, for a decoder.
pub(super) fn boxed() -> Box<Slots> {
    vec![Slot::default(); SLOTS].into_boxed_slice().try_into().expect("as many as were made")
}

/// The values seen so far in a chunk.
pub(super) struct Seen<'a>(pub(super) &'a mut Slots);

impl Seen<'_> {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0.fill(Slot::default());
    }

    /// Returns the place of the latest value of a subject's metric, which reads 0 if there is none.
    fn latest(&mut self, subject: u32, metric: u32) -> &mut u64 {
        let key = u64::from(subject) << 8 | u64::from(metric);
        let at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        let slot = &mut self.0[at];
        if slot.subject != subject || slot.metric != metric {
            *slot = Slot { subject, metric, value: 0 };
        }
        &mut slot.value
    }

    /// Turns a value into what is stored: metric with unit, and the difference.
    fn shrink(&mut self, subject: SubjectId, metric: Metric, value: u64) -> (u64, u64) {
        let latest = self.latest(subject.0, metric as u32);
        let difference = value.wrapping_sub(*latest) as i64;
        *latest = value;
        let divides = |unit: &usize| difference != 0 && difference % UNITS[*unit] == 0;
        let unit = TRIED.into_iter().find(divides).unwrap_or(0);
        ((metric as u64) << 2 | unit as u64, zigzag(difference / UNITS[unit]))
    }

    /// Turns what is stored back into metric and value; the metric is `None` if this version does not
    /// know it.
    pub(super) fn grow(&mut self, subject: SubjectId, head: u64, difference: u64) -> (Option<Metric>, u64) {
        let metric = u32::try_from(head >> 2).unwrap_or(u32::MAX);
        let difference = unzigzag(difference).wrapping_mul(UNITS[head as usize & 3]);
        let latest = self.latest(subject.0, metric);
        *latest = latest.wrapping_add(difference as u64);
        (u8::try_from(metric).ok().and_then(Metric::from_number), *latest)
    }
}

/// Maps numbers near zero to small ones without a sign.
pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Builds a record whose length is one byte.
pub(super) struct ShortRecord {
    bytes: [u8; MAX_SHORT_BYTES],
    len: usize,
}

impl ShortRecord {
    pub(super) fn new(kind: u8) -> Self {
        let mut record = Self { bytes: [0; MAX_SHORT_BYTES], len: 2 };
        record.bytes[0] = kind << 2 | 3;
        record
    }

    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 && self.len < MAX_SHORT_BYTES - 1 {
            self.bytes[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.bytes[self.len] = value as u8;
        self.len += 1;
    }

    /// Appends values while there is room for one more; returns those that are left.
    pub(super) fn values<'a>(
        &mut self,
        subject: SubjectId,
        values: &'a [(Metric, u64)],
        seen: &mut Seen<'_>,
    ) -> &'a [(Metric, u64)] {
        let mut rest = values;
        while let Some(((metric, value), more)) = rest.split_first()
            && self.len + MAX_PAIR_BYTES <= MAX_SHORT_BYTES
        {
            let (head, difference) = seen.shrink(subject, *metric, *value);
            self.number(head);
            self.number(difference);
            rest = more;
        }
        rest
    }

    pub(super) fn finish(&mut self) -> &[u8] {
        self.bytes[1] = (self.len - 2) as u8;
        &self.bytes[..self.len]
    }
}
