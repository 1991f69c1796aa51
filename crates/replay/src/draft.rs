//! One script while it is being written.

use floodmark_resource::ALIGNMENT;
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::reading::Pace;
use crate::script::{Act, Actor, Excerpt, Script, Step, Stretch, Summary};

/// A script while it is being written.
#[derive(Debug)]
pub(crate) struct Draft {
    script: Script,
    pace: Pace,
    actor_ids: FxHashMap<(u64, u64), u32>,
    thread_ids: FxHashMap<u64, u32>,
    stream_ids: FxHashMap<u64, u32>,
    /// Slots that are empty; the last to be emptied is filled first, so that few are in use.
    empty: Vec<u32>,
    // Wide enough for any sum of sizes that a broken log may state.
    live_bytes: u128,
    rounded_bytes: u128,
    live_blocks: u64,
    peak_bytes: u128,
    peak_rounded_bytes: u128,
}

/// Where in the log a step comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Index of the event.
    pub(crate) event: u64,
    /// Nanoseconds after the first event.
    pub(crate) due_ns: u64,
}

/// Most steps a script has, so that an index is half a word.
const STEPS_MAX: usize = u32::MAX as usize;
/// Actors have 30 bits of a step.
const ACTORS_MAX: usize = 1 << 30;

impl Draft {
    pub(crate) fn new(excerpt: Excerpt, pace: Pace) -> Self {
        let script = Script {
            excerpt,
            steps: Vec::new(),
            due_ns: Vec::new(),
            stretches: Vec::new(),
            actors: Vec::new(),
            threads: Vec::new(),
            streams: Vec::new(),
            slots: 0,
            carried_end: 0,
            played_end: 0,
            peak_step: 0,
            summary: Summary::default(),
        };
        Self {
            script,
            pace,
            actor_ids: FxHashMap::default(),
            thread_ids: FxHashMap::default(),
            stream_ids: FxHashMap::default(),
            empty: Vec::new(),
            live_bytes: 0,
            rounded_bytes: 0,
            live_blocks: 0,
            peak_bytes: 0,
            peak_rounded_bytes: 0,
        }
    }

    pub(crate) fn summary(&mut self) -> &mut Summary {
        &mut self.script.summary
    }

    /// Index of a thread on a stream.
    pub(crate) fn actor(&mut self, thread: u64, stream: u64) -> Result<u32> {
        if let Some(actor) = self.actor_ids.get(&(thread, stream)) {
            return Ok(*actor);
        }
        let Script { actors, threads, streams, steps, .. } = &mut self.script;
        if actors.len() == ACTORS_MAX {
            return Err(Error::TooLong { events: steps.len() as u64 });
        }
        let actor = Actor {
            thread: *self.thread_ids.entry(thread).or_insert_with(|| index_of(threads, thread)),
            stream: *self.stream_ids.entry(stream).or_insert_with(|| index_of(streams, stream)),
        };
        let id = actors.len() as u32;
        actors.push(actor);
        self.actor_ids.insert((thread, stream), id);
        Ok(id)
    }

    /// Adds an allocation; returns its slot.
    pub(crate) fn allocate(&mut self, bytes: u64, actor: u32, origin: Origin) -> Result<u32> {
        let slot = self.empty.pop().unwrap_or_else(|| {
            self.script.slots += 1;
            (self.script.slots - 1) as u32
        });
        self.live_bytes += u128::from(bytes);
        self.rounded_bytes += rounded(bytes);
        self.live_blocks += 1;
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
            self.script.peak_step = self.script.steps.len();
            self.script.summary.peak_live_blocks = self.live_blocks;
        }
        self.peak_rounded_bytes = self.peak_rounded_bytes.max(self.rounded_bytes);
        let summary = &mut self.script.summary;
        summary.most_live_blocks = summary.most_live_blocks.max(self.live_blocks);
        summary.largest_bytes = summary.largest_bytes.max(bytes);
        self.push(Step::new(Act::Allocate, slot, bytes, actor), origin)?;
        Ok(slot)
    }

    /// Adds the free of an allocation.
    pub(crate) fn free(&mut self, slot: u32, bytes: u64, actor: u32, origin: Origin) -> Result<()> {
        self.live_bytes -= u128::from(bytes);
        self.rounded_bytes -= rounded(bytes);
        self.live_blocks -= 1;
        self.empty.push(slot);
        self.push(Step::new(Act::Free, slot, bytes, actor), origin)
    }

    /// Adds an allocation that failed.
    pub(crate) fn fail(&mut self, bytes: u64, actor: u32, origin: Origin) -> Result<()> {
        self.push(Step::new(Act::Fail, 0, bytes, actor), origin)
    }

    /// Says that all steps so far are of blocks from before the window.
    pub(crate) fn end_carried(&mut self) {
        self.script.carried_end = self.script.steps.len();
        self.script.summary.carried_blocks = self.live_blocks;
        self.script.due_ns.clear();
    }

    /// Ends the script with the frees of `leftovers`: slot, bytes and actor of what is live, in order.
    pub(crate) fn finish(mut self, leftovers: &[(u32, u64, u32)], duration_ns: u64) -> Result<Script> {
        self.script.played_end = self.script.steps.len();
        let clamp = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let summary = &mut self.script.summary;
        summary.peak_live_bytes = clamp(self.peak_bytes);
        summary.peak_rounded_bytes = clamp(self.peak_rounded_bytes);
        summary.live_bytes = clamp(self.live_bytes);
        summary.live_blocks = self.live_blocks;
        summary.duration_ns = duration_ns;
        reserve(&mut self.script.steps, leftovers.len())?;
        let frees = leftovers.iter().map(|(slot, bytes, actor)| Step::new(Act::Free, *slot, *bytes, *actor));
        self.script.steps.extend(frees);
        Ok(self.script)
    }

    fn push(&mut self, step: Step, origin: Origin) -> Result<()> {
        let script = &mut self.script;
        let at = script.steps.len();
        if at == script.steps.capacity() {
            reserve(&mut script.steps, 1)?;
        }
        let follows =
            script.stretches.last().is_some_and(|last| last.event + (at - last.step) as u64 == origin.event);
        if !follows {
            script.stretches.push(Stretch { step: at, event: origin.event });
        }
        script.steps.push(step);
        if self.pace == Pace::Keep {
            if script.due_ns.len() == script.due_ns.capacity() {
                let events = script.steps.len() as u64;
                script.due_ns.try_reserve(1).map_err(|_| Error::TooLong { events })?;
            }
            // Threads write their lines a little out of order.
            let before = script.due_ns.last().copied().unwrap_or(0);
            script.due_ns.push(origin.due_ns.max(before));
        }
        Ok(())
    }
}

fn index_of(list: &mut Vec<u64>, value: u64) -> u32 {
    list.push(value);
    list.len() as u32 - 1
}

fn reserve(steps: &mut Vec<Step>, more: usize) -> Result<()> {
    let too_long = Error::TooLong { events: steps.len() as u64 };
    if steps.len() + more > STEPS_MAX || steps.try_reserve(more).is_err() {
        return Err(too_long);
    }
    Ok(())
}

fn rounded(bytes: u64) -> u128 {
    u128::from(bytes).next_multiple_of(u128::from(ALIGNMENT))
}
