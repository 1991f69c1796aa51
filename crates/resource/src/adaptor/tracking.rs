//! Knows every live block: how large it is, since when, whose, and where in the program it came from.
//!
//! Invariant: a block is noted after the upstream has handed it out and forgotten before the upstream
//! gets it back, so that an address that another thread is handed meanwhile is never taken for the old
//! block. Blocks of no bytes are nowhere, and neither noted nor missed.
#![expect(unsafe_code, reason = "reads registers, and passes on the promise that comes with giving back")]

mod blocks;
mod sequence;
mod state;

use std::any::Any;
use std::sync::Arc;

pub use state::TrackingState;

use crate::adaptor::delegate;
use crate::error::{Holder, Result};
use crate::process::{Lasting, keep_informed};
use crate::resource::{Address, Resource};
use crate::stream::Stream;
use floodmark_stacks::{Stack, registers};

/// Whether call stacks are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackCapture {
    /// No.
    #[default]
    Off,
    /// One for each allocation.
    On,
}

/// What happens when the adaptor is dropped, or the process exits, while blocks are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrop {
    /// Nothing.
    #[default]
    Silent,
    /// The debug log gets them as a warning.
    Report,
}

/// How to track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackingProps {
    /// Whether call stacks are captured.
    pub stacks: StackCapture,
    /// What happens to what is live at the end.
    pub on_drop: OnDrop,
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: Address,
    /// Bytes asked for.
    pub bytes: u64,
    /// Where in the program it was allocated, if that was captured.
    pub stack: Option<Stack>,
    /// For whose work it was allocated.
    pub stream: Stream,
    /// When, in nanoseconds since 1970-01-01 UTC.
    pub time_ns: i64,
    /// By which thread; see [`thread::number`](crate::thread::number).
    pub thread: u32,
    /// Its number: counts up from 1 in the order in which a thread allocates. Threads take numbers a
    /// thousand at a time, so across threads only the time orders blocks.
    pub sequence: u64,
}

/// Tracks what the resource it wraps has handed out.
#[derive(Debug)]
pub struct Tracking<R> {
    upstream: R,
    state: Arc<TrackingState>,
}

impl<R: Resource> Tracking<R> {
    /// Tracks without stacks.
    pub fn new(upstream: R) -> Self {
        Self::with_props(upstream, TrackingProps::default())
    }

    /// Tracks, and captures the stack of each allocation.
    pub fn with_stacks(upstream: R) -> Self {
        Self::with_props(upstream, TrackingProps { stacks: StackCapture::On, ..TrackingProps::default() })
    }

    /// Tracks as told.
    pub fn with_props(upstream: R, props: TrackingProps) -> Self {
        let stacks = match props.stacks {
            StackCapture::Off => "without call stacks",
            StackCapture::On => "with call stacks",
        };
        tracing::info!("tracking created over {}: {stacks}", upstream.name());
        let state = Arc::new(TrackingState::new(props));
        keep_informed(&state);
        Self { upstream, state }
    }

    /// What it knows, to be kept beyond its own life.
    pub const fn state(&self) -> &Arc<TrackingState> {
        &self.state
    }

    /// Bytes of live blocks, as they were asked for.
    pub fn live_bytes(&self) -> u64 {
        self.state.live_bytes()
    }

    /// Number of live blocks.
    pub fn live_blocks(&self) -> u64 {
        self.state.live_blocks()
    }

    /// The live blocks, oldest first.
    pub fn outstanding(&self) -> Vec<Block> {
        self.state.outstanding()
    }

    /// The live blocks as text; see [`TrackingState::report`].
    pub fn report(&self) -> String {
        self.state.report()
    }

    /// Writes the [`report`](Self::report) to the debug log.
    pub fn log_outstanding(&self) {
        self.state.log_outstanding();
    }

    /// Returns the holders of most live bytes; see [`TrackingState::top_holders`].
    pub fn top_holders(&self, count: usize) -> Vec<Holder> {
        self.state.top_holders(count)
    }
}

impl<R: Resource> Resource for Tracking<R> {
    // Not inlined, so that the innermost frame of a block's stack is always its requester.
    #[inline(never)]
    fn allocate(&self, bytes: u64, alignment: u64, stream: Stream) -> Result<Address> {
        match self.upstream.allocate(bytes, alignment, stream) {
            Ok(address) => {
                self.state.note(address, bytes, stream, registers!());
                Ok(address)
            }
            Err(error) => Err(self.state.explain(error)),
        }
    }

    unsafe fn deallocate(&self, address: Address, bytes: u64, alignment: u64, stream: Stream) {
        let bytes = self.state.take(address, bytes);
        // SAFETY: the caller's promise, passed on; where the size was wrong, with the right one.
        unsafe { self.upstream.deallocate(address, bytes, alignment, stream) };
    }

    delegate!("tracking");

    fn part(&self) -> Option<&dyn Any> {
        Some(&*self.state)
    }
}

impl<R> Drop for Tracking<R> {
    fn drop(&mut self) {
        self.state.report_end();
    }
}

impl Lasting for TrackingState {
    fn at_exit(&self) {
        self.report_end();
    }
}
