//! Messages through files in a shared directory, for launchers that forward no streams.
//!
//! Each side appends to a file of its own and follows that of the other. What network file systems do to that:
//!
//! - A client keeps what was written to itself until it is flushed. So every message is flushed to the server.
//! - A client answers from its cache what a file has. Opening a file asks the server, so it is opened for every poll.
//! - A client remembers for up to a minute that a file is not there. So the recorder makes both files before the agent
//!   starts, and neither is ever renamed or replaced: a second attempt has names of its own.
//! - A part of a file may be visible before what was written ahead of it, with zeros in between. So only complete
//!   messages with a right checksum are read, and everything else counts as not there yet.
//! - A server that restarts makes handles stale, and a file may seem gone for a moment. Both count as not there yet.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::wire::{HEAD_BYTES, MAX_PAYLOAD_BYTES, sound_length};

/// Time between two looks at a file.
const POLL: Duration = Duration::from_millis(20);

/// Extensions of the files with what the recorder and the agent write.
const FROM_RECORDER: &str = "to-agent";
const FROM_AGENT: &str = "from-agent";

/// Returns the paths of the files that the recorder and the agent write.
pub fn paths(exchange: &Path) -> (PathBuf, PathBuf) {
    let with = |extension: &str| {
        let mut name = exchange.as_os_str().to_owned();
        name.push(".");
        name.push(extension);
        PathBuf::from(name)
    };
    (with(FROM_RECORDER), with(FROM_AGENT))
}

/// A file to which messages are appended, and which the server has after every flush.
#[derive(Debug)]
pub struct AppendedFile(File);

impl AppendedFile {
    /// Opens the file at `path`, making it if it is not there.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::options().create(true).append(true).open(path).map(Self)
    }
}

impl Write for AppendedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Reads the messages in a file that grows, as bytes of complete messages. It ends when it is closed.
#[derive(Debug)]
pub struct FollowedFile {
    path: PathBuf,
    position: u64,
    /// Bytes of complete messages that are to be read.
    sound: VecDeque<u8>,
    is_closed: Arc<AtomicBool>,
    /// Milliseconds between two polls.
    pace_ms: Arc<AtomicU64>,
}

/// Time between two polls of the file of orders that the agents of so many nodes follow: all of them together open it
/// some thousand times a second at most.
pub(crate) fn pace(nodes: usize) -> Duration {
    Duration::from_millis(nodes as u64).clamp(Duration::from_millis(100), Duration::from_secs(5))
}

impl FollowedFile {
    /// Follows the file at `path`, which need not be there yet.
    pub fn new(path: PathBuf) -> Self {
        let pace_ms = Arc::new(AtomicU64::new(POLL.as_millis() as u64));
        Self { path, position: 0, sound: VecDeque::new(), is_closed: Arc::default(), pace_ms }
    }

    /// Returns what ends the reading when it is set.
    pub fn closer(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_closed)
    }

    /// Returns what sets the milliseconds between two polls.
    fn pace_ms(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.pace_ms)
    }

    /// Takes what is new and complete.
    fn poll(&mut self) {
        // Opened anew every time: a network file system then asks the server what is new.
        let Ok(file) = File::open(&self.path) else { return };
        let length = file.metadata().map_or(0, |found| found.len());
        let new = length.saturating_sub(self.position).min((HEAD_BYTES + MAX_PAYLOAD_BYTES + 1) as u64);
        let mut bytes = vec![0; new as usize];
        let Ok(read) = file.read_at(&mut bytes, self.position) else { return };
        let sound = sound_length(&bytes[..read]);
        self.position += sound as u64;
        self.sound.extend(&bytes[..sound]);
    }
}

impl Read for FollowedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.sound.is_empty() {
                self.poll();
            }
            if !self.sound.is_empty() {
                return self.sound.read(buffer);
            }
            if self.is_closed.load(Ordering::Acquire) {
                return Ok(0);
            }
            thread::sleep(Duration::from_millis(self.pace_ms.load(Ordering::Relaxed)));
        }
    }
}

/// Follows a file of orders that the agents of all nodes share, samples into a spool, and sends nothing; see
/// [`agent::follow`](crate::agent::follow). `node` is the name that the recorder has for this host, if it is told.
///
/// # Errors
/// As there.
pub fn follow(orders: &Path, node: Option<&str>, version: &str) -> crate::Result<()> {
    let input = FollowedFile::new(orders.to_owned());
    let pace_ms = input.pace_ms();
    let slow_down = move |nodes: usize| pace_ms.store(pace(nodes).as_millis() as u64, Ordering::Relaxed);
    crate::agent::follow(input, slow_down, node, version)
}

/// Serves a recorder through files; see [`agent::serve`](crate::agent::serve).
///
/// # Errors
/// As there, or if the files cannot be used.
pub fn serve(exchange: &Path, version: &str) -> crate::Result<()> {
    let (to_agent, from_agent) = paths(exchange);
    let input = FollowedFile::new(to_agent);
    let output = AppendedFile::open(&from_agent);
    let output = output.map_err(crate::Error::io(format!("creating {}", from_agent.display())))?;
    crate::agent::serve(input, output, version)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::wire::{Message, MessageReader};

    fn message(number: u64) -> Message {
        Message::Data { position: number, bytes: vec![number as u8 + 1; 9_000] }
    }

    #[test]
    fn messages_are_read_as_the_file_grows() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let mut reader = MessageReader::new(FollowedFile::new(path.clone()));
        let write = move || {
            let mut file = AppendedFile::open(&path).expect("a file");
            for number in 0..3 {
                message(number).write(&mut file).expect("written");
                thread::sleep(POLL);
            }
        };
        let writing = thread::Builder::new().name("writing".into()).spawn(write).expect("a thread");
        for number in 0..3 {
            assert_eq!(reader.next_message().expect("a message"), Some(message(number)));
        }
        writing.join().expect("written");
    }

    /// As a network file system may show it: the file has its length and its last page before the first one arrives.
    #[test]
    fn a_part_that_becomes_visible_early_is_waited_for() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..2).flat_map(|number| message(number).encode()).collect();
        let file = File::create(&path).expect("a file");
        file.write_all_at(&bytes[8192..], 8192).expect("written");
        let mut followed = FollowedFile::new(path.clone());
        followed.poll();
        assert!(followed.sound.is_empty());
        file.write_all_at(&bytes[..100], 0).expect("written");
        followed.poll();
        assert!(followed.sound.is_empty());
        // It seems gone for a moment.
        std::fs::rename(&path, folder.path().join("away")).expect("renamed");
        followed.poll();
        std::fs::rename(folder.path().join("away"), &path).expect("renamed");
        file.write_all_at(&bytes[100..8192], 100).expect("written");
        let closer = followed.closer();
        let mut reader = MessageReader::new(followed);
        for number in 0..2 {
            assert_eq!(reader.next_message().expect("a message"), Some(message(number)));
        }
        closer.store(true, Ordering::Release);
        assert_eq!(reader.next_message().expect("the end"), None);
    }
}
