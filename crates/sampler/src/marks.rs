//! Marks: lines of the output that say what the program is doing.
//!
//! Output is cut into lines wherever it was read; bytes that are no text match as the replacement
//! character. Only the first 64 KiB of a line are looked at, so that output without lines stays within
//! bounds. A line without an end counts when the stream ends.

use std::borrow::Cow;

use regex_lite::Regex;

use crate::error::{Error, Result};

/// Longest part of a line that is looked at.
const LINE_BYTES: usize = 64 << 10;
/// Longest name of a mark.
const NAME_BYTES: usize = 256;

/// Patterns of lines, and what to call them.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    marks: Vec<(Regex, Option<String>)>,
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
        self.marks.push((regex, name.map(str::to_owned)));
        Ok(())
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    fn find(&self, line: &[u8], mut found: impl FnMut(&str)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(line);
        for (regex, name) in &self.marks {
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
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
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
    fn a_bad_pattern_is_named() {
        let error = Marks::new().add("(", None).unwrap_err();
        assert!(error.to_string().starts_with("the pattern '(' is wrong: "), "{error}");
    }
}
