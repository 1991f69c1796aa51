//! The thread that stops others: one thread of one process at a time, no longer than it takes to copy
//! what its stack is unwound from.
//!
//! Only the thread that began to trace may end it, and whatever it traces goes on when it ends. So this
//! is a thread of its own. A thread that waits for a disk or for a child in `vfork` stops only when that
//! is over, which may be never: then the tracer is left waiting, lets the thread go on the moment it
//! stops, and ends. Another tracer does the work in the meantime.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use floodmark_event::clock::monotonic_ns;

use super::maps::Maps;
use super::python::PythonProcess;
use crate::sys::trace::{Refusal, Registers, Traced, read_memory};
use crate::tree::walk;

/// How much of a stack is copied while its thread is stopped.
const COPIED_STOPPED: usize = 128 << 10;
/// How much of a deeper one is copied when the thread runs again: its outer frames stay as they are
/// until all inner ones have returned.
const COPIED_RUNNING: usize = 2 << 20;
/// How much is tried where no map says how much there is.
const COPIED_UNKNOWN: usize = 32 << 10;
/// How long a single thread may take to stop before it is left alone.
const PATIENCE: Duration = Duration::from_millis(250);

/// What to take.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) process: i32,
    pub(crate) maps: Arc<Maps>,
    /// How to find the frames of Python in the process.
    pub(crate) python: Option<PythonProcess>,
}

/// A thread as it was.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) thread: i32,
    pub(crate) registers: Registers,
    /// The stack, from the stack pointer on.
    pub(crate) stack: Vec<u8>,
    pub(crate) pause_ns: u64,
    /// Raw frames of Python, innermost first.
    pub(crate) python: Vec<super::python::RawFrame>,
}

/// What came of a job.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) threads: Vec<Copied>,
    /// Threads that ended before they could be stopped.
    pub(crate) gone: u64,
    /// Threads that we may not stop.
    pub(crate) denied: u64,
    /// Threads that did not stop in time.
    pub(crate) stuck: u64,
}

/// Takes jobs, one after another.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    jobs: Sender<Job>,
    results: Receiver<Copies>,
    /// Grows with every thread that was stopped.
    progress: Arc<AtomicU64>,
}

impl Tracer {
    /// Does a job, and returns when it is done or a thread of it does not stop.
    pub(crate) fn take(&mut self, job: Job) -> io::Result<Copies> {
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::start()?,
        };
        // The thread ends with the channel only.
        let _ = running.jobs.send(job);
        loop {
            let before = running.progress.load(Ordering::Relaxed);
            match running.results.recv_timeout(PATIENCE) {
                Ok(copies) => {
                    self.running = Some(running);
                    return Ok(copies);
                }
                Err(RecvTimeoutError::Timeout) if running.progress.load(Ordering::Relaxed) != before => {}
                // It finds its channels closed as soon as it can, and ends.
                Err(_) => return Ok(Copies { stuck: 1, ..Copies::default() }),
            }
        }
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (done, results) = channel();
        let progress = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&progress);
        thread::Builder::new().name("floodmark-trace".into()).spawn(move || {
            for job in todo {
                if done.send(copy(&job, &counter)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, results, progress })
    }
}

fn copy(job: &Job, progress: &AtomicU64) -> Copies {
    let mut copies = Copies::default();
    let threads: Vec<i32> = walk::threads_of(job.process).collect();
    for thread in threads {
        match copy_thread(job, thread) {
            Ok(copied) => copies.threads.push(copied),
            Err(Refusal::Gone) => copies.gone += 1,
            Err(Refusal::Denied) => {
                copies.denied += 1;
                // The others belong to the same process.
                if copies.threads.is_empty() {
                    break;
                }
            }
        }
        progress.fetch_add(1, Ordering::Relaxed);
    }
    copies
}

fn copy_thread(job: &Job, thread: i32) -> Result<Copied, Refusal> {
    let process = job.process;
    // Made before, so that the thread does not wait for memory of ours.
    let mut stack = vec![0; COPIED_STOPPED];
    let mut python = Vec::new();
    let began_ns = monotonic_ns();
    let mut traced = Traced::seize(process, thread)?;
    traced.stop()?;
    let registers = traced.registers().map_err(|_| Refusal::Gone)?;
    let depth = job.maps.end_of_memory(registers.stack).map(|end| (end - registers.stack) as usize);
    let wanted = depth.unwrap_or(COPIED_UNKNOWN).min(COPIED_STOPPED);
    let read = read_memory(process, registers.stack, &mut stack[..wanted]);
    if let Some(process) = &job.python {
        process.frames(thread, &mut python);
    }
    drop(traced);
    let pause_ns = monotonic_ns().saturating_sub(began_ns);
    stack.truncate(read);
    stack.shrink_to_fit();
    if let Some(depth) = depth
        && read == COPIED_STOPPED
        && depth > read
    {
        let more = (depth - read).min(COPIED_RUNNING);
        stack.resize(read + more, 0);
        let rest = read_memory(process, registers.stack + read as u64, &mut stack[read..]);
        stack.truncate(read + rest);
    }
    Ok(Copied { thread, registers, stack, pause_ns, python })
}
