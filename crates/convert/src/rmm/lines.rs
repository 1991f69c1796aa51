//! Whole lines out of any input, read in blocks into one buffer.
//!
//! Resident memory does not grow with the input, and pipes work like files. The buffer holds whole
//! lines in `at..whole_end`, then up to `end` the beginning of the next line, then at least [`WINDOW`]
//! bytes of no meaning, so that the parser of usual rows needs no care at the end of a line.

use std::io::{self, ErrorKind, Read};

use super::usual::WINDOW;
use crate::line_end::LineEnd;

/// How much is read at a time: few enough bytes that they are still in the second-level cache when
/// they are parsed. The fuzzer has small limits, so that it is fast and meets them.
const BLOCK_BYTES: usize = if cfg!(fuzzing) { 512 } else { 256 << 10 };

/// A longer line is passed over instead of being held in memory.
pub(super) const LINE_BYTES_MAX: usize = if cfg!(fuzzing) { 256 } else { 1 << 20 };

/// What [`Lines::more`] came upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// At least one whole line.
    Lines,
    /// A line that is too long. It was passed over.
    LongLine,
    /// The end, after a line that has none.
    Unfinished,
    /// The end.
    End,
}

/// A block of text: whole lines up to `whole_end`, then up to `end` a last line without an end, then at least
/// [`WINDOW`] bytes of no meaning.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) buffer: Vec<u8>,
    pub(super) whole_end: usize,
    pub(super) end: usize,
}

/// The buffer and what it is filled from.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    at: usize,
    whole_end: usize,
    end: usize,
    read_bytes: u64,
    is_at_end: bool,
    is_in_long_line: bool,
    line_end: LineEnd,
}

impl<R: Read> Lines<R> {
    pub(super) fn of(input: R) -> Self {
        let buffer = vec![0; BLOCK_BYTES + WINDOW];
        Self {
            input,
            buffer,
            at: 0,
            whole_end: 0,
            end: 0,
            read_bytes: 0,
            is_at_end: false,
            is_in_long_line: false,
            line_end: LineEnd::default(),
        }
    }

    /// Returns the lines of a block, which nothing follows.
    pub(super) fn of_block(text: Text, input: R) -> Self {
        let Text { buffer, whole_end, end } = text;
        Self {
            input,
            buffer,
            at: 0,
            whole_end,
            end,
            read_bytes: end as u64,
            is_at_end: true,
            is_in_long_line: false,
            line_end: LineEnd::Lf,
        }
    }

    /// Goes on with a block instead of what was read before; returns the memory of that.
    pub(super) fn load(&mut self, text: Text) -> Vec<u8> {
        let Text { buffer, whole_end, end } = text;
        self.line_end.learn(&buffer[..end]);
        (self.at, self.whole_end, self.end) = (0, whole_end, end);
        (self.is_at_end, self.is_in_long_line) = (false, false);
        self.read_bytes += end as u64;
        std::mem::replace(&mut self.buffer, buffer)
    }

    /// Takes the memory of the buffer, after the last line.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        (self.at, self.whole_end, self.end) = (0, 0, 0);
        std::mem::take(&mut self.buffer)
    }

    /// Counts bytes that were read elsewhere.
    pub(super) fn pass_elsewhere(&mut self, bytes: u64) {
        self.read_bytes += bytes;
    }

    /// Takes away what is behind the whole lines.
    pub(super) fn take_left_over(&mut self) -> Vec<u8> {
        let left_over = self.buffer[self.whole_end..self.end].to_vec();
        self.end = self.whole_end;
        self.read_bytes -= left_over.len() as u64;
        left_over
    }

    pub(super) fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// Returns what ends lines, as far as the bytes read show.
    pub(super) fn line_end(&self) -> LineEnd {
        self.line_end
    }

    /// How many bytes were read and passed.
    pub(super) fn passed_bytes(&self) -> u64 {
        self.read_bytes - (self.end - self.at) as u64
    }

    /// Returns the next whole line and its length with its end, without passing it.
    #[inline]
    pub(super) fn line(&self) -> Option<(&[u8], usize)> {
        let rest = &self.buffer[self.at..self.whole_end];
        let len = memchr::memchr(self.line_end.byte(), rest)?;
        let line = &rest[..len];
        Some((line.strip_suffix(b"\r").unwrap_or(line), len + 1))
    }

    /// Returns the bytes from the next line on, [`WINDOW`] and more beyond the last, and how many of them
    /// are whole lines.
    pub(super) fn rest(&self) -> (&[u8], usize) {
        (&self.buffer[self.at..], self.whole_end - self.at)
    }

    /// Returns the line without an end that the input ends with.
    pub(super) fn unfinished(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Passes `len` bytes, which must end with a line.
    #[inline]
    pub(super) fn pass(&mut self, len: usize) {
        self.at += len;
    }

    /// Passes the line without an end.
    pub(super) fn pass_unfinished(&mut self) {
        (self.at, self.whole_end) = (self.end, self.end);
        self.is_in_long_line = false;
    }

    /// Reads on until there is something to say. To be called when no whole line is left.
    ///
    /// # Errors
    /// Those of the input.
    pub(super) fn more(&mut self) -> io::Result<More> {
        loop {
            if self.is_at_end {
                let is_unfinished = self.is_in_long_line || self.at < self.end;
                return Ok(if is_unfinished { More::Unfinished } else { More::End });
            }
            if self.end - self.at > LINE_BYTES_MAX {
                self.at = self.end;
                self.is_in_long_line = true;
            }
            let new = self.read_block()?;
            let was_known = self.line_end.is_cr();
            self.line_end.learn(&self.buffer[new..self.end]);
            let end = self.line_end.byte();
            // The CR that the lines turn out to end in may have been read before.
            let new = if self.line_end.is_cr() && !was_known { self.at } else { new };
            let Some(last) = memchr::memrchr(end, &self.buffer[new..self.end]) else { continue };
            self.whole_end = new + last + 1;
            if !self.is_in_long_line {
                return Ok(More::Lines);
            }
            self.is_in_long_line = false;
            let first = memchr::memchr(end, &self.buffer[new..self.whole_end]).unwrap_or(last);
            self.at = new + first + 1;
            return Ok(More::LongLine);
        }
    }

    /// Reads once, behind what is left over; returns where the new bytes begin.
    fn read_block(&mut self) -> io::Result<usize> {
        if self.is_in_long_line {
            self.at = self.end;
        }
        self.buffer.copy_within(self.at..self.end, 0);
        let left = self.end - self.at;
        (self.at, self.whole_end, self.end) = (0, 0, left);
        let needed = left + BLOCK_BYTES + WINDOW;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        let count = loop {
            match self.input.read(&mut self.buffer[left..left + BLOCK_BYTES]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.is_at_end = count == 0;
        // A reader that claims more than it was given room for is broken; do not believe it.
        self.end = left + count.min(BLOCK_BYTES);
        self.read_bytes += (self.end - left) as u64;
        Ok(left)
    }
}
