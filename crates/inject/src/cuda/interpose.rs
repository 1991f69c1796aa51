//! Functions in place of the driver's, for processes in which CUPTI cannot be used.
//!
//! The runtime library of CUDA, linked statically or not, finds the functions of the driver through `dlsym` and
//! `cuGetProcAddress`; programs may link the driver's library directly. This library is preloaded, so its `dlsym`, its
//! `cuGetProcAddress` and its functions with the names of the driver's are found first. Pointers are given out before it
//! is decided how calls are seen, so each function looks at that decision when it is called: unless functions are
//! interposed, it passes its call on and does nothing else.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use floodmark_tail::gpu::GpuWay;

use super::calls::{Act, CALLS};
use super::events::{Seen, after, before};
use super::{Asked, DECIDING, INTERPOSED, UNDECIDED, WAY, decide, driver, is_interposed};
use crate::capture::Caller;
use crate::config;
use crate::hooks::module_of;

/// The driver has no such function.
const NOT_FOUND: c_int = 500;

/// The driver's own functions, by index.
static REAL: [AtomicPtr<c_void>; CALLS.len()] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CALLS.len()];

/// `dlsym` of the C library.
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Whether this process may get functions of ours for those of the driver.
fn is_wanted() -> bool {
    static WANTED: AtomicU8 = AtomicU8::new(0);
    match WANTED.load(Ordering::Relaxed) {
        0 => {
            let wanted = config::read_gpu().is_some_and(|config| config.options.way != GpuWay::Cupti);
            WANTED.store(if wanted { 2 } else { 1 }, Ordering::Relaxed);
            wanted
        }
        wanted => wanted == 2,
    }
}

/// Whether functions of the driver are found here first.
pub(super) fn is_possible() -> bool {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlsym".as_ptr()) };
    cfg!(target_arch = "x86_64") && module_of(found) == module_of((is_possible as *const ()).cast())
}

/// Looks a name up as the C library does, past this one.
///
/// # Safety
/// The library is one that `dlopen` returned.
pub(super) unsafe fn real_dlsym(library: *mut c_void, name: &CStr) -> *mut c_void {
    let found = find_dlsym();
    if found.is_null() {
        return found;
    }
    // SAFETY: the function of the C library, with arguments as the caller guarantees.
    unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found)(library, name.as_ptr()) }
}

/// Finds `dlsym` of the C library, under the name that it has since it is part of it, or under the one before.
extern "C" fn find_dlsym() -> *mut c_void {
    let known = REAL_DLSYM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let find = |version: &CStr| {
        // SAFETY: C strings.
        unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) }
    };
    let old = if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };
    let mut found = find(c"GLIBC_2.34");
    if found.is_null() {
        found = find(old);
    }
    REAL_DLSYM.store(found, Ordering::Relaxed);
    found
}

/// Finds a name in a library. All but names of the driver are left to the C library, by a jump: what it finds may depend
/// on who called.
///
/// # Safety
/// As for the function of the C library.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_library: *mut c_void, _name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 3f",
        "2:",
        "test rsi, rsi",
        "jz 4f",
        "cmp byte ptr [rsi], 0x63", // c
        "jne 4f",
        "cmp byte ptr [rsi + 1], 0x75", // u
        "jne 4f",
        // The pseudo-handles 0 and -1 stand for what is found first, and next.
        "lea rdx, [rdi + 1]",
        "cmp rdx, 1",
        "jbe 4f",
        "jmp {cuda}",
        "3:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2b",
        "ret",
        "4:",
        "jmp rax",
        real = sym REAL_DLSYM,
        cuda = sym cuda_symbol,
        find = sym find_dlsym,
    )
}

/// Finds a name that begins as those of the driver do.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn cuda_symbol(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: a C string and a library, as the caller of `dlsym` guarantees.
    let (real, name) = unsafe {
        let name = CStr::from_ptr(name);
        (real_dlsym(library, name), name)
    };
    if real.is_null() || !is_wanted() {
        return real;
    }
    if let Some(function) = asking(name) {
        return function;
    }
    match CALLS.iter().position(|call| call.name == name) {
        Some(index) => ours(index, real),
        None => real,
    }
}

/// Our function in place of one that is asked for functions.
fn asking(name: &CStr) -> Option<*mut c_void> {
    if name == c"cuGetProcAddress" {
        Some((cuGetProcAddress as *const c_void).cast_mut())
    } else if name == c"cuGetProcAddress_v2" {
        Some((cuGetProcAddress_v2 as *const c_void).cast_mut())
    } else {
        None
    }
}

/// Our function in place of the driver's, which it will call.
#[cfg(target_arch = "x86_64")]
fn ours(index: usize, real: *mut c_void) -> *mut c_void {
    let entry = super::calls::ENTRIES[index] as *const c_void;
    if real.cast_const() != entry {
        REAL[index].store(real, Ordering::Release);
    }
    entry.cast_mut()
}

#[cfg(not(target_arch = "x86_64"))]
fn ours(_: usize, real: *mut c_void) -> *mut c_void {
    real
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type GetProcAddress2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// Finds a function of the driver by its name and the version of CUDA that the caller was made for.
///
/// # Safety
/// As for the function of the driver.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    let Some(real) = driver::symbol(c"cuGetProcAddress") else { return NOT_FOUND };
    // SAFETY: the driver's function, with the caller's arguments.
    unsafe {
        let result = std::mem::transmute::<*mut c_void, GetProcAddress>(real)(name, place, version, flags);
        replaced(result, name, place, version, flags);
        result
    }
}

/// As [`cuGetProcAddress`], since CUDA 12.
///
/// # Safety
/// As for the function of the driver.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    let Some(real) = driver::symbol(c"cuGetProcAddress_v2") else { return NOT_FOUND };
    // SAFETY: the driver's function, with the caller's arguments.
    unsafe {
        let result =
            std::mem::transmute::<*mut c_void, GetProcAddress2>(real)(name, place, version, flags, status);
        replaced(result, name, place, version, flags);
        result
    }
}

/// Puts our function where the driver stored its own.
unsafe fn replaced(result: c_int, name: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64) {
    if result != 0 || name.is_null() || place.is_null() || !is_wanted() {
        return;
    }
    // SAFETY: a C string, and the place that the driver has stored its function in.
    let (name, found) = unsafe { (CStr::from_ptr(name), *place) };
    if found.is_null() {
        return;
    }
    let function = if name == c"cuGetProcAddress" {
        asking(if version >= 12000 { c"cuGetProcAddress_v2" } else { name })
    } else {
        index_of(name, found, version, flags).map(|index| ours(index, found))
    };
    if let Some(function) = function {
        // SAFETY: as above.
        unsafe { *place = function };
    }
}

/// Flag of `cuGetProcAddress` for functions whose default stream is one per thread.
const PER_THREAD: u64 = 2;

/// Which function the driver has found: the one that it exports at this address, or else by name and version.
fn index_of(name: &CStr, found: *mut c_void, version: c_int, flags: u64) -> Option<usize> {
    let base = name.to_str().ok()?;
    let of_base = || (0..CALLS.len()).filter(|index| CALLS[*index].base == base);
    if let Some(index) = of_base().find(|index| driver::symbol(CALLS[*index].name) == Some(found)) {
        return Some(index);
    }
    let is_per_thread = |index: &usize| CALLS[*index].name.to_bytes().ends_with(b"_ptsz");
    let wants_per_thread = flags & PER_THREAD != 0 && of_base().any(|index| is_per_thread(&index));
    let mut fitting = of_base().filter(|index| is_per_thread(index) == wants_per_thread);
    match CALLS[of_base().next()?].act {
        // The second version has an argument more.
        Act::GraphNode { .. } if version < 12030 => fitting.next(),
        // Before CUDA 3.2 addresses had 32 bits.
        _ if version < 3020 => None,
        _ => fitting.next_back(),
    }
}

/// A handle that is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u64; 8]);

type Plain = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> c_int;
type Ipc = unsafe extern "C" fn(u64, IpcHandle, u64) -> c_int;

/// Takes a call of a function of the driver: passes it on, and records it if functions are interposed. `arguments` are the
/// registers with the arguments, and `stack` is where the return address is.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
unsafe extern "C" fn floodmark_inject_cuda_called(
    index: u32,
    arguments: *mut u64,
    stack: u64,
    base: u64,
) -> c_int {
    let index = index as usize;
    let mut real = REAL[index].load(Ordering::Acquire);
    if real.is_null() {
        let Some(found) = driver::symbol(CALLS[index].name) else { return NOT_FOUND };
        real = found;
        REAL[index].store(real, Ordering::Release);
    }
    if WAY.load(Ordering::Acquire) == UNDECIDED && is_wanted() && is_alloc(CALLS[index].act) {
        // The driver is initialized and did not load this library: another one is named in the environment.
        decide(Asked::ByCall);
    }
    // SAFETY: the driver's function with the arguments of its caller.
    let call = || unsafe { call_real(real, CALLS[index].act, arguments, stack) };
    if !is_interposed() {
        return call();
    }
    let seen = Seen { index, arguments, context: None };
    before(&seen);
    let result = call();
    after(&seen, result, Caller { stack, base });
    result
}

fn is_alloc(act: Act) -> bool {
    matches!(
        act,
        Act::Device | Act::Pitched | Act::Managed | Act::Pinned | Act::Async | Act::FromPool | Act::Create
    )
}

#[cfg(target_arch = "x86_64")]
unsafe fn call_real(real: *mut c_void, act: Act, arguments: *const u64, stack: u64) -> c_int {
    // SAFETY: six registers were stored there.
    let words = unsafe { arguments.cast::<[u64; 6]>().read() };
    // SAFETY: the function takes at most these arguments; registers that it does not read do no harm. A handle by value is
    // on the caller's stack, behind the return address.
    unsafe {
        if act == Act::IpcOpen {
            let handle = (stack as usize as *const u64).add(1).cast::<IpcHandle>().read_unaligned();
            return std::mem::transmute::<*mut c_void, Ipc>(real)(words[0], handle, words[1]);
        }
        let real = std::mem::transmute::<*mut c_void, Plain>(real);
        real(words[0], words[1], words[2], words[3], words[4], words[5])
    }
}

// Where all functions in place of the driver's lead, with their index in eax. Where it is decided that functions are not
// interposed, it jumps on to the driver's: no frame of ours stands in stacks then. Otherwise it stores the registers with
// arguments as an array. The frame can be unwound, for stacks of what the driver allocates on the heap.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.floodmark_inject_cuda_call,\"ax\",@progbits",
    ".globl floodmark_inject_cuda_call",
    ".hidden floodmark_inject_cuda_call",
    ".type floodmark_inject_cuda_call,@function",
    "floodmark_inject_cuda_call:",
    ".cfi_startproc",
    "cmp byte ptr [rip + {way}], {interposed}",
    "je 2f",
    "cmp byte ptr [rip + {way}], {deciding}",
    "jbe 2f",
    "mov eax, eax",
    "lea r11, [rip + {real}]",
    "mov r11, qword ptr [r11 + rax * 8]",
    "test r11, r11",
    "jz 2f",
    "jmp r11",
    "2:",
    crate::entry::call_with_arguments!(),
    ".cfi_endproc",
    ".size floodmark_inject_cuda_call, . - floodmark_inject_cuda_call",
    ".popsection",
    called = sym floodmark_inject_cuda_called,
    way = sym WAY,
    real = sym REAL,
    interposed = const INTERPOSED,
    deciding = const DECIDING,
);
