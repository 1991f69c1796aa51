//! The worker: a thread of low priority that unwinds copies and resolves symbols.
//!
//! It yields to all other threads, especially the watched command. It takes no locks of the recording: the
//! watcher's thread records the stacks between two sweeps.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use floodmark_event::{StackReason, SubjectId};

use super::image::{Bytes, Images};
use super::maps::{FileKey, Maps};
use super::names::{NamedFrame, Namer};
use super::python::PythonThread;
use super::tracer::Copied;
use super::unwind::{Cache, Walker};
use super::{End, FaultSample, Faulted, TakenStack, python};
use crate::sys::nice;

/// Number of processes whose code mappings are cached.
const MOST_WALKERS: usize = 256;

/// Copies of the threads of one process.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) at_ns: u64,
    pub(crate) subject: SubjectId,
    pub(crate) process: i32,
    pub(crate) reason: StackReason,
    pub(crate) maps: Arc<Maps>,
    /// New modules.
    pub(crate) files: Vec<(FileKey, Option<Bytes>)>,
    pub(crate) threads: Vec<Copied>,
    /// The thread that made the process grow.
    pub(crate) faulted: Option<Faulted>,
    /// Frames of Python, by thread.
    pub(crate) python: Vec<PythonThread>,
}

/// The worker's thread and its channels.
#[derive(Debug)]
pub(crate) struct Worker {
    snapshots: Option<Sender<Snapshot>>,
    found: Receiver<TakenStack>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start() -> io::Result<Self> {
        let (snapshots, todo) = channel::<Snapshot>();
        let (done, found) = channel();
        let thread = thread::Builder::new().name("floodmark-names".into()).spawn(move || {
            nice::give_way();
            let mut work = Work::default();
            for snapshot in todo {
                for stack in work.unwind(snapshot) {
                    if done.send(stack).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(Self { snapshots: Some(snapshots), found, thread: Some(thread) })
    }

    pub(crate) fn send(&self, snapshot: Snapshot) {
        if let Some(snapshots) = &self.snapshots {
            // It ends only when the channel is closed.
            let _ = snapshots.send(snapshot);
        }
    }

    /// The next finished stack, if there is one.
    pub(crate) fn next(&self) -> Result<TakenStack, TryRecvError> {
        self.found.try_recv()
    }

    /// Waits for all stacks that were sent.
    pub(crate) fn finish(&mut self) -> Vec<TakenStack> {
        self.snapshots = None;
        let rest = self.found.iter().collect();
        if let Some(thread) = self.thread.take() {
            // Stacks that were finished before a panic are kept.
            let _ = thread.join();
        }
        rest
    }
}

#[derive(Default)]
struct Work {
    images: Images,
    namer: Namer,
    walkers: HashMap<i32, (Walker, Cache)>,
}

impl Work {
    fn unwind(&mut self, mut snapshot: Snapshot) -> Vec<TakenStack> {
        let faulted = snapshot.faulted.take();
        let thread = faulted.as_ref().map(|faulted| faulted.thread);
        // The thread that made the process grow comes first.
        snapshot.threads.sort_by_key(|copied| thread != Some(copied.thread));
        for (key, bytes) in std::mem::take(&mut snapshot.files) {
            self.images.add(key, bytes);
        }
        if self.walkers.len() >= MOST_WALKERS {
            self.walkers.clear();
        }
        let images = &self.images;
        let new = || (Walker::new(&snapshot.maps, images), Cache::new_in());
        let (walker, cache) = self.walkers.entry(snapshot.process).or_insert_with(new);
        if !walker.is_of(&snapshot.maps) {
            (*walker, *cache) = new();
        }
        let taken = |thread: i32, pause_ns, frames, end| TakenStack {
            at_ns: snapshot.at_ns,
            subject: snapshot.subject,
            process: snapshot.process,
            thread: thread as u64,
            reason: snapshot.reason,
            pause_ns,
            frames,
            end,
        };
        let stacks = snapshot.threads.iter().map(|copied| {
            let (places, end) = walker.walk(copied, cache);
            let native = self.namer.name(&places);
            let frames = python::merge(&native, python::of_thread(&snapshot.python, copied));
            taken(copied.thread, copied.pause_ns, frames, end)
        });
        let mut stacks: Vec<TakenStack> = stacks.collect();
        let Some(faulted) = faulted else { return stacks };
        let stopped = stacks.iter().position(|stack| stack.thread == faulted.thread as u64);
        // Functions of Python are known only of the stopped threads.
        let most = if snapshot.python.is_empty() {
            most_faults(&faulted.samples, |copied| {
                let (places, end) = walker.walk(copied, cache);
                (self.namer.name(&places).iter().flat_map(|names| names.iter().cloned()).collect(), end)
            })
        } else {
            None
        };
        match (most, stopped) {
            (Some((frames, end)), Some(at)) => (stacks[at].frames, stacks[at].end) = (frames, end),
            (Some((frames, end)), None) => stacks.insert(0, taken(faulted.thread, 0, frames, end)),
            (None, _) => {}
        }
        if let Some(stack) = stacks.iter_mut().find(|stack| stack.thread == faulted.thread as u64) {
            stack.reason = StackReason::Fault;
        }
        stacks
    }
}

/// Returns the stack with most page faults. Stacks with the same functions are the same.
fn most_faults(
    samples: &[FaultSample],
    mut unwind: impl FnMut(&Copied) -> (Frames, End),
) -> Option<(Frames, End)> {
    let mut found: HashMap<Vec<String>, (u64, Frames, End)> = HashMap::new();
    for sample in samples {
        let (frames, end) = unwind(&sample.copied);
        if frames.is_empty() {
            continue;
        }
        let functions = frames.iter().map(|frame| function_of(frame)).collect();
        found.entry(functions).or_insert((0, frames, end)).0 += sample.faults;
    }
    let most = found.into_iter().max_by(|one, other| (one.1.0, &one.0).cmp(&(other.1.0, &other.0)));
    most.map(|(_, (_, frames, end))| (frames, end))
}

/// Identifies the function of a frame; by its address if it has no name.
fn function_of(frame: &NamedFrame) -> String {
    if frame.function.is_empty() {
        format!("{}+{:#x}", frame.module, frame.address)
    } else {
        frame.function.clone()
    }
}

/// Frames of a stack, innermost first.
pub(crate) type Frames = Vec<Arc<NamedFrame>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::trace::Registers;

    #[test]
    fn the_function_with_most_page_faults_counts_at_whatever_line() {
        let sample = |instruction, faults| {
            let registers = Registers { instruction, ..Registers::default() };
            FaultSample { faults, copied: Copied { registers, ..Copied::default() } }
        };
        let most = |samples: &[FaultSample]| {
            let found = most_faults(samples, |copied| {
                let line = copied.registers.instruction as u32;
                let function = if line < 10 { "read" } else { "fill" }.to_owned();
                let frame = NamedFrame { function, line, ..NamedFrame::default() };
                (if line == 0 { Vec::new() } else { vec![Arc::new(frame)] }, End::Outermost)
            });
            found.map(|(frames, _)| frames[0].function.clone())
        };
        let samples = [sample(1, 30), sample(11, 20), sample(12, 20), sample(0, 99)];
        assert_eq!(most(&samples).as_deref(), Some("fill"));
        assert_eq!(most(&samples[..2]).as_deref(), Some("read"));
        assert_eq!(most(&samples[3..]), None, "no frame was found");
    }
}
