//! Errors of starting a command or a watch.
//!
//! Problems after the command has started are not errors but [`Note`](crate::Note)s of the outcome, because
//! the command must not suffer from them.

use std::ffi::OsString;
use std::{fmt, io};

use floodmark_event::units::format_bytes;

const MORE_DESCRIPTORS: &str = "raise the limit, as in 'ulimit -n 256'";
const MORE_ADDRESS_SPACE: &str =
    "raise 'ulimit -v', or limit the command alone: floodmark run -- sh -c 'ulimit -v KIB; exec COMMAND'";

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of starting a command or a watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no such program.
    NotFound {
        /// The program, as it was passed.
        program: OsString,
    },
    /// The program exists, but cannot be run.
    NotExecutable {
        /// The program, as it was passed.
        program: OsString,
        /// The reason.
        source: io::Error,
    },
    /// The system refused to start a process.
    Start {
        /// The program, as it was passed.
        program: OsString,
        /// The reason.
        source: io::Error,
    },
    /// There is no process with this PID, or it is not visible.
    NoProcess {
        /// The PID.
        pid: i32,
    },
    /// This process is watching another tree; signals and orphans cannot be shared.
    Busy,
    /// A pattern of a mark is not a regular expression.
    Pattern {
        /// The pattern, as it was passed.
        pattern: String,
        /// The reason.
        message: String,
    },
    /// The requested debugger is not installed.
    NoTool {
        /// The program.
        program: &'static str,
        /// Its package in Debian and Ubuntu.
        package: &'static str,
    },
    /// The limit of open files leaves too few for a watch. The command was not started.
    FewDescriptors {
        /// The limit.
        limit: u64,
    },
    /// The limit of address space leaves too little for a watch. The command was not started.
    LittleAddressSpace {
        /// Bytes that must be left.
        needed_bytes: u64,
    },
    /// A system call that the watch needs failed.
    System {
        /// The operation, as in "opening a terminal".
        act: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an error of the system with the operation that failed.
    pub(crate) fn system(act: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { act, source }
    }

    /// Exit code as a shell would return it: 127 for a missing program, 126 for one that cannot be run, 2
    /// otherwise.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 2,
        }
    }

    /// A remedy, if there is a known one.
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
            Self::NoTool { .. } => Some("native stacks need no debugger, and stop processes only briefly"),
            Self::FewDescriptors { .. } => Some(MORE_DESCRIPTORS),
            Self::LittleAddressSpace { .. } => Some(MORE_ADDRESS_SPACE),
            Self::System { source, .. } => match source.raw_os_error() {
                Some(libc::EMFILE) => Some(MORE_DESCRIPTORS),
                Some(libc::ENOMEM | libc::EAGAIN) => Some(MORE_ADDRESS_SPACE),
                _ => None,
            },
            Self::Busy | Self::Pattern { .. } => None,
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
            Self::FewDescriptors { limit } => {
                write!(out, "only {limit} open files are allowed, too few to record; nothing was started")
            }
            Self::LittleAddressSpace { needed_bytes } => {
                let needed = format_bytes(*needed_bytes);
                write!(out, "less than {needed} of address space is left to record; nothing was started")
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
