//! What the resident memory of a process consists of: its heap, its stack, files and other anonymous memory.
//!
//! `smaps` has it mapping by mapping. The kernel walks all page tables for it, which takes 10 to 20 ms per GiB, so it is read
//! only when a process has more resident memory than at any reading before, by a thread of its own, and within
//! half of the share of a core that readings of the total may take. The reading nearest to the peak is what the ledger of a process needs.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use crate::sys::clock::thread_cpu_ns;
use crate::sys::signal;
use crate::tree::Process;

/// Shortest time between two choices of a process to read.
const CHOICE_NS: u64 = 20_000_000;
/// Part of the share of a core that readings of the total may take.
const SHARE_OF_TOTALS: f64 = 0.5;
/// Processes with less resident memory are not read: a build starts thousands of shells and compilers.
const LEAST_RSS: u64 = 8 << 20;
/// Files that are told apart, those with most resident memory; the others are added up.
const FILES_MOST: usize = 12;
/// Name of the files that are added up.
const OTHER_FILES: &str = "other files";

/// Resident bytes of a process by what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mappings {
    /// The heap that grows at its end (`[heap]`).
    pub(crate) heap: u64,
    /// The stack of the first thread.
    pub(crate) stack: u64,
    /// All files, shared memory included.
    pub(crate) file: u64,
    /// The rest: memory that belongs to no file, stacks of other threads and large heap blocks among it.
    pub(crate) anon: u64,
    /// Files by their path, most resident bytes first.
    pub(crate) files: Vec<(String, u64)>,
}

/// A process to be read.
pub(crate) struct Request {
    pid: i32,
    born_ns: u64,
}

/// The result of a request.
pub(crate) struct Reading {
    pub(crate) pid: i32,
    pub(crate) born_ns: u64,
    pub(crate) mappings: Option<Mappings>,
}

/// Chooses which process is read when.
pub(crate) struct MappingReadings {
    /// None once the recording is over.
    requests: Option<SyncSender<Request>>,
    /// With their cost in CPU time.
    readings: Receiver<(Reading, u64)>,
    is_pending: bool,
    next_ns: u64,
    /// Time from one reading to the next, for each nanosecond that it took.
    patience: f64,
}

/// The ends of the thread that reads.
pub(crate) type Server = (Receiver<Request>, SyncSender<(Reading, u64)>);

/// Serves requests until the channel is closed.
pub(crate) fn serve((requests, readings): Server) {
    signal::block_for_this_thread();
    while let Ok(Request { pid, born_ns }) = requests.recv() {
        let before = thread_cpu_ns();
        let file = File::open(format!("/proc/{pid}/smaps"));
        let mappings = file.and_then(|file| parse(BufReader::new(file))).ok();
        let cost_ns = thread_cpu_ns().saturating_sub(before);
        if readings.send((Reading { pid, born_ns, mappings }, cost_ns)).is_err() {
            break;
        }
    }
}

impl MappingReadings {
    /// Creates a plan of readings beside those of the total, which take at most `totals_share` of a core; there are none if
    /// that is zero.
    pub(crate) fn new(totals_share: f64) -> (Self, Server) {
        let (requests, asked) = sync_channel(1);
        let (told, readings) = sync_channel(1);
        let requests = (totals_share > 0.0).then_some(requests);
        let patience = 1.0 / (totals_share * SHARE_OF_TOTALS);
        let own = Self { requests, readings, is_pending: false, next_ns: 0, patience };
        (own, (asked, told))
    }

    /// Returns what was read since the last call.
    pub(crate) fn collect(&mut self, now_ns: u64) -> Option<Reading> {
        match self.readings.try_recv() {
            Ok((reading, cost_ns)) => {
                self.is_pending = false;
                self.next_ns = now_ns + CHOICE_NS.max((cost_ns as f64 * self.patience) as u64);
                Some(reading)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    /// Has the process read that has grown most beyond its last reading, if any has.
    pub(crate) fn ask(&mut self, processes: &mut [Process], now_ns: u64) {
        let Some(requests) = self.requests.as_ref().filter(|_| !self.is_pending && now_ns >= self.next_ns)
        else {
            return;
        };
        self.next_ns = now_ns + CHOICE_NS;
        let due = processes.iter_mut().filter_map(|process| {
            let memory = &process.memory;
            let grown = memory.rss.saturating_sub(memory.mappings_rss);
            // Pages of a new peak that are fewer than this would not change the picture.
            let is_due = memory.was_read
                && memory.rss >= LEAST_RSS
                && grown > memory.mappings_rss / 50
                && !process.is_newborn(now_ns);
            is_due.then_some((grown, process))
        });
        let Some((_, process)) = due.max_by_key(|(grown, _)| *grown) else { return };
        let request = Request { pid: process.pid, born_ns: process.born_ns };
        if requests.try_send(request).is_ok() {
            self.is_pending = true;
            process.memory.mappings_rss = process.memory.rss;
        }
    }

    /// Ends the thread that reads.
    pub(crate) fn finish(&mut self) {
        self.requests = None;
    }
}

/// Adds up `smaps`.
fn parse(mut text: impl BufRead) -> io::Result<Mappings> {
    let mut mappings = Mappings::default();
    let mut files: Vec<(String, u64)> = Vec::new();
    let (mut line, mut path) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let own = line.trim_ascii_end();
        let first = own.split(|byte| *byte == b' ').next().unwrap_or_default();
        if let Some(value) = own.strip_prefix(b"Rss:") {
            let kib = value.trim_ascii().split(|byte| *byte == b' ').next().unwrap_or_default();
            let kib: u64 = str::from_utf8(kib).ok().and_then(|kib| kib.parse().ok()).unwrap_or(0);
            add(&mut mappings, &mut files, &path, kib.saturating_mul(1024));
        } else if !first.ends_with(b":") {
            // A new mapping: range, permissions, offset, device, inode and, behind blanks, the path.
            path.clear();
            path.extend_from_slice(behind_fields(own, 5));
        }
    }
    files.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let others: u64 = files.iter().skip(FILES_MOST).map(|(_, bytes)| bytes).sum();
    files.truncate(FILES_MOST);
    if others > 0 {
        files.push((OTHER_FILES.to_owned(), others));
    }
    mappings.files = files;
    Ok(mappings)
}

/// What stands behind `count` fields and the blanks after them.
fn behind_fields(line: &[u8], count: usize) -> &[u8] {
    let mut rest = line;
    for _ in 0..count {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        rest = rest[end..].trim_ascii_start();
    }
    rest
}

fn add(mappings: &mut Mappings, files: &mut Vec<(String, u64)>, path: &[u8], bytes: u64) {
    if bytes == 0 {
        return;
    }
    if path.starts_with(b"/") {
        mappings.file += bytes;
        let path = String::from_utf8_lossy(path);
        // Mappings of one file stand one behind the other.
        match files.iter_mut().rev().find(|(known, _)| *known == path) {
            Some((_, sum)) => *sum += bytes,
            None => files.push((path.into_owned(), bytes)),
        }
    } else if path == b"[heap]" {
        mappings.heap += bytes;
    } else if path.starts_with(b"[stack") || path.starts_with(b"[anon:stack") {
        mappings.stack += bytes;
    } else {
        mappings.anon += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_added_up_by_what_they_are() {
        let text = "\
555500000000-555500001000 r--p 00000000 fe:00 958470                     /home/a b/work\n\
Size:                  4 kB\nRss:                   4 kB\nPss:                   4 kB\nVmFlags: rd mr mw me\n\
555500001000-555500002000 r-xp 00001000 fe:00 958470                     /home/a b/work\nRss: 8 kB\n\
555510000000-555510100000 rw-p 00000000 00:00 0                          [heap]\nRss: 100 kB\n\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \nRss: 40 kB\n\
7f0000200000-7f0000300000 rw-p 00000000 00:00 0                          [anon:arena]\nRss: 2 kB\n\
7f0000400000-7f0000500000 rw-s 00000000 00:01 3                          /dev/shm/x (deleted)\nRss: 16 kB\n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\nRss: 12 kB\n\
7ffc00030000-7ffc00032000 r-xp 00000000 00:00 0                          [vdso]\nRss: 0 kB\n";
        let mappings = parse(text.as_bytes()).expect("memory is read");
        let kib = |count: u64| count << 10;
        assert_eq!(
            mappings,
            Mappings {
                heap: kib(100),
                stack: kib(12),
                file: kib(28),
                anon: kib(42),
                files: vec![("/dev/shm/x (deleted)".into(), kib(16)), ("/home/a b/work".into(), kib(12))],
            }
        );
    }

    #[test]
    fn our_own_mappings_add_up_to_our_resident_memory() {
        let mappings = parse(BufReader::new(File::open("/proc/self/smaps").expect("it may be read")));
        let Mappings { heap, stack, file, anon, files } = mappings.expect("it is read");
        let statm = std::fs::read("/proc/self/statm").expect("it may be read");
        let pages = crate::procfs::statm(&statm).expect("numbers").resident_pages;
        let (sum, rss) = (heap + stack + file + anon, pages * crate::sys::clock::page_bytes());
        assert!(sum.abs_diff(rss) < rss / 4, "{sum} and {rss}");
        assert!(stack > 0 && file > 0 && files.iter().map(|(_, bytes)| bytes).sum::<u64>() == file);
    }
}
