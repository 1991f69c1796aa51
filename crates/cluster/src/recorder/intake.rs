//! What a node has sent, on its way into the trace.
//!
//! Nothing here waits: a disk that is full or slow must not keep the node's thread from answering its agent, which would take
//! the recorder for lost. What cannot be written is tried again. The agent's window bounds what waits.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floodmark_store::{Delivering, Error, TailItem};

use super::{NodeEvent, Shared};

/// Time between two attempts to write.
const RETRY: Duration = Duration::from_millis(500);

/// Items of a node that are not in the trace yet.
#[derive(Default)]
pub(super) struct Intake {
    waiting: Vec<TailItem>,
    /// Position in the spool behind what waits.
    end: u64,
    /// What is being stored, and the position behind it.
    storing: Option<(Delivering, u64)>,
    /// Position in the spool up to which everything is in the trace.
    pub(super) stored: u64,
    retry_at: Option<Instant>,
}

impl Intake {
    /// Takes items; `end` is the position in the spool behind them.
    pub(super) fn push(&mut self, items: Vec<TailItem>, end: u64) {
        self.waiting.extend(items);
        self.end = end;
    }

    /// Forgets positions: the spool is a new one.
    pub(super) fn restart(&mut self) {
        (self.end, self.stored) = (0, 0);
        if let Some((_, end)) = &mut self.storing {
            *end = 0;
        }
    }

    /// Whether everything is in the trace.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.storing.is_none()
    }

    /// Goes on storing; returns whether more is stored than before.
    ///
    /// # Errors
    /// If the items make no sense, or the recording has ended. Other failures are tried again.
    pub(super) fn pump(&mut self, shared: &Shared) -> Result<bool, String> {
        let before = self.stored;
        if let Some((delivering, end)) = &self.storing
            && let Some((items, stored)) = delivering.poll()
        {
            let end = *end;
            self.storing = None;
            match stored {
                Ok(_) => {
                    self.stored = end;
                    if shared.is_unwritten.swap(false, Ordering::AcqRel) {
                        (shared.props.on_event)(&NodeEvent::Written);
                    }
                }
                Err(error @ Error::Received(_)) => return Err(error.to_string()),
                Err(error) => {
                    self.waiting.splice(0..0, items);
                    self.retry_at = Some(Instant::now() + RETRY);
                    if !shared.is_unwritten.swap(true, Ordering::AcqRel) {
                        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                        let reason = format!("{error}{}", cause.unwrap_or_default());
                        (shared.props.on_event)(&NodeEvent::Unwritten { reason });
                    }
                }
            }
        }
        let is_due = self.retry_at.is_none_or(|at| Instant::now() >= at);
        if self.storing.is_none() && is_due {
            self.retry_at = None;
            if self.waiting.is_empty() {
                // Bytes of a frame that is not complete yet.
                self.stored = self.stored.max(self.end);
            } else {
                match shared.inbox.begin(std::mem::take(&mut self.waiting)) {
                    Ok(delivering) => self.storing = Some((delivering, self.end)),
                    Err(items) => self.waiting = items,
                }
            }
        }
        Ok(self.stored > before)
    }
}
