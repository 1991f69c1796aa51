//! Watching a tree of processes from its first to its last.
//!
//! One loop waits for whatever comes first: the next sweep, something the kernel tells of processes,
//! a signal, the end of a child. It sleeps otherwise. Signals and orphans belong to a whole process,
//! so a process watches one thing at a time.
//!
//! **Signals.** A key of the terminal reaches the command by itself, because it is in our process
//! group; what a process sends to us alone is passed on to the command (and to it alone: what it does
//! about its children is its own business). We never end because of a signal while the command lives,
//! however often it comes: whether to end is the command's decision, as it would be without us. Once
//! the command is over and only processes that it left behind are being watched, the next SIGINT,
//! SIGTERM, SIGHUP or SIGQUIT ends the watching and leaves them running. Once all is over and only our
//! reader is slow, one such signal, the command's own included, is not yet a reason to drop output; the next
//! is. What has arrived when the end is noticed was meant for the command.

mod births;
mod ends;
mod job;
mod processes;
mod recorder;
mod sweep;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use floodmark_tail::clock::monotonic_ns;

use crate::error::{Error, Result};
use crate::launch::{self, Channels, Group, Launch, Started};
use crate::marks::Marks;
use crate::metrics::cgroup::Cgroup;
use crate::metrics::gpu::Gpus;
use crate::metrics::memory::Keep;
use crate::metrics::total::{self, Totals};
use crate::observer::Observer;
use crate::outcome::{Cost, Exit, Note, Outcome};
use crate::output::{self, Ends, Passing, Pump, SharedSink};
use crate::pace::Pace;
use crate::procfs;
use crate::sink::Sink;
use crate::sys::clock::{Waiting, process_cpu_ns};
use crate::sys::keeper::Keeper;
use crate::sys::limit::Limit;
use crate::sys::signal::{self, Arrived, Sender, Signals};
use crate::sys::terminal::{self, Raw};
use crate::sys::wait::{self, Adopt};
use crate::tree::events::Events;
use crate::tree::lastwords::LastWords;
use crate::tree::walk::{self, Walker};

use recorder::{Beginning, Origin, Recorder, Stir};
use sweep::Surroundings;

/// How to watch.
#[derive(Clone, Debug)]
pub struct WatchProps {
    /// How often to look.
    pub pace: Pace,
    /// Which peaks of processes are looked for.
    pub peaks: PeakMode,
    /// How births of processes are learned of.
    pub births: Births,
    /// When to stop.
    pub until: Until,
    /// Stop after this time in any case, and leave everything running.
    pub at_most_ns: Option<u64>,
    /// Share of a core that reading proportional set sizes may take; 0 for none.
    pub totals_share: f64,
    /// Lines of the output that are marks.
    pub marks: Marks,
    /// Root of the file system of control groups, where it is not where the system mounted it.
    pub cgroup_root: Option<PathBuf>,
    /// Library to ask about GPUs, and none to ask nothing. It need not be there.
    pub gpu_library: Option<OsString>,
}

impl Default for WatchProps {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            peaks: PeakMode::default(),
            births: Births::default(),
            until: Until::default(),
            at_most_ns: None,
            totals_share: 0.01,
            marks: Marks::default(),
            cgroup_root: None,
            gpu_library: Some("libnvidia-ml.so.1".into()),
        }
    }
}

/// Which peaks are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeakMode {
    /// The kernel's mark of each process is read and left as it is: its highest peak is exact, lower
    /// ones between two sweeps are not seen.
    #[default]
    Kept,
    /// The mark is read at every sweep, and reset when memory has come down from it: the peak of every
    /// interval is exact. This changes what the kernel says at the end of a process (`ru_maxrss`, as
    /// `time -v` prints it), and waits for the process if it is mapping memory at that moment.
    Exact,
}

/// How births are learned of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Births {
    /// From the kernel, or by looking where it does not tell.
    #[default]
    Told,
    /// By looking.
    Looked,
}

/// When watching stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// When the last process of the tree is over.
    #[default]
    Tree,
    /// When the command itself is over; what it left behind goes on unwatched, and a process of ours
    /// passes its output on until it ends.
    Command,
}

/// Signals that are passed on to the command.
const PASSED_ON: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];
/// Those of them that end watching when there is nobody to pass them on to.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// How often the host's events may wake us without being about the tree, per second; above that they
/// are read every few milliseconds instead.
const MOST_IDLE_WAKES: u32 = 200;
const QUIET_NS: u64 = 5_000_000;

/// Runs a command and watches everything it becomes; returns when all of it is over.
///
/// # Errors
/// If the command cannot be started. Whatever happens later is in the outcome.
pub fn run(
    launch: &Launch,
    props: &WatchProps,
    sink: &mut dyn Sink,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let turn = Turn::take()?;
    let signals = listen()?;
    let ends = Ends::new().map_err(Error::system("making a bell"))?;
    let _orphans = Orphans::adopt().map_err(Error::system("becoming the parent of orphans"))?;
    let channels = Channels::open(launch.capture)?;
    // Where no process is to be had the command will not start either.
    let keeper = channels.keeper().map_err(Error::system("starting a process"))?;
    let mut before = Before::open(props);
    before.strangers.extend(keeper.as_ref().map(Keeper::pid));
    let began = Began::now();
    let surroundings = launch::Surroundings { ignored: signals.ignored(), descriptors: turn.descriptors };
    let started = launch::start(launch, channels, surroundings)?;
    let name = launch.name();
    let command = launch.command_line();
    let sink = Mutex::new(sink);
    let watch =
        Watch { props, observer, signals, ends: &ends, keeper, is_told_to_end: false, began, name, command };
    Ok(watch.whole(Origin::Launched, Target::Started(started), &sink, before))
}

/// Watches a process that runs already, and all its descendants; returns when they are over, or when
/// a signal says so. They are left as they are.
///
/// # Errors
/// [`Error::NoProcess`] if there is none.
pub fn attach(
    pid: i32,
    props: &WatchProps,
    sink: &mut dyn Sink,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let _turn = Turn::take()?;
    let found = walk::look_at(pid).filter(|_| pid > 0 && walk::is_process(pid) == Some(true));
    let found = found.filter(|found| found.life == procfs::Life::Alive).ok_or(Error::NoProcess { pid })?;
    let signals = listen()?;
    let ends = Ends::new().map_err(Error::system("making a bell"))?;
    let before = Before::open(props);
    let sink = Mutex::new(sink);
    let (name, command) = walk::describe(pid, &found.name);
    let (began, keeper) = (Began::now(), None);
    let watch =
        Watch { props, observer, signals, ends: &ends, keeper, is_told_to_end: false, began, name, command };
    Ok(watch.whole(Origin::Attached, Target::Running(pid), &sink, before))
}

fn listen() -> Result<Signals> {
    let signals = PASSED_ON.into_iter().chain([libc::SIGCONT]).collect::<Vec<_>>();
    Signals::listen(&signals).map_err(Error::system("listening to signals"))
}

/// What must be known, and listened to, before a command starts.
struct Before {
    events: Result<Events, String>,
    last_words: Option<LastWords>,
    walker: Walker,
    /// Children that we had before.
    strangers: HashSet<i32>,
    /// Most resident bytes of ourselves: what a child may have inherited.
    own_mark: u64,
}

impl Before {
    fn open(props: &WatchProps) -> Self {
        let (events, last_words) = match props.births {
            Births::Told => (Events::open(), LastWords::open()),
            Births::Looked => (Err("not asked for".into()), None),
        };
        let strangers = walk::children_of(std::process::id() as i32).into_iter().collect();
        Self { events, last_words, walker: Walker::new(), strangers, own_mark: own_mark() }
    }
}

fn own_mark() -> u64 {
    let mut buffer = [0; 2048];
    let text = walk::read_file(std::process::id() as i32, "status", &mut buffer).unwrap_or_default();
    procfs::status(text).hwm.unwrap_or(u64::MAX)
}

/// What is watched.
enum Target {
    Started(Started),
    Running(i32),
}

#[derive(Clone, Copy)]
struct Began {
    at_ns: u64,
    cpu_ns: u64,
}

impl Began {
    fn now() -> Self {
        Self { at_ns: monotonic_ns(), cpu_ns: process_cpu_ns() }
    }
}

/// A watch from its begin to its end.
struct Watch<'a> {
    props: &'a WatchProps,
    observer: &'a mut dyn Observer,
    signals: Signals,
    ends: &'a Ends,
    keeper: Option<Keeper>,
    /// Whether we were told to end, or the command was.
    is_told_to_end: bool,
    began: Began,
    name: String,
    command: String,
}

impl Watch<'_> {
    fn whole(mut self, origin: Origin, target: Target, sink: &dyn SharedSink, before: Before) -> Outcome {
        let Before { events, last_words, walker, strangers, own_mark } = before;
        let (root, streams, terminal, group) = match target {
            Target::Started(started) => (started.pid, started.streams, started.terminal, started.group),
            Target::Running(pid) => (pid, Vec::new(), None, Group::Other),
        };
        let raw = terminal.as_ref().and_then(|_| enter_raw_mode());
        let (totals, server) = Totals::new(self.props.totals_share, self.began.at_ns);
        let cgroup = match &self.props.cgroup_root {
            None => Cgroup::of_process(root),
            Some(folder) => std::fs::read_to_string(format!("/proc/{root}/cgroup"))
                .ok()
                .and_then(|groups| Cgroup::below(folder, &groups)),
        };
        // Where there is no thread to be had there are worse troubles than this.
        let gpus = self.props.gpu_library.as_ref().and_then(|library| Gpus::start(library).ok());
        let mut recorder = Recorder::new(Beginning {
            props: self.props,
            sink,
            origin,
            root,
            strangers,
            events,
            last_words,
            walker,
            totals,
            keep: Keep::new(Limit::descriptors().count().saturating_sub(64)),
            began_ns: self.began.at_ns,
            surroundings: Surroundings::new(cgroup, gpus.clone(), self.began.cpu_ns),
        });
        let link = Link { root, group, terminal: terminal.as_ref(), raw: raw.as_ref() };
        let keeper = self.keeper.take();
        let passing = Passing { sink, marks: &self.props.marks, ends: self.ends, keeper: keeper.as_ref() };
        let (finished_ns, mut notes) = thread::scope(|scope| {
            let spawn = |name: &str| thread::Builder::new().name(name.into());
            let (requests, answers) = server;
            let totals =
                spawn("floodmark-total").spawn_scoped(scope, move || total::serve(&requests, &answers));
            let mut pumps = Vec::new();
            for stream in streams {
                match Pump::start(scope, stream, passing) {
                    Ok(pump) => pumps.push(pump),
                    Err(note) => recorder.notes.push(note),
                }
            }
            if let (Some(terminal), Some(_)) = (&terminal, &raw)
                && let Ok(terminal) = terminal.try_clone()
            {
                let ends = self.ends;
                let pass = move || output::pass_keys(terminal, ends);
                drop(spawn("floodmark-keys").spawn_scoped(scope, pass));
            }
            self.watch(&mut recorder, &link, own_mark);
            let finished_ns = monotonic_ns();
            // What came and went since the last sweep is to be counted too.
            recorder.look(finished_ns);
            recorder.totals.finish();
            drop(totals);
            self.finish_output();
            let notes: Vec<Note> = pumps.into_iter().filter_map(|pump| pump.join().ok().flatten()).collect();
            (finished_ns, notes)
        });
        drop(raw);
        if let Some(keeper) = keeper.filter(|_| recorder.counts().left > 0) {
            keeper.take_over();
        }
        if let Some(gpus) = gpus {
            gpus.finish();
        }
        recorder.keep_largest_of_the_living();
        let own_cpu_ns = process_cpu_ns().saturating_sub(self.began.cpu_ns);
        recorder.finish(finished_ns, own_cpu_ns);
        notes.splice(0..0, recorder.take_notes());
        Outcome {
            exit: recorder.root_status.map(Exit::from_wait_status),
            began_ns: self.began.at_ns,
            duration_ns: finished_ns.saturating_sub(self.began.at_ns),
            peaks: recorder.job.peaks,
            processes: recorder.counts(),
            largest: std::mem::take(&mut recorder.job.largest),
            cost: Cost {
                own_cpu_ns,
                totals_cpu_ns: recorder.totals.spent_ns(),
                sweeps: recorder.pacer.sweeps,
                late_sweeps: recorder.pacer.late,
                left_out_sweeps: recorder.pacer.left_out,
                longest_gap_ns: recorder.pacer.longest_gap_ns,
            },
            notes,
        }
    }

    /// The loop.
    fn watch(&mut self, recorder: &mut Recorder<'_>, link: &Link<'_>, own_mark: u64) {
        recorder.tell_of_surroundings(self.began.at_ns, &self.name, &self.command);
        recorder.add_root(self.began.at_ns, own_mark, &self.name, &self.command);
        if recorder.origin == Origin::Attached {
            recorder.walk(self.began.at_ns);
        }
        let deadline_ns = self.props.at_most_ns.map(|most| self.began.at_ns.saturating_add(most));
        let mut idle = IdleWakes::default();
        let mut has_ended = false;
        loop {
            let stir = recorder.drain_events();
            let now_ns = monotonic_ns();
            if recorder.is_root_over && !has_ended {
                has_ended = true;
                self.take_signals_of_the_past();
                if recorder.origin == Origin::Launched {
                    recorder.reap();
                }
            }
            if stir == Stir::Tree {
                recorder.pacer.stir(now_ns);
            }
            if now_ns >= recorder.pacer.deadline_ns() {
                recorder.sweep(now_ns, self.observer);
            } else {
                idle.woken(stir, now_ns);
            }
            if self.is_over(recorder, now_ns) || deadline_ns.is_some_and(|deadline| now_ns >= deadline) {
                return;
            }
            let events = recorder.events.as_ref().filter(|_| !idle.is_too_many);
            let mut until_ns = recorder.pacer.deadline_ns();
            if idle.is_too_many && recorder.events.is_some() {
                until_ns = until_ns.min(now_ns + QUIET_NS);
            }
            let mut waiting =
                Waiting::new([Some(self.signals.as_fd()), events.map(std::os::fd::AsFd::as_fd)]);
            // It fails only for want of kernel memory; then the next round comes at once.
            let _ = waiting.until(Some(until_ns));
            if waiting.is_ready(0) && self.take_signals(recorder, link) == Then::Stop {
                return;
            }
        }
    }

    fn is_over(&self, recorder: &mut Recorder<'_>, now_ns: u64) -> bool {
        match self.props.until {
            Until::Command if recorder.is_root_over => true,
            _ => recorder.is_tree_over(now_ns),
        }
    }

    /// Does what signals say; says whether they end the watching.
    fn take_signals(&mut self, recorder: &mut Recorder<'_>, link: &Link<'_>) -> Then {
        let mut then = Then::GoOn;
        let mut has_children = false;
        let has_command = recorder.origin == Origin::Launched && !recorder.is_root_over;
        self.signals.drain(|arrived| {
            self.is_told_to_end |= ENDING.contains(&arrived.number);
            match arrived.number {
                libc::SIGCHLD => has_children = true,
                libc::SIGCONT => link.continued(),
                libc::SIGWINCH => link.resized(),
                number if has_command => link.pass_on(Arrived { number, ..arrived }),
                number if ENDING.contains(&number) => then = Then::Stop,
                _ => {}
            }
        });
        if has_children && recorder.origin == Origin::Launched {
            // Children of our own, started by somebody in this process, are known by their births.
            recorder.drain_events();
            recorder.reap();
        }
        then
    }

    /// Takes what arrived before we learned that the command is over: a key of the terminal reaches us not
    /// later than the command that it ends.
    fn take_signals_of_the_past(&mut self) {
        self.signals.drain(|arrived| self.is_told_to_end |= ENDING.contains(&arrived.number));
    }

    /// Waits until all output is passed on, or until a second signal says that nobody wants it.
    fn finish_output(&mut self) {
        self.take_signals_of_the_past();
        self.ends.close();
        while self.ends.is_busy() {
            let bell = self.ends.done();
            let mut waiting = Waiting::new([Some(self.signals.as_fd()), Some(bell.as_fd())]);
            let _ = waiting.until(Some(monotonic_ns() + 100_000_000));
            bell.quiet();
            self.signals.drain(|arrived| {
                let is_ending = ENDING.contains(&arrived.number);
                if is_ending && std::mem::replace(&mut self.is_told_to_end, true) {
                    self.ends.give_up();
                }
            });
            self.ends.interrupt_if_given_up();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    Stop,
}

/// What connects us with the command.
struct Link<'a> {
    root: i32,
    group: Group,
    terminal: Option<&'a OwnedFd>,
    raw: Option<&'a Raw>,
}

impl Link<'_> {
    /// Passes a signal on that the command has not got already.
    fn pass_on(&self, arrived: Arrived) {
        if arrived.sender == Sender::Process || self.group == Group::Other {
            signal::send(self.root, arrived.number);
        }
    }

    /// Our terminal changed its size.
    fn resized(&self) {
        if let Some(terminal) = self.terminal {
            let (input, output) = (io::stdin(), io::stdout());
            let ours = if output.is_terminal() { output.as_fd() } else { input.as_fd() };
            terminal::copy_size(ours, terminal.as_fd());
        }
    }

    /// We were stopped, and somebody may have put our terminal into another mode.
    fn continued(&self) {
        if let Some(raw) = self.raw {
            raw.again();
        }
    }
}

fn enter_raw_mode() -> Option<Raw> {
    let input = io::stdin();
    input.is_terminal().then(|| Raw::enter(input.as_fd()).ok()).flatten()
}

/// Counts how often events of the host wake us for nothing.
#[derive(Default)]
struct IdleWakes {
    second: u64,
    count: u32,
    is_too_many: bool,
}

impl IdleWakes {
    fn woken(&mut self, stir: Stir, now_ns: u64) {
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.count, self.is_too_many) = (second, 0, false);
        }
        self.count += u32::from(stir == Stir::None);
        self.is_too_many = self.count > MOST_IDLE_WAKES;
    }
}

/// The right to watch, which a process has once: signals and orphans cannot be shared. While it is
/// held we may have as many descriptors as the system allows.
struct Turn {
    descriptors: Limit,
}

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    fn take() -> Result<Self> {
        if IS_TAKEN.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy);
        }
        let descriptors = Limit::descriptors();
        descriptors.highest().set();
        Ok(Self { descriptors })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.descriptors.set();
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// Being the parent of orphans, until dropped.
struct Orphans {
    before: Adopt,
}

impl Orphans {
    fn adopt() -> io::Result<Self> {
        wait::adopt_orphans(Adopt::Yes).map(|before| Self { before })
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        // What can be asked for can be taken back.
        let _ = wait::adopt_orphans(self.before);
    }
}
