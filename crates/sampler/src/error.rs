//! Why a command could not be run or a process not be watched.
//!
//! What goes wrong once the command runs is no error: it is a [`Note`](crate::Note) of the outcome,
//! because the command must not suffer from it.

use std::ffi::OsString;
use std::{fmt, io};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no such program.
    NotFound {
        /// As it was given.
        program: OsString,
    },
    /// The program is there, but cannot be run.
    NotExecutable {
        /// As it was given.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// The system would not start a process.
    Start {
        /// As it was given.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// There is no process with this number, or none that may be seen.
    NoProcess {
        /// Its number.
        pid: i32,
    },
    /// This process is watching something already; signals and orphans cannot be shared.
    Busy,
    /// A pattern of a mark cannot be read.
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        message: String,
    },
    /// A debugger is asked for that is not installed.
    NoTool {
        /// The program.
        program: &'static str,
        /// The package of Debian and Ubuntu that has it.
        package: &'static str,
    },
    /// The system refused something that watching needs.
    System {
        /// What was being done, as in "opening a terminal".
        act: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an error of the system with what was being done.
    pub(crate) fn system(act: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { act, source }
    }

    /// The exit code a shell would give: 127 for a program that is not there, 126 for one that cannot
    /// be run, 2 otherwise.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 2,
        }
    }

    /// A remedy, if we know one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("check the spelling, or give the program with its path"),
            Self::NotExecutable { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    Some("its interpreter (first line) or its dynamic loader is not installed")
                }
                io::ErrorKind::PermissionDenied => Some("chmod +x, or run it through its interpreter"),
                _ => None,
            },
            Self::Start { .. } => Some("see 'ulimit -u' and the memory that is left"),
            Self::NoProcess { .. } => Some("'ps' lists processes; those of others may be hidden"),
            Self::NoTool { .. } => Some("native stacks need no debugger, and hold nobody up for long"),
            Self::Busy | Self::Pattern { .. } | Self::System { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program } => write!(out, "{}: command not found", program.display()),
            Self::NotExecutable { program, source } => {
                write!(out, "{}: cannot be run: {source}", program.display())
            }
            Self::Start { program, .. } => write!(out, "starting {}", program.display()),
            Self::NoProcess { pid } => write!(out, "there is no process {pid}"),
            Self::Busy => out.write_str("this process is watching another command already"),
            Self::Pattern { pattern, message } => write!(out, "the pattern '{pattern}' is wrong: {message}"),
            Self::NoTool { program, package } => {
                write!(out, "{program} is not installed (Debian and Ubuntu: apt-get install {package})")
            }
            Self::System { act, .. } => out.write_str(act),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start { source, .. } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
