//! Stopping a thread of another process with ptrace, and reading its memory.
//!
//! A tracee continues by itself when the tracing thread ends, however it ends, because the kernel detaches
//! it. `PTRACE_O_EXITKILL` is not used.
#![expect(unsafe_code, reason = "ptrace, waitid and process_vm_readv are C functions")]

use std::io;

use super::checked;
use crate::procfs::Life;
use crate::tree::walk;

/// Registers for unwinding a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    /// Instruction pointer.
    pub(crate) instruction: u64,
    /// Stack pointer.
    pub(crate) stack: u64,
    /// Frame pointer.
    pub(crate) frame: u64,
    /// Return address, on architectures with a link register.
    pub(crate) link: u64,
    /// Thread pointer, if it is in a register.
    pub(crate) itself: u64,
}

/// The reason why a thread was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has ended.
    Gone,
    /// It may not be traced.
    Denied,
    /// Another tracer has it: a debugger, or a thread of ours that waits for it to stop.
    Busy,
}

/// Number of attempts to attach to a thread.
const TRIES: u32 = 10;

/// A traced thread.
///
/// Only the thread that attached may detach, which the type does not enforce; it is neither sent nor shared.
#[derive(Debug)]
pub(crate) struct Traced {
    process: i32,
    thread: i32,
    state: State,
    not_send: std::marker::PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, or was asked to stop.
    Running,
    /// It is stopped, and gets this signal when it continues; 0 for none.
    Stopped(i32),
    /// It has ended, or is detached.
    Gone,
}

impl Traced {
    /// Attaches to a thread, which continues to run.
    pub(crate) fn seize(process: i32, thread: i32) -> Result<Self, Refusal> {
        let mut refusal = Refusal::Denied;
        for _ in 0..TRIES {
            // No options: the thread must not end with us, and no events are needed.
            match request(libc::PTRACE_SEIZE, thread, 0).map_err(|error| error.raw_os_error()) {
                Ok(()) => {
                    let not_send = std::marker::PhantomData;
                    return Ok(Self { process, thread, state: State::Running, not_send });
                }
                Err(Some(libc::ESRCH)) => return Err(Refusal::Gone),
                // The error is the same for an ended thread. A thread that calls exec may have its id by now.
                Err(_) if is_over(thread) => return Err(Refusal::Gone),
                // Nor does it tell whether another tracer has the thread. That one may let go at any moment.
                Err(_) if tracer_of(thread).is_some() => refusal = Refusal::Busy,
                Err(_) => {}
            }
            std::thread::yield_now();
        }
        Err(refusal)
    }

    /// Stops the thread and waits until it has stopped.
    pub(crate) fn stop(&mut self) -> Result<(), Refusal> {
        // It fails for a zombie, and for a thread that became the first one by exec.
        let _ = request(libc::PTRACE_INTERRUPT, self.thread, 0);
        self.wait();
        match self.state {
            State::Stopped(_) => Ok(()),
            _ => Err(Refusal::Gone),
        }
    }

    /// Asks the thread to stop, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        // As in `stop`.
        let _ = request(libc::PTRACE_INTERRUPT, self.thread, 0);
    }

    /// Whether the thread that was asked has stopped by now.
    pub(crate) fn has_stopped(&mut self) -> bool {
        if self.state == State::Running && wait_for(self.thread, libc::WNOHANG).is_some() {
            self.wait();
        }
        matches!(self.state, State::Stopped(_))
    }

    /// Whether there is still something to wait for.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state == State::Running
    }

    /// Thread id.
    pub(crate) fn thread(&self) -> i32 {
        self.thread
    }

    /// Waits for the thread to stop, or to end.
    fn wait(&mut self) {
        let waited = loop {
            if let Some(waited) = wait_for(self.thread, 0) {
                break waited;
            }
        };
        match waited {
            Waited::Stopped(signal) => self.state = State::Stopped(signal),
            Waited::Over => {
                leave_to_parent(self.process, self.thread);
                self.state = State::Gone;
            }
            // A thread that calls exec takes over the id of the first thread, and is still traced.
            Waited::NotOurs if self.thread != self.process => {
                self.thread = self.process;
                if request(libc::PTRACE_INTERRUPT, self.thread, 0).is_err() {
                    self.state = State::Gone;
                    return;
                }
                self.wait();
            }
            Waited::NotOurs => self.state = State::Gone,
        }
    }

    /// Reads the registers of a stopped thread.
    pub(crate) fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all zeros is a valid set of registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let mut place = libc::iovec {
            iov_base: (&raw mut registers).cast(),
            iov_len: std::mem::size_of::<libc::user_regs_struct>(),
        };
        // SAFETY: the kernel writes at most `iov_len` bytes to the buffer, which has that size.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGSET,
                self.thread,
                NT_PRSTATUS as *mut libc::c_void,
                &raw mut place,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // A 32-bit process has other registers.
        if place.iov_len != std::mem::size_of::<libc::user_regs_struct>() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Registers::from(&registers))
    }
}

/// Number of the general registers for `PTRACE_GETREGSET`.
const NT_PRSTATUS: usize = 1;

#[cfg(target_arch = "x86_64")]
impl From<&libc::user_regs_struct> for Registers {
    fn from(registers: &libc::user_regs_struct) -> Self {
        Self {
            instruction: registers.rip,
            stack: registers.rsp,
            frame: registers.rbp,
            link: 0,
            itself: registers.fs_base,
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl From<&libc::user_regs_struct> for Registers {
    fn from(registers: &libc::user_regs_struct) -> Self {
        let (frame, link) = (registers.regs[29], registers.regs[30]);
        Self { instruction: registers.pc, stack: registers.sp, frame, link, itself: 0 }
    }
}

/// Detaches from the thread, which continues.
impl Drop for Traced {
    fn drop(&mut self) {
        if self.state == State::Running {
            // Only a stopped thread can be detached.
            let _ = self.stop();
        }
        // It fails for a thread that was killed while it was stopped. It must be waited for, or it and its
        // process remain zombies.
        while let State::Stopped(signal) = self.state
            && request(libc::PTRACE_DETACH, self.thread, signal as usize).is_err()
        {
            self.wait();
        }
    }
}

fn request(request: libc::c_uint, thread: i32, data: usize) -> io::Result<()> {
    // SAFETY: these requests take a number and no address.
    let result = unsafe {
        libc::ptrace(request, thread, std::ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

enum Waited {
    /// It has stopped; with the signal that it was about to get, or 0.
    Stopped(i32),
    Over,
    NotOurs,
}

/// State change of a thread; none if there is none yet, or if a signal interrupted the call.
fn wait_for(thread: i32, flags: libc::c_int) -> Option<Waited> {
    // SAFETY: all zeros is a valid siginfo_t, whose pid then reads as 0.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // Nothing is reaped here: the exit status of a child of ours is for the watcher.
    let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL | flags;
    // SAFETY: `info` is a valid place for the result.
    let result = checked(unsafe { libc::waitid(libc::P_PID, thread as libc::id_t, &raw mut info, options) });
    // SAFETY: waitid filled the fields of SIGCHLD in, or left the zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    match result {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
        Err(_) => Some(Waited::NotOurs),
        Ok(_) if pid == 0 => None,
        Ok(_) if matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) => {
            // With an event it is the requested stop, or a stop of the whole process.
            Some(Waited::Stopped(if status >> 8 == 0 { status & 0x7f } else { 0 }))
        }
        Ok(_) => Some(Waited::Over),
    }
}

/// Reaps a traced thread, if it has ended, so that its parent is notified. If we are the parent, the exit
/// status is left for the watcher.
fn leave_to_parent(process: i32, thread: i32) {
    if thread == process && is_our_child(process) {
        return;
    }
    // Waiting for the end of a tracee also returns its stops, which are then lost for others. Hence the check
    // that it has ended, which does not change.
    if !matches!(wait_for(thread, libc::WNOHANG), Some(Waited::Over)) {
        return;
    }
    // SAFETY: all zeros is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: `info` is a valid place for the result.
    let _ = unsafe { libc::waitid(libc::P_PID, thread as libc::id_t, &raw mut info, options) };
}

/// PID of the process that traces a thread.
pub(crate) fn tracer_of(thread: i32) -> Option<i32> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|pid| *pid != 0)
}

fn is_over(thread: i32) -> bool {
    walk::read_process(thread).is_none_or(|found| found.life == Life::Zombie)
}

fn is_our_child(process: i32) -> bool {
    let own = std::process::id() as i32;
    walk::read_process(process).is_some_and(|found| found.parent == own)
}

/// Reaps ended tracees of any thread of ours, except for first threads of processes.
///
/// A thread that calls exec waits until all other threads of its process are gone, and blocks attaching to
/// the process until then. If one of the others is traced by the thread that is blocked in attaching, both
/// wait forever unless another thread reaps the ended ones.
pub(crate) fn bury_threads(process: i32, threads: &[i32]) {
    for thread in threads.iter().filter(|thread| **thread != process) {
        leave_to_parent(process, *thread);
    }
}

/// Copies memory of a process; returns the number of bytes that could be read.
pub(crate) fn read_memory(process: i32, address: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the kernel writes only to `buffer`, at most its length; the other address is read in the other
    // process, and checked by the kernel.
    let read = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::sys::wait::{self, Reap};

    #[test]
    fn a_stop_is_told_to_whoever_traces_and_to_nobody_else() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let pid = child.id() as i32;
        let mut traced = Traced::seize(pid, pid).expect("a child of ours can be traced");
        traced.ask_to_stop();
        let stat = format!("/proc/{pid}/stat");
        while !std::fs::read_to_string(&stat).expect("it is there").contains(") t ") {
            std::thread::yield_now();
        }
        // A search for ended tracees finds none and reaps nothing.
        bury_threads(1, &[pid]);
        assert!(matches!(wait::reap(pid, || None), Reap::Running));
        assert!(traced.has_stopped());
        assert_ne!(traced.registers().expect("it is stopped").stack, 0);
        drop(traced);
        assert!(!std::fs::read_to_string(&stat).expect("it is there").contains(") t "));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }

    #[test]
    fn a_thread_that_is_killed_while_it_is_stopped_is_left_to_its_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let pid = child.id() as i32;
        let mut traced = Traced::seize(pid, pid).expect("a child of ours can be traced");
        traced.stop().expect("it stops");
        child.kill().expect("it is ours");
        drop(traced);
        let status = child.wait().expect("its end is there to be asked for");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}
