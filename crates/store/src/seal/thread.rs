//! A thread that seals a trace while it is recorded, and takes in what other hosts send.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::{POLL, POLL_IDLE, Sealer};
use crate::error::{Error, Result};
use crate::intake::{TailItem, TailSource};
use crate::manifest::{Manifest, Run};
use crate::signals;

/// Deliveries that wait for the sealer; a sender that finds the inbox full waits.
const INBOX_DELIVERIES: usize = 64;

/// A thread that seals a trace until [`stop`](Self::stop) is called.
#[derive(Debug)]
pub struct SealerThread {
    stop: Arc<AtomicBool>,
    inbox: SyncSender<Delivery>,
    thread: Option<JoinHandle<Result<Manifest>>>,
}

/// Items of other processes, and where to answer once they are stored.
#[derive(Debug)]
struct Delivery {
    items: Vec<TailItem>,
    answer: SyncSender<Result<u64>>,
}

/// Hands tails that were received from other hosts to a sealing thread. Clones share the thread.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: SyncSender<Delivery>,
    thread: Thread,
}

impl Inbox {
    /// Stores items in the trace; returns when they are in its files.
    ///
    /// # Errors
    /// As [`Sealer::accept`], or [`Error::Received`] if the sealing thread has ended.
    pub fn deliver(&self, items: Vec<TailItem>) -> Result<u64> {
        let ended = || Error::Received("the recording has ended".into());
        let (answer, answered) = sync_channel(1);
        let mut delivery = Delivery { items, answer };
        // Woken before every wait: the thread sleeps between two polls.
        loop {
            match self.sender.try_send(delivery) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => {
                    delivery = back;
                    self.thread.unpark();
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TrySendError::Disconnected(_)) => return Err(ended()),
            }
        }
        self.thread.unpark();
        answered.recv().map_err(|_| ended())?
    }
}

/// Yields the items of one delivery.
struct Delivered(std::vec::IntoIter<TailItem>);

impl TailSource for Delivered {
    fn next(&mut self) -> std::io::Result<Option<TailItem>> {
        Ok(self.0.next())
    }
}

impl SealerThread {
    /// Starts to seal the trace at `trace`.
    ///
    /// # Errors
    /// As [`Sealer::open`].
    pub fn spawn(trace: &Path, run: Run) -> Result<Self> {
        let mut sealer = Sealer::open(trace, run)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let (inbox, deliveries) = sync_channel(INBOX_DELIVERIES);
        let body = move || {
            signals::block_all();
            let mut last_work = Instant::now();
            while !stopping.load(Ordering::Acquire) {
                let received = take_in(&mut sealer, &deliveries);
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
            }
            take_in(&mut sealer, &deliveries);
            sealer.finish()
        };
        let thread = std::thread::Builder::new().name("floodmark-seal".into()).spawn(body);
        let thread = thread.map_err(Error::io("starting a thread for", trace))?;
        Ok(Self { stop, inbox, thread: Some(thread) })
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
    pub fn stop(mut self) -> Result<Manifest> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("taken only here");
        thread.thread().unpark();
        thread.join().unwrap_or_else(|_| Err(Error::Internal("the sealing thread panicked".into())))
    }
}

/// Stores the deliveries that have arrived; returns whether there were any.
fn take_in(sealer: &mut Sealer, deliveries: &Receiver<Delivery>) -> bool {
    let mut any = false;
    while let Ok(Delivery { items, answer }) = deliveries.try_recv() {
        any = true;
        // A sender that has gone needs no answer.
        let _ = answer.send(sealer.accept(&mut Delivered(items.into_iter())));
    }
    any
}
