//! Texts for terminals that show ASCII alone.

use std::borrow::Cow;

/// Characters that a locale can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode.
    Unicode,
    /// Nothing but ASCII.
    Ascii,
}

impl Charset {
    /// Returns the characters of a locale such as `C` or `de_DE.UTF-8`; Unicode if there is none.
    pub fn of_locale(locale: Option<&str>) -> Self {
        let is_utf8 = |locale: &str| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        };
        // Names without a charset, such as `de_DE`, are common and mostly mean UTF-8.
        let is_ascii = |locale: &str| matches!(locale, "C" | "POSIX") || locale.contains('.');
        match locale {
            Some(locale) if !is_utf8(locale) && is_ascii(locale) => Self::Ascii,
            _ => Self::Unicode,
        }
    }

    /// Replaces signs of our own by ASCII; names that come from data stay as they are.
    pub fn text(self, text: &str) -> Cow<'_, str> {
        if self == Self::Unicode || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut replaced = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                '≥' => replaced.push_str(">="),
                '≤' => replaced.push_str("<="),
                '…' => replaced.push_str("..."),
                '→' => replaced.push_str("->"),
                '←' => replaced.push_str("<-"),
                '↓' => replaced.push('v'),
                '×' => replaced.push('x'),
                'µ' => replaced.push('u'),
                '≈' => replaced.push('~'),
                '•' => replaced.push('*'),
                '–' | '—' | '─' => replaced.push('-'),
                '│' | '┤' | '├' => replaced.push('|'),
                '┌' | '┐' | '└' | '┘' | '┬' | '┴' | '┼' => replaced.push('+'),
                // Bars: parts of a cell below and above a half, and shades.
                '·' | '▁'..='▃' | '▍'..='▏' => replaced.push('.'),
                '▄'..='█' | '▉'..='▌' => replaced.push('#'),
                '░'..='▓' => replaced.push(':'),
                '‘' | '’' => replaced.push('\''),
                other => replaced.push(other),
            }
        }
        Cow::Owned(replaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_without_unicode_get_ascii() {
        for locale in [None, Some("C.UTF-8"), Some("en_US.utf8"), Some("de_DE")] {
            assert_eq!(Charset::of_locale(locale), Charset::Unicode, "{locale:?}");
        }
        for locale in ["C", "POSIX", "de_DE.ISO-8859-1"] {
            assert_eq!(Charset::of_locale(Some(locale)), Charset::Ascii, "{locale}");
        }
        assert_eq!(Charset::Ascii.text("≥ 5 µs … – é"), ">= 5 us ... - é", "names stay as they are");
        assert_eq!(Charset::Ascii.text("┤▁▂▃▄▅▆▇█│█▉▊▋▌▍▎▏░▒▓└─"), "|...#####|#####...:::+-");
        assert_eq!(Charset::Unicode.text("≥"), "≥");
    }
}
