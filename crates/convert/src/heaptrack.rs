//! What heaptrack records: every allocation and free of a process, with stacks.
//!
//! | in the file | in a trace |
//! |---|---|
//! | `+`, `-` | a block of resource `malloc` begins, ends |
//! | `c` | milliseconds since the program began, written every 10; what follows has that time |
//! | `R` | `rss` of the process, in pages |
//! | `t`, `i`, `s` | stacks, with inlined functions |
//! | `x`, `m` (raw files only) | modules: a frame is an address in one |
//!
//! Both what `heaptrack` writes by default (interpreted: with names) and what `heaptrack --raw` writes can be read, in file
//! formats 1 to 3 (heaptrack 1.0 to 1.5). An interpreted file has no addresses. It tells blocks apart by size and
//! stack only; of several that are alike the newest is taken to be freed, as `heaptrack_print` does. The
//! date is not recorded, and neither are threads.

mod events;
mod lines;
mod rows;

use std::io::Read;
use std::path::Path;

use floodmark_event::units::{Date, NS_PER_DAY};
use floodmark_store::Result;

use crate::OpenProps;
use crate::foreign::EventsAndRows;
use crate::reopen::Streams;

/// Resource of the blocks.
pub const RESOURCE: &str = "malloc";
/// Newest file format that can be read.
const VERSION_MAX: u64 = 3;

pub(crate) const STREAMS: Streams = Streams {
    events: |input, props| Ok(Box::new(events::LogEvents::open(input, props)?)),
    rows: |input, props| Ok(Box::new(rows::LogRows::open(input, props)?)),
};

/// Opens a file that is not compressed any more; `path` is what messages call it.
///
/// # Errors
/// [`Malformed`](floodmark_store::Error::Malformed) names the line.
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    STREAMS.open(input, path, props)
}

/// Whether the beginning of a file is that of a log: its version.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(rest) = line.strip_prefix(b"v ") else { return false };
    let mut fields = rest.split(|byte| *byte == b' ');
    let tool = fields.next().and_then(lines::hex);
    let format = fields.next().and_then(lines::hex);
    tool.is_some_and(|tool| (0x0001_0000..0x0100_0000).contains(&tool))
        && format.is_some()
        && fields.next().is_none()
}

/// The instant that times in a file count from.
fn start_ns(props: &OpenProps) -> i64 {
    props.date.map_or(0, Date::epoch_days).checked_mul(NS_PER_DAY).unwrap_or(0)
}
