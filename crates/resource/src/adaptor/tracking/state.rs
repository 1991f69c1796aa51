//! What is known of live blocks, whatever resource they came from.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use floodmark_event::units::format_bytes;
use floodmark_tail::clock::{Anchor, monotonic_ns};

use super::blocks::{Blocks, Details};
use super::sequence::Sequence;
use super::{Block, OnDrop, StackCapture, TrackingProps};
use crate::error::{AllocError, Holder};
use crate::resource::Address;
use crate::stream::Stream;
use crate::thread;
use floodmark_stacks::{Detail, Names, Registers, Stack};

/// How many holders an error names.
const HOLDERS_IN_ERRORS: usize = 5;

/// The live blocks of a [`Tracking`](super::Tracking) adaptor, to be asked from anywhere.
#[derive(Debug)]
pub struct TrackingState {
    blocks: Blocks,
    sequence: Sequence,
    anchor: Anchor,
    props: TrackingProps,
    /// Whether what was live at the end has been reported.
    is_reported: AtomicBool,
}

/// Owner of a block in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Owner {
    Stack(Stack),
    /// Where stacks are not captured, or there was none to be had.
    Thread(u32),
}

/// What an owner holds.
#[derive(Clone, Copy, Debug)]
struct Share {
    owner: Owner,
    bytes: u64,
    blocks: u64,
}

impl TrackingState {
    pub(super) fn new(props: TrackingProps) -> Self {
        Self {
            blocks: Blocks::default(),
            sequence: Sequence::default(),
            anchor: Anchor::now(),
            props,
            is_reported: AtomicBool::new(false),
        }
    }

    /// Reports what is live at the end, once, if that was asked for.
    pub(super) fn report_end(&self) {
        if self.props.on_drop == OnDrop::Report
            && self.live_blocks() > 0
            && !self.is_reported.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("tracking ends with {}", self.headed_report());
        }
    }

    /// What it was made with.
    pub const fn props(&self) -> TrackingProps {
        self.props
    }

    /// Bytes of live blocks, as they were asked for.
    pub fn live_bytes(&self) -> u64 {
        self.blocks.totals().1
    }

    /// Number of live blocks.
    pub fn live_blocks(&self) -> u64 {
        self.blocks.totals().0
    }

    /// The live blocks, oldest first.
    pub fn outstanding(&self) -> Vec<Block> {
        let mut list = Vec::new();
        self.blocks.each(|address, bytes, details| {
            let Details { stream, sequence, thread, stack, .. } = *details;
            let time_ns = self.anchor.utc_ns(details.monotonic_ns);
            list.push(Block { address: Address(address), bytes, stack, stream, time_ns, thread, sequence });
        });
        list.sort_unstable_by_key(|block| (block.time_ns, block.sequence));
        list
    }

    /// Returns the holders of most live bytes, most first: stacks that allocated, or threads where there are
    /// no stacks.
    pub fn top_holders(&self, count: usize) -> Vec<Holder> {
        let mut shares = self.shares();
        shares.truncate(count);
        let names = Names::of(shares.iter().filter_map(|share| share.owner.stack()), Detail::Functions);
        let holder = |Share { owner, bytes, blocks }| {
            let who = match owner {
                Owner::Stack(stack) => names.line(stack),
                Owner::Thread(thread) => format!("thread {thread}"),
            };
            Holder { who, bytes, blocks }
        };
        shares.into_iter().map(holder).collect()
    }

    /// What each owner holds, largest first.
    fn shares(&self) -> Vec<Share> {
        let mut shares: HashMap<Owner, (u64, u64)> = HashMap::new();
        self.blocks.each(|_, block_bytes, details| {
            let owner = details.stack.map_or(Owner::Thread(details.thread), Owner::Stack);
            let (bytes, blocks) = shares.entry(owner).or_default();
            *bytes = bytes.saturating_add(block_bytes);
            *blocks += 1;
        });
        let share = |(owner, (bytes, blocks))| Share { owner, bytes, blocks };
        let mut shares: Vec<Share> = shares.into_iter().map(share).collect();
        shares.sort_unstable_by_key(|share| (std::cmp::Reverse(share.bytes), share.owner));
        shares
    }

    /// The live blocks as text: a line for each, oldest first, then what each stack holds, largest
    /// first. Empty where nothing is live.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for Block { address, bytes, .. } in self.outstanding() {
            let _ = writeln!(text, "{address}: {bytes} B");
        }
        let shares = self.shares();
        let names = Names::of(shares.iter().filter_map(|share| share.owner.stack()), Detail::Lines);
        for Share { owner, bytes, blocks } in shares {
            let Owner::Stack(stack) = owner else { continue };
            let plural = if blocks == 1 { "" } else { "s" };
            let _ = writeln!(text, "\n{} in {blocks} block{plural} by", format_bytes(bytes));
            for (at, frame) in names.frames(stack).enumerate() {
                let _ = writeln!(text, "  #{at} in {frame}");
            }
        }
        text
    }

    /// Writes the [`report`](Self::report) to the debug log.
    pub fn log_outstanding(&self) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!("tracking: {}", self.headed_report());
        }
    }

    pub(super) fn headed_report(&self) -> String {
        let (blocks, bytes) = self.blocks.totals();
        let plural = if blocks == 1 { "" } else { "s" };
        format!("{blocks} live block{plural}, {}\n{}", format_bytes(bytes), self.report())
    }

    /// Notes a block that the function with these registers was handed.
    #[inline]
    pub(super) fn note(&self, address: Address, bytes: u64, stream: Stream, registers: Registers) {
        if address.is_null() {
            return;
        }
        let stack = match self.props.stacks {
            StackCapture::Off => None,
            StackCapture::On => Stack::above(registers),
        };
        let details = Details {
            stream,
            monotonic_ns: monotonic_ns(),
            sequence: self.sequence.next(),
            thread: thread::number(),
            stack,
        };
        if self.blocks.insert(address.0, bytes, details).is_some() {
            given_back_elsewhere(address);
        }
    }

    /// Notes that a block goes back; returns its size, which is the caller's where it is not known.
    #[inline]
    pub(super) fn take(&self, address: Address, bytes: u64) -> u64 {
        if address.is_null() {
            return bytes;
        }
        match self.blocks.remove(address.0) {
            Some(known) if known == bytes => bytes,
            Some(known) => wrong_size(address, known, bytes),
            None => self.unknown(address, bytes),
        }
    }

    #[cold]
    fn unknown(&self, address: Address, bytes: u64) -> u64 {
        let live = self.live_blocks();
        tracing::error!(
            "tracking: a block of {bytes} B at {address} was given back that is not live here; {live} are"
        );
        bytes
    }

    /// Adds the holders of memory to an out-of-memory error.
    #[cold]
    pub(super) fn explain(&self, error: AllocError) -> AllocError {
        match error {
            // A tracking layer further down knows better.
            AllocError::OutOfMemory(mut details) if details.holders.is_empty() => {
                details.holders = self.top_holders(HOLDERS_IN_ERRORS);
                AllocError::OutOfMemory(details)
            }
            other => other,
        }
    }
}

impl Owner {
    const fn stack(self) -> Option<Stack> {
        match self {
            Self::Stack(stack) => Some(stack),
            Self::Thread(_) => None,
        }
    }
}

#[cold]
fn wrong_size(address: Address, known: u64, bytes: u64) -> u64 {
    tracing::error!(
        "tracking: the block at {address} was allocated with {known} B and given back with {bytes} B; \
         going on with {known} B"
    );
    known
}

#[cold]
fn given_back_elsewhere(address: Address) {
    tracing::debug!("tracking: the block at {address} must have been given back past this layer");
}
