//! Decides which events are selected, and into which sum they go.
//!
//! See [`Filter`] for the rules; this is that, prepared for asking per event.

use floodmark_event::units::Instant;
use floodmark_event::{Kind, ProcessId};

use floodmark_event::filter::Filter;

/// The tally of blocks that are tracked but not selected.
pub(super) const UNSELECTED: u8 = u8::MAX;

/// A [`Filter`], prepared.
#[derive(Clone, Debug)]
pub(super) struct Select {
    devices: Option<Vec<i32>>,
    processes: Option<Vec<ProcessId>>,
    threads: Option<Vec<u64>>,
    streams: Option<Vec<u64>>,
    /// Tally of each kind, or [`UNSELECTED`].
    tallies: [u8; Kind::ALL.len()],
    /// The kinds that were chosen, in order and once each.
    pub(super) kinds: Option<Vec<Kind>>,
    pub(super) from: Option<Instant>,
    pub(super) to: Option<Instant>,
}

fn sorted<T: Ord + Copy>(values: Option<&Vec<T>>) -> Option<Vec<T>> {
    let mut values = values?.clone();
    values.sort_unstable();
    values.dedup();
    Some(values)
}

fn selects<T: Ord>(values: Option<&Vec<T>>, value: &T) -> bool {
    values.is_none_or(|values| values.binary_search(value).is_ok())
}

impl Select {
    pub(super) fn new(filter: &Filter) -> Self {
        let kinds = sorted(filter.kinds.as_ref());
        let tallies = std::array::from_fn(|number| match &kinds {
            None => number as u8,
            Some(kinds) if kinds.contains(&Kind::ALL[number]) => 0,
            Some(_) => UNSELECTED,
        });
        Self {
            devices: sorted(filter.devices.as_ref()),
            processes: sorted(filter.processes.as_ref()),
            threads: sorted(filter.threads.as_ref()),
            streams: sorted(filter.streams.as_ref()),
            tallies,
            kinds,
            from: filter.from_ns,
            to: filter.to_ns,
        }
    }

    pub(super) fn selects_space(&self, process: ProcessId, device: i32) -> bool {
        selects(self.devices.as_ref(), &device) && selects(self.processes.as_ref(), &process)
    }

    /// Whether anything inside the window is left out.
    pub(super) fn narrows(&self) -> bool {
        self.devices.is_some()
            || self.processes.is_some()
            || self.threads.is_some()
            || self.streams.is_some()
            || self.kinds.is_some()
    }

    /// Whether blocks allocated by this thread on this stream are selected.
    pub(super) fn selects_origin(&self, thread: u64, stream: u64) -> bool {
        selects(self.threads.as_ref(), &thread) && selects(self.streams.as_ref(), &stream)
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
