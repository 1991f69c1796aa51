//! Memory of the tracer: mapped and backed in advance, so that what it keeps does not change the resident size of the
//! process. A program with very many functions makes it grow in steps, each of which does.
#![expect(unsafe_code, reason = "divides mapped memory")]

use std::ptr::NonNull;

/// What is mapped when a trace begins: enough for about 8,000 functions.
const FIRST_BYTES: usize = 4 << 20;
/// What is mapped when that is used up.
const STEP_BYTES: usize = 1 << 20;
/// Everything that is kept of functions while tracing.
const MAX_BYTES: usize = 12 << 20;
/// Blocks are powers of two from 32 bytes on.
const SMALLEST_SHIFT: u32 = 5;
const CLASSES: usize = 16;

/// Blocks of memory from a few mappings; what is freed is used again for blocks of about the same size.
pub(super) struct Arena {
    /// The rest of the latest mapping.
    next: *mut Unit,
    left: usize,
    mapped: usize,
    free: [*mut FreeBlock; CLASSES],
}

struct FreeBlock {
    next: *mut FreeBlock,
}

/// What blocks are multiples of, and how they are aligned.
#[repr(C, align(8))]
pub(super) struct Unit([u8; 8]);

impl Arena {
    pub(super) const fn new() -> Self {
        Self { next: std::ptr::null_mut(), left: 0, mapped: 0, free: [std::ptr::null_mut(); CLASSES] }
    }

    /// Maps the first memory unless it is mapped already.
    pub(super) fn prepare(&mut self) {
        if self.mapped == 0 {
            self.map(FIRST_BYTES);
        }
    }

    /// Maps more memory; does nothing if there may be no more.
    fn map(&mut self, bytes: usize) {
        if self.mapped + bytes > MAX_BYTES {
            return;
        }
        // SAFETY: a new mapping touches nothing of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if base != libc::MAP_FAILED {
            (self.next, self.left) = (base.cast(), bytes);
            self.mapped += bytes;
        }
    }

    fn class(bytes: usize) -> usize {
        (bytes.max(1).next_power_of_two().trailing_zeros().max(SMALLEST_SHIFT) - SMALLEST_SHIFT) as usize
    }

    /// Returns a block of at least `bytes`, aligned to 8; `None` if there is no room.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<Unit>> {
        let class = Self::class(bytes);
        let free = *self.free.get(class)?;
        if !free.is_null() {
            // SAFETY: a free block begins with the address of the next one.
            self.free[class] = unsafe { (*free).next };
            return NonNull::new(free.cast());
        }
        let size = 1usize << (class as u32 + SMALLEST_SHIFT);
        if self.left < size {
            self.map(STEP_BYTES.max(size));
        }
        if self.left < size {
            return None;
        }
        let block = self.next;
        // SAFETY: within the mapping, as just checked.
        self.next = unsafe { block.byte_add(size) };
        self.left -= size;
        NonNull::new(block)
    }

    /// Takes a block of `bytes` back.
    ///
    /// # Safety
    /// It is from [`allocate`](Self::allocate) with the same size, and nothing uses it any more.
    pub(super) unsafe fn free(&mut self, block: NonNull<Unit>, bytes: usize) {
        let class = Self::class(bytes);
        let block = block.as_ptr().cast::<FreeBlock>();
        // SAFETY: blocks are large enough and aligned for a pointer.
        unsafe { block.write(FreeBlock { next: self.free[class] }) };
        self.free[class] = block;
    }
}
