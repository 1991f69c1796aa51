//! The resources that can be played against, and how each is made ready.
//!
//! Every play gets an instance of its own, on simulated memory of its own, so that all start equal.
//! A resource more is a [`Choice`], an arm of `Lineup::resource` and, if not every machine has it, an arm
//! of [`Lineup::lacks`].

use std::any::Any;
use std::sync::Arc;

use floodmark_event::units::format_bytes;
use floodmark_resource::{
    ALIGNMENT, Arena, ArenaProps, Binning, FixedSize, FixedSizeProps, Host, Pool, PoolProps, Resource,
    Simulated, Stream,
};

use crate::error::{Error, Result};
use crate::script::Summary;
use crate::stage::{Holds, Stage};

/// Powers of two of the smallest and the largest bin.
const BINS: (u32, u32) = (18, 22);
/// A bin takes at most this part of the memory at a time.
const BIN_PART: u64 = 64;

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

    /// The same, but with a pool and an arena that have all of a simulated device from the beginning.
    pub(crate) const fn filling(self, bytes: u64) -> Self {
        let all = Some(aligned(bytes));
        let ground = Ground::Simulated { bytes };
        Self { ground, pool_initial_bytes: all, pool_maximum_bytes: all, arena_bytes: all, ..self }
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
            Choice::Managed | Choice::CudaAsync | Choice::Pinned => {
                Some("it needs a GPU, simulated memory does not do".into())
            }
            _ => None,
        }
    }

    /// The resources that this machine has.
    pub fn available(&self) -> Vec<Choice> {
        Choice::ALL.into_iter().filter(|choice| self.lacks(*choice).is_none()).collect()
    }

    /// Why a resource should not be tried unasked; none if there is no reason.
    pub fn unfit(&self, choice: Choice, summary: &Summary) -> Option<String> {
        let LineupProps { fixed_block_bytes, .. } = self.props;
        match choice {
            Choice::Host => {
                let left = available_host_bytes()?;
                (summary.peak_live_bytes > left / 2).then(|| {
                    let peak = format_bytes(summary.peak_live_bytes);
                    format!(
                        "the peak of {peak} is too much for the {} that this machine has left",
                        format_bytes(left)
                    )
                })
            }
            Choice::Fixed if summary.largest_bytes > fixed_block_bytes => {
                let largest = format_bytes(summary.largest_bytes);
                Some(format!(
                    "the largest block has {largest}, its blocks have {}",
                    format_bytes(fixed_block_bytes)
                ))
            }
            Choice::Fixed if summary.most_live_blocks.saturating_mul(fixed_block_bytes) > self.bytes() => {
                let (most, each) = (summary.most_live_blocks, format_bytes(fixed_block_bytes));
                Some(format!(
                    "{most} live blocks of {each} each are more than {}",
                    format_bytes(self.bytes())
                ))
            }
            _ => None,
        }
    }

    /// How a resource is set up, where there is something to set.
    pub fn setup(&self, choice: Choice) -> Option<String> {
        let PoolProps { initial_bytes, maximum_bytes } = self.pool_props();
        let limit = maximum_bytes.map_or("no limit".into(), |most| format!("at most {}", format_bytes(most)));
        let pool = format!("{} at first, {limit}", format_bytes(initial_bytes));
        match choice {
            Choice::Pool => Some(pool),
            Choice::Arena => Some(format_bytes(self.arena_props().bytes)),
            Choice::Binning => {
                let [from, to] = [BINS.0, BINS.1].map(|power| format_bytes(1 << power));
                Some(format!("bins of {from} to {to} over a pool of {pool}"))
            }
            Choice::Fixed => {
                let FixedSizeProps { block_bytes, blocks } = self.fixed_props();
                Some(format!("blocks of {}, {blocks} at a time", format_bytes(block_bytes)))
            }
            _ => None,
        }
    }

    /// Makes a resource ready, with a stream for each of those that were logged.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this machine has no such resource, [`Error::Stage`] if it cannot be made.
    pub fn stage(&self, choice: Choice, logged_streams: &[u64]) -> Result<Stage> {
        if let Some(why) = self.lacks(choice) {
            return Err(Error::Unavailable { resource: choice.name(), why });
        }
        let Ground::Simulated { bytes } = self.props.ground;
        let device = Arc::new(Simulated::new(bytes));
        let (resource, holds) = self
            .resource(choice, &device)
            .map_err(|source| Error::Stage { resource: choice.name(), source: Box::new(source) })?;
        let mut stage = Stage::new(resource, holds);
        give_streams(&device, logged_streams, &mut stage);
        if choice != Choice::Host {
            stage.order = Some(Arc::clone(device.streams()));
        }
        Ok(stage)
    }

    fn resource(
        &self,
        choice: Choice,
        device: &Arc<Simulated>,
    ) -> floodmark_resource::Result<(Arc<dyn Resource>, Holds)> {
        let ground = || Arc::clone(device);
        let resource: Arc<dyn Resource> = match choice {
            Choice::Host => Arc::new(Host::new()),
            Choice::Pool => Arc::new(Pool::new(ground(), self.pool_props())?),
            Choice::Arena => Arc::new(Arena::new(ground(), self.arena_props())?),
            Choice::Binning => Arc::new(self.binning(Pool::new(ground(), self.pool_props())?)?),
            Choice::Fixed => Arc::new(FixedSize::new(ground(), self.fixed_props())?),
            Choice::Cuda | Choice::Managed | Choice::CudaAsync | Choice::Pinned => {
                return Ok((ground(), Holds::Live));
            }
        };
        Ok((resource, Holds::Reserved))
    }

    /// All the memory there is.
    fn bytes(&self) -> u64 {
        let Ground::Simulated { bytes } = self.props.ground;
        bytes
    }

    fn pool_props(&self) -> PoolProps {
        let LineupProps { pool_initial_bytes, pool_maximum_bytes, .. } = self.props;
        let maximum_bytes = pool_maximum_bytes.map(aligned);
        let half = (self.bytes() / 2).min(maximum_bytes.unwrap_or(u64::MAX));
        PoolProps { initial_bytes: aligned(pool_initial_bytes.unwrap_or(half)), maximum_bytes }
    }

    fn arena_props(&self) -> ArenaProps {
        ArenaProps::new(aligned(self.props.arena_bytes.unwrap_or(self.bytes())))
    }

    fn fixed_props(&self) -> FixedSizeProps {
        FixedSizeProps { block_bytes: self.props.fixed_block_bytes, blocks: self.props.fixed_blocks }
    }

    /// Bins take 128 blocks at a time, or as many as are a small part of the memory.
    fn binning(
        &self,
        pool: Pool<Arc<Simulated>>,
    ) -> floodmark_resource::Result<Binning<Arc<Pool<Arc<Simulated>>>>> {
        let pool = Arc::new(pool);
        let mut binning = Binning::new(Arc::clone(&pool));
        for power in BINS.0..=BINS.1 {
            let block_bytes = 1 << power;
            let blocks = (self.bytes() / BIN_PART / block_bytes).clamp(1, FixedSizeProps::default().blocks);
            let bin = FixedSize::new(Arc::clone(&pool), FixedSizeProps { block_bytes, blocks })?;
            binning.add_resource(block_bytes, Box::new(bin));
        }
        Ok(binning)
    }
}

/// Makes a stream for each that was logged. The default ones are what they are.
fn give_streams(device: &Simulated, logged: &[u64], stage: &mut Stage) {
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
}

/// Rounds down to what all resources align to.
const fn aligned(bytes: u64) -> u64 {
    bytes / ALIGNMENT * ALIGNMENT
}

/// What the host could still hand out, as far as the system says.
fn available_host_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
