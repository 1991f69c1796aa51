//! From events to scripts.
//!
//! Frees are matched to allocations by [`LiveSet`], as in all analyses. What a script adds:
//! - A block whose address is allocated again is freed first, by the thread and on the stream that allocated it.
//! - A free of a block that is not live is counted and not played.
//! - Blocks that are live when the window begins are carried into it, in the order of their allocation.

use std::ops::ControlFlow;

use floodmark_analyze::{Block, End, Ending, Failure, Fold, Level, LiveSet, Space, UnmatchedFree};
use floodmark_event::{EventBatch, Filter, Kind, UNKNOWN_BYTES};
use rustc_hash::FxHashMap;

use crate::draft::{Draft, Origin};
use crate::error::{Error, Result};
use crate::script::{Excerpt, Script};

/// Which events to play, and what to keep of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadProps {
    /// Selects the blocks to play.
    pub filter: Filter,
    /// Whether to keep the times of events.
    pub pace: Pace,
}

/// Whether a script keeps the times of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Times are dropped.
    #[default]
    Forget,
    /// Times are kept, for 8 bytes a step.
    Keep,
}

/// Counts of all events, whether or not they are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events read.
    pub events_read: u64,
    /// Frees of blocks whose allocation was not recorded, where they would have been played.
    pub unmatched_frees: u64,
    /// Bytes of those blocks, as far as the frees stated them.
    pub unmatched_free_bytes: u64,
    /// Frees of the null address while nothing was live there.
    pub null_frees: u64,
}

/// Where a live block is in the scripts.
#[derive(Clone, Copy, Debug)]
struct Played {
    /// Index of the draft.
    draft: u32,
    slot: u32,
    /// Actor that allocated the block.
    actor: u32,
}

/// Turns events into scripts, one for each excerpt.
#[derive(Debug)]
pub struct Reading {
    live: LiveSet,
    scripts: ScriptFold,
}

impl Reading {
    /// Begins with nothing.
    pub fn new(props: &ReadProps) -> Self {
        Self { live: LiveSet::new(&props.filter), scripts: ScriptFold::new(props.pace) }
    }

    /// Takes in events; breaks when no further ones are wanted.
    ///
    /// # Errors
    /// [`Error::TooLong`] when there is no memory for more.
    pub fn update(&mut self, batch: &EventBatch) -> Result<ControlFlow<()>> {
        self.live.update(batch, &mut self.scripts);
        self.scripts.check()?;
        Ok(if self.live.is_past_window() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Returns what was counted so far.
    pub fn counts(&self) -> Counts {
        let counters = self.live.counters();
        Counts {
            events_read: self.live.rows(),
            unmatched_frees: counters.unmatched_frees,
            unmatched_free_bytes: self.scripts.unmatched_free_bytes,
            null_frees: counters.null_frees,
        }
    }

    /// Returns the scripts that have something to play, by excerpt.
    ///
    /// # Errors
    /// [`Error::TooLong`] when there is no memory for them.
    pub fn finish(mut self) -> Result<Vec<Script>> {
        self.live.open_window(&mut self.scripts);
        self.scripts.open();
        self.scripts.check()?;
        let duration_ns = self.scripts.due_ns(self.scripts.last_ns);
        let mut leftovers: Vec<Vec<&Block>> = vec![Vec::new(); self.scripts.drafts.len()];
        for block in self.live.blocks() {
            if let Some(played) = self.scripts.played.get(&block.order) {
                leftovers[played.draft as usize].push(block);
            }
        }
        let mut scripts = Vec::new();
        for (draft, mut blocks) in self.scripts.drafts.into_iter().zip(leftovers) {
            blocks.sort_unstable_by_key(|block| block.order);
            let free = |block: &&Block| {
                let Played { slot, actor, .. } = self.scripts.played[&block.order];
                (slot, block.bytes, actor)
            };
            let frees: Vec<_> = blocks.iter().map(free).collect();
            scripts.push(draft.finish(&frees, duration_ns)?);
        }
        scripts.retain(|script| script.summary.allocations + script.summary.carried_blocks > 0);
        scripts.sort_by_key(|script| script.excerpt);
        Ok(scripts)
    }
}

/// Writes scripts from the changes of live blocks.
#[derive(Debug)]
struct ScriptFold {
    pace: Pace,
    spaces: Vec<Space>,
    drafts: Vec<Draft>,
    draft_ids: FxHashMap<Excerpt, u32>,
    /// The draft met last; most events are of the same.
    last_draft: Option<(Excerpt, u32)>,
    /// Live blocks by their order.
    played: FxHashMap<u64, Played>,
    /// Whether an event in the window was met, so that nothing is carried any more.
    is_open: bool,
    /// The event that is coming in.
    origin: Origin,
    /// Time of the first event in the window, and the latest.
    first_ns: Option<i64>,
    last_ns: i64,
    unmatched_free_bytes: u64,
    /// What went wrong; nothing is written from then on.
    failed: Option<Error>,
}

impl ScriptFold {
    fn new(pace: Pace) -> Self {
        Self {
            pace,
            spaces: Vec::new(),
            drafts: Vec::new(),
            draft_ids: FxHashMap::default(),
            last_draft: None,
            played: FxHashMap::default(),
            is_open: false,
            origin: Origin { event: 0, due_ns: 0 },
            first_ns: None,
            last_ns: i64::MIN,
            unmatched_free_bytes: 0,
            failed: None,
        }
    }

    fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Ends what was carried into the window.
    fn open(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.drafts.iter_mut().for_each(Draft::end_carried);
        }
    }

    fn due_ns(&self, time_ns: i64) -> u64 {
        time_ns.saturating_sub(self.first_ns.unwrap_or(time_ns)).max(0) as u64
    }

    fn draft(&mut self, space: u32, kind: Kind) -> u32 {
        let Space { process, device, .. } = self.spaces[space as usize];
        let excerpt = Excerpt { process, device, kind };
        if let Some((last, id)) = self.last_draft
            && last == excerpt
        {
            return id;
        }
        let pace = self.pace;
        let id = *self.draft_ids.entry(excerpt).or_insert_with(|| {
            self.drafts.push(Draft::new(excerpt, pace));
            self.drafts.len() as u32 - 1
        });
        self.last_draft = Some((excerpt, id));
        id
    }

    /// Does a part of the work that may fail, unless something failed before.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) {
        if self.failed.is_none() {
            self.failed = work(self).err();
        }
    }

    fn begin(&mut self, block: &Block, origin: Origin) -> Result<()> {
        let draft = self.draft(block.space, block.kind);
        let state = &mut self.drafts[draft as usize];
        let actor = state.actor(block.thread, block.stream)?;
        let slot = state.allocate(block.bytes, actor, origin)?;
        self.played.insert(block.order, Played { draft, slot, actor });
        Ok(())
    }
}

impl Fold for ScriptFold {
    type Output = ();

    #[inline]
    fn event(&mut self, order: u64, time_ns: i64) {
        self.open();
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.origin = Origin { event: order - 1, due_ns: self.due_ns(time_ns) };
    }

    fn space(&mut self, _index: u32, space: Space) {
        self.spaces.push(space);
    }

    fn carried(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        self.attempt(|this| this.begin(block, Origin { event: block.order - 1, due_ns: 0 }));
    }

    fn alloc(&mut self, block: &Block, _level: &Level) {
        self.attempt(|this| {
            this.begin(block, this.origin)?;
            let summary = this.drafts[this.played[&block.order].draft as usize].summary();
            summary.events += 1;
            summary.allocations += 1;
            Ok(())
        });
    }

    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        let Some(Played { draft, slot, .. }) = self.played.remove(&block.order) else { return };
        self.attempt(|this| {
            let origin = this.origin;
            let draft = &mut this.drafts[draft as usize];
            let actor = draft.actor(ending.thread, ending.stream)?;
            let summary = draft.summary();
            summary.events += 1;
            summary.frees += 1;
            summary.size_mismatches +=
                u64::from(ending.bytes != block.bytes && ending.bytes != UNKNOWN_BYTES);
            draft.free(slot, block.bytes, actor, origin)
        });
    }

    fn replaced(&mut self, block: &Block, _time_ns: i64, _level: &Level) {
        let Some(Played { draft, slot, actor }) = self.played.remove(&block.order) else { return };
        self.attempt(|this| {
            let origin = this.origin;
            let draft = &mut this.drafts[draft as usize];
            draft.summary().replaced_blocks += 1;
            draft.summary().frees += 1;
            draft.free(slot, block.bytes, actor, origin)
        });
    }

    fn failure(&mut self, failure: &Failure) {
        self.attempt(|this| {
            let origin = this.origin;
            let draft = this.draft(failure.space, failure.kind);
            let draft = &mut this.drafts[draft as usize];
            let actor = draft.actor(failure.thread, failure.stream)?;
            draft.summary().events += 1;
            draft.summary().failures += 1;
            draft.fail(failure.bytes, actor, origin)
        });
    }

    fn unmatched_free(&mut self, free: &UnmatchedFree) {
        if free.bytes != UNKNOWN_BYTES {
            self.unmatched_free_bytes = self.unmatched_free_bytes.saturating_add(free.bytes);
        }
    }

    fn finish(&self, _end: &End<'_>) {}
}

/// Chooses the script to play: the only one, or the only one of device memory. Returns the excerpts of
/// the others too.
///
/// # Errors
/// [`Error::Nothing`] if there is none, [`Error::Several`] if the choice is not clear.
pub fn choose(mut scripts: Vec<Script>) -> Result<(Script, Vec<Excerpt>)> {
    let excerpts: Vec<Excerpt> = scripts.iter().map(Script::excerpt).collect();
    let of_devices: Vec<usize> =
        (0..excerpts.len()).filter(|at| excerpts[*at].kind == Kind::Device).collect();
    let chosen = match (excerpts.len(), of_devices.as_slice()) {
        (0, _) => return Err(Error::Nothing),
        (1, _) => 0,
        (_, [one]) => *one,
        _ => return Err(Error::Several(excerpts)),
    };
    let script = scripts.swap_remove(chosen);
    let others = excerpts.into_iter().filter(|excerpt| *excerpt != script.excerpt).collect();
    Ok((script, others))
}
