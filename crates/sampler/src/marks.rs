//! Marks: lines of a command's output that show what the command is doing.
//!
//! Output arrives in pieces of any size, so a line may have to be put together from several of them. A
//! mark is searched for in the first 64 KiB of a line, which bounds the memory for output without line
//! ends. The last line needs no line end. Bytes that are not UTF-8 are matched as U+FFFD.

use std::borrow::Cow;

use memchr::memchr;
use regex::Regex;

use crate::error::{Error, Result};

/// Bytes of a line that are searched.
const LINE_BYTES: usize = 64 << 10;
/// Bytes of the name of a mark.
const NAME_BYTES: usize = 256;

/// Patterns of lines, with the names of the marks they stand for.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
}

#[derive(Clone, Debug)]
struct Mark {
    regex: Regex,
    /// Template of the name; none if the name is the matched text.
    name: Option<String>,
}

impl Marks {
    /// Creates a list without patterns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a regular expression, which may match anywhere in a line.
    ///
    /// The mark gets `name`, in which `$1` or `${word}` stands for the text of a group. Without a name it
    /// is called like the text that the pattern matched.
    ///
    /// # Errors
    /// [`Error::Pattern`] if the pattern is not a regular expression.
    pub fn add(&mut self, pattern: &str, name: Option<&str>) -> Result<()> {
        let regex = Regex::new(pattern)
            .map_err(|error| Error::Pattern { pattern: pattern.to_owned(), message: reason(&error) })?;
        self.marks.push(Mark { regex, name: name.map(str::to_owned) });
        Ok(())
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    fn find(&self, line: &[u8], mut found: impl FnMut(&str)) {
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        for Mark { regex, name } in &self.marks {
            let name = match name {
                None => match regex.find(&line) {
                    Some(matched) => Cow::Borrowed(matched.as_str()),
                    None => continue,
                },
                Some(template) => match regex.captures(&line) {
                    Some(groups) => {
                        let mut name = String::new();
                        groups.expand(template, &mut name);
                        Cow::Owned(name)
                    }
                    None => continue,
                },
            };
            found(&name[..name.floor_char_boundary(NAME_BYTES)]);
        }
    }
}

/// The reason why a pattern is refused, in one line; a syntax error is reported with the pattern and a
/// pointer below it, on several.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Cuts one stream into lines and finds marks in them.
pub(crate) struct Lines<'a> {
    marks: &'a Marks,
    /// Start of a line whose end has not been read yet, at most [`LINE_BYTES`].
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
        while let Some(end) = memchr(b'\n', rest) {
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

    /// Ends the last line, because its stream has ended.
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
    fn a_mark_is_named_by_its_template_or_by_what_matched() {
        let names = |pattern: &str, name: Option<&str>, line: &str| {
            let mut marks = Marks::new();
            marks.add(pattern, name).unwrap();
            let mut found = Vec::new();
            marks.find(line.as_bytes(), |name| found.push(name.to_owned()));
            found
        };
        let line = "  3 Nonlinear |R| = 1.5e-3";
        assert_eq!(names(r"^ *(\d+) Nonlinear", Some("step $1"), line), ["step 3"]);
        assert_eq!(names(r"(?<n>\d+) Nonlinear", Some("${n}th step"), line), ["3th step"]);
        assert_eq!(names(r"\d+ (?i)nonlinear", None, line), ["3 Nonlinear"]);
        assert!(names("linear$", None, line).is_empty());
        assert_eq!(names("é+.", None, "xéé!"), ["éé!"]);
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let error = Marks::new().add("(", None).unwrap_err();
        assert_eq!(error.to_string(), "the pattern '(' is wrong: unclosed group");
    }
}
