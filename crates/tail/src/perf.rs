//! The kernel's performance events, as far as the captures of this project use them: page faults and changes of the
//! resident size, of threads of the own process or of others.
#![expect(unsafe_code, reason = "perf_event_open is a system call without a C function")]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Values of [`Attributes::kind`].
pub const SOFTWARE: u32 = 1;
/// Events of a tracepoint of the kernel, whose number is in [`Attributes::config`].
pub const TRACEPOINT: u32 = 2;
/// Software event: page faults.
pub const PAGE_FAULTS: u64 = 2;

/// Bits of [`Attributes::sample_type`]: process and thread.
pub const SAMPLE_TID: u64 = 1 << 1;
/// The address that was touched.
pub const SAMPLE_ADDRESS: u64 = 1 << 3;
/// Registers of the program, those of [`Attributes::sample_regs_user`].
pub const SAMPLE_REGS_USER: u64 = 1 << 12;
/// The innermost part of the stack.
pub const SAMPLE_STACK_USER: u64 = 1 << 13;

/// Bits of [`Attributes::flags`]: threads and processes that are started later have the event too.
pub const INHERIT: u64 = 1 << 1;
/// Leaves out what happens in system calls.
pub const EXCLUDE_KERNEL: u64 = 1 << 5;
/// Leaves out what happens in a hypervisor.
pub const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Records names of threads.
pub const COMM: u64 = 1 << 9;
/// Records the start and the end of threads.
pub const TASK: u64 = 1 << 13;
/// `wakeup` counts bytes.
pub const WATERMARK: u64 = 1 << 14;
/// Marks names that were given by starting another program.
pub const COMM_EXEC: u64 = 1 << 24;
/// Only threads that are started later have the event too, no processes.
pub const INHERIT_THREAD: u64 = 1 << 35;
/// Ends the event when another program is started.
pub const REMOVE_ON_EXEC: u64 = 1 << 36;
/// Sends a signal to the thread at each event.
pub const SIGTRAP: u64 = 1 << 37;

/// Linux's `struct perf_event_attr`, up to version 7. Older kernels accept it as long as what they do not know is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "named as the kernel names them")]
pub struct Attributes {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup: u32,
    pub breakpoint_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clock: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved: u16,
    pub aux_sample_size: u32,
    pub reserved_too: u32,
    pub signal_data: u64,
}

impl Attributes {
    /// Returns the attributes of every `period`th event of a kind.
    pub const fn every(period: u64, kind: u32, config: u64) -> Self {
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config,
            sample_period: period,
            sample_type: 0,
            read_format: 0,
            flags: 0,
            wakeup: 0,
            breakpoint_type: 0,
            config1: 0,
            config2: 0,
            branch_sample_type: 0,
            sample_regs_user: 0,
            sample_stack_user: 0,
            clock: 0,
            sample_regs_intr: 0,
            aux_watermark: 0,
            sample_max_stack: 0,
            reserved: 0,
            aux_sample_size: 0,
            reserved_too: 0,
            signal_data: 0,
        }
    }

    /// Opens the event for a thread, 0 for the calling one, on one CPU or on all, which is -1. Programs that the process
    /// starts do not get the descriptor.
    ///
    /// # Errors
    /// The kernel does not know the event, or does not permit it to this user.
    pub fn open(&self, thread: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
        const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
        let (attributes, no_group) = (std::ptr::from_ref(self), -1);
        // SAFETY: the attributes are as the kernel expects them, with their size; no pointer is kept.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, attributes, thread, cpu, no_group, CLOSE_ON_EXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned a new descriptor, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
    }
}

/// Changes how many events of an open descriptor come between two samples; returns whether it is such a descriptor. The
/// next event is sampled at once. Async-signal-safe.
pub fn set_period(descriptor: libc::c_int, period: u64) -> bool {
    /// `PERF_EVENT_IOC_PERIOD`.
    const PERIOD: libc::Ioctl = 0x4008_2404;
    // SAFETY: the kernel reads the number; a descriptor that is no event refuses the request.
    unsafe { libc::ioctl(descriptor, PERIOD, &raw const period) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_size_of_their_version() {
        assert_eq!(size_of::<Attributes>(), 128);
        assert_eq!(std::mem::offset_of!(Attributes, sample_regs_user), 80);
        assert_eq!(std::mem::offset_of!(Attributes, signal_data), 120);
    }

    #[test]
    fn only_events_have_a_period() {
        use std::os::fd::AsRawFd as _;
        // Counting the own page faults outside of system calls is permitted nearly everywhere.
        let faults = Attributes {
            flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            ..Attributes::every(1, SOFTWARE, PAGE_FAULTS)
        };
        if let Ok(event) = faults.open(0, -1) {
            assert!(set_period(event.as_raw_fd(), 16));
        }
        let file = std::fs::File::open("/proc/self/statm").expect("Linux");
        assert!(!set_period(file.as_raw_fd(), 16));
        assert!(!set_period(-1, 16));
    }

    #[test]
    fn an_event_that_does_not_exist_is_refused() {
        let error = Attributes::every(1, SOFTWARE, u64::MAX).open(0, -1).expect_err("no such event");
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
