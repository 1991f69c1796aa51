//! Whether the resident size of the process can have changed.
//!
//! The kernel counts page faults or changes of the resident size of a thread in the head of a ring that is mapped
//! into the process, so that "nothing has changed" is one load. Where the kernel does not allow that, a system call counts
//! the faults, at most once a microsecond: a fault takes about as long, so few events come later than
//! they should. What the size is now is read by `statm`, and only then.
#![expect(unsafe_code, reason = "maps the rings of the kernel and counts page faults")]

use std::cell::UnsafeCell;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use floodmark_tail::perf::{self, Attributes};

use super::statm::{UNIT_BYTES, resident_pages};

/// The head of threads without a ring, and of forked children, which do not inherit theirs.
static NO_HEAD: AtomicU64 = AtomicU64::new(0);

/// How a thread learns that the resident size may have changed, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The kernel reports every change of the resident size, by the tracepoint with this number.
    RssStat(u64),
    /// The kernel reports page faults, also those in system calls.
    Faults,
    /// The kernel reports page faults outside of system calls.
    UserFaults,
    /// A system call counts page faults, at events that are a microsecond apart.
    Rusage,
}

impl Gate {
    /// Returns the best gate that the system allows, or the one with the given name if it allows that.
    pub(crate) fn probe(name: Option<&str>) -> Self {
        let all =
            [tracepoint_id("kmem/rss_stat").map(Self::RssStat), Some(Self::Faults), Some(Self::UserFaults)];
        let wanted = |gate: &Self| name.is_none_or(|name| name == gate.name());
        let found = all.into_iter().flatten().filter(wanted).find(|gate| Ring::open(*gate).is_some());
        found.unwrap_or(Self::Rusage)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RssStat(_) => "rss_stat",
            Self::Faults => "faults",
            Self::UserFaults => "user_faults",
            Self::Rusage => "rusage",
        }
    }

    /// Says how exact the recorded sizes are.
    pub(crate) const fn exactness(self) -> &'static str {
        match self {
            Self::RssStat(_) => "RSS is exact at every event; changes by other threads appear within 1 ms",
            Self::Faults => {
                "growth of RSS is exact at every event; releases and other threads appear within 1 ms"
            }
            Self::UserFaults => {
                "growth of RSS outside of system calls is exact at every event; other changes appear within 1 ms"
            }
            Self::Rusage => {
                "growth of RSS appears at the first event that is 1 µs later, releases within 1 ms"
            }
        }
    }

    /// Says what would make the sizes more exact or the trace cheaper; nothing for the best gate.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Self::RssStat(_) => "",
            Self::Faults => {
                "mount tracefs at /sys/kernel/tracing and give CAP_PERFMON to make releases exact, too"
            }
            Self::UserFaults => {
                "set kernel.perf_event_paranoid to 1 or give CAP_PERFMON to make system calls exact, too"
            }
            Self::Rusage => {
                "allow perf_event_open (kernel.perf_event_paranoid of 2 or less, a container's seccomp profile) to make \
                 growth exact at every event"
            }
        }
    }
}

/// A ring of the kernel for the calling thread. Only its head is used; what it says is overwritten.
pub(super) struct Ring {
    base: *mut libc::c_void,
    bytes: usize,
}

impl Ring {
    pub(super) fn open(gate: Gate) -> Option<Self> {
        let (kind, config, flags) = match gate {
            Gate::RssStat(id) => (perf::TRACEPOINT, id, 0),
            Gate::Faults => (perf::SOFTWARE, perf::PAGE_FAULTS, 0),
            Gate::UserFaults => {
                (perf::SOFTWARE, perf::PAGE_FAULTS, perf::EXCLUDE_KERNEL | perf::EXCLUDE_HYPERVISOR)
            }
            Gate::Rusage => return None,
        };
        let attributes = Attributes {
            flags: flags | perf::WATERMARK,
            wakeup: 1 << 30,
            ..Attributes::every(1, kind, config)
        };
        let event = attributes.open(0, -1).ok()?;
        // SAFETY: no arguments but a name that exists.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let bytes = 2 * page;
        // SAFETY: a new mapping touches nothing of ours. It keeps the event alive without the descriptor, which a program
        // that closes descriptors it does not know cannot harm then. Read-only, so that the kernel overwrites.
        let base = unsafe {
            let (anywhere, descriptor) = (std::ptr::null_mut(), event.as_raw_fd());
            libc::mmap(anywhere, bytes, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
        };
        (base != libc::MAP_FAILED).then_some(Self { base, bytes })
    }

    /// Returns the word that changes with every event.
    pub(super) fn head(&self) -> *const AtomicU64 {
        // `data_head` of `struct perf_event_mmap_page`.
        const HEAD_OFFSET: usize = 1024;
        // SAFETY: within the first page of the mapping.
        unsafe { self.base.cast::<u8>().add(HEAD_OFFSET).cast() }
    }
}

// SAFETY: an address of a mapping that any thread may unmap.
unsafe impl Send for Ring {}

/// The rings of all threads: a thread gives its ring back when it ends, and the end of a trace unmaps all. Used by threads
/// that do not hold the interpreter's lock, and in forked children.
pub(super) struct Rings {
    is_locked: AtomicBool,
    list: UnsafeCell<Vec<(u64, Ring)>>,
    latest: AtomicU64,
}

// SAFETY: the list is used by the thread that has set `is_locked`.
unsafe impl Sync for Rings {}

pub(super) static RINGS: Rings =
    Rings { is_locked: AtomicBool::new(false), list: UnsafeCell::new(Vec::new()), latest: AtomicU64::new(0) };

impl Rings {
    fn with<T>(&self, act: impl FnOnce(&mut Vec<(u64, Ring)>) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: this thread has the lock.
        let result = act(unsafe { &mut *self.list.get() });
        self.is_locked.store(false, Ordering::Release);
        result
    }

    /// Keeps a ring; returns its number, which is not 0.
    pub(super) fn add(&self, ring: Ring) -> u64 {
        let number = self.latest.fetch_add(1, Ordering::Relaxed) + 1;
        self.with(|list| list.push((number, ring)));
        number
    }

    /// Unmaps a ring, if it is mapped.
    pub(super) fn remove(&self, number: u64) {
        let removed = self.with(|list| {
            let at = list.iter().position(|(known, _)| *known == number)?;
            Some(list.swap_remove(at))
        });
        drop(removed);
    }

    /// Unmaps all rings, of which no thread may read the head any more.
    pub(super) fn clear(&self) {
        drop(self.with(std::mem::take));
    }

    /// Forgets all rings in a forked child, which does not have them.
    pub(super) fn forget(&self) {
        // SAFETY: the child has one thread. The list may have been in use: it is replaced as it is.
        unsafe { self.list.get().write(Vec::new()) };
        self.is_locked.store(false, Ordering::Relaxed);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`; its thread ends, or no trace goes on: nothing reads the head.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

/// Returns a word that never changes.
pub(super) fn no_head() -> *const AtomicU64 {
    &raw const NO_HEAD
}

/// Returns the number of a tracepoint of the kernel, such as `kmem/rss_stat`; none if the process may not read it.
pub(super) fn tracepoint_id(name: &str) -> Option<u64> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].iter().find_map(|folder| {
        std::fs::read_to_string(format!("{folder}/events/{name}/id")).ok()?.trim().parse().ok()
    })
}

/// Counts the page faults of the calling thread.
pub(super) fn thread_faults() -> u64 {
    // SAFETY: all zeros are a valid value, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_minflt as u64).wrapping_add(usage.ru_majflt as u64)
}

/// Touches pages one by one; returns by how many the kernel's count was off at most, 0 if nearly always right: another
/// thread may have touched some, too.
pub(super) fn measure_error() -> u32 {
    const PAGES: usize = 64;
    // SAFETY: no arguments but a name that exists.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let unit = (page as u64 / UNIT_BYTES).max(1) as i64;
    // SAFETY: a new mapping touches nothing of ours; it is written within its bounds and unmapped at the end.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(std::ptr::null_mut(), PAGES * page, protection, flags, -1, 0);
        if base == libc::MAP_FAILED {
            return 0;
        }
        libc::madvise(base, PAGES * page, libc::MADV_NOHUGEPAGE);
        let first = i64::from(resident_pages());
        let (mut error, mut wrong) = (0, 0);
        for index in 0..PAGES {
            base.cast::<u8>().add(index * page).write_volatile(1);
            let expected = first + (index as i64 + 1) * unit;
            let off = (i64::from(resident_pages()) - expected).unsigned_abs();
            wrong += u32::from(off > 0);
            error = error.max(off);
        }
        libc::munmap(base, PAGES * page);
        if wrong > PAGES as u32 / 8 { error as u32 } else { 0 }
    }
}
