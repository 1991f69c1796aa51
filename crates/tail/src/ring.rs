//! The shared memory file of one recording process: a header, then chunks.
//!
//! Invariants: the writer touches a chunk only after the file system has promised its space, so a
//! full disk is an error code and never a SIGBUS in the host; no descriptor is kept open, because a
//! host that closes descriptors it does not know would hand ours to another file. Readers do not map
//! the file, see `reader`.
#![expect(unsafe_code, reason = "maps files and shares memory with other processes")]

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::{Anchor, monotonic_ns};
use crate::protocol::ChunkHeader;

/// First bytes of a ring.
pub(crate) const RING_MAGIC: [u8; 8] = *b"FLDRING1";
/// Version of the ring's layout and of the records in it. A reader knows all up to its own: those of
/// an earlier version are among those of a later one.
pub const TAIL_VERSION: u32 = 3;
/// Bytes of the ring's header.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Bytes of a chunk, its header included.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of a chunk's header.
pub(crate) const CHUNK_HEADER_BYTES: usize = 64;
/// Bytes of records a chunk holds.
pub(crate) const CHUNK_PAYLOAD_BYTES: usize = CHUNK_BYTES - CHUNK_HEADER_BYTES;

/// Why events were lost; indexes into [`Header::losses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Neither shared memory nor the disk had room.
    NoSpace = 0,
    /// An event was recorded while its thread was recording another, in a signal handler.
    Nested = 1,
    /// More threads recorded at once than a ring has lanes for.
    NoLane = 2,
    /// Strings, frames or stacks were too many or too long to be kept.
    NoDefinition = 3,
}

impl LossReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::NoSpace, Self::Nested, Self::NoLane, Self::NoDefinition];

    /// Finishes the sentence "N events were lost: …".
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoSpace => "no space was left in shared memory and on the disk of the trace",
            Self::Nested => "they happened in a signal handler while their thread was recording",
            Self::NoLane => "more threads recorded at once than there are lanes",
            Self::NoDefinition => "their names or stacks were too many to be kept",
        }
    }
}

/// Start of a ring file. All multi-byte values are little-endian on every supported machine.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) own_bytes: u32,
    pub(crate) chunk_bytes: u32,
    pub(crate) pid: u32,
    pub(crate) parent_pid: u32,
    /// 0 recording, 1 ended in order.
    pub(crate) closed: AtomicU32,
    /// When the process started, in the unit of /proc/PID/stat: tells it from a later one of its pid.
    pub(crate) process_start: u64,
    pub(crate) pid_namespace: u64,
    pub(crate) anchor_monotonic_ns: u64,
    pub(crate) anchor_utc_ns: i64,
    pub(crate) boot_id: [u8; 16],
    /// Chunks that were ever asked for; some may lie beyond the end of the file.
    pub(crate) chunks: AtomicU32,
    pub(crate) reserved: u32,
    pub(crate) losses: [AtomicU64; 8],
    pub(crate) host: [u8; 64],
    pub(crate) command: [u8; 512],
    /// Path of the trace's directory of segments, zero-padded; zeros in earlier versions and if it is too long.
    pub(crate) segments: [u8; SEGMENTS_BYTES],
}

/// Bytes of the path of the directory of segments in a ring's header.
pub(crate) const SEGMENTS_BYTES: usize = 1024;

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES && size_of::<ChunkHeader>() <= CHUNK_HEADER_BYTES);

/// A ring mapped into this process. Never unmapped by the writer: a thread may be writing.
pub(crate) struct Ring {
    base: *mut Header,
    mapped_bytes: usize,
}

// SAFETY: the mapping is valid in every thread; what is written to it concurrently is atomic or
// owned by one lane at a time.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

/// Opens a file for reading and writing, without following a link in its last component.
fn open(path: &CStr, flags: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: `path` is a C string; the mode is given because O_CREAT may be among the flags.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0o600) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

/// A descriptor that is closed at the end of the scope.
pub(crate) struct Descriptor(pub(crate) libc::c_int);

impl Descriptor {
    pub(crate) fn open(path: &CStr, flags: libc::c_int) -> io::Result<Self> {
        open(path, flags).map(Self)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// Whether a file of `bytes` would exceed the host's limit: growing past it raises SIGXFSZ, which
/// would end the host.
pub(crate) fn exceeds_file_limit(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 && limit.rlim_cur < bytes }
}

/// Makes the file system promise `len` bytes at `offset`.
fn reserve(fd: libc::c_int, offset: usize, len: usize) -> io::Result<()> {
    if exceeds_file_limit((offset + len) as u64) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // Shared memory gives up when a signal comes, as they do all the time in a program under a profiler.
    let mut error = io::Error::from_raw_os_error(libc::EINTR);
    for _ in 0..100 {
        // SAFETY: plain system call on a descriptor we hold.
        if unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) } == 0 {
            return Ok(());
        }
        error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            break;
        }
    }
    if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) {
        return Err(error);
    }
    // File systems without fallocate: written zeros are as good a promise as they give.
    let zeros = [0u8; 4096];
    for at in (offset..offset + len).step_by(zeros.len()) {
        // SAFETY: `zeros` is readable for its length.
        let written = unsafe { libc::pwrite(fd, zeros.as_ptr().cast(), zeros.len(), at as libc::off_t) };
        if written != zeros.len() as isize {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Maps `len` bytes of a file, shared.
fn map(fd: libc::c_int, len: usize) -> io::Result<*mut Header> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// What the process says of itself in a ring's header.
pub(crate) struct Identity {
    pub(crate) anchor: Anchor,
    pub(crate) command: [u8; 512],
    /// The trace's directory of segments.
    pub(crate) segments: [u8; SEGMENTS_BYTES],
}

impl Ring {
    /// Creates the file at `path` and maps it with room for `max_chunks`; reserves the first chunk.
    pub(crate) fn create(path: &CStr, max_chunks: usize, identity: &Identity) -> io::Result<Self> {
        let fd = Descriptor::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
        let made = Self::fill(&fd, max_chunks, identity);
        if made.is_err() {
            // SAFETY: `path` is a C string naming the file created above.
            unsafe { libc::unlink(path.as_ptr()) };
        }
        made
    }

    fn fill(fd: &Descriptor, max_chunks: usize, identity: &Identity) -> io::Result<Self> {
        reserve(fd.0, 0, HEADER_BYTES + CHUNK_BYTES)?;
        let mapped_bytes = HEADER_BYTES + max_chunks * CHUNK_BYTES;
        let base = map(fd.0, mapped_bytes)?;
        let header = Header {
            magic: [0; 8],
            version: TAIL_VERSION,
            own_bytes: HEADER_BYTES as u32,
            chunk_bytes: CHUNK_BYTES as u32,
            // SAFETY: no arguments, cannot fail.
            pid: unsafe { libc::getpid() } as u32,
            // SAFETY: no arguments, cannot fail.
            parent_pid: unsafe { libc::getppid() } as u32,
            closed: AtomicU32::new(0),
            process_start: process_start("self").unwrap_or(0),
            pid_namespace: pid_namespace(),
            anchor_monotonic_ns: identity.anchor.monotonic_ns,
            anchor_utc_ns: identity.anchor.utc_ns,
            boot_id: boot_id(),
            chunks: AtomicU32::new(0),
            reserved: 0,
            losses: Default::default(),
            host: host_name(),
            command: identity.command,
            segments: identity.segments,
        };
        // SAFETY: the first HEADER_BYTES of the mapping are reserved above and nobody else knows the
        // file yet; a mapping is page-aligned. The magic is stored last, so that a reader that finds
        // the file in the meantime does not take it for a ring.
        unsafe {
            base.write(header);
            std::sync::atomic::fence(Ordering::Release);
            base.cast::<[u8; 8]>().write_volatile(RING_MAGIC);
        }
        Ok(Self { base, mapped_bytes })
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the first HEADER_BYTES are mapped and backed (create reserves them); everything in it that changes is atomic.
        unsafe { &*self.base }
    }

    /// What to add to monotonic times for UTC.
    pub(crate) fn utc_offset_ns(&self) -> i64 {
        let header = self.header();
        header.anchor_utc_ns.wrapping_sub(header.anchor_monotonic_ns as i64)
    }

    /// Number of chunks that fit the mapping.
    pub(crate) fn capacity(&self) -> usize {
        (self.mapped_bytes - HEADER_BYTES) / CHUNK_BYTES
    }

    /// Returns the start of chunk `index`, which must be below [`Self::capacity`].
    ///
    /// The chunk must be backed by the file before it is touched.
    pub(crate) fn chunk(&self, index: usize) -> *mut ChunkHeader {
        assert!(index < self.capacity(), "chunk index within the mapping");
        // SAFETY: in bounds by the assertion; chunks start at multiples of 4096.
        unsafe { self.base.cast::<u8>().add(HEADER_BYTES + index * CHUNK_BYTES).cast() }
    }

    /// Reserves space for a further chunk in the file at `path` and returns its index.
    pub(crate) fn grow(&self, path: &CStr) -> io::Result<usize> {
        let index = self.header().chunks.fetch_add(1, Ordering::Relaxed) as usize;
        let grown = if index < self.capacity() {
            Descriptor::open(path, libc::O_RDWR)
                .and_then(|fd| reserve(fd.0, HEADER_BYTES + index * CHUNK_BYTES, CHUNK_BYTES))
        } else {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        };
        if grown.is_err() {
            // Give the number back if nobody took a later one; a hole in the numbers does no harm.
            let (taken, free) = (index as u32 + 1, index as u32);
            let _ = self.header().chunks.compare_exchange(taken, free, Ordering::Relaxed, Ordering::Relaxed);
        }
        grown.map(|()| index)
    }

    /// Maps the pages of chunk `index`, which is backed by the file and not in use, where the system can.
    pub(crate) fn populate(&self, index: usize) {
        // SAFETY: within the mapping (`chunk` asserts it); the contents stay as they are.
        unsafe { libc::madvise(self.chunk(index).cast(), CHUNK_BYTES, libc::MADV_POPULATE_WRITE) };
    }

    /// Releases the memory of a ring whose file was removed. The mapping stays: a thread that was held up
    /// in the middle of a record then writes where nothing reads.
    pub(crate) fn discard(&self) {
        let chunks = (self.header().chunks.load(Ordering::Relaxed) as usize).min(self.capacity());
        let bytes = HEADER_BYTES + chunks * CHUNK_BYTES;
        // SAFETY: within the mapping; its contents read as zeros afterwards, which every field may hold.
        // A file system that cannot punch holes keeps the memory.
        unsafe { libc::madvise(self.base.cast(), bytes, libc::MADV_REMOVE) };
    }

    pub(crate) fn lose(&self, reason: LossReason, events: u64) {
        self.header().losses[reason as usize].fetch_add(events, Ordering::Relaxed);
    }
}

/// Returns the start time of a process, field 22 of its stat file.
pub(crate) fn process_start(pid: &str) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may itself contain spaces and parentheses.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let field = stat.get(after..)?.split(|byte| *byte == b' ').nth(19)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Returns the number of this process's pid namespace: pids of another one mean nothing here.
pub(crate) fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Returns the user who owns files that this process creates.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns this host's name, padded with zeros.
pub(crate) fn host_name() -> [u8; 64] {
    let mut host = [0u8; 64];
    // SAFETY: the buffer is writable for the given length; its last byte stays zero.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    host
}

/// Returns this host's name, as far as it can stand in a file name.
fn host_in_names() -> String {
    let plain = |byte: &u8| if byte.is_ascii_alphanumeric() { *byte as char } else { '_' };
    host_name().iter().take_while(|byte| **byte != 0).take(32).map(plain).collect()
}

/// What the tail files of this process are called: host, pid, pid namespace and time.
pub(crate) fn stem() -> String {
    // SAFETY: no arguments, cannot fail.
    let pid = unsafe { libc::getpid() };
    format!("{}-{pid}-{:x}-{:x}", host_in_names(), pid_namespace(), monotonic_ns())
}

/// Whether the process that called its tail files by `stem` ran here and is gone.
///
/// `false` if that cannot be told: it ran on another host or in a container.
pub fn is_maker_gone(stem: &str) -> bool {
    let mut parts = stem.rsplitn(4, '-');
    let [time, namespace, pid, host] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (Some(time), Some(namespace)) = (number(time), number(namespace)) else { return false };
    if host != host_in_names() || namespace != pid_namespace() {
        return false;
    }
    // A clock that has not come so far yet is that of another boot, and a process that began later
    // is another with the same number.
    // SAFETY: no pointers; the name exists.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let began_ns = |start: u64| start.saturating_mul(1_000_000_000 / ticks_per_s);
    time > monotonic_ns() || process_start(pid).is_none_or(|start| began_ns(start) > time)
}

/// Returns the id of this boot: monotonic times of another one mean nothing here.
pub fn boot_id() -> [u8; 16] {
    let mut id = [0; 16];
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        text.iter().filter_map(|byte| (*byte as char).to_digit(16)).map(|d| d as u8).collect();
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}

/// Turns a path into a C string.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Turns a C string into a path.
pub(crate) fn path_of(path: &CStr) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.to_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_are_where_the_format_says() {
        let header = [
            offset_of!(Header, version),
            offset_of!(Header, own_bytes),
            offset_of!(Header, chunk_bytes),
            offset_of!(Header, pid),
            offset_of!(Header, parent_pid),
            offset_of!(Header, closed),
            offset_of!(Header, process_start),
            offset_of!(Header, pid_namespace),
            offset_of!(Header, anchor_monotonic_ns),
            offset_of!(Header, anchor_utc_ns),
            offset_of!(Header, boot_id),
            offset_of!(Header, chunks),
            offset_of!(Header, losses),
            offset_of!(Header, host),
            offset_of!(Header, command),
            offset_of!(Header, segments),
        ];
        assert_eq!(header, [8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 88, 152, 216, 728]);
        let chunk = [
            offset_of!(ChunkHeader, state),
            offset_of!(ChunkHeader, lane),
            offset_of!(ChunkHeader, sequence),
            offset_of!(ChunkHeader, committed),
            offset_of!(ChunkHeader, flags),
            offset_of!(ChunkHeader, base_time_ns),
        ];
        assert_eq!(chunk, [0, 4, 8, 16, 20, 24]);
    }
}
