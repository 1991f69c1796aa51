//! Calls of functions, which come by the million: as few bytes and branches as will do.
//!
//! A call is a short record: time since the previous record, `code << 3 | action - 1`, line, and the change
//! of the resident pages where there is one.

use super::{Call, Damage, Decoder, NOT_AN_EVENT, Record, RecordType};
use crate::values::{unzigzag, zigzag};
use floodmark_event::sample::CallAction;

use super::decode::Fields;

/// Most bytes a call can take: type, length, time, code, line and resident pages.
pub(crate) const MAX_CALL_BYTES: usize = 2 + 10 + 6 + 5 + 10;
/// Bytes that resident memory is counted in.
const RSS_UNIT: u64 = 4096;

/// An encoded call.
pub(crate) struct CallRecord {
    bytes: [u8; MAX_CALL_BYTES],
    len: usize,
}

impl CallRecord {
    /// Encodes a call that happened `elapsed_ns` after the previous record.
    ///
    /// `rss_pages` is what earlier calls of the chunk gave, and is updated.
    #[inline]
    pub(crate) fn new(call: &Call, elapsed_ns: u64, rss_pages: &mut Option<u64>) -> Self {
        let mut record = Self { bytes: [0; MAX_CALL_BYTES], len: 2 };
        record.bytes[0] = (RecordType::Call as u8) << 2 | NOT_AN_EVENT;
        record.number(elapsed_ns);
        record.number(u64::from(call.code) << 3 | (call.action as u64 - 1));
        record.number(u64::from(call.line));
        let pages = call.rss_bytes.map(|bytes| bytes / RSS_UNIT);
        if let Some(pages) = pages
            && *rss_pages != Some(pages)
        {
            record.number(zigzag(pages.wrapping_sub(rss_pages.unwrap_or(0)) as i64));
            *rss_pages = Some(pages);
        }
        record.bytes[1] = record.len as u8 - 2;
        record
    }

    #[inline]
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.bytes[self.len] = value as u8;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Decoder {
    /// Decodes the call at the current position.
    pub(super) fn call<'a>(&mut self, bytes: &[u8]) -> Result<Record<'a>, Damage> {
        let cut = self.damage("a call is cut off");
        let start = self.at + 2;
        let len = usize::from(*bytes.get(self.at + 1).ok_or(cut.clone())?);
        let payload = bytes.get(start..start + len).ok_or(cut.clone())?;
        let mut fields = Fields { rest: payload };
        let (Some(elapsed), Some(code), Some(line)) = (fields.number(), fields.number(), fields.number())
        else {
            return Err(cut);
        };
        if !fields.rest.is_empty() {
            let change = unzigzag(fields.number().ok_or(cut)?);
            self.rss_pages = Some(self.rss_pages.unwrap_or(0).wrapping_add(change as u64));
        }
        self.at = start + len;
        let action = CallAction::from_number((code & 7) as u8 + 1).expect("three bits, eight actions");
        Ok(Record::Call {
            time_ns: self.advance(elapsed),
            thread: self.thread,
            call: Call {
                action,
                code: (code >> 3) as u32,
                line: line as u32,
                rss_bytes: self.rss_pages.map(|pages| pages.wrapping_mul(RSS_UNIT)),
            },
        })
    }
}
