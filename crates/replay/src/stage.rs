//! A resource made ready to be played against, with one stream for each of the log.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use floodmark_resource::{CudaDevice, Resource, Room, SimulatedOrder, Stream};

/// What a resource's own word says of how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// What it says it has reserved.
    Reserved,
    /// What is live: it has nothing else. A simulated device calls all of itself reserved.
    Live,
}

/// A resource with the streams that a script needs.
pub struct Stage {
    // Dropped first: streams outlive the resource, which then need not be told of their end.
    resource: Arc<dyn Resource>,
    pub(crate) holds: Holds,
    pub(crate) streams: Vec<Stream>,
    pub(crate) order: Option<Arc<SimulatedOrder>>,
    pub(crate) device: Option<CudaDevice>,
    /// All memory of the stage: no upstream is asked for more.
    pub(crate) most_bytes: u64,
    pub(crate) alive: Vec<Box<dyn Any + Send + Sync>>,
}

impl Stage {
    pub(crate) fn new(resource: Arc<dyn Resource>, holds: Holds) -> Self {
        Self {
            resource,
            holds,
            streams: Vec::new(),
            order: None,
            device: None,
            most_bytes: u64::MAX,
            alive: Vec::new(),
        }
    }

    /// The resource.
    pub fn resource(&self) -> &dyn Resource {
        &*self.resource
    }

    /// The streams, one for each asked for.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// How often a stream was made to wait for another, where that is known.
    pub fn waits(&self) -> Option<u64> {
        self.order.as_ref().map(|order| order.waits())
    }

    /// The streams of a simulated device, where it is one.
    pub fn simulated_order(&self) -> Option<&Arc<SimulatedOrder>> {
        self.order.as_ref()
    }

    /// The device of this machine that it is on, where it is one.
    pub fn device(&self) -> Option<&CudaDevice> {
        self.device.as_ref()
    }

    /// Makes the device current in the calling thread, so that no call has to.
    pub(crate) fn attend(&self) {
        if let Some(device) = &self.device {
            // Calls make it current themselves if this does not, which costs them some time.
            let _ = device.make_current();
        }
    }

    pub(crate) fn reserved_bytes(&self, room: &Room) -> u64 {
        match self.holds {
            Holds::Reserved => room.reserved_bytes,
            Holds::Live => room.live_bytes,
        }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stage {{ resource: {}, streams: {} }}", self.resource.name(), self.streams.len())
    }
}
