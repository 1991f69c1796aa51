//! Resources that only Python programs need.
#![expect(unsafe_code, reason = "giving memory back is a promise that is passed on")]

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use floodmark_resource::{
    Address, AllocError, BinMemory, Binning, CsvHandle, CsvLogging, Memory, Resource, Result, Room,
    Statistics, StatisticsHandle, Stream, StreamOrder,
};

/// A resource that Python objects share.
pub(crate) type Shared = Arc<dyn Resource>;

/// A log that can be switched off wherever in a stack it is.
pub(crate) struct SwitchedLog {
    logged: CsvLogging<Shared>,
    upstream: Shared,
    switch: LogSwitch,
}

/// Finds and stops a [`SwitchedLog`].
#[derive(Clone)]
pub(crate) struct LogSwitch {
    pub(crate) handle: CsvHandle,
    is_on: Arc<AtomicBool>,
}

impl LogSwitch {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Logs nothing from now on.
    pub(crate) fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        // The health of the log has the error.
        let _ = self.handle.flush();
    }
}

impl SwitchedLog {
    pub(crate) fn new(upstream: Shared, logged: CsvLogging<Shared>) -> Self {
        let switch = LogSwitch { handle: logged.handle().clone(), is_on: Arc::new(AtomicBool::new(true)) };
        Self { logged, upstream, switch }
    }
}

impl Resource for SwitchedLog {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        if self.switch.is_on() {
            self.logged.allocate(bytes, alignment, stream)
        } else {
            self.upstream.allocate(bytes, alignment, stream)
        }
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller's promise; both give to the same upstream.
        unsafe {
            if self.switch.is_on() {
                self.logged.deallocate(address, bytes, alignment, stream);
            } else {
                self.upstream.deallocate(address, bytes, alignment, stream);
            }
        }
    }

    fn name(&self) -> &'static str {
        self.logged.name()
    }

    fn memory(&self) -> Memory {
        self.upstream.memory()
    }

    fn room(&self) -> Room {
        self.upstream.room()
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        self.upstream.order()
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }

    fn served_by(&self) -> &'static str {
        self.upstream.served_by()
    }

    fn part(&self) -> Option<&dyn Any> {
        Some(&self.switch)
    }
}

/// Counts what goes through it, hidden from what looks for the statistics of a stack.
pub(crate) struct Measuring {
    counted: Statistics<Shared>,
    upstream: Shared,
    measurement: Measurement,
}

/// What a [`Measuring`] counted.
pub(crate) struct Measurement(pub(crate) StatisticsHandle);

impl Measuring {
    pub(crate) fn new(upstream: Shared) -> Self {
        let counted = Statistics::new(Arc::clone(&upstream));
        let measurement = Measurement(counted.handle().clone());
        Self { counted, upstream, measurement }
    }
}

impl Resource for Measuring {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.counted.allocate(bytes, alignment, stream)
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.counted.deallocate(address, bytes, alignment, stream) };
    }

    fn name(&self) -> &'static str {
        "measuring"
    }

    fn memory(&self) -> Memory {
        self.upstream.memory()
    }

    fn room(&self) -> Room {
        self.upstream.room()
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        self.upstream.order()
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }

    fn served_by(&self) -> &'static str {
        self.upstream.served_by()
    }

    fn part(&self) -> Option<&dyn Any> {
        Some(&self.measurement)
    }
}

/// Bins that can be added until the first allocation.
pub(crate) struct GrowingBins {
    upstream: Shared,
    planned: Mutex<Vec<Bin>>,
    built: OnceLock<Result<Binning<Shared>>>,
}

/// A bin that is to be made.
pub(crate) struct Bin {
    pub(crate) bytes: u64,
    /// None for blocks of a fixed size over the upstream of all bins.
    pub(crate) resource: Option<Shared>,
}

impl GrowingBins {
    pub(crate) fn new(upstream: Shared, planned: Vec<Bin>) -> Self {
        Self { upstream, planned: Mutex::new(planned), built: OnceLock::new() }
    }

    /// Adds a bin; returns false if blocks were handed out already, which would go back to the wrong bin.
    pub(crate) fn add(&self, bin: Bin) -> bool {
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if self.built.get().is_none() {
            planned.push(bin);
            return true;
        }
        false
    }

    fn build(&self) -> Result<Binning<Shared>> {
        let planned = std::mem::take(&mut *self.planned.lock().unwrap_or_else(PoisonError::into_inner));
        planned.into_iter().try_fold(Binning::new(Arc::clone(&self.upstream)), |bins, bin| {
            match bin.resource {
                Some(resource) => Ok(bins.with_resource(bin.bytes, Box::new(resource), BinMemory::Own)),
                None => bins.with_bin(bin.bytes),
            }
        })
    }

    fn bins(&self) -> std::result::Result<&Binning<Shared>, &AllocError> {
        self.built.get_or_init(|| self.build()).as_ref()
    }
}

impl Resource for GrowingBins {
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        self.bins().map_err(Clone::clone)?.allocate(bytes, alignment, stream)
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        if let Ok(bins) = self.bins() {
            // SAFETY: the caller's promise, passed on.
            unsafe { bins.deallocate(address, bytes, alignment, stream) };
        }
    }

    fn name(&self) -> &'static str {
        "binning"
    }

    fn memory(&self) -> Memory {
        self.upstream.memory()
    }

    fn room(&self) -> Room {
        match self.built.get() {
            Some(Ok(bins)) => bins.room(),
            _ => self.upstream.room(),
        }
    }

    fn order(&self) -> Arc<dyn StreamOrder> {
        self.upstream.order()
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }
}
