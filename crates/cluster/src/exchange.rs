//! Messages through files in a shared directory, for launchers that forward no streams.
//!
//! Each side appends to a file of its own and follows that of the other. A side that has seen nothing new for some time
//! takes the other for gone; both write at least every second.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// Reads a file that grows. It ends when it has not grown for a time, or when it is closed.
#[derive(Debug)]
pub struct FollowedFile {
    path: PathBuf,
    position: u64,
    patience: Duration,
    is_closed: Arc<AtomicBool>,
}

impl FollowedFile {
    /// Follows the file at `path`, which need not be there yet.
    pub fn new(path: PathBuf, patience: Duration) -> Self {
        Self { path, position: 0, patience, is_closed: Arc::default() }
    }

    /// Returns what ends the reading when it is set.
    pub fn closer(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_closed)
    }
}

impl Read for FollowedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            // Opened anew every time: a network file system then asks the server what is new.
            let read = match File::open(&self.path) {
                Ok(file) => file.read_at(buffer, self.position)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
            self.position += read as u64;
            if read > 0 || began.elapsed() > self.patience || self.is_closed.load(Ordering::Acquire) {
                return Ok(read);
            }
            thread::sleep(POLL);
        }
    }
}

/// Serves a recorder through files; see [`agent::serve`](crate::agent::serve).
///
/// # Errors
/// As there, or if the files cannot be used.
pub fn serve(exchange: &Path, version: &str) -> crate::Result<()> {
    let (to_agent, from_agent) = paths(exchange);
    let input = FollowedFile::new(to_agent, Duration::from_secs(10));
    let output = File::options().create(true).append(true).open(&from_agent);
    let output = output.map_err(crate::Error::io(format!("creating {}", from_agent.display())))?;
    crate::agent::serve(input, output, version)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_is_read_as_it_grows() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let mut reader = FollowedFile::new(path.clone(), Duration::from_mins(1));
        let closer = reader.closer();
        let write = move || {
            let mut file = File::options().create(true).append(true).open(path).expect("a file");
            for piece in ["one ", "two ", "three"] {
                file.write_all(piece.as_bytes()).expect("written");
                thread::sleep(POLL);
            }
            closer.store(true, Ordering::Release);
        };
        let writing = thread::Builder::new().name("writing".into()).spawn(write).expect("a thread");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        writing.join().expect("written");
        assert_eq!(text, "one two three");
    }
}
