//! Child processes: their ends and exit statuses.
#![expect(unsafe_code, reason = "waitid, wait4 and prctl are C functions")]

use std::io;

use super::checked;

/// Result of reaping a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// Wait status.
    pub(crate) status: i32,
    /// Peak of resident bytes of the process, before and after each exec, and of every child that it waited
    /// for.
    pub(crate) peak_rss_bytes: u64,
    /// CPU time of the process and of the children it waited for.
    pub(crate) cpu_ns: u64,
    /// Page faults of the children that it waited for; none if that could not be read.
    pub(crate) child_faults: Option<u64>,
}

/// State of our children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Children {
    /// There are none.
    None,
    /// There are some, none of which has ended.
    Running,
    /// This one has ended and is to be reaped.
    Over(i32),
}

/// Checks our children without reaping any.
pub(crate) fn children() -> Children {
    // SAFETY: all zeros is a valid siginfo_t, whose pid then reads as 0.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid place for the result.
    match checked(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Children::Running,
        Err(_) => Children::None,
        // A stop of a tracee of another thread of ours is reported too.
        Ok(_) if !is_end(&info) => Children::Running,
        // SAFETY: waitid filled the fields of SIGCHLD in.
        Ok(_) => Children::Over(unsafe { info.si_pid() }),
    }
}

/// Whether the information is about the end of a child.
fn is_end(info: &libc::siginfo_t) -> bool {
    matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
}

/// Result of reaping one child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reap {
    /// It has ended and was reaped.
    Over(Reaped),
    /// It runs.
    Running,
    /// It is not our child.
    NotOurs,
}

/// Reaps a child if it has ended. `child_faults` reads the page faults of its children, which is possible
/// only after its end and before it is reaped.
pub(crate) fn reap(pid: i32, child_faults: impl FnOnce() -> Option<u64>) -> Reap {
    // wait4 would also return a stop of a child that another thread of ours traces, and that thread would miss it.
    // SAFETY: all zeros is a valid siginfo_t, whose pid then reads as 0.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid place for the result.
    match checked(unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, options) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Reap::Running,
        Err(_) => return Reap::NotOurs,
        Ok(_) if !is_end(&info) => return Reap::Running,
        Ok(_) => {}
    }
    let child_faults = child_faults();
    let mut status = 0;
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both places are valid for the results.
        match checked(unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) }) {
            Ok(0) => return Reap::Running,
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Reap::NotOurs,
        }
    }
    let time = |time: libc::timeval| {
        (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_usec as u64 * 1000)
    };
    Reap::Over(Reaped {
        status,
        peak_rss_bytes: (usage.ru_maxrss as u64).saturating_mul(1024),
        cpu_ns: time(usage.ru_utime).saturating_add(time(usage.ru_stime)),
        child_faults,
    })
}

/// Sets whether this process is the subreaper of its descendants; returns the previous setting.
pub(crate) fn adopt_orphans(adopt: Adopt) -> io::Result<Adopt> {
    let mut before: libc::c_int = 0;
    // SAFETY: PR_GET_CHILD_SUBREAPER writes an int to the place given.
    checked(unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut before) })?;
    let value: libc::c_ulong = match adopt {
        Adopt::Yes => 1,
        Adopt::No => 0,
    };
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a number.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, value) })?;
    Ok(if before == 0 { Adopt::No } else { Adopt::Yes })
}

/// Whether orphaned descendants become our children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopt {
    Yes,
    No,
}
