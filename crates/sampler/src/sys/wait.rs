//! Children: whether there are any, and how they ended.
#![expect(unsafe_code, reason = "waitid, wait4 and prctl are C functions")]

use std::io;

use super::checked;

/// What the kernel says of a child that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// As `wait` gives it.
    pub(crate) status: i32,
    /// Most resident bytes of the process, of what it was before each exec, and of every child that
    /// it waited for.
    pub(crate) peak_rss_bytes: u64,
    /// Processor time of the process and of the children it waited for.
    pub(crate) cpu_ns: u64,
}

/// Our children, seen from afar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Children {
    /// There are none.
    None,
    /// There are some, none of which is over.
    Running,
    /// This one is over and waits to be reaped.
    Over(i32),
}

/// Looks at our children without reaping any.
pub(crate) fn children() -> Children {
    // SAFETY: all zeros is a valid siginfo_t, whose pid then reads as 0.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid place for the result.
    match checked(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Children::Running,
        Err(_) => Children::None,
        // What another thread of ours traces is told of too when it stops, which it does for a moment only.
        Ok(_) if !is_end(&info) => Children::Running,
        // SAFETY: waitid filled the fields of SIGCHLD in.
        Ok(_) => Children::Over(unsafe { info.si_pid() }),
    }
}

/// Whether this is about the end of a child, and not about nothing or a stop.
fn is_end(info: &libc::siginfo_t) -> bool {
    matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
}

/// What came of asking for one child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reap {
    /// It is over, and now gone.
    Over(Reaped),
    /// It runs.
    Running,
    /// It is not our child.
    NotOurs,
}

/// Reaps a child if it is over.
pub(crate) fn reap(pid: i32) -> Reap {
    // A child that another thread of ours has stopped for a moment would be taken for over by wait4, and
    // the other thread would never hear that it has stopped.
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
    })
}

/// Makes orphans below us our children, or stops doing so; says how it was before.
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

/// Whether processes whose parent ended become our children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopt {
    Yes,
    No,
}
