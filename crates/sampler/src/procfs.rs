//! Parsers of files in `/proc`.
//!
//! They parse bytes, allocate nothing except names, rely on nothing about lengths or order that the kernel
//! does not guarantee, and return none for what they cannot parse. A name may contain any byte but zero:
//! blanks, parentheses, line ends, control characters.

/// Numbers of `/proc/PID/statm`, in pages. All are zero for a zombie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statm {
    /// Virtual memory, in pages.
    pub virtual_pages: u64,
    /// Resident memory, in pages.
    pub resident_pages: u64,
    /// Resident memory of files and shared memory, in pages.
    pub shared_pages: u64,
}

/// Parses `/proc/PID/statm`.
pub fn statm(text: &[u8]) -> Option<Statm> {
    let mut numbers = Numbers(text);
    Some(Statm {
        virtual_pages: numbers.next()?,
        resident_pages: numbers.next()?,
        shared_pages: numbers.next()?,
    })
}

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs, sleeps or is stopped.
    Alive,
    /// It has ended, and its parent has not reaped it yet.
    Zombie,
}

/// The fields of `/proc/PID/stat` that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// PID.
    pub pid: i32,
    /// Name, escaped by the kernel: `\n` for a line end, two backslashes for one. See [`unescape`].
    pub name: &'a [u8],
    /// State of its first thread.
    pub life: Life,
    /// PID of its parent.
    pub parent: i32,
    /// Its page faults without I/O.
    pub faults: u64,
    /// Page faults of the children that it has waited for, and of theirs; 0 if it has waited for none.
    pub child_faults: u64,
    /// Number of threads; one too many if the first has ended and others run.
    pub threads: u64,
    /// CPU time in clock ticks, user and system.
    pub cpu_ticks: u64,
    /// Start in clock ticks since boot. Together with the PID it identifies a process.
    pub start_ticks: u64,
    /// Address of the bottom of its stack, which is another one after every exec; 0 if it may not be read.
    pub stack_start: u64,
}

/// Parses `/proc/PID/stat`.
pub fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    // A name may contain parentheses, but the fields after it do not, so the last one ends it.
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = text.get(open + 1..close)?;
    let pid = Numbers(&text[..open]).next()? as i32;
    let rest = text.get(close + 2..)?;
    let life = match rest.first()? {
        b'Z' | b'X' | b'x' => Life::Zombie,
        _ => Life::Alive,
    };
    // Fields from the fourth on, some of which are negative.
    let mut fields = rest.get(2..)?.split(u8::is_ascii_whitespace);
    let parent = number(fields.next()?)? as i32;
    let faults = number(fields.nth(5)?)?;
    let minor = number(fields.next()?)?;
    let major = number(fields.nth(1)?)?;
    let user = number(fields.next()?)?;
    let system = number(fields.next()?)?;
    let threads = number(fields.nth(4)?)?;
    let start_ticks = number(fields.nth(1)?)?;
    let stack_start = fields.nth(5).and_then(number).unwrap_or(0);
    let (child_faults, cpu_ticks) = (minor.wrapping_add(major), user.wrapping_add(system));
    Some(Stat { pid, name, life, parent, faults, child_faults, threads, cpu_ticks, start_ticks, stack_start })
}

/// The fields of `/proc/PID/status` that are used. Memory is in bytes; a zombie has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// PID of the thread's process.
    pub tgid: i32,
    /// PID of its parent.
    pub parent: i32,
    /// High-water mark of resident bytes, since it was reset.
    pub hwm: Option<u64>,
    /// Virtual bytes.
    pub virtual_bytes: Option<u64>,
    /// Resident bytes.
    pub rss: Option<u64>,
    /// Resident anonymous bytes.
    pub anon: Option<u64>,
    /// Resident bytes of files.
    pub file: Option<u64>,
    /// Resident bytes of shared memory.
    pub shmem: Option<u64>,
    /// Swapped bytes.
    pub swap: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
}

/// Parses `/proc/PID/status`.
pub fn status(text: &[u8]) -> Status {
    let mut status = Status::default();
    for line in lines(text) {
        let Some((key, value)) = key_and_number(line) else { continue };
        let bytes = || Some(value.saturating_mul(1024));
        match key {
            b"Tgid" => status.tgid = value as i32,
            b"PPid" => status.parent = value as i32,
            b"VmSize" => status.virtual_bytes = bytes(),
            b"VmHWM" => status.hwm = bytes(),
            b"VmRSS" => status.rss = bytes(),
            b"RssAnon" => status.anon = bytes(),
            b"RssFile" => status.file = bytes(),
            b"RssShmem" => status.shmem = bytes(),
            b"VmSwap" => status.swap = bytes(),
            b"Threads" => {
                status.threads = Some(value);
                // The other fields precede it.
                break;
            }
            _ => {}
        }
    }
    status
}

/// The fields of `/proc/PID/smaps_rollup` that are used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident bytes, counted page by page.
    pub rss: u64,
    /// Resident bytes, with each shared page divided by the number of processes that share it.
    pub pss: u64,
    /// Resident private bytes.
    pub uss: u64,
    /// Resident anonymous bytes.
    pub anon: u64,
    /// The part of `pss` that is anonymous; none before Linux 5.4.
    pub pss_anon: Option<u64>,
}

/// Parses `/proc/PID/smaps_rollup`; returns none without a proportional size.
pub fn rollup(text: &[u8]) -> Option<Rollup> {
    let mut rollup = Rollup::default();
    let mut complete = false;
    for (key, value) in lines(text).filter_map(key_and_number) {
        let bytes = value.saturating_mul(1024);
        match key {
            b"Rss" => rollup.rss = bytes,
            b"Anonymous" => rollup.anon = bytes,
            b"Pss_Anon" => rollup.pss_anon = Some(bytes),
            b"Pss" => {
                rollup.pss = bytes;
                complete = true;
            }
            b"Private_Clean" | b"Private_Dirty" | b"Private_Hugetlb" => {
                rollup.uss = rollup.uss.saturating_add(bytes);
            }
            _ => {}
        }
    }
    complete.then_some(rollup)
}

/// Distinct pages of the whole system that processes have mapped, in bytes, from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPages {
    /// Anonymous pages.
    pub anon: u64,
    /// Pages of files and shared memory.
    pub shared: u64,
}

/// Parses `/proc/meminfo`.
pub fn mapped_pages(text: &[u8]) -> Option<MappedPages> {
    let value = |wanted: &[u8]| {
        let mut values = lines(text).filter_map(key_and_number);
        values.find(|(key, _)| *key == wanted).map(|(_, value)| value.saturating_mul(1024))
    };
    Some(MappedPages { anon: value(b"AnonPages")?, shared: value(b"Mapped")? })
}

/// Id of the newest process or thread, from `/proc/loadavg`.
pub fn last_pid(text: &[u8]) -> Option<i32> {
    let text = text.trim_ascii_end();
    let start = text.iter().rposition(|&byte| byte == b' ')? + 1;
    number(&text[start..]).map(|number| number as i32)
}

/// Decodes a name, in which the kernel writes `\n` for a line end and `\\` for a backslash.
pub fn unescape(name: &[u8]) -> String {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, others)) = rest.split_first() {
        let (byte, length) = match (first, others.first()) {
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            _ => (first, 1),
        };
        plain.push(byte);
        rest = &rest[length..];
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Splits `Key:  123 kB`.
fn key_and_number(line: &[u8]) -> Option<(&[u8], u64)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    Some((&line[..colon], Numbers(&line[colon + 1..]).next()?))
}

/// Parses a field of digits only.
fn number(field: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!field.is_empty()).then_some(value)
}

/// Iterates over numbers at the start of a text, separated by blanks.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u64> {
        let text = self.0.trim_ascii_start();
        let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        self.0 = rest;
        number(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "R 42 4242 4242 34816 4242 4194304 95 30 0 4 7 5 0 0 20 0 3 0 123456 2703360 379 \
                        18446744073709551615 1 1 140732 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn a_stat_is_read_whatever_the_name() {
        for name in ["cat", "a) R 1 1", "((", "))", ") (", "a b", "tab\there", "\x1b[31m", ""] {
            let text = format!("4242 ({name}) {STAT}");
            let stat = stat(text.as_bytes()).expect(name);
            let name = name.as_bytes();
            let expected = Stat {
                pid: 4242,
                name,
                life: Life::Alive,
                parent: 42,
                faults: 95,
                child_faults: 34,
                threads: 3,
                cpu_ticks: 12,
                start_ticks: 123_456,
                stack_start: 140_732,
            };
            assert_eq!(stat, expected);
        }
    }

    #[test]
    fn names_come_back_as_they_were_given() {
        assert_eq!(unescape(br"two\nlines"), "two\nlines");
        assert_eq!(unescape(br"a\\nb"), r"a\nb");
        assert_eq!(unescape(b"end\\"), "end\\");
        assert_eq!(unescape(b"\xff("), "\u{fffd}(");
    }

    #[test]
    fn the_same_number_started_later_is_another_process() {
        let early = format!("77 (old) {STAT}");
        let late = early.replace("123456", "123999");
        let (early, late) = (stat(early.as_bytes()).unwrap(), stat(late.as_bytes()).unwrap());
        assert_eq!(early.pid, late.pid);
        assert_ne!(early.start_ticks, late.start_ticks);
    }

    #[test]
    fn a_status_gives_bytes_and_a_dead_process_none() {
        let text = b"Name:\tVmHWM: 9\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t12\nNgid:\t0\nPid:\t12\nPPid:\t3\n\
            VmPeak:\t 8 kB\nVmSize:\t 7 kB\nVmHWM:\t    1796 kB\nVmRSS:\t    1700 kB\nRssAnon:\t      88 kB\nRssFile:\t    1612 kB\n\
            RssShmem:\t       0 kB\nVmSwap:\t       4 kB\nThreads:\t7\nSigQ:\t0/1\n";
        let expected = Status {
            tgid: 12,
            parent: 3,
            hwm: Some(1796 << 10),
            virtual_bytes: Some(7 << 10),
            rss: Some(1700 << 10),
            anon: Some(88 << 10),
            file: Some(1612 << 10),
            shmem: Some(0),
            swap: Some(4096),
            threads: Some(7),
        };
        assert_eq!(status(text), expected);
        let dead = status(b"Name:\tx\nState:\tZ (zombie)\nTgid:\t12\nPPid:\t3\nThreads:\t1\n");
        assert_eq!(dead, Status { tgid: 12, parent: 3, threads: Some(1), ..Status::default() });
    }

    #[test]
    fn a_rollup_sums_what_is_private() {
        let text =
            b"5555-7fff ---p 00000000 00:00 0    [rollup]\nRss:  100 kB\nPss:  60 kB\nPss_Dirty:  9 kB\n\
            Private_Clean:  8 kB\nPrivate_Dirty:  12 kB\nAnonymous:  4 kB\n";
        assert_eq!(
            rollup(text),
            Some(Rollup { rss: 102_400, pss: 61_440, uss: 20_480, anon: 4096, pss_anon: None })
        );
        assert_eq!(rollup(b""), None);
    }

    #[test]
    fn small_files_are_read() {
        let expected = Statm { virtual_pages: 660, resident_pages: 379, shared_pages: 310 };
        assert_eq!(statm(b"660 379 310 5 0 92 0\n"), Some(expected));
        assert_eq!(statm(b""), None);
        assert_eq!(last_pid(b"0.20 0.18 0.12 1/80 11206\n"), Some(11_206));
        assert_eq!(last_pid(b"\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_parser_fail(text: Vec<u8>) {
            statm(&text);
            stat(&text);
            status(&text);
            rollup(&text);
            last_pid(&text);
            unescape(&text);
        }
    }
}
