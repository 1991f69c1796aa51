//! Signals that the kernel sends to a thread which touches new pages or gives memory back.
#![expect(unsafe_code, reason = "asks for the size of a page")]

use std::ffi::c_int;
use std::os::fd::{IntoRawFd as _, OwnedFd};

use floodmark_tail::perf::{self, Attributes};

use super::gate;
use super::runs::PAGE;

/// Tells our signals from those of debuggers.
pub(super) const SIGNAL_DATA: u64 = 0xf100_d3a2;

/// What is open for a thread.
pub(super) struct ThreadEvent {
    pub(super) thread: u32,
    /// A number, because the program may have closed it.
    pub(super) descriptor: c_int,
    /// Whether it signals every page fault, so that its period may be changed.
    pub(super) is_single: bool,
}

/// Ends of the system calls by which a process gives memory back.
const RELEASES: [&str; 4] = ["sys_exit_munmap", "sys_exit_brk", "sys_exit_madvise", "sys_exit_mremap"];

/// What is opened for all threads.
pub(super) struct Opened {
    pub(super) events: Vec<ThreadEvent>,
    /// Whether the kernel signals releases of memory, too.
    pub(super) has_releases: bool,
}

/// Returns the attributes of an event of which every `period`th one is signaled to the thread, outside of system calls.
fn signal_at(period: u64, kind: u32, config: u64) -> Attributes {
    let excluded = perf::EXCLUDE_KERNEL | perf::EXCLUDE_HYPERVISOR;
    Attributes {
        sample_type: perf::SAMPLE_ADDRESS,
        flags: excluded | perf::INHERIT | perf::INHERIT_THREAD | perf::REMOVE_ON_EXEC | perf::SIGTRAP,
        signal_data: SIGNAL_DATA,
        ..Attributes::every(period, kind, config)
    }
}

pub(super) fn page_faults(period: u64) -> Attributes {
    signal_at(period, perf::SOFTWARE, perf::PAGE_FAULTS)
}

pub(super) fn open_events(period: u64) -> std::io::Result<Opened> {
    let faults = page_faults(period);
    // SAFETY: no arguments but a name that exists.
    let is_single = period == 1 && unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize == PAGE;
    let releases: Vec<Attributes> = RELEASES
        .iter()
        .filter_map(|name| gate::tracepoint_id(&format!("syscalls/{name}")))
        .map(|id| signal_at(1, perf::TRACEPOINT, id))
        .collect();
    let mut opened = Opened { events: Vec::new(), has_releases: !releases.is_empty() };
    let mut error = None;
    // Threads that begin later inherit the event of the one that starts them.
    for entry in std::fs::read_dir("/proc/self/task")? {
        let thread = entry?.file_name().to_str().and_then(|name| name.parse::<libc::pid_t>().ok());
        let Some(thread) = thread else { continue };
        let mut add = |event: OwnedFd, is_single| {
            let descriptor = event.into_raw_fd();
            opened.events.push(ThreadEvent { thread: thread.cast_unsigned(), descriptor, is_single });
        };
        match faults.open(thread, -1) {
            Ok(event) => add(event, is_single),
            Err(refused) => {
                error = Some(refused);
                continue;
            }
        }
        for release in &releases {
            match release.open(thread, -1) {
                Ok(event) => add(event, false),
                Err(_) => opened.has_releases = false,
            }
        }
    }
    match error {
        Some(error) if opened.events.is_empty() => Err(error),
        _ => Ok(opened),
    }
}

/// The first kernel that delivers the signal later where a thread blocks it.
pub(super) const FIRST_KERNEL: (u32, u32) = (5, 19);

pub(super) fn kernel_version() -> Option<(u32, u32)> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
