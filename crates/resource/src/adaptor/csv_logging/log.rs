//! The buffer of a log, and where it goes.
//!
//! Invariants: what is written is a prefix of what was logged, to the byte; after an error the rest is
//! kept and tried again, so a disk that has room again continues in the middle of a line. Only when too
//! much is waiting are whole lines dropped, and counted. A forked child does not write what its parent
//! had buffered, which the parent writes before it forks. What is buffered when the process exits is written
//! then: the current resource is never dropped.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::name;
use super::row::{Action, HEADER, Row};
use crate::process::{Lasting, forks, is_exiting, keep_informed};
use crate::resource::Address;
use crate::stream::Stream;

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// Most bytes that wait for a disk that takes none.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// How many lines are dropped before the disk is tried again.
const RETRY_ROWS: u64 = 1024;

/// When lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// When there are many, and with failures.
    #[default]
    Buffered,
    /// Each at once.
    EveryRow,
}

/// Why there is no log.
#[derive(Debug)]
#[non_exhaustive]
pub enum CsvError {
    /// No file was named.
    NoFileName,
    /// The system refused something.
    Io {
        /// What was being done, as in "creating".
        act: &'static str,
        /// To which file.
        file: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl fmt::Display for CsvError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFileName => {
                let variable = name::VARIABLE;
                write!(out, "no log file: name one, or set the environment variable {variable}")
            }
            Self::Io { act, file, source } => write!(out, "{act} {}: {source}", file.display()),
        }
    }
}

impl std::error::Error for CsvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoFileName => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}

/// Whether all lines arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvHealth {
    /// How often writing failed. What could not be written is kept and tried again.
    pub write_errors: u64,
    /// Lines that were dropped, because too many were waiting; each is missing in one file.
    pub rows_lost: u64,
    /// What the last error was.
    pub last_error: Option<String>,
}

/// A log that clones share.
#[derive(Clone)]
pub struct CsvHandle {
    shared: Arc<Shared>,
}

struct Shared {
    log: Mutex<Log>,
    file: Option<PathBuf>,
    flush: Flush,
}

struct Log {
    row: Row,
    sinks: Vec<Sink>,
    health: CsvHealth,
    /// How many forks ago the buffers were begun.
    forks: u32,
}

struct Sink {
    out: Box<dyn Write + Send>,
    pending: Vec<u8>,
    /// How much has to wait before it is written.
    enough_bytes: usize,
}

impl Shared {
    /// Writes what is buffered unless another thread is writing: at exit and at forks it may never finish.
    fn flush_now(&self) {
        let Ok(mut log) = self.log.try_lock() else { return };
        log.disown();
        let Log { sinks, health, .. } = &mut *log;
        for sink in sinks {
            // Told by the health.
            let _ = sink.flush(health);
        }
    }
}

impl Lasting for Shared {
    fn at_exit(&self) {
        self.flush_now();
    }

    fn before_fork(&self) {
        self.flush_now();
    }
}

impl Sink {
    fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, pending: Vec::with_capacity(BUFFER_BYTES + 256), enough_bytes: BUFFER_BYTES }
    }

    /// Writes what waits; keeps what could not be written.
    fn flush(&mut self, health: &mut CsvHealth) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == self.pending.len() {
                break self.out.flush();
            }
            match self.out.write(&self.pending[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.pending.drain(..written);
        self.enough_bytes = BUFFER_BYTES;
        if let Err(error) = &result {
            self.enough_bytes += self.pending.len();
            health.write_errors += 1;
            health.last_error = Some(error.to_string());
        }
        result
    }
}

impl Log {
    /// Forgets what was the parent's.
    fn disown(&mut self) {
        let forks = forks();
        if self.forks != forks {
            self.forks = forks;
            self.sinks.iter_mut().for_each(|sink| sink.pending.clear());
        }
    }

    /// Appends a line; writes what is enough to be written.
    fn write(&mut self, action: Action, address: Address, bytes: u64, stream: Stream, flush: Flush) {
        self.disown();
        let row = self.row.write(action, address, bytes, stream);
        for sink in &mut self.sinks {
            let fits = sink.pending.len() + row.len() <= MAX_PENDING_BYTES;
            if fits {
                sink.pending.extend_from_slice(row);
            } else {
                self.health.rows_lost += 1;
            }
            let due = if fits {
                flush == Flush::EveryRow || is_exiting() || sink.pending.len() >= sink.enough_bytes
            } else {
                self.health.rows_lost % RETRY_ROWS == 1
            };
            if due || action == Action::Failure {
                // Told by the health.
                let _ = sink.flush(&mut self.health);
            }
        }
    }
}

impl CsvHandle {
    pub(super) fn create(file: &Path, flush: Flush) -> Result<Self, CsvError> {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let error = |act, source| CsvError::Io { act, file: file.clone(), source };
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(|source| error("creating the folder of", source))?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        // Lines of a forked child go to the end and not over those of its parent.
        let opened = options.custom_flags(libc::O_APPEND).open(&file);
        let opened = opened.map_err(|source| error("creating", source))?;
        Ok(Self::with_sinks(vec![Sink::new(Box::new(opened))], Some(file), flush))
    }

    pub(super) fn to_writers(outs: Vec<Box<dyn Write + Send>>, flush: Flush) -> Self {
        Self::with_sinks(outs.into_iter().map(Sink::new).collect(), None, flush)
    }

    fn with_sinks(mut sinks: Vec<Sink>, file: Option<PathBuf>, flush: Flush) -> Self {
        for sink in &mut sinks {
            sink.pending.extend_from_slice(HEADER.as_bytes());
            sink.pending.push(b'\n');
        }
        let log = Log { row: Row::default(), sinks, health: CsvHealth::default(), forks: forks() };
        let handle = Self { shared: Arc::new(Shared { log: Mutex::new(log), file, flush }) };
        keep_informed(&handle.shared);
        handle
    }

    /// The first line of every log, without its end.
    pub const fn header() -> &'static str {
        HEADER
    }

    /// The file that the environment variable `RMM_LOG_FILE` names.
    ///
    /// # Errors
    /// [`CsvError::NoFileName`] if it is not set, or empty.
    pub fn default_file_name() -> Result<PathBuf, CsvError> {
        name::default_file_name()
    }

    /// Puts the number of a device before the last extension, so that each device has a file of its own:
    /// `log.csv` becomes `log.dev0.csv`. The result is absolute, unless there is no current folder.
    pub fn device_file_name(file: &Path, device: i32) -> PathBuf {
        name::device_file_name(file, device)
    }

    /// The file that is written, where there is one.
    pub fn file_name(&self) -> Option<&Path> {
        self.shared.file.as_deref()
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// [`CsvError::Io`] if that is not possible now; it is kept for the next time.
    pub fn flush(&self) -> Result<(), CsvError> {
        self.watched(|log| {
            log.disown();
            let mut result = Ok(());
            for sink in &mut log.sinks {
                let flushed = sink.flush(&mut log.health);
                result = result.and(flushed);
            }
            result
        })
        .map_err(|source| CsvError::Io { act: "writing", file: self.label().to_owned(), source })
    }

    /// Whether all lines arrive.
    pub fn health(&self) -> CsvHealth {
        self.log().health.clone()
    }

    pub(super) fn write(&self, action: Action, address: Address, bytes: u64, stream: Stream) {
        self.watched(|log| log.write(action, address, bytes, stream, self.shared.flush));
    }

    /// Runs `act` on the log and reports its first error to the debug log, after the lock is released
    /// because a subscriber may allocate.
    fn watched<T>(&self, act: impl FnOnce(&mut Log) -> T) -> T {
        let (result, first) = {
            let mut log = self.log();
            let healthy = log.health.write_errors == 0;
            let result = act(&mut log);
            (result, if healthy { log.health.last_error.clone() } else { None })
        };
        if let Some(error) = first {
            tracing::error!("csv_logging: writing {}: {error}; lines may be missing", self.label().display());
        }
        result
    }

    pub(super) fn label(&self) -> &Path {
        self.file_name().unwrap_or(Path::new("the log"))
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CsvHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CsvHandle").field("file", &self.shared.file).finish_non_exhaustive()
    }
}
