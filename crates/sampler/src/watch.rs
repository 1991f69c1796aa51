//! Watching a tree of processes from its first process to its last.
//!
//! One loop sleeps until the next sweep, an event of a process, a signal or the end of a child. Signals and
//! orphans belong to a whole process, so a process can watch only one tree at a time.
//!
//! **Signals.** A key of the terminal reaches the command directly, because the command is in our process
//! group. A signal that a process sends to us alone is forwarded to the command (and not to its children,
//! which are the command's business). No signal ends the watch while the command runs: whether to end is the
//! command's decision, as it would be without us. Once the command has ended and only processes that it left
//! behind are watched, the next SIGINT, SIGTERM, SIGHUP or SIGQUIT ends the watch and leaves them running.
//! Once all have ended and only our reader is slow, the first such signal, including one that ended the
//! command, does not drop output; the second does. Signals that arrived before the end was noticed were meant
//! for the command.

mod discovery;
mod exits;
mod guards;
mod inexact;
mod job;
mod link;
mod processes;
mod props;
mod recorder;
mod selection;
mod sweep;

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use floodmark_tail::clock::monotonic_ns;

use crate::error::{Error, Result};
use crate::launch::{self, Channels, Group, Launch};
use crate::metrics::gpu::Gpus;
use crate::metrics::mappings::{self, MappingReadings};
use crate::metrics::memory::DescriptorBudget;
use crate::metrics::total::{self, Totals};
use crate::observer::Observer;
use crate::outcome::{Cost, Exit, NoExitStats, Note, Outcome};
use crate::output::{self, Forwarding, OutputControl, Pump, SharedSink};
use crate::procfs;
use crate::select::Select;
use crate::sink::Sink;
use crate::sys::clock::{Waiting, process_cpu_ns};
use crate::sys::keeper::Keeper;
use crate::sys::limit::{self, Limit};
use crate::sys::signal::{Arrived, Signals};
use crate::tree::events::Events;
use crate::tree::exit_stats::ExitStats;
use crate::tree::walk::{self, Walker};

pub use props::{Discovery, Leftover, PeakMode, Until, WatchProps};

use guards::{CloseOnDrop, Orphans, WatchLock};
use link::{Link, enter_raw_mode};
use recorder::{Activity, Origin, Recorder, RecorderProps};
use selection::Selection;
use sweep::Surroundings;

/// Signals that are forwarded to the command.
const FORWARDED: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];
/// Those of them that end the watch after the command has ended.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Number of wake-ups per second by events that are not about the tree; above it, events are read every few
/// milliseconds instead.
const MOST_IDLE_WAKES: u32 = 200;
const QUIET_NS: u64 = 5_000_000;
/// Time after the end of the command after which it is reported that others are waited for.
const LEFTOVER_NS: u64 = 2_000_000_000;
/// Time between two checks whether a watch of selected processes is to end, and for new processes where the kernel
/// reports no events.
const STOP_NS: u64 = 20_000_000;
/// Descriptors that must be left when the command starts: for reading processes, and for the sealer, which
/// has a part and a segment open for every table.
const DESCRIPTORS_LEFT: usize = 12;
/// Bytes of address space that must be left when the command starts: for threads that start later, and for the sealer, whose
/// compression cannot report that there is too little.
const ADDRESS_SPACE_LEFT: usize = 128 << 20;

/// Checks that the limit of address space leaves enough for a watch beside `mapped_bytes` that the caller will map.
///
/// # Errors
/// If it leaves too little.
pub fn check_address_space(mapped_bytes: usize) -> Result<()> {
    let needed = ADDRESS_SPACE_LEFT + mapped_bytes;
    if limit::has_address_space(needed) {
        return Ok(());
    }
    Err(Error::LittleAddressSpace { needed_bytes: needed as u64 })
}

/// Runs a command and watches its tree of processes; returns when all of them have ended.
///
/// # Errors
/// If the command cannot be started. Later problems are notes in the outcome.
pub fn run(
    launch: &Launch,
    props: &WatchProps,
    sink: &mut dyn Sink,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let lock = WatchLock::take()?;
    let signals = listen()?;
    let control = OutputControl::new().map_err(Error::system("creating an eventfd"))?;
    let _orphans = Orphans::adopt().map_err(Error::system("becoming the parent of orphans"))?;
    let channels = Channels::open(launch.capture)?;
    // If no process can be started, the command cannot either.
    let keeper = channels.keeper().map_err(Error::system("starting a process"))?;
    let mut before = Prepared::open(props);
    before.foreign_children.extend(keeper.as_ref().map(Keeper::pid));
    let surroundings = launch::Surroundings { ignored: signals.ignored(), descriptors: lock.descriptors };
    let (name, command) = (launch.name(), launch.command_line());
    let (began, sink) = (Began::now(), Mutex::new(sink));
    let watch = Watch {
        props,
        observer,
        signals,
        control: &control,
        keeper,
        is_termination_requested: false,
        began,
        name,
        command,
        stop: None,
    };
    watch.whole(Target::Command { launch, channels, surroundings }, &sink, before)
}

/// Watches a running process and all its descendants; returns when they have ended, or when a signal ends the
/// watch. They are not disturbed.
///
/// # Errors
/// [`Error::NoProcess`] if there is no such process.
pub fn attach(
    pid: i32,
    props: &WatchProps,
    sink: &mut dyn Sink,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let _lock = WatchLock::take()?;
    let found = walk::read_process(pid).filter(|_| pid > 0 && walk::is_process(pid) == Some(true));
    let found = found.filter(|found| found.life == procfs::Life::Alive).ok_or(Error::NoProcess { pid })?;
    let signals = listen()?;
    let control = OutputControl::new().map_err(Error::system("creating an eventfd"))?;
    let before = Prepared::open(props);
    let sink = Mutex::new(sink);
    let (name, command) = walk::describe(pid, &found.name);
    let (began, keeper) = (Began::now(), None);
    let watch = Watch {
        props,
        observer,
        signals,
        control: &control,
        keeper,
        is_termination_requested: false,
        began,
        name,
        command,
        stop: None,
    };
    watch.whole(Target::Running(pid), &sink, before)
}

/// Watches all processes that `select` chooses, and their descendants, until `stop` is set or a signal ends the watch.
/// They are not disturbed. `name` and `detail` describe all of them together.
///
/// # Errors
/// If this process watches already, or the system refuses something.
pub fn observe(
    select: Box<dyn Select>,
    (name, detail): (&str, &str),
    props: &WatchProps,
    stop: &AtomicBool,
    sink: &mut dyn Sink,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let _lock = WatchLock::take()?;
    let signals = listen()?;
    let control = OutputControl::new().map_err(Error::system("creating an eventfd"))?;
    let before = Prepared::open(props);
    let sink = Mutex::new(sink);
    let watch = Watch {
        props,
        observer,
        signals,
        control: &control,
        keeper: None,
        is_termination_requested: false,
        began: Began::now(),
        name: name.to_owned(),
        command: detail.to_owned(),
        stop: Some(stop),
    };
    watch.whole(Target::Selected(Selection::new(select)), &sink, before)
}

fn listen() -> Result<Signals> {
    let signals = FORWARDED.into_iter().chain([libc::SIGCONT]).collect::<Vec<_>>();
    Signals::listen(&signals).map_err(Error::system("listening to signals"))
}

/// Subscriptions and facts that must precede the start of a command.
struct Prepared {
    events: Result<Events, String>,
    exit_stats: Result<ExitStats, NoExitStats>,
    walker: Walker,
    /// Children that this process had before.
    foreign_children: HashSet<i32>,
    /// High-water mark of this process in bytes, which a child may inherit.
    own_mark: u64,
}

impl Prepared {
    fn open(props: &WatchProps) -> Self {
        let (events, exit_stats) = match props.discovery {
            Discovery::Events => (Events::open(), ExitStats::open()),
            Discovery::Scan => (Err("not asked for".into()), Err(NoExitStats::Disabled)),
        };
        let foreign_children = walk::children_of(std::process::id() as i32).into_iter().collect();
        Self { events, exit_stats, walker: Walker::new(), foreign_children, own_mark: own_mark() }
    }
}

fn own_mark() -> u64 {
    let mut buffer = [0; 2048];
    let text = walk::read_file(std::process::id() as i32, "status", &mut buffer).unwrap_or_default();
    procfs::status(text).hwm.unwrap_or(u64::MAX)
}

/// The process to be watched.
enum Target<'a> {
    /// A command that is to be started.
    Command { launch: &'a Launch, channels: Channels, surroundings: launch::Surroundings },
    /// A process with this PID.
    Running(i32),
    /// All processes that are selected.
    Selected(Selection<'a>),
}

/// What starts the root of the tree.
enum Start<'a> {
    Command {
        launch: &'a Launch,
        theirs: Option<[OwnedFd; 2]>,
        surroundings: launch::Surroundings,
    },
    /// The process with this PID runs already.
    Nothing(i32),
    /// There is no root.
    NoRoot,
}

impl Start<'_> {
    /// Starts the command, if there is one; returns the PID of the root.
    fn root(self, group: Group) -> Result<(i32, Origin)> {
        match self {
            Self::Command { launch, theirs, surroundings } => {
                Ok((launch::start(launch, theirs, group, surroundings)?, Origin::Launched))
            }
            Self::Nothing(pid) => Ok((pid, Origin::Attached)),
            Self::NoRoot => Ok((0, Origin::Selected)),
        }
    }
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

/// A watch from its start to its end.
struct Watch<'a> {
    props: &'a WatchProps,
    observer: &'a mut dyn Observer,
    signals: Signals,
    control: &'a OutputControl,
    keeper: Option<Keeper>,
    /// Whether a signal asked this process, or the command, to end.
    is_termination_requested: bool,
    began: Began,
    name: String,
    command: String,
    /// Ends a watch of selected processes when it is set.
    stop: Option<&'a AtomicBool>,
}

impl Watch<'_> {
    /// Starts all threads, then the command, and watches it. A thread that cannot be started, or too few
    /// descriptors, are an error while there is no command that could suffer from it.
    fn whole(mut self, target: Target<'_>, sink: &dyn SharedSink, before: Prepared) -> Result<Outcome> {
        let Prepared { events, exit_stats, walker, foreign_children, own_mark } = before;
        let mut selection = None;
        let (start, streams, terminal, group) = match target {
            Target::Command { launch, channels: Channels { streams, theirs, terminal }, surroundings } => {
                let group = if terminal.is_some() { Group::Other } else { Group::Ours };
                (Start::Command { launch, theirs, surroundings }, streams, terminal, group)
            }
            Target::Running(pid) => (Start::Nothing(pid), Vec::new(), None, Group::Other),
            Target::Selected(chosen) => {
                selection = Some(chosen);
                (Start::NoRoot, Vec::new(), None, Group::Other)
            }
        };
        let raw = terminal.as_ref().and_then(|_| enter_raw_mode());
        let (totals, (requests, answers)) = Totals::new(self.props.totals_share, self.began.at_ns);
        let (mappings, mapping_server) = MappingReadings::new(self.props.totals_share);
        let keeper = self.keeper.take();
        let passing =
            Forwarding { sink, marks: &self.props.marks, control: self.control, keeper: keeper.as_ref() };
        let watched = thread::scope(|scope| {
            // Ends the threads if the command cannot be started.
            let control = CloseOnDrop(self.control);
            let spawn = |name: &str| thread::Builder::new().name(name.into());
            let failed = || Error::system("starting a thread");
            spawn("floodmark-total")
                .spawn_scoped(scope, move || total::serve(&requests, &answers))
                .map_err(failed())?;
            spawn("floodmark-maps")
                .spawn_scoped(scope, move || mappings::serve(mapping_server))
                .map_err(failed())?;
            let mut pumps = Vec::new();
            for stream in streams {
                let pump = Pump::start(scope, stream, passing);
                pumps.push(pump.map_err(Error::system("preparing to forward output"))?);
            }
            if let (Some(terminal), Some(_)) = (&terminal, &raw) {
                let terminal = terminal.try_clone().map_err(Error::system("copying a descriptor"))?;
                let control = self.control;
                let pass = move || output::forward_keys(terminal, control);
                spawn("floodmark-keys").spawn_scoped(scope, pass).map_err(failed())?;
            }
            self.check_headroom()?;
            self.began = Began { at_ns: monotonic_ns(), ..self.began };
            let (root, origin) = start.root(group)?;
            self.observer.started(root);
            // Those of selected processes are known when they are found.
            let is_known = origin != Origin::Selected;
            let cgroup = is_known.then(|| sweep::cgroup_of(root, self.props)).flatten();
            // A system that cannot start a thread has worse problems than missing GPU samples.
            let gpus = self.props.gpu_library.as_ref().and_then(|library| Gpus::start(library).ok());
            let mut recorder = Recorder::new(RecorderProps {
                props: self.props,
                sink,
                origin,
                root,
                foreign_children,
                events,
                exit_stats,
                walker,
                totals,
                mappings,
                descriptors: DescriptorBudget::new(Limit::descriptors().count().saturating_sub(64)),
                began_ns: self.began.at_ns,
                surroundings: Surroundings::new(cgroup, gpus.clone(), self.began.cpu_ns),
                selection,
            });
            let link = Link { root, group, terminal: terminal.as_ref(), raw: raw.as_ref() };
            self.watch(&mut recorder, &link, own_mark);
            let finished_ns = monotonic_ns();
            // Counts processes that came and went since the last sweep.
            recorder.discover(finished_ns);
            recorder.totals.finish();
            recorder.mappings.finish();
            self.finish_output();
            drop(control);
            let notes: Vec<Note> = pumps.into_iter().filter_map(|pump| pump.join().ok().flatten()).collect();
            Ok((recorder, gpus, finished_ns, notes))
        });
        drop(raw);
        let (recorder, gpus, finished_ns, notes) = watched?;
        if let Some(keeper) = keeper.filter(|_| recorder.counts().left > 0) {
            keeper.take_over();
        }
        if let Some(gpus) = gpus {
            gpus.finish();
        }
        Ok(self.outcome(recorder, finished_ns, notes))
    }

    /// Checks that enough is left for reading processes and for sealing the trace.
    fn check_headroom(&self) -> Result<()> {
        if !limit::has_descriptors(DESCRIPTORS_LEFT, self.signals.as_fd()) {
            return Err(Error::FewDescriptors { limit: Limit::descriptors().count() });
        }
        check_address_space(0)
    }

    fn outcome(&self, mut recorder: Recorder<'_>, finished_ns: u64, mut notes: Vec<Note>) -> Outcome {
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

    /// The main loop.
    fn watch(&mut self, recorder: &mut Recorder<'_>, link: &Link<'_>, own_mark: u64) {
        recorder.report_surroundings(self.began.at_ns, &self.name, &self.command);
        if recorder.origin != Origin::Selected {
            recorder.add_root(self.began.at_ns, own_mark, &self.name, &self.command);
        }
        if recorder.origin != Origin::Launched {
            recorder.walk(self.began.at_ns);
        }
        let deadline_ns = self.props.at_most_ns.map(|most| self.began.at_ns.saturating_add(most));
        let mut idle = IdleWakes::default();
        let mut has_ended = false;
        let (mut ended_ns, mut leftover) = (None, self.props.on_leftover);
        loop {
            let mut activity = recorder.drain_events();
            let now_ns = monotonic_ns();
            if recorder.origin == Origin::Selected && recorder.find_selected(now_ns) {
                activity = Activity::Tree;
            }
            if recorder.is_root_over && !has_ended {
                has_ended = true;
                self.drain_earlier_signals();
                if recorder.origin == Origin::Launched {
                    recorder.reap();
                }
            }
            if activity == Activity::Tree {
                recorder.pacer.hurry(now_ns);
            }
            if now_ns >= recorder.pacer.deadline_ns() {
                recorder.sweep(now_ns, self.observer);
            } else {
                idle.woken(activity, now_ns);
            }
            if has_ended
                && now_ns >= *ended_ns.get_or_insert(now_ns) + LEFTOVER_NS
                && let Some(left) = recorder.table.processes().first()
                && let Some(call) = leftover.take()
            {
                let count = recorder.counts().left;
                call(&Leftover { count, pid: left.pid, name: left.name.clone() });
            }
            if self.is_over(recorder, now_ns) || deadline_ns.is_some_and(|deadline| now_ns >= deadline) {
                return;
            }
            let events = recorder.events.as_ref().filter(|_| !idle.is_too_many);
            let mut until_ns = recorder.pacer.deadline_ns();
            if self.stop.is_some() {
                until_ns = until_ns.min(now_ns + STOP_NS);
            }
            if idle.is_too_many && recorder.events.is_some() {
                until_ns = until_ns.min(now_ns + QUIET_NS);
            }
            let mut waiting =
                Waiting::new([Some(self.signals.as_fd()), events.map(std::os::fd::AsFd::as_fd)]);
            // It fails only if the kernel has no memory; then the loop continues at once.
            let _ = waiting.until(Some(until_ns));
            if waiting.is_ready(0) && self.take_signals(recorder, link) == Then::Stop {
                return;
            }
        }
    }

    fn is_over(&self, recorder: &mut Recorder<'_>, now_ns: u64) -> bool {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Acquire)) {
            return true;
        }
        match self.props.until {
            Until::Command if recorder.is_root_over => true,
            _ => recorder.is_tree_over(now_ns),
        }
    }

    /// Handles signals; returns whether they end the watch.
    fn take_signals(&mut self, recorder: &mut Recorder<'_>, link: &Link<'_>) -> Then {
        let mut then = Then::GoOn;
        let mut has_children = false;
        let has_command = recorder.origin == Origin::Launched && !recorder.is_root_over;
        self.signals.drain(|arrived| {
            self.is_termination_requested |= ENDING.contains(&arrived.number);
            match arrived.number {
                libc::SIGCHLD => has_children = true,
                libc::SIGCONT => link.continued(),
                libc::SIGWINCH => link.resized(),
                number if has_command => link.forward(Arrived { number, ..arrived }),
                number if ENDING.contains(&number) => then = Then::Stop,
                _ => {}
            }
        });
        if has_children && recorder.origin == Origin::Launched {
            // Children that other code of this process started are known by their fork events.
            recorder.drain_events();
            recorder.reap();
        }
        then
    }

    /// Reads signals that arrived before the end of the command was noticed: a key of the terminal reaches us
    /// not later than the command that it ends.
    fn drain_earlier_signals(&mut self) {
        self.signals.drain(|arrived| self.is_termination_requested |= ENDING.contains(&arrived.number));
    }

    /// Waits until all output is forwarded, or until a second signal drops it.
    fn finish_output(&mut self) {
        self.drain_earlier_signals();
        self.control.close();
        while self.control.is_busy() {
            let done = self.control.done();
            let mut waiting = Waiting::new([Some(self.signals.as_fd()), Some(done.as_fd())]);
            let _ = waiting.until(Some(monotonic_ns() + 100_000_000));
            done.clear();
            self.signals.drain(|arrived| {
                let is_ending = ENDING.contains(&arrived.number);
                if is_ending && std::mem::replace(&mut self.is_termination_requested, true) {
                    self.control.give_up();
                }
            });
            self.control.interrupt_if_given_up();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    Stop,
}

/// Counts wake-ups by events that are not about the tree.
#[derive(Default)]
struct IdleWakes {
    second: u64,
    count: u32,
    is_too_many: bool,
}

impl IdleWakes {
    fn woken(&mut self, activity: Activity, now_ns: u64) {
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.count, self.is_too_many) = (second, 0, false);
        }
        self.count += u32::from(activity == Activity::None);
        self.is_too_many = self.count > MOST_IDLE_WAKES;
    }
}
