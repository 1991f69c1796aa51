//! Messages on their way to the other side, written by a thread of their own.
//!
//! The other side may take nothing for any time: a launcher that hangs, a host that was suspended. Then that thread waits
//! and its owner does not, so the owner still notices the silence.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::wire::Message;

/// Messages that wait to be written.
const WAITING_MESSAGES: usize = 64;

/// Writes messages in a thread.
#[derive(Debug)]
pub(crate) struct Outbox {
    sender: Option<SyncSender<Message>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Outbox {
    /// Writes to `out`, which is closed with the outbox.
    pub(crate) fn new(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, messages) = sync_channel::<Message>(WAITING_MESSAGES);
        let write = move || messages.iter().try_for_each(|message| message.write(&mut out));
        let thread =
            thread::Builder::new().name("floodmark-send".into()).stack_size(256 << 10).spawn(write)?;
        Ok(Self { sender: Some(sender), thread })
    }

    /// Hands a message over; returns it if too many wait already.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] if the stream is closed.
    pub(crate) fn try_send(&self, message: Message) -> io::Result<Option<Message>> {
        let Some(sender) = &self.sender else { return Err(io::ErrorKind::BrokenPipe.into()) };
        match sender.try_send(message) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(message)) => Ok(Some(message)),
            Err(TrySendError::Disconnected(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits until everything is written, but not longer than `patience`, and closes the stream.
    pub(crate) fn finish(&mut self, patience: Duration) {
        self.sender = None;
        let deadline = Instant::now() + patience;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }
}
