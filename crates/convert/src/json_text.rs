//! Strings of JSON in which nothing acts on a terminal.

use std::fmt::Write as _;

use floodmark_event::text::is_active;

/// `text` in quotes. Characters that JSON allows but that act on a terminal are escaped, so the value stays
/// the same.
pub(crate) fn json_string(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned());
    if !json.chars().any(is_active) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_active(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_and_nothing_acts() {
        for text in ["plain", "a\"b\\", "\0\x1b[31m\u{202e}\u{9b}\u{e0041}", "メモリ 🦀"] {
            let json = json_string(text);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            assert!(!json.chars().any(is_active), "{json}");
        }
    }
}
