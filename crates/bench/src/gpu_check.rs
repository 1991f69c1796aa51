//! Whether a resource ever hands a block on while somebody may still use it, on a real device.
//!
//! Threads allocate, fill, verify and free blocks over many streams. Every block is filled with a
//! number of its own. Before a block is given back, work that takes a while and then fills the block
//! with yet another number, a last will, may be enqueued on its stream: if the resource hands the block
//! to another stream that does not wait, the last will arrives after the new owner's number and is
//! found there. Streams end with work in flight, and are used as lasting ones and as foreign ones.
//!
//! A check that cannot fail shows nothing: `--self-test` runs it on a resource that does not wait, and
//! expects it to be caught.
#![expect(unsafe_code, reason = "fills, copies and frees memory of the device")]

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use floodmark_resource::{
    ALIGNMENT, Address, AllocError, Arena, ArenaProps, Binning, Copier as _, Cuda, CudaAsync, CudaDevice,
    CudaKernel, CudaManaged, CudaMemory, CudaPinned, CudaStream, Memory, Pool, PoolProps, Resource, Room,
    Stream, StreamOrder,
};
use floodmark_testkit::Random;

/// What is checked: a resource is added by a line.
fn resources(device: &CudaDevice) -> Result<Vec<Arc<dyn Resource>>> {
    Ok(vec![
        Arc::new(CudaMemory::new(device)),
        Arc::new(CudaAsync::new(device)?),
        Arc::new(CudaManaged::new(device)),
        Arc::new(CudaPinned::new(device)),
        Arc::new(Pool::new(
            CudaMemory::new(device),
            PoolProps { initial_bytes: 256 << 20, maximum_bytes: None },
        )?),
        Arc::new(Pool::new(
            CudaMemory::new(device),
            PoolProps { initial_bytes: 768 << 20, maximum_bytes: Some(768 << 20) },
        )?),
        Arc::new(Pool::new(CudaAsync::new(device)?, PoolProps::default())?),
        Arc::new(Arena::new(CudaMemory::new(device), ArenaProps::new(1 << 30))?),
        Arc::new(Binning::with_powers(Pool::new(CudaMemory::new(device), PoolProps::default())?, 18, 22)?),
    ])
}

/// How to check.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Props {
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Seconds for each resource
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Threads that use a resource at the same time
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Seed of what the threads do
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Check a resource that is wrong on purpose, and expect it to be caught
    #[arg(long)]
    self_test: bool,
}

/// Bytes and blocks that one thread holds at most.
const MOST_LIVE_BYTES: u64 = 512 << 20;
const MOST_LIVE_BLOCKS: usize = 192;
/// Sizes go from 256 bytes to twice 4 MiB.
const EXPONENTS: std::ops::RangeInclusive<u64> = 8..=22;
/// How much work may wait on a stream, so that verifying does not wait for ever.
const MOST_SPINS: u32 = 4;
/// Marks numbers that a block is filled with while it is being given back.
const LAST_WILL: u32 = 1 << 31;

/// Waits so many nanoseconds on the device. Runs on Turing and all that came after it.
pub(crate) const SPIN: &str = "\
.version 6.3
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .u64 %rd<4>;
    .reg .pred %p;
    ld.param.u64 %rd0, [nanoseconds];
    mov.u64 %rd1, %globaltimer;
AGAIN:
    mov.u64 %rd2, %globaltimer;
    sub.u64 %rd3, %rd2, %rd1;
    setp.lt.u64 %p, %rd3, %rd0;
    @%p bra AGAIN;
    ret;
}
";

/// Checks everything; fails when a block was corrupt, or when the self-test found none.
pub(crate) fn run(props: Props) -> Result<ExitCode> {
    ensure!(props.threads > 0 && props.threads <= 8, "between 1 and 8 threads, not {}", props.threads);
    let cuda = Cuda::open()?;
    let device = cuda.device(props.device)?;
    println!("{} {}, driver for CUDA {}", device.name(), device.uuid(), cuda.version());
    let spin = CudaKernel::load(&device, SPIN, "spin")?;
    let careless = || -> Result<_> { Ok(vec![Arc::new(Careless::new(&device)) as Arc<dyn Resource>]) };
    let checked = if props.self_test { careless()? } else { resources(&device)? };
    println!(
        "{:<12} {:>11} {:>11} {:>9} {:>9} {:>9}",
        "resource", "operations", "verified", "corrupt", "refused", "seconds"
    );
    let mut corrupt = 0;
    for resource in checked {
        let name = resource.name();
        let found = check(&device, &resource, &spin, props).with_context(|| format!("checking {name}"))?;
        let Found { operations, verified, refused, .. } = found;
        let seconds = found.took.as_secs_f64();
        println!(
            "{name:<12} {operations:>11} {verified:>11} {:>9} {refused:>9} {seconds:>9.1}",
            found.corrupt
        );
        if let Some(first) = &found.first {
            println!("    first: {first}");
        }
        let room = resource.room();
        ensure!(room.live_blocks == 0, "{name} says that {} blocks are live; none is", room.live_blocks);
        corrupt += found.corrupt;
    }
    if props.self_test {
        println!("self-test: {}", if corrupt > 0 { "caught, as it should be" } else { "NOT CAUGHT" });
    }
    Ok(ExitCode::from(u8::from((corrupt > 0) != props.self_test)))
}

/// What a check found.
#[derive(Debug, Default)]
struct Found {
    operations: u64,
    verified: u64,
    corrupt: u64,
    refused: u64,
    first: Option<String>,
    took: Duration,
}

fn check(
    device: &CudaDevice,
    resource: &Arc<dyn Resource>,
    spin: &CudaKernel,
    props: Props,
) -> Result<Found> {
    let begin = Instant::now();
    let parts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..props.threads)
            .map(|number| scope.spawn(move || Worker::new(device, resource, spin, props, number)?.work()))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a check does not panic")).collect::<Vec<_>>()
    });
    let mut all = Found { took: begin.elapsed(), ..Found::default() };
    for part in parts {
        let part = part?;
        all.operations += part.operations;
        all.verified += part.verified;
        all.corrupt += part.corrupt;
        all.refused += part.refused;
        all.first = all.first.or(part.first);
    }
    Ok(all)
}

/// A stream and how it is named to the resource.
struct Lane {
    stream: Stream,
    /// None for the default streams.
    owned: Option<CudaStream>,
    /// Work that takes a while, since it was last waited for.
    spins: u32,
}

#[derive(Clone, Copy)]
struct Block {
    address: Address,
    bytes: u64,
    lane: usize,
    number: u32,
}

impl Block {
    const fn words(&self) -> u64 {
        self.bytes / 4
    }
}

struct Worker<'a> {
    device: &'a CudaDevice,
    resource: &'a Arc<dyn Resource>,
    spin: &'a CudaKernel,
    random: Random,
    until: Instant,
    lanes: Vec<Lane>,
    live: Vec<Block>,
    live_bytes: u64,
    next: u32,
    staging: Vec<u32>,
    found: Found,
}

impl<'a> Worker<'a> {
    fn new(
        device: &'a CudaDevice,
        resource: &'a Arc<dyn Resource>,
        spin: &'a CudaKernel,
        props: Props,
        number: u32,
    ) -> Result<Self> {
        device.make_current()?;
        let mut lanes = Vec::new();
        for index in 0..6 {
            lanes.push(lane(device, index)?);
        }
        for stream in [Stream::DEFAULT, Stream::PER_THREAD] {
            lanes.push(Lane { stream, owned: None, spins: 0 });
        }
        Ok(Self {
            device,
            resource,
            spin,
            random: Random::new(props.seed ^ u64::from(number) << 32),
            until: Instant::now() + Duration::from_secs_f64(props.seconds),
            lanes,
            live: Vec::new(),
            live_bytes: 0,
            next: number << 27,
            staging: vec![0; (2 << EXPONENTS.end()) / 4],
            found: Found::default(),
        })
    }

    fn work(mut self) -> Result<Found> {
        while Instant::now() < self.until {
            self.found.operations += 1;
            let full = self.live.len() >= MOST_LIVE_BLOCKS || self.live_bytes >= MOST_LIVE_BYTES;
            match self.random.below(100) {
                0 => self.end_a_stream()?,
                1..=20 => self.verify_one()?,
                21..=60 if !full => self.allocate()?,
                _ => self.free_one()?,
            }
        }
        while !self.live.is_empty() {
            self.free_one()?;
        }
        for lane in &self.lanes {
            self.device.order().synchronize(lane.stream)?;
        }
        Ok(self.found)
    }

    fn allocate(&mut self) -> Result<()> {
        let least = 1 << (EXPONENTS.start() + self.random.below(EXPONENTS.end() - EXPONENTS.start() + 1));
        let bytes = if self.random.happens(0.5) { least } else { least + self.random.below(least / 4) * 4 };
        let lane = self.random.below(self.lanes.len() as u64) as usize;
        let stream = self.lanes[lane].stream;
        let address = match self.resource.allocate(bytes, ALIGNMENT, stream) {
            Ok(address) => address,
            Err(AllocError::OutOfMemory(_)) => {
                self.found.refused += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        ensure!(address.0.is_multiple_of(ALIGNMENT), "a block at {address} is not aligned");
        let block = Block { address, bytes, lane, number: self.number() };
        // SAFETY: the block is ours, and given back on the same stream.
        unsafe { self.device.fill_words(address, block.number, block.words(), stream) }?;
        self.live.push(block);
        self.live_bytes += bytes;
        Ok(())
    }

    /// A number that no other block is filled with.
    fn number(&mut self) -> u32 {
        self.next = self.next & !0x7ff_ffff | (self.next + 1) & 0x7ff_ffff;
        self.next
    }

    fn verify_one(&mut self) -> Result<()> {
        let Some(index) = self.any() else { return Ok(()) };
        self.verify(self.live[index])
    }

    fn any(&mut self) -> Option<usize> {
        (!self.live.is_empty()).then(|| self.random.below(self.live.len() as u64) as usize)
    }

    fn verify(&mut self, block: Block) -> Result<()> {
        let staging = &mut self.staging[..block.words() as usize];
        let to = Address(staging.as_mut_ptr().expose_provenance() as u64);
        let lane = &mut self.lanes[block.lane];
        // SAFETY: both are so large, and the stream is waited for before either is used.
        unsafe { self.device.order().copy(to, block.address, block.words() * 4, lane.stream) }?;
        self.device.order().synchronize(lane.stream)?;
        lane.spins = 0;
        self.found.verified += 1;
        let Some(at) = staging.iter().position(|word| *word != block.number) else { return Ok(()) };
        self.found.corrupt += 1;
        let found = staging[at];
        let whose = if found & LAST_WILL == 0 {
            "is another block's, or nobody's"
        } else {
            "was enqueued before the block was given back on another stream"
        };
        self.found.first.get_or_insert_with(|| {
            let Block { address, bytes, number, .. } = block;
            format!("{bytes} bytes at {address}: word {at} is {found:#x}, not {number:#x}: it {whose}")
        });
        Ok(())
    }

    fn free_one(&mut self) -> Result<()> {
        let Some(index) = self.any() else { return Ok(()) };
        if self.random.happens(0.5) {
            self.verify(self.live[index])?;
        }
        let block = self.live.swap_remove(index);
        self.live_bytes -= block.bytes;
        if self.random.happens(0.5) {
            self.last_will(block)?;
        }
        let stream = self.lanes[block.lane].stream;
        // SAFETY: as it was allocated, and all that uses it is enqueued on its stream.
        unsafe { self.resource.deallocate(block.address, block.bytes, ALIGNMENT, stream) };
        Ok(())
    }

    /// Has the block still in use when it is given back.
    fn last_will(&mut self, block: Block) -> Result<()> {
        let nanoseconds = 100_000 + self.random.below(900_000);
        let lane = &mut self.lanes[block.lane];
        if lane.spins >= MOST_SPINS {
            self.device.order().synchronize(lane.stream)?;
            lane.spins = 0;
        }
        lane.spins += 1;
        let stream = lane.stream;
        // SAFETY: the kernel takes a number of nanoseconds and touches no memory; the block is ours, and
        // given back on the same stream.
        unsafe {
            self.spin.launch(1, 1, stream, &[nanoseconds])?;
            self.device.fill_words(block.address, block.number | LAST_WILL, block.words(), stream)?;
        }
        Ok(())
    }

    /// Ends a stream while its work may still run; its blocks go back first.
    fn end_a_stream(&mut self) -> Result<()> {
        let index = self.random.below(self.lanes.len() as u64) as usize;
        if self.lanes[index].owned.is_none() {
            return Ok(());
        }
        let blocks: Vec<Block> = self.live.extract_if(.., |block| block.lane == index).collect();
        for block in blocks {
            self.live_bytes -= block.bytes;
            self.last_will(block)?;
            // SAFETY: as it was allocated, and all that uses it is enqueued on its stream.
            unsafe {
                let stream = self.lanes[index].stream;
                self.resource.deallocate(block.address, block.bytes, ALIGNMENT, stream);
            }
        }
        // Ended first, so that the new one may get its handle.
        self.lanes[index].owned = None;
        self.lanes[index] = lane(self.device, index)?;
        Ok(())
    }
}

/// The first four lanes are lasting, the others foreign.
fn lane(device: &CudaDevice, index: usize) -> Result<Lane> {
    let owned = device.stream()?;
    let stream = if index < 4 { owned.stream() } else { owned.foreign() };
    Ok(Lane { stream, owned: Some(owned), spins: 0 })
}

/// Wrong on purpose: hands on the block that was given back last, whatever still uses it.
struct Careless {
    upstream: CudaMemory,
    cached: Mutex<HashMap<u64, Vec<Address>>>,
}

impl Careless {
    fn new(device: &CudaDevice) -> Self {
        Self { upstream: CudaMemory::new(device), cached: Mutex::default() }
    }
}

impl Resource for Careless {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> floodmark_resource::Result<Address> {
        let size = bytes.next_power_of_two();
        let cached =
            self.cached.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&size).and_then(Vec::pop);
        cached.map_or_else(|| self.upstream.allocate(size, alignment, stream), Ok)
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, _: u64, _: Stream) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.entry(bytes.next_power_of_two()).or_default().push(address);
    }

    fn name(&self) -> &'static str {
        "careless"
    }

    fn memory(&self) -> Memory {
        self.upstream.memory()
    }

    fn room(&self) -> Room {
        Room::default()
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        self.upstream.order()
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        let cached = self.cached.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (size, blocks) in cached.drain() {
            for block in blocks {
                // SAFETY: allocated there with this size, and handed out to nobody.
                unsafe { self.upstream.deallocate(block, size, ALIGNMENT, Stream::DEFAULT) };
            }
        }
    }
}
