//! The thread that unwinds copies and finds names, when others leave it time to.
//!
//! It gives way to everybody, the watched command first. Locks of the recording are not touched here:
//! what it has found is recorded by the thread that watches, between two sweeps.

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

/// Processes whose code is remembered.
const MOST_WALKERS: usize = 256;

/// Copies of the threads of one process.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) at_ns: u64,
    pub(crate) subject: SubjectId,
    pub(crate) process: i32,
    pub(crate) reason: StackReason,
    pub(crate) maps: Arc<Maps>,
    /// Modules that were not seen before.
    pub(crate) files: Vec<(FileKey, Option<Bytes>)>,
    pub(crate) threads: Vec<Copied>,
    /// Frames of Python, by thread.
    pub(crate) python: Vec<PythonThread>,
}

/// The thread, and what goes to it and comes from it.
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
            // It ends with the channel only.
            let _ = snapshots.send(snapshot);
        }
    }

    /// A stack that is ready.
    pub(crate) fn next(&self) -> Result<TakenStack, TryRecvError> {
        self.found.try_recv()
    }

    /// Waits for all that was sent.
    pub(crate) fn finish(&mut self) -> Vec<TakenStack> {
        self.snapshots = None;
        let rest = self.found.iter().collect();
        if let Some(thread) = self.thread.take() {
            // What it found before it panicked is worth having.
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
    fn unwind(&mut self, snapshot: Snapshot) -> Vec<TakenStack> {
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
                reason: snapshot.reason,
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
