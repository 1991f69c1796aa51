//! Plays a script in the order of its log, from one thread: the same every time.
//!
//! Invariant: a slot holds a block exactly between the allocation that filled it and the free that
//! takes it out, so every block is given back once, as it was handed out.
#![expect(unsafe_code, reason = "freeing memory is a promise that it is not used any more")]

use std::ops::{ControlFlow, Range};

use floodmark_resource::{ALIGNMENT, Address, Result, Stream, thread};
use floodmark_tail::clock::monotonic_ns;

use crate::pace::Pacer;
use crate::script::{Act, Script, Step};
use crate::stage::Stage;
use crate::watch::{Served, Watch};

/// What a slot holds that has no block: no address, since those are multiples of 256.
const EMPTY: u64 = 1;
/// Steps between two reports of progress.
const STEPS_PER_REPORT: usize = 1 << 16;

/// A script and the numbers under which its threads are played.
#[derive(Debug)]
pub(crate) struct Cast<'a> {
    pub(crate) script: &'a Script,
    pub(crate) numbers: Vec<u32>,
}

impl<'a> Cast<'a> {
    /// Takes a number for every thread. They stay the same for all that is played, so that a resource
    /// that goes by them does the same every time.
    pub(crate) fn new(script: &'a Script) -> Self {
        Self { script, numbers: script.threads().iter().map(|_| thread::reserve()).collect() }
    }
}

/// One play of a script.
#[derive(Debug)]
pub(crate) struct Player<'a> {
    cast: &'a Cast<'a>,
    stage: &'a Stage,
    blocks: Vec<u64>,
    pacer: Option<Pacer>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(cast: &'a Cast<'a>, stage: &'a Stage) -> Self {
        Self { cast, stage, blocks: vec![EMPTY; cast.script.slots()], pacer: None }
    }

    /// Waits for the time of every step from now on, at a multiple of the log's speed.
    pub(crate) fn keep_pace(&mut self, speed: Option<f64>) {
        self.pacer = speed.map(|speed| Pacer::new(monotonic_ns(), speed));
    }

    /// Plays a stretch of the script; breaks when `watch` does. Blocks may be left then, so that is for
    /// simulated memory only.
    pub(crate) fn play<W: Watch>(
        &mut self,
        range: Range<usize>,
        watch: &mut W,
        report: &mut dyn FnMut(u64),
    ) -> ControlFlow<()> {
        self.stage.attend();
        let script = self.cast.script;
        let (mut at, mut reported) = (range.start, range.start);
        while at < range.end {
            // One thread's steps up to the next that is another's.
            let thread = script.thread_of(script.steps[at]);
            let most = range.end.min(at + STEPS_PER_REPORT);
            let others = script.steps[at..most].iter().position(|step| script.thread_of(*step) != thread);
            let end = others.map_or(most, |others| at + others);
            thread::play(self.cast.numbers[thread as usize], || self.play_alone(at..end, watch))?;
            at = end;
            if at - reported >= STEPS_PER_REPORT {
                report((at - reported) as u64);
                reported = at;
            }
        }
        report((at - reported) as u64);
        ControlFlow::Continue(())
    }

    fn play_alone<W: Watch>(&mut self, range: Range<usize>, watch: &mut W) -> ControlFlow<()> {
        let script = self.cast.script;
        for at in range {
            let step = script.steps[at];
            if let Some(pacer) = self.pacer
                && let Some(due_ns) = script.due_ns.get(at - script.carried_end)
            {
                pacer.wait_until(*due_ns);
            }
            let stream = stream_of(script, self.stage, step);
            match step.act() {
                Act::Allocate => match watch.call(Act::Allocate, || allocate(self.stage, step.bytes, stream))
                {
                    Ok(address) => {
                        self.blocks[step.slot as usize] = address.0;
                        watch.allocated(at, step.bytes);
                    }
                    Err(error) => watch.failed(at, step.bytes, &error)?,
                },
                Act::Free => {
                    let block = std::mem::replace(&mut self.blocks[step.slot as usize], EMPTY);
                    if block != EMPTY {
                        // SAFETY: the slot held the block, which its allocation put there with the same
                        // bytes, and holds it no more; nothing uses the memory.
                        watch.call(Act::Free, || unsafe { free(self.stage, block, step.bytes, stream) });
                        watch.freed(at, step.bytes);
                    }
                }
                Act::Fail => watch.asked_again(ask_again(self.stage, step.bytes, stream)),
            }
        }
        ControlFlow::Continue(())
    }
}

#[inline]
pub(crate) fn stream_of(script: &Script, stage: &Stage, step: Step) -> Stream {
    stage.streams[script.actors[step.actor()].stream as usize]
}

#[inline]
pub(crate) fn allocate(stage: &Stage, bytes: u64, stream: Stream) -> Result<Address> {
    stage.resource().allocate(bytes, ALIGNMENT, stream)
}

/// Gives a block back.
///
/// # Safety
/// `block` came from [`allocate`] of the same stage with the same bytes, was not given back before, and
/// nothing uses it.
#[inline]
pub(crate) unsafe fn free(stage: &Stage, block: u64, bytes: u64, stream: Stream) {
    // SAFETY: the caller's promise; the alignment is the one that `allocate` asks for.
    unsafe { stage.resource().deallocate(Address(block), bytes, ALIGNMENT, stream) };
}

/// Asks for what was refused when the log was written. The log knows of no such block, so it goes back.
///
/// More than all the memory there is is not asked for: managed memory and that of the host would be
/// promised, and a device can stall over such a promise.
pub(crate) fn ask_again(stage: &Stage, bytes: u64, stream: Stream) -> Served {
    if bytes > stage.most_bytes {
        return Served::NotNow;
    }
    match allocate(stage, bytes, stream) {
        Ok(address) => {
            // SAFETY: it was just handed out with these bytes.
            unsafe { free(stage, address.0, bytes, stream) };
            Served::Now
        }
        Err(_) => Served::NotNow,
    }
}
