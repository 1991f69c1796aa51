//! A thread that seals a trace while it is recorded, and takes in what other hosts send.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::{POLL, POLL_IDLE, Sealer, lock};
use crate::error::{Error, Result};
use crate::intake::TailItem;
use crate::manifest::{Manifest, Run};
use crate::signals;
use crate::tail::RemoteWriters;

/// Deliveries that wait for the sealer; a sender that finds the inbox full waits.
const INBOX_DELIVERIES: usize = 64;

/// How long the last process of a job waits for its turn: another one may be in the middle of a large sealing.
const LAST_PATIENCE: Duration = Duration::from_secs(30);

/// What the thread is to do; stored as a number.
const SEAL_ON: u8 = 0;
const SEAL_ALL: u8 = 1;
const LEAVE: u8 = 2;

/// A thread that seals a trace until [`stop`](Self::stop) is called.
#[derive(Debug)]
pub struct SealerThread {
    order: Arc<AtomicU8>,
    inbox: SyncSender<Delivery>,
    thread: Option<JoinHandle<Result<Option<Manifest>>>>,
}

/// What the thread works with.
struct Turns {
    trace: PathBuf,
    run: Run,
    /// Present while it is this process's turn.
    sealer: Option<Sealer>,
    deliveries: Receiver<Delivery>,
}

/// Items of other processes, and where to answer once they are stored.
#[derive(Debug)]
struct Delivery {
    items: Vec<TailItem>,
    answer: SyncSender<Answer>,
}

/// The items of a delivery, and whether they are stored.
type Answer = (Vec<TailItem>, Result<u64>);

/// A delivery that is on its way into the trace.
#[derive(Debug)]
pub struct Delivering {
    answered: Receiver<Answer>,
}

impl Delivering {
    /// Returns the items and the number of those that were stored, or why not all were; none if that is not known yet.
    /// Items that were not stored can be delivered again, all of them.
    pub fn poll(&self) -> Option<(Vec<TailItem>, Result<u64>)> {
        match self.answered.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some((Vec::new(), Err(has_ended()))),
        }
    }
}

fn has_ended() -> Error {
    Error::Received("the recording has ended".into())
}

/// Hands tails that were received from other hosts to a sealing thread. Clones share the thread.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: SyncSender<Delivery>,
    thread: Thread,
}

impl Inbox {
    /// Hands items over without waiting; returns them if too many deliveries wait already. They are in the files of
    /// the trace once [`Delivering::poll`] says so.
    ///
    /// # Errors
    /// The items, if they have to be handed over later.
    pub fn begin(&self, items: Vec<TailItem>) -> std::result::Result<Delivering, Vec<TailItem>> {
        let (answer, answered) = sync_channel(1);
        match self.sender.try_send(Delivery { items, answer }) {
            Err(TrySendError::Full(Delivery { items, .. })) => {
                self.thread.unpark();
                Err(items)
            }
            // Without the thread, the dropped sender of the answer tells.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {
                self.thread.unpark();
                Ok(Delivering { answered })
            }
        }
    }

    /// Stores items in the trace; returns when they are in its files.
    ///
    /// # Errors
    /// As [`Sealer::accept`], or [`Error::Received`] if the sealing thread has ended.
    pub fn deliver(&self, mut items: Vec<TailItem>) -> Result<u64> {
        loop {
            match self.begin(items) {
                Ok(delivering) => return delivering.answered.recv().map_err(|_| has_ended())?.1,
                Err(back) => items = back,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl SealerThread {
    /// Starts to seal the trace at `trace`.
    ///
    /// # Errors
    /// As [`Sealer::open`].
    pub fn spawn(trace: &Path, run: Run) -> Result<Self> {
        let sealer = Sealer::open(trace, run.clone())?;
        Self::start(trace, run, Some(sealer))
    }

    /// Starts to seal the trace at `trace` whenever no other process does: ranks of a job take turns, and when the
    /// one that seals ends or is killed, another one goes on.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn share(trace: &Path, run: Run) -> Result<Self> {
        Self::start(trace, run, None)
    }

    fn start(trace: &Path, run: Run, sealer: Option<Sealer>) -> Result<Self> {
        let order = Arc::new(AtomicU8::new(SEAL_ON));
        let ordered = Arc::clone(&order);
        let (inbox, deliveries) = sync_channel(INBOX_DELIVERIES);
        let turns = Turns { trace: trace.to_owned(), run, sealer, deliveries };
        let body = move || {
            signals::block_all();
            turns.work(&ordered)
        };
        let thread = std::thread::Builder::new().name("floodmark-seal".into()).spawn(body);
        let thread = thread.map_err(Error::io("starting a thread for", trace))?;
        Ok(Self { order, inbox, thread: Some(thread) })
    }

    /// Returns where to deliver the tails of processes on other hosts.
    pub fn inbox(&self) -> Inbox {
        let thread = self.thread.as_ref().expect("taken only by stop").thread().clone();
        Inbox { sender: self.inbox.clone(), thread }
    }

    /// Seals what is left and ends the thread.
    ///
    /// # Errors
    /// As [`Sealer::finish`].
    pub fn stop(self) -> Result<Manifest> {
        let sealed = self.end(SEAL_ALL)?;
        sealed.ok_or_else(|| Error::Internal("the sealing thread left".into()))
    }

    /// Ends the thread and leaves the sealing to other processes, or to the first reader if there are none.
    pub fn leave(self) {
        // What went wrong would be tried again by the next sealer.
        let _ = self.end(LEAVE);
    }

    fn end(mut self, order: u8) -> Result<Option<Manifest>> {
        self.order.store(order, Ordering::Release);
        let thread = self.thread.take().expect("taken only here");
        thread.thread().unpark();
        thread.join().unwrap_or_else(|_| Err(Error::Internal("the sealing thread panicked".into())))
    }
}

impl Turns {
    /// Seals until there is another order.
    fn work(mut self, order: &AtomicU8) -> Result<Option<Manifest>> {
        let mut last_work = Instant::now();
        let order = loop {
            match order.load(Ordering::Acquire) {
                SEAL_ON => {}
                order => break order,
            }
            let Some(sealer) = turn(&mut self.sealer, &self.trace, &self.run) else {
                std::thread::park_timeout(POLL_IDLE);
                continue;
            };
            let received = take_in(sealer, &self.deliveries);
            // What fails now (a full disk, say) is tried again; the tail holds everything until
            // then, and what it cannot hold it counts.
            match sealer.tick() {
                Ok(true) => last_work = Instant::now(),
                Ok(false) | Err(_) if received => {}
                Ok(false) | Err(_) => {
                    let idle = last_work.elapsed() > Duration::from_secs(1);
                    std::thread::park_timeout(if idle { POLL_IDLE } else { POLL });
                }
            }
        };
        if order == LEAVE {
            return Ok(None);
        }
        let mut sealer = match self.sealer {
            Some(sealer) => sealer,
            None => Sealer::open_within(&self.trace, self.run, LAST_PATIENCE)?,
        };
        take_in(&mut sealer, &self.deliveries);
        sealer.finish().map(Some)
    }
}

/// Returns the sealer if it is this process's turn, which it is if no other process has the lock. What fails is tried
/// again.
fn turn<'a>(sealer: &'a mut Option<Sealer>, trace: &Path, run: &Run) -> Option<&'a mut Sealer> {
    if sealer.is_none() {
        let lock = lock(trace).ok().flatten()?;
        *sealer = Sealer::with_lock(trace, run.clone(), lock, RemoteWriters::AssumeRunning).ok();
    }
    sealer.as_mut()
}

/// Stores the deliveries that have arrived; returns whether there were any.
fn take_in(sealer: &mut Sealer, deliveries: &Receiver<Delivery>) -> bool {
    let mut any = false;
    while let Ok(Delivery { items, answer }) = deliveries.try_recv() {
        any = true;
        // A sender that has gone needs no answer.
        let stored = sealer.accept_items(&items);
        let _ = answer.send((items, stored));
    }
    any
}
