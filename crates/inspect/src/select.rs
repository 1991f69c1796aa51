//! Selects single events, for exports and listings that pass events on instead of analyzing them.
//!
//! Every event is judged by its own columns; analyses judge a free by the block it ends.

use std::ops::ControlFlow;

use floodmark_event::Filter;
use floodmark_event::filter::resolve;
use floodmark_event::{Event, EventBatch};

/// Which events to pass on, and how many.
#[derive(Clone, Debug)]
pub struct Select {
    filter: Filter,
    first_ns: Option<i64>,
    left: Option<usize>,
}

impl Select {
    /// Passes on what `narrow` asks for, but at most `limit` events.
    pub fn new(filter: Filter, limit: Option<usize>) -> Self {
        Self { filter, first_ns: None, left: limit }
    }

    /// Calls `visit` with the selected events of `batch`; breaks when the limit is reached.
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
        fn within<T: PartialEq>(list: Option<&Vec<T>>, value: &T) -> bool {
            list.is_none_or(|list| list.contains(value))
        }
        let first_ns = *self.first_ns.get_or_insert(event.time_ns);
        let filter = &self.filter;
        within(filter.devices.as_ref(), &event.device)
            && within(filter.processes.as_ref(), &event.process)
            && within(filter.threads.as_ref(), &event.thread)
            && within(filter.streams.as_ref(), &event.stream)
            && within(filter.kinds.as_ref(), &event.kind)
            && filter.from_ns.is_none_or(|from| event.time_ns >= resolve(from, first_ns))
            && filter.to_ns.is_none_or(|to| event.time_ns <= resolve(to, first_ns))
    }
}
