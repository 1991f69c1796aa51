//! Rows as RMM writes them nearly always, parsed with a few word operations per field.
//!
//! A row is usual if its columns are RMM's own in their order, its time has six decimals and shows the
//! second of the row before, its address and stream are lower-case hexadecimal and no number is longer
//! than 15 decimal digits. Whatever else a line holds, well-formed or not, is left to `row`:
//! [`Usual::parse`] then returns `None`, and what it noted of the line until then does no harm.
//!
//! Rows resemble the row before. Bets on that spare work, and more so they let the processor go on to
//! the next field before it is through with this one: the thread has as many digits, the second and the
//! stream read the same, the address has twelve digits.
#![expect(clippy::inline_always, reason = "a row takes 30 ns; a call per field would be felt")]

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod wide;

use floodmark_event::Action;
use floodmark_event::units::NS_PER_S;

use super::digits::{Pattern, decimal, decimal_value, hex, load, twelve_hex};
use super::rows::{RowSlices, TimedRow};

/// How many bytes a caller must have from the beginning of a line on, whatever they hold. No usual row
/// is longer.
pub(super) const WINDOW: usize = 128;

/// How wide the thread of the row before was. The next is probably as wide, whichever thread it is.
#[derive(Clone, Copy, Debug)]
struct ThreadWidth {
    /// Digits and the comma after them.
    pattern: Pattern,
    /// Moves the last digit to the highest byte.
    shift: u32,
    len: usize,
}

impl ThreadWidth {
    const fn of(digits: usize) -> Self {
        let mut text = *b"00000000";
        text[digits] = b',';
        let (text, _) = text.split_at(digits + 1);
        Self { pattern: Pattern::new(text), shift: 64 - 8 * digits as u32, len: digits + 1 }
    }
}

/// The second that the row before showed.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// The first eight bytes of its text, and the last eight.
    begin: u64,
    end: u64,
    len: usize,
    /// The decimals with what is before and after them.
    decimals: Pattern,
    start_ns: i64,
}

impl Second {
    /// A second that no text shows.
    const NONE: Self = Self { begin: 0, end: 1, len: 8, decimals: Pattern::new(b".000000,"), start_ns: 0 };

    /// Takes the second from the text of an instant; `None` if it is not as usual.
    fn of(text: &[u8], time_ns: i64) -> Option<Self> {
        let (second, decimals) = text.split_last_chunk::<7>()?;
        // A longer text is not the same if it begins and ends the same.
        if second.len() > 16 {
            return None;
        }
        let pattern = match (second.first()?, decimals[0]) {
            // Decimals of a time before 1970 count backwards.
            (b'-', _) => return None,
            (_, b'.') => Pattern::new(b".000000,"),
            (_, b':') => Pattern::new(b":000000,"),
            _ => return None,
        };
        let mut word = [b','; 8];
        word[..7].copy_from_slice(decimals);
        let micros = decimal_value(pattern.digits(u64::from_le_bytes(word))?, 8);
        let start_ns = time_ns - micros as i64 * 1000;
        // All of the second must be within what nanoseconds can count.
        start_ns.checked_add(NS_PER_S)?;
        let (begin, end) = (load(second, 0)?, load(second, second.len() - 8)?);
        Some(Self { begin, end, len: second.len(), decimals: pattern, start_ns })
    }
}

/// The text of the last stream that was no pointer of twelve digits, with the end of the line.
#[derive(Clone, Copy, Debug)]
struct StreamText {
    /// The first eight bytes and the last eight, or twice all bytes of a shorter text.
    begin: u64,
    end: u64,
    /// Which bits of both count.
    mask: u64,
    len: usize,
    /// Where the last eight bytes begin.
    end_at: usize,
}

impl StreamText {
    /// A text that no row has.
    const NONE: Self = Self { begin: 1, end: 1, mask: 0, len: 0, end_at: 0 };

    /// Notes `len` bytes from the beginning of `text`, 1 to 16; more than that is not noted.
    fn of(text: &[u8], len: usize) -> Self {
        let end_at = len.saturating_sub(8);
        match (load(text, 0), load(text, end_at)) {
            (Some(begin), Some(end)) if len <= 16 => {
                let mask = if len < 8 { (1 << (8 * len)) - 1 } else { u64::MAX };
                Self { begin: begin & mask, end: end & mask, mask, len, end_at }
            }
            _ => Self::NONE,
        }
    }
}

/// Bytes of a stream that is a pointer of twelve digits, with the end of the line.
const POINTER_LINE: usize = 15;

/// A stream that was met before. A program has a few, which take turns.
#[derive(Clone, Copy, Debug)]
struct PointerText {
    /// The first eight bytes of its text, and the last eight with the end of the line.
    begin: u64,
    end: u64,
    value: u64,
}

#[inline(always)]
fn pointer_slot(begin: u64, end: u64) -> usize {
    ((begin ^ end.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}

/// Parses `0x`, twelve digits and the end of the line.
fn pointer_stream(window: &[u8; WINDOW], at: usize) -> Option<u64> {
    let text = window.get(at..)?;
    if !text.starts_with(b"0x") {
        return None;
    }
    twelve_hex(text.get(2..)?)
}

/// After so many rows in a row that could be read only one by one, the rest of a batch is.
#[cfg(target_arch = "x86_64")]
const WIDE_TRIALS: usize = 8;

/// Rows that were parsed, and where the next one begins.
struct Reading {
    count: usize,
    at: usize,
}

/// What the row before looked like.
#[derive(Clone, Debug)]
pub(super) struct Usual {
    thread_width: ThreadWidth,
    second: Second,
    stream_text: StreamText,
    stream: u64,
    pointers: [PointerText; 16],
}

impl Usual {
    pub(super) const fn new() -> Self {
        Self {
            thread_width: ThreadWidth::of(5),
            second: Second::NONE,
            stream_text: StreamText::NONE,
            stream: 0,
            // No text has a zero byte.
            pointers: [PointerText { begin: 0, end: 0, value: 0 }; 16],
        }
    }

    /// Notes the time of a row that was parsed elsewhere.
    ///
    /// Must be called for every such row: a time of day means another instant once the day is another.
    pub(super) fn note_time(&mut self, text: &[u8], time_ns: i64) {
        self.second = Second::of(text, time_ns).unwrap_or(Second::NONE);
    }

    /// Forgets the time of the row before.
    pub(super) fn forget_time(&mut self) {
        self.second = Second::NONE;
    }

    /// Parses rows from the beginning of `text` into `rows`, as long as there is room and they are usual; returns how
    /// many there are and how many bytes they have. Whole lines end at `lines_len`, and [`WINDOW`] bytes follow.
    pub(super) fn read(&mut self, text: &[u8], lines_len: usize, mut rows: RowSlices<'_>) -> (usize, usize) {
        let mut reading = Reading { count: 0, at: 0 };
        #[cfg(target_arch = "x86_64")]
        self.read_wide(text, lines_len, &mut rows, &mut reading);
        while self.read_one(text, lines_len, &mut rows, &mut reading) {}
        (reading.count, reading.at)
    }

    /// Parses rows many bytes at a time until that does not pay any more.
    #[cfg(target_arch = "x86_64")]
    fn read_wide(&mut self, text: &[u8], lines_len: usize, rows: &mut RowSlices<'_>, reading: &mut Reading) {
        // The first row cannot be read that way, and the row before one of another shape tells what to expect.
        let mut trials = WIDE_TRIALS;
        while trials > 0 && self.read_one(text, lines_len, rows, reading) {
            let found = wide::read(self, text, reading.at, lines_len, &mut rows.from(reading.count));
            let Some((count, at)) = found else { return };
            trials = if count == 0 { trials - 1 } else { WIDE_TRIALS };
            *reading = Reading { count: reading.count + count, at };
        }
    }

    /// Parses one more row; `false` if there is no room or it is not usual.
    #[inline(always)]
    fn read_one(
        &mut self,
        text: &[u8],
        lines_len: usize,
        rows: &mut RowSlices<'_>,
        reading: &mut Reading,
    ) -> bool {
        if reading.at >= lines_len || reading.count == rows.room() {
            return false;
        }
        let window = text.get(reading.at..).and_then(|text| text.first_chunk());
        let Some((row, len)) = window.and_then(|window| self.parse(window)) else { return false };
        rows.set(reading.count, &row);
        reading.count += 1;
        reading.at += len;
        true
    }

    /// Parses the row that `window` begins with; returns it and its length with the end of the line.
    #[inline(always)]
    pub(super) fn parse(&mut self, window: &[u8; WINDOW]) -> Option<(TimedRow, usize)> {
        let (thread, mut at) = match self.thread_width.pattern.digits(load(window, 0)?) {
            Some(digits) => (decimal_value(digits, self.thread_width.shift), self.thread_width.len),
            None => self.parse_thread(window)?,
        };

        let second = &self.second;
        if load(window, at)? != second.begin || load(window, at + second.len - 8)? != second.end {
            return None;
        }
        at += second.len;
        let micros = decimal_value(second.decimals.digits(load(window, at)?)?, 8);
        let time_ns = second.start_ns + micros as i64 * 1000;
        at += 8;

        let (action, len) = action(window, at)?;
        at += len;
        let (address, len) = pointer(window, at)?;
        at += len;

        let (bytes, len) = decimal(load(window, at)?, load(window, at + 8)?)?;
        if *window.get(at + len)? != b',' {
            return None;
        }
        at += len + 1;

        let known = &self.stream_text;
        let begin = load(window, at)?;
        let stream = if begin & known.mask == known.begin
            && load(window, at + known.end_at)? & known.mask == known.end
        {
            at += known.len;
            self.stream
        } else if *window.get(at + POINTER_LINE - 1)? == b'\n' {
            let end = load(window, at + POINTER_LINE - 8)?;
            let pointer = &mut self.pointers[pointer_slot(begin, end)];
            if (pointer.begin, pointer.end) != (begin, end) {
                *pointer = PointerText { begin, end, value: pointer_stream(window, at)? };
            }
            at += POINTER_LINE;
            pointer.value
        } else {
            at += self.parse_stream(window, at)?;
            self.stream
        };
        Some((TimedRow { thread, time_ns, action, address, bytes, stream }, at))
    }

    /// Parses a thread of another width than before; returns it and its length with the comma.
    fn parse_thread(&mut self, window: &[u8; WINDOW]) -> Option<(u64, usize)> {
        let (thread, len) = decimal(load(window, 0)?, load(window, 8)?)?;
        if *window.get(len)? != b',' {
            return None;
        }
        if len < 8 {
            self.thread_width = ThreadWidth::of(len);
        }
        Some((thread, len + 1))
    }

    /// Parses the stream at `at`, which differs from the one before; returns its length with the end of
    /// the line.
    fn parse_stream(&mut self, window: &[u8; WINDOW], at: usize) -> Option<usize> {
        let text = window.get(at..)?;
        let (stream, len) = match text {
            [b'0', b'x', digits @ ..] => {
                let is_twelve = matches!(digits.get(12)?, b'\n' | b'\r');
                let (stream, len) = if is_twelve { (twelve_hex(digits)?, 12) } else { hex(digits)? };
                (stream, len + 2)
            }
            [b'0', ..] => (0, 1),
            _ => return None,
        };
        let len = match text.get(len..)? {
            [b'\n', ..] => len + 1,
            [b'\r', b'\n', ..] => len + 2,
            _ => return None,
        };
        self.stream_text = StreamText::of(text, len);
        self.stream = stream;
        Some(len)
    }
}

/// Parses what the row at `at` did; returns it and its length with the comma.
#[inline(always)]
fn action(window: &[u8; WINDOW], at: usize) -> Option<(Action, usize)> {
    const FREE: u64 = u64::from_le_bytes(*b"free,\0\0\0");
    const ALLOCATE: u64 = u64::from_le_bytes(*b"allocate");
    let word = load(window, at)?;
    let is_free = word & 0xff_ffff_ffff == FREE;
    let is_alloc = word == ALLOCATE && *window.get(at + 8)? == b',';
    if is_free | is_alloc {
        // Without a branch: which of both it is cannot be foreseen, and a wrong guess takes longer than all else here.
        let act = usize::from(is_free);
        return Some(([Action::Alloc, Action::Free][act], 9 - 4 * act));
    }
    window.get(at..)?.starts_with(b"deallocate,").then_some((Action::Free, 11))
}

/// Parses the address at `at`; returns it and its length with the comma.
#[inline(always)]
fn pointer(window: &[u8; WINDOW], at: usize) -> Option<(u64, usize)> {
    let text = window.get(at..)?;
    if !text.starts_with(b"0x") {
        return None;
    }
    // Nearly all addresses have twelve digits. Betting on it lets the processor go on to the next field
    // before it has counted the digits of this one.
    if *text.get(14)? == b',' {
        return Some((twelve_hex(text.get(2..)?)?, 15));
    }
    let (address, len) = hex(text.get(2..)?)?;
    (*text.get(2 + len)? == b',').then_some((address, len + 3))
}
