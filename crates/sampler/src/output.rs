//! The command's output: recorded and forwarded, byte for byte.
//!
//! Each stream has a thread of its own, which reads, takes the time, calls the sink and writes to our own
//! stream, in this order. It holds at most 64 KiB: when our reader is slow the command blocks, as it would
//! without us, and sampling does not. When our reader is gone, everything that the command has written by
//! then is recorded, and then the command's stream is closed, so that the command notices as it would without
//! us.
//!
//! Output of a pipe is copied (`tee`) for recording and stays in the pipe until it is moved (`splice`) to our
//! stream, so no byte is in our memory alone: if we are killed, the [`Keeper`] finds in the pipe exactly what
//! has not been forwarded. This is not possible for a terminal, whose bytes are lost then, nor if our stream
//! is a file opened for appending, where the last bytes may be written twice.
//!
//! The price: a command that moves pages into its pipe with `vmsplice` and reuses them once the pipe is empty
//! may do so while they are in the next pipe. Without us it could not rely on that either, because any reader
//! may move pages on.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use floodmark_event::OutputStream;
use floodmark_tail::clock::monotonic_ns;

use crate::marks::{Lines, Marks};
use crate::outcome::Note;
use crate::sink::Sink;
use crate::sys::clock::Waiting;
use crate::sys::eventfd::EventFd;
use crate::sys::keeper::Keeper;
use crate::sys::{descriptor, pipe, signal};

/// Bytes that are read at once, and the most that is held of a stream.
const CHUNK_BYTES: usize = 64 << 10;
/// Largest capacity of a pipe.
const MOST_PIPED_BYTES: usize = 1 << 20;
/// Time between two checks whether to give up.
const RETRY_NS: u64 = 100_000_000;

/// A sink that several threads call. (A trait, because the lifetime within a mutex cannot be shortened.)
pub(crate) trait SharedSink: Sync {
    /// Calls `what` once, with exclusive access to the sink.
    fn with(&self, what: &mut dyn FnMut(&mut dyn Sink));
}

impl SharedSink for Mutex<&mut dyn Sink> {
    fn with(&self, what: &mut dyn FnMut(&mut dyn Sink)) {
        what(&mut **self.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Calls `what` with exclusive access to the sink, and returns its result.
pub(crate) fn with_sink<T>(sink: &dyn SharedSink, what: impl FnOnce(&mut dyn Sink) -> T) -> T {
    let (mut what, mut result) = (Some(what), None);
    sink.with(&mut |sink| result = what.take().map(|what| what(sink)));
    result.expect("a shared sink calls what it is given")
}

/// State that the threads of the streams share with the main loop.
pub(crate) struct OutputControl {
    /// Notified when nothing more will be written.
    over: EventFd,
    /// Notified by each thread that is done.
    done: EventFd,
    /// Set when slow readers are not waited for any more.
    give_up: AtomicBool,
    /// Ids of the threads that may be blocked in writing; 0 for none, -1 for one that is starting.
    threads: [AtomicI32; 3],
}

impl OutputControl {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            over: EventFd::new()?,
            done: EventFd::new()?,
            give_up: AtomicBool::new(false),
            threads: [const { AtomicI32::new(0) }; 3],
        })
    }

    /// Ends the streams once they are empty, because all processes have ended.
    pub(crate) fn close(&self) {
        self.over.notify();
    }

    /// Becomes readable when threads have ended.
    pub(crate) fn done(&self) -> &EventFd {
        &self.done
    }

    /// Notes that the thread of a stream could not be started.
    fn no_thread(&self, stream: OutputStream) {
        self.threads[stream as usize - 1].store(0, Ordering::Release);
    }

    /// Whether a thread is still running.
    pub(crate) fn is_busy(&self) -> bool {
        self.threads.iter().any(|thread| thread.load(Ordering::Acquire) != 0)
    }

    /// Ends threads that wait for our reader; what they hold is recorded, but not forwarded.
    pub(crate) fn give_up(&self) {
        self.give_up.store(true, Ordering::Release);
    }

    /// Interrupts threads that have not noticed that they should give up. To be called until none is left,
    /// because a thread may be about to block.
    pub(crate) fn interrupt_if_given_up(&self) {
        if !self.give_up.load(Ordering::Acquire) {
            return;
        }
        for thread in &self.threads {
            match thread.load(Ordering::Acquire) {
                0 | -1 => {}
                thread => signal::interrupt(thread),
            }
        }
    }
}

/// Parts that all streams of a command share.
#[derive(Clone, Copy)]
pub(crate) struct Forwarding<'a> {
    pub(crate) sink: &'a dyn SharedSink,
    pub(crate) marks: &'a Marks,
    pub(crate) control: &'a OutputControl,
    /// The process that has the streams open too.
    pub(crate) keeper: Option<&'a Keeper>,
}

/// One stream.
pub(crate) struct Pump<'a> {
    stream: OutputStream,
    from: File,
    to: File,
    /// Pipe for copies; none if bytes have to be read from the stream.
    copies: Option<Copies>,
    /// Bytes that were recorded and are still in the command's pipe.
    unforwarded: usize,
    lines: Lines<'a>,
    shared: Forwarding<'a>,
    place: usize,
}

/// A pipe for copies of the output.
struct Copies {
    into: PipeWriter,
    from: PipeReader,
    /// Whether our stream accepts `splice`.
    can_transfer: bool,
}

/// The reason why a pump stops.
enum Stopped {
    Ended,
    /// Our stream does not accept output.
    Refused(io::Error),
    GaveUp,
}

impl<'a> Pump<'a> {
    /// Prepares to forward the output of `from`; there must be only one pump per stream.
    fn new((stream, from): (OutputStream, OwnedFd), shared: Forwarding<'a>) -> io::Result<Self> {
        let to = match stream {
            OutputStream::Stderr => io::stderr().as_fd().try_clone_to_owned()?,
            _ => io::stdout().as_fd().try_clone_to_owned()?,
        };
        // This affects our end only, because the command's end is another file description.
        descriptor::never_block(from.as_fd())?;
        let copies = match stream {
            OutputStream::Terminal => None,
            _ => io::pipe().ok().map(|(from, into)| Copies { into, from, can_transfer: true }),
        };
        let place = stream as usize - 1;
        shared.control.threads[place].store(-1, Ordering::Release);
        let lines = Lines::new(shared.marks);
        Ok(Self { stream, from: from.into(), to: to.into(), copies, unforwarded: 0, lines, shared, place })
    }

    /// Starts a thread that forwards everything. It needs no further descriptor, so that no output is lost
    /// when there are none left later.
    pub(crate) fn start<'s>(
        scope: &'s Scope<'s, '_>,
        (stream, from): (OutputStream, OwnedFd),
        shared: Forwarding<'s>,
    ) -> io::Result<ScopedJoinHandle<'s, Option<Note>>> {
        let started = Pump::new((stream, from), shared).and_then(|pump| {
            thread::Builder::new().name("floodmark-output".into()).spawn_scoped(scope, || pump.run())
        });
        started.inspect_err(|_| shared.control.no_thread(stream))
    }

    /// Forwards everything until the end of the stream.
    fn run(mut self) -> Option<Note> {
        signal::block_for_this_thread();
        let Forwarding { sink, control, keeper, .. } = self.shared;
        control.threads[self.place].store(signal::this_thread(), Ordering::Release);
        let mut buffer = vec![0; CHUNK_BYTES];
        let stopped = self.forward(&mut buffer);
        if let Stopped::Refused(_) | Stopped::GaveUp = stopped {
            self.record_rest(&mut buffer);
        }
        let at_ns = monotonic_ns();
        let Self { stream, mut lines, place, from, .. } = self;
        lines.finish(|name| with_sink(sink, |sink| sink.mark(at_ns, name)));
        drop(from);
        if let (Stopped::Refused(_), Some(keeper)) = (&stopped, keeper) {
            keeper.close(place);
        }
        control.threads[place].store(0, Ordering::Release);
        control.done.notify();
        match stopped {
            Stopped::Ended | Stopped::GaveUp => None,
            Stopped::Refused(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Some(Note::OutputClosed { stream })
            }
            Stopped::Refused(error) => Some(Note::OutputFailed { stream, why: error.to_string() }),
        }
    }

    fn forward(&mut self, buffer: &mut [u8]) -> Stopped {
        let mut is_over = false;
        loop {
            match self.peek(buffer) {
                Ok(0) => return Stopped::Ended,
                Ok(length) => {
                    self.record(&buffer[..length]);
                    match self.write(&mut buffer[..length]) {
                        Stopped::Ended => {}
                        stopped => return stopped,
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock if is_over => return Stopped::Ended,
                    io::ErrorKind::WouldBlock => {
                        let mut waiting =
                            Waiting::new([Some(self.from.as_fd()), Some(self.shared.control.over.as_fd())]);
                        let _ = waiting.until(None);
                        is_over = waiting.is_ready(1);
                    }
                    // A terminal fails when no process has it open any more.
                    _ => return Stopped::Ended,
                },
            }
        }
    }

    /// Reads the next bytes; leaves them in the stream if it is a pipe.
    fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(copies) = &mut self.copies else { return self.from.read(buffer) };
        let length = pipe::copy(self.from.as_fd(), copies.into.as_fd(), buffer.len())?;
        copies.from.read_exact(&mut buffer[..length])?;
        self.unforwarded = length;
        Ok(length)
    }

    fn record(&mut self, bytes: &[u8]) {
        let at_ns = monotonic_ns();
        with_sink(self.shared.sink, |sink| {
            sink.output(at_ns, self.stream, bytes);
            self.lines.feed(bytes, |name| sink.mark(at_ns, name));
        });
    }

    /// Records what has been written by now, without forwarding it.
    fn record_rest(&mut self, buffer: &mut [u8]) {
        while self.unforwarded > 0 {
            let most = self.unforwarded.min(buffer.len());
            match self.from.read(&mut buffer[..most]) {
                Ok(length @ 1..) => self.unforwarded -= length,
                _ => return,
            }
        }
        if self.stream == OutputStream::Terminal {
            // Other descriptors keep our end of the terminal open, so closing it has no effect. SIGHUP means
            // that the terminal is gone, and the main loop forwards it.
            signal::send(std::process::id() as i32, libc::SIGHUP);
            self.record_until_over(buffer);
        }
        // Bounded, because a command that writes on must get an error.
        let mut left = MOST_PIPED_BYTES;
        while left > 0
            && let Ok(length @ 1..) = self.from.read(buffer)
        {
            self.record(&buffer[..length]);
            left = left.saturating_sub(length);
        }
    }

    fn record_until_over(&mut self, buffer: &mut [u8]) {
        let mut is_over = false;
        while !is_over {
            let mut waiting = Waiting::new([Some(self.from.as_fd()), Some(self.shared.control.over.as_fd())]);
            let _ = waiting.until(None);
            is_over = waiting.is_ready(1);
            match self.from.read(buffer) {
                Ok(length @ 1..) => self.record(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// Forwards bytes from [`Self::peek`].
    fn write(&mut self, bytes: &mut [u8]) -> Stopped {
        let mut forwarded = 0;
        while forwarded < bytes.len() {
            if self.shared.control.give_up.load(Ordering::Acquire) {
                return Stopped::GaveUp;
            }
            match self.write_some(&mut bytes[forwarded..]) {
                Ok(length) => forwarded += length,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // The pipe is full, or our stream is in non-blocking mode, which is not ours to change.
                    io::ErrorKind::WouldBlock => {
                        descriptor::wait_for_room(self.to.as_fd(), RETRY_NS);
                    }
                    _ => return Stopped::Refused(error),
                },
            }
        }
        Stopped::Ended
    }

    /// Forwards some of the bytes; returns how many.
    fn write_some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(copies) = &mut self.copies else { return self.to.write(bytes) };
        if copies.can_transfer {
            match pipe::transfer(self.from.as_fd(), self.to.as_fd(), bytes.len()) {
                // For example a file that is opened for appending.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => copies.can_transfer = false,
                result => {
                    let length = result?;
                    self.unforwarded -= length;
                    return Ok(length);
                }
            }
        }
        let length = self.to.write(bytes)?;
        // Removes them from the pipe.
        self.from.read_exact(&mut bytes[..length])?;
        self.unforwarded -= length;
        Ok(length)
    }
}

/// Forwards input of our terminal to the command's, until all processes have ended.
pub(crate) fn forward_keys(terminal: OwnedFd, control: &OutputControl) {
    signal::block_for_this_thread();
    let Ok(input) = io::stdin().as_fd().try_clone_to_owned() else { return };
    let (mut input, mut terminal) = (File::from(input), File::from(terminal));
    let mut buffer = [0; 4096];
    loop {
        let mut waiting = Waiting::new([Some(input.as_fd()), Some(control.over.as_fd())]);
        if waiting.until(None).is_err() || waiting.is_ready(1) {
            return;
        }
        let Ok(length @ 1..) = input.read(&mut buffer) else { return };
        let mut bytes = &buffer[..length];
        while !bytes.is_empty() {
            match terminal.write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut waiting = Waiting::new([Some(control.over.as_fd())]);
                    let _ = waiting.until(Some(monotonic_ns()));
                    if waiting.is_ready(0) {
                        return;
                    }
                    descriptor::wait_for_room(terminal.as_fd(), RETRY_NS);
                }
                Err(_) => return,
            }
        }
    }
}
