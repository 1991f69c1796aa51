//! A live view of memory in the terminal: what is shown, and the loop that shows it.
//!
//! One thread reads and folds ([`follow`]) and sends pictures; this one draws the latest of them when it is
//! new, or when a key changed what is to be seen, at most ten times a second, and not before the terminal has
//! taken all of the one before. Nothing else writes to the terminal meanwhile. The loop waits in one place only,
//! for keys and for the terminal at once, and never longer than a tick.

mod draw;
#[cfg(debug_assertions)]
mod env;
mod error;
mod follow;
#[cfg(test)]
mod golden;
mod keys;
mod output;
mod picture;
mod recorder;
mod signals;
mod state;
mod tail;
mod terminal;
mod update;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use floodmark_analyze::signal_name;
use floodmark_sampler::Exit;
use floodmark_store::is_trace;

pub use self::error::{Error, Result};
pub use self::follow::Followed;
pub use self::recorder::{Record, option};

use self::draw::Theme;
use self::follow::{Begins, Ends, Update};
use self::keys::{Keys, Typed};
use self::picture::{Picture, Progress};
use self::recorder::Recorder;
use self::signals::Request;
use self::state::State;
use self::terminal::{Asked, Screen};
use self::update::Then;
#[cfg(debug_assertions)]
use crate::env::{TOP_PANIC, value};

/// Shortest time between two drawings, and longest until signals are looked at.
const TICK: Duration = Duration::from_millis(100);

/// The front end that runs the view: its style, and where remarks go once the terminal is restored.
pub trait Front {
    /// Whether colors are wanted.
    fn is_colored(&self) -> bool;
    /// Whether remarks are not wanted.
    fn is_quiet(&self) -> bool;
    /// Prints an error that does not end the recording.
    fn error(&self, error: &Error);
    /// Prints a remark.
    fn say(&self, text: &str);
    /// Prints what the recording process had to say.
    fn forward(&self, text: &str);
}

/// What to show.
#[derive(Clone, Debug)]
pub struct Props {
    /// The trace or log.
    pub input: Followed,
    /// A command to record meanwhile.
    pub record: Option<Record>,
    /// What to do at the end.
    pub at_end: AtEnd,
}

/// What to do when nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// Keep the view until the user leaves.
    Stay,
    /// Leave the view.
    Leave,
}

/// Why the view was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    ByKey,
    AtEnd,
    /// By a signal, which is passed on.
    BySignal(i32),
}

/// Shows the view until the user leaves or nothing more comes. Returns how the recorded command ended, or the
/// signal that ended the view.
///
/// # Errors
/// If there is no terminal, the input cannot be read or the command cannot be recorded.
pub fn run(props: &Props, front: &dyn Front) -> Result<Option<Exit>> {
    terminal::require()?;
    let Some(record) = &props.record else {
        follow::check(&props.input)?;
        return match view(props, None, front)? {
            Left::BySignal(number) => Ok(Some(Exit::from_wait_status(number))),
            Left::ByKey | Left::AtEnd => Ok(None),
        };
    };
    let mut recorder = Recorder::start(record, front)?;
    let left = view(props, Some(&mut recorder), front);
    match &left {
        // The command is worth more than the view of it.
        Err(error) => front.error(error),
        Ok(Left::BySignal(number)) => signals::send(recorder.pid(), *number),
        Ok(Left::ByKey) if recorder.ended()?.is_none() => {
            front.say("the command goes on and is recorded; Ctrl-C interrupts it");
        }
        _ => {}
    }
    let (exit, remarks) = recorder.finish()?;
    if matches!(left, Ok(Left::BySignal(_))) {
        // A signal asks the program to end, which must not wait for a terminal that takes no output.
        terminal::print_last(|| front.forward(&remarks));
    } else {
        front.forward(&remarks);
    }
    Ok(Some(exit))
}

/// Reads in a thread and draws in this one.
fn view(props: &Props, recorder: Option<&mut Recorder>, front: &dyn Front) -> Result<Left> {
    let begins = if recorder.is_some() { Begins::Soon } else { Begins::Before };
    // One picture at most waits to be seen; the reader makes a newer one later.
    let (sender, updates) = sync_channel(1);
    let ends = Arc::new(Ends::default());
    // First the screen: what fails from now on finds it restored.
    let screen = Screen::enter()?;
    let (reader_ends, input) = (ends.clone(), props.input.clone());
    let read = move || follow::read(&input, begins, &reader_ends, &sender);
    // Not joined: a long read would keep the view from ending.
    std::thread::Builder::new()
        .name("floodmark-follow".into())
        .spawn(read)
        .map_err(Error::io("starting a thread"))?;
    let picture = Picture { origin: origin(&props.input), ..Picture::default() };
    let theme = if front.is_colored() { Theme::color() } else { Theme::plain() };
    let session = Session {
        screen,
        keys: Keys::open().map_err(Error::io("opening the terminal for keys"))?,
        size: None,
        theme,
        state: State::default(),
        latest: picture.clone(),
        shown: picture,
        is_changed: true,
        is_over: false,
        reader_exited: false,
    };
    let left = session.run(&updates, &ends, recorder, props);
    ends.has_left.store(true, Ordering::Release);
    left.or_else(|error| match terminal::asked() {
        // Without a terminal nothing can be drawn, and that is what the signal said.
        Asked::Signal(Request::End(number)) => Ok(Left::BySignal(number)),
        _ => Err(error),
    })
}

fn origin(input: &Followed) -> picture::Origin {
    picture::Origin { source: input.path.display().to_string(), command: input.command.clone() }
}

/// A view that is being looked at.
struct Session {
    screen: Screen,
    keys: Keys,
    /// Columns and rows of the terminal.
    size: Option<(u16, u16)>,
    theme: Theme,
    state: State,
    /// What came last, and what is shown: while paused they differ.
    latest: Picture,
    shown: Picture,
    is_changed: bool,
    /// Nothing more comes.
    is_over: bool,
    /// The reader is gone.
    reader_exited: bool,
}

impl Session {
    fn run(
        mut self,
        updates: &Receiver<Update>,
        ends: &Ends,
        mut recorder: Option<&mut Recorder>,
        props: &Props,
    ) -> Result<Left> {
        let mut drawn: Option<Instant> = None;
        let mut ended = None;
        loop {
            self.receive(updates)?;
            if let Some(recorder) = recorder.as_deref_mut().filter(|_| ended.is_none()) {
                ended = recorder.ended()?;
                if let Some(exit) = ended {
                    ends.has_recorded.store(true, Ordering::Release);
                    self.latest.ending = Some(ending(exit));
                    self.is_changed = true;
                }
            }
            // A command that did not even start has left nothing to look at.
            let has_nothing =
                ended.is_some() && (self.reader_exited && !self.is_over || !is_trace(&props.input.path));
            let is_complete = self.is_over && (recorder.is_none() || ended.is_some());
            if has_nothing || (is_complete && props.at_end == AtEnd::Leave) {
                return Ok(Left::AtEnd);
            }
            match terminal::asked() {
                Asked::Nothing => {}
                Asked::Signal(Request::End(number)) => return Ok(Left::BySignal(number)),
                Asked::Signal(Request::Stop) => self.stop()?,
                Asked::Signal(Request::Continued) => {
                    self.screen.again()?;
                    self.is_changed = true;
                }
                Asked::Panicked => {
                    return Err(Error::Broken);
                }
            }
            self.screen.write()?;
            let is_due = drawn.is_none_or(|drawn| drawn.elapsed() >= TICK);
            if self.is_changed && is_due && self.screen.is_ready() {
                self.draw()?;
                drawn = Some(Instant::now());
            }
            let can_draw = self.is_changed && self.screen.is_ready();
            let rest = drawn.filter(|_| can_draw).map_or(TICK, |drawn| TICK.saturating_sub(drawn.elapsed()));
            if let Some(left) = self.keys(rest)? {
                return Ok(left);
            }
        }
    }

    /// Takes the updates that the reader has sent.
    fn receive(&mut self, updates: &Receiver<Update>) -> Result<()> {
        loop {
            match updates.try_recv() {
                Ok(Update::Picture(picture)) => {
                    let ending = self.latest.ending.take();
                    self.latest = Picture { ending: ending.or_else(|| picture.ending.clone()), ..*picture };
                    self.is_over = self.latest.progress == Progress::Ended;
                    self.is_changed = true;
                }
                Ok(Update::Failed(error)) => return Err(error),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.reader_exited = true;
                    return Ok(());
                }
            }
        }
    }

    fn draw(&mut self) -> Result<()> {
        if !self.state.is_paused {
            self.shown.clone_from(&self.latest);
        }
        let Self { screen, shown, state, theme, .. } = self;
        screen.draw(|frame| {
            draw::draw(frame, shown, state, theme);
            #[cfg(debug_assertions)]
            assert_ne!(value(TOP_PANIC).as_deref(), Some("screen"), "a panic was asked for");
        })?;
        self.is_changed = false;
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.screen.stop()?;
        self.is_changed = true;
        Ok(())
    }

    /// Waits for keys, and does what they say.
    fn keys(&mut self, wait: Duration) -> Result<Option<Left>> {
        let Typed::Keys(keys) =
            self.keys.wait(wait, self.screen.waits_for()).map_err(Error::io("reading keys"))?
        else {
            return Ok(Some(Left::BySignal(libc::SIGHUP)));
        };
        for key in keys {
            match update::key(&mut self.state, &self.shown, key) {
                Then::Wait => {}
                Then::Draw => self.is_changed = true,
                Then::Quit => return Ok(Some(Left::ByKey)),
                Then::Suspend => signals::stop_group(),
            }
        }
        // Polled, because a SIGWINCH may arrive before its handler is installed.
        let size =
            terminal_size::terminal_size_of(std::io::stdout()).map(|(width, height)| (width.0, height.0));
        self.is_changed |= size != std::mem::replace(&mut self.size, size);
        Ok(None)
    }
}

/// How a command ended, in words.
fn ending(exit: Exit) -> String {
    match exit {
        Exit::Code(0) => "ended well".to_owned(),
        Exit::Code(code) => format!("ended with {code}"),
        Exit::Signal { number, .. } => format!("ended by {}", signal_name(i32::from(number))),
    }
}
