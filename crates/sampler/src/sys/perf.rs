//! Samples of page faults by the kernel's performance events.
//!
//! Each sample has the registers and a copy of the innermost part of the thread's stack, so that it can be unwound
//! like the stack of a stopped thread. A chain of frame pointers, which the kernel could follow itself, ends at the
//! first function without one, and most system libraries have none.
#![expect(unsafe_code, reason = "mmap and ioctl are C functions")]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_tail::perf::{self, Attributes};

use super::checked;
use super::trace::Registers;

/// Bytes of a stack in a sample.
const STACK_BYTES: u32 = 16 << 10;
/// Pages of samples in a ring: what every user may lock for each CPU, besides the first page.
const RING_PAGES: usize = 128;

const SET_OUTPUT: libc::c_ulong = 0x2405;
const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_SAMPLE: u32 = 9;
const MISC_COMM_EXEC: u16 = 1 << 13;
const ABI_64: u64 = 2;

/// Frame pointer, stack pointer and instruction pointer, in this order in a sample.
#[cfg(target_arch = "x86_64")]
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// Frame pointer, link register, stack pointer and program counter, in this order in a sample.
#[cfg(target_arch = "aarch64")]
const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// Which page faults are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FaultScope {
    /// All, also those of system calls that write to new memory; needs a permission.
    #[default]
    All,
    /// Those of the program's own instructions.
    User,
}

/// Starts to sample one of `period` page faults of a thread on one CPU, with those of threads and processes that it
/// starts later.
pub(crate) fn open_page_faults(thread: i32, cpu: i32, scope: FaultScope, period: u64) -> io::Result<OwnedFd> {
    let excluded = if scope == FaultScope::User { perf::EXCLUDE_KERNEL } else { 0 };
    let attributes = Attributes {
        // The period must not be among them: with it, the kernel samples every event of software.
        sample_type: perf::SAMPLE_TID | perf::SAMPLE_REGS_USER | perf::SAMPLE_STACK_USER,
        flags: perf::INHERIT
            | perf::EXCLUDE_HYPERVISOR
            | perf::COMM
            | perf::COMM_EXEC
            | perf::TASK
            | excluded,
        sample_regs_user: REGISTERS,
        sample_stack_user: STACK_BYTES,
        ..Attributes::every(period, perf::SOFTWARE, perf::PAGE_FAULTS)
    };
    attributes.open(thread, cpu)
}

/// The ring into which the kernel writes the samples of one CPU.
#[derive(Debug)]
pub(crate) struct Ring {
    event: OwnedFd,
    /// The first page, as words; the samples follow it.
    memory: NonNull<AtomicU64>,
    page_bytes: usize,
    /// The record that is being read.
    record: Vec<u8>,
}

impl Ring {
    /// Maps the ring of an event.
    pub(crate) fn map(event: OwnedFd) -> io::Result<Self> {
        // SAFETY: sysconf takes and returns numbers.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let (length, rights) = ((1 + RING_PAGES) * page_bytes, libc::PROT_READ | libc::PROT_WRITE);
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(none, length, rights, libc::MAP_SHARED, event.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { event, memory, page_bytes, record: Vec::new() })
    }

    /// Sends the samples of another event of the same CPU to this ring.
    pub(crate) fn join(&self, event: &OwnedFd) -> io::Result<()> {
        // SAFETY: this request takes a descriptor.
        checked(unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, self.event.as_raw_fd()) })?;
        Ok(())
    }

    /// One of the two positions in the first page.
    fn position(&self, word: usize) -> &AtomicU64 {
        // SAFETY: the first page has aligned 64-bit integers at the offsets that are used below, which the kernel
        // accesses atomically; it is mapped as long as `self` exists.
        unsafe { self.memory.add(word).as_ref() }
    }

    /// Reads what the kernel wrote since the last call.
    pub(crate) fn drain(&mut self, mut read: impl FnMut(FaultRecord<'_>)) {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut tail = self.position(TAIL).load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        while head.wrapping_sub(tail) >= HEADER_BYTES as u64 {
            self.copy(tail, HEADER_BYTES, &mut record);
            let size = usize::from(u16::from_le_bytes([record[6], record[7]]));
            if size < HEADER_BYTES || size as u64 > head.wrapping_sub(tail) {
                // The kernel writes whole records only.
                tail = head;
                break;
            }
            self.copy(tail, size, &mut record);
            if let Some(record) = parse(&record) {
                read(record);
            }
            tail = tail.wrapping_add(size as u64);
        }
        self.record = record;
        self.position(TAIL).store(tail, Ordering::Release);
    }

    /// Copies bytes of the ring, which may continue at its beginning.
    fn copy(&self, at: u64, length: usize, to: &mut Vec<u8>) {
        let whole = RING_PAGES * self.page_bytes;
        let at = (at % whole as u64) as usize;
        let first = length.min(whole - at);
        to.resize(length, 0);
        // SAFETY: the ring follows the first page and has `whole` bytes; both parts are within it, and `to` has
        // `length` bytes. The kernel does not write to what lies between tail and head.
        unsafe {
            let ring = self.memory.as_ptr().cast::<u8>().add(self.page_bytes);
            std::ptr::copy_nonoverlapping(ring.add(at), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(ring, to.as_mut_ptr().add(first), length - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), (1 + RING_PAGES) * self.page_bytes) };
    }
}

/// Words of the first page: the end of what the kernel wrote, and the end of what was read.
const HEAD: usize = 128;
const TAIL: usize = 129;

const HEADER_BYTES: usize = 8;

/// A record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultRecord<'a> {
    /// A page fault.
    Sample { process: i32, thread: i32, registers: Registers, stack: &'a [u8] },
    /// A process runs another program.
    Exec { process: i32 },
    /// A thread has ended.
    Exit { process: i32, thread: i32 },
    /// Records that had no room.
    Lost { count: u64 },
}

/// Reads integers from the beginning of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn id(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }
}

fn parse(record: &[u8]) -> Option<FaultRecord<'_>> {
    let kind = u32::from_le_bytes(record.get(..4)?.try_into().ok()?);
    let misc = u16::from_le_bytes(record.get(4..6)?.try_into().ok()?);
    let mut fields = Fields(record.get(HEADER_BYTES..)?);
    match kind {
        RECORD_SAMPLE => sample(&mut fields),
        RECORD_COMM if misc & MISC_COMM_EXEC != 0 => Some(FaultRecord::Exec { process: fields.id()? }),
        RECORD_EXIT => {
            let (process, _parent, thread) = (fields.id()?, fields.id()?, fields.id()?);
            Some(FaultRecord::Exit { process, thread })
        }
        RECORD_LOST => {
            let (_event, count) = (fields.word()?, fields.word()?);
            Some(FaultRecord::Lost { count })
        }
        _ => None,
    }
}

fn sample<'a>(fields: &mut Fields<'a>) -> Option<FaultRecord<'a>> {
    let (process, thread) = (fields.id()?, fields.id()?);
    // Neither a kernel thread nor a 32-bit program can be unwound.
    if fields.word()? != ABI_64 {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    let registers = {
        let (frame, stack, instruction) = (fields.word()?, fields.word()?, fields.word()?);
        Registers { instruction, stack, frame, ..Registers::default() }
    };
    #[cfg(target_arch = "aarch64")]
    let registers = {
        let (frame, link, stack, instruction) =
            (fields.word()?, fields.word()?, fields.word()?, fields.word()?);
        Registers { instruction, stack, frame, link, ..Registers::default() }
    };
    let size = usize::try_from(fields.word()?).ok()?;
    let stack = fields.bytes(size)?;
    let valid = if size == 0 { 0 } else { usize::try_from(fields.word()?).ok()? };
    Some(FaultRecord::Sample { process, thread, registers, stack: stack.get(..valid)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend((HEADER_BYTES as u16 + 8 * words.len() as u16).to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn samples_and_lives_of_processes_are_read() {
        let ids = 7 | 9 << 32;
        let bytes = record(RECORD_SAMPLE, 0, &[ids, ABI_64, 1, 2, 3, 16, 0x11, 0x22, 8]);
        let registers = Registers { instruction: 3, stack: 2, frame: 1, ..Registers::default() };
        let stack = &0x11u64.to_le_bytes()[..];
        let expected = FaultRecord::Sample { process: 7, thread: 9, registers, stack };
        assert_eq!(parse(&bytes), Some(expected), "as much of the stack as is valid");
        assert_eq!(parse(&record(RECORD_SAMPLE, 0, &[ids, 1, 1, 2, 3, 0])), None, "32 bits");
        let exec = record(RECORD_COMM, MISC_COMM_EXEC, &[ids, 0x6c73]);
        assert_eq!(parse(&exec), Some(FaultRecord::Exec { process: 7 }));
        assert_eq!(parse(&record(RECORD_COMM, 0, &[ids, 0x6c73])), None, "only a name");
        let exit = record(RECORD_EXIT, 0, &[7 | 1 << 32, 9 | 1 << 32, 0]);
        assert_eq!(parse(&exit), Some(FaultRecord::Exit { process: 7, thread: 9 }));
        assert_eq!(parse(&record(RECORD_LOST, 0, &[1, 4])), Some(FaultRecord::Lost { count: 4 }));
    }

    proptest! {
        #[test]
        fn no_bytes_are_read_beyond_a_record(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u32..12) {
            let mut bytes = bytes;
            if let Some(start) = bytes.get_mut(..4) {
                start.copy_from_slice(&kind.to_le_bytes());
            }
            if let Some(FaultRecord::Sample { stack, .. }) = parse(&bytes) {
                prop_assert!(stack.len() < bytes.len());
            }
        }
    }
}
