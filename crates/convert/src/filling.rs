//! Fills batches from a file that is read record by record.

use floodmark_event::EventBatch;
use floodmark_event::batch::BATCH_ROWS;
use floodmark_store::{Error, Result};

/// Whether a file is read to its end, and the error that stopped it.
#[derive(Default)]
pub(crate) struct Filling {
    is_done: bool,
    error: Option<Error>,
}

impl Filling {
    /// Fills a batch by calling `step`, which adds the events of one record and returns whether there was one. The
    /// events before an error are returned first, the error by the next call.
    pub(crate) fn next(
        &mut self,
        batch: &mut EventBatch,
        mut step: impl FnMut(&mut EventBatch) -> Result<bool>,
    ) -> Result<bool> {
        *batch = EventBatch::new();
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        while batch.len() < BATCH_ROWS && !self.is_done {
            match step(batch) {
                Ok(has_more) => self.is_done = !has_more,
                Err(error) => {
                    self.is_done = true;
                    if batch.is_empty() {
                        return Err(error);
                    }
                    self.error = Some(error);
                }
            }
        }
        Ok(!batch.is_empty())
    }
}
