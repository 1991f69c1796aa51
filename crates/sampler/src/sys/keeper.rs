//! The keeper: a process that forwards the command's output if the recorder is killed.
//!
//! A process that writes to a pipe without a reader is killed by SIGPIPE. So that a killed recorder does not
//! kill its command, the keeper holds the read ends too. It waits for a byte that ends it, or for the end of
//! the recorder; then it forwards output until all writers have closed their ends. It has no other
//! descriptors of ours, and only SIGKILL ends it.
//!
//! It is forked from a process with threads. It therefore makes system calls only: it allocates nothing,
//! takes no lock and cannot panic.
#![expect(unsafe_code, reason = "a forked process may only call the system")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use super::checked;
use super::signal::Mask;

/// Largest number of streams.
const STREAMS: usize = 2;
/// Bytes that a writable pipe accepts without blocking.
const PIECE_BYTES: usize = 4096;
/// Byte that ends the keeper; smaller numbers close a stream.
const OVER: u8 = 0xff;

/// Handle of the keeper's process.
#[derive(Debug)]
pub(crate) struct Keeper {
    pid: i32,
    /// Write end of the control pipe; none once the keeper has taken over.
    control: Option<File>,
}

impl Keeper {
    /// Starts a keeper for streams, each with the descriptor to which it is forwarded.
    pub(crate) fn start(streams: &[(BorrowedFd<'_>, libc::c_int)]) -> io::Result<Self> {
        let (ours, theirs) = io::pipe()?;
        let mut kept = [const { Stream::none() }; STREAMS];
        for (kept, (from, to)) in kept.iter_mut().zip(streams) {
            (kept.from, kept.to) = (from.as_raw_fd(), *to);
        }
        let mask = Mask::block_all();
        // SAFETY: the child only makes calls that are safe after a fork, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            keep(ours.as_raw_fd(), &mut kept);
        }
        mask.set();
        let pid = checked(pid)?;
        Ok(Self { pid, control: Some(OwnedFd::from(theirs).into()) })
    }

    /// PID.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Closes a stream in the keeper, so that its writer gets an error.
    pub(crate) fn close(&self, stream: usize) {
        self.say(stream as u8);
    }

    /// Leaves the streams to the keeper, which ends when their writers have ended.
    pub(crate) fn take_over(mut self) {
        self.control = None;
    }

    fn say(&self, word: u8) {
        if let Some(mut control) = self.control.as_ref() {
            // It fails if the keeper is gone, which needs no message then.
            let _ = control.write_all(&[word]);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.control.is_none() {
            return;
        }
        self.say(OVER);
        // SAFETY: waits for a child of ours that is not waited for elsewhere; no status is written.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// A stream in the keeper's process.
struct Stream {
    /// Read end; -1 if it is closed.
    from: libc::c_int,
    to: libc::c_int,
    held: [u8; PIECE_BYTES],
    begin: usize,
    end: usize,
}

impl Stream {
    const fn none() -> Self {
        Self { from: -1, to: -1, held: [0; PIECE_BYTES], begin: 0, end: 0 }
    }

    fn close(&mut self) {
        if self.from >= 0 {
            // SAFETY: the descriptor is this process's own.
            unsafe { libc::close(self.from) };
            self.from = -1;
        }
    }

    /// The event to wait for.
    fn awaited(&self) -> libc::pollfd {
        let is_empty = self.begin == self.end;
        let (fd, events) = if is_empty { (self.from, libc::POLLIN) } else { (self.to, libc::POLLOUT) };
        libc::pollfd { fd: if self.from < 0 { -1 } else { fd }, events, revents: 0 }
    }

    /// Writes the held bytes, or reads new ones.
    fn go_on(&mut self) {
        let is_empty = self.begin == self.end;
        let result = if is_empty {
            // SAFETY: the buffer is ours and has this length.
            unsafe { libc::read(self.from, self.held.as_mut_ptr().cast(), PIECE_BYTES) }
        } else {
            let rest = self.held.get(self.begin..self.end).unwrap_or_default();
            // SAFETY: as above.
            unsafe { libc::write(self.to, rest.as_ptr().cast(), rest.len()) }
        };
        // SAFETY: errno belongs to this thread.
        let error = unsafe { *libc::__errno_location() };
        match usize::try_from(result) {
            Ok(0) => self.close(),
            Ok(length) if is_empty => (self.begin, self.end) = (0, length.min(PIECE_BYTES)),
            Ok(length) => self.begin = (self.begin + length).min(self.end),
            Err(_) if error == libc::EAGAIN || error == libc::EINTR => {}
            Err(_) => self.close(),
        }
    }
}

/// Main function of the keeper's process.
fn keep(control: libc::c_int, streams: &mut [Stream; STREAMS]) -> ! {
    // SAFETY: the name is a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"floodmark-keep".as_ptr()) };
    close_others(control, streams);
    let mut word = 0;
    loop {
        // SAFETY: the buffer has room for one byte.
        match unsafe { libc::read(control, (&raw mut word).cast(), 1) } {
            1 if word == OVER => break,
            1 => streams.iter_mut().skip(usize::from(word)).take(1).for_each(Stream::close),
            0 => {
                pass_on(streams);
                break;
            }
            // SAFETY: errno belongs to this thread.
            _ if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => break,
        }
    }
    // SAFETY: ends the process without running exit handlers of its parent.
    unsafe { libc::_exit(0) }
}

/// Forwards output until all writers have closed their ends. A slow reader delays only its own stream.
fn pass_on(streams: &mut [Stream; STREAMS]) {
    while streams.iter().any(|stream| stream.from >= 0) {
        let [first, second] = &*streams;
        let mut awaited = [first.awaited(), second.awaited()];
        // SAFETY: the array has this many entries.
        unsafe { libc::poll(awaited.as_mut_ptr(), STREAMS as libc::nfds_t, -1) };
        for (stream, awaited) in streams.iter_mut().zip(awaited) {
            if awaited.revents != 0 && stream.from >= 0 {
                stream.go_on();
            }
        }
    }
}

/// Closes all other descriptors, because other processes may wait until they are closed.
fn close_others(control: libc::c_int, streams: &[Stream; STREAMS]) {
    let [first, second] = streams;
    let mut kept = [control, first.from, first.to, second.from, second.to];
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept.into_iter().filter(|fd| *fd >= 0) {
        if fd > from {
            close_range(from as u32, fd as u32 - 1);
        }
        from = fd + 1;
    }
    close_range(from as u32, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: takes numbers; the descriptors belong to this process and are not used again.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } < 0 {
        // Kernels before 5.9. Higher descriptors are unlikely.
        for fd in first..=last.min(1 << 16) {
            // SAFETY: as above.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}
