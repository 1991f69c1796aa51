//! The resident size of the process, from `/proc/self/statm`.
//!
//! The file stays open while something uses it. The program may close descriptors that it does not know and get the same
//! number for a file of its own, so the descriptor is kept with what tells the file from others, and closed only if it is
//! that file still.
#![expect(unsafe_code, reason = "reads a file without allocating")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The descriptor in the lower half, and the [`identity`] of its file in the upper half.
static STATM: AtomicU64 = AtomicU64::new(NONE);
/// Values of [`StatmUse`].
static USES: AtomicU32 = AtomicU32::new(0);

/// No file is open.
const NONE: u64 = u64::MAX;
/// Bytes of the units that the tail counts resident memory in.
pub(super) const UNIT_BYTES: u64 = 4096;
/// Descriptors that programs use for themselves are below.
const MIN_DESCRIPTOR: libc::c_int = 200;

/// Keeps the file open between two readings; with the last value it is closed.
#[derive(Debug)]
pub(crate) struct StatmUse(());

impl StatmUse {
    pub(crate) fn begin() -> Self {
        USES.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Ends a use whose value was forgotten. Async-signal-safe.
    pub(super) fn end() {
        drop(Self(()));
    }
}

impl Drop for StatmUse {
    fn drop(&mut self) {
        USES.fetch_sub(1, Ordering::Relaxed);
        close_unused_statm();
    }
}

/// Closes the file if nothing uses it.
pub(crate) fn close_unused_statm() {
    if USES.load(Ordering::Relaxed) == 0 {
        close_statm();
    }
}

/// Closes the file: after a fork it is that of the parent. Async-signal-safe.
pub(super) fn close_statm() {
    close_if_same(STATM.swap(NONE, Ordering::Relaxed));
}

const fn descriptor_of(opened: u64) -> libc::c_int {
    opened as u32 as libc::c_int
}

/// Tells the file of a descriptor from others, of which numbers of the same file system differ; none if it is closed.
fn identity(descriptor: libc::c_int) -> Option<u32> {
    // SAFETY: all zeros are a valid value, which the call fills.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let is_open = libc::fstat(descriptor, &raw mut status) == 0;
        is_open.then_some((status.st_ino as u32) ^ (status.st_dev as u32).rotate_left(16))
    }
}

fn close_if_same(opened: u64) {
    if opened != NONE && identity(descriptor_of(opened)) == Some((opened >> 32) as u32) {
        // SAFETY: the descriptor is the one of `open`, because its file is.
        unsafe { libc::close(descriptor_of(opened)) };
    }
}

/// Opens the file; none if the system has none or allows no more descriptors.
fn open() -> Option<u64> {
    // SAFETY: the path is a C string; descriptors that are not needed are closed.
    let descriptor = unsafe {
        let low = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if low < 0 {
            return None;
        }
        let high = libc::fcntl(low, libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR);
        if high < 0 {
            low
        } else {
            libc::close(low);
            high
        }
    };
    Some(u64::from(identity(descriptor)?) << 32 | u64::from(descriptor.cast_unsigned()))
}

/// Returns the file, which it opens if needed; of two threads that do, one closes its own again.
fn opened() -> Option<u64> {
    let known = STATM.load(Ordering::Relaxed);
    if known != NONE {
        return Some(known);
    }
    let opened = open()?;
    match STATM.compare_exchange(NONE, opened, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(opened),
        Err(others) => {
            close_if_same(opened);
            Some(others)
        }
    }
}

/// Reads the resident size, in units of 4,096 bytes. Allocates nothing; 0 if it cannot be read.
pub(crate) fn resident_pages() -> u32 {
    for _ in 0..2 {
        let Some(opened) = opened() else { return 0 };
        let mut text = [0u8; 128];
        // SAFETY: the buffer is writable for its length.
        let len = unsafe { libc::pread(descriptor_of(opened), text.as_mut_ptr().cast(), text.len(), 0) };
        if let Ok(len) = usize::try_from(len)
            && let Some(pages) = parse_statm(&text[..len])
        {
            return pages;
        }
        // The program closed the descriptor, and may have another file there: it is forgotten and not closed.
        let _ = STATM.compare_exchange(opened, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
    0
}

/// Parses seven numbers in a line; the second is the resident size in pages.
fn parse_statm(text: &[u8]) -> Option<u32> {
    let (line, end) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let mut fields = 0;
    let mut pages = 0u64;
    for field in line.split(|byte| *byte == b' ') {
        fields += 1;
        if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
            return None;
        }
        if fields == 2 {
            pages = field.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
        }
    }
    // SAFETY: no arguments but a name that exists.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    (fields == 7 && end == b"\n").then(|| (pages * (page / UNIT_BYTES).max(1)) as u32)
}
