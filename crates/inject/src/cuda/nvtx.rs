//! Ranges of NVTX as scopes: what a program calls its steps and phases.
//!
//! NVTX loads this library at a program's first call of it (`NVTX_INJECTION64_PATH`) and lets it replace its functions.
//! Ranges that are pushed and popped are scopes of their thread; ranges that are started and ended need not nest.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};

use floodmark_tail::{RangeId, global, intern};

use crate::capture::{self, enter_started};
use crate::cold::run_cold;
use crate::config;
use crate::fence::fence;
use crate::pid_lock::PidLock;
use crate::thread::{SavedErrno, current};

/// The table of functions that replace others.
const CALLBACKS: u32 = 1;
/// Modules of functions.
const CORE: u32 = 1;
const DOMAINS: u32 = 5;

/// Types of messages.
const ASCII: i32 = 1;
const WIDE: i32 = 2;
const REGISTERED: i32 = 3;

/// Most bytes of the name of a range.
const MOST_BYTES: usize = 512;

type GetExportTable = unsafe extern "C" fn(u32) -> *const ExportTable;
type Slot = *mut *const c_void;

#[repr(C)]
struct ExportTable {
    bytes: usize,
    functions: unsafe extern "C" fn(u32, *mut *mut Slot, *mut u32) -> c_int,
}

/// What a range or a mark has beside its kind.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

/// Called by NVTX once it has loaded this library; returns 1 if it wants calls.
///
/// # Safety
/// As the interface of NVTX for tools says.
#[unsafe(no_mangle)]
unsafe extern "C" fn InitializeInjectionNvtx2(get_table: Option<GetExportTable>) -> c_int {
    let Some(get_table) = get_table else { return 0 };
    let started = fence(|| {
        let config = config::read_gpu()?;
        let depth = config.options.stacks.then_some(config.options.depth);
        capture::start_recording(&config.trace, depth).then_some(())
    });
    if started.flatten().is_none() {
        return 0;
    }
    // SAFETY: the function that NVTX passes, with a number that it knows.
    let Some(table) = (unsafe { get_table(CALLBACKS).as_ref() }) else { return 0 };
    let core: [(usize, *const c_void); 11] = [
        (1, mark_ex as *const c_void),
        (2, mark_ascii as *const c_void),
        (3, mark_wide as *const c_void),
        (4, start_ex as *const c_void),
        (5, start_ascii as *const c_void),
        (6, start_wide as *const c_void),
        (7, end as *const c_void),
        (8, push_ex as *const c_void),
        (9, push_ascii as *const c_void),
        (10, push_wide as *const c_void),
        (11, pop as *const c_void),
    ];
    let domains: [(usize, *const c_void); 7] = [
        (1, domain_mark_ex as *const c_void),
        (2, domain_start_ex as *const c_void),
        (3, domain_end as *const c_void),
        (4, domain_push_ex as *const c_void),
        (5, domain_pop as *const c_void),
        (10, register_ascii as *const c_void),
        (11, register_wide as *const c_void),
    ];
    // SAFETY: as the caller guarantees.
    unsafe {
        replace(table, CORE, &core);
        replace(table, DOMAINS, &domains);
    }
    1
}

/// Replaces functions of a module.
unsafe fn replace(table: &ExportTable, module: u32, functions: &[(usize, *const c_void)]) {
    let (mut slots, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: a function of NVTX with valid places.
    if unsafe { (table.functions)(module, &raw mut slots, &raw mut count) } != 1 || slots.is_null() {
        return;
    }
    for (number, function) in functions.iter().filter(|(number, _)| *number < count as usize) {
        // SAFETY: the table has so many entries, and each is null or where a function's address is.
        unsafe {
            let slot = *slots.add(*number);
            if !slot.is_null() {
                *slot = *function;
            }
        }
    }
}

/// The text of a C string, cut where it is very long.
unsafe fn ascii(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string, as the caller guarantees.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_BYTES)]).into_owned()
}

/// The text of a string of wide characters.
unsafe fn wide(text: *const u32) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a string that ends with a zero, as the caller guarantees.
    let character = |at| unsafe { *text.add(at) };
    let characters = (0..MOST_BYTES).map(character).take_while(|character| *character != 0);
    characters.map(|character| char::from_u32(character).unwrap_or('\u{fffd}')).collect()
}

/// The message of attributes.
unsafe fn message(attributes: *const Attributes) -> String {
    // SAFETY: null or attributes, as the caller guarantees.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return String::new() };
    if usize::from(attributes.size) < size_of::<Attributes>() {
        return String::new();
    }
    // SAFETY: the type says what the message is; handles of registered strings are C strings of ours.
    unsafe {
        match attributes.message_type {
            ASCII | REGISTERED => ascii(attributes.message.cast()),
            WIDE => wide(attributes.message.cast()),
            _ => String::new(),
        }
    }
}

/// Scopes around those that threads have pushed, by thread.
static OUTER: PidLock<Option<HashMap<usize, Vec<u32>>>> = PidLock::new(None);

fn thread() -> usize {
    std::ptr::from_ref(current()).addr()
}

/// Calls `work` as a thread that records, unless the recording has not started.
fn recorded<R>(work: impl FnOnce(&capture::Entered) -> R) -> Option<R> {
    let _errno = SavedErrno::save();
    let entered = enter_started()?;
    fence(|| work(&entered))
}

/// Enters a scope; returns how many the thread has entered before, as NVTX does.
fn push(name: impl FnOnce() -> String) -> c_int {
    let depth = recorded(|entered| {
        let outer = entered.enter_scope(&name()).unwrap_or(0);
        OUTER.locked(|all, _| {
            let of_thread = all.get_or_insert_default().entry(thread()).or_default();
            of_thread.push(outer);
            of_thread.len() as c_int - 1
        })
    });
    depth.unwrap_or(0)
}

extern "C" fn pop() -> c_int {
    let depth = recorded(|entered| {
        let popped = OUTER.locked(|all, _| {
            let all = all.get_or_insert_default();
            let of_thread = all.get_mut(&thread())?;
            let outer = of_thread.pop()?;
            let depth = of_thread.len() as c_int;
            if depth == 0 {
                all.remove(&thread());
            }
            Some((outer, depth))
        });
        let (outer, depth) = popped?;
        entered.exit_scope(outer);
        Some(depth)
    });
    depth.flatten().unwrap_or(-1)
}

fn start(name: impl Fn() -> String) -> u64 {
    let range = recorded(|_| {
        let mut range = RangeId(0);
        run_cold(&mut || range = global().begin_range(intern(&name())));
        u64::from(range.0)
    });
    range.unwrap_or(0)
}

extern "C" fn end(range: u64) {
    if let Ok(range @ 1..) = u32::try_from(range) {
        recorded(|_| run_cold(&mut || global().end_range(RangeId(range))));
    }
}

fn mark(name: impl Fn() -> String) {
    recorded(|_| run_cold(&mut || global().mark(intern(&name()))));
}

// SAFETY of all: NVTX passes on what the program gave it, which is as its interface says.
unsafe extern "C" fn mark_ex(attributes: *const Attributes) {
    // SAFETY: as said above.
    mark(|| unsafe { message(attributes) });
}

unsafe extern "C" fn mark_ascii(text: *const c_char) {
    // SAFETY: as said above.
    mark(|| unsafe { ascii(text) });
}

unsafe extern "C" fn mark_wide(text: *const u32) {
    // SAFETY: as said above.
    mark(|| unsafe { wide(text) });
}

unsafe extern "C" fn start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: as said above.
    start(|| unsafe { message(attributes) })
}

unsafe extern "C" fn start_ascii(text: *const c_char) -> u64 {
    // SAFETY: as said above.
    start(|| unsafe { ascii(text) })
}

unsafe extern "C" fn start_wide(text: *const u32) -> u64 {
    // SAFETY: as said above.
    start(|| unsafe { wide(text) })
}

unsafe extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: as said above.
    push(|| unsafe { message(attributes) })
}

unsafe extern "C" fn push_ascii(text: *const c_char) -> c_int {
    // SAFETY: as said above.
    push(|| unsafe { ascii(text) })
}

unsafe extern "C" fn push_wide(text: *const u32) -> c_int {
    // SAFETY: as said above.
    push(|| unsafe { wide(text) })
}

unsafe extern "C" fn domain_mark_ex(_: *const c_void, attributes: *const Attributes) {
    // SAFETY: as said above.
    mark(|| unsafe { message(attributes) });
}

unsafe extern "C" fn domain_start_ex(_: *const c_void, attributes: *const Attributes) -> u64 {
    // SAFETY: as said above.
    start(|| unsafe { message(attributes) })
}

extern "C" fn domain_end(_: *const c_void, range: u64) {
    end(range);
}

unsafe extern "C" fn domain_push_ex(_: *const c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: as said above.
    push(|| unsafe { message(attributes) })
}

extern "C" fn domain_pop(_: *const c_void) -> c_int {
    pop()
}

/// Registers a string: its handle is a copy that stays.
fn registered(text: String) -> *const c_char {
    let bytes: Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).chain([0]).collect();
    Box::leak(bytes.into_boxed_slice()).as_ptr().cast()
}

unsafe extern "C" fn register_ascii(_: *const c_void, text: *const c_char) -> *const c_char {
    // SAFETY: as said above.
    registered(unsafe { ascii(text) })
}

unsafe extern "C" fn register_wide(_: *const c_void, text: *const u32) -> *const c_char {
    // SAFETY: as said above.
    registered(unsafe { wide(text) })
}
