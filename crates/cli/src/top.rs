//! A live view of memory in the terminal: what is shown, and the loop that shows it.
//!
//! One thread reads and folds ([`follow`]) and sends pictures; this one draws the latest of them when it is
//! new, or when a key changed what is to be seen, at most ten times a second, and not before the terminal has
//! taken all of the one before. Nothing else writes to the terminal meanwhile. The loop waits in one place only,
//! for keys and for the terminal at once, and never longer than a tick.

mod draw;
mod follow;
#[cfg(test)]
mod golden;
mod keys;
mod output;
mod picture;
mod recorder;
mod state;
mod tail;
mod terminal;
mod update;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use floodmark_sampler::Exit;
use floodmark_store::is_trace;
use floodmark_view::signal_name;

pub(crate) use self::follow::Input;
pub(crate) use self::recorder::{Record, option};

use self::draw::Theme;
use self::follow::{Begins, Ends, News};
use self::keys::{Keys, Typed};
use self::picture::{Picture, Progress};
use self::recorder::Recorder;
use self::state::State;
use self::terminal::{Asked, Screen};
use self::update::Then;
#[cfg(debug_assertions)]
use crate::env::{EnvVars, value};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Shortest time between two drawings, and longest until signals are looked at.
const TICK: Duration = Duration::from_millis(100);

/// What to show.
#[derive(Clone, Debug)]
pub(crate) struct Props {
    pub(crate) input: Input,
    /// A command to record meanwhile.
    pub(crate) record: Option<Record>,
    pub(crate) at_end: AtEnd,
}

/// What to do when there is nothing more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    Stay,
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

/// Shows what is asked for until somebody leaves; the exit code is the command's.
pub(crate) fn run(props: &Props, printer: &Printer) -> Result<ExitStatus> {
    terminal::require()?;
    let Some(record) = &props.record else {
        follow::check(&props.input)?;
        return match view(props, None, printer)? {
            Left::BySignal(number) => Ok(ExitStatus::External(Exit::from_wait_status(number))),
            Left::ByKey | Left::AtEnd => Ok(ExitStatus::Success),
        };
    };
    let mut recorder = Recorder::start(record, printer)?;
    let left = view(props, Some(&mut recorder), printer);
    match &left {
        // The command is worth more than the view of it.
        Err(error) => printer.error(error),
        Ok(Left::BySignal(number)) => terminal::send(recorder.pid(), *number),
        Ok(Left::ByKey) if recorder.ended()?.is_none() => {
            printer.say("the command goes on and is recorded; Ctrl-C interrupts it");
        }
        _ => {}
    }
    let (exit, words) = recorder.finish()?;
    printer.pass_on(&words);
    Ok(ExitStatus::External(exit))
}

/// Reads in a thread and draws in this one.
fn view(props: &Props, recorder: Option<&mut Recorder>, printer: &Printer) -> Result<Left> {
    let begins = if recorder.is_some() { Begins::Soon } else { Begins::Before };
    // One picture at most waits to be seen; the reader makes a newer one later.
    let (tell, hear) = sync_channel(1);
    let ends = Arc::new(Ends::default());
    // First the screen: what fails from now on finds it restored.
    let screen = Screen::enter()?;
    let (reader_ends, input) = (ends.clone(), props.input.clone());
    let read = move || follow::read(&input, begins, &reader_ends, &tell);
    // Nobody waits for it: in the midst of something long it would keep us from leaving.
    std::thread::Builder::new().name("floodmark-follow".into()).spawn(read)?;
    let picture = Picture { origin: origin(&props.input), ..Picture::default() };
    let theme = if printer.is_colored() { Theme::color() } else { Theme::plain() };
    let session = Session {
        screen,
        keys: Keys::open().context("opening the terminal for keys")?,
        size: None,
        theme,
        state: State::default(),
        latest: picture.clone(),
        shown: picture,
        is_changed: true,
        is_over: false,
        is_forgotten: false,
    };
    let left = session.run(&hear, &ends, recorder, props);
    ends.has_left.store(true, Ordering::Release);
    left.or_else(|error| match terminal::asked() {
        // Without a terminal nothing can be drawn, and that is what the signal said.
        Asked::End(number) => Ok(Left::BySignal(number)),
        _ => Err(error),
    })
}

fn origin(input: &Input) -> picture::Origin {
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
    is_forgotten: bool,
}

impl Session {
    fn run(
        mut self,
        hear: &Receiver<News>,
        ends: &Ends,
        mut recorder: Option<&mut Recorder>,
        props: &Props,
    ) -> Result<Left> {
        let mut drawn: Option<Instant> = None;
        let mut ended = None;
        loop {
            self.hear(hear)?;
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
                ended.is_some() && (self.is_forgotten && !self.is_over || !is_trace(&props.input.path));
            let is_complete = self.is_over && (recorder.is_none() || ended.is_some());
            if has_nothing || (is_complete && props.at_end == AtEnd::Leave) {
                return Ok(Left::AtEnd);
            }
            match terminal::asked() {
                Asked::Nothing => {}
                Asked::End(number) => return Ok(Left::BySignal(number)),
                Asked::Stop => self.stop()?,
                Asked::Continued => {
                    self.screen.again()?;
                    self.is_changed = true;
                }
                Asked::Panicked => {
                    return Err(anyhow!("a part of 'top' failed, which is a bug in Floodmark"));
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

    /// Takes what the reader has to tell.
    fn hear(&mut self, hear: &Receiver<News>) -> Result<()> {
        loop {
            match hear.try_recv() {
                Ok(News::Picture(picture)) => {
                    let ending = self.latest.ending.take();
                    self.latest = Picture { ending: ending.or_else(|| picture.ending.clone()), ..*picture };
                    self.is_over = self.latest.progress == Progress::Ended;
                    self.is_changed = true;
                }
                Ok(News::Failed(error)) => return Err(error),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.is_forgotten = true;
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
            assert_ne!(value(EnvVars::TOP_PANIC).as_deref(), Some("screen"), "a panic was asked for");
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
        let Typed::Keys(keys) = self.keys.wait(wait, self.screen.waits_for()).context("reading keys")? else {
            return Ok(Some(Left::BySignal(libc::SIGHUP)));
        };
        for key in keys {
            match update::key(&mut self.state, &self.shown, key) {
                Then::Wait => {}
                Then::Draw => self.is_changed = true,
                Then::Quit => return Ok(Some(Left::ByKey)),
                Then::Suspend => terminal::stop_group(),
            }
        }
        // Asked for rather than told: whoever tells may do so before anybody listens.
        let size =
            terminal_size::terminal_size_of(std::io::stdout()).map(|(width, height)| (width.0, height.0));
        self.is_changed |= size != std::mem::replace(&mut self.size, size);
        Ok(None)
    }
}

/// How a command ended, in words.
pub(crate) fn ending(exit: Exit) -> String {
    match exit {
        Exit::Code(0) => "ended well".to_owned(),
        Exit::Code(code) => format!("ended with {code}"),
        Exit::Signal { number, .. } => format!("ended by {}", signal_name(i32::from(number))),
    }
}
