//! Levels of the debug log.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::callsite::rebuild_interest_cache;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

/// A level of the debug log, with RMM's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Every step.
    Trace = 0,
    /// Decisions and their reasons.
    Debug = 1,
    /// Notable events.
    Info = 2,
    /// Possible mistakes.
    Warn = 3,
    /// Errors.
    Error = 4,
    /// RMM's level for fatal errors; there are none here, so nothing is logged.
    Critical = 5,
    /// Nothing is logged.
    Off = 6,
}

impl Level {
    /// All levels, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Critical, Self::Off];

    /// Name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Off => "off",
        }
    }

    /// The level with this number, if it exists.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    const fn filter(self) -> LevelFilter {
        match self {
            Self::Trace => LevelFilter::TRACE,
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warn => LevelFilter::WARN,
            Self::Error => LevelFilter::ERROR,
            Self::Critical | Self::Off => LevelFilter::OFF,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The error for a name that is no level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel(String);

impl fmt::Display for UnknownLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} is no level; there are trace, debug, info, warn, error, critical and off", self.0)
    }
}

impl std::error::Error for UnknownLevel {}

impl FromStr for Level {
    type Err = UnknownLevel;

    /// Parses a name in any case, including names of other loggers: `WARNING`, `err`, `fatal`.
    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let name = text.trim().to_ascii_lowercase();
        match name.as_str() {
            "warning" => Ok(Self::Warn),
            "err" => Ok(Self::Error),
            "fatal" => Ok(Self::Critical),
            "none" => Ok(Self::Off),
            name => Self::ALL
                .into_iter()
                .find(|level| level.name() == name)
                .ok_or_else(|| UnknownLevel(text.into())),
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// The current level of this process.
pub fn level() -> Level {
    Level::from_number(LEVEL.load(Ordering::Relaxed)).unwrap_or(Level::Off)
}

/// Sets the level of this process.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    // Every call site caches whether it is enabled.
    rebuild_interest_cache();
}

/// Whether messages of `level` are enabled now, and were not removed at compile time.
pub fn should_log(level: Level) -> bool {
    level != Level::Off && level >= self::level() && level.filter() <= STATIC_MAX_LEVEL
}

/// The current level as a filter of `tracing`.
pub(super) fn filter() -> LevelFilter {
    level().filter()
}
