//! The allocator of the library itself, over mappings of its own: the hooked functions are for the program alone.
//!
//! Small blocks come from lists of freed ones by size, or are cut from one region of addresses; large ones are mappings. It
//! serves cold paths (starting, new threads, new modules), so one lock will do. Invariants: every change is one store, so
//! that a forked child can take the lock over that a thread of its parent held; nothing here calls the C library's
//! allocator.
//!
//! The C library allocates for what we call in it (paths, error messages). The program's allocator may not be asked then: it
//! may be what called us, with its lock held, as jemalloc does when it maps its first memory. Such calls are served from here
//! too ([`malloc`], [`free`]), and blocks that the C library keeps are recognized by their address when they are freed.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::OWN_MEMORY;
use crate::pid_lock::PidLock;
use crate::tracked;

/// Bytes of the region of small blocks, which takes memory as it is used.
const REGION_BYTES: usize = 1 << 28;
/// Blocks from this size on are mappings of their own.
const LARGE_BYTES: usize = 1 << 16;
/// Sizes of small blocks are powers of two from 16 on.
const CLASSES: usize = LARGE_BYTES.trailing_zeros() as usize - 3;

/// Where the region begins; before the first block, addresses that no program has.
static REGION: AtomicUsize = AtomicUsize::new(usize::MAX - REGION_BYTES);

/// Lists of free blocks and where the rest of the region begins.
struct Lists {
    free: [*mut FreeBlock; CLASSES],
    next: usize,
}

struct FreeBlock {
    next: *mut FreeBlock,
}

// SAFETY: the blocks are not tied to a thread.
unsafe impl Send for Lists {}

/// The allocator.
pub(crate) struct OwnMemory {
    lists: PidLock<Lists>,
}

impl OwnMemory {
    pub(crate) const fn new() -> Self {
        Self { lists: PidLock::new(Lists { free: [null_mut(); CLASSES], next: 0 }) }
    }
}

/// Maps `bytes` of zeros; null if there is no memory.
pub(crate) fn map(bytes: usize) -> *mut u8 {
    // By system call, because the function is hooked.
    // SAFETY: a new anonymous mapping touches nothing.
    let base = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            // Arguments of a system call are whole words.
            0_usize,
            bytes,
            (libc::PROT_READ | libc::PROT_WRITE) as usize,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize,
            -1_isize,
            0_usize,
        )
    };
    if base == -1 { null_mut() } else { std::ptr::with_exposed_provenance_mut(base as usize) }
}

/// The class whose blocks hold `layout`; none if it takes a mapping of its own.
fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(16).next_power_of_two();
    (bytes < LARGE_BYTES).then(|| bytes.trailing_zeros() as usize - 4)
}

impl Lists {
    fn take(&mut self, class: usize) -> *mut u8 {
        let first = self.free[class];
        if !first.is_null() {
            // SAFETY: blocks in the lists are free and hold a `FreeBlock`.
            self.free[class] = unsafe { (*first).next };
            return first.cast();
        }
        let bytes = 16_usize << class;
        // A region begins at a page and blocks are powers of two: aligning to the size serves every alignment.
        let mut at = self.next.next_multiple_of(bytes);
        if self.next == 0 {
            let region = map(REGION_BYTES);
            if region.is_null() {
                return region;
            }
            at = region.expose_provenance().next_multiple_of(bytes);
            REGION.store(region.addr(), Ordering::Relaxed);
        }
        if at + bytes > REGION.load(Ordering::Relaxed) + REGION_BYTES {
            return null_mut();
        }
        self.next = at + bytes;
        std::ptr::with_exposed_provenance_mut(at)
    }
}

// SAFETY: blocks are handed out once until they are given back, are as large as the class or mapping that holds their
// layout, and aligned to it.
unsafe impl GlobalAlloc for OwnMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => self.lists.locked(|lists, _| lists.take(class)),
            // Nothing asks for more than the alignment of a page.
            None if layout.align() <= 4096 => map(layout.size()),
            None => null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && class_of(layout).is_some() {
            // SAFETY: the block is at least that large.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            Some(class) => self.lists.locked(|lists, _| {
                let block = block.cast::<c_void>().cast::<FreeBlock>();
                // SAFETY: the block is free now, at least 16 bytes large and aligned to that.
                unsafe { block.write(FreeBlock { next: lists.free[class] }) };
                lists.free[class] = block;
            }),
            // SAFETY: a mapping of this size that `alloc` made.
            None => unsafe {
                libc::syscall(libc::SYS_munmap, block, layout.size());
            },
        }
    }
}

/// Bytes before a block of the C library's, where its size is kept.
const SIZE_BYTES: usize = 16;

fn layout_of(bytes: usize) -> Option<Layout> {
    let whole = bytes.checked_add(SIZE_BYTES).filter(|whole| *whole <= LARGE_BYTES / 2)?;
    Layout::from_size_align(whole, SIZE_BYTES).ok()
}

/// Returns zeroed memory for a call that the C library makes for us; null if it is too large.
#[cold]
pub(crate) fn malloc(bytes: usize) -> *mut c_void {
    let Some(layout) = layout_of(bytes) else { return null_mut() };
    // SAFETY: the layout is not empty.
    let block = unsafe { OWN_MEMORY.alloc_zeroed(layout) };
    if block.is_null() {
        return null_mut();
    }
    // SAFETY: the block is larger than that and aligned.
    let block = unsafe {
        block.cast::<c_void>().cast::<usize>().write(bytes);
        block.add(SIZE_BYTES).cast::<c_void>()
    };
    // Its free is looked at then, whatever is recorded.
    tracked::mark_for_good(block.addr());
    block
}

/// Whether [`malloc`] returned `block`, or it is another one of the library's own.
#[inline]
pub(crate) fn is_own(block: *mut c_void) -> bool {
    block.addr().wrapping_sub(REGION.load(Ordering::Relaxed)) < REGION_BYTES
}

/// Returns the size of a block that [`malloc`] returned.
///
/// # Safety
/// [`malloc`] returned it, and it was not freed.
pub(crate) unsafe fn size_of_block(block: *mut c_void) -> usize {
    // SAFETY: `malloc` left the size there.
    unsafe { block.cast::<u8>().sub(SIZE_BYTES).cast::<c_void>().cast::<usize>().read() }
}

/// Frees a block.
///
/// # Safety
/// As for [`size_of_block`].
#[cold]
pub(crate) unsafe fn free(block: *mut c_void) {
    // SAFETY: as the caller guarantees; the block begins where its size is.
    unsafe {
        if let Some(layout) = layout_of(size_of_block(block)) {
            OWN_MEMORY.dealloc(block.cast::<u8>().sub(SIZE_BYTES), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_c_library_are_recognized_and_used_again() {
        let block = malloc(100);
        assert!(is_own(block));
        // SAFETY: a block of at least 100 bytes.
        unsafe {
            assert_eq!(size_of_block(block), 100);
            block.cast::<u8>().write_bytes(7, 100);
            free(block);
        }
        let again = malloc(90);
        assert_eq!(again, block);
        // SAFETY: a block of at least 90 bytes.
        unsafe {
            assert_eq!(*again.cast::<u8>(), 0);
            free(again);
        }
        assert!(malloc(1 << 20).is_null());
        let other = 0_u8;
        assert!(!is_own((&raw const other).cast_mut().cast()));
    }
}
