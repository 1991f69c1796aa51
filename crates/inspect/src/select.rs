//! Selects single events, for exports and listings that pass events on instead of analyzing them.
//!
//! Every event is judged by its own columns; analyses judge a free by the block it ends.

use std::ops::ControlFlow;

use floodmark_event::filter::Window;
use floodmark_event::{Event, EventBatch, Filter, Kind};
use floodmark_store::Losses;

const RESERVED_OMITTED: &str = "an event of reserved memory was left out, because the blocks in it are written \
                                (--kind reserved writes it)";

/// Which events to pass on, and how many.
#[derive(Clone, Debug)]
pub struct Select {
    filter: Filter,
    /// The filter's window, once the first event is known.
    window: Option<Window>,
    left: Option<usize>,
    /// How many events of reserved memory were left out; none if they are passed on.
    reserved: Option<u64>,
}

impl Select {
    /// Passes on what `filter` selects, but at most `limit` events.
    pub fn new(filter: Filter, limit: Option<usize>) -> Self {
        Self { filter, window: None, left: limit, reserved: None }
    }

    /// Leaves out memory that an allocator reserves to divide it, unless the filter names kinds: where kinds are
    /// not told apart, it would count twice, together with the blocks in it.
    #[must_use]
    pub fn without_reserved(self) -> Self {
        let reserved = if self.filter.kinds.is_none() { Some(0) } else { None };
        Self { reserved, ..self }
    }

    /// Adds a remark to `losses` if events of reserved memory were left out.
    pub fn remark_on_reserved(&self, losses: &mut Losses) {
        if let Some(omitted) = self.reserved.filter(|omitted| *omitted > 0) {
            losses.remark_times(omitted, RESERVED_OMITTED);
        }
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
        let has_reserved = || batch.events().any(|event| event.kind == Kind::Reserved);
        if self.filter.selects_all()
            && self.filter.window(0) == Window::default()
            && self.left.is_none()
            && (self.reserved.is_none() || !has_reserved())
        {
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
        if !self.filter.selects(event) || !window.contains(event.time_ns) {
            return false;
        }
        match &mut self.reserved {
            Some(omitted) if event.kind == Kind::Reserved => {
                *omitted += 1;
                false
            }
            _ => true,
        }
    }
}
