//! Streams of a CUDA device, and the order between them.
//!
//! Markers are events that keep no time.
#![expect(unsafe_code, reason = "copies memory of the device")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::context::Context;
use super::device::CudaDevice;
use super::driver::Driver;
use super::sys::{self, Handle};
use crate::copier::{Copier, Reach};
use crate::error::Result;
use crate::resource::Address;
use crate::stream::{Marker, Stream, StreamListener, StreamOrder};
use crate::thread;

/// Identities that no stream of the driver has: it counts up from 1.
const PER_THREAD: u64 = 1 << 63;
const UNKNOWN: u64 = 1 << 62;

/// Orders the streams of one device.
pub struct CudaOrder {
    context: Context,
    listeners: Mutex<Vec<Weak<dyn StreamListener>>>,
    unknown: AtomicU64,
}

impl CudaOrder {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, listeners: Mutex::default(), unknown: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) const fn context(&self) -> &Context {
        &self.context
    }

    /// Whether all that `marker` stands after has run.
    ///
    /// # Errors
    /// When something enqueued has failed.
    pub fn has_run(&self, marker: Marker) -> Result<bool> {
        Ok(self.context.enter(|driver| driver.event_has_run(marker.0 as Handle))?)
    }

    /// Waits until all that `marker` stands after has run.
    ///
    /// # Errors
    /// When something enqueued has failed.
    pub fn synchronize_marker(&self, marker: Marker) -> Result<()> {
        Ok(self.context.enter(|driver| driver.synchronize_event(marker.0 as Handle))?)
    }

    /// Tells everybody that `stream` is about to end.
    fn tell_end(&self, stream: Stream) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.stream_ends(stream);
        }
    }
}

impl StreamOrder for CudaOrder {
    fn identity(&self, stream: Stream) -> u64 {
        if stream.is_per_thread() {
            return PER_THREAD | u64::from(thread::number());
        }
        let handle = stream.handle() as Handle;
        let ask = || self.context.enter(|driver| driver.stream_id(handle));
        // A stream that was created knows its context; only the default one is the current context's.
        let identity = if stream == Stream::DEFAULT {
            ask()
        } else {
            self.context.driver().stream_id(handle).or_else(|_| ask())
        };
        identity.unwrap_or_else(|failure| {
            // A handle alone may be a new stream's: one that is never known again is always waited for.
            tracing::debug!("cuda: {failure}; every use of stream {:#x} counts as another", stream.handle());
            UNKNOWN | self.unknown.fetch_add(1, Ordering::Relaxed)
        })
    }

    fn marker(&self) -> Result<Marker> {
        Ok(self.context.enter(Driver::create_event).map(|event| Marker(event as u64))?)
    }

    fn discard(&self, marker: Marker) {
        if let Err(failure) = self.context.enter(|driver| driver.destroy_event(marker.0 as Handle)) {
            tracing::debug!("cuda: {failure}");
        }
    }

    #[inline]
    fn record(&self, marker: Marker, stream: Stream) -> Result<()> {
        let (event, stream) = (marker.0 as Handle, stream.handle() as Handle);
        Ok(self.context.enter(|driver| driver.record_event(event, stream))?)
    }

    #[inline]
    fn wait(&self, stream: Stream, marker: Marker) -> Result<()> {
        let (event, stream) = (marker.0 as Handle, stream.handle() as Handle);
        Ok(self.context.enter(|driver| driver.wait_for_event(stream, event))?)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        Ok(self.context.enter(|driver| driver.synchronize_stream(stream.handle() as Handle))?)
    }

    fn synchronize_all(&self) -> Result<()> {
        Ok(self.context.enter(Driver::synchronize_context)?)
    }

    fn subscribe(&self, listener: Weak<dyn StreamListener>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    fn copier(&self) -> Option<&dyn Copier> {
        Some(self)
    }
}

impl Copier for CudaOrder {
    fn reach(&self) -> Reach {
        Reach::Device
    }

    unsafe fn copy(&self, to: Address, from: Address, bytes: u64, stream: Stream) -> Result<()> {
        let stream = stream.handle() as Handle;
        // SAFETY: the caller's promise.
        Ok(self.context.enter(|driver| unsafe { driver.copy(to.0, from.0, bytes as usize, stream) })?)
    }
}

impl std::fmt::Debug for CudaOrder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "CudaOrder {{ device: {} }}", self.context.ordinal())
    }
}

/// How a stream stands to the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocking {
    /// Neither waits for the other.
    #[default]
    No,
    /// Work on the default stream waits for all that was enqueued here before, and the reverse.
    Yes,
}

/// A stream of a CUDA device; ends when dropped.
#[derive(Debug)]
pub struct CudaStream {
    device: CudaDevice,
    handle: Handle,
}

impl CudaStream {
    /// Makes a stream.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn create(device: &CudaDevice, blocking: Blocking) -> Result<Self> {
        let flags = if blocking == Blocking::No { sys::STREAM_NON_BLOCKING } else { 0 };
        let handle = device.context().enter(|driver| driver.create_stream(flags))?;
        Ok(Self { device: device.clone(), handle })
    }

    /// The stream, for as long as this lives.
    pub const fn stream(&self) -> Stream {
        Stream::lasting(self.handle as u64)
    }

    /// The same as a program that does not know us would pass it.
    pub const fn foreign(&self) -> Stream {
        Stream::foreign(self.handle as u64)
    }

    /// Its device.
    pub const fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Waits until all that is enqueued on it has run.
    ///
    /// # Errors
    /// When something enqueued has failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.order().synchronize(self.stream())
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        self.device.order().tell_end(self.stream());
        let ended = self.device.context().enter(|driver| driver.destroy_stream(self.handle));
        if let Err(failure) = ended {
            tracing::debug!("cuda: {failure}");
        }
    }
}

/// The order, as resources hand it out.
pub(crate) fn shared(device: &CudaDevice) -> Arc<dyn StreamOrder> {
    Arc::clone(device.order()) as Arc<dyn StreamOrder>
}
