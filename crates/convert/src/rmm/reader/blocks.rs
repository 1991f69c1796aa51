//! Reading a log in blocks that others have parsed: what carries over from one to the next.

use std::io;
use std::path::{Path, PathBuf};

use floodmark_event::tables::Process;
use floodmark_event::{Column, EventBatch, Kind, ProcessId, Tables};

use super::{Reader, Runs};
use crate::Mode;
use crate::line_end::LineEnd;
use crate::rmm::columns::Columns;
use crate::rmm::lines::{Lines, Text};
use crate::rmm::numbers::LineNumbers;
use crate::rmm::parser::Parser;
use crate::rmm::rows::Rows;

impl Reader<io::Empty> {
    /// Reads a block as if it were a log of its own, whose header was read.
    pub(in crate::rmm) fn of_block(text: Text, parser: Parser) -> Self {
        let mut tables = Tables::default();
        // Runs that follow are named after the first.
        tables.processes.push(Process::default());
        Self {
            lines: Lines::of_block(text, io::empty()),
            path: PathBuf::new(),
            mode: Mode::Strict,
            tables,
            process: ProcessId(0),
            runs: Runs { count: 1, rows_before: 0, is_next: false, second_line: 0 },
            device: 0,
            total_bytes: None,
            parser,
            rows: Rows::default(),
            line_count: 0,
            row_count: 0,
            numbers: LineNumbers::default(),
            skipped_lines: 0,
            is_cut_off: false,
            is_done: false,
            error: None,
        }
    }

    /// Whether nothing is left to read.
    pub(in crate::rmm) fn is_at_end(&self) -> bool {
        self.is_done || self.lines.rest().1 == 0 && self.lines.unfinished().is_empty()
    }

    /// Whether every line so far was a row.
    pub(in crate::rmm) fn is_plain(&self) -> bool {
        self.line_count == self.row_count && !self.is_cut_off && self.error.is_none()
    }
}

impl<R: io::Read> Reader<R> {
    /// Takes the memory of the text, after the last line.
    pub(in crate::rmm) fn take_buffer(&mut self) -> Vec<u8> {
        self.lines.take_buffer()
    }

    pub(in crate::rmm) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::rmm) fn columns(&self) -> &Columns {
        &self.parser.columns
    }

    pub(in crate::rmm) fn set_total_bytes(&mut self, total_bytes: Option<u64>) {
        self.total_bytes = total_bytes;
    }

    pub(in crate::rmm) fn set_input(&mut self, input: R) {
        *self.lines.input_mut() = input;
    }

    /// Gives the input away, with the beginning of a line that was read from it, and reads only the whole lines that
    /// it has; none where lines do not end in LF, as far as is known.
    pub(in crate::rmm) fn hand_over(&mut self, nothing: R) -> Option<(R, Vec<u8>)> {
        if self.lines.line_end() != LineEnd::Lf {
            return None;
        }
        let left_over = self.lines.take_left_over();
        Some((std::mem::replace(self.lines.input_mut(), nothing), left_over))
    }

    /// Goes on with a block; returns memory that is no longer needed.
    pub(in crate::rmm) fn go_on(&mut self, text: Text) -> Vec<u8> {
        self.is_done = false;
        self.lines.load(text)
    }

    /// Goes on behind a plain block that another reader has read, and makes the times of its rows right; `false`
    /// if the block has to be read again, and nothing has changed then.
    pub(in crate::rmm) fn absorb(
        &mut self,
        block: &Reader<io::Empty>,
        bytes: usize,
        batches: &mut [EventBatch],
    ) -> bool {
        if self.runs.is_next {
            self.begin_run();
        }
        let Some(absorbed) = self.parser.absorbed(&block.parser) else { return false };
        if !shift(batches, absorbed.shift_ns) {
            return false;
        }
        self.parser = absorbed.parser;
        if block.row_count > 0 {
            self.numbers.note(self.row_count, self.line_count + 1);
        }
        self.line_count += block.line_count;
        self.lines.pass_elsewhere(bytes as u64);
        true
    }

    /// Completes a batch of a block that was absorbed.
    pub(in crate::rmm) fn hand_out(&mut self, batch: &mut EventBatch) {
        self.row_count += batch.len() as u64;
        batch.process = Column::Same(self.process);
        batch.device = Column::Same(self.device);
        batch.kind = Column::Same(Kind::Device);
    }
}

/// Moves all times; `false`, and nothing is moved, if one would be past what nanoseconds can count.
fn shift(batches: &mut [EventBatch], by_ns: i64) -> bool {
    if by_ns == 0 {
        return true;
    }
    let times = || batches.iter().flat_map(|batch| (0..batch.len()).map(|row| batch.time_ns.at(row)));
    if times().any(|time_ns| time_ns.checked_add(by_ns).is_none()) {
        return false;
    }
    for batch in batches {
        match &mut batch.time_ns {
            Column::Same(time_ns) => *time_ns += by_ns,
            Column::Each(each) => each.iter_mut().for_each(|time_ns| *time_ns += by_ns),
        }
    }
    true
}
