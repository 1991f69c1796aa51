//! Memory that each thread gets for recording, and a stack in it for what needs more than the program's stack may have.
//!
//! A program may run threads on 16 KiB of stack and allocate at its very end. Recording itself takes a few hundred bytes;
//! all that takes more (a new lane, unwind tables, names of modules, reading files) runs on a stack of ours. Signals are
//! blocked meanwhile: a handler of a garbage collector, say, would look for the program's stack.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

use floodmark_stacks::Replay;
use libc::c_void;

use crate::own_memory::map;
use crate::pid_lock::PidLock;
use crate::thread::{Guard, SavedErrno, current};

/// Bytes of the stack, of which a thread touches what it needs.
const STACK_BYTES: usize = 256 << 10;
/// Bytes of all that a thread gets.
const THREAD_BYTES: usize = STACK_BYTES + size_of::<Replay>();

/// Memory of threads that ended.
static UNUSED: PidLock<Vec<ThreadMemory>> = PidLock::new(Vec::new());

/// A stack, and above it what finds the thread's stacks.
#[derive(Clone, Copy)]
pub(crate) struct ThreadMemory(*mut u8);

// SAFETY: the memory is mapped as long as the process lives, and one thread at a time has it.
unsafe impl Send for ThreadMemory {}

impl ThreadMemory {
    pub(crate) const NONE: Self = Self(null_mut());

    /// Takes what an ended thread left, or maps new memory; none if there is none.
    pub(crate) fn take() -> Option<Self> {
        let unused = UNUSED.locked(|unused, _| unused.pop());
        unused.or_else(|| Some(Self(map(THREAD_BYTES))).filter(|memory| memory.is_some()))
    }

    /// Leaves the memory to another thread.
    pub(crate) fn give_back(self) {
        if self.is_some() {
            UNUSED.locked(|unused, _| unused.push(self));
        }
    }

    pub(crate) const fn is_some(self) -> bool {
        !self.0.is_null()
    }

    fn stack_end(self) -> *mut u8 {
        self.0.wrapping_add(STACK_BYTES)
    }

    /// Where the thread's [`Replay`] is; zeros if it has not begun.
    pub(crate) fn replay(self) -> *mut Replay {
        self.stack_end().cast::<c_void>().cast()
    }
}

/// Calls `work` on the thread's stack for such work, with calls of hooked functions taken for our own.
#[cold]
#[inline(never)]
pub(crate) fn run_cold(work: &mut dyn FnMut()) {
    let thread = current();
    let _errno = SavedErrno::save();
    let _guard = Guard::preparing(thread);
    if !thread.memory.get().is_some() && !thread.has_ended.get() {
        thread.memory.set(ThreadMemory::take().unwrap_or(ThreadMemory::NONE));
    }
    let memory = thread.memory.get();
    if cfg!(not(target_arch = "x86_64")) || !memory.is_some() || thread.is_cold.replace(true) {
        // On its own stack, or on ours already.
        work();
        return;
    }
    let mut call = Call { work, panicked: None };
    let signals = block_signals();
    // SAFETY: the stack is mapped, this thread's, and nothing of it is in use, as `is_cold` says.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        call_on(memory.stack_end(), run, (&raw mut call).cast());
    }
    restore_signals(signals);
    thread.is_cold.set(false);
    if let Some(panicked) = call.panicked {
        resume_unwind(panicked);
    }
}

struct Call<'a> {
    work: &'a mut dyn FnMut(),
    panicked: Option<Box<dyn std::any::Any + Send>>,
}

/// Runs what [`run_cold`] was given. A panic must not unwind over the change of the stack.
unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: the call that `run_cold` made, which waits for this to return.
    let call = unsafe { &mut *call.cast::<Call<'_>>() };
    call.panicked = catch_unwind(AssertUnwindSafe(&mut call.work)).err();
}

/// Calls `function` with `argument` on the stack that ends at `stack_end`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    stack_end: *mut u8,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret"
    )
}

/// The kernel's set of signals, which is smaller than that of the C library.
type SignalSet = u64;

/// Blocks all signals of the thread; returns those that were blocked before.
fn block_signals() -> SignalSet {
    let (all, mut before): (SignalSet, SignalSet) = (!0, 0);
    // SAFETY: both are valid places of the size that the kernel expects.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            &raw mut before,
            size_of::<SignalSet>(),
        );
    }
    before
}

fn restore_signals(signals: SignalSet) {
    // SAFETY: a valid place of the size that the kernel expects; the old set is not asked for.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const signals,
            null_mut::<SignalSet>(),
            size_of::<SignalSet>(),
        );
    }
}
