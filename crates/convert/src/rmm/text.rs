//! Numbers as text, eight digits at a time, and rows put together from pieces of fixed size.
//!
//! A piece is always copied as a whole, with bytes of no meaning behind its text; the next piece
//! overwrites them. That makes every copy one of a size known to the compiler.
#![expect(clippy::inline_always, reason = "a row takes 20 ns; a call per field would be felt")]

const ONES: u64 = 0x0101_0101_0101_0101;
const ZEROS: u64 = b'0' as u64 * ONES;

/// A text of up to 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    bytes: [u8; 24],
    len: usize,
}

impl Text {
    /// Takes what `write` puts into an empty row; more than 24 bytes are cut.
    pub(super) fn of(write: impl FnOnce(&mut Row)) -> Self {
        let mut bytes = [0; ROW_BYTES];
        let mut row = Row::new(&mut bytes);
        write(&mut row);
        let len = row.len().min(24);
        let mut text = Self { bytes: [0; 24], len };
        text.bytes[..len].copy_from_slice(&bytes[..len]);
        text
    }
}

/// Room that a row must have: its text, which is not longer than 116 bytes, and a piece.
pub(super) const ROW_BYTES: usize = 192;

/// A row being written.
#[derive(Debug)]
pub(super) struct Row<'a> {
    bytes: &'a mut [u8; ROW_BYTES],
    len: usize,
}

impl<'a> Row<'a> {
    pub(super) fn new(bytes: &'a mut [u8; ROW_BYTES]) -> Self {
        Self { bytes, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts the first `len` bytes of `piece`.
    #[inline(always)]
    fn put_part<const N: usize>(&mut self, piece: &[u8; N], len: usize) {
        self.bytes[self.len..self.len + N].copy_from_slice(piece);
        self.len += len;
    }

    #[inline(always)]
    pub(super) fn put<const N: usize>(&mut self, piece: &[u8; N]) {
        self.put_part(piece, N);
    }

    #[inline(always)]
    pub(super) fn put_text(&mut self, text: &Text) {
        self.put_part(&text.bytes, text.len);
    }

    /// Puts a decimal number.
    #[inline(always)]
    pub(super) fn put_decimal(&mut self, value: u64) {
        const EIGHT: u64 = 100_000_000;
        if value < EIGHT {
            self.put_short_decimal(value);
            return;
        }
        let (begin, end) = (value / EIGHT, value % EIGHT);
        if begin < EIGHT {
            self.put_short_decimal(begin);
        } else {
            self.put_short_decimal(begin / EIGHT);
            self.put(&(eight_digits(begin % EIGHT) | ZEROS).to_le_bytes());
        }
        self.put(&(eight_digits(end) | ZEROS).to_le_bytes());
    }

    /// Puts a number below 100,000,000 without leading zeros.
    #[inline(always)]
    fn put_short_decimal(&mut self, value: u64) {
        let digits = eight_digits(value);
        let skip = (digits.trailing_zeros() / 8).min(7);
        let text = (digits | ZEROS) >> (8 * skip);
        self.put_part(&text.to_le_bytes(), 8 - skip as usize);
    }

    /// Puts six digits of a number below 1,000,000, and `after`.
    #[inline(always)]
    pub(super) fn put_six_digits(&mut self, value: u64, after: u8) {
        let text = (eight_digits(value) | ZEROS) >> 16 | u64::from(after) << 48;
        self.put_part(&text.to_le_bytes(), 7);
    }

    /// Puts two digits of a number below 100.
    pub(super) fn put_two_digits(&mut self, value: u64) {
        self.put(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]);
    }

    /// Puts a lower-case hexadecimal number.
    #[inline(always)]
    pub(super) fn put_hex(&mut self, value: u64) {
        let text = u128::from(eight_hex_digits(value >> 32)) | u128::from(eight_hex_digits(value)) << 64;
        let skip = ((value | 1).leading_zeros() / 4) as usize;
        self.put_part(&(text >> (8 * skip)).to_le_bytes(), 16 - skip);
    }
}

/// The eight digits of a number below 100,000,000, one byte each, the first in the lowest.
#[inline(always)]
const fn eight_digits(value: u64) -> u64 {
    // Each step splits every number in the word into its upper and lower half; the factors and shifts
    // divide exactly in the range of the numbers.
    let fours = (value / 10_000) | (value % 10_000) << 32;
    let upper = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = upper | (fours - upper * 100) << 16;
    let upper = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    upper | (twos - upper * 10) << 8
}

/// The text of the lower 32 bits in eight hexadecimal digits.
#[inline(always)]
const fn eight_hex_digits(value: u64) -> u64 {
    let bytes = (value as u32).swap_bytes() as u64;
    let twos = (bytes | bytes << 16) & 0x0000_ffff_0000_ffff;
    let ones = (twos | twos << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (ones >> 4 | ones << 8) & (0x0f * ONES);
    let letters = ((nibbles + 6 * ONES) >> 4) & ONES;
    nibbles + ZEROS + letters * (b'a' - b'0' - 10) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Row)) -> String {
        let mut bytes = [0; ROW_BYTES];
        let mut row = Row::new(&mut bytes);
        write(&mut row);
        let len = row.len();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn every_number_of_up_to_eight_digits_splits_into_its_digits() {
        for value in (0..10_000).chain((0..100_000_000).step_by(9973)).chain([99_999_999]) {
            let text = String::from_utf8_lossy(&(eight_digits(value) | ZEROS).to_le_bytes()).into_owned();
            assert_eq!(text, format!("{value:08}"));
        }
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        let mut value = u64::MAX;
        loop {
            for value in [value, value.wrapping_add(1), value / 10 * 10, value.reverse_bits()] {
                assert_eq!(written(|row| row.put_decimal(value)), value.to_string());
                assert_eq!(written(|row| row.put_hex(value)), format!("{value:x}"));
            }
            if value == 0 {
                break;
            }
            value /= 3;
        }
        assert_eq!(written(|row| row.put_six_digits(1023, b',')), "001023,");
        assert_eq!(written(|row| row.put_two_digits(7)), "07");
    }
}
