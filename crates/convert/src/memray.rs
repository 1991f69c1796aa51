//! What memray records: every allocation and free of a Python process, with Python stacks.
//!
//! | in the file | in a trace |
//! |---|---|
//! | allocations by `malloc` and its relatives | blocks of resource `malloc` |
//! | by pymalloc (`--trace-python-allocators`) | blocks of resource `pymalloc` |
//! | by `mmap` | blocks of resource `mmap`; what is unmapped in part is split |
//! | memory records, every 10 ms | `rss` of the process; allocations that follow have that time |
//! | threads and their names | threads |
//!
//! Formats 12 and 13 can be read: memray 1.18 to 1.20, compressed or not. With `--native` there are native stacks
//! too; they have no names, and are shown only where there is no Python stack. A file of `--aggregate`
//! has no events and is refused.

mod events;
mod lines;
mod records;
mod rows;

use std::io::Read;
use std::path::Path;

use floodmark_store::Result;

use crate::OpenProps;
use crate::foreign::EventsAndRows;
use crate::reopen::Streams;

/// How a file begins.
const MAGIC: &[u8] = b"memray\0";

pub(crate) const STREAMS: Streams = Streams {
    events: |input, props| Ok(Box::new(events::FileEvents::open(input, props)?)),
    rows: |input, props| Ok(Box::new(rows::FileRows::open(input, props)?)),
};

/// Opens a file that is not compressed any more; `path` is what messages call it.
///
/// # Errors
/// [`Malformed`](floodmark_store::Error::Malformed) names the byte.
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    STREAMS.open(input, path, props)
}

/// Whether the beginning of a file is that of a recording.
pub(crate) fn begins_file(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}
