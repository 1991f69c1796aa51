//! Memory snapshots of `PyTorch`'s caching allocator: what `torch.cuda.memory._dump_snapshot` writes.
//!
//! A snapshot has the state of the allocator at the end, and per device a trace of what it did before, of
//! which the beginning may be missing. Two layers come out of it, each a resource of its own:
//!
//! | in a snapshot | in a trace |
//! |---|---|
//! | `alloc`, `free_requested` | a block of resource `torch`, kind device; its bytes are those asked for |
//! | `segment_alloc`, `segment_map`, `segment_free`, `segment_unmap` | a block of resource `torch segments`, kind reserved; what is unmapped in part is split |
//! | `oom` | a failed allocation, and a mark with what the device had free |
//! | frames | the stack; `user_metadata` is the name |
//! | blocks and segments that were there before the trace | allocations at its first instant, in a scope `before capture` |
//! | `external_annotations` | scopes |
//! | `snapshot`, `annotate` | marks |
//! | pinned host memory, of the newest versions | `torch host` and `torch host segments` |
//!
//! The allocator rounds: it hands out whole blocks, and `PyTorch`'s own figures count those. A trace does
//! not say how large they are, but how the allocator divides is known, so it is done again; if all blocks
//! at the end are as the snapshot has them, the sums come out as samples `live` of the device, beside
//! `reserved`.

mod blocks;
mod events;
mod rows;
mod scopes;
mod shape;
mod snapshot;
mod start;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use floodmark_store::{Error, Result, RowSource, Source};

use crate::OpenProps;
use crate::foreign::{EventsAndRows, Parsed, both};
use crate::pickle::{self, Fault, Input, Values};
use crate::recognize::Candidate;

use events::SnapshotEvents;
use rows::SnapshotRows;
use shape::{Shape, WORDS};
use snapshot::Snapshot;

/// Resource of what tensors asked for.
pub const BLOCKS: &str = "torch";
/// Resource of what the allocator holds in order to divide it.
pub const SEGMENTS: &str = "torch segments";
/// The same of pinned host memory.
pub const HOST_BLOCKS: &str = "torch host";
/// The same of pinned host memory.
pub const HOST_SEGMENTS: &str = "torch host segments";

/// Opens a snapshot that is read from `input`; messages call it `path`.
///
/// # Errors
/// [`Error::Malformed`] names the byte and opcode, or the part of the snapshot, and [`Error::Io`].
pub fn open(input: impl Read, path: &Path, props: &OpenProps) -> Result<EventsAndRows> {
    both(&ParsedSnapshot(Arc::new(read(input, path, props)?)))
}

/// Parses a snapshot whole: the state that the trace leads up to may come last.
///
/// # Errors
/// [`Error::Malformed`] names the byte and opcode, or the part of the snapshot, and [`Error::Io`].
pub(crate) fn parse(candidate: Candidate, props: &OpenProps) -> Result<Box<dyn Parsed>> {
    let (path, _, input) = candidate.into_parts();
    Ok(Box::new(ParsedSnapshot(Arc::new(read(input, &path, props)?))))
}

struct ParsedSnapshot(Arc<Snapshot>);

impl Parsed for ParsedSnapshot {
    fn events(&self) -> Result<Box<dyn Source>> {
        Ok(Box::new(SnapshotEvents::new(Arc::clone(&self.0))))
    }

    fn rows(&self) -> Result<Box<dyn RowSource>> {
        Ok(Box::new(SnapshotRows::new(Arc::clone(&self.0))))
    }
}

fn read(input: impl Read, path: &Path, props: &OpenProps) -> Result<Snapshot> {
    let malformed = |place: String, reason: String| Error::Malformed { path: path.to_owned(), place, reason };
    let mut values = Values::new(&WORDS);
    let mut shape = Shape::new(props.mode);
    let mut input = Input::of(input);
    let root = pickle::read(&mut input, &mut shape, &mut values).map_err(|fault| match fault {
        Fault::Io(source) => Error::io("reading", path)(source),
        Fault::End => malformed(format!("byte {}", input.offset()), "the file ends too early".to_owned()),
        Fault::Bad { offset, reason } => malformed(format!("byte {offset}"), reason),
    })?;
    Snapshot::of(root, &values, shape, path, props).map_err(|(place, reason)| malformed(place, reason))
}

/// Whether the beginning of a file is that of a pickle. Nothing else that is read here is one.
pub(crate) fn begins_pickle(head: &[u8]) -> bool {
    match head {
        [0x80, version, ..] => *version <= 5,
        // Protocols 0 and 1 do not say what they are.
        [b'(', b'd', ..] | [b'}', b'q', ..] => memchr::memmem::find(head, b"segments").is_some(),
        _ => false,
    }
}
