//! A terminal to run the command on: what it writes, how it leaves it.
#![expect(unsafe_code, reason = "terminals are C functions and ioctls")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use floodmark_testkit::wait::{DEADLINE, wait_for_exit, wait_until};

/// Bytes that enter and leave the screen of full-screen programs, and that show the cursor.
pub(crate) const ENTER: &str = "\x1b[?1049h";
pub(crate) const LEAVE: &str = "\x1b[?1049l";
pub(crate) const SHOW_CURSOR: &str = "\x1b[?25h";

/// The code, or the signal as a negative number.
fn exit_of(ended: ExitStatus) -> i32 {
    ended.code().unwrap_or_else(|| -ended.signal().unwrap())
}

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Does nothing to one that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that runs on a terminal of its own.
pub(crate) struct Pty {
    child: Running,
    master: File,
    /// Kept open, so that the terminal outlives the command.
    slave: OwnedFd,
    /// Columns and rows at the start.
    size: (u16, u16),
    before: Modes,
    written: Arc<Written>,
    reader: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Written {
    bytes: Mutex<Vec<u8>>,
    more: Condvar,
    is_over: AtomicBool,
}

/// What of a terminal's modes a program may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    flags: [libc::tcflag_t; 4],
    characters: [libc::cc_t; libc::NCCS],
}

impl Modes {
    fn of(fd: &OwnedFd) -> Self {
        // SAFETY: all zeros is a valid record, and a valid place for the result.
        let modes = unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(fd.as_raw_fd(), &raw mut modes), 0);
            modes
        };
        let flags = [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag];
        Self { flags, characters: modes.c_cc }
    }
}

/// Who is above the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Above {
    /// Nobody in its session.
    Nobody,
    /// A process that could continue it, as a shell does.
    Shell,
}

/// Makes the rest of this process a job of another that only waits for it and ends as it does. What runs here
/// has forked from many threads: only system calls are made.
fn become_job() -> std::io::Result<()> {
    // SAFETY: these take numbers, and `status` is a valid place for a result.
    unsafe {
        let job = libc::fork();
        if job == 0 {
            libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            let is_done = libc::setpgid(0, 0) == 0 && libc::tcsetpgrp(0, libc::getpid()) == 0;
            libc::signal(libc::SIGTTOU, libc::SIG_DFL);
            return if is_done { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        }
        // Whoever started us waits for the end of a pipe.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        let mut status = 0;
        libc::waitpid(job, &raw mut status, 0);
        if libc::WIFSIGNALED(status) {
            libc::raise(libc::WTERMSIG(status));
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

/// Reads all that is written, until told to end.
fn read(mut from: File, to: &Written) {
    let mut buffer = [0; 4096];
    while !to.is_over.load(Ordering::Relaxed) {
        let mut asked = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `asked` is one valid record.
        if unsafe { libc::poll(&raw mut asked, 1, 20) } < 1 {
            continue;
        }
        let Ok(length @ 1..) = from.read(&mut buffer) else { return };
        to.bytes.lock().unwrap().extend_from_slice(&buffer[..length]);
        to.more.notify_all();
    }
}

impl Pty {
    /// Starts a command on a terminal of 80 x 24, as the first of its session.
    pub(crate) fn start(command: Command) -> Self {
        Self::start_below(Above::Nobody, command)
    }

    /// Starts a command as a job in the foreground, as a shell would.
    pub(crate) fn start_job(command: Command) -> Self {
        Self::start_below(Above::Shell, command)
    }

    /// Starts a command on a terminal of another size, whose screen can be read.
    pub(crate) fn start_sized(columns: u16, rows: u16, command: Command) -> Self {
        Self::start_with((columns, rows), Above::Nobody, command)
    }

    fn start_below(above: Above, command: Command) -> Self {
        Self::start_with((80, 24), above, command)
    }

    fn start_with((columns, rows): (u16, u16), above: Above, mut command: Command) -> Self {
        // SAFETY: these take descriptors and flags; each result is checked and belongs to nobody else.
        let (master, slave) = unsafe {
            let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
            assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0);
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
            let slave = libc::ioctl(master, libc::TIOCGPTPEER, flags);
            assert!(slave >= 0);
            let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            assert_eq!(libc::ioctl(master, libc::TIOCSWINSZ, &raw const size), 0);
            (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env_remove("COLUMNS").env("TERM", "xterm-256color");
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                if above == Above::Shell { become_job() } else { Ok(()) }
            });
        }
        let before = Modes::of(&slave);
        let child = Running(command.spawn().unwrap());
        let size = (columns, rows);
        let mut pty = Self { child, master, slave, size, before, written: Arc::default(), reader: None };
        pty.go_on_reading();
        pty
    }

    /// The process in the foreground: the command.
    pub(crate) fn pid(&self) -> i32 {
        // SAFETY: takes a descriptor that is open.
        unsafe { libc::tcgetpgrp(self.master.as_raw_fd()) }
    }

    /// Reads no more, so that the terminal takes no more once it is full.
    pub(crate) fn stop_reading(&mut self) {
        self.written.is_over.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
    }

    pub(crate) fn go_on_reading(&mut self) {
        self.written.is_over.store(false, Ordering::Relaxed);
        let (from, to) = (self.master.try_clone().unwrap(), self.written.clone());
        let read = std::thread::Builder::new().name("pty".into()).spawn(move || read(from, &to));
        self.reader = Some(read.unwrap());
    }

    /// Writes until the terminal takes no more.
    pub(crate) fn fill(&self) {
        let path = format!("/proc/self/fd/{}", self.slave.as_raw_fd());
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut slave = File::options().write(true).custom_flags(flags).open(path).unwrap();
        while slave.write(b"................................").is_ok() {}
    }

    /// Everything that was written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.bytes.lock().unwrap()).into_owned()
    }

    /// Waits until something holds of what was written.
    pub(crate) fn wait_for(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let bytes = self.written.bytes.lock().unwrap();
        let waiting = |bytes: &mut Vec<u8>| !holds(&String::from_utf8_lossy(bytes));
        let (bytes, waited) = self.written.more.wait_timeout_while(bytes, DEADLINE, waiting).unwrap();
        assert!(!waited.timed_out(), "no {what} in {}", String::from_utf8_lossy(&bytes));
    }

    /// Waits until something holds of what is seen on the screen, one line of text for each of its rows. What was written
    /// does not tell: only cells that change are drawn.
    pub(crate) fn wait_for_screen(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let (columns, rows) = self.size;
        let [rows, columns] = [rows, columns].map(|count| NonZero::new(count).unwrap());
        let seen = |bytes: &[u8]| {
            let mut terminal = vt100::Parser::new(rows, columns, 0);
            terminal.process(bytes);
            terminal.screen().contents()
        };
        let bytes = self.written.bytes.lock().unwrap();
        let waiting = |bytes: &mut Vec<u8>| !holds(&seen(bytes));
        let (bytes, waited) = self.written.more.wait_timeout_while(bytes, DEADLINE, waiting).unwrap();
        assert!(!waited.timed_out(), "no {what} on the screen:\n{}", seen(&bytes));
    }

    pub(crate) fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |written| written.contains(text));
    }

    /// Presses keys.
    pub(crate) fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, number: i32) {
        // SAFETY: kill takes numbers; the child is not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid(), number) }, 0);
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: `size` is a valid record.
        let done = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0);
    }

    /// Waits until the command was stopped.
    pub(crate) fn wait_until_stopped(&self) {
        wait_until("the command to be stopped", || self.state() == 'T');
    }

    /// The letter of what the command does.
    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    /// Whether the terminal is as it was.
    pub(crate) fn is_restored(&self) -> bool {
        let text = self.text();
        let left = text.rfind(LEAVE) > text.rfind(ENTER) && text.rfind(SHOW_CURSOR) > text.rfind("\x1b[?25l");
        left && Modes::of(&self.slave) == self.before
    }

    /// Takes the terminal away, and gives how the command ended.
    pub(crate) fn hang_up(mut self) -> i32 {
        self.stop_reading();
        let Self { mut child, master, slave, .. } = self;
        // With the last of its other ends a terminal is gone.
        drop(slave);
        drop(master);
        exit_of(wait_for_exit(&mut child.0, "the command"))
    }

    /// Waits for the end, and gives the code, or the signal as a negative number.
    pub(crate) fn wait(&mut self) -> i32 {
        exit_of(wait_for_exit(&mut self.child.0, "the command"))
    }

    /// Waits for the end; gives the code, or the signal as a negative number, and what was written after the
    /// screen was left.
    pub(crate) fn finish(mut self) -> (i32, String) {
        let code = self.wait();
        // All that the command wrote is in the terminal by now, and a mark of our own comes after it.
        let mut mark = File::from(self.slave.try_clone().unwrap());
        mark.write_all(b"\x1b[0m*over*").unwrap();
        self.wait_for_text("*over*");
        let text = self.text();
        assert!(!text.contains(ENTER) || self.is_restored(), "{text}");
        assert_eq!(Modes::of(&self.slave), self.before);
        let after = text.rsplit(LEAVE).next().unwrap_or_default();
        (code, after.replace("\x1b[0m*over*", ""))
    }
}
