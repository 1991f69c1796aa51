//! Signals that reach us, as things to read.
//!
//! A handler writes what it got into a pipe that the loop waits for. Handlers rather than a blocked
//! mask and a descriptor: they work whatever other threads the process has, and a program that is
//! started meanwhile finds every signal as it should be, because exec resets handlers to the default
//! and leaves the mask and ignored signals alone (so `nohup` keeps working).
//!
//! A child that is hit between fork and exec has our handler but not our pid: it restores the default
//! and takes the signal, as it would have without us.
#![expect(unsafe_code, reason = "signal handlers are C functions")]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::{checked, limit};

/// Writing end of the pipe; -1 while nobody listens.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// The process that listens.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whether the end of a child is in the pipe already: thousands of them must not fill it.
static CHILD_TOLD: AtomicBool = AtomicBool::new(false);

/// Interrupts a thread that is blocked; ignored by default, and hardly anybody's.
const INTERRUPT: libc::c_int = libc::SIGURG;

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel: a key of the terminal, or its end. All of the process group gets those.
    Kernel,
    /// A process, perhaps to us alone.
    Process,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) number: i32,
    pub(crate) sender: Sender,
}

/// Listens to signals until it is dropped; the handlers before it are then put back.
pub(crate) struct Signals {
    pipe: File,
    _write: OwnedFd,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Signals {
    /// Listens to `numbers`, but to none that is ignored: whoever started us wanted it so.
    ///
    /// The end of children is always listened to. There must be no other listener.
    pub(crate) fn listen(numbers: &[libc::c_int]) -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for two descriptors.
        checked(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: both were just made and belong to nobody else.
        let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        CHILD_TOLD.store(false, Ordering::Relaxed);
        OWNER.store(std::process::id() as i32, Ordering::Relaxed);
        PIPE.store(write.as_raw_fd(), Ordering::Release);
        let mut signals = Self { pipe: File::from(read), _write: write, before: Vec::new() };
        for &number in numbers {
            if disposition(number).sa_sigaction != libc::SIG_IGN {
                signals.handle(number, libc::SA_RESTART);
            }
        }
        signals.handle(libc::SIGCHLD, libc::SA_RESTART | libc::SA_NOCLDSTOP);
        // Without SA_RESTART, so that a blocked call comes back.
        signals.handle(INTERRUPT, 0);
        Ok(signals)
    }

    fn handle(&mut self, number: libc::c_int, flags: libc::c_int) {
        // SAFETY: all zeros is a valid sigaction with an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        action.sa_flags = flags | libc::SA_SIGINFO;
        self.before.push((number, disposition(number)));
        // SAFETY: `action` is valid, and its handler calls only what is safe in a handler.
        unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    }

    /// Calls `each` with what arrived since the last time.
    pub(crate) fn drain(&self, mut each: impl FnMut(Arrived)) {
        CHILD_TOLD.store(false, Ordering::SeqCst);
        let mut bytes = [0; 2 * 128];
        // Each signal was written as a pair in one piece, so pairs are never torn.
        while let Ok(length @ 1..) = (&self.pipe).read(&mut bytes) {
            for pair in bytes[..length].chunks_exact(2) {
                let sender = if pair[1] == 0 { Sender::Process } else { Sender::Kernel };
                each(Arrived { number: i32::from(pair[0]), sender });
            }
        }
    }

    /// Dispositions that were "ignore" and that exec would therefore not restore by itself.
    pub(crate) fn ignored(&self) -> Vec<libc::c_int> {
        let ignored = self.before.iter().filter(|(_, before)| before.sa_sigaction == libc::SIG_IGN);
        ignored.map(|(number, _)| *number).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (number, before) in self.before.iter().rev() {
            // SAFETY: `before` is what sigaction gave for this signal.
            unsafe { libc::sigaction(*number, &raw const *before, std::ptr::null_mut()) };
        }
        PIPE.store(-1, Ordering::Release);
    }
}

fn disposition(number: libc::c_int) -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only; `action` is a valid place for the result.
    unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) };
    action
}

extern "C" fn on_signal(number: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: getpid may be called in a handler.
    if unsafe { libc::getpid() } != OWNER.load(Ordering::Relaxed) {
        default_action(number);
        // SAFETY: raise may be called in a handler; the signal arrives when the handler returns.
        unsafe { libc::raise(number) };
        return;
    }
    if number == INTERRUPT || (number == libc::SIGCHLD && CHILD_TOLD.swap(true, Ordering::SeqCst)) {
        return;
    }
    // SAFETY: with SA_SIGINFO the kernel passes a valid record. Positive codes are the kernel's own.
    let from_kernel = !info.is_null() && unsafe { (*info).si_code } > 0;
    let pair = [number as u8, u8::from(from_kernel)];
    // SAFETY: errno's place is the thread's own; write may be called in a handler, and does not block
    // on this pipe. A full pipe means that thousands of signals wait already.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        libc::write(PIPE.load(Ordering::Acquire), pair.as_ptr().cast(), pair.len());
        *errno = kept;
    }
}

/// Gives a signal back to the kernel; may be called between fork and exec.
pub(crate) fn default_action(number: libc::c_int) {
    // SAFETY: signal may be called in a handler and between fork and exec.
    unsafe { libc::signal(number, libc::SIG_DFL) };
}

/// Ignores a signal; may be called between fork and exec.
pub(crate) fn ignore(number: libc::c_int) {
    // SAFETY: as above.
    unsafe { libc::signal(number, libc::SIG_IGN) };
}

/// Sends a signal to a process.
pub(crate) fn send(pid: i32, number: i32) {
    // SAFETY: kill takes no pointers. Only positive numbers get here: no group is ever meant.
    unsafe { libc::kill(pid, number) };
}

/// Ends all processes of a group that a child of ours leads.
pub(crate) fn kill_group(leader: i32) {
    if leader > 1 {
        // SAFETY: kill takes no pointers.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// The signals that the calling thread has blocked.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

impl Mask {
    pub(crate) fn current() -> Self {
        // SAFETY: all zeros is a valid set; the call only asks and writes to a valid place.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut set);
            Self(set)
        }
    }

    /// Blocks everything for the calling thread; gives what was blocked before.
    pub(crate) fn block_all() -> Self {
        // SAFETY: both sets are filled in before they are used.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }

    /// Makes it the mask of the calling thread; may be called between fork and exec.
    pub(crate) fn set(&self) {
        // SAFETY: the set was filled in by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Keeps signals away from the calling thread, except the one that interrupts it.
pub(crate) fn leave_to_others() {
    // SAFETY: the set is filled in before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::sigdelset(&raw mut set, INTERRUPT);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(&raw mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// The system's number of the calling thread.
pub(crate) fn this_thread() -> i32 {
    // SAFETY: gettid takes nothing.
    unsafe { libc::gettid() }
}

/// Makes a blocked call of a thread of this process come back.
pub(crate) fn interrupt(thread: i32) {
    // SAFETY: tgkill takes numbers; a thread that is gone is an error that does not matter.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, INTERRUPT) };
}

/// Ends this process by a signal, without a core file of its own. Returns if the signal did not.
pub(crate) fn die_of(number: i32) {
    limit::forbid_core_file();
    default_action(number);
    // SAFETY: the set is filled in before it is used; raise takes a number.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(number);
    }
}
