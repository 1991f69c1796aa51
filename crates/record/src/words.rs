//! Splits a command line into words as a shell does, without interpreting them.
//!
//! Blanks separate words; quotes and backslashes keep them together. Variables, patterns, pipes and the like
//! stand for themselves, and so does `#`, as in Python's `shlex.split`, which the script `memory_logger`
//! uses: the crate `shlex` would silently drop the rest of the line.

/// Splits a line into words.
///
/// # Errors
/// The reason in words: a quote that is not closed, or nothing after a backslash.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\'' => take_quoted(&mut chars, '\'', word.get_or_insert_default())?,
            '"' => take_quoted(&mut chars, '"', word.get_or_insert_default())?,
            '\\' => match chars.next() {
                // The line continues on the next one.
                Some('\n') => {}
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err("it ends in a backslash".into()),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn take_quoted(chars: &mut std::str::Chars<'_>, quote: char, word: &mut String) -> Result<(), String> {
    loop {
        match chars.next() {
            None => return Err(format!("a quote ({quote}) is not closed")),
            Some(c) if c == quote => return Ok(()),
            Some('\\') if quote == '"' => match chars.next() {
                Some('\n') => {}
                Some(next @ ('"' | '\\' | '$' | '`')) => word.push(next),
                Some(next) => word.extend(['\\', next]),
                None => return Err("it ends in a backslash".into()),
            },
            Some(c) => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::text::shell_word;

    use super::*;

    #[test]
    fn quoted_words_are_read_as_they_were() {
        for word in ["plain-1.0", "", "a b", "it's", "'", "\"$x\"", "a\\b", "\n", "~/é;|&"] {
            assert_eq!(words(&shell_word(word)).unwrap(), [word]);
        }
    }

    #[test]
    fn blanks_separate_and_quotes_keep_together() {
        let cut = |line| words(line).unwrap();
        assert_eq!(cut("  a  b\tc\n"), ["a", "b", "c"]);
        assert_eq!(cut(r#"echo 'a b' "c 'd'" e\ f"#), ["echo", "a b", "c 'd'", "e f"]);
        assert_eq!(
            cut(r#"x'y'"z" '' """#),
            ["xyz", "", ""][..2].iter().chain(&[""]).copied().collect::<Vec<_>>()
        );
        assert_eq!(cut(r#""a\"b\\c\$d\n" 'a\b'"#), [r#"a"b\c$d\n"#, r"a\b"]);
        assert_eq!(cut("a $HOME *.c | b > c # d"), ["a", "$HOME", "*.c", "|", "b", ">", "c", "#", "d"]);
        assert_eq!(cut("a\\\nb"), ["ab"]);
        assert!(cut("").is_empty());
    }

    #[test]
    fn what_is_not_closed_is_said() {
        assert_eq!(words("echo 'a").unwrap_err(), "a quote (') is not closed");
        assert_eq!(words("echo \"a\\").unwrap_err(), "it ends in a backslash");
        assert_eq!(words("a\\").unwrap_err(), "it ends in a backslash");
    }
}
