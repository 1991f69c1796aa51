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
//! | `backend` | host and simulated memory |
//! | [`pool`], [`arena`], [`fixed_size`], [`binning`] | suballocators |
//! | `reserve` | what suballocators are made of: heaps, streams, growth |
//!
//! What does *not* live here: reading logs and traces (`floodmark-store`, `floodmark-convert`), and
//! playing them (`floodmark-replay`).

pub mod arena;
mod backend;
pub mod binning;
pub mod error;
pub mod fixed_size;
pub mod pool;
mod reserve;
pub mod resource;
pub mod stream;
pub mod thread;

pub use arena::{Arena, ArenaProps};
pub use backend::host::Host;
pub use backend::simulated::{Moment, Simulated, SimulatedOrder, SimulatedStream};
pub use binning::Binning;
pub use error::{AllocError, Cause, Holder, OutOfMemory, Result};
pub use fixed_size::{FixedSize, FixedSizeProps};
pub use pool::{Pool, PoolProps};
pub use resource::{ALIGNMENT, Address, Memory, Readiness, Resource, Room, find};
pub use stream::{Marker, NoOrder, Stream, StreamListener, StreamOrder};
