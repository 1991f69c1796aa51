//! Writes events as a log, in RMM's own dialect or in the one its documents describe.
//!
//! What a log has no column for is not written: date, process, device, kind of memory, resource, scope,
//! stack and name. For a log per device, as RMM for Python writes them, give each writer the
//! events of one device. Times are cut to whole microseconds.
//!
//! RMM always knows the size of what it frees, other sources do not. A free of unknown size is written
//! with the size of its block, for which the writer keeps the sizes of live blocks; if the block is
//! unknown too, with 0, which is counted as a loss.

use std::io::Write;
use std::path::{Path, PathBuf};

use floodmark_event::units::NS_PER_DAY;
use floodmark_event::{Action, Event, EventBatch, ProcessId, UNKNOWN_BYTES};
use floodmark_store::{Error, Losses, Result};
use rustc_hash::FxHashMap;

use super::columns::HEADER;
use super::text::{ROW_BYTES, Row, Text};

const BUFFER_BYTES: usize = if cfg!(fuzzing) { 1 << 10 } else { 1 << 20 };
const US_PER_S: u64 = 1_000_000;
const US_PER_DAY: i64 = NS_PER_DAY / 1000;

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// As RMM writes it: the time of day `06:29:01.412806`, in UTC; `allocate` and `free`.
    Rmm,
    /// As RMM's documents describe it: seconds since 1970 with six decimals; `allocate` and `deallocate`.
    RmmEpoch,
}

/// Writes a log. Nothing is certain to be written before [`Writer::finish`].
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    path: PathBuf,
    dialect: Dialect,
    buffer: Vec<u8>,
    /// How much of the buffer is to be written.
    len: usize,
    /// Sizes of live blocks, by process, device and address.
    live: FxHashMap<(ProcessId, i32, u64), u64>,
    sizeless_frees: u64,
    /// The second of the row before, and its text.
    second: (u64, Text),
}

impl<W: Write> Writer<W> {
    /// Begins a log with its header; `path` is what errors call the output.
    pub fn new(output: W, path: impl AsRef<Path>, dialect: Dialect) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES];
        let len = HEADER.len() + 1;
        buffer[..len - 1].copy_from_slice(HEADER.as_bytes());
        buffer[len - 1] = b'\n';
        Self {
            output,
            path: path.as_ref().to_owned(),
            dialect,
            buffer,
            len,
            live: FxHashMap::default(),
            sizeless_frees: 0,
            second: (0, dialect.second_text(0)),
        }
    }

    /// Writes the rows of `batch`.
    ///
    /// # Errors
    /// [`Error::Io`] of the output.
    pub fn write(&mut self, batch: &EventBatch) -> Result<()> {
        for row in 0..batch.len() {
            if self.buffer.len() - self.len < ROW_BYTES {
                self.write_buffer()?;
            }
            let mut event = batch.event(row);
            event.bytes = self.bytes_of(&event);
            self.put_row(&event);
        }
        Ok(())
    }

    /// Writes what is left and returns what could not be written as it is.
    ///
    /// # Errors
    /// [`Error::Io`] of the output.
    pub fn finish(mut self) -> Result<Losses> {
        self.write_buffer()?;
        self.output.flush().map_err(Error::io("writing", &self.path))?;
        let mut losses = Losses::default();
        if self.sizeless_frees > 0 {
            losses.remark_times(self.sizeless_frees, "a free of unknown size was written with size 0");
        }
        Ok(losses)
    }

    fn write_buffer(&mut self) -> Result<()> {
        let bytes = &self.buffer[..self.len];
        self.output.write_all(bytes).map_err(Error::io("writing", &self.path))?;
        self.len = 0;
        Ok(())
    }

    /// The size to write, with live blocks kept up to date.
    #[inline]
    fn bytes_of(&mut self, event: &Event) -> u64 {
        let block = (event.process, event.device, event.address);
        match event.action {
            Action::Alloc => {
                self.live.insert(block, event.bytes);
                event.bytes
            }
            Action::Failure => event.bytes,
            Action::Free => {
                let allocated = self.live.remove(&block);
                if event.bytes != UNKNOWN_BYTES {
                    return event.bytes;
                }
                // Freeing the null address frees nothing.
                if allocated.is_none() && event.address != 0 {
                    self.sizeless_frees += 1;
                }
                allocated.unwrap_or(0)
            }
        }
    }

    /// Appends a row to the buffer, which must have [`ROW_BYTES`] left.
    #[inline]
    fn put_row(&mut self, event: &Event) {
        let room = self.buffer[self.len..].first_chunk_mut().expect("`write` has made room");
        let mut row = Row::new(room);
        row.put_decimal(event.thread);
        row.put(b",");

        let us = match self.dialect {
            Dialect::Rmm => event.time_ns.div_euclid(1000).rem_euclid(US_PER_DAY) as u64,
            Dialect::RmmEpoch => {
                let us = event.time_ns / 1000;
                if us < 0 {
                    row.put(b"-");
                }
                us.unsigned_abs()
            }
        };
        if self.second.0 != us / US_PER_S {
            self.second = (us / US_PER_S, self.dialect.second_text(us / US_PER_S));
        }
        row.put_text(&self.second.1);
        row.put_six_digits(us % US_PER_S, b',');

        match (event.action, self.dialect) {
            (Action::Alloc, _) => row.put(b"allocate,"),
            (Action::Free, Dialect::Rmm) => row.put(b"free,"),
            (Action::Free, Dialect::RmmEpoch) => row.put(b"deallocate,"),
            (Action::Failure, _) => row.put(b"allocate failure,"),
        }
        if event.address == 0 {
            row.put(b"(nil),");
        } else {
            row.put(b"0x");
            row.put_hex(event.address);
            row.put(b",");
        }
        row.put_decimal(event.bytes);
        row.put(b",");
        if event.stream == 0 {
            row.put(b"0\n");
        } else {
            row.put(b"0x");
            row.put_hex(event.stream);
            row.put(b"\n");
        }
        self.len += row.len();
    }
}

impl Dialect {
    /// How a second is written, with the decimal point after it.
    fn second_text(self, second: u64) -> Text {
        Text::of(|row| {
            match self {
                Self::Rmm => {
                    row.put_two_digits(second / 3600);
                    row.put(b":");
                    row.put_two_digits(second / 60 % 60);
                    row.put(b":");
                    row.put_two_digits(second % 60);
                }
                Self::RmmEpoch => row.put_decimal(second),
            }
            row.put(b".");
        })
    }
}
