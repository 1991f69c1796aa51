//! Text from files as it appears in messages: in quotes, escaped and short, because it is not known what
//! it does to a terminal.

const SHOWN_MAX: usize = 60;

/// Returns `text` in single quotes, with everything but printable ASCII escaped and at most 60
/// characters of it.
pub(crate) fn quoted(text: &[u8]) -> String {
    let mut shown: String =
        text.iter().take(SHOWN_MAX + 1).map(|byte| byte.escape_ascii().to_string()).collect();
    if shown.len() > SHOWN_MAX {
        // What is escaped is ASCII, so any place is a boundary.
        shown.truncate(SHOWN_MAX);
        shown.push('…');
    }
    format!("'{shown}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_escaped_and_short() {
        assert_eq!(quoted(b"a\x1b[31m\n\xff'"), r"'a\x1b[31m\n\xff\''");
        assert_eq!(quoted(&[b'x'; 1000]).chars().count(), 63);
        assert_eq!(quoted(&[b'x'; 60]).chars().count(), 62);
    }
}
