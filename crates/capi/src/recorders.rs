//! The numbers by which programs refer to their recorders.
//!
//! A number names a slot and how often recorders were started before, so it never comes back: a stopped or
//! invented one matches no slot. Invariants: a slot's number is what finds its writer, and is set last when a
//! recorder starts and taken first when it stops; only the thread that changed it from or to [`TAKEN`]
//! touches the recorder. No lock is held that a fork could leave locked in the child.
#![expect(unsafe_code, reason = "keeps recorders behind atomic pointers")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use floodmark_tail::{MAX_RECORDERS, RecordProps, Recorder, StartError, Writer, global};

use crate::abi::{ERROR_INTERNAL, GLOBAL};

/// Number of a slot without a recorder.
const FREE: u64 = 0;
/// Number of a slot whose recorder is being started or stopped. No recorder has it: they count from 1.
const TAKEN: u64 = 1;
/// Bits of a number that name the slot.
const SLOT_BITS: u32 = 8;
const _: () = assert!(MAX_RECORDERS < 1 << SLOT_BITS);

struct Slot {
    number: AtomicU64,
    writer: AtomicPtr<Writer>,
    recorder: AtomicPtr<Recorder>,
}

static SLOTS: [Slot; MAX_RECORDERS] = [const {
    Slot {
        number: AtomicU64::new(FREE),
        writer: AtomicPtr::new(null_mut()),
        recorder: AtomicPtr::new(null_mut()),
    }
}; MAX_RECORDERS];
/// The global recorder, if [`start_global`] started it.
static GLOBAL_RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Returns the writer of a recorder that has not been stopped.
#[inline]
pub(crate) fn find(number: u64) -> Option<&'static Writer> {
    if number == GLOBAL {
        return Some(global());
    }
    let slot = &SLOTS.get(number as usize & ((1 << SLOT_BITS) - 1))?;
    if number == TAKEN || slot.number.load(Ordering::Acquire) != number {
        return None;
    }
    // SAFETY: writers are statics, and the pointer was stored before the number.
    unsafe { slot.writer.load(Ordering::Relaxed).as_ref() }
}

/// Calls `work` with the writer of a recorder; returns the default if it was stopped or `work` panics.
#[inline]
pub(crate) fn with_writer<R: Default>(number: u64, work: impl FnOnce(&'static Writer) -> R) -> R {
    caught(R::default(), || find(number).map(work).unwrap_or_default())
}

/// Calls `work`; returns `otherwise` if it panics, because a panic must not enter the host program.
#[inline]
pub(crate) fn caught<R>(otherwise: R, work: impl FnOnce() -> R) -> R {
    // Nothing is left half done that a later call relies on: the recorder commits records as a whole.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            // The payload's destructor could panic again.
            std::mem::forget(payload);
            otherwise
        }
    }
}

/// Like [`caught`], for functions that return a status.
pub(crate) fn caught_status(work: impl FnOnce() -> i32) -> i32 {
    caught(None, || Some(work())).unwrap_or_else(|| {
        crate::last_error::set(&"the recorder failed unexpectedly: this is a defect of Floodmark");
        ERROR_INTERNAL
    })
}

fn take_slot() -> Option<(u64, &'static Slot)> {
    let take =
        |slot: &Slot| slot.number.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    (0..).zip(&SLOTS).find(|(_, slot)| take(slot))
}

/// Starts a recorder and returns its number.
pub(crate) fn start(props: RecordProps) -> Result<u64, StartError> {
    let (index, slot) = take_slot().ok_or(StartError::TooManyRecorders)?;
    let recorder = match Recorder::start(props) {
        Ok(recorder) => recorder,
        Err(error) => {
            slot.number.store(FREE, Ordering::Release);
            return Err(error);
        }
    };
    let number = (STARTED.fetch_add(1, Ordering::Relaxed) + 1) << SLOT_BITS | index;
    slot.writer.store(std::ptr::from_ref(recorder.writer()).cast_mut(), Ordering::Relaxed);
    slot.recorder.store(Box::into_raw(Box::new(recorder)), Ordering::Relaxed);
    slot.number.store(number, Ordering::Release);
    Ok(number)
}

/// Stops a recorder; returns whether there was one.
pub(crate) fn stop(number: u64) -> bool {
    let Some(slot) = SLOTS.get(number as usize & ((1 << SLOT_BITS) - 1)) else { return false };
    let is_number = number > TAKEN;
    if !is_number || slot.number.compare_exchange(number, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return false;
    }
    drop_recorder(slot.recorder.swap(null_mut(), Ordering::AcqRel));
    slot.number.store(FREE, Ordering::Release);
    true
}

/// Starts the global recording.
pub(crate) fn start_global(props: RecordProps) -> Result<(), StartError> {
    let recorder = Box::into_raw(Box::new(Recorder::start_global(props)?));
    // A recorder that is still there has ended, or this one could not have started.
    drop_recorder(GLOBAL_RECORDER.swap(recorder, Ordering::AcqRel));
    Ok(())
}

/// Stops the global recording if [`start_global`] started it; returns whether it did.
pub(crate) fn stop_global() -> bool {
    drop_recorder(GLOBAL_RECORDER.swap(null_mut(), Ordering::AcqRel))
}

fn drop_recorder(recorder: *mut Recorder) -> bool {
    if recorder.is_null() {
        return false;
    }
    // SAFETY: made by `Box::into_raw`, and the caller took it out of its place, so nothing else has it.
    drop(unsafe { Box::from_raw(recorder) });
    true
}
