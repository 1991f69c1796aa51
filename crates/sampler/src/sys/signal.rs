//! Signals, read from a pipe.
//!
//! A handler writes each signal to a pipe that the main loop polls. Handlers are used instead of a blocked
//! mask and `signalfd`, because they work with any other threads of the process, and because exec resets
//! handlers to the default and keeps the mask and ignored signals (so `nohup` keeps working).
//!
//! A child that gets a signal between fork and exec has our handler but another PID: it restores the default
//! and raises the signal, as it would happen without us.
#![expect(unsafe_code, reason = "signal handlers are C functions")]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use super::{checked, limit};

/// Write end of the pipe; -1 while there is no listener.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// PID of the listener.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whether a SIGCHLD is in the pipe: thousands of them must not fill it.
static CHILD_PENDING: AtomicBool = AtomicBool::new(false);

/// Signals that were ignored when this process began, as a mask. Before `main`, the runtime of Rust ignores
/// SIGPIPE, and later that of C handles 32 and 33, so only earlier code can see what our parent wanted.
static IGNORED_AT_START: AtomicU64 = AtomicU64::new(0);
/// Signals that runtimes change.
const CHANGED_BY_RUNTIMES: [libc::c_int; 3] = [libc::SIGPIPE, 32, 33];

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_IGNORED: extern "C" fn() = note_ignored;

/// A `struct sigaction` of the kernel: the handler comes first, and zeros mean no flags and no mask.
type KernelAction = [libc::c_ulong; 8];

extern "C" fn note_ignored() {
    for number in CHANGED_BY_RUNTIMES {
        let mut action: KernelAction = [0; 8];
        // SAFETY: only queries; the array has room for the structure and for a mask of 8 bytes.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, 0, action.as_mut_ptr(), size_of::<u64>());
        }
        if action[0] == libc::SIG_IGN as libc::c_ulong {
            IGNORED_AT_START.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// Ignores signals that our parent wanted to be ignored and that runtimes changed; may be called between fork
/// and exec.
pub(crate) fn restore_ignored() {
    let ignored = IGNORED_AT_START.load(Ordering::Relaxed);
    for number in CHANGED_BY_RUNTIMES.into_iter().filter(|number| ignored & (1 << number) != 0) {
        let mut action: KernelAction = [0; 8];
        action[0] = libc::SIG_IGN as libc::c_ulong;
        // SAFETY: the array is a valid action without flags; the C library refuses 32 and 33.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, action.as_ptr(), 0, size_of::<u64>());
        }
    }
}

/// Signal that interrupts a blocked thread; ignored by default, and rarely used.
const INTERRUPT: libc::c_int = libc::SIGURG;

/// The sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel, because of a key or the end of the terminal: the whole process group gets it.
    Kernel,
    /// A process, perhaps only to us.
    Process,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) number: i32,
    pub(crate) sender: Sender,
}

/// Receives signals until it is dropped, which restores the previous handlers.
pub(crate) struct Signals {
    pipe: File,
    _write: OwnedFd,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Signals {
    /// Receives `numbers`, except for ignored ones, which our parent wanted to be ignored.
    ///
    /// SIGCHLD is always received. There must be no other listener.
    pub(crate) fn listen(numbers: &[libc::c_int]) -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for two descriptors.
        checked(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: both were just created and have no other owner.
        let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        CHILD_PENDING.store(false, Ordering::Relaxed);
        OWNER.store(std::process::id() as i32, Ordering::Relaxed);
        PIPE.store(write.as_raw_fd(), Ordering::Release);
        let mut signals = Self { pipe: File::from(read), _write: write, before: Vec::new() };
        for &number in numbers {
            if disposition(number).sa_sigaction != libc::SIG_IGN {
                signals.handle(number, libc::SA_RESTART);
            }
        }
        signals.handle(libc::SIGCHLD, libc::SA_RESTART | libc::SA_NOCLDSTOP);
        // Without SA_RESTART, so that a blocked call returns.
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

    /// Calls `each` with the signals that arrived since the last call.
    pub(crate) fn drain(&self, mut each: impl FnMut(Arrived)) {
        CHILD_PENDING.store(false, Ordering::SeqCst);
        let mut bytes = [0; 2 * 128];
        // Each pair was written by one call, so pairs are never split.
        while let Ok(length @ 1..) = (&self.pipe).read(&mut bytes) {
            for pair in bytes[..length].chunks_exact(2) {
                let sender = if pair[1] == 0 { Sender::Process } else { Sender::Kernel };
                each(Arrived { number: i32::from(pair[0]), sender });
            }
        }
    }

    /// Signals that were ignored before, which exec would not restore.
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
            // SAFETY: `before` was returned by sigaction for this signal.
            unsafe { libc::sigaction(*number, &raw const *before, std::ptr::null_mut()) };
        }
        PIPE.store(-1, Ordering::Release);
    }
}

fn disposition(number: libc::c_int) -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only queries; `action` is a valid place for the result.
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
    if number == INTERRUPT || (number == libc::SIGCHLD && CHILD_PENDING.swap(true, Ordering::SeqCst)) {
        return;
    }
    // SAFETY: with SA_SIGINFO the kernel passes a valid record. Positive codes are the kernel's own.
    let from_kernel = !info.is_null() && unsafe { (*info).si_code } > 0;
    let pair = [number as u8, u8::from(from_kernel)];
    // SAFETY: errno belongs to the thread; write may be called in a handler, and does not block on this pipe.
    // A full pipe means that thousands of signals are waiting.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        libc::write(PIPE.load(Ordering::Acquire), pair.as_ptr().cast(), pair.len());
        *errno = kept;
    }
}

/// Resets a signal to its default; may be called between fork and exec.
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
    // SAFETY: kill takes no pointers. The PID is positive, so no group is meant.
    unsafe { libc::kill(pid, number) };
}

/// Kills all processes of a group that a child of ours leads.
pub(crate) fn kill_group(leader: i32) {
    if leader > 1 {
        // SAFETY: kill takes no pointers.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// A signal mask.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

impl Mask {
    pub(crate) fn current() -> Self {
        // SAFETY: all zeros is a valid set; the call only queries and writes to a valid place.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut set);
            Self(set)
        }
    }

    /// Blocks all signals of the calling thread; returns the previous mask.
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

    /// Sets it as the mask of the calling thread; may be called between fork and exec.
    pub(crate) fn set(&self) {
        // SAFETY: the set was filled in by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Blocks all signals of the calling thread, except the one that interrupts it and faults.
pub(crate) fn block_for_this_thread() {
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

/// Id of the calling thread.
pub(crate) fn this_thread() -> i32 {
    // SAFETY: gettid takes nothing. It is a function of the C library only since glibc 2.30.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Interrupts a blocked system call of a thread of this process.
pub(crate) fn interrupt(thread: i32) {
    // SAFETY: tgkill takes numbers; if the thread is gone, it fails.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, INTERRUPT) };
}

/// Ends this process by a signal, without a core file. Returns if the signal does not end it.
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
