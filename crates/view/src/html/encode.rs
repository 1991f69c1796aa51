//! How figures and texts get into a page.
//!
//! A column is a list of whole numbers: differences to the one before, each as a zigzag varint, all of
//! it deflated (zlib) and written in base64. `web/src/columns.ts` reads it with what browsers have.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use crate::plain::plain;
use crate::plot::svg::escape;

/// Encodes a column.
pub(super) fn column(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut bytes = Vec::new();
    let mut before = 0i64;
    for number in numbers {
        let difference = number.wrapping_sub(before);
        before = number;
        let mut zigzag = ((difference << 1) ^ (difference >> 63)) as u64;
        while zigzag >= 0x80 {
            bytes.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        bytes.push(zigzag as u8);
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes).expect("memory takes all that is written");
    base64(&encoder.finish().expect("memory takes all that is written"))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// JSON that can stand in a script element: nothing in it can end the element or begin a comment.
pub(crate) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("the document has no keys that are not texts");
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Outside of texts JSON has none of these.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Text as it stands in HTML, in attributes too.
pub(super) fn text(text: &str) -> String {
    escape(&plain(text))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    fn decode(text: &str) -> Vec<i64> {
        let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte).unwrap_or(0) as u32;
        let mut deflated = Vec::new();
        for chunk in text.as_bytes().chunks(4) {
            let group = chunk.iter().fold(0, |group, byte| group << 6 | digit(*byte));
            let padding = chunk.iter().rev().take_while(|byte| **byte == b'=').count();
            deflated.extend_from_slice(&group.to_be_bytes()[1..4 - padding]);
        }
        let mut bytes = Vec::new();
        ZlibDecoder::new(&deflated[..]).read_to_end(&mut bytes).expect("it is deflated");
        let (mut numbers, mut zigzag, mut shift, mut before) = (Vec::new(), 0u64, 0, 0i64);
        for byte in bytes {
            zigzag |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                before = before.wrapping_add((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
                numbers.push(before);
                (zigzag, shift) = (0, 0);
            }
        }
        numbers
    }

    #[test]
    fn a_column_reads_as_it_was_written() {
        for numbers in [vec![], vec![0], vec![5, -3, i64::MAX, i64::MIN, 0, 1 << 40], (0..1000).collect()] {
            assert_eq!(decode(&column(numbers.iter().copied())), numbers);
        }
    }

    #[test]
    fn bytes_are_written_as_the_standard_says() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }

    #[test]
    fn no_text_ends_a_script() {
        let text = "</script><!--<script>&\u{2028}\"'";
        let safe = json(&text);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).expect("it is JSON"), text);
        assert_eq!(super::text("<a href=\"x\">&'\x1b"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
