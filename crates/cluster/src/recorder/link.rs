//! A connection to an agent: its launcher, and the streams or files through which messages go.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_sampler::{Unwatched, spawn_unwatched};

use crate::exchange::{AppendedFile, FollowedFile, paths};
use crate::outbox::Outbox;
use crate::wire::{Message, MessageReader};

/// Messages that wait for the recorder; an agent that is faster waits.
const WAITING_MESSAGES: usize = 8;
/// Bytes of a launcher's output that are kept for an error.
const KEPT_BYTES: usize = 4096;

/// A connection to an agent.
pub(super) struct Link {
    launcher: Unwatched,
    output: Outbox,
    pub(super) messages: Receiver<Message>,
    /// Why reading ended, and what came before the first message.
    end: Arc<Mutex<String>>,
    /// What the launcher wrote to stderr.
    complaints: Arc<Mutex<Vec<u8>>>,
    closer: Option<Arc<AtomicBool>>,
}

impl Link {
    /// Starts a launcher and talks to the agent through its stdin and stdout.
    pub(super) fn start(argv: &[String]) -> io::Result<Self> {
        let mut launcher = spawn_unwatched(command(argv).stdin(Stdio::piped()))?;
        let child = launcher.child_mut();
        let output = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let input = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Self::new(launcher, output, input, None)
    }

    /// Starts a launcher and talks to the agent through files.
    pub(super) fn start_exchange(argv: &[String], exchange: &Path) -> io::Result<Self> {
        let (to_agent, from_agent) = paths(exchange);
        if let Some(folder) = exchange.parent() {
            fs::create_dir_all(folder)?;
        }
        for path in [&to_agent, &from_agent] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // Both, before the agent or this side asks for them.
        let output = AppendedFile::open(&to_agent)?;
        drop(AppendedFile::open(&from_agent)?);
        let input = FollowedFile::new(from_agent);
        let closer = input.closer();
        let mut launcher = spawn_unwatched(command(argv).stdin(Stdio::null()))?;
        // Nothing of use comes there, but a full pipe would block it.
        let stdout = launcher.child_mut().stdout.take();
        let link = Self::new(launcher, output, input, Some(closer))?;
        if let Some(stdout) = stdout {
            keep_last(stdout, &link.complaints);
        }
        Ok(link)
    }

    fn new(
        mut launcher: Unwatched,
        output: impl Write + Send + 'static,
        input: impl Read + Send + 'static,
        closer: Option<Arc<AtomicBool>>,
    ) -> io::Result<Self> {
        let complaints = Arc::default();
        if let Some(stderr) = launcher.child_mut().stderr.take() {
            keep_last(stderr, &complaints);
        }
        let output = Outbox::new(output)?;
        let (sender, messages) = sync_channel(WAITING_MESSAGES);
        let end = Arc::new(Mutex::new(String::new()));
        let of_thread = Arc::clone(&end);
        thread::Builder::new()
            .name("floodmark-receive".into())
            .stack_size(256 << 10)
            .spawn(move || receive(input, &sender, &of_thread))?;
        Ok(Self { launcher, output, messages, end, complaints, closer })
    }

    /// Sends a message. A launcher that takes none for so long that messages pile up counts as broken.
    pub(super) fn send(&mut self, message: Message) -> io::Result<()> {
        match self.output.try_send(message)? {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Says why the connection ended: the launcher's own words, if it had any.
    pub(super) fn reason(&mut self) -> String {
        // The launcher's last words may be on their way.
        let deadline = Instant::now() + Duration::from_millis(500);
        let mut status = self.launcher.try_wait();
        while status.is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            status = self.launcher.try_wait();
        }
        thread::sleep(Duration::from_millis(10));
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<String> = String::from_utf8_lossy(&complaints).lines().map(plain).collect();
        lines.retain(|line| !line.is_empty());
        let end = plain(&self.end.lock().unwrap_or_else(PoisonError::into_inner));
        if lines.is_empty() && !end.is_empty() {
            lines.push(end);
        }
        if lines.is_empty() {
            lines.push(match status {
                Some(status) => format!("the launcher ended with {status}"),
                None => "the connection was closed".to_owned(),
            });
        }
        lines.drain(..lines.len().saturating_sub(3));
        lines.join("; ")
    }

    /// Waits until the launcher has ended.
    pub(super) fn finish(mut self, patience: Duration) {
        self.output.finish(patience);
        let deadline = Instant::now() + patience;
        while self.launcher.try_wait().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(closer) = &self.closer {
            closer.store(true, Ordering::Release);
        }
    }
}

/// A line of another program without what could disturb a terminal.
fn plain(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
}

fn command(argv: &[String]) -> Command {
    let (program, arguments) =
        argv.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
    let mut command = Command::new(program);
    // In a group of its own, so that Ctrl-C ends the command and not the connections.
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

fn receive(input: impl Read, sender: &SyncSender<Message>, end: &Mutex<String>) {
    let mut reader = MessageReader::new(input);
    let mut has_begun = false;
    let why = loop {
        match reader.next_message() {
            Ok(Some(message)) => {
                has_begun = true;
                if sender.send(message).is_err() {
                    return;
                }
            }
            Ok(None) if has_begun => break String::new(),
            Ok(None) => break reader.greeting(),
            Err(error) => break format!("it sent {error}"),
        }
    };
    *end.lock().unwrap_or_else(PoisonError::into_inner) = why;
}

/// Reads a stream to its end in a thread, and keeps its last bytes.
pub(super) fn keep_last(mut stream: impl Read + Send + 'static, kept: &Arc<Mutex<Vec<u8>>>) {
    let kept = Arc::clone(kept);
    let read = move || {
        let mut buffer = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..read]);
            let excess = kept.len().saturating_sub(KEPT_BYTES);
            kept.drain(..excess);
        }
    };
    // Without the thread the launcher's words are missing, which is no reason to fail.
    let _ = thread::Builder::new().stack_size(128 << 10).spawn(read);
}
