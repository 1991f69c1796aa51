//! Plays a script with as many threads as its log had, all at once.
//!
//! Every thread does its own steps in their order. A block that another thread frees is handed over
//! through its ticket: the free waits until the ticket holds a block. That always ends: whatever is
//! waited for comes earlier in the log, and so does all that its thread has to do before, so the
//! earliest step that is not done yet never waits.
//!
//! Invariant: a ticket is written once, by the step that allocates, and taken once, by the step that
//! frees.
#![expect(unsafe_code, reason = "freeing memory is a promise that it is not used any more")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use floodmark_resource::thread;
use floodmark_tail::clock::monotonic_ns;

use crate::error::{Error, Result};
use crate::pace::Pacer;
use crate::player::{Cast, allocate, ask_again, free, stream_of};
use crate::script::{Act, Step};
use crate::stage::Stage;
use crate::watch::Watch;

/// Most threads that are started.
pub(crate) const THREADS_MAX: usize = 1024;
/// A ticket that is not written yet; no address, since those are multiples of 256.
const UNWRITTEN: u64 = 1;
/// A ticket whose allocation failed, or that was taken.
const NO_BLOCK: u64 = 2;
/// How often a ticket is looked at before its reader makes way for others.
const LOOKS: u32 = 128;
/// Steps between two additions to what is done.
const STEPS_PER_REPORT: usize = 4096;
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// A step with its place in the script and its ticket.
#[derive(Clone, Copy, Debug)]
struct Part {
    step: Step,
    at: u32,
    ticket: u32,
}

/// A script split into the parts of its threads.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    cast: &'a Cast<'a>,
    carried: Vec<Part>,
    threads: Vec<Vec<Part>>,
    leftovers: Vec<Part>,
    tickets: usize,
}

impl<'a> Parts<'a> {
    /// Splits a script.
    ///
    /// # Errors
    /// [`Error::Threads`] if it has too many threads.
    pub(crate) fn new(cast: &'a Cast<'a>) -> Result<Self> {
        let script = cast.script;
        let threads = script.threads().len();
        if threads > THREADS_MAX {
            return Err(Error::Threads { threads, most: THREADS_MAX });
        }
        // Slots are used again; tickets are not, so that an allocation never has to wait.
        let mut holders = vec![0; script.slots()];
        let mut tickets = 0;
        let mut part = |at: usize| {
            let step = script.steps[at];
            let ticket = match step.act() {
                Act::Allocate => {
                    holders[step.slot as usize] = tickets;
                    tickets += 1;
                    tickets - 1
                }
                Act::Free => holders[step.slot as usize],
                Act::Fail => 0,
            };
            Part { step, at: at as u32, ticket }
        };
        let carried = script.carried().map(&mut part).collect();
        let mut parts = vec![Vec::new(); threads];
        for at in script.played() {
            parts[script.thread_of(script.steps[at]) as usize].push(part(at));
        }
        let leftovers = script.leftovers().map(&mut part).collect();
        Ok(Self { cast, carried, threads: parts, leftovers, tickets: tickets as usize })
    }
}

/// One play of all parts.
#[derive(Debug)]
pub(crate) struct Ensemble<'a> {
    parts: &'a Parts<'a>,
    stage: &'a Stage,
    tickets: Vec<AtomicU64>,
    /// Set when a thread ended before its part was over, so that no thread waits for it.
    stop: AtomicBool,
    /// Threads that have ended, in whatever way.
    left: AtomicUsize,
    done: AtomicU64,
}

/// What a play took and what was seen of it.
#[derive(Debug)]
pub(crate) struct Outcome<W> {
    pub(crate) watches: Vec<W>,
    pub(crate) elapsed_ns: u64,
}

impl<'a> Ensemble<'a> {
    pub(crate) fn new(parts: &'a Parts<'a>, stage: &'a Stage) -> Self {
        let tickets = (0..parts.tickets).map(|_| AtomicU64::new(UNWRITTEN)).collect();
        let (stop, left, done) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicU64::new(0));
        Self { parts, stage, tickets, stop, left, done }
    }

    /// Fills in the blocks that were live when the window began.
    pub(crate) fn begin<W: Watch>(&self, watch: &mut W) {
        self.alone(&self.parts.carried, watch);
    }

    /// Plays all threads at once.
    ///
    /// # Errors
    /// [`Error::Start`] if a thread cannot be started.
    pub(crate) fn play<W: Watch + Send>(
        &self,
        speed: Option<f64>,
        watch: impl Fn() -> W,
        report: &mut dyn FnMut(u64),
    ) -> Result<Outcome<W>> {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let (gate, caller) = (&gate, std::thread::current());
            let mut started = Vec::new();
            for (index, part) in self.parts.threads.iter().enumerate() {
                let (mut watch, caller) = (watch(), caller.clone());
                let number = self.parts.cast.numbers[index];
                let work = move || {
                    let _farewell = Farewell { stop: &self.stop, left: &self.left, caller };
                    self.stage.attend();
                    let begin_ns = gate.wait()?;
                    let pacer = speed.map(|speed| Pacer::new(begin_ns, speed));
                    thread::play(number, || self.part(part, pacer, &mut watch));
                    Some((watch, begin_ns, monotonic_ns()))
                };
                let builder = std::thread::Builder::new().name(format!("replay-{index}"));
                match builder.spawn_scoped(scope, work) {
                    Ok(thread) => started.push(thread),
                    Err(error) => {
                        gate.open(Signal::GoHome);
                        return Err(Error::Start(error));
                    }
                }
            }
            gate.open(Signal::Play);
            let mut reported = 0;
            while self.left.load(Ordering::Relaxed) < started.len() {
                std::thread::park_timeout(REPORT_EVERY);
                let done = self.done.load(Ordering::Relaxed);
                report(done - reported);
                reported = done;
            }
            let (mut watches, mut elapsed_ns) = (Vec::new(), 0);
            for thread in started {
                let played = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let Some((watch, begin_ns, end_ns)) = played else { continue };
                watches.push(watch);
                elapsed_ns = elapsed_ns.max(end_ns.saturating_sub(begin_ns));
            }
            Ok(Outcome { watches, elapsed_ns })
        })
    }

    /// Frees what is left.
    pub(crate) fn end<W: Watch>(&self, watch: &mut W) {
        self.alone(&self.parts.leftovers, watch);
    }

    /// Plays steps of any threads from the calling one.
    fn alone<W: Watch>(&self, parts: &[Part], watch: &mut W) {
        let cast = self.parts.cast;
        for part in parts {
            let number = cast.numbers[cast.script.thread_of(part.step) as usize];
            // Whether to stop is asked by searches only, and they do not play like this.
            let _ = thread::play(number, || self.step(*part, watch));
        }
    }

    fn part<W: Watch>(&self, parts: &[Part], pacer: Option<Pacer>, watch: &mut W) {
        let script = self.parts.cast.script;
        for chunk in parts.chunks(STEPS_PER_REPORT) {
            for part in chunk {
                if let Some(pacer) = pacer
                    && let Some(due_ns) = script.due_ns.get(part.at as usize - script.carried_end)
                {
                    pacer.wait_until(*due_ns);
                }
                if self.step(*part, watch).is_break() {
                    return;
                }
            }
            self.done.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    }

    #[inline]
    fn step<W: Watch>(&self, part: Part, watch: &mut W) -> ControlFlow<()> {
        let Part { step, ticket, at } = part;
        let at = at as usize;
        let stream = stream_of(self.parts.cast.script, self.stage, step);
        match step.act() {
            Act::Allocate => match watch.call(Act::Allocate, || allocate(self.stage, step.bytes, stream)) {
                Ok(address) => {
                    self.tickets[ticket as usize].store(address.0, Ordering::Release);
                    watch.allocated(at, step.bytes);
                }
                Err(error) => {
                    self.tickets[ticket as usize].store(NO_BLOCK, Ordering::Release);
                    watch.failed(at, step.bytes, &error)?;
                }
            },
            Act::Free => {
                let block = self.take(ticket)?;
                if block != NO_BLOCK {
                    // SAFETY: the ticket held the block, which its allocation put there with the same
                    // bytes, and was taken, which happens once; nothing uses the memory.
                    watch.call(Act::Free, || unsafe { free(self.stage, block, step.bytes, stream) });
                    watch.freed(at, step.bytes);
                }
            }
            Act::Fail => watch.asked_again(ask_again(self.stage, step.bytes, stream)),
        }
        ControlFlow::Continue(())
    }

    /// Takes the block of a ticket, once it is written; breaks if it never will be.
    fn take(&self, ticket: u32) -> ControlFlow<(), u64> {
        let ticket = &self.tickets[ticket as usize];
        let mut looks = 0;
        loop {
            if ticket.load(Ordering::Acquire) != UNWRITTEN {
                return ControlFlow::Continue(ticket.swap(NO_BLOCK, Ordering::AcqRel));
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else if self.stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Runs when a thread ends: stops the others if it panicked, and wakes threads that wait for it.
struct Farewell<'a> {
    stop: &'a AtomicBool,
    left: &'a AtomicUsize,
    caller: std::thread::Thread,
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.left.fetch_add(1, Ordering::Relaxed);
        self.caller.unpark();
    }
}

/// Holds threads back until all are there.
#[derive(Default)]
struct Gate {
    signal: Mutex<Option<Signal>>,
    opened: Condvar,
    /// When the first thread went through.
    begin_ns: OnceLock<u64>,
}

#[derive(Clone, Copy)]
enum Signal {
    Play,
    /// Not all could be started.
    GoHome,
}

impl Gate {
    /// When the play began; none if there is none.
    fn wait(&self) -> Option<u64> {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *signal {
                Some(Signal::Play) => break,
                Some(Signal::GoHome) => return None,
                None => signal = self.opened.wait(signal).unwrap_or_else(PoisonError::into_inner),
            }
        }
        drop(signal);
        Some(*self.begin_ns.get_or_init(monotonic_ns))
    }

    fn open(&self, signal: Signal) {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        self.opened.notify_all();
    }
}
