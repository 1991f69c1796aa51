//! The control group of a command: what it uses, may use, and used at most.
//!
//! Both versions are known. A group's limit is the least of its own and of all groups above it. Usage
//! counts what no process is charged with: cache of files, memory of the kernel, files in shared
//! memory. That is what gets jobs killed whose processes look small.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// What was read, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In use.
    pub usage: Option<u64>,
    /// Most that may be in use; none for no limit.
    pub limit: Option<u64>,
    /// Most that was in use since the group was made; the kernel keeps it, or does not.
    pub peak: Option<u64>,
}

/// Names of the files that a version has.
struct Names {
    usage: &'static str,
    limit: &'static str,
    peak: &'static str,
}

const V1: Names = Names {
    usage: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
};
const V2: Names = Names { usage: "memory.current", limit: "memory.max", peak: "memory.peak" };

/// The first version writes "no limit" as the largest multiple of a page.
const NO_LIMIT: u64 = i64::MAX as u64 & !0xffff;

/// A control group of which memory can be read.
#[derive(Debug)]
pub struct Cgroup {
    path: String,
    usage: File,
    peak: Option<File>,
    /// Files with limits: the group's own and those above it.
    limits: Vec<File>,
}

impl Cgroup {
    /// The group of a process, in the file systems that are mounted here; none if its memory is not
    /// accounted for.
    pub fn of_process(pid: i32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        mounts.lines().filter_map(Mount::parse).find_map(|mount| mount.open(&groups))
    }

    /// The group that `groups` (the text of a `/proc/PID/cgroup`) names, below the root of a file
    /// system of control groups. The root may be that of either version.
    pub fn below(root: &Path, groups: &str) -> Option<Self> {
        let is_v2 = root.join("cgroup.controllers").exists();
        Mount { root: "/".into(), point: root.into(), is_v2 }.open(groups)
    }

    /// The path of the group in its hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads usage and peak; the limit is not read.
    pub fn read(&self) -> Usage {
        Usage { usage: read(&self.usage), limit: None, peak: self.peak.as_ref().and_then(read) }
    }

    /// Reads the limit that holds: the least of this group's and of those above it.
    pub fn limit(&self) -> Option<u64> {
        self.limits.iter().filter_map(read).filter(|limit| *limit < NO_LIMIT).min()
    }
}

fn read(file: &File) -> Option<u64> {
    let mut buffer = [0; 32];
    let length = file.read_at(&mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()?.trim_end().parse().ok()
}

/// A mounted file system of control groups with a memory controller.
struct Mount {
    /// Group that its top stands for.
    root: String,
    point: PathBuf,
    is_v2: bool,
}

impl Mount {
    /// Parses a line of `mountinfo`.
    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ').skip(3);
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut fields = right.split(' ');
        let is_v2 = match fields.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        let has_memory = is_v2 || fields.nth(1)?.split(',').any(|option| option == "memory");
        has_memory.then(|| Self { root, point: point.into(), is_v2 })
    }

    fn open(&self, groups: &str) -> Option<Cgroup> {
        let path = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let matches = if self.is_v2 {
                number == "0" && controllers.is_empty()
            } else {
                controllers.split(',').any(|controller| controller == "memory")
            };
            matches.then_some(path)
        })?;
        // In a container without a namespace of its own the path is the host's, of which only what is
        // below the mount's root can be seen.
        let below = match path.strip_prefix(self.root.trim_end_matches('/')) {
            Some(below) if below.is_empty() || below.starts_with('/') => below,
            _ => path,
        };
        let names = if self.is_v2 { V2 } else { V1 };
        let folder = self.point.join(below.trim_start_matches('/'));
        let usage = File::open(folder.join(names.usage)).ok()?;
        let above = folder.ancestors().take_while(|folder| folder.starts_with(&self.point));
        let limits = above.filter_map(|folder| File::open(folder.join(names.limit)).ok()).collect();
        Some(Cgroup { path: path.to_owned(), usage, peak: File::open(folder.join(names.peak)).ok(), limits })
    }
}

/// Paths in `mountinfo` have blanks and backslashes as octal numbers.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_apart() {
        let line = "38 28 0:34 /docker/1f /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.root.as_str(), mount.is_v2), ("/docker/1f", false));
        assert!(Mount::parse("39 28 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu").is_none());
        let mount = Mount::parse(r"40 28 0:36 / /sys/fs/my\040groups rw shared:9 - cgroup2 none rw").unwrap();
        assert_eq!((mount.point.to_str(), mount.is_v2), (Some("/sys/fs/my groups"), true));
        assert!(Mount::parse("22 28 0:20 / /proc rw - proc proc rw").is_none());
        assert!(Mount::parse("").is_none());
    }
}
