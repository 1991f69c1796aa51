//! Signals that end, suspend or resume the view: a handler records them and the loop takes them.
//!
//! Signals that were ignored when the view began stay ignored, as `nohup` wants it. Of the crates for signals,
//! signal-hook fits less: it neither leaves ignored signals alone nor can it let the kernel decide whether
//! SIGTSTP stops us, which it does not where no shell could resume us.
#![expect(unsafe_code, reason = "a signal handler may interrupt any code")]

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction};
use nix::unistd::Pid;

/// Signals that ask the program to end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// Signals that suspend and resume the program.
const JOB_CONTROL: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

const STOP: u8 = 1;
const CONTINUED: u8 = 2;

/// Signals that arrived and were not taken yet.
struct Received {
    /// Number of the signal that asked us to end; 0 for none, negative if the whole process group got it.
    end: AtomicI32,
    /// [`STOP`], [`CONTINUED`] or 0.
    job_control: AtomicU8,
}

static RECEIVED: Received = Received { end: AtomicI32::new(0), job_control: AtomicU8::new(0) };

/// What a signal asks the view for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End, by the signal with this number.
    End(i32),
    /// Suspend, as Ctrl-Z does.
    Stop,
    /// Draw again: the program was stopped and continued.
    Continued,
}

/// Takes the request that arrived since the last call.
pub(crate) fn take() -> Option<Request> {
    match RECEIVED.end.swap(0, Ordering::SeqCst) {
        0 => {}
        number => return Some(Request::End(number.abs())),
    }
    match RECEIVED.job_control.swap(0, Ordering::SeqCst) {
        STOP => Some(Request::Stop),
        CONTINUED => Some(Request::Continued),
        _ => None,
    }
}

/// Takes the signal that asked this process alone to end, if one arrived since the last call.
pub(crate) fn take_unshared() -> Option<i32> {
    Some(RECEIVED.end.swap(0, Ordering::SeqCst)).filter(|number| *number > 0)
}

/// Records that the terminal is gone, unless a signal that ends us was recorded already.
pub(crate) fn hang_up() {
    let hang_up = Signal::SIGHUP as i32;
    let _ = RECEIVED.end.compare_exchange(0, hang_up, Ordering::SeqCst, Ordering::SeqCst);
}

extern "C" fn on_signal(number: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    match number {
        libc::SIGTSTP => RECEIVED.job_control.store(STOP, Ordering::SeqCst),
        libc::SIGCONT => {
            let _ = RECEIVED.job_control.compare_exchange(0, CONTINUED, Ordering::SeqCst, Ordering::SeqCst);
        }
        _ => {
            // SAFETY: a handler with SA_SIGINFO gets a valid record from the kernel.
            let is_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
            if is_kernel && number != libc::SIGHUP {
                // A key of the terminal, which the whole process group gets. A terminal that goes away
                // signals only the leader of its session.
                let _ = RECEIVED.end.compare_exchange(0, -number, Ordering::SeqCst, Ordering::SeqCst);
            } else {
                RECEIVED.end.store(number, Ordering::SeqCst);
            }
        }
    }
}

/// Sets the action of a signal and returns the one before.
fn set(signal: Signal, action: &SigAction) -> nix::Result<SigAction> {
    // SAFETY: the only function among the actions that are set here is `on_signal`, which stores to atomics and
    // does nothing else, or one that was installed before and is put back.
    unsafe { sigaction(signal, action) }
}

fn action(handler: SigHandler) -> SigAction {
    SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty())
}

/// Sets the action of a signal unless the signal is ignored; returns the action before, if it was replaced.
fn replace(signal: Signal, handler: SigHandler) -> Option<SigAction> {
    let before = set(signal, &action(handler)).ok()?;
    if matches!(before.handler(), SigHandler::SigIgn) {
        let _ = set(signal, &before);
        return None;
    }
    Some(before)
}

/// The actions of [`JOB_CONTROL`] before the view, which dropping it restores. Signals that ask us to end stay
/// with the handler until [`reset_ending`]: a recorded command may go on.
#[derive(Debug)]
pub(crate) struct Handlers(Vec<(Signal, SigAction)>);

impl Handlers {
    /// Has the handler record all signals that are not ignored.
    pub(crate) fn install() -> Self {
        let handle = |signal| replace(signal, SigHandler::SigAction(on_signal));
        for signal in ENDING {
            handle(signal);
        }
        Self(JOB_CONTROL.into_iter().filter_map(|signal| Some((signal, handle(signal)?))).collect())
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            let _ = set(*signal, before);
        }
    }
}

/// Gives signals that ask us to end their default action; those that are ignored stay ignored.
pub(crate) fn reset_ending() {
    for signal in ENDING {
        replace(signal, SigHandler::SigDfl);
    }
}

/// Stops this process as SIGTSTP does, and returns when it was continued. The kernel does not stop a process
/// that no shell could continue.
pub(crate) fn stop() {
    let before = set(Signal::SIGTSTP, &action(SigHandler::SigDfl));
    let _ = raise(Signal::SIGTSTP);
    if let Ok(before) = before {
        let _ = set(Signal::SIGTSTP, &before);
    }
    RECEIVED.job_control.store(0, Ordering::SeqCst);
}

/// Asks the whole process group to stop, as the terminal does for Ctrl-Z outside of raw mode.
pub(crate) fn stop_group() {
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}

/// Sends a signal to a child that has not been waited for yet, so that its PID is still its own.
pub(crate) fn send(pid: u32, number: i32) {
    if let (Ok(pid), Ok(signal)) = (i32::try_from(pid), Signal::try_from(number)) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
