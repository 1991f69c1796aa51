//! GPU memory, by device and by process.
//!
//! Every call takes the driver's lock, and some take milliseconds, so a thread of its own makes them, and
//! rarely: memory ten times a second, the list of processes once. The driver reports PIDs of the host; in
//! another PID namespace they cannot be mapped to processes, so memory is known by device only.
//!
//! A driver can hang, or take half a second to wake up. The thread is therefore detached: a short command
//! never calls the driver, and the end of the thread is not waited for long.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use floodmark_tail::clock::monotonic_ns;

use super::nvml::{Device, Missing, Nvml};
use crate::sys::clock::Waiting;
use crate::sys::eventfd::EventFd;
use crate::sys::signal;

/// Time after which a command is worth waking the driver.
const PATIENCE_NS: u64 = 100_000_000;
/// Time to wait for a call into the driver at the end.
const FAREWELL: Duration = Duration::from_secs(2);
/// Time between two readings of memory, and number of readings per list of processes.
const INTERVAL_NS: u64 = 100_000_000;
const LIST_EVERY: u64 = 10;

/// Inode number of the initial PID namespace.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The latest readings.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Number of readings.
    pub(crate) number: u64,
    pub(crate) at_ns: u64,
    /// Name and UUID of each device.
    pub(crate) names: Vec<(String, String)>,
    pub(crate) devices: Vec<Option<Device>>,
    /// PIDs with bytes, summed over devices, in order.
    pub(crate) processes: Vec<(i32, u64)>,
    /// Number of lists of processes.
    pub(crate) list_number: u64,
    pub(crate) has_foreign_processes: bool,
    /// The reason why there are no readings.
    pub(crate) failed: Option<String>,
    is_over: bool,
}

/// State that the thread shares with the main loop.
pub(crate) struct Gpus {
    reading: Mutex<Reading>,
    over: EventFd,
    ended: Condvar,
}

impl Gpus {
    fn new() -> io::Result<Self> {
        Ok(Self { reading: Mutex::default(), over: EventFd::new()?, ended: Condvar::new() })
    }

    /// Starts the thread.
    pub(crate) fn start(library: &OsStr) -> io::Result<Arc<Self>> {
        let gpus = Arc::new(Self::new()?);
        let (theirs, library) = (Arc::clone(&gpus), library.to_owned());
        let serve = move || {
            if !theirs.waits_until(monotonic_ns() + PATIENCE_NS) {
                theirs.serve(&library);
            }
            theirs.change(|reading| reading.is_over = true);
            theirs.ended.notify_all();
        };
        std::thread::Builder::new().name("floodmark-gpu".into()).spawn(serve)?;
        Ok(gpus)
    }

    /// Ends the thread, and waits for it for a short time.
    pub(crate) fn finish(&self) {
        self.over.notify();
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.ended.wait_timeout_while(reading, FAREWELL, |reading| !reading.is_over);
    }

    /// Waits until a time; returns whether the thread has to end.
    fn waits_until(&self, deadline_ns: u64) -> bool {
        let mut waiting = Waiting::new([Some(self.over.as_fd())]);
        let _ = waiting.until(Some(deadline_ns));
        waiting.is_ready(0)
    }

    /// Calls `look` with the last reading, unless it is being updated.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Reading) -> T) -> Option<T> {
        self.reading.try_lock().ok().map(|reading| look(&reading))
    }

    fn change(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.reading.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Main function of the thread.
    fn serve(&self, library: &OsStr) {
        signal::block_for_this_thread();
        let nvml = match Nvml::load(library) {
            Ok(nvml) => nvml,
            Err(Missing::Absent) => return,
            Err(Missing::Broken(why)) => {
                self.change(|reading| reading.failed = Some(format!("{}: {why}", library.display())));
                return;
            }
        };
        let is_first = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == *FIRST_NAMESPACE);
        let names: Vec<_> = (0..nvml.count()).map(|index| nvml.describe(index)).collect();
        self.change(|reading| reading.names = names);
        let mut list = Vec::new();
        let mut deadline_ns = monotonic_ns();
        for round in 0.. {
            let devices: Vec<_> = (0..nvml.count()).map(|index| nvml.memory(index)).collect();
            let at_ns = monotonic_ns();
            let is_list_due = round % LIST_EVERY == 0;
            if is_list_due {
                list.clear();
                (0..nvml.count()).for_each(|index| nvml.processes(index, &mut list));
                sum_by_process(&mut list);
            }
            self.change(|reading| {
                reading.number += 1;
                (reading.at_ns, reading.devices) = (at_ns, devices);
                if is_list_due {
                    reading.list_number += 1;
                    reading.has_foreign_processes = !is_first && !list.is_empty();
                    reading.processes.clear();
                    reading.processes.extend(list.iter().filter(|_| is_first));
                }
            });
            deadline_ns = (deadline_ns + INTERVAL_NS).max(monotonic_ns());
            if self.waits_until(deadline_ns) {
                return;
            }
        }
    }
}

/// Sums up entries of the same process, which may use several devices.
fn sum_by_process(list: &mut Vec<(i32, u64)>) {
    list.sort_unstable();
    list.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_on_two_devices_counts_once() {
        let mut list = vec![(7, 5), (3, 1), (7, 6)];
        sum_by_process(&mut list);
        assert_eq!(list, [(3, 1), (7, 11)]);
    }

    #[test]
    fn without_a_library_there_is_nothing_and_no_complaint() {
        let gpus = Gpus::new().unwrap();
        gpus.serve(OsStr::new("libno-such-library.so.1"));
        assert!(gpus.with(|reading| reading.failed.is_none() && reading.number == 0).unwrap());
    }
}
