//! What PyTorch's caching allocator hands out of the memory that it holds.
//!
//! At each allocation and free it calls `c10::reportMemoryUsageToProfiler`, and at a failure
//! `c10::reportOutOfMemoryToProfiler`, whether a profiler is there or not, from one of its libraries to another one. This
//! library is preloaded, so its functions with these names are found first; they record and pass the call on. The
//! arguments are plain words, no class of C++ is touched, and a version with other arguments has other names.
//!
//! What the cache gets from the driver is known by the stack of the call, which leads through `libc10_cuda.so`.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use floodmark_event::event::Action;
use floodmark_event::{Kind, StringId};
use floodmark_tail::gpu::{GpuLevel, GpuNote, TORCH_RESOURCE, TORCH_SEGMENTS_RESOURCE};
use floodmark_tail::{AllocDomain, intern};

use super::events::{event_of, note_free, record};
use super::{driver, interpose};
use crate::capture::{self, Caller, Entered};
use crate::cold::run_cold;
use crate::config;
use crate::fence::fence;
use crate::thread::SavedErrno;

/// Whether what the cache hands out is recorded.
static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const DECIDING: u8 = 1;
const OFF: u8 = 2;
const ON: u8 = 3;

/// The library with the allocator, and the one with the functions that it reports to.
const ALLOCATOR: &[u8] = b"/libc10_cuda.so";
const REPORTED_TO: &CStr = c"libc10.so";

/// Number of CUDA among PyTorch's sorts of devices.
const CUDA: u64 = 1;

/// Ids of the resources in the recording.
static BLOCKS: AtomicU32 = AtomicU32::new(0);
static SEGMENTS: AtomicU32 = AtomicU32::new(0);

/// Decides whether tensors are recorded, once the recording has started.
pub(super) fn prepare(level: GpuLevel) {
    let state = if level == GpuLevel::Driver { OFF } else { ON };
    if state == ON {
        run_cold(&mut || {
            BLOCKS.store(intern(TORCH_RESOURCE).0, Ordering::Relaxed);
            SEGMENTS.store(intern(TORCH_SEGMENTS_RESOURCE).0, Ordering::Relaxed);
        });
    }
    STATE.store(state, Ordering::Release);
}

/// Id of the resource of what the cache holds.
pub(super) fn segments() -> u32 {
    SEGMENTS.load(Ordering::Relaxed)
}

/// Whether tensors are recorded. The driver may have loaded another library than this one, so it may be decided here.
#[inline]
fn is_on() -> bool {
    match STATE.load(Ordering::Acquire) {
        ON => true,
        UNDECIDED => decide(),
        _ => false,
    }
}

#[cold]
fn decide() -> bool {
    if STATE.compare_exchange(UNDECIDED, DECIDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return false;
    }
    let level = fence(|| {
        let config = config::read_gpu().filter(|config| config.options.level != GpuLevel::Driver)?;
        let options = &config.options;
        capture::start_recording(&config.trace, options.stacks.then_some(options.depth))
            .then_some(options.level)
    });
    prepare(level.flatten().unwrap_or_default());
    STATE.load(Ordering::Acquire) == ON
}

/// Whether the call of the driver whose stack was found last is one of PyTorch's cache.
pub(super) fn asks(entered: &Entered) -> bool {
    if STATE.load(Ordering::Acquire) != ON {
        return false;
    }
    entered.is_on_stack(|address| {
        // SAFETY: zeros are valid for all fields.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address may be asked for; the place is valid.
        if unsafe { libc::dladdr(address as usize as *const c_void, &raw mut info) } == 0
            || info.dli_fname.is_null()
        {
            return false;
        }
        // SAFETY: the loader's name of a module, which is loaded as long as its function has not returned.
        unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes().ends_with(ALLOCATOR)
    })
}

fn domain(device: u64) -> AllocDomain {
    let index = (device >> 8 & 0xff) as u8;
    AllocDomain {
        device: i32::from(index.cast_signed()),
        kind: Kind::Device,
        resource: StringId(BLOCKS.load(Ordering::Relaxed)),
        ..AllocDomain::default()
    }
}

/// Says in the trace which device this is, and that tensors are recorded, at the first call for a device.
fn introduce(device: i32) {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let Ok(device) = u32::try_from(device) else { return };
    let bit = 1 << (device % 64);
    if KNOWN.load(Ordering::Relaxed) & bit == 0 && KNOWN.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let _errno = SavedErrno::save();
        fence(|| {
            driver::define_device(device.cast_signed());
            run_cold(&mut || super::note(GpuNote::Torch, 0, ""));
        });
    }
}

/// The cache has handed out a block, or takes one back: then its bytes are negative.
fn reported(arguments: &[u64; 6], caller: Caller) {
    let [address, bytes, _, _, device, _] = *arguments;
    if device & 0xff != CUDA {
        return;
    }
    let domain = domain(device);
    introduce(domain.device);
    let bytes = bytes.cast_signed();
    let action = if bytes < 0 { Action::Free } else { Action::Alloc };
    record(|entered| {
        let stack = if action == Action::Alloc { entered.stack(caller) } else { floodmark_event::StackId(0) };
        entered.event_in(&domain, event_of(action, address, bytes.unsigned_abs()), stack, None);
    });
}

/// The cache could not serve a request.
#[cold]
fn failed(arguments: &[u64; 6], caller: Caller) {
    let [bytes, _, _, device, _, _] = *arguments;
    if device & 0xff != CUDA {
        return;
    }
    let domain = domain(device);
    introduce(domain.device);
    let memory = driver::memory_info();
    record(|entered| {
        let stack = entered.stack(caller);
        entered.event_in(&domain, event_of(Action::Failure, 0, bytes), stack, None);
        if let Some((free, total)) = memory {
            run_cold(&mut || note_free(&domain, free, total));
        }
    });
}

type Plain = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64);

/// Takes a call of one of the two functions: records it and passes it on. `arguments` are the registers with the
/// arguments, and `stack` is where the return address is.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
unsafe extern "C" fn floodmark_inject_torch_called(
    which: u32,
    arguments: *const [u64; 6],
    stack: u64,
    base: u64,
) {
    // SAFETY: six registers were stored there.
    let words = unsafe { arguments.read() };
    if is_on() {
        let caller = Caller { stack, base };
        if which == 0 { reported(&words, caller) } else { failed(&words, caller) }
    }
    if let Some(real) = real(which) {
        // SAFETY: PyTorch's function with the arguments of its caller; it has at most five words of them.
        unsafe {
            let real = std::mem::transmute::<*mut c_void, Plain>(real);
            real(words[0], words[1], words[2], words[3], words[4], words[5]);
        }
    }
}

/// PyTorch's own function.
fn real(which: u32) -> Option<*mut c_void> {
    static REAL: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
    const NAMES: [&CStr; 2] = [
        c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    ];
    let place = &REAL[which as usize & 1];
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return Some(known);
    }
    // SAFETY: C strings; the library is loaded, because another one of PyTorch has called its function.
    let found = unsafe {
        let library = libc::dlopen(REPORTED_TO.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = interpose::real_dlsym(library, NAMES[which as usize & 1]);
        libc::dlclose(library);
        found
    };
    place.store(found, Ordering::Relaxed);
    (!found.is_null()).then_some(found)
}

/// Defines a function of PyTorch's that is found here first.
#[cfg(target_arch = "x86_64")]
macro_rules! in_place_of {
    ($which:literal, $name:literal, $function:ident) => {
        #[unsafe(export_name = $name)]
        #[unsafe(naked)]
        unsafe extern "C" fn $function() {
            std::arch::naked_asm!("mov eax, {}", "jmp floodmark_inject_torch_call", const $which)
        }
    };
}

#[cfg(target_arch = "x86_64")]
in_place_of!(0, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", report_usage);
#[cfg(target_arch = "x86_64")]
in_place_of!(1, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE", report_failure);

// Where both functions lead, with their number in eax: stores the registers with arguments as an array. The frame can be
// unwound, because profilers of PyTorch take stacks.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.floodmark_inject_torch_call,\"ax\",@progbits",
    ".globl floodmark_inject_torch_call",
    ".hidden floodmark_inject_torch_call",
    ".type floodmark_inject_torch_call,@function",
    "floodmark_inject_torch_call:",
    ".cfi_startproc",
    crate::entry::call_with_arguments!(),
    ".cfi_endproc",
    ".size floodmark_inject_torch_call, . - floodmark_inject_torch_call",
    ".popsection",
    called = sym floodmark_inject_torch_called,
);
