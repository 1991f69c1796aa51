//! Files of chunks that left the ring: what a sealer drained, what a thread wrote when no chunk was
//! free, what a process wrote out when it ended.
//!
//! A segment is a row of frames, each a 48-byte head and the committed bytes of one chunk. Invariants:
//! frames are only appended; a frame whose checksum does not fit, or that is cut off, is the end of
//! what was written, and its chunk is then still in the ring; the same chunk may stand in several
//! files, with the same bytes as far as the shorter goes.
#![expect(unsafe_code, reason = "writes with plain system calls: the standard library's files may allocate")]

use std::ffi::CStr;
use std::io;

use super::ring::{CHUNK_PAYLOAD_BYTES, Descriptor, exceeds_file_limit};

/// First bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"FLCK";
/// Bytes of a frame's head.
pub const FRAME_HEAD_BYTES: usize = 48;

/// Flags in the upper bits of a frame's length.
const OPEN: u32 = 1 << 31;
const DISORDERED: u32 = 1 << 30;
/// Lane number of frames that hold records about the process itself and belong to no lane.
pub const CONTROL_LANE: u32 = u32::MAX;

/// The committed bytes of one chunk and where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Lane of the process.
    pub lane: u32,
    /// Number of the chunk in its lane.
    pub sequence: u64,
    /// Monotonic time at which the chunk began.
    pub base_time_ns: u64,
    /// Nanoseconds to add to its times for UTC.
    pub utc_offset_ns: i64,
    /// Whether the chunk may go on: a later frame of the same chunk then has more.
    pub is_open: bool,
    /// Whether times in it go back, or go back from the lane's previous chunk to it.
    pub is_disordered: bool,
    /// Its records.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the head that goes before the payload.
    pub fn head(&self) -> [u8; FRAME_HEAD_BYTES] {
        let mut head = [0; FRAME_HEAD_BYTES];
        head[0..4].copy_from_slice(&FRAME_MAGIC);
        head[4..8].copy_from_slice(&self.lane.to_le_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        head[16..24].copy_from_slice(&self.base_time_ns.to_le_bytes());
        head[24..32].copy_from_slice(&self.utc_offset_ns.to_le_bytes());
        let flags = if self.is_open { OPEN } else { 0 } | if self.is_disordered { DISORDERED } else { 0 };
        head[32..36].copy_from_slice(&(self.payload.len() as u32 | flags).to_le_bytes());
        let sum = checksum(checksum(0, &head[..36]), self.payload);
        head[40..48].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// Reads the frame at the start of `bytes`; `None` if there is no whole and sound one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<FRAME_HEAD_BYTES>()?;
        let payload = bytes.get(FRAME_HEAD_BYTES..Self::end(head)?)?;
        let sum = u64::from_le_bytes(*head[40..].first_chunk()?);
        let frame = Self::with_head(head, payload);
        (sum == checksum(checksum(0, &head[..36]), payload)).then_some(frame)
    }

    /// Reads a frame's head alone: the frame has no payload, and whether its checksum fits is not known.
    /// `None` if it is no frame's.
    pub fn parse_head(head: &[u8; FRAME_HEAD_BYTES]) -> Option<Frame<'static>> {
        Self::end(head)?;
        Some(Frame::with_head(head, &[]))
    }

    fn with_head(head: &[u8; FRAME_HEAD_BYTES], payload: &'a [u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("within the head"));
        let half = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("within the head"));
        Self {
            lane: half(4),
            sequence: word(8),
            base_time_ns: word(16),
            utc_offset_ns: word(24) as i64,
            is_open: half(32) & OPEN != 0,
            is_disordered: half(32) & DISORDERED != 0,
            payload,
        }
    }

    /// Returns the length of the frame with this head; `None` if it is no frame's.
    pub fn end(head: &[u8; FRAME_HEAD_BYTES]) -> Option<usize> {
        let len = (u32::from_le_bytes(*head[32..].first_chunk()?) & !(OPEN | DISORDERED)) as usize;
        (head[0..4] == FRAME_MAGIC && len <= CHUNK_PAYLOAD_BYTES).then_some(FRAME_HEAD_BYTES + len)
    }

    /// Bytes the frame takes in a file.
    pub fn file_bytes(&self) -> usize {
        FRAME_HEAD_BYTES + self.payload.len()
    }
}

/// Folds `bytes` into a 64-bit sum that changes with any torn or misplaced block. Not for enemies.
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = seed ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        let word = u64::from_le_bytes(*word.first_chunk().expect("chunks of eight"));
        sum = (sum ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    (sum ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER).rotate_left(29)
}

/// Appends `frame` to the file at `path`, creating it, and returns the file's new length.
///
/// Uses nothing but system calls, so that it may run inside an allocator.
///
/// # Errors
/// What the system said. The file is then as long as it was.
pub(crate) fn append(path: &CStr, frame: &Frame<'_>) -> io::Result<u64> {
    let fd = Descriptor::open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND)?;
    // SAFETY: plain system call on a descriptor we hold.
    let length = unsafe { libc::lseek(fd.0, 0, libc::SEEK_END) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    let end = length as u64 + frame.file_bytes() as u64;
    if exceeds_file_limit(end) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let head = frame.head();
    let written = write_all(fd.0, &head).and_then(|()| write_all(fd.0, frame.payload));
    if written.is_err() {
        // SAFETY: plain system call on a descriptor we hold. If it fails as well, readers stop at
        // the torn frame by its checksum.
        unsafe { libc::ftruncate(fd.0, length) };
    }
    written.map(|()| end)
}

fn write_all(fd: libc::c_int, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: `bytes` is readable for its length.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match written {
            1.. => bytes = &bytes[written as usize..],
            0 => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINTR) {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Iterates over the frames of a segment's bytes, up to the end or the first damage.
pub fn frames(bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let frame = Frame::parse(rest)?;
        rest = &rest[frame.file_bytes()..];
        Some(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_until_a_damaged_one() {
        let payloads = [b"one".as_slice(), b"", b"a longer payload of records"];
        let mut bytes = Vec::new();
        for (sequence, payload) in (0..).zip(payloads) {
            let (is_open, is_disordered) = (sequence == 1, sequence == 2);
            let frame = Frame {
                lane: 7,
                sequence,
                base_time_ns: 99,
                utc_offset_ns: -5,
                is_open,
                is_disordered,
                payload,
            };
            assert_eq!(Frame::parse(&[&frame.head(), payload].concat()), Some(frame));
            bytes.extend_from_slice(&frame.head());
            bytes.extend_from_slice(payload);
        }
        assert_eq!(frames(&bytes).map(|frame| frame.payload).collect::<Vec<_>>(), payloads);
        assert_eq!(frames(&bytes[..bytes.len() - 1]).count(), 2);
        bytes[FRAME_HEAD_BYTES + 1] ^= 1;
        assert_eq!(frames(&bytes).count(), 0);
    }

    #[test]
    fn checksums_notice_cuts_swaps_and_zeroed_blocks() {
        let bytes: Vec<u8> = (0..=255).collect();
        let sum = checksum(0, &bytes);
        assert_ne!(sum, checksum(0, &bytes[..255]));
        let mut swapped = bytes.clone();
        swapped.swap(0, 8);
        assert_ne!(sum, checksum(0, &swapped));
        let mut zeroed = bytes;
        zeroed[128..].fill(0);
        assert_ne!(sum, checksum(0, &zeroed));
    }
}
