//! The tracer: stops one thread of one process at a time, for as long as it takes to copy its registers and
//! stack.
//!
//! Only the thread that attached with ptrace can detach, and its tracees continue when it ends, so this is a
//! thread of its own. A tracee that waits for a disk, or for a child in `vfork`, stops only when that wait
//! ends, which may be never: then the tracer is abandoned, detaches as soon as the tracee stops, and ends.
//! Another tracer does the work in the meantime.
//!
//! Frames of Python are on the heap, where any running thread may change them. For them all threads of a
//! process are stopped together; if one does not stop soon, the others continue.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use floodmark_tail::clock::monotonic_ns;

use super::maps::Maps;
use super::python::{PythonThread, Pythons};
use crate::sys::trace::{Refusal, Registers, Traced, bury_threads, read_memory};
use crate::tree::walk;

/// Bytes of a stack that are copied while its thread is stopped.
const COPIED_STOPPED: usize = 128 << 10;
/// Bytes of a deeper stack that are copied after its thread continued: outer frames do not change until all
/// inner ones have returned.
const COPIED_RUNNING: usize = 2 << 20;
/// Bytes that are copied if the mapping of the stack is unknown.
const COPIED_UNKNOWN: usize = 32 << 10;
/// Time between two checks of the tracer's progress.
const LOOK: Duration = Duration::from_millis(25);
/// Number of checks without progress after which a tracer is abandoned: if the thread could stop once it gets
/// a CPU, and if it is in an uninterruptible wait.
const PATIENCE: u32 = 200;
const PATIENCE_WAITING: u32 = 10;
/// Number of tracers that may be abandoned for one process.
const MOST_STUCK: u64 = 3;

/// Time limit for stopping all threads of a process: if one is in an uninterruptible wait, and if all that is
/// missing are CPUs on which they could stop.
const PATIENCE_TOGETHER_WAITING_NS: u64 = 20_000_000;
const PATIENCE_TOGETHER_NS: u64 = 200_000_000;

/// A request for stacks.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) process: i32,
    pub(crate) maps: Arc<Maps>,
    pub(crate) languages: Languages,
    /// Threads that were tried before.
    pub(crate) tried: Vec<i32>,
}

impl Job {
    fn threads(&self) -> Vec<i32> {
        walk::threads_of(self.process).filter(|thread| !self.tried.contains(thread)).collect()
    }
}

/// Which frames are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Languages {
    Native,
    Python,
}

/// Registers and stack of a thread.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) thread: i32,
    pub(crate) registers: Registers,
    /// The stack, from the stack pointer.
    pub(crate) stack: Vec<u8>,
    pub(crate) pause_ns: u64,
}

/// The result of a request.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) threads: Vec<Copied>,
    /// Threads that ended before they could be stopped.
    pub(crate) gone: u64,
    /// Threads that may not be traced.
    pub(crate) denied: u64,
    /// Threads that another tracer has.
    pub(crate) busy: u64,
    /// Threads that did not stop in time.
    pub(crate) stuck: u64,
    /// Frames of Python, or the reason why they could not be read.
    pub(crate) python: Vec<PythonThread>,
    pub(crate) python_failure: Option<String>,
}

/// Handles requests, one after another.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    jobs: Sender<Order>,
    results: Receiver<Message>,
}

#[derive(Debug)]
enum Order {
    /// Find Python's state in a process, without stopping it.
    Prepare(Job),
    Take(Job),
}

#[derive(Debug)]
enum Message {
    /// The tracer begins with a thread.
    Trying(i32),
    /// The thread was copied.
    Copied(Copied),
    /// The request is done.
    Done(Copies),
}

impl Tracer {
    /// Copies the threads of a process, except those that do not stop.
    pub(crate) fn take(&mut self, mut job: Job) -> io::Result<Copies> {
        let mut whole = Copies::default();
        loop {
            let is_done = self.take_some(&mut job, &mut whole)?;
            if is_done || whole.stuck >= MOST_STUCK {
                return Ok(whole);
            }
            // Another tracer tries the remaining threads, one at a time.
            job.languages = Languages::Native;
        }
    }

    /// Continues a request; returns whether it is done. If not, one of its threads does not stop.
    fn take_some(&mut self, job: &mut Job, whole: &mut Copies) -> io::Result<bool> {
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::start()?,
        };
        // The thread ends only when the channel is closed.
        if job.languages == Languages::Python {
            let _ = running.jobs.send(Order::Prepare(job.clone()));
            let _ = running.results.recv();
        }
        let _ = running.jobs.send(Order::Take(job.clone()));
        let mut waited = 0;
        while waited < PATIENCE {
            match running.results.recv_timeout(LOOK) {
                Ok(Message::Done(rest)) => {
                    whole.add(rest);
                    self.running = Some(running);
                    return Ok(true);
                }
                Ok(Message::Trying(thread)) => job.tried.push(thread),
                Ok(Message::Copied(copied)) => whole.threads.push(copied),
                Err(RecvTimeoutError::Timeout) => {
                    let threads: Vec<i32> = walk::threads_of(job.process).collect();
                    bury_threads(job.process, &threads);
                    waited += 1;
                    let is_waiting = job.tried.last().is_none_or(|thread| waits_in_kernel(*thread));
                    if waited >= PATIENCE_WAITING && is_waiting {
                        break;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            waited = 0;
        }
        // It ends when it finds its channels closed.
        whole.stuck += 1;
        Ok(false)
    }
}

/// Whether a thread is in an uninterruptible wait.
fn waits_in_kernel(thread: i32) -> bool {
    let stat = fs::read(format!("/proc/{thread}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    // A thread that is gone does not wait.
    matches!(state, Some(b'D') | None)
}

impl Copies {
    fn add(&mut self, other: Self) {
        self.threads.extend(other.threads);
        self.gone += other.gone;
        self.denied += other.denied;
        self.busy += other.busy;
        self.stuck += other.stuck;
        self.python.extend(other.python);
        self.python_failure = self.python_failure.take().or(other.python_failure);
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let (jobs, todo) = channel();
        let (done, results) = channel();
        thread::Builder::new().name("floodmark-trace".into()).spawn(move || {
            let mut pythons = Pythons::default();
            for order in todo {
                let copies = match order {
                    Order::Prepare(job) => {
                        pythons.prepare(job.process, &job.maps);
                        Some(Copies::default())
                    }
                    Order::Take(job) if job.languages == Languages::Native => copy(&job, &done),
                    Order::Take(job) if pythons.knows(job.process) => {
                        Some(copy_together(&job, &mut pythons, &done))
                    }
                    Order::Take(job) => {
                        let python_failure = pythons.failure(job.process);
                        copy(&job, &done).map(|copies| Copies { python_failure, ..copies })
                    }
                };
                let Some(copies) = copies else { return };
                if done.send(Message::Done(copies)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, results })
    }
}

/// Copies the threads of a process one after another; returns none if the receiver is gone.
fn copy(job: &Job, done: &Sender<Message>) -> Option<Copies> {
    let mut copies = Copies::default();
    for thread in job.threads() {
        done.send(Message::Trying(thread)).ok()?;
        match copy_thread(job, thread) {
            Ok(copied) => done.send(Message::Copied(copied)).ok()?,
            Err(Refusal::Gone) => copies.gone += 1,
            Err(Refusal::Denied) => copies.denied += 1,
            Err(Refusal::Busy) => copies.busy += 1,
        }
    }
    Some(copies)
}

fn copy_thread(job: &Job, thread: i32) -> Result<Copied, Refusal> {
    // Allocated before, so that the stopped thread does not wait for our page faults.
    let stack = vec![0; COPIED_STOPPED];
    let began_ns = monotonic_ns();
    let mut traced = Traced::seize(job.process, thread)?;
    traced.stop()?;
    let mut copied = copy_stopped(job, &traced, stack)?;
    drop(traced);
    copied.pause_ns = monotonic_ns().saturating_sub(began_ns);
    copy_rest(job, &mut copied);
    Ok(copied)
}

/// Copies what must be read while the thread is stopped.
fn copy_stopped(job: &Job, traced: &Traced, mut stack: Vec<u8>) -> Result<Copied, Refusal> {
    // A stopped thread can still be killed, by the exit or exec of another thread say, and has no registers then.
    let refusal = |error: io::Error| match error.raw_os_error() {
        Some(libc::ESRCH) => Refusal::Gone,
        _ => Refusal::Denied,
    };
    let registers = traced.registers().map_err(refusal)?;
    let wanted = depth(job, registers).unwrap_or(COPIED_UNKNOWN).min(COPIED_STOPPED);
    let read = read_memory(job.process, registers.stack, &mut stack[..wanted]);
    stack.truncate(read);
    Ok(Copied { thread: traced.thread(), registers, stack, pause_ns: 0 })
}

/// Bytes from the stack pointer to the end of its mapping.
fn depth(job: &Job, registers: Registers) -> Option<usize> {
    let end = job.maps.end_of_memory(registers.stack)?;
    usize::try_from(end - registers.stack).ok()
}

/// Copies the outer part of a deep stack, and shrinks the buffer of a small one.
fn copy_rest(job: &Job, copied: &mut Copied) {
    let read = copied.stack.len();
    copied.stack.shrink_to_fit();
    if let Some(depth) = depth(job, copied.registers)
        && read == COPIED_STOPPED
        && depth > read
    {
        copied.stack.resize(read + (depth - read).min(COPIED_RUNNING), 0);
        let rest = read_memory(job.process, copied.registers.stack + read as u64, &mut copied.stack[read..]);
        copied.stack.truncate(read + rest);
    }
}

/// Copies the threads of a process while all of them are stopped.
fn copy_together(job: &Job, pythons: &mut Pythons, done: &Sender<Message>) -> Copies {
    let mut copies = Copies::default();
    let threads = job.threads();
    let mut stacks: Vec<Vec<u8>> = threads.iter().map(|_| vec![0; COPIED_STOPPED]).collect();
    let began_ns = monotonic_ns();
    let mut all: Vec<Traced> = Vec::with_capacity(threads.len());
    for thread in threads {
        match Traced::seize(job.process, thread) {
            Ok(traced) => all.push(traced),
            Err(Refusal::Gone) => copies.gone += 1,
            Err(Refusal::Denied) => {
                copies.denied += 1;
                break;
            }
            Err(Refusal::Busy) => {
                copies.busy += 1;
                break;
            }
        }
    }
    all.iter().for_each(Traced::ask_to_stop);
    let mut is_late = false;
    while all.iter_mut().any(|traced| !traced.has_stopped() && traced.is_awaited()) {
        let waited_ns = monotonic_ns() - began_ns;
        if waited_ns > PATIENCE_TOGETHER_WAITING_NS && !is_late {
            is_late = true;
            let mut awaited = all.iter().filter(|traced| traced.is_awaited());
            if awaited.any(|traced| waits_in_kernel(traced.thread())) {
                break;
            }
        }
        if waited_ns > PATIENCE_TOGETHER_NS {
            break;
        }
        thread::yield_now();
    }
    if all.iter().any(Traced::is_awaited) {
        // Threads that have stopped are continued first, because detaching from the others waits for them.
        all.sort_by_key(Traced::is_awaited);
        for traced in all.iter().filter(|traced| traced.is_awaited()) {
            // The receiver may be gone.
            let _ = done.send(Message::Trying(traced.thread()));
        }
        all.clear();
        let why = "a thread did not stop in time for all to be looked at together".to_owned();
        return Copies { python_failure: Some(why), ..copy(job, done).unwrap_or_default() };
    }
    all.retain_mut(Traced::has_stopped);
    copies.gone += (stacks.len() - all.len()) as u64;
    all.retain(|traced| {
        let stack = stacks.pop().unwrap_or_default();
        copy_stopped(job, traced, stack).map(|copied| copies.threads.push(copied)).is_ok()
    });
    match pythons.frames(job.process) {
        Ok(threads) => copies.python = threads,
        Err(failure) => copies.python_failure = Some(failure),
    }
    for (traced, copied) in all.into_iter().zip(&mut copies.threads) {
        drop(traced);
        copied.pause_ns = monotonic_ns().saturating_sub(began_ns);
    }
    copies.threads.iter_mut().for_each(|copied| copy_rest(job, copied));
    copies
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_thread_that_is_killed_while_it_is_stopped_is_gone_and_not_denied() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let process = child.id() as i32;
        let maps = Arc::new(Maps::read(process).expect("it runs"));
        let job = Job { process, maps, languages: Languages::Native, tried: Vec::new() };
        let mut traced = Traced::seize(process, process).expect("a child of ours can be traced");
        traced.stop().expect("it stops");
        assert!(copy_stopped(&job, &traced, vec![0; COPIED_STOPPED]).is_ok());
        child.kill().expect("it is ours");
        while walk::read_process(process).is_some_and(|found| found.life == crate::procfs::Life::Alive) {
            thread::yield_now();
        }
        let refused = copy_stopped(&job, &traced, vec![0; COPIED_STOPPED]).expect_err("it has no registers");
        assert_eq!(refused, Refusal::Gone);
        drop(traced);
        child.wait().expect("its end is there to be asked for");
    }

    #[test]
    fn a_thread_that_has_a_tracer_is_busy() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let process = child.id() as i32;
        let traced = Traced::seize(process, process).expect("a child of ours can be traced");
        let refused = thread::scope(|scope| {
            scope.spawn(|| Traced::seize(process, process).err()).join().expect("it ends")
        });
        assert_eq!(refused, Some(Refusal::Busy));
        drop(traced);
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
}
