//! Stacks by verified replay of the thread's last walk: for recorders that ask millions of times a second.
//!
//! A walk is a function of the caller's registers and of the words of the stack that it read. Where all of these words are
//! what they were at the last walk, the stack is what it was, and nothing has to be unwound: comparing fifty words takes
//! less than unwinding three frames. Where only the outer ones are, the new walk goes by rules until it meets a frame of
//! the last one, and is joined to it there. Calls that take turns at several places of a program are recognized by the
//! same comparison with older walks from the same place (`ways`).
//!
//! Frames are kept outermost first, each with the node of its stack in the recording, so that what two walks share keeps
//! its nodes. Invariants: nothing is read but the thread's own stack between the stack pointer and the stack's end; nothing
//! here panics or allocates but in what [`ReplayProps::run_cold`] calls; all state is in memory that the caller provides, so
//! that a walk needs a few hundred bytes of the thread's stack.
#![expect(unsafe_code, reason = "reads the stack, and lives in memory that is mapped for it")]

mod verify;
mod ways;

use floodmark_event::StackId;
use floodmark_tail::{intern_stack, recording};

use crate::loader::{Loads, Modules};
use crate::recorded::FrameIds;
use crate::remembered::{RememberedRules, look_up};
use crate::rules::{Context, Kind, Rule, SAVED_BASE, SAVED_INSTRUCTION, SAVED_STACK};
use crate::walk::TRUST;
use crate::{MAX_FRAMES, system};
pub use verify::ReplayCheck;
use ways::Ways;

/// The most frames of a stack; what is further out is cut.
pub const MAX_REPLAY_FRAMES: usize = 512;

/// Stacks of the recording that a thread remembers by their caller's stack and their innermost return address.
const NODES: usize = 1 << 14;
/// Return addresses whose frames a thread remembers.
const FRAMES: usize = 1 << 12;

/// Bytes of stack that there must be for the unwinder of the language runtime.
const SYSTEM_STACK_BYTES: u64 = 32 << 10;

/// How a replay works.
#[derive(Clone, Copy, Debug)]
pub struct ReplayProps {
    /// Most frames of a stack, counted from the innermost; at most [`MAX_REPLAY_FRAMES`].
    pub depth: usize,
    /// Calls a function that needs some kilobytes of stack, may allocate, takes the loader's lock and reads files.
    pub run_cold: fn(&mut dyn FnMut()),
}

/// A word of the stack and what it held.
#[derive(Clone, Copy)]
#[repr(C)]
struct Probe {
    at: u64,
    value: u64,
}

impl Probe {
    const NONE: Self = Self { at: 0, value: 0 };

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn holds(self) -> bool {
        // SAFETY: the caller knows that the word is on the live part of the thread's stack.
        unsafe { std::ptr::with_exposed_provenance::<u64>(self.at as usize).read_volatile() == self.value }
    }
}

/// Where a walk is: in a function to which a call returns.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Position {
    /// Stack pointer after the return.
    sp: u64,
    /// Return address.
    ra: u64,
    /// Base pointer.
    base: u64,
}

/// A frame of the last walk.
#[derive(Clone, Copy)]
#[repr(C)]
struct Level {
    at: Position,
    /// Number of the stack from the outermost frame to this one in the recording.
    node: u32,
    /// How many of the probes, from the first, say that this frame and all outer ones are still there.
    probes: u16,
    /// Whether they also depend on the base pointer.
    needs_base: bool,
}

impl Level {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn is_at(&self, at: Position) -> bool {
        self.at.sp == at.sp && self.at.ra == at.ra && (!self.needs_base || self.at.base == at.base)
    }
}

/// A step of a walk that goes on: from a function to its caller.
#[derive(Clone, Copy)]
#[repr(C)]
struct Step {
    from: Position,
    /// Words that were read: the return address, where the frame is if that is not known from registers alone, and the
    /// caller's base pointer.
    returns: Probe,
    frame: Probe,
    base: Probe,
    uses_base: bool,
    reloads_base: bool,
}

impl Step {
    const fn new(from: Position) -> Self {
        let (returns, frame, base) = (Probe::NONE, Probe::NONE, Probe::NONE);
        Self { from, returns, frame, base, uses_base: false, reloads_base: false }
    }
}

/// What a step found.
enum Found {
    Caller(Position),
    /// There is no caller, or what should be the stack is not.
    End,
    /// There is no rule at the address.
    NoRule,
}

/// A stack that is remembered: `frame` called from `parent`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    ra: u64,
    parent: u32,
    id: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct FrameEntry {
    ra: u64,
    id: u32,
}

/// What needs an allocator, made when it is first needed.
struct Cold {
    modules: Modules,
    context: Context,
    frames: FrameIds,
}

/// What a thread needs to find its stacks; zeros are one that has not begun.
#[repr(C)]
pub struct Replay {
    /// Where the thread's stack begins and ends; both 0 if that is not known.
    low: u64,
    high: u64,
    run_cold: Option<fn(&mut dyn FnMut())>,
    depth: usize,
    /// Number of levels.
    count: usize,
    /// Whether the outermost level has callers that were cut.
    is_cut: bool,
    walks: u32,
    /// The recording whose numbers the nodes are.
    recording: u32,
    /// Whether the levels are those of an earlier stack than the one that was found last, at `last`.
    is_stale: bool,
    last: Position,
    cold: Option<Box<Cold>>,
    check: ReplayCheck,
    levels: [Level; MAX_REPLAY_FRAMES],
    probes: [Probe; 3 * MAX_REPLAY_FRAMES],
    steps: [Step; MAX_REPLAY_FRAMES],
    rules: RememberedRules,
    frames: [FrameEntry; FRAMES],
    nodes: [Node; NODES],
    ways: Ways,
    /// Return addresses of a stack that is checked, innermost first.
    fresh: [u64; MAX_REPLAY_FRAMES],
}

impl Replay {
    /// Begins one in memory that holds zeros, or again in one that another thread has left; touches only what is needed.
    ///
    /// # Safety
    /// The memory is valid and holds zeros or what this function has made. It is used by one thread at a time.
    pub unsafe fn begin_in(replay: *mut Self, props: ReplayProps) {
        // SAFETY: zeros are valid for all fields, and the memory is the caller's to give.
        unsafe {
            (*replay).run_cold = Some(props.run_cold);
            (*replay).depth = props.depth.clamp(1, MAX_REPLAY_FRAMES);
        }
    }

    /// Says where the stack of the calling thread is. On other stacks (of signal handlers and coroutines) only the
    /// function that asks is found, because their end is not known.
    pub fn set_stack(&mut self, low: u64, high: u64) {
        (self.low, self.high) = (low, high);
        self.count = 0;
        self.ways.forget();
    }

    /// Returns the stack of a function in the recording of this process, from its registers at a call: `stack` is where
    /// the return address of the call is, `base` its base pointer.
    ///
    /// # Safety
    /// The word at `stack` is on the stack of the calling thread, and what is above it belongs to functions that have not
    /// returned.
    #[inline]
    pub unsafe fn stack(&mut self, stack: u64, base: u64) -> StackId {
        // SAFETY: as the caller guarantees.
        if let Some(same) = unsafe { self.same_stack(stack, base) } {
            return same;
        }
        // SAFETY: as the caller guarantees.
        StackId(self.recognize(unsafe { position(stack, base) }))
    }

    /// Returns the stack if it is the one that was walked last. Never panics.
    ///
    /// # Safety
    /// As for [`stack`](Self::stack).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    pub unsafe fn same_stack(&mut self, stack: u64, base: u64) -> Option<StackId> {
        // SAFETY: as the caller guarantees.
        let at = unsafe { position(stack, base) };
        if let Some(last) = self.count.checked_sub(1).and_then(|last| self.levels.get(last))
            && last.is_at(at)
        {
            let probes = self.probes.get(..usize::from(last.probes)).unwrap_or_default();
            // Innermost first: that is where stacks differ.
            if probes.iter().rev().all(|probe| probe.holds()) {
                self.is_stale = false;
                return Some(StackId(last.node));
            }
        }
        None
    }

    /// Finds the stack at `at` among those that were walked before, or walks it.
    #[inline(never)]
    fn recognize(&mut self, at: Position) -> u32 {
        // Outside of the thread's own stack nothing was walked.
        if let Some(node) = self.ways.find(at) {
            (self.is_stale, self.last) = (true, at);
            return node;
        }
        let node = self.walk(at);
        if let Some(last) = self.count.checked_sub(1).map(|last| &self.levels[last]) {
            self.ways.keep(at, last, &self.probes[..usize::from(last.probes)]);
        }
        node
    }

    /// The return addresses of the stack that was found last, outermost first; none if it was not found by rules. To be
    /// called before the function that asked for the stack returns.
    pub fn return_addresses(&mut self) -> impl Iterator<Item = u64> {
        if self.is_stale {
            self.walk(self.last);
        }
        self.levels[..self.count].iter().map(|level| level.at.ra)
    }

    /// Returns the id in the recording of the frame that a return address is in; 0 if there is none.
    pub fn frame_id(&mut self, ra: u64) -> u32 {
        let place = (ra.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FRAMES.trailing_zeros())) as usize;
        if self.frames[place].ra != ra {
            let mut id = 0;
            self.on_cold(&mut |cold| id = cold.frames.frame(ra));
            self.frames[place] = FrameEntry { ra, id };
        }
        self.frames[place].id
    }

    /// Finds the stack at `at`, joining it to the last one.
    #[inline(never)]
    fn walk(&mut self, at: Position) -> u32 {
        self.is_stale = false;
        if at.sp < self.low || at.sp >= self.high {
            self.count = 0;
            return self.node(0, at.ra);
        }
        self.walks = self.walks.wrapping_add(1);
        if self.walks.is_multiple_of(TRUST) {
            self.forget_unloaded();
        }
        if self.recording != recording() {
            self.forget_stacks();
            self.recording = recording();
        }
        let Walked { new, kept, end } = self.steps(at);
        match end {
            Found::NoRule => self.without_rule(at, new),
            Found::Caller(_) | Found::End => {
                // Where nothing is kept and there is a caller, it was cut.
                if kept == 0 {
                    self.is_cut = matches!(end, Found::Caller(_));
                }
                self.extend(new, kept)
            }
        }
    }

    /// Goes from frame to frame by rules until it meets a level that is still there.
    fn steps(&mut self, mut at: Position) -> Walked {
        // Levels from the outermost that may be there, and that are known to be.
        let (mut kept, mut verified) = (self.count, 0);
        let mut new = 0;
        loop {
            // Levels inside of the stack pointer are gone.
            while kept > 0 && self.levels[kept - 1].at.sp < at.sp {
                kept -= 1;
            }
            if kept > 0 && self.can_join(kept + new) && self.levels[kept - 1].is_at(at) {
                if verified < kept {
                    kept = self.unchanged_levels(verified, kept);
                    verified = kept;
                }
                if kept > 0 && self.levels[kept - 1].is_at(at) {
                    return Walked { new, kept, end: Found::Caller(at) };
                }
            }
            if new == self.depth {
                return Walked { new, kept: 0, end: Found::Caller(at) };
            }
            let (step, found) = self.step(at);
            self.steps[new] = step;
            new += 1;
            // A step that found a module unloaded forgets all levels.
            kept = kept.min(self.count);
            match found {
                Found::Caller(caller) => at = caller,
                end => return Walked { new, kept: 0, end },
            }
        }
    }

    /// Whether a stack of `frames` frames that is joined to the levels is whole, or cut where it should be.
    #[inline]
    fn can_join(&self, frames: usize) -> bool {
        if self.is_cut { frames == self.depth } else { frames <= self.depth }
    }

    /// Returns how many of the first `levels` are still there, of which the first `verified` are known to be.
    fn unchanged_levels(&self, verified: usize, levels: usize) -> usize {
        let known = verified.checked_sub(1).map_or(0, |last| usize::from(self.levels[last].probes));
        let end = usize::from(self.levels[levels - 1].probes);
        let Some(changed) = self.probes[known..end].iter().position(|probe| !probe.holds()) else {
            return levels;
        };
        let changed = known + changed;
        self.levels[..levels].partition_point(|level| usize::from(level.probes) <= changed)
    }

    /// Puts the steps of a walk on top of the levels that are kept; returns the node of the whole.
    fn extend(&mut self, new: usize, kept: usize) -> u32 {
        let (mut node, mut probes, mut needs_base) = match kept.checked_sub(1).map(|last| &self.levels[last])
        {
            Some(level) => (level.node, usize::from(level.probes), level.needs_base),
            None => (0, 0, false),
        };
        for number in 0..new {
            let step = self.steps[new - 1 - number];
            for probe in [step.returns, step.frame] {
                if probe.at != 0 {
                    self.probes[probes] = probe;
                    probes += 1;
                }
            }
            // The saved base pointer matters only if an outer frame is found by it.
            if step.reloads_base && needs_base {
                self.probes[probes] = step.base;
                probes += 1;
            }
            needs_base = step.uses_base || (!step.reloads_base && needs_base);
            node = self.node(node, step.from.ra);
            self.levels[kept + number] = Level { at: step.from, node, probes: probes as u16, needs_base };
        }
        self.count = kept + new;
        node
    }

    /// Goes from a function to its caller.
    #[inline]
    fn step(&mut self, at: Position) -> (Step, Found) {
        let mut step = Step::new(at);
        // The call is before the address it returns to, which may belong to another function already.
        let rule = self.rule(at.ra.wrapping_sub(1));
        let offset = i64::from(rule.frame);
        let frame = match rule.kind {
            Kind::FromStack => at.sp.wrapping_add_signed(offset),
            Kind::FromBase => {
                step.uses_base = true;
                at.base.wrapping_add_signed(offset)
            }
            Kind::ThroughBase => {
                step.uses_base = true;
                let Some(probe) = self.read(at.base.wrapping_add_signed(offset), at.sp) else {
                    return (step, Found::End);
                };
                step.frame = probe;
                probe.value
            }
            Kind::Signal => return self.step_over_signal(step),
            Kind::Outermost => return (step, Found::End),
            Kind::Other => return (step, Found::NoRule),
        };
        let Some(returns) = self.read(frame.wrapping_sub(8), at.sp) else { return (step, Found::End) };
        let mut base = at.base;
        let saved_base = match rule.kind {
            Kind::ThroughBase => Some(at.base),
            _ => (rule.base != 0).then_some(frame),
        };
        if let Some(from) = saved_base {
            let Some(probe) = self.read(from.wrapping_add_signed(i64::from(rule.base) * 8), at.sp) else {
                return (step, Found::End);
            };
            (step.reloads_base, step.base, base) = (true, probe, probe.value);
        }
        step.returns = returns;
        if returns.value == 0 || frame <= at.sp {
            return (step, Found::End);
        }
        (step, Found::Caller(Position { sp: frame, ra: returns.value, base }))
    }

    /// Goes from the function that a signal handler returns to on to the one that the signal interrupted.
    #[cold]
    fn step_over_signal(&self, mut step: Step) -> (Step, Found) {
        let at = step.from;
        let saved = |offset: u64| self.read(at.sp.wrapping_add(offset), at.sp);
        let (Some(frame), Some(base), Some(instruction)) =
            (saved(SAVED_STACK), saved(SAVED_BASE), saved(SAVED_INSTRUCTION))
        else {
            return (step, Found::End);
        };
        (step.frame, step.base, step.returns, step.reloads_base) = (frame, base, instruction, true);
        if frame.value <= at.sp || frame.value >= self.high || instruction.value == 0 {
            return (step, Found::End);
        }
        // The frame was interrupted and is not in a call: its rule and its name are those of the very instruction.
        let ra = instruction.value.wrapping_add(1);
        (step, Found::Caller(Position { sp: frame.value, ra, base: base.value }))
    }

    /// Reads a word of the stack at or above `from`, which is on it.
    #[inline]
    fn read(&self, at: u64, from: u64) -> Option<Probe> {
        if at < from || at > self.high - 8 || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: between the stack pointer of a function that has not returned and the end of this thread's stack
        // everything is mapped, and the address is a multiple of 8.
        let value = unsafe { std::ptr::with_exposed_provenance::<u64>(at as usize).read_volatile() };
        Some(Probe { at, value })
    }

    /// Finds a stack that no rule leads through, with the unwinder of the language runtime. It is not remembered.
    #[cold]
    fn without_rule(&mut self, at: Position, new: usize) -> u32 {
        self.count = 0;
        let mut found = [0; MAX_FRAMES];
        if at.sp - self.low < SYSTEM_STACK_BYTES {
            return self.extend(new, 0);
        }
        // The slot of the return address is below the stack pointer after the return.
        let count = system::walk(at.sp - 8, &mut found);
        if count <= new {
            // It knows no caller either, and need not be asked again.
            if let Some(step) = new.checked_sub(1).map(|last| self.steps[last]) {
                self.rules.remember(step.from.ra.wrapping_sub(1), Rule::OUTERMOST);
            }
            return self.extend(new, 0);
        }
        let count = count.min(self.depth);
        found[..count].iter().rev().fold(0, |node, ra| self.node(node, *ra))
    }

    /// Returns the number of the stack in which `parent` calls the function that `ra` returns to.
    #[inline]
    fn node(&mut self, parent: u32, ra: u64) -> u32 {
        let key = (ra ^ u64::from(parent) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (key >> (64 - NODES.trailing_zeros())) as usize;
        let node = self.nodes[place];
        if node.ra == ra && node.parent == parent {
            return node.id;
        }
        self.meet(place, parent, ra)
    }

    #[inline(never)]
    fn meet(&mut self, place: usize, parent: u32, ra: u64) -> u32 {
        // 0 is none: the recording has ended or is full.
        let id = match self.frame_id(ra) {
            0 => 0,
            frame => intern_stack(StackId(parent), frame).0,
        };
        if id != 0 {
            self.nodes[place] = Node { ra, parent, id };
        }
        id
    }

    #[inline]
    fn rule(&mut self, address: u64) -> Rule {
        match self.rules.get(address) {
            Some(rule) => rule,
            None => self.find_rule(address),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_rule(&mut self, address: u64) -> Rule {
        if cfg!(not(target_arch = "x86_64")) {
            return Rule::OTHER;
        }
        let mut looked = None;
        self.on_cold(&mut |cold| looked = Some(look_up(address, &mut cold.modules, &mut cold.context)));
        let Some(looked) = looked else { return Rule::OTHER };
        let (rule, is_stale) = self.rules.learn(address, looked);
        if is_stale {
            self.forget_stacks();
        }
        rule
    }

    /// Calls `work` with what needs an allocator.
    #[cold]
    fn on_cold(&mut self, work: &mut dyn FnMut(&mut Cold)) {
        let (run, cold) = (self.run_cold, &mut self.cold);
        let mut work = || {
            let cold = cold.get_or_insert_with(|| {
                let (modules, frames) = (Modules::default(), FrameIds::default());
                Box::new(Cold { modules, context: Context::new_in(), frames })
            });
            work(cold);
        };
        match run {
            Some(run) => run(&mut work),
            None => work(),
        }
    }

    /// Forgets everything if a module was unloaded: there may be other code at its addresses now.
    pub fn forget_unloaded(&mut self) {
        let mut loads = None;
        self.on_cold(&mut |_| loads = Some(Loads::now()));
        if let Some(loads) = loads
            && self.rules.forget_unloaded(loads)
        {
            self.forget_stacks();
        }
    }

    #[cold]
    fn forget_stacks(&mut self) {
        self.count = 0;
        self.ways.forget();
        self.frames.fill(FrameEntry { ra: 0, id: 0 });
        self.nodes.fill(Node { ra: 0, parent: 0, id: 0 });
    }
}

/// Where a walk begins: `stack` is where the return address of a call is.
///
/// # Safety
/// As for [`Replay::stack`].
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
unsafe fn position(stack: u64, base: u64) -> Position {
    // SAFETY: as the caller guarantees.
    let ra = unsafe { std::ptr::with_exposed_provenance::<u64>(stack as usize).read_volatile() };
    Position { sp: stack + 8, ra, base }
}

/// What a walk found: `new` steps on top of the first `kept` levels, and how it ended.
struct Walked {
    new: usize,
    kept: usize,
    end: Found,
}
