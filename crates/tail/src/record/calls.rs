//! Calls of functions, which come by the million: as few bytes and branches as will do.
//!
//! A call is a short record: time since the previous record, `code << 3 | action - 1`, line, and the change
//! of the resident pages where there is one.

use super::{Call, Damage, Decoder, NOT_AN_EVENT, Record, RecordType, TracedCall};
use crate::values::{unzigzag, zigzag};
use floodmark_event::sample::CallAction;

use super::decode::Fields;

/// Most bytes a call can take: type, length, time, code, line and resident pages.
pub(crate) const MAX_CALL_BYTES: usize = 2 + 10 + 6 + 5 + 10;
/// Bytes that resident memory is counted in.
const RSS_UNIT: u64 = 4096;

/// Values from here on take more than two bytes.
const PLAIN_LIMIT: u64 = 1 << 14;

/// Encodes a call with the resident bytes of the previous one as 8 bytes, of which the given number count; `None` if
/// that is too little.
///
/// Function and line take two bytes each even where one would do, so that the length depends on the time alone and no
/// branch depends on that.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn plain_call(call: &TracedCall, elapsed_ns: u64) -> Option<(u64, u32)> {
    let function = u64::from(call.code) << 3 | (call.action as u64 - 1);
    let line = u64::from(call.line);
    if (elapsed_ns | function | line) >= PLAIN_LIMIT {
        return None;
    }
    let padded = |value: u64| value & 0x7f | 0x80 | (value & 0x3f80) << 1;
    let is_long = u64::from(elapsed_ns >= 0x80);
    let time = elapsed_ns & 0x7f | is_long << 7 | (elapsed_ns & 0x3f80) << 1;
    let head = u64::from((RecordType::Call as u8) << 2 | NOT_AN_EVENT) | (5 + is_long) << 8;
    let rest = padded(function) | padded(line) << 16;
    Some((head | time << 16 | rest << (24 + 8 * is_long), 7 + is_long as u32))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Decoder;

    #[test]
    fn plain_calls_decode_to_what_was_encoded() {
        let values = [0, 1, 127, 128, 129, 255, 256, 2047, 16_383, 16_384, 1 << 20];
        let mut plain = 0;
        for elapsed in values {
            for code in values {
                for line in values {
                    let call = TracedCall {
                        action: CallAction::CReturn,
                        code: code as u32,
                        line: line as u32,
                        rss_pages: 7,
                        ticks: 0,
                    };
                    let fits = elapsed < 1 << 14 && code < 1 << 11 && line < 1 << 14;
                    let encoded = plain_call(&call, elapsed);
                    assert_eq!(encoded.is_some(), fits, "{elapsed} {call:?}");
                    let Some((record, len)) = encoded else { continue };
                    let bytes = &record.to_le_bytes()[..len as usize];
                    let mut decoder = Decoder::new(1000);
                    let Ok(Some(Record::Call { time_ns, call: decoded, .. })) = decoder.next(bytes) else {
                        panic!("no call in {bytes:?}")
                    };
                    assert_eq!(time_ns, 1000 + elapsed);
                    assert_eq!((decoded.action, decoded.code), (call.action, call.code));
                    assert_eq!((decoded.line, decoded.rss_bytes), (call.line, None));
                    plain += 1;
                }
            }
        }
        assert_eq!(plain, 9 * 8 * 9);
    }
}
