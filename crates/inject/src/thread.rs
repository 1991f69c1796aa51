//! What each thread keeps, found without a call.
//!
//! A thread-local variable of a shared library is usually found through `__tls_get_addr`, which takes 2 ns and may
//! allocate. This one has a fixed offset from the thread pointer (the initial-exec model), which the loader provides for
//! libraries that are there from the start, and for a few bytes of those that are loaded later.

use std::cell::Cell;

use floodmark_stacks::Replay;
use floodmark_tail::ThreadLane;

use crate::cold::ThreadMemory;
use crate::python::PythonThread;

/// What a thread is doing in this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Inside {
    /// Nothing: calls of hooked functions are the program's.
    No = 0,
    /// It is recording: a call of a hooked function comes from a signal handler, and is lost.
    Recording = 1,
    /// It prepares something (starting, a lane, the modules) and may call functions that allocate: such calls are ours, and
    /// get memory of our own.
    Preparing = 2,
    /// It is in an allocator of the program whose blocks are recorded already: what that calls is passed on.
    Passing = 3,
}

/// What a thread keeps. All zeros is the state of a thread that was not here yet.
#[repr(C, align(64))]
pub(crate) struct Thread {
    pub(crate) inside: Cell<Inside>,
    /// Whether the destructor that gives the lane back has run.
    pub(crate) has_ended: Cell<bool>,
    /// Whether that destructor is registered.
    pub(crate) is_registered: Cell<bool>,
    /// Whether it runs on the stack in its memory.
    pub(crate) is_cold: Cell<bool>,
    /// How many modules had been unloaded when its stacks were last found to be sound.
    pub(crate) unloads: Cell<u32>,
    /// Bytes to the next sample.
    pub(crate) countdown: Cell<u64>,
    /// State of the random numbers of samples; 0 before the first.
    pub(crate) random: Cell<u64>,
    /// The thread's lane; none before the first event.
    pub(crate) lane: Cell<Option<ThreadLane>>,
    /// The thread's memory.
    pub(crate) memory: Cell<ThreadMemory>,
    /// What finds its stacks; null before the first.
    pub(crate) replay: Cell<*mut Replay>,
    /// What it keeps for stacks with Python frames; null before the first.
    pub(crate) python: Cell<*mut PythonThread>,
}

const _: () = assert!(size_of::<Thread>() == 64);

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl floodmark_inject_thread",
    ".hidden floodmark_inject_thread",
    ".type floodmark_inject_thread,@object",
    ".size floodmark_inject_thread,64",
    ".balign 64",
    "floodmark_inject_thread: .zero 64",
    ".popsection"
);

/// Returns what the calling thread keeps; not to be kept beyond the hook that asked.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the recording path")]
pub(crate) fn current() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: the loader stores the variable's offset before code of this library runs; the thread pointer is at fs:0.
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + floodmark_inject_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) thread,
            options(pure, nomem, nostack)
        );
        &*thread
    }
}

/// Returns what the calling thread keeps; not to be kept beyond the hook that asked.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn current() -> &'static Thread {
    thread_local! {
        static THREAD: Thread = const {
            Thread {
                inside: Cell::new(Inside::No),
                has_ended: Cell::new(false),
                is_registered: Cell::new(false),
                is_cold: Cell::new(false),
                unloads: Cell::new(0),
                countdown: Cell::new(0),
                random: Cell::new(0),
                lane: Cell::new(None),
                memory: Cell::new(ThreadMemory::NONE),
                replay: Cell::new(std::ptr::null_mut()),
                python: Cell::new(std::ptr::null_mut()),
            }
        };
    }
    // SAFETY: a constant variable without destructor lives as long as its thread, and the reference is not kept.
    THREAD.with(|thread| unsafe { &*std::ptr::from_ref(thread) })
}

/// Marks the thread as being in this library until it is dropped.
pub(crate) struct Guard {
    thread: &'static Thread,
    before: Inside,
}

impl Guard {
    /// Marks the thread as preparing something.
    pub(crate) fn preparing(thread: &'static Thread) -> Self {
        Self { thread, before: thread.inside.replace(Inside::Preparing) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.thread.inside.set(self.before);
    }
}

/// Saves the error number of the C library, which calls of ours may change, and restores it when it is dropped.
pub(crate) struct SavedErrno(i32);

impl SavedErrno {
    pub(crate) fn save() -> Self {
        // SAFETY: the location is the thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for SavedErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
