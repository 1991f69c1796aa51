//! The terminal while it is ours, and how it is given back: whatever happens.
//!
//! Invariant: between [`Screen::enter`] and the end of the process the terminal is restored on leaving, on
//! an error (the screen is dropped), on a panic of any thread (a hook) and on every signal that asks us to
//! end or to stop (the loop takes them as [`Asked`]). Restoring twice does no harm. Nothing here waits for a
//! terminal that takes no output, except restoring, and that not for long.
#![expect(unsafe_code, reason = "signal handlers are C functions")]

use std::io::{self, IsTerminal as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Position, Rect};
use ratatui::{Frame, Terminal};

use super::output::{Output, Pending};
use crate::error::{Error, Result};

/// How long a terminal that takes no output is waited for when it is given back.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// Held while the terminal changes hands and while it is drawn on: a thread may panic while another does.
static TURN: Mutex<()> = Mutex::new(());
/// Whether the terminal is ours now.
static IS_OURS: AtomicBool = AtomicBool::new(false);
/// Whether anything reached the terminal since it is ours.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
/// The terminal, once it was ours.
static OUTPUT: OnceLock<Output> = OnceLock::new();
/// Whether a thread panicked, so that nothing is to be drawn any more.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
/// The signal that asked us to end; 0 for none, below 0 if the command was asked as well.
static TO_END: AtomicI32 = AtomicI32::new(0);
/// Whether we were asked to stop, and were continued.
static TO_STOP: AtomicU8 = AtomicU8::new(0);

const STOP: u8 = 1;
const CONTINUED: u8 = 2;

/// Signals that ask us to end.
const ENDING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// What somebody outside asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// To end, by this signal.
    End(i32),
    /// To stop, as Ctrl-Z does.
    Stop,
    /// We were stopped by force and run again.
    Continued,
    /// A thread panicked; the terminal was restored already.
    Panicked,
}

/// The screen while it is ours.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Pending>>,
    pending: Pending,
    output: &'static Output,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn enter() -> Result<Self> {
        let opened = Output::open().map_err(Error::io("opening the terminal"))?;
        let output = OUTPUT.get_or_init(|| opened);
        let pending = Pending::default();
        let terminal = Terminal::new(CrosstermBackend::new(pending.clone()))?;
        let before = listen();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            HAS_PANICKED.store(true, Ordering::SeqCst);
            restore();
            hook(panic);
        }));
        // From here on what fails drops the screen, which restores.
        let mut screen = Self { terminal, pending, output, before };
        screen.take_over()?;
        Ok(screen)
    }

    /// Whether the terminal took everything, so that more can be drawn.
    pub(crate) fn is_ready(&self) -> bool {
        self.pending.is_empty()
    }

    /// What to wait on for the terminal to take more; none if nothing waits to be written.
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'static>> {
        (!self.is_ready()).then(|| self.output.fd())
    }

    /// Draws, unless the terminal is not ours any more, and writes as much as the terminal takes.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> Result<()> {
        {
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            if IS_OURS.load(Ordering::SeqCst) {
                self.terminal.draw(draw)?;
            }
        }
        self.write()
    }

    /// Writes as much of what was drawn as the terminal takes.
    pub(crate) fn write(&mut self) -> Result<()> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if !IS_OURS.load(Ordering::SeqCst) {
            self.pending.clear();
            return Ok(());
        }
        match self.pending.write_to(self.output) {
            Ok(0) => Ok(()),
            Ok(_) => {
                IS_ENTERED.store(true, Ordering::SeqCst);
                Ok(())
            }
            // The terminal is gone, as a signal has said or is about to say.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                self.pending.clear();
                let _ = TO_END.compare_exchange(0, libc::SIGHUP, Ordering::SeqCst, Ordering::SeqCst);
                Ok(())
            }
            Err(error) => Err(error).map_err(Error::io("writing to the terminal")),
        }
    }

    fn take_over(&mut self) -> Result<()> {
        {
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            if HAS_PANICKED.load(Ordering::SeqCst) {
                return Ok(());
            }
            enable_raw_mode()?;
            IS_OURS.store(true, Ordering::SeqCst);
            self.pending.clear();
            queue!(self.pending, EnterAlternateScreen, Hide)?;
        }
        self.write()
    }

    /// Gives the terminal back, stops until somebody continues us, and takes it over again. Where nobody
    /// could continue us, because no shell is above us, the kernel does not stop us.
    pub(crate) fn stop(&mut self) -> Result<()> {
        restore();
        // SAFETY: raise takes a number. It returns when we were continued, or were not stopped.
        unsafe {
            set_action(libc::SIGTSTP, libc::SIG_DFL);
            libc::raise(libc::SIGTSTP);
            set_action(libc::SIGTSTP, handler());
        };
        TO_STOP.store(0, Ordering::SeqCst);
        self.again()
    }

    /// Takes the terminal over once more and draws everything anew.
    pub(crate) fn again(&mut self) -> Result<()> {
        IS_OURS.store(false, Ordering::SeqCst);
        self.take_over()?;
        // Not `clear`, which asks the terminal where its cursor is and waits for an answer.
        let size = self.terminal.size()?;
        Ok(self.terminal.resize(Rect::from((Position::ORIGIN, size)))?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        // Without a screen stopping needs no care. What asks us to end is still ours: a command may go on.
        for (number, before) in self.before.iter().filter(|(number, _)| !ENDING.contains(number)) {
            // SAFETY: `before` is what sigaction gave for this signal.
            unsafe { libc::sigaction(*number, &raw const *before, std::ptr::null_mut()) };
        }
    }
}

/// Waits for the turn, but not for ever: a thread that panics while it draws holds it itself.
fn patiently() -> Option<MutexGuard<'static, ()>> {
    for _ in 0..50 {
        match TURN.try_lock() {
            Ok(turn) => return Some(turn),
            Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    None
}

/// Gives the terminal back, if it is ours. What fails here cannot be helped. What was not written yet is not
/// written: the bytes of leaving end a sequence that was cut.
fn restore() {
    let _turn = patiently();
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let mut last = Vec::new();
        let is_said = queue!(last, LeaveAlternateScreen, Show).is_ok();
        if let Some(output) = OUTPUT.get().filter(|_| is_said && IS_ENTERED.swap(false, Ordering::SeqCst)) {
            output.write_last(&last, LAST_PATIENCE);
        }
        let _ = disable_raw_mode();
    }
}

/// Refuses to draw where nobody would see it.
pub(crate) fn require() -> Result<()> {
    if io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Error::NoTerminal)
}

extern "C" fn on_signal(number: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // Only stores to atomics, which may be done in a handler.
    match number {
        libc::SIGTSTP => TO_STOP.store(STOP, Ordering::SeqCst),
        libc::SIGCONT => {
            let _ = TO_STOP.compare_exchange(0, CONTINUED, Ordering::SeqCst, Ordering::SeqCst);
        }
        _ => {
            // SAFETY: a handler with SA_SIGINFO gets a valid record from the kernel.
            let is_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
            if is_kernel && number != libc::SIGHUP {
                // A key of the terminal, which goes to all of our group. A terminal that goes away tells the
                // first process of its session alone.
                let _ = TO_END.compare_exchange(0, -number, Ordering::SeqCst, Ordering::SeqCst);
            } else {
                TO_END.store(number, Ordering::SeqCst);
            }
        }
    }
}

fn handler() -> libc::sighandler_t {
    on_signal as *const () as libc::sighandler_t
}

/// Sets what a signal does.
///
/// # Safety
///
/// `to` is [`handler`], or `SIG_DFL`.
unsafe fn set_action(number: libc::c_int, to: libc::sighandler_t) {
    // SAFETY: all zeros is a valid sigaction with an empty mask; the caller names a valid action, and the
    // handler does nothing but store to atomics.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = to;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(number, &raw const action, std::ptr::null_mut());
    }
}

/// Has signals tell us instead of ending us; those that are ignored stay ignored. Returns how they were.
fn listen() -> Vec<(libc::c_int, libc::sigaction)> {
    let mut all = Vec::new();
    for number in ENDING.into_iter().chain([libc::SIGTSTP, libc::SIGCONT]) {
        // SAFETY: all zeros is a valid place for the result, and the action is our handler.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(number, std::ptr::null(), &raw mut before);
            if before.sa_sigaction != libc::SIG_IGN {
                set_action(number, handler());
                all.push((number, before));
            }
        }
    }
    all
}

/// The signal that asked us to end and that nobody else heard, if one came since the last time.
pub(crate) fn to_pass_on() -> Option<i32> {
    Some(TO_END.swap(0, Ordering::SeqCst)).filter(|number| *number > 0)
}

/// Lets signals that ask us to end do so at once; those that were ignored stay ignored.
pub(crate) fn stop_listening() {
    for number in ENDING {
        // SAFETY: all zeros is a valid place for the result, and the action is the default one.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(number, std::ptr::null(), &raw mut now);
            if now.sa_sigaction == handler() {
                set_action(number, libc::SIG_DFL);
            }
        }
    }
}

/// What was asked for since the last time.
pub(crate) fn asked() -> Asked {
    if HAS_PANICKED.load(Ordering::SeqCst) {
        return Asked::Panicked;
    }
    match TO_END.swap(0, Ordering::SeqCst) {
        0 => {}
        number => return Asked::End(number.abs()),
    }
    match TO_STOP.swap(0, Ordering::SeqCst) {
        STOP => Asked::Stop,
        CONTINUED => Asked::Continued,
        _ => Asked::Nothing,
    }
}

/// Asks all of our process group to stop, as the terminal does for Ctrl-Z outside of raw mode.
pub(crate) fn stop_group() {
    // SAFETY: kill takes numbers; 0 is our own group.
    unsafe { libc::kill(0, libc::SIGTSTP) };
}

/// Sends a signal to a child of ours that was not waited for yet.
pub(crate) fn send(pid: u32, number: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: kill takes numbers; the child is not reaped, so the number is still its own.
        unsafe { libc::kill(pid, number) };
    }
}
