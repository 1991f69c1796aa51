//! The agent: samples the processes of a job on one node, and sends what it samples to the recorder.
//!
//! Two halves share nothing but the [`Spool`]: `sampling` fills it, and the connection below reads it. A process that
//! finds the spool of its job in use by another agent, which has lost its recorder, is a connection alone.
//!
//! ```text
//! recorder ── Hello ─► agent ── Welcome, Pong ..., Ready ─► recorder    the command starts
//!          ◄─ Data ... ─        ── Ack, Ping ... ─►
//!          ── Stop ─►           ◄─ Data ..., Ended ─      ── Bye ─► spool deleted
//! ```

mod sampling;

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_tail::clock::Anchor;
use floodmark_tail::reader::boot_id;

use crate::error::{Error, Result};
use crate::spool::Spool;
use crate::wire::{Hello, Message, MessageReader, Welcome};
use sampling::Sampling;

/// Variable that shifts the clock of an agent by nanoseconds, for tests on hosts that share one clock.
pub const SKEW_VARIABLE: &str = "FLOODMARK_TEST_CLOCK_SKEW";

/// How long the first message may take.
const HELLO_PATIENCE: Duration = Duration::from_mins(1);
/// How long the agent waits, after it has sent everything, for the recorder to confirm that.
const BYE_PATIENCE: Duration = Duration::from_secs(8);
/// Time between two checks of the spool.
const POLL: Duration = Duration::from_millis(50);
/// Bytes that may be on their way: the recorder confirms what it has stored.
const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes of one message.
const DATA_BYTES: usize = 256 << 10;
/// Time between two touches of the file that says that a recorder is connected.
const TOUCH: Duration = Duration::from_millis(500);

/// Returns by how much the clock of this agent is shifted.
pub(crate) fn skew_ns() -> i64 {
    std::env::var(SKEW_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the name of this host.
pub fn own_host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Serves one recorder over a pair of streams; returns when the recorder has everything, or is gone and the spool is
/// complete. `version` is that of this program, which the recorder's must equal.
///
/// # Errors
/// If the recorder is not one of ours, or the node's processes cannot be sampled. The recorder gets the reason.
pub fn serve(input: impl Read + Send + 'static, mut output: impl Write, version: &str) -> Result<()> {
    let (sender, messages) = sync_channel(64);
    let read = move || {
        let mut reader = MessageReader::new(input);
        while let Ok(Some(message)) = reader.next_message() {
            if sender.send(message).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("floodmark-orders".into())
        .spawn(read)
        .map_err(Error::io("starting a thread"))?;
    let Ok(Message::Hello(hello)) = messages.recv_timeout(HELLO_PATIENCE) else {
        return Err(Error::refused("no recorder speaks here", "agents are started by floodmark run"));
    };
    match serve_hello(&hello, &messages, &mut output, version) {
        Ok(()) => Ok(()),
        Err(error) => {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
            let _ = Message::Failed { text: format!("{error}{cause}{remedy}") }.write(&mut output);
            Err(error)
        }
    }
}

fn serve_hello(
    hello: &Hello,
    messages: &Receiver<Message>,
    output: &mut impl Write,
    version: &str,
) -> Result<()> {
    if hello.version != version {
        return Err(Error::refused(
            format!("this is version {version}, the recorder is version {}", hello.version),
            "install the same version on every node, or let --push copy it",
        ));
    }
    let spool = Spool::open(&hello.spool, &hello.job, &hello.node)?;
    let mut lock = spool.lock()?;
    if lock.is_none() && spool.is_stopping() {
        // An agent that is about to end: its spool is complete in a moment.
        lock = wait_for_lock(&spool)?;
    }
    if lock.is_some() {
        // Before the position is agreed on: what follows a frame that an agent before this one did not finish would not
        // be found.
        crate::frames::cut_torn_end(&spool.frames()).map_err(Error::io("reading the spool"))?;
    }
    let length = spool.length();
    let start = if hello.position <= length { hello.position } else { 0 };
    let is_resumed = lock.is_none();
    let sampling = match lock {
        // One that was asked to end before is only to be delivered.
        Some(_) if spool.is_stopping() && spool.is_complete() => None,
        Some(lock) => Some(Sampling::start(spool.clone(), lock, hello)?),
        None => None,
    };
    let welcome = Welcome {
        version: version.to_owned(),
        host: own_host(),
        pid: std::process::id(),
        boot: boot_id(),
        spool: spool.directory().display().to_string(),
        is_resumed,
        position: start,
    };
    let mut connection =
        Connection { spool, output, sent: start, acked: start, is_ready: false, ended: None };
    let end = connection.welcome(welcome).and_then(|()| connection.serve(messages, sampling.as_ref()));
    // Without a recorder it ends by itself.
    if let Some(sampling) = sampling {
        sampling.join()?;
    }
    if matches!(end, Ok(End::Delivered)) {
        connection.spool.delete();
    }
    Ok(())
}

fn wait_for_lock(spool: &Spool) -> Result<Option<crate::spool::SpoolLock>> {
    let deadline = Instant::now() + BYE_PATIENCE;
    loop {
        let lock = spool.lock()?;
        if lock.is_some() || Instant::now() > deadline {
            return Ok(lock);
        }
        thread::sleep(POLL);
    }
}

/// How a connection ended.
enum End {
    /// The recorder has everything.
    Delivered,
    /// The recorder is gone.
    Lost,
}

/// The connection to a recorder.
struct Connection<'a, W> {
    spool: Spool,
    output: &'a mut W,
    /// Position up to which the spool was sent.
    sent: u64,
    /// Position up to which the recorder has stored it.
    acked: u64,
    is_ready: bool,
    /// When everything had been sent.
    ended: Option<Instant>,
}

impl<W: Write> Connection<'_, W> {
    fn welcome(&mut self, welcome: Welcome) -> std::io::Result<()> {
        self.spool.touch_attached();
        Message::Welcome(Box::new(welcome)).write(self.output)
    }

    fn serve(&mut self, messages: &Receiver<Message>, sampling: Option<&Sampling>) -> std::io::Result<End> {
        let mut touched = Instant::now();
        loop {
            match messages.recv_timeout(POLL) {
                Ok(Message::Bye) if self.ended.is_some() => return Ok(End::Delivered),
                Ok(message) => self.handle(&message)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Lost),
            }
            if !self.is_ready && sampling.is_none_or(Sampling::is_ready) {
                self.is_ready = true;
                Message::Ready.write(self.output)?;
            }
            self.send()?;
            if touched.elapsed() >= TOUCH {
                touched = Instant::now();
                self.spool.touch_attached();
            }
            if self.ended.is_some_and(|ended| ended.elapsed() > BYE_PATIENCE) {
                return Ok(End::Lost);
            }
        }
    }

    fn handle(&mut self, message: &Message) -> std::io::Result<()> {
        match message {
            Message::Ping { number } => {
                let utc_ns = Anchor::now().utc_ns.wrapping_add(skew_ns());
                Message::Pong { number: *number, utc_ns }.write(self.output)
            }
            Message::Ack { position } => {
                self.acked = self.acked.max(*position).min(self.sent);
                Ok(())
            }
            Message::Stop => self.spool.ask_to_stop(),
            // Nothing else makes sense from a recorder at this point.
            _ => Ok(()),
        }
    }

    /// Sends what is new in the spool, as far as the recorder can take it.
    fn send(&mut self) -> std::io::Result<()> {
        // Asked before the bytes are read, so that all of them are there if it is.
        let is_complete = self.spool.is_complete();
        while self.sent - self.acked < WINDOW_BYTES {
            let bytes = self.spool.read(self.sent, DATA_BYTES)?;
            if bytes.is_empty() {
                if is_complete && self.ended.is_none() {
                    self.ended = Some(Instant::now());
                    Message::Ended { position: self.sent }.write(self.output)?;
                }
                return Ok(());
            }
            let position = self.sent;
            self.sent += bytes.len() as u64;
            Message::Data { position, bytes }.write(self.output)?;
        }
        Ok(())
    }
}
