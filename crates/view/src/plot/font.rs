//! The one font that pictures are set in, and how wide its characters are.
//!
//! It is a part of `DejaVu Sans`, whose characters are as wide as Verdana's, so that an SVG looks the same
//! where either is installed. Widths are read from the font itself, which is ours: nothing in it is
//! untrusted, and a table that is not as expected makes every character as wide as a digit.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The font file.
pub static FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// What SVG and HTML call it, with those that may stand for it.
pub const FAMILY: &str = "DejaVu Sans, Verdana, Geneva, sans-serif";

/// Units in which the font measures, per size of one.
pub const UNITS: f64 = 2048.0;

/// Width of a digit, in units.
const DIGIT: u16 = 1303;

/// A character as the font has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyph {
    /// Its number in the font; 0 for a character the font does not have.
    pub number: u16,
    /// How far it moves on, in units.
    pub advance: u16,
}

static GLYPHS: LazyLock<HashMap<char, Glyph>> = LazyLock::new(|| read().unwrap_or_default());

/// Returns the glyph of a character.
pub fn glyph(c: char) -> Glyph {
    // What the font does not have is drawn from another one; most of those are as wide as high.
    let foreign = || {
        let advance = if u32::from(c) >= 0x2e80 { UNITS as u16 } else { DIGIT };
        Glyph { number: 0, advance }
    };
    GLYPHS.get(&c).copied().unwrap_or_else(foreign)
}

/// How wide `text` is at a size.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| f64::from(glyph(c).advance)).sum::<f64>() / UNITS * size
}

/// Cuts `text` to a width; what is cut ends in `…`. Empty if not even three characters fit.
pub fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let room = room - width("…", size);
    let (mut used, mut kept) = (0.0, String::new());
    for c in text.chars() {
        used += f64::from(glyph(c).advance) / UNITS * size;
        if used > room {
            break;
        }
        kept.push(c);
    }
    let kept = kept.trim_end();
    if kept.chars().count() < 2 { String::new() } else { format!("{kept}…") }
}

/// Cuts a name to a width, in its middle: names of files and processes that begin alike often differ at the
/// end. Empty if not even three characters fit.
pub fn fit_name(text: &str, size: f64, room: f64) -> String {
    let begin = fit(text, size, room);
    let kept = begin.chars().count().saturating_sub(1);
    // Whole, or too short for two ends that say something.
    if begin == text || kept < 8 {
        return begin;
    }
    let all: Vec<char> = text.chars().collect();
    let head: String = all[..kept - kept / 2].iter().collect();
    // Letters differ in width: as many of the last as have room.
    (1..=kept / 2)
        .rev()
        .map(|tail| {
            format!("{}…{}", head.trim_end(), String::from_iter(&all[all.len() - tail..]).trim_start())
        })
        .find(|cut| width(cut, size) <= room)
        .unwrap_or(begin)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Finds a table of the font.
fn table(name: [u8; 4]) -> Option<&'static [u8]> {
    let count = usize::from(u16_at(FONT, 4)?);
    let record = (0..count).map(|at| 12 + 16 * at).find(|at| FONT.get(*at..at + 4) == Some(&name[..]))?;
    let (offset, length) = (u32_at(FONT, record + 8)?, u32_at(FONT, record + 12)?);
    FONT.get(offset..offset + length)
}

/// Reads which character is which glyph, and how wide glyphs are.
fn read() -> Option<HashMap<char, Glyph>> {
    let widths = table(*b"hmtx")?;
    let wide = usize::from(u16_at(table(*b"hhea")?, 34)?);
    let advance = |glyph: u16| u16_at(widths, 4 * usize::from(glyph).min(wide.saturating_sub(1)));
    let cmap = table(*b"cmap")?;
    let count = usize::from(u16_at(cmap, 2)?);
    let of_unicode = |at: &usize| u16_at(cmap, 4 + 8 * at) == Some(3) && u16_at(cmap, 6 + 8 * at) == Some(1);
    let map = cmap.get(u32_at(cmap, 8 + 8 * (0..count).find(of_unicode)?)?..)?;
    if u16_at(map, 0)? != 4 {
        return None;
    }
    let segments = usize::from(u16_at(map, 6)?) / 2;
    let mut glyphs = HashMap::new();
    for segment in 0..segments {
        let column =
            |number: usize| 14 + 2 * segments * number + 2 * segment + if number > 0 { 2 } else { 0 };
        let (end, start) = (u16_at(map, column(0))?, u16_at(map, column(1))?);
        let (delta, offset) = (u16_at(map, column(2))?, u16_at(map, column(3))?);
        for code in start..=end {
            let number = if offset == 0 {
                code.wrapping_add(delta)
            } else {
                let at = column(3) + usize::from(offset) + 2 * usize::from(code - start);
                u16_at(map, at)?.wrapping_add(delta)
            };
            if let Some(c) = char::from_u32(u32::from(code)).filter(|_| number != 0 && code != 0xffff) {
                glyphs.insert(c, Glyph { number, advance: advance(number)? });
            }
        }
    }
    Some(glyphs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_labels_need() {
        for c in "0123456789 BKMGTPEiµs:.,-–…()+%ÄéλЖ→≥×".chars() {
            assert_ne!(glyph(c).number, 0, "{c}");
        }
        assert_eq!(glyph('0').advance, DIGIT);
        assert!(glyph('W').advance > 2 * glyph('i').advance);
        assert_eq!((glyph('漢').number, glyph('漢').advance), (0, 2048));
    }

    #[test]
    fn text_is_cut_to_its_room() {
        assert_eq!(fit("short", 10.0, 100.0), "short");
        let cut = fit("a long line of output", 10.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 60.0, "{cut}");
        assert_eq!(fit("anything", 10.0, 8.0), "");
    }

    #[test]
    fn names_keep_both_ends() {
        assert_eq!(fit_name("short", 10.0, 100.0), "short");
        let names = ["a_log_of_the_same_long_beginning_1.csv", "a_log_of_the_same_long_beginning_2.csv"];
        let [one, other] = names.map(|name| fit_name(name, 10.0, 100.0));
        assert!(one.starts_with("a_log") && one.ends_with("1.csv") && one != other, "{one} {other}");
        assert!(width(&one, 10.0) <= 100.0 && width(&other, 10.0) <= 100.0);
        assert_eq!(fit_name("anything else", 10.0, 30.0), fit("anything else", 10.0, 30.0));
        assert_eq!(fit_name("anything", 10.0, 8.0), "");
    }
}
