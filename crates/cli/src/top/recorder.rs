//! Recording a command in a process beside us: `floodmark run` itself.
//!
//! A process watches one thing at a time and takes over signals and orphans for it, and the one that draws
//! needs them for the terminal. So the recording is the same as without us, and goes on should we be
//! killed. It is in our process group: keys and stops reach the command as they would.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus as Ended, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use floodmark_sampler::Exit;

use super::terminal::{self, Asked};
use crate::printer::Printer;

/// How often it is looked whether the recording has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A command to record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Directory of the trace.
    pub(crate) trace: PathBuf,
    /// Options of `floodmark run` before the command.
    pub(crate) options: Vec<OsString>,
    pub(crate) command: Vec<OsString>,
}

/// A recording that goes on.
pub(crate) struct Recorder {
    child: Child,
    /// File with what it has to say.
    words: PathBuf,
}

impl Recorder {
    /// Begins to record. Nothing of it comes to the screen: its words go to a file, the command's output to
    /// the trace alone.
    pub(crate) fn start(record: &Record, printer: &Printer) -> Result<Self> {
        let words = words_file()?;
        let program = std::env::current_exe().context("finding our own program")?;
        let mut command = Command::new(program);
        command.arg("--words").arg(&words).arg("--color").arg(if printer.is_colored() {
            "always"
        } else {
            "never"
        });
        if !printer.speaks() {
            command.arg("--quiet");
        }
        command.arg("run").arg("-o").arg(&record.trace).args(&record.options).arg("--").args(&record.command);
        // Keys are ours; what was piped in is the command's.
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("starting the recording")?;
        Ok(Self { child, words })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<Exit>> {
        Ok(self.child.try_wait().context("waiting for the recording")?.map(exit_of))
    }

    /// Waits until it ends, and gives how it did and what it had to say. Keys of the terminal reach the
    /// command by themselves; what asks us alone to end is passed on.
    pub(crate) fn finish(mut self) -> Result<(Exit, String)> {
        let exit = loop {
            if let Some(exit) = self.ended()? {
                break exit;
            }
            if terminal::asked() == Asked::End(libc::SIGTERM) {
                terminal::send(self.pid(), libc::SIGTERM);
            }
            std::thread::sleep(PAUSE);
        };
        let words = std::fs::read(&self.words).unwrap_or_default();
        Ok((exit, String::from_utf8_lossy(&words).into_owned()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.words);
    }
}

fn exit_of(ended: Ended) -> Exit {
    Exit::from_wait_status(ended.into_raw())
}

/// Makes a file of our own that nobody had before.
fn words_file() -> Result<PathBuf> {
    let folder = std::env::temp_dir();
    let name = |number: u32| folder.join(format!("floodmark-top-{}-{number}", std::process::id()));
    for path in (0..100).map(name) {
        match File::options().write(true).create_new(true).open(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("creating {}", path.display())),
        }
    }
    anyhow::bail!("{} has too many files of earlier recordings", folder.display())
}

/// Name of an option and its value.
pub(crate) fn option(name: &str, value: impl AsRef<OsStr>) -> [OsString; 2] {
    [name.into(), value.as_ref().to_owned()]
}
