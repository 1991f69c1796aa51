//! The allocator of the library itself, over mappings of its own: the hooked functions are for the program alone.
//!
//! Small blocks come from lists of freed ones by size, or are cut from a region; large ones are mappings. It serves cold
//! paths (starting, new threads, new modules), so one lock will do. Invariants: every change is one store, so that a
//! forked child can take the lock over that a thread of its parent held; nothing here calls the C library's allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr::null_mut;

use crate::pid_lock::PidLock;

/// Bytes that are mapped at once for small blocks.
const REGION_BYTES: usize = 1 << 18;
/// Blocks from this size on are mappings of their own.
const LARGE_BYTES: usize = 1 << 16;
/// Sizes of small blocks are powers of two from 16 on.
const CLASSES: usize = LARGE_BYTES.trailing_zeros() as usize - 3;

/// Lists of free blocks and the region that is being cut.
struct Lists {
    free: [*mut FreeBlock; CLASSES],
    next: usize,
    end: usize,
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
        Self { lists: PidLock::new(Lists { free: [null_mut(); CLASSES], next: 0, end: 0 }) }
    }
}

/// Maps `bytes` of zeros; null if there is no memory.
pub(crate) fn map(bytes: usize) -> *mut u8 {
    // By system call, because the function is hooked.
    // SAFETY: a new anonymous mapping touches nothing.
    let base = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            0,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
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
        if self.next == 0 || at + bytes > self.end {
            let region = map(REGION_BYTES);
            if region.is_null() {
                return region;
            }
            at = region.expose_provenance().next_multiple_of(bytes);
            // While the end is 0 a forked child would map a region of its own.
            self.end = 0;
            self.next = at;
            self.end = region.addr() + REGION_BYTES;
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
