//! Makes recorded text harmless in a terminal.

use std::borrow::Cow;

/// Returns `text` without characters that act on a terminal instead of being shown.
///
/// Line breaks and tabs become spaces; other control characters (those that start escape sequences
/// among them), marks that change the direction of text, and invisible characters are dropped.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| !is_active(c)) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some(' '),
        c if is_active(c) => None,
        c => Some(c),
    };
    Cow::Owned(text.chars().filter_map(shown).collect())
}

/// Whether a character does something other than show itself.
pub(crate) fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
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
    fn ordinary_text_of_any_script_stays_as_it_is() {
        for text in ["load (app.py:9)", "größe", "メモリ", "naïve 🦀", ""] {
            assert!(matches!(plain(text), Cow::Borrowed(same) if same == text));
        }
    }
}
