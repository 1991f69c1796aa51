//! Pools of the driver: how much they hold and how much of it is in use.
//!
//! The driver is asked for both when a pool is made, trimmed and ended, and at allocations of it, at most every so often.

use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_event::NO_DEVICE;
use floodmark_event::sample::{Metric, Subject, SubjectEnd, SubjectId, SubjectKind};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{When, global};

use super::driver;
use crate::capture::enter_started;
use crate::cold::run_cold;
use crate::fence::fence;
use crate::pid_lock::PidLock;

/// Time between two readings of a pool.
const INTERVAL_NS: u64 = 10_000_000;
/// Pools that are read.
const MOST_POOLS: usize = 256;

/// Pools with the device and the time of the last reading.
static POOLS: PidLock<Vec<Pool>> = PidLock::new(Vec::new());

#[derive(Clone, Copy)]
struct Pool {
    handle: u64,
    device: i32,
    process: u32,
    read_ns: u64,
    /// What stands for it in the recording; none before the first reading.
    subject: SubjectId,
}

/// Pools of devices, by number, and one; 0 before they were asked for.
static DEFAULTS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// A device's own pool served an allocation.
pub(super) fn allocated(device: i32) {
    let Some(default) = usize::try_from(device).ok().and_then(|device| DEFAULTS.get(device)) else { return };
    let mut pool = default.load(Ordering::Relaxed);
    if pool == 0 {
        pool = driver::pool_of(device).unwrap_or(0);
        default.store(pool, Ordering::Relaxed);
    }
    sampled(pool, device);
}

/// When pools were last read, by a hash of their handle: a look that needs no lock.
static READ_NS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Reads a pool if it was not read for a while.
pub(super) fn sampled(pool: u64, device: i32) {
    let now_ns = monotonic_ns();
    let last = &READ_NS[(pool.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize];
    if pool != 0 && now_ns.saturating_sub(last.load(Ordering::Relaxed)) >= INTERVAL_NS {
        last.store(now_ns, Ordering::Relaxed);
        read(pool, device, INTERVAL_NS);
    }
}

/// A pool gave memory back.
pub(super) fn trimmed(pool: u64) {
    if pool != 0 {
        read(pool, NO_DEVICE, 0);
    }
}

/// A pool ends.
pub(super) fn ended(pool: u64) {
    let Some(entered) = enter_started() else { return };
    fence(|| {
        run_cold(&mut || {
            let place = |pools: &Vec<Pool>| pools.iter().position(|known| known.handle == pool);
            let known =
                POOLS.locked_as(super::process(), |pools, _| place(pools).map(|at| pools.swap_remove(at)));
            let Some(known) = known.filter(|known| known.process == super::process()) else { return };
            let subject = known.subject;
            global().samples(subject, &[(Metric::Reserved, 0), (Metric::Live, 0)], When::Now);
            let end = SubjectEnd { wait_status: None, peak_rss_bytes: None };
            global().subject_ended(subject, end, When::Now);
        });
    });
    drop(entered);
}

/// What stands for a pool in the recording, named as importers name it.
fn subject_of(pool: &Pool) -> SubjectId {
    global().subject(&Subject {
        kind: SubjectKind::Pool,
        number: 0,
        start_ns: 0,
        parent: SubjectId(0),
        name: format!("pool {:#x} of device {}", pool.handle, pool.device),
        detail: format!("pid {}", std::process::id()),
    })
}

fn read(handle: u64, device: i32, interval_ns: u64) {
    let now_ns = monotonic_ns();
    let process = super::process();
    let due = POOLS.locked_as(super::process(), |pools, _| {
        pools.retain(|pool| pool.process == process);
        let Some(pool) = pools.iter_mut().find(|pool| pool.handle == handle) else {
            if pools.len() == MOST_POOLS {
                return None;
            }
            let pool = Pool { handle, device, process, read_ns: now_ns, subject: SubjectId(0) };
            pools.push(pool);
            return Some(pool);
        };
        let is_due = now_ns.saturating_sub(pool.read_ns) >= interval_ns;
        pool.read_ns = if is_due { now_ns } else { pool.read_ns };
        is_due.then_some(*pool)
    });
    let Some(pool) = due else { return };
    let Some((reserved, used)) = driver::pool_levels(handle) else { return };
    let Some(entered) = enter_started() else { return };
    fence(|| {
        run_cold(&mut || {
            let mut subject = pool.subject;
            if subject == SubjectId(0) {
                subject = subject_of(&pool);
                POOLS.locked_as(super::process(), |pools, _| {
                    let known = pools.iter_mut().find(|known| known.handle == handle);
                    if let Some(known) = known {
                        known.subject = subject;
                    }
                });
            }
            global().samples(subject, &[(Metric::Reserved, reserved), (Metric::Live, used)], When::Now);
        });
    });
    drop(entered);
}
