//! The memory profiler: calls, peak and total bytes of functions and code blocks, by name.
//!
//! A profiled block is a scope of a [`StatisticsHandle`]; when it ends, its figures are added to
//! [`ProfilerRecords`] under its name. Counted are blocks of memory that it allocated, whichever thread frees them:
//! giving back older memory does not lower its peak, and threads do not see each other's allocations.
//!
//! A block that runs inside one of the same name, as in a recursion, counts as a call only: its memory is in the
//! figures of the outer one already.
//!
//! | module | what lives there |
//! |---|---|
//! | `records` | the figures of each name |
//! | `report` | the figures as text, as RMM prints them |

mod records;
mod report;

use std::fmt;
use std::sync::Arc;

pub use records::{MemoryRecord, ProfilerRecords};
pub use report::OrderedBy;

use crate::adaptor::statistics::{Scope, SplitScope, StatisticsHandle};

/// A block that is being profiled; its figures are recorded when this is dropped.
///
/// ```
/// use std::sync::Arc;
///
/// use floodmark_resource::{DeviceBuffer, Host, OrderedBy, ProfilerRecords, Resource, Statistics, Stream};
///
/// let statistics = Statistics::new(Host::new());
/// let handle = statistics.handle().clone();
/// let resource: Arc<dyn Resource> = Arc::new(statistics);
/// let records = ProfilerRecords::default();
/// {
///     let _profiled = records.profile(&handle, "load");
///     let _buffer = DeviceBuffer::new(3500, Stream::DEFAULT, Arc::clone(&resource))?;
/// }
/// let report = records.report(OrderedBy::Peak);
/// assert!(report.ends_with("\n     1           3,500           3,500  load"));
/// # Ok::<(), floodmark_resource::AllocError>(())
/// ```
#[must_use = "a block ends when dropped"]
pub struct Profiled {
    records: ProfilerRecords,
    name: Arc<str>,
    block: OpenBlock,
}

/// A block that is being profiled for a caller that keeps records and name; see [`ProfilerRecords::open`].
#[derive(Debug, Default)]
#[must_use = "a block that is dropped is not recorded"]
pub struct OpenBlock {
    /// None inside a block of the same name.
    scope: Option<Scope>,
}

impl Profiled {
    /// Name of the block.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Profiled {
    fn drop(&mut self) {
        self.records.finish(&self.name, std::mem::take(&mut self.block));
    }
}

impl fmt::Debug for Profiled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Profiled").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A generator or coroutine that is being profiled as one call; its figures are recorded when this is dropped.
///
/// It counts while one of its pieces is open, so tasks that take turns on a thread do not count for each other.
pub struct ProfiledTask {
    records: ProfilerRecords,
    name: Arc<str>,
    scope: SplitScope,
}

/// One step of a [`ProfiledTask`], until it is dropped.
#[must_use = "a step ends when dropped"]
pub struct ProfiledStep {
    _scope: Option<Scope>,
}

impl ProfiledTask {
    /// Counts what the calling thread allocates for the task until the result is dropped.
    pub fn step(&self) -> ProfiledStep {
        ProfiledStep { _scope: self.scope.enter() }
    }
}

impl Drop for ProfiledTask {
    fn drop(&mut self) {
        let bytes = self.scope.held().bytes;
        let record = MemoryRecord { calls: 1, peak_bytes: bytes.peak, total_bytes: bytes.total };
        self.records.add(&self.name, record);
    }
}

impl fmt::Debug for ProfiledTask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProfiledTask").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProfiledStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProfiledStep").finish_non_exhaustive()
    }
}

impl ProfilerRecords {
    /// Profiles a block of the calling thread until the result is dropped.
    pub fn profile(&self, statistics: &StatisticsHandle, name: impl Into<Arc<str>>) -> Profiled {
        let name = name.into();
        let block = self.open(statistics, &name);
        Profiled { records: self.clone(), name, block }
    }

    /// Profiles a block of the calling thread until the result is [finished](Self::finish) under the same name.
    pub fn open(&self, statistics: &StatisticsHandle, name: &Arc<str>) -> OpenBlock {
        OpenBlock { scope: statistics.scope_once(name, self.identity()) }
    }

    /// Ends a block that [`open`](Self::open) began, and records it.
    pub fn finish(&self, name: &Arc<str>, block: OpenBlock) {
        let bytes = block.scope.map(|scope| scope.finish().held.bytes).unwrap_or_default();
        self.add(name, MemoryRecord { calls: 1, peak_bytes: bytes.peak, total_bytes: bytes.total });
    }

    /// Profiles a generator or coroutine until the result is dropped.
    pub fn task(&self, statistics: &StatisticsHandle, name: impl Into<Arc<str>>) -> ProfiledTask {
        let name = name.into();
        let scope = statistics.split_scope(Arc::clone(&name), self.identity());
        ProfiledTask { records: self.clone(), name, scope }
    }
}
