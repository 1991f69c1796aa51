//! Marks: lines of the output that say what the program is doing.
//!
//! Output is cut into lines wherever it was read; bytes that are no text match as the replacement
//! character. Only the first 64 KiB of a line are looked at, so that output without lines stays within
//! bounds. A line without an end counts when the stream ends.
//!
//! The engine of regular expressions is small rather than fast. Most patterns have some words in them
//! that a line must have, and only lines that do are shown to it: a hundred times faster.

use std::borrow::Cow;

use regex_lite::Regex;

use crate::error::{Error, Result};
use crate::sys::search;

/// Longest part of a line that is looked at.
const LINE_BYTES: usize = 64 << 10;
/// Longest name of a mark.
const NAME_BYTES: usize = 256;

/// Patterns of lines, and what to call them.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
}

#[derive(Clone, Debug)]
struct Mark {
    regex: Regex,
    name: Option<String>,
    /// What a line must have to match; empty where nothing is known.
    needed: String,
}

impl Marks {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pattern: a regular expression that is looked for anywhere in a line.
    ///
    /// The mark is called `name`, in which `$1` or `${word}` stands for what a group matched; without
    /// a name it is called what the pattern matched.
    ///
    /// # Errors
    /// [`Error::Pattern`] if the pattern is no regular expression.
    pub fn add(&mut self, pattern: &str, name: Option<&str>) -> Result<()> {
        let regex = Regex::new(pattern)
            .map_err(|error| Error::Pattern { pattern: pattern.to_owned(), message: error.to_string() })?;
        self.marks.push(Mark { regex, name: name.map(str::to_owned), needed: needed(pattern) });
        Ok(())
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    fn find(&self, line: &[u8], mut found: impl FnMut(&str)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let may_match = |mark: &&Mark| search::contains(line, mark.needed.as_bytes());
        for Mark { regex, name, .. } in self.marks.iter().filter(may_match) {
            let text = String::from_utf8_lossy(line);
            let Some(groups) = regex.captures(&text) else { continue };
            let matched = groups.get(0).map_or("", |whole| whole.as_str());
            let name = match name {
                None => Cow::Borrowed(matched),
                Some(template) => {
                    let mut name = String::new();
                    groups.expand(template, &mut name);
                    Cow::Owned(name)
                }
            };
            found(&name[..name.floor_char_boundary(NAME_BYTES)]);
        }
    }
}

/// The longest text that everything has which a pattern matches; empty if none is sure.
///
/// Only what is outside of groups, classes and repetitions counts, and nothing if there are
/// alternatives or flags.
fn needed(pattern: &str) -> String {
    let mut longest = String::new();
    let mut run = String::new();
    let mut depth = 0;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        let literal = match character {
            '|' => return String::new(),
            '(' => {
                depth += 1;
                // A name or nothing may follow; anything else is a flag, which can change everything.
                if characters.next_if_eq(&'?').is_some()
                    && !matches!(characters.next(), Some(':' | 'P' | '<'))
                {
                    return String::new();
                }
                None
            }
            ')' => {
                depth -= 1;
                None
            }
            '[' => {
                skip_class(&mut characters);
                None
            }
            '{' => {
                characters.by_ref().find(|character| *character == '}');
                None
            }
            '\\' => match characters.next() {
                Some(escaped) if !escaped.is_ascii_alphanumeric() => Some(escaped),
                // These have an argument, which must not be taken for text.
                Some('x' | 'u' | 'U' | 'p' | 'P' | 'b') => return String::new(),
                // Classes and anchors.
                _ => None,
            },
            '.' | '^' | '$' | '*' | '+' | '?' => None,
            other => Some(other),
        };
        let is_optional = matches!(characters.peek(), Some('*' | '?' | '{'));
        match literal {
            Some(literal) if depth == 0 && !is_optional => run.push(literal),
            _ => {
                longest = longer(longest, &mut run);
            }
        }
    }
    longer(longest, &mut run)
}

fn longer(longest: String, run: &mut String) -> String {
    let run = std::mem::take(run);
    if run.len() > longest.len() { run } else { longest }
}

/// Skips to the end of a class, of which the beginning was read.
fn skip_class(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    characters.next_if_eq(&'^');
    characters.next_if_eq(&']');
    let mut depth = 1;
    while depth > 0 {
        match characters.next() {
            None => return,
            Some('\\') => drop(characters.next()),
            Some('[') => depth += 1,
            Some(']') => depth -= 1,
            Some(_) => {}
        }
    }
}

/// Cuts one stream into lines and finds marks in them.
pub(crate) struct Lines<'a> {
    marks: &'a Marks,
    /// The front of a line whose end was not read yet.
    begun: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(marks: &'a Marks) -> Self {
        Self { marks, begun: Vec::new() }
    }

    /// Calls `found` with the name of each mark in the lines that end in `bytes`.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(&str)) {
        if self.marks.is_empty() {
            return;
        }
        let mut rest = bytes;
        while let Some(end) = search::find_byte(rest, b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.begun.is_empty() {
                self.marks.find(&line[..line.len().min(LINE_BYTES)], &mut found);
            } else {
                self.keep(line);
                self.finish(&mut found);
            }
        }
        self.keep(rest);
    }

    /// The stream ended, and with it its last line.
    pub(crate) fn finish(&mut self, found: impl FnMut(&str)) {
        if !self.begun.is_empty() {
            self.marks.find(&self.begun, found);
            self.begun.clear();
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES - self.begun.len();
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pieces: &[&[u8]]) -> Vec<String> {
        let mut marks = Marks::new();
        marks.add(r"nonlinear step (\d+)", Some("step $1")).unwrap();
        marks.add("phase [a-z]+", None).unwrap();
        let mut lines = Lines::new(&marks);
        let mut found = Vec::new();
        for piece in pieces {
            lines.feed(piece, |name| found.push(name.to_owned()));
        }
        lines.finish(|name| found.push(name.to_owned()));
        found
    }

    #[test]
    fn lines_are_found_wherever_they_were_cut() {
        let text = b" 0 nonlinear step 12 |R| = 1e-3\r\nnothing\nphase two: nonlinear step 13\n\nphase end";
        let expected = ["step 12", "step 13", "phase two", "phase end"];
        assert_eq!(marks(&[text]), expected);
        for at in 0..text.len() {
            let (front, back) = text.split_at(at);
            assert_eq!(marks(&[front, back]), expected, "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(marks(&bytes), expected);
    }

    #[test]
    fn bytes_and_endless_lines_do_no_harm() {
        assert_eq!(marks(&[b"\xff\xfe phase x\xff\n"]), ["phase x"]);
        let long = vec![b'x'; 3 * LINE_BYTES];
        assert_eq!(marks(&[&long, b"phase lost\nphase kept\n"]), ["phase kept"]);
        let name = "y".repeat(2 * NAME_BYTES);
        assert_eq!(marks(&[b"phase ", name.as_bytes()])[0].len(), NAME_BYTES);
    }

    #[test]
    fn what_a_line_must_have_is_seen_in_the_pattern() {
        let cases = [
            ("Nonlinear step [0-9]+", "Nonlinear step "),
            (r"^ *\d+ Nonlinear \|R\| = (.*)$", " Nonlinear |R| = "),
            ("colou?r", "colo"),
            ("a{0}bc", "bc"),
            ("ab+cd", "ab"),
            ("(step) [x] y", " y"),
            ("[]a-z]end", "end"),
            ("[^]]end", "end"),
            ("[[:alpha:]x]q", "q"),
            ("one|two", ""),
            ("(?i)step", ""),
            (r"step (?<n>\d+) of (?P<all>\d+)", "step "),
            (r"\wword\s", "word"),
            (r"\x41bc", ""),
            ("", ""),
        ];
        for (pattern, expected) in cases {
            assert_eq!(needed(pattern), expected, "{pattern}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4096))]
        #[test]
        fn whatever_matches_has_what_is_needed(
            pattern in r"([ab1]|\[\]?[ab^]{1,2}\]|[()|*+?.^$]|\{1,2\}|\\[dwx.\\])*",
            line in "[ab1.]{0,12}",
        ) {
            if let Ok(regex) = Regex::new(&pattern)
                && regex.is_match(&line)
            {
                proptest::prop_assert!(line.contains(&needed(&pattern)), "{}", needed(&pattern));
            }
        }
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let error = Marks::new().add("(", None).unwrap_err();
        assert!(error.to_string().starts_with("the pattern '(' is wrong: "), "{error}");
    }
}
