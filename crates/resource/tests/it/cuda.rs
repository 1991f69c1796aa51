//! The CUDA backend on a stand-in for the driver. On a real device `floodmark-bench gpu-check` checks it.
#![expect(unsafe_code, reason = "gives memory back, fills it, starts kernels")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use floodmark_event::Kind;
use floodmark_resource::{
    ALIGNMENT, Address, AllocError, Blocking, Cause, Cuda, CudaAsync, CudaAsyncProps, CudaKernel,
    CudaManaged, CudaMemory, CudaOrder, CudaPinned, CudaStream, DeviceBuffer, Host, Pool, PoolProps,
    Resource, Simulated, Stream, StreamListener, StreamOrder, thread,
};

use crate::stub::{Count, Stub};

const TOTAL: u64 = 64 << 20;

fn every_resource(stub: &Stub) -> Vec<Arc<dyn Resource>> {
    let device = stub.device();
    vec![
        Arc::new(CudaMemory::new(&device)),
        Arc::new(CudaManaged::new(&device)),
        Arc::new(CudaPinned::new(&device)),
        Arc::new(CudaAsync::new(&device).expect("a pool")),
    ]
}

#[test]
fn without_a_driver_the_error_says_what_to_do() {
    let error = Cuda::open_at(Path::new("/nowhere/libcuda.so.1")).unwrap_err().to_string();
    assert!(error.starts_with("loading the CUDA driver: /nowhere/libcuda.so.1: cannot open"), "{error}");
    assert!(error.ends_with(
        "; install the NVIDIA driver, which brings this library, or use Simulated on a machine without a GPU"
    ));
    match Cuda::open() {
        Ok(cuda) => assert_eq!(cuda.version(), Cuda::open().unwrap().version()),
        Err(error) => assert!(error.to_string().contains("CUDA driver: "), "{error}"),
    }
}

#[test]
fn a_driver_that_lacks_a_function_is_refused_with_its_name() {
    let stub = Stub::build(&["STUB_WITHOUT_ALLOC"]);
    let error = stub.open().unwrap_err().to_string();
    assert!(error.contains("has no function cuMemAlloc_v2: it is too old"), "{error}");
    assert!(error.contains("install a newer NVIDIA driver"), "{error}");
}

#[test]
fn a_machine_without_devices_is_told_in_the_drivers_words() {
    let error = Stub::build(&["STUB_NO_DEVICE"]).open().unwrap_err().to_string();
    let words = "initializing the CUDA driver: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected";
    assert_eq!(error, words);
}

#[test]
fn a_device_says_who_it_is_and_is_opened_once() {
    let stub = Stub::build(&["STUB_DEVICES=2"]);
    let cuda = stub.open().unwrap();
    assert_eq!((cuda.version(), cuda.device_count().unwrap()), (13000, 2));
    let device = cuda.device(1).unwrap();
    assert_eq!((device.ordinal(), device.name()), (1, "Stand-in"));
    assert_eq!(device.uuid(), "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    assert_eq!(device.memory_info().unwrap().free_bytes, TOTAL);
    assert!(Arc::ptr_eq(device.order(), cuda.device(1).unwrap().order()));
    assert_eq!(stub.count(Count::Retained), 1);
    drop(device);
    assert_eq!(stub.count(Count::Retained), 0);
    let error = cuda.device(2).unwrap_err().to_string();
    assert_eq!(error, "opening a CUDA device: there is no device 2, only devices 0 to 1");
}

#[test]
fn every_resource_hands_out_aligned_memory_and_counts_it() {
    let stub = Stub::build(&[]);
    let stream = Stream::DEFAULT;
    for resource in every_resource(&stub) {
        let name = resource.name();
        let block = resource.allocate(1000, 64, stream).unwrap();
        assert_eq!(block.0 % ALIGNMENT, 0, "{name}");
        let room = resource.room();
        assert_eq!((room.live_bytes, room.live_blocks, room.reserved_bytes), (1000, 1, 1000), "{name}");
        assert_eq!(stub.count(Count::LiveBytes), 1000, "{name}");
        assert_eq!(resource.allocate(0, 256, stream), Ok(Address::NULL), "{name}");
        assert!(resource.allocate(8, 512, stream).is_err(), "{name}");
        assert_eq!(resource.memory().device, 0, "{name}");
        // SAFETY: as they were allocated.
        unsafe {
            resource.deallocate(block, 1000, 64, stream);
            resource.deallocate(Address::NULL, 0, 256, stream);
        }
        assert_eq!((resource.room().live_bytes, resource.room().live_blocks), (0, 0), "{name}");
        assert_eq!(stub.count(Count::LiveBytes), 0, "{name}");
    }
    assert_eq!(stub.count(Count::Pools), 0);
    assert_eq!(stub.count(Count::Retained), 0);
}

#[test]
fn resources_say_what_they_hand_out() {
    let stub = Stub::build(&[]);
    let all = every_resource(&stub);
    let said: Vec<_> = all.iter().map(|it| (it.name(), it.memory().kind, it.room().limit_bytes)).collect();
    assert_eq!(
        said,
        [
            ("cuda", Kind::Device, Some(TOTAL)),
            ("managed", Kind::Managed, None),
            ("pinned", Kind::Pinned, None),
            ("cuda_async", Kind::Device, Some(TOTAL)),
        ]
    );
}

#[test]
fn running_out_says_what_the_device_has_left() {
    let stub = Stub::build(&[]);
    for resource in every_resource(&stub) {
        let block = resource.allocate(TOTAL / 2, 256, Stream::DEFAULT).unwrap();
        let error = resource.allocate(TOTAL, 256, Stream::DEFAULT).unwrap_err();
        let details = error.out_of_memory().expect("out of memory");
        assert_eq!((details.resource, details.cause), (resource.name(), Cause::Exhausted));
        assert_eq!(details.limit_bytes, resource.room().limit_bytes);
        assert_eq!((details.live_bytes, details.request_bytes), (TOTAL / 2, TOTAL));
        let words = "CUDA_ERROR_OUT_OF_MEMORY: out of memory; device 0 has 32.0 MiB of 64.0 MiB free";
        assert!(error.to_string().contains(words), "{error}");
        // SAFETY: as it was allocated.
        unsafe { resource.deallocate(block, TOTAL / 2, 256, Stream::DEFAULT) };
    }
}

#[test]
fn other_failures_keep_the_drivers_words() {
    let stub = Stub::build(&[]);
    for resource in every_resource(&stub) {
        let error = resource.allocate(666, 256, Stream::DEFAULT).unwrap_err();
        let AllocError::Device { act, message } = error else { panic!("{error}") };
        assert!(act.starts_with("allocating "), "{act}");
        assert_eq!(message, "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered");
        assert_eq!(resource.room().live_blocks, 0);
    }
}

#[test]
fn pinned_memory_is_aligned_even_where_the_driver_does_not() {
    let stub = Stub::build(&["STUB_SKEWED"]);
    let pinned = CudaPinned::new(&stub.device());
    let blocks: Vec<_> =
        (1..4).map(|size| pinned.allocate(size * 100, 256, Stream::DEFAULT).unwrap()).collect();
    for (size, block) in (1..4).zip(blocks) {
        assert_eq!(block.0 % ALIGNMENT, 0);
        // SAFETY: ours, with so many bytes, and given back once, as it was allocated.
        unsafe {
            std::ptr::with_exposed_provenance_mut::<u8>(block.0 as usize).write_bytes(1, size as usize * 100);
            pinned.deallocate(block, size * 100, 256, Stream::DEFAULT);
        }
    }
    assert_eq!(stub.count(Count::LiveBytes), 0);
}

#[test]
fn a_pool_of_the_driver_is_primed_asked_and_trimmed() {
    let stub = Stub::build(&[]);
    let props = CudaAsyncProps { initial_bytes: 1 << 20, ..CudaAsyncProps::default() };
    assert_eq!(props.release_threshold_bytes, u64::MAX);
    let pool = CudaAsync::create(&stub.device(), props).unwrap();
    assert_eq!(pool.room().reserved_bytes, 1 << 20);
    let block = pool.allocate(4096, 256, Stream::PER_THREAD).unwrap();
    let usage = pool.usage().unwrap();
    assert_eq!((usage.used_bytes, usage.used_high_bytes), (4096, 1 << 20));
    assert_eq!((usage.reserved_bytes, usage.reserved_high_bytes), (1 << 20, 1 << 20));
    assert_eq!(pool.release(), (1 << 20) - 4096);
    // SAFETY: as it was allocated.
    unsafe { pool.deallocate(block, 4096, 256, Stream::PER_THREAD) };
    assert_eq!(pool.release(), 4096);
    let props = CudaAsyncProps { initial_bytes: 2 * TOTAL, ..props };
    assert!(CudaAsync::create(pool.device(), props).unwrap_err().is_out_of_memory());
    drop(pool);
    assert_eq!(stub.count(Count::Pools), 0);
}

#[test]
fn two_pools_of_the_driver_are_apart_and_each_keeps_what_it_was_told() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let one = CudaAsync::new(&device).unwrap();
    assert_eq!(stub.count(Count::Threshold) as u64, u64::MAX);
    let props = CudaAsyncProps { release_threshold_bytes: 1 << 20, ..CudaAsyncProps::default() };
    let two = CudaAsync::create(&device, props).unwrap();
    assert_eq!((stub.count(Count::Threshold), stub.count(Count::Pools)), (1 << 20, 2));
    let used = || [&one, &two].map(|pool| pool.usage().unwrap().used_bytes);
    let blocks = [(&one, 4096), (&two, 512), (&one, 256)]
        .map(|(pool, bytes)| (pool, pool.allocate(bytes, 256, Stream::DEFAULT).unwrap(), bytes));
    assert_eq!(used(), [4096 + 256, 512]);
    for (pool, block, bytes) in blocks {
        // SAFETY: as they were allocated.
        unsafe { pool.deallocate(block, bytes, 256, Stream::DEFAULT) };
    }
    assert_eq!(used(), [0, 0]);
}

#[test]
fn a_pool_uses_memory_of_streams_that_are_gone() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let props = PoolProps { initial_bytes: 1 << 20, maximum_bytes: Some(1 << 20) };
    let pool = Pool::new(CudaMemory::new(&device), props).unwrap();
    for foreign in [true, false] {
        let gone = device.stream().unwrap();
        let stream = if foreign { gone.foreign() } else { gone.stream() };
        let block = pool.allocate(1 << 20, 256, stream).unwrap();
        // SAFETY: as it was allocated.
        unsafe { pool.deallocate(block, 1 << 20, 256, stream) };
        drop(gone);
        let waits = stub.count(Count::Waits);
        let block = pool.allocate(1 << 20, 256, Stream::DEFAULT).expect("the driver knows the event still");
        assert_eq!(stub.count(Count::Waits), waits + 1);
        // SAFETY: as it was allocated.
        unsafe { pool.deallocate(block, 1 << 20, 256, Stream::DEFAULT) };
    }
}

#[test]
fn an_old_driver_says_what_it_lacks() {
    let stub = Stub::build(&["STUB_OLD"]);
    let device = stub.device();
    let error = CudaAsync::new(&device).unwrap_err().to_string();
    assert_eq!(
        error,
        "creating a memory pool: this driver serves CUDA 11.1, and CUDA 11.2 brought that; install a newer \
         NVIDIA driver"
    );
    let managed = CudaManaged::new(&device);
    let block = managed.allocate(4096, 256, Stream::DEFAULT).unwrap();
    managed.prefetch(block, 4096, Stream::DEFAULT).unwrap();
    assert_eq!(stub.count(Count::Prefetches), 4096);
    // SAFETY: as it was allocated.
    unsafe { managed.deallocate(block, 4096, 256, Stream::DEFAULT) };
}

#[test]
fn prefetching_tells_the_newer_call_where_to() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    device.prefetch(Address(4096), 100, Stream::DEFAULT).unwrap();
    assert_eq!(stub.count(Count::Prefetches), 100);
    let error = device.prefetch(Address::NULL, 100, Stream::DEFAULT).unwrap_err().to_string();
    assert_eq!(error, "prefetching managed memory: CUDA_ERROR_INVALID_VALUE: invalid argument");
}

/// Records a marker on streams that end.
struct Listener {
    order: Arc<CudaOrder>,
    heard: Mutex<Vec<(Stream, bool)>>,
}

impl StreamListener for Listener {
    fn stream_ends(&self, stream: Stream) {
        let marker = self.order.marker().expect("a marker");
        let lives = self.order.record(marker, stream).is_ok() && self.order.has_run(marker) == Ok(true);
        self.order.discard(marker);
        self.heard.lock().expect("no panic").push((stream, lives));
    }
}

#[test]
fn listeners_can_still_use_a_stream_whose_end_they_are_told() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let order = Arc::clone(device.order());
    let listener = Arc::new(Listener { order: Arc::clone(&order), heard: Mutex::default() });
    let gone: Arc<dyn StreamListener> =
        Arc::new(Listener { order: Arc::clone(&order), heard: Mutex::default() });
    order.subscribe(Arc::downgrade(&gone));
    drop(gone);
    let strong: Arc<dyn StreamListener> = listener.clone();
    order.subscribe(Arc::downgrade(&strong));
    let stream = device.stream().unwrap();
    let ended = stream.stream();
    assert!(ended.is_lasting() && !stream.foreign().is_lasting());
    stream.synchronize().unwrap();
    drop(stream);
    assert_eq!(*listener.heard.lock().unwrap(), [(ended, true)]);
    assert_eq!((stub.count(Count::Streams), stub.count(Count::Events)), (0, 0));
    let marker = order.marker().unwrap();
    assert!(order.record(marker, ended).is_err(), "it has ended");
    order.discard(marker);
}

#[test]
fn a_stream_waits_for_what_a_marker_stands_after() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let (one, two) = (device.stream().unwrap(), CudaStream::create(&device, Blocking::Yes).unwrap());
    let order = device.order();
    let marker = order.marker().unwrap();
    assert!(!order.has_run(marker).unwrap());
    order.record(marker, one.stream()).unwrap();
    order.wait(two.foreign(), marker).unwrap();
    order.synchronize_marker(marker).unwrap();
    order.synchronize_all().unwrap();
    assert!(order.has_run(marker).unwrap());
    assert_eq!(stub.count(Count::Waits), 1);
    order.discard(marker);
}

#[test]
fn a_handle_used_again_is_another_stream() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let order = device.order();
    let stream = device.stream().unwrap();
    let (foreign, identity) = (stream.foreign(), order.identity(stream.foreign()));
    assert_eq!(order.identity(foreign), identity);
    drop(stream);
    let stream = device.stream().unwrap();
    assert_eq!(stream.foreign(), foreign);
    assert_ne!(order.identity(foreign), identity);
}

#[test]
fn a_stream_that_cannot_be_told_apart_is_always_another() {
    let stub = Stub::build(&["STUB_OLD"]);
    let device = stub.device();
    let stream = device.stream().unwrap();
    let identity = device.order().identity(stream.foreign());
    assert_ne!(device.order().identity(stream.foreign()), identity);
}

#[test]
fn the_stream_of_each_thread_is_its_own() {
    let stub = Stub::build(&[]);
    let order = Arc::clone(stub.device().order());
    let mine = order.identity(Stream::PER_THREAD);
    assert_eq!(order.identity(Stream::PER_THREAD), mine);
    let other = thread::play(thread::reserve(), || order.identity(Stream::PER_THREAD));
    assert!(mine != other && mine >> 63 == 1 && other >> 63 == 1);
}

#[test]
fn calls_leave_the_current_device_as_it_was() {
    let stub = Stub::build(&["STUB_DEVICES=2"]);
    let cuda = stub.open().unwrap();
    let (zero, one) = (cuda.device(0).unwrap(), cuda.device(1).unwrap());
    one.memory_info().unwrap();
    assert_eq!(cuda.current_context().unwrap(), 0);
    zero.make_current().unwrap();
    let current = cuda.current_context().unwrap();
    let memory = CudaMemory::new(&one);
    let block = memory.allocate(100, 256, Stream::DEFAULT).unwrap();
    // SAFETY: as it was allocated.
    unsafe { memory.deallocate(block, 100, 256, Stream::DEFAULT) };
    assert_eq!(cuda.current_context().unwrap(), current);
    assert!(memory.allocate(TOTAL * 2, 256, Stream::DEFAULT).is_err());
    assert_eq!(cuda.current_context().unwrap(), current);
}

#[test]
fn buffers_carry_bytes_to_the_device_and_back() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let (one, two) = (device.stream().unwrap(), device.stream().unwrap());
    for resource in every_resource(&stub) {
        let data: Vec<u8> = (0..=255).collect();
        let mut buffer = DeviceBuffer::from_host(&data, one.stream(), Arc::clone(&resource)).unwrap();
        let mut other = DeviceBuffer::new(256, two.stream(), resource).unwrap();
        let waits = stub.count(Count::Waits);
        other.copy_from(&buffer).unwrap();
        assert_eq!(stub.count(Count::Waits), waits + 2, "each stream waits for the other");
        buffer.set_stream(two.stream()).unwrap();
        assert_eq!(stub.count(Count::Waits), waits + 3);
        // SAFETY: the buffer is ours and has so many bytes.
        unsafe { device.fill_words(buffer.address(), 0x0101_0101, 8, two.stream()) }.unwrap();
        // SAFETY: as above.
        unsafe { device.fill_bytes(buffer.address(), 9, 4, two.stream()) }.unwrap();
        assert_eq!(buffer.to_vec().unwrap()[..8], [9, 9, 9, 9, 1, 1, 1, 1]);
        assert_eq!(other.to_vec().unwrap(), data);
    }
    assert_eq!(stub.count(Count::LiveBytes), 0);
    assert_eq!(stub.count(Count::Events), 0);
}

#[test]
fn buffers_copy_between_host_and_device_but_not_from_simulated_memory() {
    let stub = Stub::build(&[]);
    let cuda: Arc<dyn Resource> = Arc::new(CudaMemory::new(&stub.device()));
    let on_host = DeviceBuffer::from_host(b"flood", Stream::DEFAULT, Arc::new(Host::new())).unwrap();
    let mut on_device = DeviceBuffer::new(5, Stream::DEFAULT, Arc::clone(&cuda)).unwrap();
    on_device.copy_from(&on_host).unwrap();
    let mut back = DeviceBuffer::new(5, Stream::DEFAULT, Arc::new(Host::new())).unwrap();
    back.copy_from(&on_device).unwrap();
    assert_eq!(back.to_vec().unwrap(), b"flood");
    let mut nowhere = DeviceBuffer::new(5, Stream::DEFAULT, Arc::new(Simulated::new(1 << 20))).unwrap();
    assert!(on_device.copy_from(&nowhere).unwrap_err().to_string().contains("simulated memory has no bytes"));
    assert!(nowhere.copy_from(&on_device).unwrap_err().to_string().contains("simulated memory has no bytes"));
}

#[test]
fn kernels_are_loaded_by_name_and_started() {
    let stub = Stub::build(&[]);
    let device = stub.device();
    let kernel = CudaKernel::load(&device, ".version 7.0", "spin").unwrap();
    // SAFETY: the stand-in only adds the parameter to its count.
    unsafe { kernel.launch(1, 32, Stream::DEFAULT, &[42]) }.unwrap();
    assert_eq!(stub.count(Count::Launches), 42);
    assert!(CudaKernel::load(&device, ".version 7.0", "spun").is_err());
    assert!(CudaKernel::load(&device, "nonsense", "spin").is_err());
}
