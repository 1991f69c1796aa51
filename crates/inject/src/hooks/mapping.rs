//! `mmap` and its like, as far as the program itself calls them: `malloc` has functions of its own.
//!
//! Mappings are few beside blocks and cost a system call each, so one lock around each call does no harm.

use floodmark_tail::ticks;
use libc::{c_int, c_void, intptr_t, off_t, size_t};

use crate::capture::{self, Caller, Domain, Entered};
use crate::fence::fence;
use crate::mappings::{Change, Mapping, MappingList, Range, with_mappings};
use crate::next;

/// Defines an exported function of up to six arguments, which take all registers, that calls another with the caller's
/// stack pointer and base pointer in memory, as the seventh and eighth argument.
macro_rules! hook {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $body:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($(_: $type),*) -> $result {
            std::arch::naked_asm!(
                // Says to debuggers and unwinders where the caller is.
                ".cfi_startproc",
                "mov rax, rsp",
                // A call expects a stack pointer that is a multiple of 16.
                "sub rsp, 8",
                "push rbp",
                "push rax",
                ".cfi_adjust_cfa_offset 24",
                "call {}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                sym $body
            )
        }

        #[cfg(not(target_arch = "x86_64"))]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let here = 0_u8;
            // SAFETY: as the caller guarantees.
            unsafe { $body($($argument,)* (&raw const here).addr() as u64, 0) }
        }
    };
}

hook!(mmap(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, file: c_int, offset: off_t) -> *mut c_void, mmap_from);
hook!(mmap64(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, file: c_int, offset: off_t) -> *mut c_void, mmap_from);
hook!(mremap(at: *mut c_void, bytes: size_t, new_bytes: size_t, flags: c_int, new_at: *mut c_void, unused: size_t) -> *mut c_void, mremap_from);
hook!(sbrk(increment: intptr_t, unused_1: size_t, unused_2: size_t, unused_3: size_t, unused_4: size_t, unused_5: size_t) -> *mut c_void, sbrk_from);
hook!(brk(end: *mut c_void, unused_1: size_t, unused_2: size_t, unused_3: size_t, unused_4: size_t, unused_5: size_t) -> c_int, brk_from);

/// What a call did to the address space.
#[derive(Default)]
struct Effect {
    unmapped: Option<Range>,
    mapped: Option<Range>,
    /// Bytes that were asked for in vain.
    failed_bytes: Option<usize>,
}

unsafe extern "C" fn mmap_from(
    at: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
    stack: u64,
    base: u64,
) -> *mut c_void {
    // SAFETY: as the caller guarantees.
    let map = || unsafe {
        match next::mmap() {
            Some(mmap) => mmap(at, bytes, protection, flags, file, offset),
            None => pointer(libc::syscall(libc::SYS_mmap, at, bytes, protection, flags, file, offset)),
        }
    };
    change(Caller { stack, base }, map, |new| match *new {
        libc::MAP_FAILED => Effect { failed_bytes: Some(bytes), ..Effect::default() },
        new => Effect { mapped: Some(Range::pages(new.addr(), bytes)), ..Effect::default() },
    })
}

fn pointer(result: libc::c_long) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(result as usize)
}

/// Unmaps.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, bytes: size_t) -> c_int {
    // SAFETY: as the caller guarantees.
    let unmap = || unsafe {
        match next::munmap() {
            Some(munmap) => munmap(at, bytes),
            None => libc::syscall(libc::SYS_munmap, at, bytes) as c_int,
        }
    };
    change(Caller { stack: 0, base: 0 }, unmap, |result| {
        let range = Range::pages(at.addr(), bytes);
        Effect { unmapped: (*result == 0).then_some(range), ..Effect::default() }
    })
}

unsafe extern "C" fn mremap_from(
    at: *mut c_void,
    bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    new_at: *mut c_void,
    _: size_t,
    stack: u64,
    base: u64,
) -> *mut c_void {
    // SAFETY: as the caller guarantees.
    let remap = || unsafe {
        match next::mremap() {
            Some(mremap) => mremap(at, bytes, new_bytes, flags, new_at),
            None => pointer(libc::syscall(libc::SYS_mremap, at, bytes, new_bytes, flags, new_at)),
        }
    };
    change(Caller { stack, base }, remap, |new| match *new {
        libc::MAP_FAILED => Effect { failed_bytes: Some(new_bytes), ..Effect::default() },
        new => Effect {
            // With no bytes, or this flag, the old addresses stay mapped.
            unmapped: (bytes > 0 && flags & libc::MREMAP_DONTUNMAP == 0)
                .then(|| Range::pages(at.addr(), bytes)),
            mapped: Some(Range::pages(new.addr(), new_bytes)),
            failed_bytes: None,
        },
    })
}

unsafe extern "C" fn sbrk_from(
    increment: intptr_t,
    _: size_t,
    _: size_t,
    _: size_t,
    _: size_t,
    _: size_t,
    stack: u64,
    base: u64,
) -> *mut c_void {
    let Some(sbrk) = next::sbrk() else { return libc::MAP_FAILED };
    // SAFETY: as the caller guarantees.
    let call = || unsafe { sbrk(increment) };
    change(Caller { stack, base }, call, |before| match *before {
        libc::MAP_FAILED => Effect { failed_bytes: usize::try_from(increment).ok(), ..Effect::default() },
        before => moved_break(before.addr(), before.addr().wrapping_add_signed(increment)),
    })
}

unsafe extern "C" fn brk_from(
    end: *mut c_void,
    _: size_t,
    _: size_t,
    _: size_t,
    _: size_t,
    _: size_t,
    stack: u64,
    base: u64,
) -> c_int {
    let (Some(brk), Some(sbrk)) = (next::brk(), next::sbrk()) else { return -1 };
    // SAFETY: asks where the break is.
    let before = unsafe { sbrk(0) }.addr();
    // SAFETY: as the caller guarantees.
    let call = || unsafe { brk(end) };
    change(Caller { stack, base }, call, |result| match *result {
        0 => moved_break(before, end.addr()),
        _ => Effect { failed_bytes: end.addr().checked_sub(before), ..Effect::default() },
    })
}

/// The end of the data segment moved.
fn moved_break(before: usize, after: usize) -> Effect {
    let mapped = (before < after).then_some(Range { start: before, end: after });
    let unmapped = (after < before).then_some(Range { start: after, end: before });
    Effect { unmapped, mapped, failed_bytes: None }
}

/// Calls a function that changes the address space and records what it did.
fn change<R>(caller: Caller, call: impl FnOnce() -> R, effect: impl FnOnce(&R) -> Effect) -> R {
    // An allocator may map with its lock held, and starting asks for memory: an allocation starts the recording, or the
    // loading of this library.
    let Some(entered) = capture::is_on().then(capture::enter).flatten() else { return call() };
    with_mappings(|list| {
        // What is unmapped ends before the call: another thread may be given the same addresses right after it.
        let before = Some(ticks());
        let result = call();
        let errno = crate::thread::SavedErrno::save();
        fence(|| record(&entered, list, caller, before, &effect(&result)));
        drop(errno);
        result
    })
}

#[inline(never)]
fn record(entered: &Entered, list: &mut MappingList, caller: Caller, before: Option<u64>, effect: &Effect) {
    if let Some(bytes) = effect.failed_bytes {
        entered.failed(Domain::Mapping, bytes, caller);
    }
    for range in [effect.unmapped, effect.mapped].into_iter().flatten() {
        list.remove(range, |change| match change {
            Change::Ended(mapping) => entered.freed(Domain::Mapping, mapping.range.start, before),
            Change::Left(Mapping { range, stack }) => {
                entered.allocated(Domain::Mapping, range.start, range.bytes(), stack, false);
            }
        });
    }
    if let Some(range) = effect.mapped.filter(|range| range.bytes() > 0) {
        let stack = entered.stack(caller);
        entered.allocated(Domain::Mapping, range.start, range.bytes(), stack, false);
        list.insert(Mapping { range, stack });
    }
}
