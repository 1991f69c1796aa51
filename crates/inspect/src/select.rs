//! Selects single events, for exports and listings that pass events on instead of analyzing them.
//!
//! Every event is judged by its own columns; analyses judge a free by the block it ends.

use std::ops::ControlFlow;

use floodmark_event::filter::Window;
use floodmark_event::{Event, EventBatch, Filter};

/// Which events to pass on, and how many.
#[derive(Clone, Debug)]
pub struct Select {
    filter: Filter,
    /// The filter's window, once the first event is known.
    window: Option<Window>,
    left: Option<usize>,
}

impl Select {
    /// Passes on what `filter` selects, but at most `limit` events.
    pub fn new(filter: Filter, limit: Option<usize>) -> Self {
        Self { filter, window: None, left: limit }
    }

    /// Calls `visit` with the selected events of `batch`; breaks when the limit is reached.
    ///
    /// # Errors
    /// What `visit` returns.
    pub fn pass_on<E>(
        &mut self,
        batch: &EventBatch,
        visit: impl FnOnce(&EventBatch) -> Result<(), E>,
    ) -> Result<ControlFlow<()>, E> {
        if self.filter == Filter::default() && self.left.is_none() {
            visit(batch)?;
            return Ok(ControlFlow::Continue(()));
        }
        let mut selected = EventBatch::new();
        let most = self.left.unwrap_or(usize::MAX);
        batch.events().filter(|event| self.selects(event)).take(most).for_each(|event| selected.push(&event));
        self.left = self.left.map(|left| left - selected.len());
        if !selected.is_empty() {
            visit(&selected)?;
        }
        Ok(if self.left == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn selects(&mut self, event: &Event) -> bool {
        let window = *self.window.get_or_insert_with(|| self.filter.window(event.time_ns));
        self.filter.selects(event) && window.contains(event.time_ns)
    }
}
