//! Finding processes by scanning `/proc`.
//!
//! A scan of all processes takes milliseconds, so most scans read new PIDs only: the kernel assigns PIDs to
//! processes and threads in ascending order and reports the last one in `/proc/loadavg`.

use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;

use floodmark_event::text::shell_line;

use crate::procfs::{self, Life};

/// A process, as `/proc/PID/stat` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) start_ticks: u64,
    pub(crate) name: String,
    pub(crate) life: Life,
    /// Number of threads; one too many if the first has ended and others run.
    pub(crate) threads: u64,
    pub(crate) cpu_ticks: u64,
    /// Its page faults without I/O.
    pub(crate) faults: u64,
    /// Page faults of the children that it has waited for.
    pub(crate) child_faults: u64,
    /// Address of the bottom of its stack, which is another one after every exec; 0 if it may not be read.
    pub(crate) stack_start: u64,
}

/// PIDs that were assigned since the last check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// None.
    None,
    /// PIDs in these ranges; the second is empty unless the PIDs wrapped around.
    Given([RangeInclusive<i32>; 2]),
    /// Unknown, so everything has to be scanned.
    Unknown,
}

/// First PID after a wrap-around.
const LOWEST_PID: i32 = 300;

/// Remembers the last PID that was assigned.
pub(crate) struct Walker {
    loadavg: Option<File>,
    last_pid: Option<i32>,
    highest_pid: i32,
}

impl Walker {
    pub(crate) fn new() -> Self {
        let highest = fs::read_to_string("/proc/sys/kernel/pid_max").ok();
        let highest_pid = highest.and_then(|text| text.trim_end().parse().ok()).unwrap_or(i32::MAX);
        let loadavg = File::open("/proc/loadavg").ok();
        let mut walker = Self { loadavg, last_pid: None, highest_pid };
        walker.news();
        walker
    }

    /// PIDs that were assigned since the last call, or since the walker was created.
    pub(crate) fn news(&mut self) -> News {
        let mut buffer = [0; 128];
        let read = self.loadavg.as_ref().and_then(|file| file.read_at(&mut buffer, 0).ok());
        let Some(last) = read.and_then(|length| procfs::last_pid(&buffer[..length])) else {
            return News::Unknown;
        };
        match self.last_pid.replace(last) {
            Some(before) if before == last => News::None,
            #[expect(clippy::reversed_empty_ranges, reason = "an empty range is meant")]
            Some(before) if before < last => News::Given([before + 1..=last, 1..=0]),
            Some(before) if last >= LOWEST_PID => {
                News::Given([before + 1..=self.highest_pid, LOWEST_PID..=last])
            }
            _ => News::Unknown,
        }
    }
}

/// Reads one process; returns none if it is gone. For the id of a thread, the result is that of its process
/// with the id of the thread.
pub(crate) fn read_process(pid: i32) -> Option<Found> {
    let mut buffer = [0; 1024];
    let text = read_file(pid, "stat", &mut buffer)?;
    let stat = procfs::stat(text)?;
    Some(Found {
        pid: stat.pid,
        parent: stat.parent,
        start_ticks: stat.start_ticks,
        name: procfs::unescape(stat.name),
        life: stat.life,
        threads: stat.threads,
        cpu_ticks: stat.cpu_ticks,
        faults: stat.faults,
        child_faults: stat.child_faults,
        stack_start: stat.stack_start,
    })
}

/// Whether the id is that of a process and not of a thread; none if it is gone.
pub(crate) fn is_process(pid: i32) -> Option<bool> {
    let mut buffer = [0; 2048];
    read_file(pid, "status", &mut buffer).map(|text| procfs::status(text).tgid == pid)
}

/// All processes of the host.
pub(crate) fn all() -> Vec<Found> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read_process).collect()
}

/// Children of all threads of a process, zombies included; empty if the kernel does not list them.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for thread in threads_of(pid) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
        children.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    children
}

/// Ids of the threads of a process.
pub(crate) fn threads_of(pid: i32) -> impl Iterator<Item = i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok())
}

/// Name and command line of a process whose short name is known.
///
/// The kernel keeps 15 bytes of a name; the command line has all of it. This holds for scripts too, whose
/// short name is that of the script.
pub(crate) fn describe(pid: i32, short: &str) -> (String, String) {
    let mut buffer = [0; 4096];
    let text = read_file(pid, "cmdline", &mut buffer).unwrap_or_default();
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    // `split` returns one empty argument if there are none.
    let arguments = || text.split(|&byte| byte == 0).take(if text.is_empty() { 0 } else { usize::MAX });
    let is_cut = short.len() >= 15;
    let whole = arguments().take(2).find_map(|argument| {
        let base = argument.rsplit(|&byte| byte == b'/').next().unwrap_or(argument);
        (is_cut && base.starts_with(short.as_bytes())).then(|| String::from_utf8_lossy(base).into_owned())
    });
    let command = shell_line(arguments().map(String::from_utf8_lossy));
    (whole.unwrap_or_else(|| short.to_owned()), command)
}

/// Reads the beginning of a file of a process.
pub(crate) fn read_file<'a>(pid: i32, name: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = Path::of(pid, name).open().ok()?;
    let length = file.read_at(buffer, 0).ok()?;
    Some(&buffer[..length])
}

/// The path of a file of a process, built without an allocation.
pub(crate) struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    pub(crate) fn of(pid: i32, name: &str) -> Self {
        Self::write(format_args!("/proc/{pid}/{name}"))
    }

    pub(crate) fn of_thread(pid: i32, thread: i32, name: &str) -> Self {
        Self::write(format_args!("/proc/{pid}/task/{thread}/{name}"))
    }

    fn write(text: std::fmt::Arguments<'_>) -> Self {
        use std::io::Write as _;
        let mut bytes = [0; 64];
        let room = bytes.len();
        let mut rest = &mut bytes[..];
        // All names in use are much shorter.
        let length = if rest.write_fmt(text).is_ok() { room - rest.len() } else { 0 };
        Self { bytes, length }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    pub(crate) fn open(&self) -> std::io::Result<File> {
        File::open(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_found() {
        let me = std::process::id() as i32;
        let found = read_process(me).expect("this process");
        assert_eq!((found.pid, found.life), (me, Life::Alive));
        assert_eq!(is_process(me), Some(true));
        assert!(all().iter().any(|other| other.pid == me && other.start_ticks == found.start_ticks));
        assert!(threads_of(me).any(|thread| thread == me));
        let (_, command) = describe(me, &found.name);
        assert!(!command.is_empty());
    }

    #[test]
    fn a_thread_is_no_process() {
        let thread = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let me = crate::sys::signal::this_thread();
                (me, is_process(me))
            });
            thread.join().unwrap()
        });
        assert_eq!(thread.1, Some(false), "{}", thread.0);
    }

    #[test]
    fn the_pid_of_a_new_process_is_in_the_range() {
        let mut walker = Walker::new();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (pid, news) = (child.id() as i32, walker.news());
        child.wait().unwrap();
        let News::Given(ranges) = news else { panic!("{news:?}") };
        assert!(ranges.iter().any(|range| range.contains(&pid)), "{pid} {ranges:?}");
        walker.last_pid = Some(walker.highest_pid - 1);
        let News::Given([above, below]) = walker.news() else { panic!("numbers go on from below") };
        assert_eq!((above.count(), *below.start()), (1, LOWEST_PID));
    }
}
