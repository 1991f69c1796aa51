//! Starts the recording of a process, by its first allocation, when the library is loaded, or for CUDA.

use std::path::Path;
use std::sync::atomic::Ordering;

use floodmark_event::tables::Frame;
use floodmark_event::{Kind, NO_DEVICE, REALLOC};
use floodmark_tail::heap::{
    HEAP_NOTE, HeapMode, HeapNote, MALLOC_RESOURCE, MMAP_RESOURCE, PYMALLOC_RESOURCE,
};
use floodmark_tail::reader::LossReason;
use floodmark_tail::{AllocDomain, RecordProps, Recorder, calibrate_later, global, intern, intern_frame};

use super::lanes::thread_ends;
use super::{
    AT_LEAST, EARLY, EVERY, NEW, OFF, ON, SAMPLE, SELECTION, STARTED, STARTING, STATE, Selection, Stacks,
    Started, report_checks,
};
use crate::cold::run_cold;
use crate::config::{self, Config};
use crate::fence::{fence, silence_panics};
use crate::next::prepare_for_children;
use crate::pid_lock::remember_pid;
use crate::python::{self, Python};
use crate::thread::{Inside, current};
use crate::{hooks, next};

/// Starts the recording if that was not tried yet; returns whether the process is recorded now.
#[cold]
#[inline(never)]
pub(crate) fn start() -> bool {
    if STATE.load(Ordering::Relaxed) == OFF {
        return false;
    }
    let thread = current();
    if thread.inside.get() != Inside::No
        || STATE.compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        if thread.inside.get() == Inside::No {
            EARLY.fetch_add(1, Ordering::Relaxed);
        }
        return STATE.load(Ordering::Acquire) == ON;
    }
    let mut state = OFF;
    fence(|| {
        run_cold(&mut || {
            if config::read().is_some_and(|config| begin(&config)) {
                state = ON;
            }
        });
    });
    STATE.store(state, Ordering::Release);
    if state == ON {
        global().lose(LossReason::Nested, u64::from(EARLY.swap(0, Ordering::Relaxed)));
    }
    state == ON
}

/// Starts the recording into `trace`, with stacks of at most so many frames, or without.
fn begin_recording(trace: &Path, stacks: Stacks, selection: Selection) -> Option<Started> {
    silence_panics();
    remember_pid();
    calibrate_later();
    prepare_for_children();
    let mut key = 0;
    // SAFETY: the place is valid, and the function stays loaded: this library is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    let recorder = Recorder::start_global(RecordProps::new(trace)).ok()?;
    recorder.detach();
    let domain = |kind, resource| AllocDomain {
        device: NO_DEVICE,
        kind,
        stream: 0,
        resource: intern(resource),
        name: intern(REALLOC),
    };
    let python = find_python();
    Some(Started {
        selection,
        heap: domain(Kind::Pageable, MALLOC_RESOURCE),
        mappings: domain(Kind::Mapped, MMAP_RESOURCE),
        objects: domain(Kind::Pageable, PYMALLOC_RESOURCE),
        python_version: python.map(|python| python.version),
        python: if matches!(stacks, Stacks::On { .. }) { python } else { None },
        stacks,
        key,
    })
}

/// Starts the recording for a recorder of something else than the heap, unless the heap is recorded already; returns
/// whether the process is recorded now. Callers see to it that one thread at a time calls this.
pub(crate) fn start_recording(trace: &Path, depth: Option<u32>) -> bool {
    if STARTED.get().is_none() {
        let stacks = match depth {
            Some(depth) => Stacks::On { depth: depth as usize, check: false },
            None => Stacks::Off,
        };
        fence(|| {
            run_cold(&mut || {
                if let Some(started) = begin_recording(trace, stacks, Selection::Every) {
                    let _ = STARTED.set(started);
                }
            });
        });
    }
    STARTED.get().is_some()
}

fn begin(config: &Config) -> bool {
    let selection = match config.options.mode {
        HeapMode::Sample(period) => Selection::Sample(period),
        HeapMode::All | HeapMode::Python if config.options.min_bytes > 0 => {
            Selection::AtLeast(config.options.min_bytes)
        }
        HeapMode::All | HeapMode::Python => Selection::Every,
    };
    let path = match selection {
        Selection::Every => EVERY,
        Selection::Sample(_) => SAMPLE,
        Selection::AtLeast(_) => AT_LEAST,
    };
    let stacks = if config.options.stacks {
        Stacks::On { depth: config.options.depth as usize, check: config.options.check }
    } else {
        Stacks::Off
    };
    let Some(started) = begin_recording(&config.trace, stacks, selection) else { return false };
    if config.options.check {
        // SAFETY: the function stays loaded. It runs before the recording ends, since it is registered later.
        unsafe { libc::atexit(report_checks) };
    }
    match config.options.mode {
        HeapMode::All | HeapMode::Python => note(HeapNote::All, config.options.min_bytes as u32),
        HeapMode::Sample(bytes) => note(HeapNote::Sampled, bytes as u32),
    }
    if !config.unknown.is_empty() {
        note(HeapNote::UnknownOption, 0);
    }
    let version = started.python_version;
    let is_first = STARTED.set(started).is_ok();
    SELECTION.store(path, Ordering::Relaxed);
    if let Some(version) = version
        && config.options.mode == HeapMode::Python
        && Python::record_objects()
    {
        note(HeapNote::Python, version);
    }
    is_first
}

/// Starts the recording when the library is loaded, if no allocation did before.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // Looking a name up may free the message of an earlier error, so `free` has to be known before any such error.
    next::free();
    if STATE.load(Ordering::Acquire) == NEW {
        start();
    }
    if STATE.load(Ordering::Acquire) == ON && !hooks::are_called() {
        fence(|| run_cold(&mut || note(HeapNote::OwnAllocator, 0)));
    } else if STATE.load(Ordering::Acquire) == ON {
        fence(|| {
            run_cold(&mut || {
                if hooks::has_own_new() {
                    note(HeapNote::OwnNew, 0);
                }
            });
        });
    }
}

/// Looks for the interpreter of Python, and says in the trace if it is not a known one.
fn find_python() -> Option<Python> {
    match python::find() {
        python::Found::Known(python) => Some(python),
        python::Found::Unknown => {
            note(HeapNote::PythonUnknown, 0);
            None
        }
        python::Found::None => None,
    }
}

/// Leaves a note in the trace about how the process is recorded.
pub(super) fn note(note: HeapNote, line: u32) {
    let (function, file) = (intern(HEAP_NOTE), intern(note.text()));
    intern_frame(&Frame { function, file, line, ..Frame::default() });
}

/// Records nothing more in this process.
pub(crate) fn switch_off() {
    STATE.store(OFF, Ordering::Release);
    fence(|| note(HeapNote::SwitchedOff, 0));
}
