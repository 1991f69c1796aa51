//! What must hold of every format that has events and rows: reading ends, in both modes, the rows are in
//! order, and what a strict reading takes a lenient one takes too.

use std::path::Path;

use floodmark_convert::{EventsAndRows, Mode, OpenProps};
use floodmark_event::{EventBatch, Row};
use floodmark_store::Result;

/// How many events and rows there are; none if it could not be read.
fn drain(halves: Result<EventsAndRows>) -> Option<(u64, u64)> {
    let (mut source, mut seen) = halves.ok()?;
    let (mut batch, mut events) = (EventBatch::new(), 0);
    while source.next(&mut batch).ok()? {
        events += batch.len() as u64;
    }
    let (mut rows, mut count, mut last_ns) = (Vec::new(), 0, i64::MIN);
    while seen.next(&mut rows).ok()? {
        for time_ns in rows.iter().map(Row::time_ns) {
            assert!(time_ns >= last_ns, "rows are in order");
            last_ns = time_ns;
        }
        count += rows.len() as u64;
    }
    Some((events, count))
}

pub fn check(open: impl Fn(&Path, &OpenProps) -> Result<EventsAndRows>) {
    let path = Path::new("file");
    let strict = drain(open(path, &OpenProps::default()));
    let lenient = drain(open(path, &OpenProps { mode: Mode::Lenient, ..OpenProps::default() }));
    if strict.is_some() {
        assert_eq!(strict, lenient, "there is nothing to pass over");
    }
}
