//! Logs to read, and ways to read them.

use std::io::{self, Read};
use std::path::PathBuf;

use floodmark_convert::Mode;
use floodmark_convert::rmm::{ReadProps, Reader};
use floodmark_event::{Event, EventBatch};
use floodmark_store::{Losses, Result, Source};

/// The folder with logs.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/rmm"))
}

/// A log from the folder.
pub(crate) fn log(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("a log of the fixtures")
}

pub(crate) fn strict() -> ReadProps {
    ReadProps::default()
}

pub(crate) fn lenient() -> ReadProps {
    ReadProps { mode: Mode::Lenient, ..ReadProps::default() }
}

/// Reads everything from `input`: the events and losses, and the error that ended it, if any.
pub(crate) fn read_to_end(
    input: impl Read + Send,
    props: &ReadProps,
) -> (Vec<Event>, Losses, Option<String>) {
    let mut events = Vec::new();
    let mut reader = match Reader::open(input, "log.csv", props) {
        Ok(reader) => reader,
        Err(error) => return (events, Losses::default(), Some(error.to_string())),
    };
    let error = drain(&mut reader, &mut events).err().map(|error| error.to_string());
    (events, reader.losses(), error)
}

/// What reading a log came to: events, losses, the error that ended it, lines of all rows, and commands of processes.
pub(crate) type Outcome = (Vec<Event>, Losses, Option<String>, Vec<Option<String>>, Vec<String>);

/// Reads everything from `source`.
pub(crate) fn outcome(source: Result<impl Source>) -> Outcome {
    let mut events = Vec::new();
    let mut source = match source {
        Ok(source) => source,
        Err(error) => return (events, Losses::default(), Some(error.to_string()), Vec::new(), Vec::new()),
    };
    let error = drain(&mut source, &mut events).err().map(|error| error.to_string());
    let places = (0..=events.len() as u64).map(|row| source.place(row)).collect();
    let commands = source.tables().processes.iter().map(|process| process.command.clone()).collect();
    (events, source.losses(), error, places, commands)
}

/// Appends all events of `source`.
pub(crate) fn drain(source: &mut dyn Source, events: &mut Vec<Event>) -> Result<()> {
    let mut batch = EventBatch::new();
    while source.next(&mut batch)? {
        assert!(!batch.is_empty(), "a batch between others is never empty");
        events.extend(batch.events());
    }
    assert!(batch.is_empty(), "the batch at the end is empty");
    Ok(())
}

/// Events of a log that must be good.
pub(crate) fn events(input: impl Read + Send) -> Vec<Event> {
    let (events, losses, error) = read_to_end(input, &strict());
    assert_eq!(error, None);
    assert!(losses.is_empty(), "{losses:?}");
    events
}

/// The reason why a log is refused.
pub(crate) fn error(input: impl Read + Send, props: &ReadProps) -> String {
    read_to_end(input, props).2.expect("an error")
}

/// The counts and reasons of losses.
pub(crate) fn gaps(losses: &Losses) -> Vec<(u64, &str)> {
    losses.gaps.iter().map(|gap| (gap.count, gap.reason.as_str())).collect()
}

/// Gives bytes in pieces of the given sizes, over and over.
pub(crate) struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(bytes: &'a [u8], sizes: Vec<usize>) -> Self {
        Self { bytes, sizes: sizes.into_iter().cycle() }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.next().unwrap_or(1).min(room.len());
        if size == 0 && !self.bytes.is_empty() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.bytes.read(&mut room[..size.max(1)])
    }
}
