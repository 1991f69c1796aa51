//! The cgroup of a command: usage, limit and peak of its memory.
//!
//! Versions 1 and 2 are supported. A process is in the innermost cgroup, which may be without a memory
//! controller or a limit: Slurm puts tasks into `job_123/step_0/user/task_0` and limits the job and the step.
//! The innermost one with a controller is sampled, and the innermost one with a limit, where that is another.
//! The limit of a cgroup is the lowest of its own and of all its ancestors.
//! Usage includes memory that no process accounts for: page cache, kernel memory, files in tmpfs. It is what
//! jobs are killed for whose processes look small.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Memory of a cgroup, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Current usage.
    pub usage: Option<u64>,
    /// Limit; none if there is none.
    pub limit: Option<u64>,
    /// Peak since the cgroup was created, if the kernel keeps it.
    pub peak: Option<u64>,
}

/// File names of a cgroup version.
#[derive(Debug)]
struct Names {
    usage: &'static str,
    limit: &'static str,
    peak: &'static str,
}

static V1: Names = Names {
    usage: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
};
static V2: Names = Names { usage: "memory.current", limit: "memory.max", peak: "memory.peak" };

/// Version 1 writes "no limit" as the largest multiple of a page.
const NO_LIMIT: u64 = i64::MAX as u64 & !0xffff;

/// A cgroup whose memory can be read.
#[derive(Debug)]
pub struct Cgroup {
    path: String,
    folder: PathBuf,
    /// Folders above that may be sampled too, innermost first.
    above: Vec<PathBuf>,
    names: &'static Names,
    usage: File,
    peak: Option<File>,
    /// Files with limits of the cgroup and its ancestors.
    limits: Vec<File>,
}

impl Cgroup {
    /// The cgroup of a process, in the file systems mounted here; none if its memory is not accounted.
    pub fn of_process(pid: i32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        mounts.lines().filter_map(Mount::parse).find_map(|mount| mount.open(&groups))
    }

    /// The cgroup that `groups` (the text of `/proc/PID/cgroup`) names, below the root of a cgroup file
    /// system of either version.
    pub fn below(root: &Path, groups: &str) -> Option<Self> {
        let is_v2 = root.join("cgroup.controllers").exists();
        Mount { root: "/".into(), point: root.into(), is_v2 }.open(groups)
    }

    /// Path of the cgroup in its hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The innermost cgroup with a limit of its own, unless that is this one.
    pub fn limited(&self) -> Option<Self> {
        let has_limit = |folder: &Path| {
            let limit = File::open(folder.join(self.names.limit)).ok().as_ref().and_then(read);
            limit.is_some_and(|limit| limit < NO_LIMIT)
        };
        if has_limit(&self.folder) {
            return None;
        }
        let at = self.above.iter().position(|folder| has_limit(folder))?;
        let path = Path::new(&self.path).ancestors().nth(at + 1)?.to_str()?;
        Self::open(path, &self.above[at], &self.above[at + 1..], self.names)
    }

    fn open(path: &str, folder: &Path, above: &[PathBuf], names: &'static Names) -> Option<Self> {
        let usage = File::open(folder.join(names.usage)).ok()?;
        let all = std::iter::once(folder).chain(above.iter().map(PathBuf::as_path));
        let limits = all.filter_map(|folder| File::open(folder.join(names.limit)).ok()).collect();
        let peak = File::open(folder.join(names.peak)).ok();
        let (path, folder, above) = (path.to_owned(), folder.to_owned(), above.to_owned());
        Some(Self { path, folder, above, names, usage, peak, limits })
    }

    /// Reads usage and peak; the limit is not read.
    pub fn read(&self) -> Usage {
        Usage { usage: read(&self.usage), limit: None, peak: self.peak.as_ref().and_then(read) }
    }

    /// Reads the effective limit: the lowest of the cgroup and its ancestors.
    pub fn limit(&self) -> Option<u64> {
        self.limits.iter().filter_map(read).filter(|limit| *limit < NO_LIMIT).min()
    }
}

fn read(file: &File) -> Option<u64> {
    let mut buffer = [0; 32];
    let length = file.read_at(&mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()?.trim_end().parse().ok()
}

/// A mounted cgroup file system with a memory controller.
struct Mount {
    /// Cgroup at its mount point.
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
        // In a container without a cgroup namespace the path is the host's, of which only the part below the
        // mount's root is visible.
        let below = match path.strip_prefix(self.root.trim_end_matches('/')) {
            Some(below) if below.is_empty() || below.starts_with('/') => below,
            _ => path,
        };
        let names = if self.is_v2 { &V2 } else { &V1 };
        let folder = self.point.join(below.trim_start_matches('/'));
        let above = folder.ancestors().take_while(|folder| folder.starts_with(&self.point));
        let folders: Vec<PathBuf> = above.map(Path::to_path_buf).collect();
        // Without a controller it is accounted to a cgroup further out. The root is the whole machine, which
        // version 1 accounts for too.
        let open = |(at, folder): (usize, &PathBuf)| {
            if at > 0 && *folder == self.point && self.root == "/" {
                return None;
            }
            let path = Path::new(path).ancestors().nth(at)?.to_str()?;
            Cgroup::open(path, folder, &folders[at + 1..], names)
        };
        folders.iter().enumerate().find_map(open)
    }
}

/// Decodes a path of `mountinfo`, in which blanks and backslashes are octal numbers.
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
