//! The resources that can be played against, and how each is made ready.
//!
//! Every play gets an instance of its own, on simulated memory of its own, so that all start equal.
//! A resource more is a [`Choice`] and an arm of `Lineup::resource`.

use std::sync::Arc;

use floodmark_event::units::{format_bytes, format_count};
use floodmark_resource::{
    Arena, ArenaProps, BinMemory, Binning, FixedSize, FixedSizeProps, Host, Pool, PoolProps, Resource,
    Result as AllocResult,
};

use crate::backing::{Backing, Base, OpenBacking, aligned, available_host_bytes};
use crate::error::{Error, Result};
use crate::script::Summary;
use crate::stage::{Holds, Stage};

/// Powers of two of the smallest and the largest bin.
const BINS: (u32, u32) = (18, 22);
/// A bin takes at most this part of the memory at a time.
const BIN_PART: u64 = 64;

/// The pool that bins share.
type SharedPool = Arc<Pool<Arc<dyn Resource>>>;

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

    /// Whether it needs a driver: there is nothing to simulate it with.
    pub const fn needs_device(self) -> bool {
        matches!(self, Self::Managed | Self::CudaAsync | Self::Pinned)
    }

    /// Whether it divides what another resource gives it.
    pub const fn is_suballocator(self) -> bool {
        matches!(self, Self::Pool | Self::Arena | Self::Binning | Self::Fixed)
    }
}

/// How resources are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineupProps {
    /// What lies below them.
    pub backing: Backing,
    /// What a pool reserves at first; half of the memory if not given.
    pub pool_initial_bytes: Option<u64>,
    /// The most a pool reserves.
    pub pool_maximum_bytes: Option<u64>,
    /// Size of an arena; all of simulated memory if not given, and half of what a device has left, or
    /// more where the log needs it.
    pub arena_bytes: Option<u64>,
    /// Size of a block of fixed size.
    pub fixed_block_bytes: u64,
    /// How many of them are reserved at a time.
    pub fixed_blocks: u64,
}

impl LineupProps {
    /// Returns the default settings on this backing.
    pub const fn on(backing: Backing) -> Self {
        Self {
            backing,
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
        let backing = Backing::Simulated { bytes };
        Self { backing, pool_initial_bytes: all, pool_maximum_bytes: all, arena_bytes: all, ..self }
    }
}

/// Makes resources ready.
#[derive(Debug)]
pub struct Lineup {
    props: LineupProps,
    backing: OpenBacking,
}

impl Lineup {
    /// Prepares to make resources.
    ///
    /// # Errors
    /// [`Error::Device`] if the device cannot be used.
    pub fn open(props: LineupProps) -> Result<Self> {
        Ok(Self { props, backing: OpenBacking::open(props.backing)? })
    }

    /// Gives arenas on a device half as much again as the log needs, where half of the device is less: an
    /// arena never grows.
    pub(crate) fn fit_arena(&mut self, summary: &Summary) {
        if let (OpenBacking::Device { free_bytes, .. }, None) = (&self.backing, self.props.arena_bytes) {
            let wanted = summary.peak_live_bytes.saturating_add(summary.peak_live_bytes / 2);
            let most = free_bytes - free_bytes / 20;
            self.props.arena_bytes = Some(wanted.min(most).max(free_bytes / 2));
        }
    }

    /// What lies below, in words: its name, and all the memory it has.
    pub fn backing(&self) -> (String, u64) {
        match &self.backing {
            OpenBacking::Simulated { bytes } => ("simulated".into(), *bytes),
            OpenBacking::Device { device, .. } => (device.name().to_owned(), device.total_bytes()),
        }
    }

    /// Whether there is room but no memory.
    pub const fn is_simulated(&self) -> bool {
        matches!(self.backing, OpenBacking::Simulated { .. })
    }

    /// What this machine lacks for a resource; none if it can be made.
    pub fn lacks(&self, choice: Choice) -> Option<String> {
        (self.is_simulated() && choice.needs_device())
            .then(|| "it needs a GPU, simulated memory does not do".into())
    }

    /// The resources that this machine has.
    pub fn available(&self) -> Vec<Choice> {
        Choice::ALL.into_iter().filter(|choice| self.lacks(*choice).is_none()).collect()
    }

    /// Why a resource should not be tried unasked; none if there is no reason.
    pub fn unfit(&self, choice: Choice, summary: &Summary) -> Option<String> {
        let (peak, block) = (format_bytes(summary.peak_live_bytes), self.props.fixed_block_bytes);
        let there_is = self.backing.free_bytes();
        match choice {
            Choice::Host | Choice::Pinned => {
                let left = available_host_bytes()?;
                let left_text = format_bytes(left);
                (summary.peak_live_bytes > left / 2).then(|| {
                    format!("the peak of {peak} is too much for the {left_text} that the host has left")
                })
            }
            Choice::Managed if summary.peak_live_bytes > there_is => Some(format!(
                "the peak of {peak} is more than the {} that the device has left",
                format_bytes(there_is)
            )),
            Choice::Fixed if summary.largest_bytes > block => {
                let largest = format_bytes(summary.largest_bytes);
                Some(format!("the largest block has {largest}, its blocks have {}", format_bytes(block)))
            }
            Choice::Fixed if summary.most_live_blocks.saturating_mul(block) > there_is => {
                let (most, each) = (format_count(summary.most_live_blocks), format_bytes(block));
                Some(format!("{most} live blocks of {each} each are more than {}", format_bytes(there_is)))
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
        let base = self.backing.base();
        let staged = self.resource(choice, &base).and_then(|(resource, holds)| {
            let mut stage = Stage::new(resource, holds);
            base.equip(logged_streams, &mut stage)?;
            Ok(stage)
        });
        let mut stage = staged.map_err(|why| Error::Stage { resource: choice.name(), why: Box::new(why) })?;
        stage.most_bytes = self.backing().1;
        if choice == Choice::Host {
            // Its streams are ordered by nothing.
            stage.order = None;
            stage.most_bytes = available_host_bytes().unwrap_or(0);
        }
        Ok(stage)
    }

    fn resource(&self, choice: Choice, base: &Base) -> AllocResult<(Arc<dyn Resource>, Holds)> {
        let memory = || base.memory();
        let resource: Arc<dyn Resource> = match choice {
            Choice::Host => Arc::new(Host::new()),
            Choice::Cuda => return Ok((memory(), base.holds())),
            Choice::Managed => return Ok((base.managed()?, Holds::Reserved)),
            Choice::CudaAsync => return Ok((base.cuda_async()?, Holds::Reserved)),
            Choice::Pinned => return Ok((base.pinned()?, Holds::Reserved)),
            Choice::Pool => Arc::new(Pool::new(memory(), self.pool_props())?),
            Choice::Arena => Arc::new(Arena::new(memory(), self.arena_props())?),
            Choice::Binning => Arc::new(self.binning(Pool::new(memory(), self.pool_props())?)?),
            Choice::Fixed => Arc::new(FixedSize::new(memory(), self.fixed_props())?),
        };
        Ok((resource, Holds::Reserved))
    }

    fn pool_props(&self) -> PoolProps {
        let LineupProps { pool_initial_bytes, pool_maximum_bytes, .. } = self.props;
        let maximum_bytes = pool_maximum_bytes.map(aligned);
        let half = (self.backing.free_bytes() / 2).min(maximum_bytes.unwrap_or(u64::MAX));
        PoolProps { initial_bytes: aligned(pool_initial_bytes.unwrap_or(half)), maximum_bytes }
    }

    fn arena_props(&self) -> ArenaProps {
        let usual = match &self.backing {
            OpenBacking::Simulated { bytes } => *bytes,
            OpenBacking::Device { free_bytes, .. } => free_bytes / 2,
        };
        ArenaProps::new(aligned(self.props.arena_bytes.unwrap_or(usual)))
    }

    const fn fixed_props(&self) -> FixedSizeProps {
        FixedSizeProps { block_bytes: self.props.fixed_block_bytes, blocks: self.props.fixed_blocks }
    }

    /// Bins take 128 blocks at a time, or as many as are a small part of the memory.
    fn binning(&self, pool: Pool<Arc<dyn Resource>>) -> AllocResult<Binning<SharedPool>> {
        let pool = Arc::new(pool);
        let mut binning = Binning::new(Arc::clone(&pool));
        for power in BINS.0..=BINS.1 {
            let block_bytes = 1 << power;
            let most = self.backing.free_bytes() / BIN_PART / block_bytes;
            let blocks = most.clamp(1, FixedSizeProps::default().blocks);
            let bin = FixedSize::new(Arc::clone(&pool), FixedSizeProps { block_bytes, blocks })?;
            binning = binning.with_resource(block_bytes, Box::new(bin), BinMemory::Upstream);
        }
        Ok(binning)
    }
}
