//! From events to scripts: matches frees to allocations, once.
//!
//! A block is found by process, device, resource and address, as all analyses find it:
//! - An allocation at an address that is still live ends the earlier block first: its free was not seen.
//!   The made-up free is on the thread and stream that allocated the block.
//! - Any number of blocks may be live at the null address; a free of it ends the newest.
//! - A free of a block that is not live is counted and passed over.
//! - Blocks that are not selected because of their thread, stream or kind are followed all the same, so
//!   that their frees are not taken for frees of unknown blocks.
//! - Blocks that are live when the window begins are carried into it, in the order of their allocation.

use std::ops::ControlFlow;

use floodmark_event::units::Instant;
use floodmark_event::{Action, Event, EventBatch, Kind, ProcessId, StringId, UNKNOWN_BYTES};
use rustc_hash::FxHashMap;

use crate::draft::{Draft, Origin};
use crate::error::{Error, Result};
use crate::script::{Excerpt, Script};

/// Which events to play; `None` means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadProps {
    /// Processes.
    pub processes: Option<Vec<ProcessId>>,
    /// Devices.
    pub devices: Option<Vec<i32>>,
    /// Threads that allocated.
    pub threads: Option<Vec<u64>>,
    /// Streams on which was allocated.
    pub streams: Option<Vec<u64>>,
    /// Kinds, of the allocation.
    pub kinds: Option<Vec<Kind>>,
    /// First instant of the window.
    pub from: Option<Instant>,
    /// Last instant of the window.
    pub to: Option<Instant>,
    /// Whether to keep the times of events.
    pub pace: Pace,
}

/// Whether a script knows when things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// It does not.
    #[default]
    Forget,
    /// It does, for 8 bytes a step.
    Keep,
}

impl ReadProps {
    fn selects_space(&self, process: ProcessId, device: i32) -> bool {
        within(self.processes.as_ref(), &process) && within(self.devices.as_ref(), &device)
    }

    fn selects(&self, event: &Event) -> bool {
        self.selects_space(event.process, event.device)
            && within(self.threads.as_ref(), &event.thread)
            && within(self.streams.as_ref(), &event.stream)
            && within(self.kinds.as_ref(), &event.kind)
    }
}

fn within<T: PartialEq>(list: Option<&Vec<T>>, value: &T) -> bool {
    list.is_none_or(|list| list.contains(value))
}

/// What was counted of all events, whoever's they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events read.
    pub events_read: u64,
    /// Frees of blocks whose allocation was not seen, where they would have been played.
    pub unmatched_frees: u64,
    /// Bytes of those, as far as their callers said.
    pub unmatched_free_bytes: u64,
    /// Frees of the null address while nothing was live there.
    pub null_frees: u64,
}

/// A live block.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// Index of the draft; [`UNSELECTED`] if it is not played.
    draft: u32,
    slot: u32,
    actor: u32,
    bytes: u64,
    /// Index of the event that allocated it.
    event: u64,
}

const UNSELECTED: u32 = u32::MAX;
/// The slot of a block that was allocated before the window.
const CARRIED: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Space {
    live: FxHashMap<u64, Live>,
    nulls: Vec<Live>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Inside,
    Past,
}

/// Turns events into scripts, one for each excerpt.
#[derive(Debug)]
pub struct Reading {
    props: ReadProps,
    phase: Phase,
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    /// Time of the first row of all, then of the first in the window.
    first_ns: Option<i64>,
    last_ns: i64,
    counts: Counts,
    spaces: Vec<Space>,
    space_ids: FxHashMap<(ProcessId, i32, StringId), u32>,
    drafts: Vec<Draft>,
    draft_ids: FxHashMap<Excerpt, u32>,
    /// The space and draft met last; most events are of the same.
    last_space: Option<((ProcessId, i32, StringId), u32)>,
    last_draft: Option<(Excerpt, u32)>,
}

impl Reading {
    /// Begins with nothing.
    pub fn new(props: ReadProps) -> Self {
        Self {
            props,
            phase: Phase::Before,
            from_ns: None,
            to_ns: None,
            first_ns: None,
            last_ns: i64::MIN,
            counts: Counts::default(),
            spaces: Vec::new(),
            space_ids: FxHashMap::default(),
            drafts: Vec::new(),
            draft_ids: FxHashMap::default(),
            last_space: None,
            last_draft: None,
        }
    }

    /// Takes in events; breaks when no further ones are wanted.
    ///
    /// # Errors
    /// [`Error::TooLong`] when there is no memory for more.
    pub fn update(&mut self, batch: &EventBatch) -> Result<ControlFlow<()>> {
        for event in batch.events() {
            self.enter_window(event.time_ns)?;
            if self.phase == Phase::Past {
                return Ok(ControlFlow::Break(()));
            }
            self.take(&event)?;
            self.counts.events_read += 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The scripts that have something to play, by excerpt.
    ///
    /// # Errors
    /// [`Error::TooLong`] when there is no memory for them.
    pub fn finish(mut self) -> Result<Vec<Script>> {
        if self.phase == Phase::Before {
            self.open_window()?;
        }
        let duration_ns = self.due_ns(self.last_ns);
        let mut leftovers: Vec<Vec<Live>> = vec![Vec::new(); self.drafts.len()];
        for live in self.spaces.iter().flat_map(|space| space.live.values().chain(&space.nulls)) {
            if live.draft != UNSELECTED {
                leftovers[live.draft as usize].push(*live);
            }
        }
        let mut scripts = Vec::new();
        for (draft, mut blocks) in self.drafts.into_iter().zip(leftovers) {
            blocks.sort_unstable_by_key(|live| live.event);
            let frees: Vec<_> = blocks.iter().map(|live| (live.slot, live.bytes, live.actor)).collect();
            scripts.push(draft.finish(&frees, duration_ns)?);
        }
        scripts.retain(|script| script.summary.allocations + script.summary.carried_blocks > 0);
        scripts.sort_by_key(|script| script.excerpt);
        Ok(scripts)
    }

    /// Opens and closes the window as time goes by.
    fn enter_window(&mut self, time_ns: i64) -> Result<()> {
        if self.first_ns.is_none() {
            let resolve = |instant: Instant| match instant {
                Instant::At(at_ns) => at_ns,
                Instant::AfterStart(ns) => time_ns.saturating_add_unsigned(ns),
            };
            self.from_ns = self.props.from.map(resolve);
            self.to_ns = self.props.to.map(resolve);
            self.first_ns = Some(time_ns);
        }
        if self.phase == Phase::Before && self.from_ns.is_none_or(|from_ns| time_ns >= from_ns) {
            self.open_window()?;
            self.first_ns = Some(time_ns);
        }
        if self.to_ns.is_some_and(|to_ns| time_ns > to_ns) {
            if self.phase == Phase::Before {
                self.open_window()?;
            }
            self.phase = Phase::Past;
        } else {
            self.last_ns = self.last_ns.max(time_ns);
        }
        Ok(())
    }

    /// Begins to play: what is live comes first.
    fn open_window(&mut self) -> Result<()> {
        self.phase = Phase::Inside;
        let mut blocks: Vec<&mut Live> = self
            .spaces
            .iter_mut()
            .flat_map(|space| space.live.values_mut().chain(&mut space.nulls))
            .filter(|live| live.draft != UNSELECTED)
            .collect();
        blocks.sort_unstable_by_key(|live| live.event);
        for live in blocks {
            let origin = Origin { event: live.event, due_ns: 0 };
            live.slot = self.drafts[live.draft as usize].allocate(live.bytes, live.actor, origin)?;
        }
        self.drafts.iter_mut().for_each(Draft::end_carried);
        Ok(())
    }

    fn due_ns(&self, time_ns: i64) -> u64 {
        time_ns.saturating_sub(self.first_ns.unwrap_or(time_ns)).max(0) as u64
    }

    fn take(&mut self, event: &Event) -> Result<()> {
        if !self.props.selects_space(event.process, event.device) {
            return Ok(());
        }
        let origin = Origin { event: self.counts.events_read, due_ns: self.due_ns(event.time_ns) };
        let inside = self.phase == Phase::Inside;
        let space = self.space(event);
        match event.action {
            Action::Alloc => self.alloc(space, event, origin),
            Action::Free => {
                let state = &mut self.spaces[space as usize];
                let ended =
                    if event.address == 0 { state.nulls.pop() } else { state.live.remove(&event.address) };
                match ended {
                    Some(live) => self.free(live, event, origin),
                    None => {
                        if inside {
                            self.unmatched(event);
                        }
                        Ok(())
                    }
                }
            }
            Action::Failure if inside && self.props.selects(event) => {
                let draft = self.draft(event);
                let draft = &mut self.drafts[draft as usize];
                let actor = draft.actor(event.thread, event.stream)?;
                draft.summary().events += 1;
                draft.summary().failures += 1;
                draft.fail(event.bytes, actor, origin)
            }
            Action::Failure => Ok(()),
        }
    }

    fn alloc(&mut self, space: u32, event: &Event, origin: Origin) -> Result<()> {
        let inside = self.phase == Phase::Inside;
        let mut block =
            Live { draft: UNSELECTED, slot: CARRIED, actor: 0, bytes: event.bytes, event: origin.event };
        if event.address != 0
            && let Some(earlier) = self.spaces[space as usize].live.remove(&event.address)
        {
            self.replace(earlier, origin)?;
        }
        if self.props.selects(event) {
            block.draft = self.draft(event);
            let draft = &mut self.drafts[block.draft as usize];
            block.actor = draft.actor(event.thread, event.stream)?;
            if inside {
                draft.summary().events += 1;
                draft.summary().allocations += 1;
                block.slot = draft.allocate(event.bytes, block.actor, origin)?;
            }
        }
        let state = &mut self.spaces[space as usize];
        if event.address == 0 {
            state.nulls.push(block);
        } else {
            state.live.insert(event.address, block);
        }
        Ok(())
    }

    fn replace(&mut self, earlier: Live, origin: Origin) -> Result<()> {
        if self.phase != Phase::Inside || earlier.draft == UNSELECTED {
            return Ok(());
        }
        let draft = &mut self.drafts[earlier.draft as usize];
        draft.summary().replaced_blocks += 1;
        draft.summary().frees += 1;
        draft.free(earlier.slot, earlier.bytes, earlier.actor, origin)
    }

    fn free(&mut self, live: Live, event: &Event, origin: Origin) -> Result<()> {
        if self.phase != Phase::Inside || live.draft == UNSELECTED {
            return Ok(());
        }
        let draft = &mut self.drafts[live.draft as usize];
        let actor = draft.actor(event.thread, event.stream)?;
        let summary = draft.summary();
        summary.events += 1;
        summary.frees += 1;
        summary.size_mismatches += u64::from(event.bytes != live.bytes && event.bytes != UNKNOWN_BYTES);
        draft.free(live.slot, live.bytes, actor, origin)
    }

    fn unmatched(&mut self, event: &Event) {
        // Many sources do not state the kind on frees.
        let kind_passes = event.kind == Kind::Unknown || within(self.props.kinds.as_ref(), &event.kind);
        let origin_passes = within(self.props.threads.as_ref(), &event.thread)
            && within(self.props.streams.as_ref(), &event.stream);
        if !kind_passes || !origin_passes {
            return;
        }
        if event.address == 0 {
            self.counts.null_frees += 1;
            return;
        }
        self.counts.unmatched_frees += 1;
        if event.bytes != UNKNOWN_BYTES {
            self.counts.unmatched_free_bytes = self.counts.unmatched_free_bytes.saturating_add(event.bytes);
        }
    }

    fn space(&mut self, event: &Event) -> u32 {
        let key = (event.process, event.device, event.resource);
        if let Some((last, id)) = self.last_space
            && last == key
        {
            return id;
        }
        let id = *self.space_ids.entry(key).or_insert_with(|| {
            self.spaces.push(Space::default());
            self.spaces.len() as u32 - 1
        });
        self.last_space = Some((key, id));
        id
    }

    fn draft(&mut self, event: &Event) -> u32 {
        let excerpt = Excerpt { process: event.process, device: event.device, kind: event.kind };
        if let Some((last, id)) = self.last_draft
            && last == excerpt
        {
            return id;
        }
        let pace = self.props.pace;
        let id = *self.draft_ids.entry(excerpt).or_insert_with(|| {
            self.drafts.push(Draft::new(excerpt, pace));
            self.drafts.len() as u32 - 1
        });
        self.last_draft = Some((excerpt, id));
        id
    }
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
