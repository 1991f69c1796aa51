//! Sampled page faults, which tell the function that made its process grow, even if its thread has done something
//! else since, or has ended.
//!
//! The kernel samples the whole tree of processes from its root on. Where it refuses, the counters of threads (see
//! `faults`) tell at least the thread.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::{fs, io};

use super::tracer::Copied;
use crate::sys::limit::Limit;
use crate::sys::perf::{FaultRecord, FaultScope, Ring, open_page_faults};
use crate::tree::walk;

/// Page faults for each sample, and where most of them provide two mebibytes instead of a page. The cost is limited by
/// the rings: what has no room until the next sweep is dropped. The kernel can adapt the number itself to take so many
/// samples in a second, but then it often takes none during a burst of some milliseconds.
const PERIOD: u64 = 32;
const PERIOD_OF_HUGE_PAGES: u64 = 8;
/// Samples that are kept of a process between two stacks.
const MOST_SAMPLES: usize = 32;
/// Samples that are kept of all processes.
const MOST_SAMPLES_IN_ALL: usize = 512;
/// Descriptors that are left to others, and the share of the remaining ones that events may use.
const DESCRIPTORS_LEFT: u64 = 64;
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// A sampled page fault.
#[derive(Debug)]
pub(crate) struct FaultSample {
    /// Number of page faults that it stands for.
    pub(crate) faults: u64,
    /// The thread as it was then.
    pub(crate) copied: Copied,
}

/// The thread of a process that had most of the sampled page faults.
#[derive(Debug)]
pub(crate) struct Sampled {
    pub(crate) thread: i32,
    /// Its page faults, at most: with those of all processes that were dropped.
    pub(crate) faults: u64,
    pub(crate) samples: Vec<FaultSample>,
}

/// Samples page faults of a tree of processes.
#[derive(Debug, Default)]
pub(crate) struct FaultSampler {
    /// A ring for each CPU, with the first event.
    rings: Vec<(i32, Ring)>,
    /// Further events, which write to these rings.
    events: Vec<OwnedFd>,
    /// Threads of each process with page faults since its stacks were last taken.
    pending: HashMap<i32, Threads>,
    period: u64,
    scope: FaultScope,
    /// Page faults that were dropped since stacks were last taken.
    lost: u64,
}

type Threads = HashMap<i32, ThreadFaults>;

impl FaultSampler {
    /// Begins to sample a process and all its descendants.
    ///
    /// # Errors
    /// A sentence that says why this is refused, and what would permit it.
    pub(crate) fn attach(&mut self, root: i32) -> Result<(), String> {
        let mut known = HashSet::new();
        // Threads that are started while events are opened inherit some of them: in the second round they get all.
        // Where they have two then, their page faults count twice.
        for _ in 0..2 {
            let threads: Vec<i32> = tree(root).into_iter().filter(|thread| known.insert(*thread)).collect();
            if let Err(why) = self.open(&threads) {
                *self = Self::default();
                return Err(why);
            }
        }
        Ok(())
    }

    fn open(&mut self, threads: &[i32]) -> Result<(), String> {
        let cpus = online_cpus();
        let budget = Limit::descriptors().count().saturating_sub(DESCRIPTORS_LEFT) / SHARE_OF_DESCRIPTORS;
        let wanted = (self.rings.len() + self.events.len() + cpus.len() * threads.len()) as u64;
        if wanted > budget {
            return Err(refusal(&format!("{wanted} descriptors are needed: raise the limit (ulimit -n)")));
        }
        self.period = period();
        for cpu in cpus {
            for thread in threads {
                let event = match self.open_event(*thread, cpu) {
                    Ok(event) => event,
                    // The thread has ended, or the CPU is off.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => {
                        continue;
                    }
                    Err(error) => return Err(why_refused(&error)),
                };
                match self.rings.iter().find(|(ring_cpu, _)| *ring_cpu == cpu) {
                    None => {
                        let ring = Ring::map(event).map_err(|error| why_unmapped(&error))?;
                        self.rings.push((cpu, ring));
                    }
                    Some((_, ring)) => {
                        ring.join(&event).map_err(|error| why_refused(&error))?;
                        self.events.push(event);
                    }
                }
            }
        }
        Ok(())
    }

    fn open_event(&mut self, thread: i32, cpu: i32) -> io::Result<OwnedFd> {
        let event = open_page_faults(thread, cpu, self.scope, self.period);
        if self.scope == FaultScope::All && event.as_ref().is_err_and(is_denied) {
            self.scope = FaultScope::User;
            return open_page_faults(thread, cpu, self.scope, self.period);
        }
        event
    }

    /// Reads new samples.
    pub(crate) fn collect(&mut self) {
        let (pending, lost, period) = (&mut self.pending, &mut self.lost, self.period);
        for (_, ring) in &mut self.rings {
            ring.drain(|record| match record {
                FaultRecord::Sample { process, thread, registers, stack } => {
                    let copied = || Copied { thread, registers, stack: stack.to_owned(), pause_ns: 0 };
                    pending.entry(process).or_default().entry(thread).or_default().add(period, copied);
                }
                // Its addresses mean something else now, or nothing.
                FaultRecord::Exec { process } => drop(pending.remove(&process)),
                FaultRecord::Exit { process, thread } if process == thread => drop(pending.remove(&process)),
                FaultRecord::Exit { .. } => {}
                FaultRecord::Lost { count } => *lost += count * period,
            });
        }
        let kept = |threads: &Threads| threads.values().map(|one| one.samples.len()).sum::<usize>();
        while pending.values().map(kept).sum::<usize>() > MOST_SAMPLES_IN_ALL {
            let faults = |threads: &Threads| threads.values().map(|one| one.faults).sum::<u64>();
            let least =
                pending.iter().min_by_key(|(_, threads)| faults(threads)).map(|(process, _)| *process);
            let Some(least) = least else { return };
            if pending.len() > 1 {
                pending.remove(&least);
                continue;
            }
            // Of the only process, threads with few faults go first.
            let Some(threads) = pending.get_mut(&least).filter(|threads| threads.len() > 1) else { return };
            let idle = threads.iter().min_by_key(|(_, one)| one.faults).map(|(thread, _)| *thread);
            threads.remove(&idle.unwrap_or(0));
        }
    }

    /// Returns the thread of a process that had most page faults since the last call, with its samples.
    pub(crate) fn take(&mut self, process: i32) -> Option<Sampled> {
        let threads = self.pending.remove(&process)?;
        let (thread, most) = threads.into_iter().max_by_key(|(thread, one)| (one.faults, *thread))?;
        Some(Sampled { thread, faults: most.faults + std::mem::take(&mut self.lost), samples: most.samples })
    }
}

/// Page faults of a thread.
#[derive(Debug, Default)]
struct ThreadFaults {
    faults: u64,
    /// Some of the samples, evenly chosen.
    samples: Vec<FaultSample>,
    /// Each 2 to the power of this one is kept.
    halvings: u32,
    /// Number of samples, and the page faults of those since the last one that was kept.
    seen: u64,
    carried: u64,
}

impl ThreadFaults {
    fn add(&mut self, faults: u64, copied: impl FnOnce() -> Copied) {
        self.faults += faults;
        self.seen += 1;
        self.carried += faults;
        if !self.seen.is_multiple_of(1 << self.halvings) {
            return;
        }
        let faults = std::mem::take(&mut self.carried);
        self.samples.push(FaultSample { faults, copied: copied() });
        if self.samples.len() == MOST_SAMPLES {
            self.halvings += 1;
            let mut before = None;
            self.samples.retain_mut(|sample| match before.take() {
                None => {
                    before = Some(sample.faults);
                    false
                }
                Some(faults) => {
                    sample.faults += faults;
                    true
                }
            });
        }
    }
}

/// Threads of a process and of its descendants.
fn tree(root: i32) -> Vec<i32> {
    let (mut threads, mut processes) = (Vec::new(), vec![root]);
    while let Some(process) = processes.pop() {
        threads.extend(walk::threads_of(process));
        processes.extend(walk::children_of(process));
    }
    threads
}

/// CPUs that are on.
fn online_cpus() -> Vec<i32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpus(&text);
    let count = std::thread::available_parallelism().map_or(1, |count| count.get() as i32);
    if cpus.is_empty() { (0..count).collect() } else { cpus }
}

/// Reads a list such as `0-3,8`.
fn parse_cpus(text: &str) -> Vec<i32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

fn period() -> u64 {
    let huge_pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if huge_pages.contains("[always]") { PERIOD_OF_HUGE_PAGES } else { PERIOD }
}

fn read_number(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn refusal(why: &str) -> String {
    format!("page faults are counted for each thread, but not sampled with their functions: {why}")
}

/// Describes why events are refused, and what would permit them.
fn why_refused(error: &io::Error) -> String {
    let paranoid = read_number("/proc/sys/kernel/perf_event_paranoid");
    refusal(&match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(paranoid)) if paranoid > 2 => {
            format!("kernel.perf_event_paranoid is {paranoid}: set it to 2, or have CAP_PERFMON")
        }
        (Some(libc::EACCES | libc::EPERM), _) => "perf_event_open is not permitted: the container must allow it \
             (CAP_PERFMON, or a seccomp profile with perf_event_open), and the process must belong to the same user"
            .into(),
        (Some(libc::ENOSYS | libc::ENOENT), _) => "this kernel has no performance events".into(),
        (Some(libc::EMFILE | libc::ENFILE), _) => "too few descriptors: raise the limit (ulimit -n)".into(),
        _ => format!("perf_event_open: {error}"),
    })
}

fn why_unmapped(error: &io::Error) -> String {
    refusal(&match error.raw_os_error() {
        Some(libc::EPERM) => {
            "too little memory may be locked: raise kernel.perf_event_mlock_kb, or ulimit -l".into()
        }
        _ => format!("mapping the samples: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_cpus("0\n"), [0]);
        assert_eq!(parse_cpus(""), [] as [i32; 0]);
    }

    #[test]
    fn few_samples_are_kept_and_stand_for_all() {
        let mut sampler = FaultSampler::default();
        let threads = sampler.pending.entry(5).or_default();
        for n in 0..10_000u64 {
            let thread = if n % 4 == 0 { 2 } else { 1 };
            let one = threads.entry(thread).or_default();
            one.add(3, || Copied { thread, ..Copied::default() });
            assert!(one.samples.len() < MOST_SAMPLES);
            let kept: u64 = one.samples.iter().map(|sample| sample.faults).sum();
            assert_eq!(kept + one.carried, one.faults);
        }
        let sampled = sampler.take(5).expect("there are samples");
        assert_eq!((sampled.thread, sampled.faults), (1, 22_500));
        assert!(sampled.samples.len() >= MOST_SAMPLES / 4);
        assert!(sampled.samples.iter().all(|sample| sample.copied.thread == 1));
        assert!(sampler.take(5).is_none());
    }

    #[test]
    fn a_refusal_names_what_would_permit_it() {
        let denied = why_refused(&io::Error::from_raw_os_error(libc::EACCES));
        assert!(denied.contains("CAP_PERFMON"), "{denied}");
        assert!(why_unmapped(&io::Error::from_raw_os_error(libc::EPERM)).contains("ulimit -l"));
    }
}
