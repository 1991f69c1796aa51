//! Numbers in text, eight bytes at a time: digits are checked and parsed with a few operations on whole
//! machine words instead of one step per byte.
//!
//! Words are little-endian, so the first character of a text is the lowest byte of its word. A check
//! works on what is left of each byte when the expected character is taken off: 0 to 9 for a digit. If
//! one byte is not what it should be, its neighbors may be misjudged too, but never so that the whole
//! word passes.
#![expect(clippy::inline_always, reason = "a row takes 30 ns; a call per field would be felt")]

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x80 * ONES;
const HIGH_NIBBLES: u64 = 0xf0 * ONES;
const ZEROS: u64 = b'0' as u64 * ONES;

/// Returns the eight bytes from `at` on.
#[inline(always)]
pub(super) fn load(text: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*text.get(at..)?.first_chunk()?))
}

/// Value of eight digits, given as one byte each, the first in the lowest byte.
#[inline(always)]
const fn value(digits: u64, base: u64) -> u64 {
    let pairs = (digits.wrapping_mul(base << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let base = base * base;
    let fours = (pairs.wrapping_mul(base << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul((base * base) << 32 | 1) >> 32
}

/// What up to eight bytes must look like: some fixed characters, some decimal digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    expected: u64,
    relevant: u64,
    slack: u64,
}

impl Pattern {
    /// Makes a pattern in which `0` stands for any digit and everything else for itself.
    pub(super) const fn new(text: &[u8]) -> Self {
        let mut pattern = Self { expected: 0, relevant: 0, slack: 0 };
        let mut at = 0;
        while at < text.len() && at < 8 {
            let shift = 8 * at;
            pattern.expected |= (text[at] as u64) << shift;
            pattern.relevant |= 0xff << shift;
            pattern.slack |= (if text[at] == b'0' { 6 } else { 15 }) << shift;
            at += 1;
        }
        pattern
    }

    /// Returns the first character.
    #[cfg(target_arch = "x86_64")]
    pub(super) const fn first_byte(&self) -> u8 {
        self.expected as u8
    }

    /// Returns the values of the digits in `word`, with 0 for all other bytes, if it matches.
    #[inline(always)]
    pub(super) const fn digits(&self, word: u64) -> Option<u64> {
        let left = (word ^ self.expected) & self.relevant;
        // The slack carries into the high nibble what exceeds 9 in a digit, or 0 elsewhere.
        if (left.wrapping_add(self.slack) | left) & HIGH_NIBBLES == 0 { Some(left) } else { None }
    }
}

/// Value of the decimal digits in `digits`, one byte each, when they are moved up by `shift` bits so
/// that the last one is in the highest byte.
#[inline(always)]
pub(super) const fn decimal_value(digits: u64, shift: u32) -> u64 {
    value(digits << shift, 10)
}

/// Parses the decimal digits that `low` and, if it has eight, `high` begin with: their value and number,
/// which is 1 to 15. `None` if there are fewer or more.
#[inline(always)]
pub(super) fn decimal(low: u64, high: u64) -> Option<(u64, usize)> {
    let (low_digits, low_end) = until_decimal_end(low);
    if low_end != 0 {
        let bits = low_end.trailing_zeros() - 7;
        // Shifted in two steps, because there may be no digit and a shift by 64 does not exist.
        return (bits != 0).then(|| (decimal_value(low_digits << (56 - bits), 8), bits as usize / 8));
    }
    let (high_digits, high_end) = until_decimal_end(high);
    if high_end == 0 {
        return None;
    }
    let bits = high_end.trailing_zeros() - 7;
    let scale = POWERS_OF_TEN[bits as usize / 8];
    let high_value = decimal_value(high_digits << (56 - bits), 8);
    Some((decimal_value(low_digits, 0) * scale + high_value, 8 + bits as usize / 8))
}

const POWERS_OF_TEN: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Takes `0` off every byte and flags the bytes that are no digits; the lowest flag is exact.
#[inline(always)]
const fn until_decimal_end(word: u64) -> (u64, u64) {
    let left = word ^ ZEROS;
    (left, (((left & !HIGH_BITS) + 0x76 * ONES) | left) & HIGH_BITS)
}

/// Parses eight lower-case hexadecimal digits.
#[inline(always)]
pub(super) const fn eight_hex(word: u64) -> Option<u64> {
    // 1 for a letter, 0 for a digit, if it is one of them.
    let letter = (word >> 6) & ONES;
    let left = word.wrapping_sub(ZEROS).wrapping_sub(letter * (b'a' - b'0' - 10) as u64);
    // 10 and more exactly where there is a letter, and never more than 15.
    if ((left.wrapping_add(6 * ONES) ^ (letter << 4)) | left) & HIGH_NIBBLES == 0 {
        Some(value(left, 16))
    } else {
        None
    }
}

/// Parses the twelve lower-case hexadecimal digits that `text` begins with.
#[inline(always)]
pub(super) fn twelve_hex(text: &[u8]) -> Option<u64> {
    let (begin, end) = (eight_hex(load(text, 0)?)?, eight_hex(load(text, 4)?)?);
    Some(begin << 16 | end & 0xffff)
}

/// Parses the lower-case hexadecimal digits that `text` begins with: their value and number, which is
/// 1 to 16. A number of more digits looks as if it ended there.
pub(super) fn hex(text: &[u8]) -> Option<(u64, usize)> {
    let len = text.iter().take(16).take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
    let value = text[..len].iter().fold(0, |value, byte| {
        let digit = if byte.is_ascii_digit() { byte - b'0' } else { byte - b'a' + 10 };
        value << 4 | u64::from(digit)
    });
    (len > 0).then_some((value, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(text: &str) -> [u8; 24] {
        let mut bytes = [b','; 24];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    fn decimal_of(text: &str) -> Option<(u64, usize)> {
        decimal(load(&padded(text), 0)?, load(&padded(text), 8)?)
    }

    #[test]
    fn numbers_of_every_length_parse() {
        for len in 1..=16 {
            let text = &"9072345618905627"[..len];
            assert_eq!(decimal_of(text), text.parse().ok().map(|value| (value, len)).filter(|_| len < 16));
            let text = &"fe0123456789abcd"[..len];
            let value = u64::from_str_radix(text, 16).ok();
            assert_eq!(hex(&padded(text)), value.map(|value| (value, len)));
            assert_eq!(twelve_hex(&padded(text)).is_some(), len >= 12);
        }
        assert_eq!(twelve_hex(&padded("fe0123456789abcd")), Some(0xfe01_2345_6789));
        assert_eq!((decimal_of(""), hex(&padded("x"))), (None, None));
    }

    #[test]
    fn every_byte_is_told_apart_from_a_digit() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut bytes = *b"90909090";
                bytes[at] = byte;
                let (before, word) = (at, u64::from_le_bytes(bytes));
                let is_decimal = byte.is_ascii_digit();
                let is_hex = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                assert_eq!(Pattern::new(b"00000000").digits(word).is_some(), is_decimal, "{byte} at {at}");
                assert_eq!(eight_hex(word).is_some(), is_hex, "{byte} at {at}");
                let found = decimal(word, u64::from_le_bytes(*b",,,,,,,,")).map_or(0, |(_, len)| len);
                assert_eq!(found, if is_decimal { 8 } else { before }, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn a_pattern_matches_its_fixed_characters_exactly() {
        let pattern = Pattern::new(b".000000,");
        for (text, value) in [
            (b".412806,", Some(412_806)),
            (b".000000,", Some(0)),
            (b".999999,", Some(999_999)),
            (b":412806,", None),
            (b".412806-", None),
            (b"/412806,", None),
            (b".41280,,", None),
            (b".4128:6,", None),
        ] {
            let digits = pattern.digits(u64::from_le_bytes(*text));
            assert_eq!(digits.map(|digits| decimal_value(digits, 8)), value);
        }
        let short = Pattern::new(b"00,");
        let digits = short.digits(u64::from_le_bytes(*b"42,\xff\xff\0\xff9"));
        assert_eq!(digits.map(|digits| decimal_value(digits, 48)), Some(42));
    }

    proptest::proptest! {
        #[test]
        fn words_pass_exactly_if_each_byte_does(bytes in proptest::array::uniform8(0x29u8..0x6a)) {
            let word = u64::from_le_bytes(bytes);
            let text = str::from_utf8(&bytes).unwrap_or("");
            let plain = bytes.iter().all(u8::is_ascii_digit);
            assert_eq!(Pattern::new(b"00000000").digits(word).is_some(), plain);
            let lower = bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            assert_eq!(eight_hex(word), u64::from_str_radix(text, 16).ok().filter(|_| lower));
        }
    }
}
