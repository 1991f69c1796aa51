//! The resources that can be played against, and how each is made ready.
//!
//! Every play gets an instance of its own, on simulated memory of its own, so that all start equal.
//! A resource more is a [`Choice`], an arm of [`Base::resource`] and, if it needs something that not
//! every machine has, an arm of [`Lineup::lacks`].

use std::any::Any;
use std::sync::Arc;

use floodmark_resource::{ALIGNMENT, Host, Resource, Simulated, Stream};

use crate::error::{Error, Result};
use crate::stage::{Holds, Stage};

/// A resource to play against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// Memory of the host, from the system's allocator.
    Host,
    /// Memory of the device, block by block; simulated where the device is.
    Cuda,
    /// Memory that moves between host and device.
    Managed,
    /// The driver's own pool.
    CudaAsync,
    /// Page-locked memory of the host.
    Pinned,
    /// A pool that coalesces.
    Pool,
    /// An arena with parts of its own for every stream.
    Arena,
    /// Bins of fixed sizes over a pool.
    Binning,
    /// Blocks of one size.
    Fixed,
}

impl Choice {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::Host,
        Self::Cuda,
        Self::Managed,
        Self::CudaAsync,
        Self::Pinned,
        Self::Pool,
        Self::Arena,
        Self::Binning,
        Self::Fixed,
    ];

    /// The word for it in options and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
            Self::Managed => "managed",
            Self::CudaAsync => "cuda_async",
            Self::Pinned => "pinned",
            Self::Pool => "pool",
            Self::Arena => "arena",
            Self::Binning => "binning",
            Self::Fixed => "fixed",
        }
    }

    /// The resource with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// Whether it divides what another resource gives it.
    pub const fn is_suballocator(self) -> bool {
        matches!(self, Self::Pool | Self::Arena | Self::Binning | Self::Fixed)
    }
}

/// What lies below the resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// A device that has room but no memory.
    Simulated {
        /// How much room.
        bytes: u64,
    },
}

/// How resources are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineupProps {
    /// What lies below them.
    pub ground: Ground,
    /// What a pool reserves at first; half of the memory if not given.
    pub pool_initial_bytes: Option<u64>,
    /// The most a pool reserves.
    pub pool_maximum_bytes: Option<u64>,
    /// Size of an arena; all of the memory if not given.
    pub arena_bytes: Option<u64>,
    /// Size of a block of fixed size.
    pub fixed_block_bytes: u64,
    /// How many of them are reserved at a time.
    pub fixed_blocks: u64,
}

impl LineupProps {
    /// The usual settings on this ground.
    pub const fn on(ground: Ground) -> Self {
        Self {
            ground,
            pool_initial_bytes: None,
            pool_maximum_bytes: None,
            arena_bytes: None,
            fixed_block_bytes: 1 << 20,
            fixed_blocks: 128,
        }
    }
}

impl LineupProps {
    /// The same, but with resources that take all of the ground at once.
    pub(crate) const fn filling(self, ground: Ground) -> Self {
        let Ground::Simulated { bytes } = ground;
        Self {
            ground,
            pool_initial_bytes: Some(aligned(bytes)),
            pool_maximum_bytes: Some(aligned(bytes)),
            arena_bytes: Some(aligned(bytes)),
            ..self
        }
    }
}

/// Makes resources ready.
#[derive(Debug)]
pub struct Lineup {
    props: LineupProps,
}

impl Lineup {
    /// Prepares to make resources.
    pub const fn new(props: LineupProps) -> Self {
        Self { props }
    }

    /// How they are made.
    pub const fn props(&self) -> &LineupProps {
        &self.props
    }

    /// What this machine lacks for a resource; none if it can be made.
    pub fn lacks(&self, choice: Choice) -> Option<String> {
        match choice {
            Choice::Host | Choice::Cuda => None,
            Choice::Managed | Choice::CudaAsync | Choice::Pinned => {
                Some("it needs a GPU, simulated memory does not do".into())
            }
            Choice::Pool | Choice::Arena | Choice::Binning | Choice::Fixed => {
                Some("it is not built in".into())
            }
        }
    }

    /// The resources that this machine has.
    pub fn available(&self) -> Vec<Choice> {
        Choice::ALL.into_iter().filter(|choice| self.lacks(*choice).is_none()).collect()
    }

    /// Makes a resource ready, with a stream for each of those that were logged.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this machine has no such resource, [`Error::Stage`] if it cannot be made.
    pub fn stage(&self, choice: Choice, logged_streams: &[u64]) -> Result<Stage> {
        if let Some(why) = self.lacks(choice) {
            return Err(Error::Unavailable { resource: choice.name(), why });
        }
        let base = self.base();
        let (resource, holds) = base.resource(choice);
        let mut stage = Stage::new(resource, holds);
        base.give_streams(logged_streams, &mut stage);
        if choice == Choice::Host {
            stage.order = None;
        }
        Ok(stage)
    }

    /// How a resource is set up, where there is something to set.
    pub fn setup(&self, choice: Choice) -> Option<String> {
        let _ = choice;
        None
    }

    fn base(&self) -> Base {
        match self.props.ground {
            Ground::Simulated { bytes } => Base::Simulated(Arc::new(Simulated::new(bytes))),
        }
    }
}

/// What lies below a resource, made ready.
enum Base {
    Simulated(Arc<Simulated>),
}

impl Base {
    fn resource(&self, choice: Choice) -> (Arc<dyn Resource>, Holds) {
        let Self::Simulated(device) = self;
        match choice {
            Choice::Host => (Arc::new(Host::new()), Holds::Reserved),
            _ => (Arc::clone(device) as Arc<dyn Resource>, Holds::Live),
        }
    }

    /// Makes a stream for each that was logged. The default ones are what they are.
    fn give_streams(&self, logged: &[u64], stage: &mut Stage) {
        let Self::Simulated(device) = self;
        for handle in logged {
            let known = Stream::foreign(*handle);
            if known == Stream::DEFAULT || known == Stream::PER_THREAD {
                stage.streams.push(known);
                continue;
            }
            let made = device.streams().create();
            stage.streams.push(made.stream());
            stage.alive.push(Box::new(made) as Box<dyn Any + Send + Sync>);
        }
        stage.order = Some(Arc::clone(device.streams()));
    }
}

/// Rounds down to what all resources align to.
pub(crate) const fn aligned(bytes: u64) -> u64 {
    bytes / ALIGNMENT * ALIGNMENT
}
