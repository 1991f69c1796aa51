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

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_tail::clock::Anchor;
use floodmark_tail::reader::boot_id;

use crate::error::{Error, Result};
use crate::outbox::Outbox;
use crate::spool::{FILE_BYTES, Spool, SpoolReader};
use crate::wire::{Hello, Message, MessageReader, Welcome};
use sampling::{Sampling, State};

/// Variable that shifts the clock of an agent by nanoseconds, for tests on hosts that share one clock.
pub const SKEW_VARIABLE: &str = "FLOODMARK_TEST_CLOCK_SKEW";

/// How long the first message may take.
const HELLO_PATIENCE: Duration = Duration::from_mins(1);
/// How long the agent waits, after it has sent everything, for the recorder to confirm that.
const BYE_PATIENCE: Duration = Duration::from_secs(8);
/// How long the recorder, which asks for the time every second, may be silent before it is taken for lost, if it does
/// not say.
const USUAL_SILENCE: Duration = Duration::from_secs(15);
/// How long the last messages may take to be written.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two checks of the spool, of the sampling half and of its end.
const POLL: Duration = Duration::from_millis(50);
/// The same while the agent only passes on what it samples, which comes less often than that.
const STEADY_POLL: Duration = Duration::from_millis(400);
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
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    version: &str,
) -> Result<()> {
    let messages = receive(input)?;
    let mut output = Outbox::new(output).map_err(Error::io("starting a thread"))?;
    let hello = wait_for_hello(&messages)?;
    let served = serve_hello(&hello, &messages, &output, version);
    if let Err(error) = &served {
        let _ = output.try_send(Message::Failed { text: words(error) });
    }
    output.finish(LAST_PATIENCE);
    served
}

/// Reads messages in a thread.
fn receive(input: impl Read + Send + 'static) -> Result<Receiver<Message>> {
    let (sender, messages) = sync_channel(64);
    let read = move || {
        let mut reader = MessageReader::new(input);
        while let Ok(Some(message)) = reader.next_message() {
            if sender.send(message).is_err() {
                return;
            }
        }
    };
    let builder = thread::Builder::new().name("floodmark-orders".into());
    builder.spawn(read).map_err(Error::io("starting a thread"))?;
    Ok(messages)
}

fn wait_for_hello(messages: &Receiver<Message>) -> Result<Box<Hello>> {
    match messages.recv_timeout(HELLO_PATIENCE) {
        Ok(Message::Hello(hello)) => Ok(hello),
        _ => Err(Error::refused("no recorder speaks here", "agents are started by floodmark run")),
    }
}

fn check_version(hello: &Hello, version: &str) -> Result<()> {
    if hello.version == version {
        return Ok(());
    }
    Err(Error::refused(
        format!("this is version {version}, the recorder is version {}", hello.version),
        "install the same version on every node, or let --push copy it",
    ))
}

/// Samples into a spool in a shared directory until the orders in `input` say to stop, or nothing comes there any more.
/// `slow_down` is called with the number of nodes that follow the same orders. If another agent samples this node for the
/// same job, there is nothing to do.
///
/// # Errors
/// If the recorder is not one of ours, or the node's processes cannot be sampled.
pub fn follow(
    input: impl Read + Send + 'static,
    slow_down: impl FnOnce(usize),
    node: Option<&str>,
    version: &str,
) -> Result<()> {
    let messages = receive(input)?;
    let mut hello = wait_for_hello(&messages)?;
    check_version(&hello, version)?;
    slow_down(hello.hosts.len());
    let of_slurm = std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty());
    hello.node = node.map(str::to_owned).or(of_slurm).unwrap_or_else(own_host);
    let spool = Spool::open(&hello.spool, &hello.job, &hello.node)?;
    let Some(lock) = spool.lock()? else { return Ok(()) };
    crate::frames::cut_torn_end(&spool).map_err(Error::io("reading the spool"))?;
    let sampling = Sampling::start(spool.clone(), lock, &hello)?;
    let silence = Duration::from_nanos(hello.silence_ns).max(USUAL_SILENCE);
    let (mut heard, mut is_ready) = (Instant::now(), false);
    while !sampling.is_finished() {
        match messages.recv_timeout(POLL) {
            Ok(Message::Stop) => spool.ask_to_stop().map_err(Error::io("writing to the spool"))?,
            Ok(_) => heard = Instant::now(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
        }
        if heard.elapsed() > silence {
            spool.ask_to_stop().map_err(Error::io("writing to the spool"))?;
        }
        if !is_ready && sampling.state() == State::Samples {
            is_ready = true;
            spool.set_ready().map_err(Error::io("writing to the spool"))?;
            let line = format!("{}{}\n", crate::recorder::spooling::READY_LINE, hello.node);
            // Where it goes to the files of the job, nothing reads it.
            let _ = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
        }
    }
    sampling.join()
}

/// An error with its cause and its remedy in one line.
fn words(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{error}{cause}{remedy}")
}

fn serve_hello(hello: &Hello, messages: &Receiver<Message>, output: &Outbox, version: &str) -> Result<()> {
    check_version(hello, version)?;
    let spool = Spool::open(&hello.spool, &hello.job, &hello.node)?;
    let mut lock = spool.lock()?;
    if lock.is_none() && spool.is_stopping() {
        // An agent that is about to end: its spool is complete in a moment.
        lock = wait_for_lock(&spool)?;
    }
    if lock.is_some() {
        // Before the position is agreed on: what follows a frame that an agent before this one did not finish would not
        // be found.
        crate::frames::cut_torn_end(&spool).map_err(Error::io("reading the spool"))?;
    }
    let start = first_position(&spool, hello.position)?;
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
    let silence = if hello.silence_ns == 0 { USUAL_SILENCE } else { Duration::from_nanos(hello.silence_ns) };
    let mut connection = Connection {
        reader: SpoolReader::new(spool.clone()),
        spool,
        output,
        unsent: None,
        sent: start,
        acked: start,
        is_ready: false,
        is_stopping: false,
        ended: None,
        silence,
    };
    let end = connection.welcome(welcome).and_then(|()| connection.serve(messages, sampling.as_ref()));
    // Without a recorder it ends by itself.
    if let Some(sampling) = sampling {
        sampling.join()?;
    }
    match end {
        Ok(End::Delivered) => connection.spool.delete(),
        // The recorder asked the wrong thing of a spool, or its files cannot be read.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Error::io("reading the spool")(error));
        }
        _ => {}
    }
    Ok(())
}

/// Returns the position from which the spool is sent, for a recorder that has the first `position` bytes.
fn first_position(spool: &Spool, position: u64) -> Result<u64> {
    let (start, length) = (spool.start(), spool.length());
    if (start..=length).contains(&position) {
        return Ok(position);
    }
    if start > 0 {
        return Err(Error::refused(
            format!("the spool begins at byte {start}, and the recorder asks for byte {position}"),
            "take what is there into a trace with 'floodmark collect'",
        ));
    }
    Ok(0)
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
struct Connection<'a> {
    spool: Spool,
    reader: SpoolReader,
    output: &'a Outbox,
    /// A message that found no room yet.
    unsent: Option<Message>,
    /// Position up to which the spool was sent.
    sent: u64,
    /// Position up to which the recorder has stored it.
    acked: u64,
    is_ready: bool,
    /// Whether the recorder asked the agent to end.
    is_stopping: bool,
    /// When everything had been sent.
    ended: Option<Instant>,
    silence: Duration,
}

impl Connection<'_> {
    fn welcome(&mut self, welcome: Welcome) -> io::Result<()> {
        self.spool.touch_attached();
        self.send_message(Message::Welcome(Box::new(welcome)))
    }

    fn serve(&mut self, messages: &Receiver<Message>, sampling: Option<&Sampling>) -> io::Result<End> {
        let (mut touched, mut heard) = (Instant::now(), Instant::now());
        loop {
            let is_steady = self.is_ready && !self.is_stopping && self.unsent.is_none();
            match messages.recv_timeout(if is_steady { STEADY_POLL } else { POLL }) {
                Ok(Message::Bye) if self.ended.is_some() => return Ok(End::Delivered),
                Ok(message) => {
                    heard = Instant::now();
                    self.handle(&message)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Lost),
            }
            // Asked before the rest is sent, so that the recorder has what was sampled before it failed.
            let state = sampling.map_or(State::Samples, Sampling::state);
            if !self.is_ready && state == State::Samples {
                self.is_ready = true;
                self.send_message(Message::Ready)?;
            }
            self.send()?;
            // The error goes to the recorder, and the spool stays.
            if state == State::Failed || heard.elapsed() > self.silence {
                return Ok(End::Lost);
            }
            if touched.elapsed() >= TOUCH {
                touched = Instant::now();
                self.spool.touch_attached();
            }
            if self.ended.is_some_and(|ended| ended.elapsed() > BYE_PATIENCE) {
                return Ok(End::Lost);
            }
        }
    }

    fn handle(&mut self, message: &Message) -> io::Result<()> {
        match message {
            Message::Ping { number } => {
                let utc_ns = Anchor::now().utc_ns.wrapping_add(skew_ns());
                // An answer that finds no room would be too late to be of use.
                self.output.try_send(Message::Pong { number: *number, utc_ns }).map(drop)
            }
            Message::Ack { position } => {
                let before = self.acked;
                self.acked = before.max(*position).min(self.sent);
                // A file has at least so many bytes.
                if self.acked / FILE_BYTES > before / FILE_BYTES {
                    self.spool.cut(self.acked);
                }
                Ok(())
            }
            Message::Stop => {
                self.is_stopping = true;
                self.spool.ask_to_stop()
            }
            // Nothing else makes sense from a recorder at this point.
            _ => Ok(()),
        }
    }

    /// Sends a message, or keeps it until there is room.
    fn send_message(&mut self, message: Message) -> io::Result<()> {
        self.unsent = self.output.try_send(message)?;
        Ok(())
    }

    /// Sends what is new in the spool, as far as the recorder can take it.
    fn send(&mut self) -> io::Result<()> {
        if let Some(message) = self.unsent.take() {
            self.send_message(message)?;
        }
        // Asked before the bytes are read, so that all of them are there if it is.
        let is_complete = self.spool.is_complete();
        while self.unsent.is_none() && self.sent - self.acked < WINDOW_BYTES {
            let bytes = self.reader.read(self.sent, DATA_BYTES)?;
            if bytes.is_empty() {
                if is_complete && self.ended.is_none() {
                    self.ended = Some(Instant::now());
                    self.send_message(Message::Ended { position: self.sent })?;
                }
                return Ok(());
            }
            let position = self.sent;
            self.sent += bytes.len() as u64;
            self.send_message(Message::Data { position, bytes })?;
        }
        Ok(())
    }
}
