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
use super::{TakenStack, python};
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
    pub(crate) faulted: Option<i32>,
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
        // The thread that made the process grow comes first.
        snapshot.threads.sort_by_key(|copied| snapshot.faulted != Some(copied.thread));
        for (key, bytes) in snapshot.files {
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
        let stacks = snapshot.threads.iter().map(|copied| {
            let (places, end) = walker.walk(copied, cache);
            let native = self.namer.name(&places);
            let frames = python::merge(&native, python::of_thread(&snapshot.python, copied));
            TakenStack {
                at_ns: snapshot.at_ns,
                subject: snapshot.subject,
                process: snapshot.process,
                thread: copied.thread as u64,
                reason: if snapshot.faulted == Some(copied.thread) {
                    StackReason::Fault
                } else {
                    snapshot.reason
                },
                pause_ns: copied.pause_ns,
                frames,
                end,
            }
        });
        stacks.collect()
    }
}

/// Frames of a stack, innermost first.
pub(crate) type Frames = Vec<Arc<NamedFrame>>;
