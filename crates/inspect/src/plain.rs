//! Makes recorded text harmless in a terminal.

use std::borrow::Cow;

use floodmark_event::text::is_active;
use unicode_width::UnicodeWidthChar as _;

/// Marks that may stand on one letter. Writing needs three or four; hundreds cover the lines around.
const MARKS: usize = 8;

/// Returns `text` without characters that act on a terminal instead of being shown.
///
/// Line breaks and tabs become spaces; other control characters (those that start escape sequences
/// among them), marks that change the direction of text, and invisible characters are dropped, and so
/// are more marks on a letter than any writing has.
pub fn plain(text: &str) -> Cow<'_, str> {
    let mut pile = Pile::default();
    if text.chars().all(|c| !is_active(c) && pile.has_room(c)) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some(' '),
        c if is_active(c) => None,
        c => Some(c),
    };
    let mut pile = Pile::default();
    Cow::Owned(text.chars().filter_map(shown).filter(|c| pile.has_room(*c)).collect())
}

/// Counts the marks on a letter.
#[derive(Default)]
struct Pile(usize);

impl Pile {
    fn has_room(&mut self, c: char) -> bool {
        self.0 = if c.is_ascii() || c.width() != Some(0) { 0 } else { self.0 + 1 };
        self.0 <= MARKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_line_breaks_lose_their_power() {
        assert_eq!(plain("\x1b[2J\x1b[31mred\x1b[0m"), "[2J[31mred[0m");
        assert_eq!(plain("\x1b]0;title\x07name"), "]0;titlename");
        assert_eq!(plain("\u{9b}31mred"), "31mred");
        assert_eq!(plain("one\ntwo\r\nthree\tfour\0\x7f\x08"), "one two  three four");
    }

    #[test]
    fn text_cannot_be_reordered_or_hidden() {
        assert_eq!(plain("\u{202e}evil\u{202c} \u{2066}x\u{2069}\u{200f}"), "evil x");
        assert_eq!(plain("a\u{200b}b\u{feff}c\u{e0041}d"), "abcd");
    }

    #[test]
    fn marks_do_not_pile_up() {
        let flood = format!("z{}a{}", "\u{301}".repeat(500), "\u{300}\u{323}");
        assert_eq!(plain(&flood), format!("z{}a\u{300}\u{323}", "\u{301}".repeat(MARKS)));
    }

    #[test]
    fn ordinary_text_of_any_script_stays_as_it_is() {
        for text in ["load (app.py:9)", "größe", "メモリ", "naïve 🦀", ""] {
            assert!(matches!(plain(text), Cow::Borrowed(same) if same == text));
        }
    }
}
