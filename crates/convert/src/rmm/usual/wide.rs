//! Usual rows with the vector instructions of x86 (AVX2): all decimal fields of a row are checked and parsed at once,
//! and both hexadecimal ones.
//!
//! The end of a row is searched first, which takes an instruction or two per 32 bytes. Fields are then found from both
//! ends, so the processor begins the next row long before it is through with this one, and nothing depends on how many
//! digits a number has. Every field is loaded together with the separators next to it, and one comparison checks
//! them along with the digits:
//!
//! | vector | lower half | upper half |
//! |---|---|---|
//! | decimal | `1234567,` of the thread, `.123456,` of the time | `123456789012345,` of the size |
//! | hexadecimal | `,0x123456789abc,` of the address | `,0x123456789abc` and the line's end of the stream |
//!
//! A shorter number leaves bytes before it in the vector, which a mask takes away. A row of any other shape (another
//! number of digits in the thread, another second, an address that has not twelve digits) is left to
//! [`Usual::parse`], which notes what the next rows are probably like.
#![expect(
    unsafe_code,
    reason = "loads at places that are computed; the checks of a slice cost as much as parsing does"
)]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi64x, _mm256_add_epi8, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16,
    _mm256_movemask_epi8, _mm256_or_si256, _mm256_packus_epi16, _mm256_packus_epi32, _mm256_set_m128i,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_setr_epi8, _mm256_setr_epi16, _mm256_shuffle_epi8,
    _mm256_subs_epu8, _mm256_testz_si256, _mm256_xor_si256,
};

use floodmark_event::Action;

use super::{POINTER_LINE, Usual, WINDOW};
use crate::rmm::rows::{RowSlices, TimedRow};

/// How many bytes must lie before a row, whatever they hold: numbers are loaded from their ends.
const BEFORE: usize = 32;

/// Bytes that are looked through for ends of lines at a time.
const CHUNK: usize = 64;

/// Bytes of an address of twelve digits, with the commas around it.
const POINTER_FIELD: usize = 16;

/// Ones in the last `n` bytes before the separator in the last place: `DIGITS[16 - n..]` of them.
static DIGIT_MASKS: [u8; 32] = {
    let mut masks = [0xff; 32];
    let mut at = 0;
    while at < 15 {
        masks[at] = 0;
        at += 1;
    }
    masks
};

/// Bytes of a text at places that are computed.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// # Safety
    /// `at + 8` is at most the length.
    #[inline(always)]
    unsafe fn eight(self, at: usize) -> u64 {
        debug_assert!(at + 8 <= self.0.len(), "reads eight bytes at {at}");
        // SAFETY: within the text, as the caller promises; any bytes are a number.
        u64::from_le(unsafe { self.0.as_ptr().add(at).cast::<u64>().read_unaligned() })
    }

    /// # Safety
    /// `at + 16` is at most the length.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sixteen(self, at: usize) -> __m128i {
        debug_assert!(at + 16 <= self.0.len(), "reads sixteen bytes at {at}");
        // SAFETY: within the text, as the caller promises.
        unsafe { _mm_loadu_si128(self.0.as_ptr().add(at).cast()) }
    }

    /// One bit for each byte of a chunk that ends a line.
    ///
    /// # Safety
    /// `at + CHUNK` is at most the length.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn line_ends(self, at: usize) -> u64 {
        debug_assert!(at + CHUNK <= self.0.len(), "reads a chunk at {at}");
        let line_end = _mm256_set1_epi8(b'\n' as i8);
        // SAFETY: within the text, as the caller promises.
        let (low, high) = unsafe {
            let begin = self.0.as_ptr().add(at);
            (_mm256_loadu_si256(begin.cast()), _mm256_loadu_si256(begin.add(CHUNK / 2).cast()))
        };
        let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, line_end)) as u32;
        let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, line_end)) as u32;
        u64::from(high) << 32 | u64::from(low)
    }
}

/// Parses rows of `text` from `start` on into `rows`, as long as there is room and they have the shape that `usual` saw
/// last; returns how many there are and where the next one begins. Whole lines end at `lines_len`. None if the processor
/// does not have the instructions.
pub(super) fn read(
    usual: &Usual,
    text: &[u8],
    start: usize,
    lines_len: usize,
    rows: &mut RowSlices<'_>,
) -> Option<(usize, usize)> {
    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("bmi1") {
        return None;
    }
    // SAFETY: the processor has the instructions.
    Some(unsafe { read_rows(usual, text, start, lines_len, rows) })
}

/// As [`read`], on a processor that has the instructions.
#[target_feature(enable = "avx2,bmi1")]
fn read_rows(
    usual: &Usual,
    text: &[u8],
    start: usize,
    lines_len: usize,
    rows: &mut RowSlices<'_>,
) -> (usize, usize) {
    // No load reaches further: see the safety comments of `Shape::row`.
    if start < BEFORE || lines_len.checked_add(WINDOW).is_none_or(|end| end > text.len()) {
        return (0, start);
    }
    let (bytes, shape) = (Bytes(text), Shape::new(usual));
    let (mut begin, mut count, room) = (start, 0, rows.room());
    let mut chunk = start;
    while chunk < lines_len {
        // SAFETY: the chunk begins before `lines_len`, behind which there are `WINDOW` bytes, more than a chunk.
        let mut ends = unsafe { bytes.line_ends(chunk) };
        while ends != 0 {
            let end = chunk + ends.trailing_zeros() as usize;
            let row = if begin < lines_len && count < room {
                // SAFETY: `begin` is `BEFORE` or more and not behind `end`. The row begins within the whole lines, so
                // it ends there, and `WINDOW` bytes follow.
                unsafe { shape.row(bytes, begin, end) }
            } else {
                None
            };
            let Some(row) = row else { return (count, begin) };
            rows.set(count, &row);
            count += 1;
            begin = end + 1;
            ends &= ends - 1;
        }
        chunk += CHUNK;
    }
    (count, begin)
}

/// What the rows are probably like, as vectors.
struct Shape<'a> {
    usual: &'a Usual,
    /// Separators and zeros that are taken off decimal fields.
    expected: __m256i,
    /// Digits of the thread and the time.
    thread_mask: __m128i,
    /// Highest that may be left of each byte.
    most: __m256i,
    pair_weights: __m256i,
    /// From the beginning of the row to the text of the second.
    second_at: usize,
    /// From there to the action.
    action_at: usize,
}

impl<'a> Shape<'a> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(usual: &'a Usual) -> Self {
        let thread_len = usual.thread_width.len;
        let point = usual.second.decimals.first_byte();
        // Digits and the comma, at the end of eight bytes.
        let thread_mask = u64::MAX << (64 - 8 * thread_len.min(8) as u32);
        let word = |text: &[u8; 8]| i64::from_le_bytes(*text);
        let expected = _mm256_set_m128i(
            _mm_set_epi64x(word(b"0000000,"), word(b"00000000")),
            _mm_set_epi64x(word(&[point, b'0', b'0', b'0', b'0', b'0', b'0', b',']), word(b"0000000,")),
        );
        let most = _mm256_setr_epi8(
            9, 9, 9, 9, 9, 9, 9, 0, 0, 9, 9, 9, 9, 9, 9, 0, // thread, time
            9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, // size
        );
        let pair_weights = _mm256_setr_epi8(
            10, 1, 10, 1, 10, 1, 1, 0, 0, 1, 10, 1, 10, 1, 1, 0, // thread, time
            10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 1, 0, // size
        );
        Self {
            usual,
            expected,
            thread_mask: _mm_set_epi64x(-1, thread_mask as i64),
            most,
            pair_weights,
            second_at: thread_len,
            action_at: thread_len + usual.second.len + 8,
        }
    }

    /// Parses the row from `begin` up to the line's end at `end`; none if it has another shape.
    ///
    /// # Safety
    /// `BEFORE <= begin <= end`, and from `begin` and from `end` on there are `WINDOW` bytes of text.
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    unsafe fn row(&self, bytes: Bytes<'_>, begin: usize, end: usize) -> Option<TimedRow> {
        const FREE: u64 = u64::from_le_bytes(*b"free,0x\0");
        const ALLOCATE: u64 = u64::from_le_bytes(*b"allocate");
        let second = &self.usual.second;
        let second_at = begin + self.second_at;
        // SAFETY: a thread has at most 8 bytes and a second at most 16, so these are within `begin + WINDOW`.
        let (second_begin, second_end, act) = unsafe {
            let second_end = bytes.eight(second_at + second.len - 8);
            (bytes.eight(second_at), second_end, bytes.eight(begin + self.action_at))
        };
        let is_free = act & 0xff_ffff_ffff_ffff == FREE;
        // Without a branch: which of both it is cannot be foreseen.
        let action_len = if is_free { 4 } else { 8 };
        // The comma before the address, and the one before the stream.
        let comma = begin + self.action_at + action_len;
        // A stream is a pointer or the text that was noted, which is mostly that of the default stream. Both take turns,
        // so there is no branch here, either.
        let known = &self.usual.stream_text;
        // SAFETY: `end` is `BEFORE` or more.
        let is_pointer = unsafe { bytes.eight(end - POINTER_LINE) } as u8 == b',';
        let stream_len = if is_pointer { POINTER_LINE } else { known.len };
        // Wraps around where the line is too short; the length of the size is then out of range.
        let stream_comma = end.wrapping_sub(stream_len);
        let size_len = stream_comma.wrapping_sub(comma + POINTER_FIELD);
        let is_known = second_begin == second.begin && second_end == second.end;
        if !is_known || !(is_free || act == ALLOCATE) || size_len.wrapping_sub(1) >= 15 {
            return None;
        }
        // SAFETY: the thread begins at `begin`, so eight bytes that end with it begin at most 7 before; the time ends
        // before the action; `stream_comma` is behind `comma`, so the 16 bytes that end with it begin behind `begin`;
        // and the table has 16 bytes from each of 1 to 15 on.
        let (decimals, mask) = unsafe {
            let thread = bytes.eight(second_at - 8) as i64;
            let time = bytes.eight(second_at + second.len) as i64;
            let size = bytes.sixteen(stream_comma - 15);
            let mask = _mm_loadu_si128(DIGIT_MASKS.as_ptr().add(size_len).cast());
            (_mm256_set_m128i(size, _mm_set_epi64x(time, thread)), _mm256_set_m128i(mask, self.thread_mask))
        };
        let digits = _mm256_and_si256(_mm256_xor_si256(decimals, self.expected), mask);
        let excess = _mm256_subs_epu8(digits, self.most);

        // SAFETY: `comma` is at most `begin + 40`, and sixteen bytes that end with the line begin at `BEFORE - 15` or
        // behind.
        let address = unsafe { bytes.sixteen(comma) };
        // SAFETY: as above, or all of the other text.
        let stream = unsafe {
            let text = bytes.0.as_ptr().add(end - POINTER_LINE);
            _mm_loadu_si128(if is_pointer { text } else { NO_POINTER.as_ptr() }.cast())
        };
        let (values, wrong) = hexadecimal(_mm256_set_m128i(stream, address));
        // SAFETY: the stream begins behind `begin`, and `end_at` is at most 8.
        let (text_begin, text_end) =
            unsafe { (bytes.eight(stream_comma + 1), bytes.eight(stream_comma + 1 + known.end_at)) };
        let other = (text_begin & known.mask ^ known.begin) | (text_end & known.mask ^ known.end);
        if (if is_pointer { 0 } else { other }) != 0 {
            return None;
        }
        let wrong = _mm256_or_si256(wrong, excess);
        if _mm256_testz_si256(wrong, wrong) == 0 {
            return None;
        }

        let fours = _mm256_madd_epi16(_mm256_maddubs_epi16(digits, self.pair_weights), four_weights());
        let sums = _mm256_madd_epi16(_mm256_packus_epi32(fours, fours), eight_weights());
        let low = _mm_cvtsi128_si64(_mm256_castsi256_si128(sums)) as u64;
        let size = _mm_cvtsi128_si64(_mm256_extracti128_si256::<1>(sums)) as u64;
        let micros = (low >> 32) as i64;
        let pointer = (_mm_cvtsi128_si64(_mm256_extracti128_si256::<1>(values)) as u64).swap_bytes();
        Some(TimedRow {
            thread: low & 0xffff_ffff,
            time_ns: second.start_ns + micros * 1000,
            action: if is_free { Action::Free } else { Action::Alloc },
            address: (_mm_cvtsi128_si64(_mm256_castsi256_si128(values)) as u64).swap_bytes(),
            bytes: (size & 0xffff_ffff) * 10_000_000 + (size >> 32),
            stream: if is_pointer { pointer } else { self.usual.stream },
        })
    }
}

/// Stands for the pointer of a row whose stream is none.
static NO_POINTER: [u8; 16] = *b",0x000000000000\n";

/// Parses `,0x`, twelve digits and a comma, or the end of the line in the upper half: both values as big-endian numbers,
/// and a vector that is zero if both texts are such.
#[inline]
#[target_feature(enable = "avx2")]
fn hexadecimal(text: __m256i) -> (__m256i, __m256i) {
    let digits = *b"0123456789abcdef";
    let both = |bytes: &[u8; 16]| {
        let number = i128::from_le_bytes(*bytes);
        let half = _mm_set_epi64x((number >> 64) as i64, number as i64);
        _mm256_set_m128i(half, half)
    };
    // Bytes that are the same in all such texts, and which bytes these are.
    let [comma, zero, letter, end] = b",0x\n".map(u8::cast_signed);
    let fixed = _mm256_setr_epi8(
        comma, zero, letter, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, comma, // lower half
        comma, zero, letter, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end, // upper half
    );
    let is_fixed = both(&[255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255]);
    let is_letter = _mm256_cmpgt_epi8(text, _mm256_set1_epi8(b'9' as i8));
    let low_nibbles = _mm256_and_si256(text, _mm256_set1_epi8(0x0f));
    let values = _mm256_add_epi8(low_nibbles, _mm256_and_si256(is_letter, _mm256_set1_epi8(9)));
    // A byte is a digit exactly if it is the digit of its value.
    let expected = _mm256_blendv_epi8(_mm256_shuffle_epi8(both(&digits), values), fixed, is_fixed);
    let wrong = _mm256_xor_si256(text, expected);
    // The digits at the end, behind zeros.
    let places = both(&[255, 255, 255, 255, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    let aligned = _mm256_shuffle_epi8(values, places);
    let pairs = _mm256_maddubs_epi16(aligned, _mm256_set1_epi16(0x0110));
    (_mm256_packus_epi16(pairs, pairs), wrong)
}

/// Joins pairs of digits to fours; the last pair of a number has one digit alone.
#[inline]
#[target_feature(enable = "avx2")]
fn four_weights() -> __m256i {
    _mm256_setr_epi16(100, 1, 10, 1, 100, 1, 10, 1, 100, 1, 100, 1, 100, 1, 10, 1)
}

/// Joins fours of digits; the last of a number has three.
#[inline]
#[target_feature(enable = "avx2")]
fn eight_weights() -> __m256i {
    _mm256_setr_epi16(1000, 1, 1000, 1, 1000, 1, 1000, 1, 10_000, 1, 1000, 1, 10_000, 1, 1000, 1)
}
