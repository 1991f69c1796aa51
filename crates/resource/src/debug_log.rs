//! The debug log: messages of resources as lines of text.
//!
//! Resources emit messages with `tracing` only, so a program with a subscriber of its own gets them there. For
//! other programs, [`install`] makes [`DebugLog`] the subscriber of the process:
//!
//! ```text
//! [2026-11-15 15:20:31.689] [info] device 0: the current resource is now failure_callback, was none
//! ```
//!
//! It writes one line per message, with local time, to stderr or to the file in `FLOODMARK_DEBUG_LOG_FILE` or
//! `RMM_DEBUG_LOG_FILE`. [`set_level`] selects the messages, initially by `FLOODMARK_DEBUG_LOG`; the features
//! `max_level_*` of this crate remove messages at compile time. A disabled message costs one comparison.
//!
//! `tracing-subscriber` is not used: the format of a line, RMM's levels and the count of lost lines would remain
//! to be written, and every user of a pool would have to compile more crates.
//!
//! Invariants: a message is formatted before anything is locked, and written with one call; nothing here calls a
//! resource. A thread may therefore emit a message while it holds any lock.

mod level;
mod line;
mod sink;

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

pub use level::{Level, UnknownLevel, level, set_level, should_log};
pub use line::{show_bytes, show_stream};
use sink::Sink;

use crate::local_time::now;

/// Variable with the initial level.
const LEVEL_VARIABLE: &str = "FLOODMARK_DEBUG_LOG";
/// Variables with the path of the log; the first that is set counts.
const FILE_VARIABLES: [&str; 2] = ["FLOODMARK_DEBUG_LOG_FILE", "RMM_DEBUG_LOG_FILE"];
/// Prefix of the targets whose messages are logged.
const TARGET: &str = "floodmark";

/// The reason why the debug log could not be installed.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstallError {
    /// The program has a subscriber, which gets all messages.
    Taken,
    /// The environment names a level that does not exist.
    Level {
        /// The variable.
        variable: &'static str,
        /// The error.
        source: UnknownLevel,
    },
    /// The file cannot be opened.
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl fmt::Display for InstallError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => {
                out.write_str("another tracing subscriber is installed already; it gets the debug log")
            }
            Self::Level { variable, source } => write!(out, "environment variable {variable}: {source}"),
            Self::Open { path, source } => write!(out, "opening the debug log {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for InstallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Taken => None,
            Self::Level { source, .. } => Some(source),
            Self::Open { source, .. } => Some(source),
        }
    }
}

/// Makes the debug log the subscriber of this process, configured by the environment. Further calls have no
/// effect.
///
/// # Errors
/// [`InstallError`] names the reason; then nothing is changed.
pub fn install() -> Result<(), InstallError> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    let level = match std::env::var(LEVEL_VARIABLE) {
        Ok(name) if !name.is_empty() => {
            let parsed = name.parse();
            Some(parsed.map_err(|source| InstallError::Level { variable: LEVEL_VARIABLE, source })?)
        }
        _ => None,
    };
    let path =
        FILE_VARIABLES.into_iter().find_map(|name| std::env::var_os(name).filter(|path| !path.is_empty()));
    let sink = match path {
        Some(path) => Sink::open(Path::new(&path))
            .map_err(|source| InstallError::Open { path: PathBuf::from(&path), source })?,
        None => Sink::Stderr,
    };
    let log = DebugLog::with_sink(sink);
    let shared = Arc::clone(&log.shared);
    set_global_default(log).map_err(|_| InstallError::Taken)?;
    // Truncated only after this log was installed.
    shared.sink.truncate();
    *installed = true;
    if let Some(level) = level {
        set_level(level);
    }
    Ok(())
}

/// A `tracing` subscriber that writes messages as lines of text.
pub struct DebugLog {
    shared: Arc<Shared>,
}

struct Shared {
    sink: Sink,
    lost_lines: AtomicU64,
    is_reported: AtomicBool,
}

impl DebugLog {
    /// Creates a log on stderr.
    pub fn to_stderr() -> Self {
        Self::with_sink(Sink::Stderr)
    }

    /// Creates a log on `out`, which gets one line per call.
    pub fn to_writer(out: Box<dyn Write + Send>) -> Self {
        Self::with_sink(Sink::Writer(Mutex::new(out)))
    }

    fn with_sink(sink: Sink) -> Self {
        let (lost_lines, is_reported) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { sink, lost_lines, is_reported }) }
    }

    fn wants(metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with(TARGET)
    }
}

impl Shared {
    fn write(&self, line: &str) {
        if self.sink.write(line.as_bytes()).is_ok() {
            return;
        }
        self.lost_lines.fetch_add(1, Ordering::Relaxed);
        // A failing file is reported once on stderr.
        if self.sink.is_file() && !self.is_reported.swap(true, Ordering::Relaxed) {
            let _ = Sink::Stderr.write(b"floodmark: the debug log cannot be written; lines are missing\n");
        }
    }
}

impl Subscriber for DebugLog {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wants(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= level::filter() && Self::wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level::filter())
    }

    fn event(&self, event: &Event<'_>) {
        let (second, nanos) = now();
        self.shared.write(&line::format(event, second, nanos));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl fmt::Debug for DebugLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost_lines = self.shared.lost_lines.load(Ordering::Relaxed);
        out.debug_struct("DebugLog").field("lost_lines", &lost_lines).finish_non_exhaustive()
    }
}
