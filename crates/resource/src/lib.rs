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
//! | [`buffer`], [`copier`] | memory that goes back by itself, and who copies it |
//! | `backend` | host, simulated and CUDA memory |
//!
//! What does *not* live here: reading logs and traces (`floodmark-store`, `floodmark-convert`), and
//! playing them (`floodmark-replay`).

mod backend;
pub mod buffer;
pub mod copier;
pub mod error;
pub mod resource;
pub mod stream;
pub mod thread;

pub use backend::cuda::{
    Blocking, Cuda, CudaAsync, CudaAsyncProps, CudaDevice, CudaKernel, CudaManaged, CudaMemory, CudaOrder,
    CudaPinned, CudaStream, MemoryInfo, PoolUsage,
};
pub use backend::host::Host;
pub use backend::simulated::{Moment, Simulated, SimulatedOrder, SimulatedStream};
pub use buffer::{DeviceBuffer, RawBuffer};
pub use copier::{Copier, Reach};
pub use error::{AllocError, Cause, Holder, OutOfMemory, Result};
pub use resource::{ALIGNMENT, Address, Memory, Resource, Room, find};
pub use stream::{Marker, NoOrder, Stream, StreamListener, StreamOrder};
