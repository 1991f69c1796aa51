//! Where the stack of the calling thread begins and ends.
//!
//! The function of the C library for that takes a lock which the program may hold while it allocates (the start of every
//! Rust program does), and allocates itself. What the kernel says needs neither.

use std::io::Read as _;

/// How far below its present end the stack of the first thread may grow.
const MAX_MAIN_BYTES: u64 = 1 << 30;

/// Returns the addresses between which `stack_pointer`, which is on the stack of the calling thread, can move.
pub(crate) fn stack_bounds(stack_pointer: u64) -> Option<(u64, u64)> {
    let (low, high, is_main) = mapping_of(stack_pointer)?;
    if is_main {
        return Some((high.saturating_sub(MAX_MAIN_BYTES), high));
    }
    // Another mapping may follow that of the stack without a gap. The C library keeps the thread's own data at the very end
    // of its stack.
    let end = thread_pointer();
    Some((low, if end > stack_pointer && end < high { end } else { high }))
}

/// Returns where the mapping of an address begins and ends, and whether it is the stack of the first thread.
fn mapping_of(address: u64) -> Option<(u64, u64, bool)> {
    let mut maps = std::fs::File::open("/proc/self/maps").ok()?;
    let mut text = vec![0; 1 << 16];
    let mut used = 0;
    loop {
        // The kernel gives whole lines, a page of them at a time.
        let read = maps.read(&mut text[used..]).ok()?;
        if read == 0 {
            return None;
        }
        used += read;
        let mut rest = &text[..used];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if let Some((low, high)) = range_of(&rest[..end])
                && (low..high).contains(&address)
            {
                return Some((low, high, rest[..end].ends_with(b"[stack]")));
            }
            rest = &rest[end + 1..];
        }
        let left = rest.len();
        text.copy_within(used - left..used, 0);
        used = left;
    }
}

/// Reads the range at the start of a line: `START-END `, in hexadecimal.
fn range_of(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (low, high) = text.split_once('-')?;
    Some((u64::from_str_radix(low, 16).ok()?, u64::from_str_radix(high, 16).ok()?))
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the first word that the register leads to is its own address, as the ABI says.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags));
    };
    pointer
}

#[cfg(not(target_arch = "x86_64"))]
fn thread_pointer() -> u64 {
    0
}
