//! CUDA memory: calls of the driver become events.
//!
//! The driver loads this library when it is initialized (`CUDA_INJECTION64_PATH`) and calls [`InitializeInjection`].
//! Calls are then seen in one of two ways, which lead to the same functions in `events`:
//!
//! | way | how |
//! |---|---|
//! | `cupti` | callbacks of CUPTI around functions of the driver |
//! | `interpose` | this library's own functions in place of the driver's: it is preloaded, and `dlsym` and `cuGetProcAddress` give them out |
//!
//! CUPTI has one subscriber in a process; where that is another tool, or there is no CUPTI, functions are interposed.
//! Nothing is started before CUDA is.

mod blocks;
mod calls;
mod cupti;
mod driver;
mod events;
mod find;
mod interpose;
mod nvtx;
mod pools;
mod shapes;
mod statics;
mod torch;

use std::ffi::{CString, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use floodmark_event::tables::Frame;
use floodmark_tail::gpu::{GPU_NOTE, GpuLevel, GpuNote, GpuWay};
use floodmark_tail::{intern, intern_frame};

use crate::capture;
use crate::config::{self, GpuConfig};
use crate::fence::fence;
use crate::thread::{Guard, current};

/// How calls of the driver are seen.
static WAY: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const DECIDING: u8 = 1;
const CUPTI: u8 = 2;
const INTERPOSED: u8 = 3;
const OFF: u8 = 4;

/// Whether functions of the driver are interposed.
#[inline]
fn is_interposed() -> bool {
    WAY.load(Ordering::Acquire) == INTERPOSED
}

/// Called by the driver when it is initialized, once it has loaded this library.
#[unsafe(no_mangle)]
extern "C" fn InitializeInjection() -> c_int {
    decide(Asked::ByDriver);
    1
}

/// Who wants a decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The driver, before anything is allocated.
    ByDriver,
    /// The program, by a call of an interposed function: the driver did not load this library.
    ByCall,
}

/// Decides how calls of the driver are seen, if that is not decided.
#[cold]
#[inline(never)]
fn decide(asked: Asked) {
    if WAY.compare_exchange(UNDECIDED, DECIDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    let way = fence(|| {
        let config = config::read_gpu()?;
        Some(way_of(&config, asked))
    });
    WAY.store(way.flatten().unwrap_or(OFF), Ordering::Release);
}

fn way_of(config: &GpuConfig, asked: Asked) -> u8 {
    let options = &config.options;
    // The other tool first: the user asked for it by name, and it cannot fall back.
    let chained = match asked {
        Asked::ByDriver => options.next.as_deref().map(|next| (next, call_next(next))),
        Asked::ByCall => None,
    };
    if !capture::start_recording(&config.trace, options.stacks.then_some(options.depth)) {
        return OFF;
    }
    count_forks();
    events::prepare();
    if !config.unknown.is_empty() {
        note(GpuNote::UnknownOption, 0, "");
    }
    if let Some((next, is_loaded)) = chained {
        note(if is_loaded { GpuNote::Chained } else { GpuNote::ChainFailed }, 0, next);
    }
    torch::prepare(options.level);
    if options.level == GpuLevel::Framework {
        return OFF;
    }
    // Tensors are recorded by interposing; the driver's functions can be too then, and CUPTI is left to torch.profiler.
    let prefers_preload = options.level == GpuLevel::All && options.way == GpuWay::Auto;
    if prefers_preload && interpose::is_possible() {
        note(GpuNote::Preload, 0, "");
        return INTERPOSED;
    }
    if options.way != GpuWay::Preload && asked == Asked::ByDriver {
        match cupti::subscribe(options.cupti.as_deref().map(Path::new)) {
            Ok(subscribed) => {
                note(GpuNote::Cupti, subscribed.version, &subscribed.file);
                if subscribed.missing > 0 {
                    note(GpuNote::CallbacksMissing, subscribed.missing, "");
                }
                return CUPTI;
            }
            Err(cupti::Refusal::Absent) => note(GpuNote::NoCupti, 0, ""),
            Err(cupti::Refusal::Taken(by)) => note(GpuNote::CuptiTaken, 0, &by),
            Err(cupti::Refusal::Failed { result, file }) => note(GpuNote::CuptiFailed, result, &file),
        }
    }
    if options.way != GpuWay::Cupti && interpose::is_possible() {
        note(GpuNote::Preload, 0, "");
        return INTERPOSED;
    }
    note(GpuNote::Impossible, 0, "");
    OFF
}

/// Loads the library that the driver would have loaded, and calls it as the driver would have.
fn call_next(path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: a C string. What runs at loading is what the user asked the driver to load.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return false;
    }
    // SAFETY: a library that was opened just now, and a C string.
    let function = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if function.is_null() || function == (InitializeInjection as *const c_void).cast_mut() {
        return false;
    }
    // SAFETY: the function that the driver's contract names: it takes nothing and returns a number.
    let function = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function) };
    function();
    true
}

/// Leaves a note in the trace about how the process is recorded.
fn note(note: GpuNote, line: u32, module: &str) {
    let _guard = Guard::preparing(current());
    let (function, file, module) = (intern(GPU_NOTE), intern(note.text()), intern(module));
    intern_frame(&Frame { function, file, line, module, ..Frame::default() });
}

/// How often the process and its ancestors were forked since the recording began, and one.
static FORKS: AtomicU32 = AtomicU32::new(1);

/// A number that changes when the process was forked: what is kept of the driver belongs to the parent then.
#[inline]
fn process() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on.
fn count_forks() {
    unsafe extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the function stays loaded and only changes a number.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}
