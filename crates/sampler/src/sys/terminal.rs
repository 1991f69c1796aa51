//! Pseudoterminals for commands, and raw mode of our terminal.
#![expect(unsafe_code, reason = "terminals are C functions and ioctls")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Mutex;

use super::checked;

/// Both ends of a pseudoterminal.
pub(crate) struct Pair {
    /// Our end.
    pub(crate) master: OwnedFd,
    /// The command's end.
    pub(crate) slave: OwnedFd,
}

/// Creates a pseudoterminal with the modes and size of `model`, if there is one.
pub(crate) fn open(model: Option<BorrowedFd<'_>>) -> io::Result<Pair> {
    // SAFETY: posix_openpt takes no pointers.
    let master = checked(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    let master = unsafe { OwnedFd::from_raw_fd(master) };
    // SAFETY: both take a descriptor only.
    checked(unsafe { libc::grantpt(master.as_raw_fd()) })?;
    // SAFETY: as above.
    checked(unsafe { libc::unlockpt(master.as_raw_fd()) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes flags and returns a new descriptor. It needs no path, so it works in any
    // mount namespace.
    let slave = checked(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    let slave = unsafe { OwnedFd::from_raw_fd(slave) };
    if let Some(model) = model
        && let Ok(modes) = modes(model)
    {
        // SAFETY: `modes` is a valid record.
        unsafe { libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, &raw const modes) };
    }
    let pair = Pair { master, slave };
    if let Some(model) = model {
        use std::os::fd::AsFd as _;
        copy_size(model, pair.master.as_fd());
    }
    Ok(pair)
}

/// Makes the terminal at this descriptor the controlling terminal of a new session; to be called between fork
/// and exec.
pub(crate) fn take_over(fd: libc::c_int) -> io::Result<()> {
    // SAFETY: setsid takes nothing.
    checked(unsafe { libc::setsid() })?;
    // SAFETY: TIOCSCTTY takes a number.
    checked(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) })?;
    Ok(())
}

/// Copies the size of a terminal to another.
pub(crate) fn copy_size(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    // SAFETY: all zeros is a valid size; both calls get a valid place.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(from.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) == 0 {
            libc::ioctl(to.as_raw_fd(), libc::TIOCSWINSZ, &raw const size);
        }
    }
}

fn modes(fd: BorrowedFd<'_>) -> io::Result<libc::termios> {
    // SAFETY: all zeros is a valid record, and a valid place for the result.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        checked(libc::tcgetattr(fd.as_raw_fd(), &raw mut modes))?;
        Ok(modes)
    }
}

/// The terminal in raw mode and its previous modes, which `exit` restores if [`Raw`] was not dropped.
static RAW: Mutex<Option<(libc::c_int, libc::termios)>> = Mutex::new(None);

/// A terminal in raw mode, until the value is dropped or the process calls `exit`.
pub(crate) struct Raw {
    modes: libc::termios,
    fd: libc::c_int,
}

impl Raw {
    /// Puts our terminal into raw mode: every key goes to the command's terminal, which interprets Ctrl-C.
    pub(crate) fn enter(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let before = modes(fd)?;
        let mut modes = before;
        // SAFETY: changes the record only.
        unsafe { libc::cfmakeraw(&raw mut modes) };
        let raw = Self { modes, fd: fd.as_raw_fd() };
        let mut kept = RAW.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if kept.replace((raw.fd, before)).is_none() {
            // SAFETY: the function stays where it is for the life of the process.
            unsafe { libc::atexit(restore_at_exit) };
        }
        drop(kept);
        raw.again();
        Ok(raw)
    }

    /// Enters raw mode again, after we were stopped and continued.
    pub(crate) fn again(&self) {
        // SAFETY: the modes are a valid record.
        unsafe { libc::tcsetattr(self.fd, libc::TCSADRAIN, &raw const self.modes) };
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // At exit another thread may hold the lock forever; then that thread is restoring.
    let Ok(mut kept) = RAW.try_lock() else { return };
    if let Some((fd, before)) = kept.take() {
        // SAFETY: the modes were read from the terminal.
        unsafe { libc::tcsetattr(fd, libc::TCSADRAIN, &raw const before) };
    }
}

extern "C" fn restore_at_exit() {
    restore();
}
