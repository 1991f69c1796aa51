//! Logs of RMM, the RAPIDS memory manager: one CSV line per allocation, free or failed allocation.
//!
//! RMM's logging adaptor writes `Thread,Time,Action,Pointer,Size,Stream`. Over the years and in its
//! documents the same log comes in several dialects, all of which [`Reader`] understands:
//!
//! | column | forms |
//! |---|---|
//! | Thread | decimal or `0x…`; the column may be missing (0) |
//! | Time | time of day `06:29:01.412806` or, before 2021, `06:29:01:412806`; seconds since 1970 `1634567890.123456` with up to nine decimals |
//! | Action | `allocate`, `free` or `deallocate`, `allocate failure` |
//! | Pointer | hexadecimal with or without `0x`, or `(nil)` |
//! | Size | decimal |
//! | Stream | decimal or `0x…`; the column may be missing (0) |
//!
//! Columns are found by their names in the header, in any order, and unknown ones are passed over. Lines
//! may end in LF, CRLF or CR, and blank lines are passed over. Fields may be quoted. Several runs may follow
//! one another, each with its header: each is a process of its own. A last line without an end is taken for
//! cut off, because the digits that are there may not be all.
//!
//! Order and time: the order of the lines is the order of the events. Times are kept as they are
//! written; threads write their lines microseconds after they took the time, so times of neighboring
//! events may run backwards, and steps of more than a second are remarked on. A time of day carries no date:
//! see [`ReadProps::date`]. Days go on from one run to the next in the same file.
//!
//! What such a log does not hold: the device (RMM for Python writes it into the file name, see
//! [`device_of`](crate::device_of)), the process, the kind of memory, the resource and stacks.

mod columns;
mod days;
mod digits;
mod lines;
mod numbers;
mod parallel;
mod parser;
mod reader;
mod row;
mod rows;
mod text;
mod usual;
mod writer;

use floodmark_event::ProcessId;
use floodmark_event::units::Date;

pub(crate) use days::Days;
pub use parallel::{ParallelProps, ParallelReader};
pub use reader::Reader;
pub use writer::{Dialect, Writer};

use crate::Mode;

/// How to read a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadProps {
    /// What to do about a line that cannot be read.
    pub mode: Mode,
    /// Day of the first row of a log that shows times of day; 1970-01-01 if not given.
    ///
    /// Later days follow from the rows: a step backwards of more than 12 hours is a new day.
    pub date: Option<Date>,
    /// Device of the events if the name of the file does not say it; 0 if neither does.
    pub device: Option<i32>,
    /// Process of the events.
    pub process: ProcessId,
}

impl Default for ReadProps {
    fn default() -> Self {
        Self { mode: Mode::Strict, date: None, device: None, process: ProcessId(1) }
    }
}

/// Whether the beginning of a file is the beginning of a log, or is meant as one.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    columns::without_mark(head)
        .split(|byte| *byte == b'\n')
        .find(|line| !line.trim_ascii().is_empty())
        .is_some_and(columns::looks_like_log)
}
