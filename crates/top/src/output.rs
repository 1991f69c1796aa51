//! Non-blocking output to the terminal, in pieces as far as it takes them, so that a terminal that is not read
//! does not block the view.
#![expect(unsafe_code, reason = "poll and tcflush are C functions")]

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How much is handed over at once where writing may block.
const PIECE: usize = 256;

/// Bytes that wait to be written. The library that draws writes to it and never fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(Rc<RefCell<Vec<u8>>>);

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Writes what `output` takes at once, and says how much that was.
    pub(crate) fn write_to(&self, output: &Output) -> io::Result<usize> {
        let mut bytes = self.0.borrow_mut();
        let written = output.write_now(&bytes)?;
        bytes.drain(..written);
        Ok(written)
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Does nothing: the screen writes pending bytes when the terminal takes them.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal that standard output is.
#[derive(Debug)]
pub(crate) struct Output {
    terminal: File,
    most: usize,
}

impl Output {
    /// Opens it once more: not to wait is a property of an opened file, and standard output is also our
    /// parent's. Where that is not permitted (the terminal of another user), pieces are small instead.
    pub(crate) fn open() -> io::Result<Self> {
        let anew = File::options()
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open("/proc/self/fd/1");
        Ok(match anew {
            Ok(terminal) => Self { terminal, most: usize::MAX },
            Err(_) => {
                let copy = io::stdout().as_fd().try_clone_to_owned()?;
                Self { terminal: copy.into(), most: PIECE }
            }
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }

    /// Writes as much as is taken without waiting.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while at < bytes.len() && takes_output(self.fd(), Duration::ZERO) {
            let piece = &bytes[at..][..self.most.min(bytes.len() - at)];
            match (&self.terminal).write(piece) {
                Ok(0) => break,
                Ok(written) => at += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    }

    /// Writes a few last bytes. If the terminal does not take them for a while, unread output is thrown
    /// away for them.
    pub(crate) fn write_last(&self, mut bytes: &[u8], patience: Duration) {
        let began = Instant::now();
        let mut has_thrown = false;
        while !bytes.is_empty() {
            let Ok(written) = self.write_now(bytes) else { return };
            bytes = &bytes[written..];
            if bytes.is_empty() || takes_output(self.fd(), patience.saturating_sub(began.elapsed())) {
                continue;
            }
            if began.elapsed() < patience {
                // A signal came; who is leaving has no use for it.
                continue;
            }
            if std::mem::replace(&mut has_thrown, true) {
                return;
            }
            self.discard_unread();
        }
    }

    /// Throws away what was written and not yet read.
    pub(crate) fn discard_unread(&self) {
        // SAFETY: takes a descriptor, which is open as long as we are, and a number.
        unsafe { libc::tcflush(self.terminal.as_raw_fd(), libc::TCOFLUSH) };
    }
}

/// Whether a terminal takes something, now or within this time; also where writing would say that it is gone.
pub(crate) fn takes_output(fd: BorrowedFd, most: Duration) -> bool {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let ms = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `asked` is one valid record.
    unsafe { libc::poll(&raw mut asked, 1, ms) > 0 }
}
