//! Decides which events are selected, and into which sum they go.

use floodmark_event::filter::Filter;
use floodmark_event::{Kind, ProcessId};

/// The tally of blocks that are tracked but not selected.
pub(super) const UNSELECTED: u8 = u8::MAX;

/// A [`Filter`] with the tally of each kind, for asking per event.
#[derive(Clone, Debug)]
pub(super) struct Select {
    pub(super) filter: Filter,
    /// Tally of each kind, or [`UNSELECTED`].
    tallies: [u8; Kind::ALL.len()],
}

impl Select {
    pub(super) fn new(filter: &Filter) -> Self {
        let has_kinds = filter.kinds.is_some();
        let tallies = std::array::from_fn(|number| match Kind::ALL[number] {
            kind if !filter.selects_kind(kind) => UNSELECTED,
            _ if has_kinds => 0,
            _ => number as u8,
        });
        Self { filter: filter.clone(), tallies }
    }

    /// The kinds that were chosen, in order and once each.
    pub(super) fn kinds(&self) -> Option<Vec<Kind>> {
        self.filter.kinds.as_ref()?;
        Some(Kind::ALL.into_iter().filter(|kind| self.filter.selects_kind(*kind)).collect())
    }

    pub(super) fn selects_space(&self, process: ProcessId, device: i32) -> bool {
        self.filter.selects_memory(process, device)
    }

    /// Whether blocks allocated by this thread on this stream are selected.
    pub(super) fn selects_origin(&self, thread: u64, stream: u64) -> bool {
        self.filter.selects_origin(thread, stream)
    }

    /// The tally of a kind, or [`UNSELECTED`].
    #[inline]
    pub(super) fn tally(&self, kind: Kind) -> u8 {
        self.tallies[kind as usize]
    }

    /// Whether a free that has no allocation may count: many sources state no kind on frees.
    pub(super) fn selects_kind_of_free(&self, kind: Kind) -> bool {
        kind == Kind::Unknown || self.tally(kind) != UNSELECTED
    }
}
