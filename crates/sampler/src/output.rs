//! The command's output: recorded and passed on, byte for byte.
//!
//! Each stream has a thread of its own, which reads, stamps, tells the sink and writes to our own
//! stream, in this order. It holds 64 KiB and no more: when our reader is slow the command waits, as it
//! would without us, and sampling does not. When our reader is gone, what the command has written by
//! then is still recorded, and then the command's stream is closed, so that it learns of it as it would
//! without us.
//!
//! What comes through a pipe is copied to be recorded and stays in the pipe until it moves on to our
//! stream, so that no byte is ever in our hands alone: should we be killed, the [`Keeper`] finds in the pipe
//! exactly what has not been passed on. Of a terminal, and where our stream is a file that is appended to,
//! that is not possible: what was read from a terminal is lost then, and what was just appended may come
//! twice.
//!
//! The price: a command that gives pages to its pipe with `vmsplice` and writes to them once the pipe is empty
//! may do so while they wait in the next pipe. It could not know of a next pipe without us either, because any
//! reader may move pages on.

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
use crate::sys::bell::Bell;
use crate::sys::clock::Waiting;
use crate::sys::keeper::Keeper;
use crate::sys::{descriptor, pipe, signal};

/// What is read at once, and all that is held of a stream.
const CHUNK_BYTES: usize = 64 << 10;
/// What a pipe holds at most.
const MOST_PIPED_BYTES: usize = 1 << 20;
/// How long to wait before asking again whether to give up.
const RETRY_NS: u64 = 100_000_000;

/// A sink that several threads tell. (A trait, because the lifetime within a mutex could not be shortened.)
pub(crate) trait SharedSink: Sync {
    /// Calls `what` once, while nobody else is heard.
    fn with(&self, what: &mut dyn FnMut(&mut dyn Sink));
}

impl SharedSink for Mutex<&mut dyn Sink> {
    fn with(&self, what: &mut dyn FnMut(&mut dyn Sink)) {
        what(&mut **self.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Calls a sink.
pub(crate) fn tell<T>(sink: &dyn SharedSink, what: impl FnOnce(&mut dyn Sink) -> T) -> T {
    let (mut what, mut result) = (Some(what), None);
    sink.with(&mut |sink| result = what.take().map(|what| what(sink)));
    result.expect("a shared sink calls what it is given")
}

/// How the threads of the streams and the loop speak to each other.
pub(crate) struct Ends {
    /// Rung when nothing more will be written.
    over: Bell,
    /// Rung by each thread that is done.
    done: Bell,
    /// Set when nobody waits for slow readers any more.
    give_up: AtomicBool,
    /// Threads that may be blocked in writing; 0 for none.
    threads: [AtomicI32; 3],
}

impl Ends {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            over: Bell::new()?,
            done: Bell::new()?,
            give_up: AtomicBool::new(false),
            threads: [const { AtomicI32::new(0) }; 3],
        })
    }

    /// All processes are over: what is in the pipes now is all there will be.
    pub(crate) fn close(&self) {
        self.over.ring();
    }

    /// Rings when threads have ended.
    pub(crate) fn done(&self) -> &Bell {
        &self.done
    }

    /// There is no thread for a stream after all.
    fn has_none(&self, stream: OutputStream) {
        self.threads[stream as usize - 1].store(0, Ordering::Release);
    }

    /// Whether some thread has not ended.
    pub(crate) fn is_busy(&self) -> bool {
        self.threads.iter().any(|thread| thread.load(Ordering::Acquire) != 0)
    }

    /// Has threads end that wait for a reader of ours; what they hold is recorded, but not passed on.
    pub(crate) fn give_up(&self) {
        self.give_up.store(true, Ordering::Release);
    }

    /// Interrupts threads that do not know yet that they should give up. To be called until none is
    /// left: one may be just before it blocks.
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

/// What all streams of a command share.
#[derive(Clone, Copy)]
pub(crate) struct Passing<'a> {
    pub(crate) sink: &'a dyn SharedSink,
    pub(crate) marks: &'a Marks,
    pub(crate) ends: &'a Ends,
    /// Who else has the streams open.
    pub(crate) keeper: Option<&'a Keeper>,
}

/// One stream.
pub(crate) struct Pump<'a> {
    stream: OutputStream,
    from: File,
    to: File,
    /// Where what is in the pipe is copied to; none if it has to be taken out.
    copies: Option<Copies>,
    /// Bytes that were recorded and are still in the pipe.
    unpassed: usize,
    lines: Lines<'a>,
    shared: Passing<'a>,
    place: usize,
}

/// A pipe of our own.
struct Copies {
    into: PipeWriter,
    from: PipeReader,
    /// Whether our stream takes what comes from a pipe without our touching it.
    can_transfer: bool,
}

/// Why a pump stops.
enum Stopped {
    Ended,
    /// Nobody takes what we pass on.
    Refused(io::Error),
    GaveUp,
}

impl<'a> Pump<'a> {
    /// Prepares to pass on what comes from `from`; not more than one pump per stream.
    fn new((stream, from): (OutputStream, OwnedFd), shared: Passing<'a>) -> io::Result<Self> {
        let to = match stream {
            OutputStream::Stderr => io::stderr().as_fd().try_clone_to_owned()?,
            _ => io::stdout().as_fd().try_clone_to_owned()?,
        };
        // Our end only: the command's end is another description.
        descriptor::never_block(from.as_fd())?;
        let copies = match stream {
            OutputStream::Terminal => None,
            _ => io::pipe().ok().map(|(from, into)| Copies { into, from, can_transfer: true }),
        };
        let place = stream as usize - 1;
        shared.ends.threads[place].store(-1, Ordering::Release);
        let lines = Lines::new(shared.marks);
        Ok(Self { stream, from: from.into(), to: to.into(), copies, unpassed: 0, lines, shared, place })
    }

    /// Starts a thread that passes everything on.
    pub(crate) fn start<'s>(
        scope: &'s Scope<'s, '_>,
        (stream, from): (OutputStream, OwnedFd),
        shared: Passing<'s>,
    ) -> Result<ScopedJoinHandle<'s, Option<Note>>, Note> {
        let started = Pump::new((stream, from), shared).and_then(|pump| {
            thread::Builder::new().name("floodmark-output".into()).spawn_scoped(scope, || pump.run())
        });
        started.map_err(|error| {
            shared.ends.has_none(stream);
            Note::OutputFailed { stream, why: error.to_string() }
        })
    }

    /// Passes everything on until the end.
    fn run(mut self) -> Option<Note> {
        signal::leave_to_others();
        let Passing { sink, ends, keeper, .. } = self.shared;
        ends.threads[self.place].store(signal::this_thread(), Ordering::Release);
        let mut buffer = vec![0; CHUNK_BYTES];
        let stopped = self.pass_on(&mut buffer);
        if let Stopped::Refused(_) | Stopped::GaveUp = stopped {
            self.record_rest(&mut buffer);
        }
        let at_ns = monotonic_ns();
        let Self { stream, mut lines, place, from, .. } = self;
        lines.finish(|name| tell(sink, |sink| sink.mark(at_ns, name)));
        drop(from);
        if let (Stopped::Refused(_), Some(keeper)) = (&stopped, keeper) {
            keeper.close(place);
        }
        ends.threads[place].store(0, Ordering::Release);
        ends.done.ring();
        match stopped {
            Stopped::Ended | Stopped::GaveUp => None,
            Stopped::Refused(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Some(Note::OutputClosed { stream })
            }
            Stopped::Refused(error) => Some(Note::OutputFailed { stream, why: error.to_string() }),
        }
    }

    fn pass_on(&mut self, buffer: &mut [u8]) -> Stopped {
        let mut is_over = false;
        loop {
            match self.look(buffer) {
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
                            Waiting::new([Some(self.from.as_fd()), Some(self.shared.ends.over.as_fd())]);
                        let _ = waiting.until(None);
                        is_over = waiting.is_ready(1);
                    }
                    // A terminal says so when nobody has it open any more.
                    _ => return Stopped::Ended,
                },
            }
        }
    }

    /// Reads what is there next. Of a pipe it stays there.
    fn look(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(copies) = &mut self.copies else { return self.from.read(buffer) };
        let length = pipe::copy(self.from.as_fd(), copies.into.as_fd(), buffer.len())?;
        copies.from.read_exact(&mut buffer[..length])?;
        self.unpassed = length;
        Ok(length)
    }

    fn record(&mut self, bytes: &[u8]) {
        let at_ns = monotonic_ns();
        tell(self.shared.sink, |sink| {
            sink.output(at_ns, self.stream, bytes);
            self.lines.feed(bytes, |name| sink.mark(at_ns, name));
        });
    }

    /// Records what has been written by now, without passing it on.
    fn record_rest(&mut self, buffer: &mut [u8]) {
        while self.unpassed > 0 {
            let most = self.unpassed.min(buffer.len());
            match self.from.read(&mut buffer[..most]) {
                Ok(length @ 1..) => self.unpassed -= length,
                _ => return,
            }
        }
        if self.stream == OutputStream::Terminal {
            // Others have our end of the terminal too, so closing it tells nobody. Whose terminal is
            // gone gets this signal, which the loop passes on.
            signal::send(std::process::id() as i32, libc::SIGHUP);
            self.record_until_over(buffer);
        }
        // Whoever writes on and on must learn that nobody reads.
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
            let mut waiting = Waiting::new([Some(self.from.as_fd()), Some(self.shared.ends.over.as_fd())]);
            let _ = waiting.until(None);
            is_over = waiting.is_ready(1);
            match self.from.read(buffer) {
                Ok(length @ 1..) => self.record(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// Passes on what was looked at.
    fn write(&mut self, bytes: &mut [u8]) -> Stopped {
        let mut passed = 0;
        while passed < bytes.len() {
            if self.shared.ends.give_up.load(Ordering::Acquire) {
                return Stopped::GaveUp;
            }
            match self.write_some(&mut bytes[passed..]) {
                Ok(length) => passed += length,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // A pipe is full, or somebody made our stream so; that is theirs to decide.
                    io::ErrorKind::WouldBlock => {
                        descriptor::wait_for_room(self.to.as_fd(), RETRY_NS);
                    }
                    _ => return Stopped::Refused(error),
                },
            }
        }
        Stopped::Ended
    }

    /// Passes on some of what was looked at; says how much.
    fn write_some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(copies) = &mut self.copies else { return self.to.write(bytes) };
        if copies.can_transfer {
            match pipe::transfer(self.from.as_fd(), self.to.as_fd(), bytes.len()) {
                // A file that is appended to, for example.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => copies.can_transfer = false,
                result => {
                    let length = result?;
                    self.unpassed -= length;
                    return Ok(length);
                }
            }
        }
        let length = self.to.write(bytes)?;
        // They are still in the pipe, and go now.
        self.from.read_exact(&mut bytes[..length])?;
        self.unpassed -= length;
        Ok(length)
    }
}

/// Passes what we read from our terminal on to the command's, until all is over.
pub(crate) fn pass_keys(terminal: OwnedFd, ends: &Ends) {
    signal::leave_to_others();
    let Ok(input) = io::stdin().as_fd().try_clone_to_owned() else { return };
    let (mut input, mut terminal) = (File::from(input), File::from(terminal));
    let mut buffer = [0; 4096];
    loop {
        let mut waiting = Waiting::new([Some(input.as_fd()), Some(ends.over.as_fd())]);
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
                    let mut waiting = Waiting::new([Some(ends.over.as_fd())]);
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
