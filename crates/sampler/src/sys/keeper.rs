//! A process that takes the command's output over, should this one be killed.
//!
//! Whoever writes into a pipe that nobody reads is killed for it. So that the end of a recorder is not the
//! end of what it records, a process beside it holds the reading ends too. It does nothing but wait: for the
//! word that all is over, or for the recorder's end. Then it passes on what comes until nobody writes any
//! more. It holds no other descriptor of ours, and no signal but SIGKILL ends it.
//!
//! It is forked from a process with threads. So it calls the system and nothing else: it allocates
//! nothing, takes no lock and cannot panic.
#![expect(unsafe_code, reason = "a forked process may only call the system")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use super::checked;
use super::signal::Mask;

/// Most streams that are kept.
const STREAMS: usize = 2;
/// What a pipe takes at once without waiting, if it takes anything.
const PIECE_BYTES: usize = 4096;
/// Says that all is over; smaller numbers say that a stream is.
const OVER: u8 = 0xff;

/// The process, while we live.
#[derive(Debug)]
pub(crate) struct Keeper {
    pid: i32,
    /// None when it is left alone.
    control: Option<File>,
}

impl Keeper {
    /// Starts it for streams, each with the number of our descriptor to which it is passed on.
    pub(crate) fn start(streams: &[(BorrowedFd<'_>, libc::c_int)]) -> io::Result<Self> {
        let (ours, theirs) = io::pipe()?;
        let mut kept = [const { Stream::none() }; STREAMS];
        for (kept, (from, to)) in kept.iter_mut().zip(streams) {
            (kept.from, kept.to) = (from.as_raw_fd(), *to);
        }
        let mask = Mask::block_all();
        // SAFETY: the child only calls functions that are safe after a fork, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            keep(ours.as_raw_fd(), &mut kept);
        }
        mask.set();
        let pid = checked(pid)?;
        Ok(Self { pid, control: Some(OwnedFd::from(theirs).into()) })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Has it close a stream, so that whoever writes to it learns that nobody reads.
    pub(crate) fn close(&self, stream: usize) {
        self.say(stream as u8);
    }

    /// Leaves the streams to it. It ends with those that write to them.
    pub(crate) fn take_over(mut self) {
        self.control = None;
    }

    fn say(&self, word: u8) {
        if let Some(mut control) = self.control.as_ref() {
            // It fails if the process is gone, and then there is nothing to say to it.
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
        // SAFETY: waits for a child of ours that nobody else waits for; asks for no status.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// One stream, as the process knows it.
struct Stream {
    /// -1 when it is over.
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

    /// What to wait for.
    fn awaited(&self) -> libc::pollfd {
        let is_empty = self.begin == self.end;
        let (fd, events) = if is_empty { (self.from, libc::POLLIN) } else { (self.to, libc::POLLOUT) };
        libc::pollfd { fd: if self.from < 0 { -1 } else { fd }, events, revents: 0 }
    }

    /// Passes one piece on, or takes one.
    fn go_on(&mut self) {
        let is_empty = self.begin == self.end;
        let result = if is_empty {
            // SAFETY: the place is ours and as long as said.
            unsafe { libc::read(self.from, self.held.as_mut_ptr().cast(), PIECE_BYTES) }
        } else {
            let rest = self.held.get(self.begin..self.end).unwrap_or_default();
            // SAFETY: as above.
            unsafe { libc::write(self.to, rest.as_ptr().cast(), rest.len()) }
        };
        // SAFETY: the place of errno is this thread's own.
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

/// What the process does.
fn keep(control: libc::c_int, streams: &mut [Stream; STREAMS]) -> ! {
    // SAFETY: the name is a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"floodmark-keep".as_ptr()) };
    close_others(control, streams);
    let mut word = 0;
    loop {
        // SAFETY: there is room for one byte.
        match unsafe { libc::read(control, (&raw mut word).cast(), 1) } {
            1 if word == OVER => break,
            1 => streams.iter_mut().skip(usize::from(word)).take(1).for_each(Stream::close),
            0 => {
                pass_on(streams);
                break;
            }
            // SAFETY: the place of errno is this thread's own.
            _ if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => break,
        }
    }
    // SAFETY: ends the process without running anything of its parent's.
    unsafe { libc::_exit(0) }
}

/// Passes on what comes until nobody writes any more. A reader that is slow holds up its stream only.
fn pass_on(streams: &mut [Stream; STREAMS]) {
    while streams.iter().any(|stream| stream.from >= 0) {
        let [first, second] = &*streams;
        let mut awaited = [first.awaited(), second.awaited()];
        // SAFETY: there are as many entries as said.
        unsafe { libc::poll(awaited.as_mut_ptr(), STREAMS as libc::nfds_t, -1) };
        for (stream, awaited) in streams.iter_mut().zip(awaited) {
            if awaited.revents != 0 && stream.from >= 0 {
                stream.go_on();
            }
        }
    }
}

/// Closes every descriptor that is not needed: others may wait until nobody has it any more.
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
    // SAFETY: takes numbers; what is closed is this process's own, and nothing of it is used again.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } < 0 {
        // Kernels before 5.9. More descriptors than these are not kept open on purpose.
        for fd in first..=last.min(1 << 16) {
            // SAFETY: as above.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}
