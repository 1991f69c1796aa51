//! What every resource must do, on every resource that needs no GPU; CUDA's stand on a driver of ours.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use floodmark_resource::{
    ALIGNMENT, Address, Aligned, AllocError, Arena, ArenaProps, Binning, Callback, CsvLogging, CudaAsync,
    CudaDevice, CudaManaged, CudaMemory, CudaPinned, DeviceBuffer, FailureCallback, FixedSize,
    FixedSizeProps, Flush, Host, Limiting, Logging, Memory, Pool, PoolProps, Prefetch, Resource, Retry,
    Simulated, Statistics, Stream, ThreadSafe, Tracking, current, find,
};
use floodmark_testkit::Random;

use crate::blocks::{Block, MIB, give, take, take_on};
use crate::stub::{Count, Stub};

/// A resource, and two streams of its device.
struct Subject {
    resource: Arc<dyn Resource>,
    lasting: Stream,
    foreign: Stream,
    /// The streams end with it.
    _streams: Box<dyn Any>,
}

impl Subject {
    /// Memory of the host has no streams: any number will do.
    fn on_host(resource: impl Resource) -> Self {
        let (lasting, foreign) = (Stream::lasting(0x5000), Stream::foreign(0x6000));
        Self { resource: Arc::new(resource), lasting, foreign, _streams: Box::new(()) }
    }

    fn on_simulated<R: Resource>(make: impl FnOnce(Arc<Simulated>) -> R) -> Self {
        let device = Arc::new(Simulated::new(1 << 30));
        let streams = [device.streams().create(), device.streams().create()];
        let (lasting, foreign) = (streams[0].stream(), streams[1].foreign());
        Self { resource: Arc::new(make(device)), lasting, foreign, _streams: Box::new(streams) }
    }

    fn on_cuda<R: Resource>(device: &CudaDevice, make: impl FnOnce(&CudaDevice) -> R) -> Self {
        let streams = [0, 1].map(|_| device.stream().expect("a stream"));
        let (lasting, foreign) = (streams[0].stream(), streams[1].foreign());
        Self { resource: Arc::new(make(device)), lasting, foreign, _streams: Box::new(streams) }
    }

    fn streams(&self) -> [Stream; 4] {
        [Stream::DEFAULT, Stream::PER_THREAD, self.lasting, self.foreign]
    }

    fn name(&self) -> String {
        let mut names = self.resource.name().to_owned();
        let mut layer = self.resource.upstream();
        while let Some(below) = layer {
            names = format!("{names} over {}", below.name());
            layer = below.upstream();
        }
        names
    }
}

fn pool<R: Resource>(upstream: R) -> Pool<R> {
    Pool::new(upstream, PoolProps::default()).expect("nothing is asked for yet")
}

/// Functions that hand out memory of the host.
fn functions() -> impl Resource {
    let host = Arc::new(Host::new());
    let below = Arc::clone(&host);
    Callback::new(
        Memory::HOST,
        move |bytes, stream| host.allocate(bytes, 256, stream),
        move |address, bytes, stream| give(&below, Block { address, bytes, stream }),
    )
}

/// Adaptors that nothing else here has.
fn adapted(upstream: impl Resource) -> impl Resource {
    let give_up = |_: u64, _: &AllocError| Retry::GiveUp;
    let csv = CsvLogging::to_writers(upstream, vec![Box::new(io::sink())], Flush::Buffered);
    Logging::new(Prefetch::new(FailureCallback::new(csv, give_up), None))
}

/// All of them, each by itself.
fn all() -> Vec<Subject> {
    let blocks = FixedSizeProps { block_bytes: 4 * MIB, blocks: 16 };
    let cuda = Stub::build(&[]).device();
    vec![
        Subject::on_host(Host::new()),
        Subject::on_host(functions()),
        Subject::on_host(pool(functions())),
        Subject::on_simulated(|device| device),
        Subject::on_simulated(pool),
        Subject::on_simulated(|device| pool(pool(device))),
        Subject::on_simulated(|device| Arena::new(device, ArenaProps::new(512 * MIB)).expect("half")),
        Subject::on_simulated(|device| FixedSize::new(device, blocks).expect("64 MiB")),
        Subject::on_simulated(|device| Binning::with_powers(pool(device), 10, 12).expect("1 MiB")),
        Subject::on_simulated(|device| Statistics::new(Tracking::new(Limiting::new(pool(device), 1 << 30)))),
        Subject::on_simulated(|device| {
            Aligned::new(ThreadSafe::new(pool(device)), 4096, 65536).expect("a power of two")
        }),
        Subject::on_simulated(|device| adapted(pool(device))),
        Subject::on_cuda(&cuda, CudaMemory::new),
        Subject::on_cuda(&cuda, CudaManaged::new),
        Subject::on_cuda(&cuda, CudaPinned::new),
        Subject::on_cuda(&cuda, |device| CudaAsync::new(device).expect("a pool")),
        Subject::on_cuda(&cuda, |device| pool(CudaMemory::new(device))),
        Subject::on_cuda(&cuda, |device| pool(CudaAsync::new(device).expect("a pool"))),
    ]
}

/// Sees to it that blocks of a resource lie apart and keep what is written into them.
struct Watched<'a> {
    resource: &'a dyn Resource,
    name: String,
    has_bytes: bool,
    /// Live blocks: start and end.
    live: Mutex<BTreeMap<u64, u64>>,
}

impl<'a> Watched<'a> {
    fn new(subject: &'a Subject) -> Self {
        let has_bytes = find::<Simulated>(&subject.resource).is_none();
        Self { resource: &subject.resource, name: subject.name(), has_bytes, live: Mutex::default() }
    }

    fn take(&self, bytes: u64, stream: Stream) -> Block {
        let block = take_on(self.resource, bytes, stream);
        let (start, end) = (block.address.0, block.address.0 + bytes);
        assert!(start > 0 && start % ALIGNMENT == 0, "{}: {start:#x}", self.name);
        let mut live = self.live.lock().expect("no panic");
        let apart = live.range(..end).next_back().is_none_or(|(_, before)| *before <= start);
        assert!(apart, "{}: {start:#x} was handed out twice", self.name);
        live.insert(start, end);
        if self.has_bytes {
            for byte in Self::ends(block) {
                // SAFETY: within the block, which is ours and of real memory.
                unsafe { byte.write(Self::mark(block)) };
            }
        }
        block
    }

    fn give(&self, block: Block) {
        if self.has_bytes {
            for byte in Self::ends(block) {
                // SAFETY: as above, and written there.
                assert_eq!(unsafe { byte.read() }, Self::mark(block), "{}", self.name);
            }
        }
        let end = self.live.lock().expect("no panic").remove(&block.address.0);
        assert_eq!(end, Some(block.address.0 + block.bytes), "{}", self.name);
        give(self.resource, block);
    }

    fn give_all(&self, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            self.give(block);
        }
    }

    /// Its first byte and its last.
    fn ends(block: Block) -> [*mut u8; 2] {
        [block.address.0, block.address.0 + block.bytes - 1]
            .map(|address| std::ptr::with_exposed_provenance_mut(address as usize))
    }

    fn mark(block: Block) -> u8 {
        (block.address.0 >> 8 ^ block.bytes) as u8
    }

    /// What the resource says of its live blocks is what is known here.
    fn compare(&self) {
        let live = self.live.lock().expect("no panic");
        let bytes: u64 = live.iter().map(|(start, end)| end - start).sum();
        let room = self.resource.room();
        assert_eq!(room.live_blocks, live.len() as u64, "{}", self.name);
        assert!(room.live_bytes >= bytes && (bytes > 0 || room.live_bytes == 0), "{}", self.name);
    }
}

/// Whole words: a request of 666 bytes is one that the stand-in for CUDA's driver fails at.
fn size(random: &mut Random, largest: u64) -> u64 {
    8 * (1 + random.below(largest / 8))
}

#[test]
fn words_and_mebibytes_come_and_go_on_every_stream() {
    for subject in all() {
        let watched = Watched::new(&subject);
        for stream in subject.streams() {
            let blocks = [1, 8, 1024, MIB, 4 * MIB].map(|bytes| watched.take(bytes, stream));
            watched.compare();
            watched.give_all(blocks);
            let nothing = subject.resource.allocate(0, 256, stream);
            assert_eq!(nothing, Ok(Address::NULL), "{}", watched.name);
            give(&subject.resource, Block { address: Address::NULL, bytes: 0, stream });
        }
        watched.compare();
    }
}

#[test]
fn random_blocks_in_random_order_all_come_back() {
    for subject in all() {
        let watched = Watched::new(&subject);
        let mut random = Random::new(3);
        let mut live = Vec::new();
        for step in 0..2000 {
            // First only allocations, then both.
            if live.len() < 40 && (step < 40 || random.happens(0.55)) {
                let largest = [MIB, 4096][random.below(2) as usize];
                live.push(watched.take(size(&mut random, largest), Stream::DEFAULT));
            } else if let Some(last) = live.len().checked_sub(1) {
                watched.give(live.swap_remove(random.below(last as u64 + 1) as usize));
            }
            if step % 100 == 0 {
                watched.compare();
            }
        }
        watched.give_all(live);
        watched.compare();
    }
}

#[test]
fn threads_share_every_resource() {
    for subject in all() {
        let watched = Watched::new(&subject);
        std::thread::scope(|scope| {
            for (number, stream) in (0..).zip(subject.streams()) {
                let watched = &watched;
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..200 {
                        let sizes = [MIB, 4096].map(|largest| size(&mut random, largest));
                        let blocks = sizes.map(|bytes| watched.take(bytes, stream));
                        watched.give_all(blocks);
                    }
                });
            }
        });
        watched.compare();
    }
}

#[test]
fn a_block_may_be_given_back_by_another_thread_on_the_same_stream_or_another() {
    for subject in all() {
        let watched = Watched::new(&subject);
        let pairs = [
            (Stream::DEFAULT, Stream::DEFAULT),
            (Stream::PER_THREAD, Stream::PER_THREAD),
            (subject.lasting, subject.lasting),
            (subject.lasting, subject.foreign),
        ];
        for (here, there) in pairs {
            let (send, receive) = channel();
            std::thread::scope(|scope| {
                let watched = &watched;
                // Nothing runs on these streams, so none has to wait for the other.
                let give = move |block: Block| watched.give(Block { stream: there, ..block });
                scope.spawn(move || receive.iter().for_each(give));
                for number in 0..50 {
                    send.send(watched.take(1 + number * 5000, here)).expect("it listens");
                }
                drop(send);
            });
            watched.compare();
        }
    }
}

#[test]
fn a_clone_is_the_same_resource_and_another_of_its_kind_is_not() {
    for (one, other) in all().into_iter().zip(all()) {
        let clone = Arc::clone(&one.resource);
        assert!(Arc::ptr_eq(&one.resource, &clone) && !Arc::ptr_eq(&one.resource, &other.resource));
        let block = take(&one.resource, 1000);
        let live = [&one.resource, &clone, &other.resource].map(|resource| resource.room().live_blocks);
        assert_eq!(live, [1, 1, 0], "{}", one.name());
        give(&clone, block);
        assert_eq!(one.resource.room().live_blocks, 0, "{}", one.name());
    }
}

#[test]
fn every_resource_can_be_current_and_is_again_after_what_was_put_on_it() {
    // A device that no other test uses.
    let device = 77;
    for subject in all() {
        let first = &subject.resource;
        current::set_current(device, Arc::clone(first));
        assert!(Arc::ptr_eq(&current::current(device).expect("it was set"), first));
        let counting = Arc::new(Statistics::new(Arc::clone(first)));
        let before = current::set_current(device, Arc::clone(&counting) as Arc<dyn Resource>);
        let block = take(&current::current(device).expect("it was set"), 1000);
        assert_eq!(counting.counters().bytes.value, 1000, "{}", subject.name());
        give(&counting, block);
        current::set_current(device, before.expect("the first one"));
        assert!(Arc::ptr_eq(&current::current(device).expect("it was set"), first));
        current::reset(device);
    }
}

#[test]
fn pools_of_two_devices_keep_to_their_own_whichever_is_current() {
    let stub = Stub::build(&["STUB_DEVICES=2"]);
    let cuda = stub.open().expect("a driver");
    let devices = [0, 1].map(|number| cuda.device(number).expect("a device"));
    let props = PoolProps { initial_bytes: MIB, maximum_bytes: None };
    let pools =
        devices.each_ref().map(|device| Pool::new(CudaMemory::new(device), props).expect("there is room"));
    let held = || {
        let second = stub.count(Count::SecondBytes);
        [stub.count(Count::LiveBytes) - second, second].map(|bytes| bytes as u64)
    };
    assert_eq!(pools.each_ref().map(|pool| pool.memory().device), [0, 1]);
    for device in &devices {
        device.make_current().expect("a device");
        let context = cuda.current_context();
        // More than they have: they grow, each on its own device.
        let blocks = pools.each_ref().map(|pool| take(pool, 2 * MIB));
        assert_eq!(held(), pools.each_ref().map(Pool::pool_bytes));
        for (pool, block) in pools.iter().zip(blocks) {
            give(pool, block);
            assert_eq!(pool.release(), 3 * MIB);
        }
        assert_eq!(held(), [0, 0]);
        assert_eq!(cuda.current_context(), context);
        for pool in &pools {
            give(pool, take(pool, MIB));
        }
        assert_eq!(held(), [MIB, MIB]);
    }
    drop(pools);
    assert_eq!(held(), [0, 0]);
}

#[test]
fn a_buffer_keeps_its_resource_alive() {
    let device = Arc::new(Simulated::new(64 * MIB));
    let shared: Arc<dyn Resource> = Arc::new(pool(Arc::clone(&device)));
    let buffer = DeviceBuffer::new(MIB, Stream::DEFAULT, Arc::clone(&shared)).expect("there is room");
    let clone = Arc::clone(&shared);
    drop(shared);
    drop(clone);
    assert_eq!(device.room().live_bytes, MIB);
    drop(buffer);
    assert_eq!(device.room().live_bytes, 0);
}

#[test]
fn a_buffer_grows_up_to_the_maximum_of_its_pool() {
    let props = PoolProps { initial_bytes: 0, maximum_bytes: Some(8 * MIB) };
    let pool: Arc<dyn Resource> = Arc::new(Pool::new(Simulated::new(1 << 30), props).expect("a pool"));
    let empty = || DeviceBuffer::new(0, Stream::DEFAULT, Arc::clone(&pool)).expect("nothing to do");
    let (mut fits, mut too_large) = (empty(), empty());
    assert!(too_large.resize(16 * MIB).expect_err("too large").is_out_of_memory());
    assert_eq!((too_large.size(), pool.room().reserved_bytes), (0, 0));
    fits.resize(8 * MIB - 1).expect("just fits");
    assert_eq!(pool.room().reserved_bytes, 8 * MIB);
}
