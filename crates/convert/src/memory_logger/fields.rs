//! Rows out of the CSV of a log, byte by byte: a field may span lines and be of any length.
//!
//! Output longer than [`PIECE_BYTES`] is handed out in pieces before its row is complete, so that memory
//! does not grow with it. All other fields have a limit.

use floodmark_store::Result;

use super::{Subjects, parse_time, put_output};
use crate::records::{Out, Parse};

const QUOTE: u8 = b'|';
const FIELDS: usize = 6;
/// Which field is the output.
const OUTPUT: usize = 2;
/// Which field is the stack.
const STACK: usize = 3;

/// Output is handed out in pieces of this size. The fuzzer has small limits.
const PIECE_BYTES: usize = if cfg!(fuzzing) { 64 } else { 64 << 10 };
/// Bytes a stack may have.
const STACK_BYTES_MAX: usize = if cfg!(fuzzing) { 256 } else { 1 << 20 };
/// Bytes a number or the name of a host may have.
const SHORT_BYTES_MAX: usize = 256;
/// How much of a line is looked at to tell whether it begins a row.
const HEAD_BYTES: usize = 48;

/// A row of the log.
#[derive(Debug, Default)]
pub(super) struct LogLine {
    pub(super) fields: [Vec<u8>; FIELDS],
}

/// Where in a row the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote in quoted text: either it ends here or another quote follows.
    Quote,
}

/// Reads rows.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    at: At,
    row: LogLine,
    /// Index of the field at hand.
    field: usize,
    /// What is wrong with the row, if anything is.
    wrong: Option<String>,
    /// Whether anything of the row has come.
    is_begun: bool,
    /// How many lines were passed, and at which of them the row began.
    lines: u64,
    row_line: u64,
    /// The beginning of a line in quoted text, as long as it may begin a row; and how long the field was
    /// before it.
    head: Option<(Vec<u8>, usize)>,
    /// Whether a line in the quoted text at hand looks like the beginning of a row.
    is_suspect: bool,
    subjects: Subjects,
}

/// Whether `bytes` begins like a row: `1794724130.446520,52716,`.
pub(super) fn begins_row(bytes: &[u8]) -> bool {
    judge_head(bytes) == Head::Row
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Row,
    NoRow,
    /// It takes more bytes to tell.
    Open,
}

fn judge_head(bytes: &[u8]) -> Head {
    let mut rest = bytes;
    for (most, end) in [(12, b'.'), (9, b','), (20, b',')] {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match rest.get(digits) {
            None if digits <= most => return Head::Open,
            Some(byte) if *byte == end && (1..=most).contains(&digits) => rest = &rest[digits + 1..],
            _ => return Head::NoRow,
        }
    }
    Head::Row
}

impl Fields {
    fn step(&mut self, byte: u8, out: &mut Out) -> Result<()> {
        if byte == b'\n' {
            self.lines += 1;
        }
        if !self.is_begun {
            if byte == b'\r' || byte == b'\n' {
                return Ok(());
            }
            self.is_begun = true;
            self.row_line = self.lines + 1;
        }
        match (self.at, byte) {
            (At::FieldStart, QUOTE) => self.at = At::Quoted,
            (At::Quoted, QUOTE) => {
                self.at = At::Quote;
                self.head = None;
            }
            (At::Quote, QUOTE) => {
                self.at = At::Quoted;
                self.push(&[QUOTE], out);
            }
            (At::Quoted, _) => {
                self.push(&[byte], out);
                return self.watch_lines(byte, out);
            }
            (_, b',') => self.next_field(),
            (_, b'\n') => return self.finish_row(out),
            (At::Quote, b'\r') => {}
            (At::FieldStart | At::Plain | At::Quote, _) => {
                self.at = At::Plain;
                self.push(&[byte], out);
            }
        }
        Ok(())
    }

    fn next_field(&mut self) {
        self.field += 1;
        self.at = At::FieldStart;
        self.is_suspect = false;
    }

    fn push(&mut self, bytes: &[u8], out: &mut Out) {
        let Some(field) = self.row.fields.get_mut(self.field) else { return };
        field.extend_from_slice(bytes);
        if self.field == OUTPUT {
            self.hand_out_pieces(out);
            return;
        }
        let most = if self.field == STACK { STACK_BYTES_MAX } else { SHORT_BYTES_MAX };
        if field.len() > most {
            field.truncate(most);
            self.wrong.get_or_insert_with(|| format!("a field is longer than {most} bytes"));
        }
    }

    /// Hands out long output, cut at the same places however the bytes arrive.
    fn hand_out_pieces(&mut self, out: &mut Out) {
        while self.row.fields[OUTPUT].len() >= PIECE_BYTES {
            let rest = self.row.fields[OUTPUT].split_off(PIECE_BYTES);
            let piece = std::mem::replace(&mut self.row.fields[OUTPUT], rest);
            // A row whose time cannot be read is bad anyhow.
            if let Ok(time_ns) = parse_time(&self.row.fields[0]) {
                put_output(time_ns, piece, out);
            }
            if let Some((_, before)) = &mut self.head {
                *before = before.saturating_sub(PIECE_BYTES);
            }
        }
    }

    /// Looks at the beginnings of lines in quoted text. One that looks like a row may mean that the row
    /// before it was cut off where a run was killed.
    fn watch_lines(&mut self, byte: u8, out: &mut Out) -> Result<()> {
        if byte == b'\n' {
            let len = self.row.fields.get(self.field).map_or(0, Vec::len);
            self.head = Some((Vec::with_capacity(HEAD_BYTES), len));
            return Ok(());
        }
        let Some((head, before)) = &mut self.head else { return Ok(()) };
        head.push(byte);
        let before = *before;
        match judge_head(head) {
            Head::Open => Ok(()),
            Head::NoRow => {
                self.head = None;
                Ok(())
            }
            Head::Row if out.is_lenient() => {
                let (head, _) = self.head.take().expect("matched above");
                if let Some(field) = self.row.fields.get_mut(self.field) {
                    field.truncate(before);
                }
                self.rescue_output(out);
                let row_line = self.row_line;
                self.begin_row();
                out.complain(row_line, "the row is cut off")?;
                head.into_iter().try_for_each(|byte| self.step(byte, out))
            }
            Head::Row => {
                self.head = None;
                self.is_suspect = true;
                Ok(())
            }
        }
    }

    /// Keeps the output of a row of which the rest is missing.
    fn rescue_output(&mut self, out: &mut Out) {
        if let Ok(time_ns) = parse_time(&self.row.fields[0]) {
            put_output(time_ns, std::mem::take(&mut self.row.fields[OUTPUT]), out);
        }
    }

    fn begin_row(&mut self) {
        self.row.fields.iter_mut().for_each(Vec::clear);
        (self.at, self.field, self.is_begun) = (At::FieldStart, 0, false);
        (self.wrong, self.head, self.is_suspect) = (None, None, false);
    }

    fn finish_row(&mut self, out: &mut Out) -> Result<()> {
        if self.at == At::Plain
            && let Some(last) = self.row.fields.get_mut(self.field)
            && last.last() == Some(&b'\r')
        {
            last.pop();
        }
        let result = match self.wrong.take() {
            Some(wrong) => Err(wrong),
            None if self.field + 1 != FIELDS => {
                Err(format!("the row has {} fields, not {FIELDS}", self.field + 1))
            }
            None => self.row.put(&mut self.subjects, out),
        };
        let line = self.row_line;
        self.begin_row();
        result.or_else(|reason| out.complain(line, reason))
    }
}

impl Parse for Fields {
    fn block(&mut self, mut bytes: &[u8], out: &mut Out) -> Result<()> {
        while let [first, rest @ ..] = bytes {
            // Most of a log is quoted text, which changes nothing but at quotes and line breaks.
            if self.at == At::Quoted && self.head.is_none() && *first != QUOTE && *first != b'\n' {
                let run = memchr::memchr2(QUOTE, b'\n', bytes).unwrap_or(bytes.len()).min(PIECE_BYTES);
                self.push(&bytes[..run], out);
                bytes = &bytes[run..];
                continue;
            }
            self.step(*first, out)?;
            bytes = rest;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        if !self.is_begun {
            return Ok(());
        }
        let is_open = matches!(self.at, At::Quoted);
        if is_open && self.is_suspect {
            let reason = "the text that begins with | in this row has no end, and rows follow in it";
            return Err(out.malformed(self.row_line, reason));
        }
        // What came of its output is still good.
        self.rescue_output(out);
        out.losses.add(1, "the last row has no end and was left out");
        Ok(())
    }
}
