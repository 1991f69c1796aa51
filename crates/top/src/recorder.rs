//! Records a command in another process: `floodmark run` of the same program.
//!
//! A process watches one thing at a time and takes over signals and orphans for it, and the one that draws
//! needs them for the terminal. So the recording is the same as without us, and goes on should we be
//! killed. It is in our process group: keys and stops reach the command as they would.
#![expect(unsafe_code, reason = "files without a name are made by a C function")]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus as Ended, Stdio};
use std::time::Duration;

use floodmark_sampler::Exit;

use super::signals;
use crate::Front;
use crate::error::{Error, Result};

/// How often it is looked whether the recording has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A command to record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Directory of the trace.
    pub trace: PathBuf,
    /// Options of `floodmark run` before the command.
    pub options: Vec<OsString>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// A recording that goes on.
pub(crate) struct Recorder {
    child: Child,
    /// What it has to say.
    words: File,
}

impl Recorder {
    /// Begins to record. Nothing of it comes to the screen: its words go to a file, the command's output to
    /// the trace alone.
    pub(crate) fn start(record: &Record, front: &dyn Front) -> Result<Self> {
        let words = words_file().map_err(Error::io("making a file for words"))?;
        // By way of our own descriptors: none is inherited, by the command least of all.
        let path = format!("/proc/{}/fd/{}", std::process::id(), words.as_raw_fd());
        let program = std::env::current_exe().map_err(Error::io("finding our own program"))?;
        let mut command = Command::new(program);
        command.arg("--log-file").arg(path).arg("--color").arg(if front.is_colored() {
            "always"
        } else {
            "never"
        });
        if front.is_quiet() {
            command.arg("--quiet");
        }
        command.arg("run").arg("-o").arg(&record.trace).args(&record.options).arg("--").args(&record.command);
        // Keys are ours; what was piped in is the command's.
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(Error::io("starting the recording"))?;
        Ok(Self { child, words })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<Exit>> {
        Ok(self.child.try_wait().map_err(Error::io("waiting for the recording"))?.map(exit_of))
    }

    /// Waits until it ends, and gives how it did and what it had to say. Keys of the terminal reach the
    /// command by themselves; what asks us alone to end is passed on.
    pub(crate) fn finish(mut self) -> Result<(Exit, String)> {
        let exit = loop {
            if let Some(exit) = self.ended()? {
                break exit;
            }
            if let Some(number) = signals::take_unshared() {
                signals::send(self.pid(), number);
            }
            std::thread::sleep(PAUSE);
        };
        signals::reset_ending();
        let mut words = Vec::new();
        // Of what cannot be read there is at least the begin. The place in the file is ours alone.
        let _ = self.words.read_to_end(&mut words);
        Ok((exit, String::from_utf8_lossy(&words).into_owned()))
    }
}

fn exit_of(ended: Ended) -> Exit {
    Exit::from_wait_status(ended.into_raw())
}

/// Creates a file without a name, which no other process can open and which ends with this one.
fn words_file() -> io::Result<File> {
    let name = c"floodmark-words";
    // SAFETY: the name is a C string; the result is checked and owned by nothing else. It is a function of the C library
    // only since glibc 2.27.
    unsafe {
        let fd = libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) as i32;
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

/// Name of an option and its value.
pub fn option(name: &str, value: impl AsRef<OsStr>) -> [OsString; 2] {
    [name.into(), value.as_ref().to_owned()]
}
