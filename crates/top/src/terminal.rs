//! The screen: takes the terminal over and restores it in every case.
//!
//! Invariant: between [`Screen::enter`] and the end of the process the terminal is restored on leaving, on
//! an error (the screen is dropped), on a panic of any thread (a hook) and on every signal that asks us to
//! end or to stop (the loop takes them as [`Asked`]). Restoring twice does no harm. Nothing here waits for a
//! terminal that takes no output, except restoring, which gives up after [`RESTORE_TIMEOUT`].

use std::io::{self, IsTerminal as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
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
use crate::signals::{self, Handlers, Request};

/// Longest time for which restoring waits for a terminal that takes no output.
const RESTORE_TIMEOUT: Duration = Duration::from_millis(500);

/// Locked while the terminal is taken over, drawn on or restored, because any thread may panic and restore it.
static TURN: Mutex<()> = Mutex::new(());
/// Whether the screen has the terminal now.
static IS_OURS: AtomicBool = AtomicBool::new(false);
/// Whether anything was written to the terminal since it was taken over.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
/// The terminal, once it was taken over.
static OUTPUT: OnceLock<Output> = OnceLock::new();
/// Whether a thread panicked, after which nothing is drawn.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
/// What the loop has to react to, beside keys and updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// A signal arrived.
    Signal(Request),
    /// A thread panicked; the terminal was restored already.
    Panicked,
}

/// The terminal in raw mode, on its alternate screen.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Pending>>,
    pending: Pending,
    output: &'static Output,
    _handlers: Handlers,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn enter() -> Result<Self> {
        let opened = Output::open().map_err(Error::io("opening the terminal"))?;
        let output = OUTPUT.get_or_init(|| opened);
        let pending = Pending::default();
        let terminal = Terminal::new(CrosstermBackend::new(pending.clone()))?;
        let handlers = Handlers::install();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            HAS_PANICKED.store(true, Ordering::SeqCst);
            restore();
            hook(panic);
        }));
        // From here on what fails drops the screen, which restores.
        let mut screen = Self { terminal, pending, output, _handlers: handlers };
        screen.take_over()?;
        Ok(screen)
    }

    /// Returns whether the terminal took everything, so that more can be drawn.
    pub(crate) fn is_ready(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns what to poll until the terminal takes more; none if nothing is pending.
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'static>> {
        (!self.is_ready()).then(|| self.output.fd())
    }

    /// Draws, unless the terminal was restored, and writes as much as the terminal takes.
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
                signals::hang_up();
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

    /// Restores the terminal, stops until the process is continued, and takes the terminal over again.
    pub(crate) fn stop(&mut self) -> Result<()> {
        restore();
        signals::stop();
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
    }
}

/// Locks [`TURN`], or gives up after half a second: a thread that panics while it draws holds it itself.
fn lock_for_restore() -> Option<MutexGuard<'static, ()>> {
    for _ in 0..50 {
        match TURN.try_lock() {
            Ok(turn) => return Some(turn),
            Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    None
}

/// Restores the terminal if the screen has it. Errors are ignored. Output that is still pending is dropped: the
/// sequences that leave the screen also end one that was cut.
fn restore() {
    let _turn = lock_for_restore();
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let mut last = Vec::new();
        let is_encoded = queue!(last, LeaveAlternateScreen, Show).is_ok();
        if let Some(output) = OUTPUT.get().filter(|_| is_encoded && IS_ENTERED.swap(false, Ordering::SeqCst))
        {
            output.write_last(&last, RESTORE_TIMEOUT);
        }
        let _ = disable_raw_mode();
    }
}

/// Calls `print`, which may block, and throws unread output of the terminal away as long as it does.
pub(crate) fn print_last(print: impl FnOnce()) {
    let (printing, printed) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let discard = move || {
            while printed.recv_timeout(RESTORE_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                if let Some(output) = OUTPUT.get() {
                    output.discard_unread();
                }
            }
        };
        // Without the thread, printing may block as any program's does.
        let _ = std::thread::Builder::new().name("floodmark-last".into()).spawn_scoped(scope, discard);
        print();
        drop(printing);
    });
}

/// Fails unless standard output is a terminal.
pub(crate) fn require() -> Result<()> {
    if io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Error::NoTerminal)
}

/// Takes what was asked for since the last call.
pub(crate) fn asked() -> Asked {
    if HAS_PANICKED.load(Ordering::SeqCst) {
        return Asked::Panicked;
    }
    signals::take().map_or(Asked::Nothing, Asked::Signal)
}
