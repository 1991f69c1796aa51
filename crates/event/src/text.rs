//! Text from outside: characters that act on a terminal, and words that a shell would take apart.

use std::borrow::Cow;

/// Whether a character does something other than show itself: it controls a terminal, turns the direction of
/// writing, or hides.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A word as it must be typed into a shell: as it is where that is safe, else in single quotes.
///
/// The characters that stay unquoted are those that mean nothing to a shell within a word. (The crate `shlex`
/// would also quote `=`, `,` and `%`, which every other option has in it.)
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// A command line as it must be typed into a shell.
pub fn shell_line<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&shell_word(word.as_ref()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        for plain in ["--rate=1/2", "./a.out", "user@host:22", "50%", "größe"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("~/x"), "'~/x'");
        assert_eq!(shell_word("it's\n"), "'it'\\''s\n'");
        assert_eq!(shell_line(["echo", "$HOME", "", "--n=1"]), "echo '$HOME' '' --n=1");
    }
}
