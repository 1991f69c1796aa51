//! Counts failed allocations and keeps the first one.

use floodmark_event::{NO_DEVICE, StringId};
use serde::{Deserialize, Serialize};

use crate::change::Failure;
use crate::fold::{End, Fold};
use crate::site::SiteRules;

/// Failed allocations of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Number of failed allocations.
    pub count: u64,
    /// The first of them.
    pub first: Option<FailedAllocation>,
}

/// A failed allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAllocation {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: i64,
    /// Bytes that were requested.
    pub bytes: u64,
    /// Thread that requested them.
    pub thread: u64,
    /// Stream on which they were requested; 0 for the default stream or none.
    pub stream: u64,
    /// Device of the memory, if it is that of a device.
    pub device: Option<i32>,
    /// Call site, if a stack was recorded.
    pub site: Option<String>,
}

/// Folds events into [`Failures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FailuresFold {
    count: u64,
    first: Option<Failure>,
}

impl Fold for FailuresFold {
    type Output = Failures;

    fn failure(&mut self, failure: &Failure) {
        self.count += 1;
        self.first.get_or_insert(*failure);
    }

    fn finish(&self, end: &End<'_>) -> Failures {
        let first = self.first.map(|failure| {
            let device = end.live.space(failure.space).device;
            let site = (failure.stack.0 != 0)
                .then(|| SiteRules::default().site(failure.stack, StringId::default(), end.tables));
            FailedAllocation {
                time_ns: failure.time_ns,
                bytes: failure.bytes,
                thread: failure.thread,
                stream: failure.stream,
                device: (device != NO_DEVICE).then_some(device),
                site,
            }
        });
        Failures { count: self.count, first }
    }
}
