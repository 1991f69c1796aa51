//! Runs of adjacent pages that one line touches, as code does that fills an array: the kernel then signals every
//! 16th page instead of each, because a signal takes longer than the page fault itself.
//!
//! What is lost is the instant at which a page was touched, not its line: the pages that a run touched after its last
//! signal are counted, see [`Run::end`], and charged to it. Everything here is async-signal-safe.
#![expect(unsafe_code, reason = "asks the kernel which pages are resident")]

use std::ffi::c_int;

use floodmark_event::StackId;
use floodmark_tail::perf;

/// Bytes of a page; runs are not followed where a page has another size.
pub(super) const PAGE: usize = 4096;
/// Signals in a row from which on they are a run.
const LONG_RUN: u32 = 16;
/// Page faults from one signal to the next during a run.
const RUN_PERIOD: usize = 16;

/// What the latest signals of a thread had in common.
pub(super) struct Run {
    stack: StackId,
    /// The page that the latest signal was about.
    page: usize,
    signals: u32,
    /// Whether the kernel signals every [`RUN_PERIOD`]th page fault.
    is_coarse: bool,
    /// Which pages behind `page` were resident at the latest signal, the next one in the lowest bit.
    resident: u32,
}

impl Run {
    pub(super) const fn new() -> Self {
        Self { stack: StackId(0), page: 0, signals: 0, is_coarse: false, resident: 0 }
    }

    /// Whether the kernel signals only some of the pages.
    pub(super) const fn is_coarse(&self) -> bool {
        self.is_coarse
    }

    /// Takes a signal about an address in the function and line of `stack`; `event` is the descriptor of the thread's
    /// event, or negative. Returns the stack of the run that this ended, and how many pages it touched since its last
    /// signal.
    pub(super) fn follow(&mut self, event: c_int, stack: StackId, address: usize) -> Option<(StackId, u32)> {
        let page = address & !(PAGE - 1);
        let step = page.wrapping_sub(self.page);
        // After a change of the period the kernel signals the next page or two, and then one that is a page earlier.
        let most = if self.is_coarse { RUN_PERIOD } else { 1 };
        let is_next = (PAGE..=most * PAGE).contains(&step);
        let mut ended = None;
        if stack != self.stack || stack.0 == 0 || !is_next {
            ended = self.end(event);
            self.stack = stack;
            self.signals = 0;
        }
        self.page = page;
        self.signals = self.signals.saturating_add(1);
        if self.signals == LONG_RUN && event >= 0 {
            self.is_coarse = perf::set_period(event, RUN_PERIOD as u64);
        }
        if self.is_coarse {
            self.resident = resident_after(page);
        }
        ended
    }

    /// Ends a run, so that every page is signaled again. Returns its stack and how many pages it touched since its last
    /// signal; they are known by having become resident, one after the other, behind the page of that signal.
    pub(super) fn end(&mut self, event: c_int) -> Option<(StackId, u32)> {
        self.signals = 0;
        if !std::mem::take(&mut self.is_coarse) {
            return None;
        }
        perf::set_period(event, 1);
        let touched = (1 << resident_after(self.page).trailing_ones()) - 1;
        Some((self.stack, (touched & !self.resident).count_ones()))
    }
}

/// Returns which of the pages that can be touched between two signals of a run are resident, the next one in the lowest bit.
fn resident_after(page: usize) -> u32 {
    let mut found = [0u8; RUN_PERIOD - 1];
    // SAFETY: the kernel writes a byte per page into the array. Where memory ends, the rest stays 0.
    unsafe {
        let first = std::ptr::without_provenance_mut(page.wrapping_add(PAGE));
        libc::mincore(first, found.len() * PAGE, found.as_mut_ptr());
    }
    found.iter().rev().fold(0, |pages, byte| pages << 1 | u32::from(byte & 1))
}
