//! What a line of the log looks like.

use crate::local_time::{LocalTime, now};
use crate::process::thread_id;
use crate::resource::Address;
use crate::stream::Stream;

/// The first line, without its end.
pub(super) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allocate,
    Failure,
    Free,
}

impl Action {
    const fn word(self) -> &'static [u8] {
        match self {
            Self::Allocate => b"allocate",
            Self::Failure => b"allocate failure",
            Self::Free => b"free",
        }
    }
}

/// Writes lines into memory.
#[derive(Debug, Default)]
pub(super) struct Row {
    line: Vec<u8>,
    /// The second of the last line as text, since converting one costs more than all the rest.
    second: Option<(i64, [u8; 9])>,
}

impl Row {
    /// Writes a line of now and of the calling thread; returns it with its end.
    pub(super) fn write(&mut self, action: Action, address: Address, bytes: u64, stream: Stream) -> &[u8] {
        let (second, nanos) = now();
        let clock = self.clock(second);
        let line = &mut self.line;
        line.clear();
        number(line, thread_id(), 10, 1);
        line.push(b',');
        line.extend_from_slice(&clock);
        number(line, u64::from(nanos / 1000), 10, 6);
        line.push(b',');
        line.extend_from_slice(action.word());
        line.push(b',');
        if address.is_null() {
            line.extend_from_slice(b"(nil)");
        } else {
            line.extend_from_slice(b"0x");
            number(line, address.0, 16, 1);
        }
        line.push(b',');
        number(line, bytes, 10, 1);
        line.push(b',');
        if stream.handle() != 0 {
            line.extend_from_slice(b"0x");
        }
        number(line, stream.handle(), 16, 1);
        line.push(b'\n');
        line
    }

    /// `06:30:39.` of a second.
    fn clock(&mut self, second: i64) -> [u8; 9] {
        if let Some((cached, text)) = self.second
            && cached == second
        {
            return text;
        }
        let time = LocalTime::of(second);
        let mut text = *b"00:00:00.";
        for (at, part) in [(0, time.hour), (3, time.minute), (6, time.second)] {
            text[at] += (part / 10 % 10) as u8;
            text[at + 1] += (part % 10) as u8;
        }
        self.second = Some((second, text));
        text
    }
}

/// Appends a number, padded with zeros to a least number of digits.
fn number(out: &mut Vec<u8>, mut number: u64, base: u64, digits: usize) {
    let mut text = [b'0'; 20];
    let mut begin = text.len();
    while number > 0 {
        begin -= 1;
        text[begin] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
    }
    out.extend_from_slice(&text[begin.min(text.len() - digits)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_printf_does() {
        for value in [0, 1, 9, 10, 255, 1 << 40, u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, value, 10, 1);
            out.push(b' ');
            number(&mut out, value, 16, 1);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{value} {value:x}"));
        }
        let mut out = Vec::new();
        number(&mut out, 42, 10, 6);
        assert_eq!(out, b"000042");
    }
}
