//! Starting a command as it would start without us.
//!
//! The command inherits our terminal, stdin, working directory and environment, every descriptor without
//! close-on-exec (MPI launchers pass sockets that way), our process group, and the signal dispositions that
//! we inherited: ignored signals stay ignored, all others are at their default, and the mask is unchanged.
//! Being in our group, it gets Ctrl-C and Ctrl-Z from the terminal directly.
//!
//! It gets *no* signal when we die, and its output still reaches the stream that ours went to: a recorder
//! that is killed must not end the command (see `sys::keeper`).
#![expect(unsafe_code, reason = "code between fork and exec is unsafe to add")]

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use floodmark_event::OutputStream;
use floodmark_event::text::shell_line;

use crate::error::{Error, Result};
use crate::sys::keeper::Keeper;
use crate::sys::limit::Limit;
use crate::sys::{signal, terminal};

/// A command to run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program: a path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// Variables to add to the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How its output is captured.
    pub capture: Capture,
}

impl Launch {
    /// Creates a command whose output is not captured.
    pub fn new(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            capture: Capture::None,
        }
    }

    /// Name of the program without its directory.
    pub(crate) fn name(&self) -> String {
        let name = Path::new(&self.program).file_name().unwrap_or(&self.program);
        name.to_string_lossy().into_owned()
    }

    /// The command line as it must be typed into a shell.
    pub fn command_line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        shell_line(words.map(|word| word.to_string_lossy()))
    }
}

/// How a command's output is captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// Not at all: the command inherits our streams.
    #[default]
    None,
    /// By two pipes, whose output is recorded and forwarded. A program can tell that it does not write to a
    /// terminal.
    Pipes,
    /// By a pseudoterminal in a session of its own, where stdout and stderr are one stream, which is recorded
    /// and forwarded. Stdin is that terminal too if ours is a terminal.
    Terminal,
}

/// Process group of a command, which decides the terminal's signals it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Our group: it gets the signals that we get.
    Ours,
    /// Another group.
    Other,
}

/// State of this process that a command must inherit as it was before.
pub(crate) struct Surroundings {
    /// Ignored signals.
    pub(crate) ignored: Vec<libc::c_int>,
    /// Limit of descriptors.
    pub(crate) descriptors: Limit,
}

/// Streams for a command's output, created before it starts.
pub(crate) struct Channels {
    /// Our ends.
    pub(crate) streams: Vec<(OutputStream, OwnedFd)>,
    /// The command's ends.
    pub(crate) theirs: Option<[OwnedFd; 2]>,
    /// Our end of its terminal.
    pub(crate) terminal: Option<OwnedFd>,
}

impl Channels {
    pub(crate) fn open(capture: Capture) -> Result<Self> {
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(Error::system("copying a descriptor"));
        let pipe = || io::pipe().map_err(Error::system("creating a pipe"));
        match capture {
            Capture::None => Ok(Self { streams: Vec::new(), theirs: None, terminal: None }),
            Capture::Pipes => {
                let ((out, their_out), (err, their_err)) = (pipe()?, pipe()?);
                let streams = vec![(OutputStream::Stdout, out.into()), (OutputStream::Stderr, err.into())];
                Ok(Self { streams, theirs: Some([their_out.into(), their_err.into()]), terminal: None })
            }
            Capture::Terminal => {
                let pair = open_terminal().map_err(Error::system("opening a terminal for the command"))?;
                let streams = vec![(OutputStream::Terminal, copy(&pair.master)?)];
                let theirs = Some([copy(&pair.slave)?, pair.slave]);
                Ok(Self { streams, theirs, terminal: Some(pair.master) })
            }
        }
    }

    /// Starts a process that takes over the streams if we are killed; none if there are no streams.
    pub(crate) fn keeper(&self) -> io::Result<Option<Keeper>> {
        let to = |stream: OutputStream| match stream {
            OutputStream::Stderr => libc::STDERR_FILENO,
            _ => libc::STDOUT_FILENO,
        };
        let streams: Vec<_> = self.streams.iter().map(|(stream, from)| (from.as_fd(), to(*stream))).collect();
        if streams.is_empty() { Ok(None) } else { Keeper::start(&streams).map(Some) }
    }
}

/// Starts a command in a process group; `theirs` are its ends of the output streams. Returns its PID. When
/// this returns, exec has succeeded.
pub(crate) fn start(
    launch: &Launch,
    theirs: Option<[OwnedFd; 2]>,
    group: Group,
    surroundings: Surroundings,
) -> Result<i32> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments);
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    let has_terminal = group == Group::Other;
    if let Some([out, err]) = theirs {
        if has_terminal && io::stdin().is_terminal() {
            command.stdin(out.try_clone().map_err(Error::system("copying a descriptor"))?);
        }
        command.stdout(out).stderr(err);
    }
    let mask = signal::Mask::current();
    let prepare = move || {
        mask.set();
        surroundings.ignored.iter().for_each(|number| signal::ignore(*number));
        signal::restore_ignored();
        surroundings.descriptors.set();
        if has_terminal { terminal::take_over(libc::STDOUT_FILENO) } else { Ok(()) }
    };
    // SAFETY: between fork and exec the closure makes system calls only: it allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn().map_err(|error| refusal(&launch.program, error))?;
    Ok(child.id() as i32)
}

fn open_terminal() -> io::Result<terminal::Pair> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let ours = [input.as_fd(), output.as_fd(), error.as_fd()];
    terminal::open(ours.into_iter().find(io::IsTerminal::is_terminal))
}

/// The error for a program that could not be started, as a shell would report it.
fn refusal(program: &OsStr, source: io::Error) -> Error {
    let program = program.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound if is_there(&program) => Error::NotExecutable { program, source },
        io::ErrorKind::NotFound => Error::NotFound { program },
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ExecutableFileBusy
        | io::ErrorKind::ArgumentListTooLong
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory => Error::NotExecutable { program, source },
        _ if source.raw_os_error() == Some(libc::ENOEXEC) => Error::NotExecutable { program, source },
        _ => Error::Start { program, source },
    }
}

/// Whether the program exists: "not found" for a file that exists means that its interpreter is missing.
fn is_there(program: &OsStr) -> bool {
    if program.is_empty() {
        return false;
    }
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
