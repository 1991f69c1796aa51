//! Memory resources and adaptors.
//!
//! A [`Resource`] hands out blocks of memory in the order of a [`Stream`]. Backends have memory of
//! their own, suballocators divide what an upstream gives them, adaptors add one thing to the resource
//! they wrap and leave the rest as it is. All compose statically (`Statistics<Pool<Simulated>>`) and
//! as `Arc<dyn Resource>`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`resource`] | the trait, addresses, alignment, finding a layer of a stack |
//! | [`stream`] | streams, and what a resource needs to know about their order |
//! | [`error`] | why there is no memory |
//! | [`pool`], [`arena`], [`fixed_size`], [`binning`] | suballocators |
//! | `reserve` | what suballocators are made of: heaps, streams, growth |
//! | [`adaptor`] | statistics, limits, tracking, logs and more around any resource |
//! | [`profiler`] | calls, peak and total bytes of functions and code blocks, by name |
//! | [`current`] | which resource a device's memory comes from |
//! | [`debug_log`] | what resources tell while they work |
//! | [`buffer`], [`copier`] | memory that is freed when dropped, and copying it |
//! | `backend` | host, simulated and CUDA memory |
//!
//! What does *not* live here: reading logs and traces (`floodmark-store`, `floodmark-convert`), and
//! playing them (`floodmark-replay`).

pub mod adaptor;
pub mod arena;
mod backend;
pub mod binning;
pub mod buffer;
pub mod copier;
pub mod current;
pub mod debug_log;
pub mod error;
pub mod fixed_size;
mod local_time;
pub mod pool;
mod process;
pub mod profiler;
mod reserve;
pub mod resource;
mod spin;

mod steps;
pub mod stream;
pub mod thread;

pub use adaptor::aligned::Aligned;
pub use adaptor::callback::Callback;
pub use adaptor::csv_logging::{CsvError, CsvHandle, CsvHealth, CsvLogging, Flush};
pub use adaptor::failure_callback::{Catch, FailureCallback, Retry};
pub use adaptor::limiting::Limiting;
pub use adaptor::logging::Logging;
pub use adaptor::prefetch::{Prefetch, Prefetcher};
pub use adaptor::statistics::{Counter, Counters, NoScope, Requests};
pub use adaptor::statistics::{Scope, ScopeFigures, Statistics, StatisticsHandle};
pub use adaptor::thread_safe::ThreadSafe;
pub use adaptor::tracking::{Tracking, TrackingState};
pub use arena::{Arena, ArenaProps};
pub use backend::cuda::{
    Blocking, Cuda, CudaAsync, CudaAsyncProps, CudaDevice, CudaKernel, CudaManaged, CudaMemory, CudaOrder,
    CudaPinned, CudaStream, MemoryInfo, PoolUsage,
};
pub use backend::host::Host;
pub use backend::simulated::{Moment, Simulated, SimulatedOrder, SimulatedStream};
pub use binning::{BinMemory, Binning};
pub use buffer::{DeviceBuffer, RawBuffer};
pub use copier::{Copier, Reach};
pub use error::{AllocError, Cause, Holder, OutOfMemory, Result};
pub use fixed_size::{FixedSize, FixedSizeProps};
pub use pool::{Pool, PoolProps};
pub use profiler::{MemoryRecord, OrderedBy, Profiled, ProfiledTask, ProfilerRecords};
pub use resource::{ALIGNMENT, Address, Memory, Readiness, Resource, Room, find};
pub use stream::{Marker, NoOrder, Stream, StreamListener, StreamOrder};
