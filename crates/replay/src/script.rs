//! What a log says to do, as short as it can be said: 16 bytes a step, 8 more to keep its pace.
//!
//! A script plays one excerpt: the events of one process, device and kind. Its steps are in the order of
//! the log and come in three stretches: blocks that were live when the window began, what is played, and
//! the frees of whatever is live at the end. Invariants:
//! - Every free has its allocation before it, with the same slot, the same bytes, and no other
//!   allocation of that slot in between.
//! - All slots are below [`Script::slots`], and are empty again after the last stretch.

use std::fmt;
use std::ops::Range;

use floodmark_event::{Kind, NO_DEVICE, ProcessId};

/// Whose memory a script is about: the part of a log that can be played against one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Excerpt {
    /// Process.
    pub process: ProcessId,
    /// Device, or [`NO_DEVICE`].
    pub device: i32,
    /// Sort of memory.
    pub kind: Kind,
}

impl Excerpt {
    /// The options that choose it.
    pub fn options(&self) -> String {
        let device = if self.device == NO_DEVICE { "none".into() } else { self.device.to_string() };
        format!("--process {} --device {device} --kind {}", self.process.0, self.kind.name())
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {}, ", self.process.0)?;
        match self.device {
            NO_DEVICE => out.write_str("no device")?,
            device => write!(out, "device {device}")?,
        }
        write!(out, ", {} memory", self.kind.name())
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Allocates into the slot.
    Allocate,
    /// Frees what is in the slot.
    Free,
    /// Asks for what was refused when the log was written; has no slot.
    Fail,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes asked for; those of a free are its allocation's, whatever the free said.
    pub bytes: u64,
    /// Where the block is kept in between.
    pub slot: u32,
    /// Act in the lowest two bits, actor above.
    packed: u32,
}

impl Step {
    pub(crate) fn new(act: Act, slot: u32, bytes: u64, actor: u32) -> Self {
        Self { bytes, slot, packed: actor << 2 | act as u32 }
    }

    /// What it does.
    #[inline]
    pub fn act(self) -> Act {
        match self.packed & 3 {
            0 => Act::Allocate,
            1 => Act::Free,
            _ => Act::Fail,
        }
    }

    /// Index of who does it; see [`Script::actors`].
    #[inline]
    pub fn actor(self) -> usize {
        (self.packed >> 2) as usize
    }
}

/// A thread on a stream; both are indexes into what the script lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Index into [`Script::threads`].
    pub thread: u32,
    /// Index into [`Script::streams`].
    pub stream: u32,
}

/// Steps from here on belong to events from there on, one each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) step: usize,
    pub(crate) event: u64,
}

/// What there is to play, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that are played or counted.
    pub events: u64,
    /// Allocations played.
    pub allocations: u64,
    /// Frees played, those that the log lacks included.
    pub frees: u64,
    /// Allocations that failed when the log was written.
    pub failures: u64,
    /// Blocks that were live already when the window began.
    pub carried_blocks: u64,
    /// Blocks whose address was allocated again before they were freed; their frees are made up.
    pub replaced_blocks: u64,
    /// Frees that stated another size than their allocation.
    pub size_mismatches: u64,
    /// Time from the first to the last event.
    pub duration_ns: u64,
    /// Highest live bytes, as asked for.
    pub peak_live_bytes: u64,
    /// Blocks live then.
    pub peak_live_blocks: u64,
    /// The most blocks that were live at a time.
    pub most_live_blocks: u64,
    /// Highest live bytes where every block is rounded up to what all resources align to.
    pub peak_rounded_bytes: u64,
    /// Largest block.
    pub largest_bytes: u64,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
}

/// What to do, in order.
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) excerpt: Excerpt,
    pub(crate) steps: Vec<Step>,
    /// When each step of the played stretch is due, ns after the first; empty unless asked for.
    pub(crate) due_ns: Vec<u64>,
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) actors: Vec<Actor>,
    pub(crate) threads: Vec<u64>,
    pub(crate) streams: Vec<u64>,
    pub(crate) slots: usize,
    pub(crate) carried_end: usize,
    pub(crate) played_end: usize,
    /// Step of the highest live bytes.
    pub(crate) peak_step: usize,
    pub(crate) summary: Summary,
}

impl Script {
    /// Whose memory it is about.
    pub fn excerpt(&self) -> Excerpt {
        self.excerpt
    }

    /// What there is to play, in figures.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// All steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Allocations of the blocks that were live when the window began.
    pub fn carried(&self) -> Range<usize> {
        0..self.carried_end
    }

    /// What is played.
    pub fn played(&self) -> Range<usize> {
        self.carried_end..self.played_end
    }

    /// Frees of what is live at the end.
    pub fn leftovers(&self) -> Range<usize> {
        self.played_end..self.steps.len()
    }

    /// Who does things.
    pub fn actors(&self) -> &[Actor] {
        &self.actors
    }

    /// Numbers of the threads, as logged.
    pub fn threads(&self) -> &[u64] {
        &self.threads
    }

    /// Streams, as logged.
    pub fn streams(&self) -> &[u64] {
        &self.streams
    }

    /// How many blocks are kept at a time.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Index of the thread that does a step.
    #[inline]
    pub(crate) fn thread_of(&self, step: Step) -> u32 {
        self.actors[step.actor()].thread
    }

    /// Index, from 0, of the event of the log that a carried or played step comes from.
    pub fn event_of(&self, step: usize) -> u64 {
        let after = self.stretches.partition_point(|stretch| stretch.step <= step);
        match after.checked_sub(1).map(|at| self.stretches[at]) {
            Some(stretch) => stretch.event + (step - stretch.step) as u64,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_small_and_keeps_what_it_is_given() {
        assert_eq!(size_of::<Step>(), 16);
        for act in [Act::Allocate, Act::Free, Act::Fail] {
            let step = Step::new(act, u32::MAX, u64::MAX, (1 << 30) - 1);
            assert_eq!(
                (step.act(), step.actor(), step.slot, step.bytes),
                (act, (1 << 30) - 1, u32::MAX, u64::MAX)
            );
        }
    }

    #[test]
    fn excerpts_name_the_options_that_choose_them() {
        let excerpt = Excerpt { process: ProcessId(2), device: NO_DEVICE, kind: Kind::Pinned };
        assert_eq!(excerpt.options(), "--process 2 --device none --kind pinned");
        assert_eq!(excerpt.to_string(), "process 2, no device, pinned memory");
    }
}
