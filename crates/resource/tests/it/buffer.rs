//! Buffers on memory of the host, whose bytes can be looked at, and on simulated memory, whose
//! blocks can be counted.
#![expect(unsafe_code, reason = "takes memory over from a buffer, and counts what is given back")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use floodmark_resource::{
    Address, DeviceBuffer, Host, Marker, Memory, Resource, Result, Room, Simulated, Stream, StreamListener,
    StreamOrder,
};
use proptest::prelude::*;

fn simulated() -> (Arc<Simulated>, Arc<dyn Resource>) {
    let simulated = Arc::new(Simulated::new(1 << 20));
    let resource: Arc<dyn Resource> = Arc::clone(&simulated) as Arc<dyn Resource>;
    (simulated, resource)
}

#[test]
fn a_buffer_gives_its_memory_back() {
    let (simulated, resource) = simulated();
    let buffer = DeviceBuffer::new(1000, Stream::DEFAULT, resource).unwrap();
    assert_eq!((buffer.size(), buffer.capacity(), buffer.is_empty()), (1000, 1000, false));
    assert_eq!(simulated.room().live_blocks, 1);
    drop(buffer);
    assert_eq!(simulated.room().live_blocks, 0);
}

#[test]
fn a_smaller_size_keeps_the_capacity_and_a_larger_one_moves() {
    let (simulated, resource) = simulated();
    let mut buffer = DeviceBuffer::new(1024, Stream::DEFAULT, resource).unwrap();
    let first = buffer.address();
    buffer.resize(100).unwrap();
    assert_eq!((buffer.size(), buffer.capacity(), buffer.address()), (100, 1024, first));
    buffer.resize(1024).unwrap();
    assert_eq!(buffer.address(), first);
    buffer.resize(2048).unwrap();
    assert_ne!(buffer.address(), first);
    assert_eq!((buffer.capacity(), simulated.room().live_bytes), (2048, 2048));
    buffer.reserve(4096).unwrap();
    assert_eq!((buffer.size(), buffer.capacity()), (2048, 4096));
    buffer.resize(10).unwrap();
    buffer.shrink_to_fit().unwrap();
    assert_eq!((buffer.size(), buffer.capacity(), simulated.room().live_bytes), (10, 10, 256));
}

#[test]
fn both_blocks_are_there_while_a_buffer_moves() {
    let mut buffer = DeviceBuffer::new(600 << 10, Stream::DEFAULT, simulated().1).unwrap();
    let error = buffer.resize(700 << 10).unwrap_err();
    assert!(error.is_out_of_memory(), "1 MiB has no room for both: {error}");
    assert_eq!((buffer.size(), buffer.capacity()), (600 << 10, 600 << 10), "nothing has changed");
}

/// Memory whose blocks must not be asked for or given back.
struct Untouchable(AtomicU64);

impl Resource for Untouchable {
    fn allocate(&self, _: u64, _: u64, _: Stream) -> Result<Address> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Address::NULL)
    }

    unsafe fn deallocate(&self, _: Address, _: u64, _: u64, _: Stream) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn name(&self) -> &'static str {
        "untouchable"
    }

    fn memory(&self) -> Memory {
        Memory::HOST
    }

    fn room(&self) -> Room {
        Room::default()
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        Arc::new(Mute)
    }
}

/// An order that does not say how memory is copied.
struct Mute;

impl StreamOrder for Mute {
    fn identity(&self, stream: Stream) -> u64 {
        stream.handle()
    }

    fn marker(&self) -> Result<Marker> {
        Ok(Marker(0))
    }

    fn discard(&self, _: Marker) {}

    fn record(&self, _: Marker, _: Stream) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _: Stream, _: Marker) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }

    fn synchronize_all(&self) -> Result<()> {
        Ok(())
    }

    fn subscribe(&self, _: Weak<dyn StreamListener>) {}
}

#[test]
fn no_bytes_never_ask_the_resource() {
    let untouchable = Arc::new(Untouchable(AtomicU64::new(0)));
    let resource: Arc<dyn Resource> = untouchable.clone();
    let mut buffer = DeviceBuffer::new(0, Stream::DEFAULT, Arc::clone(&resource)).unwrap();
    assert!(buffer.address().is_null() && buffer.is_empty());
    buffer.resize(0).unwrap();
    buffer.reserve(0).unwrap();
    buffer.shrink_to_fit().unwrap();
    buffer.copy_from_host(&[]).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [0_u8; 0]);
    buffer.copy_from(&DeviceBuffer::new(0, Stream::DEFAULT, resource).unwrap()).unwrap();
    drop(buffer.into_raw());
    assert_eq!(untouchable.0.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_that_nobody_can_copy_is_not_lost_on_the_way() {
    let resource: Arc<dyn Resource> = Arc::new(Untouchable(AtomicU64::new(0)));
    let mut buffer = DeviceBuffer::new(8, Stream::DEFAULT, resource).unwrap();
    let error = buffer.resize(16).unwrap_err().to_string();
    assert_eq!(error, "copying memory: this resource does not say how its memory is copied");
    assert_eq!((buffer.size(), buffer.capacity()), (8, 8));
}

#[test]
fn simulated_memory_refuses_to_be_copied() {
    let mut buffer = DeviceBuffer::new(4, Stream::DEFAULT, simulated().1).unwrap();
    let words = "copying memory: simulated memory has no bytes; use Host or a CUDA resource for real ones";
    assert_eq!(buffer.copy_from_host(b"abcd").unwrap_err().to_string(), words);
    assert_eq!(buffer.to_vec().unwrap_err().to_string(), words);
}

#[test]
fn data_of_another_size_is_refused() {
    let host: Arc<dyn Resource> = Arc::new(Host::new());
    let mut buffer = DeviceBuffer::new(4, Stream::DEFAULT, Arc::clone(&host)).unwrap();
    let words = "copying memory: the buffer has 4 bytes and the other side 3; resize it first";
    assert_eq!(buffer.copy_from_host(b"abc").unwrap_err().to_string(), words);
    assert_eq!(buffer.copy_to_host(&mut [0; 3]).unwrap_err().to_string(), words);
    let other = DeviceBuffer::from_host(b"abc", Stream::DEFAULT, host).unwrap();
    assert_eq!(buffer.copy_from(&other).unwrap_err().to_string(), words);
}

#[test]
fn another_stream_waits_for_the_one_before() {
    let (simulated, resource) = simulated();
    let streams = simulated.streams();
    let (one, two) = (streams.create(), streams.create());
    let mut buffer = DeviceBuffer::new(4, one.stream(), resource).unwrap();
    let work = streams.submit(one.stream());
    buffer.set_stream(one.stream()).unwrap();
    assert_eq!(streams.waits(), 0, "the same stream has nothing to wait for");
    buffer.set_stream(two.stream()).unwrap();
    assert!(streams.covers(two.stream(), work));
    assert_eq!(buffer.stream(), two.stream());
}

#[test]
fn memory_can_be_taken_over_and_handed_back() {
    let (simulated, resource) = simulated();
    let mut buffer = DeviceBuffer::new(512, Stream::DEFAULT, resource).unwrap();
    buffer.resize(100).unwrap();
    let raw = buffer.into_raw();
    assert_eq!((raw.size, raw.capacity, simulated.room().live_blocks), (100, 512, 1));
    // SAFETY: just as it came.
    let buffer = unsafe { DeviceBuffer::from_raw(raw) };
    assert_eq!(buffer.size(), 100);
    drop(buffer);
    assert_eq!(simulated.room().live_blocks, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Resize(usize),
    Reserve(usize),
    ShrinkToFit,
    Set(u8),
    Copy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2000_usize).prop_map(Step::Resize),
        (0..2000_usize).prop_map(Step::Reserve),
        Just(Step::ShrinkToFit),
        any::<u8>().prop_map(Step::Set),
        Just(Step::Copy),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn a_buffer_keeps_its_bytes_as_a_vector_does(steps in steps()) {
        let host = Arc::new(Host::new());
        let resource: Arc<dyn Resource> = host.clone();
        let mut buffer = DeviceBuffer::new(0, Stream::DEFAULT, Arc::clone(&resource)).unwrap();
        let mut oracle: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Resize(size) => {
                    let old = oracle.len();
                    buffer.resize(size as u64).unwrap();
                    oracle.resize(size, 7);
                    // What was not there before means nothing: give it a meaning.
                    if size > old {
                        let mut data = oracle.clone();
                        buffer.copy_to_host(&mut data).unwrap();
                        data[old..].fill(7);
                        buffer.copy_from_host(&data).unwrap();
                    }
                }
                Step::Reserve(size) => buffer.reserve(size as u64).unwrap(),
                Step::ShrinkToFit => {
                    buffer.shrink_to_fit().unwrap();
                    prop_assert_eq!(buffer.capacity(), oracle.len() as u64);
                }
                Step::Set(value) => {
                    oracle.iter_mut().enumerate().for_each(|(at, byte)| *byte = value ^ at as u8);
                    buffer.copy_from_host(&oracle).unwrap();
                }
                Step::Copy => {
                    let mut copy =
                        DeviceBuffer::new(buffer.size(), Stream::DEFAULT, Arc::clone(&resource)).unwrap();
                    copy.copy_from(&buffer).unwrap();
                    buffer = copy;
                }
            }
            prop_assert_eq!(buffer.to_vec().unwrap(), &*oracle);
            prop_assert_eq!(host.room().live_bytes, buffer.capacity());
        }
        drop(buffer);
        prop_assert_eq!(host.room(), Room::default());
    }
}
