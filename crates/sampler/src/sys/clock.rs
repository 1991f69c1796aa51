//! Clocks other than the tail's, and waiting until a deadline.
#![expect(unsafe_code, reason = "clocks and ppoll are C functions")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use floodmark_tail::clock::monotonic_ns;

/// CPU time of all threads of this process, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of another process, those that have ended included, in nanoseconds; none if there is no such
/// process. One call instead of opening, reading and closing `stat`.
pub(crate) fn cpu_ns_of(pid: i32) -> Option<u64> {
    // As the kernel numbers the clocks of processes: the inverted PID, then 2 for time on a processor.
    let clock = (!pid << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; the kernel checks the number of the clock.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (pid > 0 && !failed).then(|| nanoseconds(time))
}

/// Time since boot including suspension, in nanoseconds: the clock of process start times.
pub(crate) fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Clock ticks per second.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: sysconf takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}

/// Page size in bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|&bytes| bytes > 0).unwrap_or(4096)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; the clocks used here exist on every Linux we run on.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    nanoseconds(time)
}

fn nanoseconds(time: libc::timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Descriptors to wait for, and which of them are ready.
pub(crate) struct Waiting<const N: usize> {
    fds: [libc::pollfd; N],
}

impl<const N: usize> Waiting<N> {
    /// Creates a set of descriptors to read from; one that is none is never ready.
    pub(crate) fn new(fds: [Option<BorrowedFd<'_>>; N]) -> Self {
        let fds = fds.map(|fd| libc::pollfd {
            fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
            events: libc::POLLIN,
            revents: 0,
        });
        Self { fds }
    }

    /// Waits until a descriptor is readable, a signal was handled, or the deadline has passed.
    ///
    /// The deadline is absolute, so rounding errors do not add up.
    pub(crate) fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let timeout = deadline_ns.map(|deadline| {
            let left = deadline.saturating_sub(monotonic_ns());
            libc::timespec {
                tv_sec: (left / 1_000_000_000) as libc::time_t,
                tv_nsec: (left % 1_000_000_000) as libc::c_long,
            }
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array holds N entries and outlives the call, as does the time; no mask is given.
        let ready =
            unsafe { libc::ppoll(self.fds.as_mut_ptr(), N as libc::nfds_t, timeout, std::ptr::null()) };
        if ready < 0 {
            self.fds.iter_mut().for_each(|fd| fd.revents = 0);
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        Ok(())
    }

    /// Whether a descriptor is readable, at its end, or failed.
    pub(crate) fn is_ready(&self, index: usize) -> bool {
        self.fds.get(index).is_some_and(|fd| fd.revents != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_another_process_is_what_stat_says() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
        let pid = child.id() as i32;
        std::thread::sleep(std::time::Duration::from_millis(200));
        let tick_ns = 1_000_000_000 / ticks_per_second();
        let (before_ns, ticks, after_ns) = (
            cpu_ns_of(pid),
            crate::tree::walk::read_process(pid).map(|found| found.cpu_ticks),
            cpu_ns_of(pid),
        );
        child.kill().and_then(|()| child.wait()).expect("it ran");
        let (before_ns, ticks, after_ns) = (before_ns.unwrap(), ticks.unwrap(), after_ns.unwrap());
        assert!(before_ns > 0 && before_ns <= after_ns, "{before_ns} {after_ns}");
        // User and system time are each rounded down.
        assert!(
            (before_ns / tick_ns).saturating_sub(2) <= ticks && ticks <= after_ns / tick_ns + 1,
            "{before_ns} {ticks}"
        );
        assert_eq!(cpu_ns_of(pid), None, "it is gone");
        assert_eq!(cpu_ns_of(0), None, "this process has no such number");
    }
}
