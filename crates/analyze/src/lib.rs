//! Pure folds over events: statistics, watermark, usage, leaks, lifetimes, fragmentation.
//!
//! One stage, [`LiveSet`], matches frees to allocations and knows which blocks are live; every
//! analysis is a [`Fold`] over the changes that stage reports, and several folds share one pass:
//!
//! ```
//! use floodmark_analyze::{Pass, StatsFold, WatermarkFold, WatermarkOptions};
//! use floodmark_event::{Event, EventBatch, Filter, Tables};
//!
//! let mut batch = EventBatch::new();
//! batch.push(&Event { address: 0x1000, bytes: 64, time_ns: 5, ..Event::default() });
//! let folds = (StatsFold::default(), WatermarkFold::new(WatermarkOptions::default()));
//! let mut pass = Pass::new(&Filter::default(), folds);
//! pass.update(&batch);
//! let (stats, watermark) = pass.finish(&Tables::default());
//! assert_eq!((stats.peak_bytes, watermark.blocks.len()), (64, 1));
//! ```
//!
//! What was sampled from outside is folded by [`RunFold`].
//!
//! Memory grows with live blocks and with what is reported, never with the number of events.
//!
//! What does *not* live here: reading events (`floodmark-store`, `floodmark-convert`) and showing
//! results (`floodmark-view`). Nothing here does I/O or prints.

pub mod block;
pub mod budget;
pub mod caveats;
pub mod change;
pub mod churn;
pub mod device_ledger;
pub mod diff;
pub mod envelope;
pub mod failures;
pub mod flame;
pub mod fold;
pub mod fragmentation;
pub mod growth;
pub mod holders;
pub mod layers;
pub mod leaks;
pub mod ledger;
pub mod level;
pub mod lifetimes;
pub mod live;
pub mod merge;
pub mod oom;
pub mod origins;
pub mod overlay;
pub mod partial;
pub mod paths;
pub mod peaks;
pub mod pools;
pub mod process_map;
pub mod ranges;
pub mod ranks;
pub mod run;
pub mod samples;
pub mod scopes;
pub mod series;
pub mod site;
pub mod snapshots;
pub mod stats;
pub mod traced;
pub mod trend;
pub mod usage;
pub mod watermark;

mod calls;
mod describe;
mod json;
mod loglinear;
mod sizes;

pub use block::{BlockInfo, Group, GroupBy, KindSummary, StackText};
pub use budget::{Budget, BudgetFigure, BudgetOutcome, Limit};
pub use calls::folded_text;
pub use caveats::{Caveats, CaveatsFold};
pub use change::{Block, Ending, Failure, Space, UnmatchedFree};
pub use churn::{
    Allocated, Churn, ChurnFold, ChurnInterval, ChurnOptions, ChurnSite, ReallocChain, WasteAtPeak,
};
pub use device_ledger::{
    DEVICE_KINDS, DeviceIdentity, DeviceLedger, DeviceLedgerClass, DeviceLedgerItem, DeviceSamplesFold,
    TrackedUse, TrackedUseFold,
};
pub use diff::{
    Diff, DiffEvents, DiffNode, DiffParts, DiffSide, Figure, FigureChange, GroupChange, LeakChange, Presence,
};
pub use failures::{FailedAllocation, Failures, FailuresFold};
pub use flame::{Direction, Flame, FlameNode, FlameOf, StackCounts};
pub use fold::{End, Fold, Pass};
pub use fragmentation::{Fragmentation, FragmentationFold, FragmentationOptions, MapAt};
pub use growth::{Growth, GrowthFold, GrowthOptions, SiteGrowth, Trend};
pub use holders::{HolderSite, HolderStack, HoldersFold};
pub use layers::{Layer, LayersFold, WholeBlocks, WholeBlocksFold};
pub use leaks::{ExcludeReason, Excluded, LeakGroup, LeakedBlock, Leaks, LeaksFold, LeaksOptions, Verdict};
pub use ledger::{
    LedgerClass, LedgerFold, LedgerItem, LiveHeap, LiveHeapFold, ProcessLedger, SampledProcess, SlackPoint,
};
pub use level::{Level, Tallies};
pub use lifetimes::{LifetimeBar, LifetimeSite, Lifetimes, LifetimesFold, LifetimesOptions};
pub use live::{Counters, KeptLive, LiveSet, Tracker};
pub use merge::{Merge, SpaceMap};
pub use oom::{
    DeviceAtFailure, FailedCall, FailureFold, FreeMemory, OutOfMemory, RecentChange, SiteChange, WhichFailure,
};
pub use origins::{BlockOrigin, FallbackOrigin, OriginRow, OriginTotals, OriginTotalsFold, SplitBy, Totals};
pub use overlay::{
    Align, DeviceOverlay, DeviceSample, Overlay, OverlayFold, OverlayOptions, OverlayPoint, Spread,
};
pub use partial::{
    HeldBlocks, Partial, PartialData, PartialError, PartialFold, PartialOptions, PartialSource, SearchFor,
    partial_fold,
};
pub use paths::{Exactness, FrameChoice, PathBy, PathRules, Step};
pub use peaks::{Cut, HeldFold, JobPeak, JobPeaks, Look, LookFold, LookRanges, PeakSearch};
pub use pools::{PoolUse, PoolsFold};
pub use process_map::{JobProcesses, ProcessMapFold, ProcessPeak, ProcessQuantile};
pub use ranges::{NamedRange, Ranges, RangesFold};
pub use ranks::{
    Imbalance, LineLabels, LineRanks, NodeMemory, Quantile, RankBand, RankMap, RankMemory, RankOutputFold,
    RankedOutput, RankedRow, Ranks, RanksFold,
};
pub use run::{
    CgroupMemory, DeviceMemory, DeviceNow, GpuKind, GpuSummary, HeapSummary, Mark, NotRecorded, PeakStack,
    PeakStackFold, PhaseMemory, ProcessAtPeak, ProcessMemory, ProcessNow, RunCost, RunFold, RunMemory,
    RunNow, RunSummary, RunWatermark, signal_name, waits,
};
pub use samples::{SampleState, SampleVisitor, SeriesKey, SweepFold, SweepTotal};
pub use scopes::{ScopePaths, ScopeRoles};
pub use series::{
    DomainSeriesFold, GroupSeries, Place, SeriesFold, SeriesMember, SeriesPoint, SeriesSet, SpaceSeries,
    SpaceSeriesFold, StackedPoint, SubjectSeries, SubjectSeriesFold,
};
pub use site::SiteRules;
pub use snapshots::{
    AddressBand, AddressSeries, Band, Breakdown, BreakdownBy, CumulativeAllocations, Cuts, FunctionProfile,
    Held, HolderGroup, SeenBlock, Snapshot, SnapshotOptions, SnapshotPass, Snapshots,
};
pub use stats::{HistogramBar, Ledger, SizeSummary, Stats, StatsFold};
pub use traced::{
    CallNode, CallOrder, CallPeriod, CallSite, Calls, CallsFold, CallsOptions, FunctionGain, LargestStep,
    Recorded, RssPoint, TracedFunction, TracedLine,
};
pub use usage::{Usage, UsageFold, UsageMode, UsagePoint, UsageSeries, UsageStream, active_part};
pub use watermark::{Grouping, Watermark, WatermarkFold, WatermarkOptions};
