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
//! | [`adaptor`] | what adds one thing to another resource: tracking |
//! | [`stacks`] | call stacks of this process |
//!
//! What does *not* live here: reading logs and traces (`floodmark-store`, `floodmark-convert`), and
//! playing them (`floodmark-replay`).

pub mod adaptor;
mod backend;
pub mod error;
pub mod resource;
pub mod stacks;
pub mod stream;
pub mod thread;

pub use adaptor::tracking::{Tracking, TrackingState};
pub use backend::host::Host;
pub use backend::simulated::{Moment, Simulated, SimulatedOrder, SimulatedStream};
pub use error::{AllocError, Cause, Holder, OutOfMemory, Result};
pub use resource::{ALIGNMENT, Address, Memory, Resource, Room, find};
pub use stream::{Marker, NoOrder, Stream, StreamListener, StreamOrder};
