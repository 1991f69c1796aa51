//! The mode that charges changes of the resident size to lines: the interpreter says when a thread comes to another line
//! or leaves a function, and where the size has changed since the event before, the stack of that event is recorded.
//!
//! What a line does is over when the next event comes. So a thread keeps the place of its latest event: a frame, and where
//! it was in its code. At the next event the frame is still there, because an event comes before a frame is left.
#![expect(unsafe_code, reason = "walks the frames of the calling thread")]

use floodmark_event::sample::Metric;
use floodmark_tail::{self as tail, When};
use pyo3::ffi;

use super::{Thread, Tracer, faults, layout};

/// Pages that the kernel maps at one fault, as it does for files.
const PAGES_PER_FAULT: u64 = 16;
/// How long growth waits for an event of the thread that touched the memory: that thread may have lost the interpreter's
/// lock to another one right after.
const PATIENCE_NS: u64 = 50_000_000;

/// A frame of the interpreter, and a place in its code: the byte offset of an instruction, or a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodePlace {
    frame: usize,
    place: i32,
}

impl CodePlace {
    /// Returns the place of a thread that had no event.
    pub(super) const fn nowhere() -> Self {
        Self { frame: 0, place: 0 }
    }

    /// Returns the place of a function that goes on when the one it called is left.
    ///
    /// # Safety
    /// `frame` is a frame of the calling thread.
    unsafe fn of_caller(mut frame: *const u8) -> Self {
        // SAFETY: the caller's promise; frames that stand for native code are passed over.
        unsafe {
            while let Some(caller) = layout::previous(frame) {
                if let Some((_, place)) = layout::code_of(caller) {
                    return Self { frame: caller.addr(), place };
                }
                frame = caller;
            }
        }
        Self::nowhere()
    }
}

/// Returns a line as a place; offsets of instructions are -1 or more.
const fn place_of_line(line: u32) -> i32 {
    -2 - (line & 0x3fff_ffff) as i32
}

/// Returns the line of a place that is one, and none for the offset of an instruction.
pub(super) const fn line_of_place(place: i32) -> Option<u32> {
    if place < -1 { Some(place.wrapping_add(2).unsigned_abs()) } else { None }
}

impl Tracer {
    /// Records the size at which the trace begins: changes are counted from it.
    pub(super) fn begin_lines(&mut self) {
        self.reported_pages = self.rss_pages;
        self.record_size();
    }

    pub(super) fn end_lines(&mut self) {
        self.record_size();
    }

    fn record_size(&mut self) {
        self.subject = crate::monitor::own_subject();
        let pages = super::statm::resident_pages();
        tail::sample(self.subject, Metric::Rss, u64::from(pages) * 4096, When::Now);
    }

    /// Takes the event that the calling thread comes to a line.
    ///
    /// # Safety
    /// The interpreter is attached and runs the function that comes to the line.
    #[inline]
    pub(super) unsafe fn line_event(&mut self, line: u32) {
        // SAFETY: the caller's promise.
        let Some(frame) = (unsafe { layout::current_frame(ffi::PyThreadState_Get()) }) else { return };
        self.come_to(frame, CodePlace { frame: frame.addr(), place: place_of_line(line) });
    }

    /// Takes the event that the calling thread leaves a function, for good or until it is resumed.
    ///
    /// # Safety
    /// The interpreter is attached and runs the function still.
    #[inline]
    pub(super) unsafe fn leave_event(&mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(frame) = layout::current_frame(ffi::PyThreadState_Get()) else { return };
            self.come_to(frame, CodePlace::of_caller(frame));
        }
    }

    #[inline]
    fn come_to(&mut self, frame: *const u8, place: CodePlace) {
        let ticks = tail::ticks();
        let Some(thread) = self.unchanged_thread(ticks).or_else(|| self.refresh(ticks)) else { return };
        self.events += 1;
        let before = thread.place.replace(place);
        if self.rss_pages.abs_diff(self.reported_pages) >= self.trigger_pages
            && (!self.has_switched || self.is_charged(thread, ticks))
        {
            self.uncharged_since = 0;
            self.has_switched = false;
            thread.own_faults.set(0);
            self.record_line(frame, before);
        }
    }

    /// Whether a change is charged to this one of several threads: a release, which nothing says whose it is; growth that
    /// its page faults explain; or growth that no thread has had an event for in the meantime.
    #[cold]
    fn is_charged(&mut self, thread: &Thread, ticks: u64) -> bool {
        let explained = thread.own_faults.get().saturating_mul(PAGES_PER_FAULT);
        if u64::from(self.rss_pages) <= u64::from(self.reported_pages).saturating_add(explained) {
            return true;
        }
        if self.uncharged_since == 0 {
            self.uncharged_since = ticks;
        }
        ticks.wrapping_sub(self.uncharged_since) > tail::ticks_in(PATIENCE_NS)
    }

    /// Records the stack of the place where the size has changed, at an event in `frame`.
    #[cold]
    fn record_line(&mut self, frame: *const u8, before: CodePlace) {
        if self.subject.0 == 0 {
            // A forked child: what changed before its first event is the parent's.
            self.reported_pages = self.rss_pages;
            self.record_size();
            return;
        }
        // The function itself, or one around it which has called it since.
        let mut changed = Some(frame);
        while let Some(at) = changed
            && at.addr() != before.frame
        {
            // SAFETY: a frame of the calling thread's chain.
            changed = unsafe { layout::previous(at) };
        }
        // SAFETY: as above; the chain does not change during an event.
        let stack = unsafe {
            match changed {
                Some(at) if at == frame => faults::stack_from(changed, Some(before.place)),
                Some(_) => faults::stack_from(changed, None),
                None => faults::stack_from(Some(frame), None),
            }
        };
        faults::record_stack(self.subject, faults::current_thread(), stack, self.rss_pages);
        self.reported_pages = self.rss_pages;
        self.recorded += 1;
    }
}
