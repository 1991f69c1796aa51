//! Memory map of a process: code of modules, and writable memory, which contains the stacks.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// A file as the kernel identifies it in a map; a path alone may belong to another file by now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileKey {
    /// Device, as printed by the kernel.
    pub(crate) device: (u32, u32),
    /// Inode number; 0 for memory without a file.
    pub(crate) inode: u64,
    /// Path in the process's mount namespace, or a name in brackets.
    pub(crate) path: String,
}

/// Executable memory of a file or of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
    pub(crate) file: FileKey,
}

/// The parts of a memory map that unwinding needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps {
    /// Executable mappings, by address.
    pub(crate) code: Vec<Code>,
    /// Writable mappings, by address, which contain the stacks.
    writable: Vec<(u64, u64)>,
    /// Address of the program's file, from which Python's state is found.
    pub(crate) starts: Vec<(u64, FileKey)>,
}

impl Maps {
    /// Reads the map of a process.
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        // A path may contain any bytes.
        let text = fs::read(format!("/proc/{pid}/maps"))?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Self {
        let mut maps = Self::default();
        for line in text.lines() {
            let Some(line) = Line::parse(line) else { continue };
            let (start, end, offset) = (line.start, line.end, line.offset);
            if line.rights.contains('w') {
                maps.writable.push((start, end));
            }
            let file = || FileKey { device: line.device, inode: line.inode, path: line.path.to_owned() };
            if line.inode != 0 && offset == 0 {
                maps.starts.push((start, file()));
            }
            if line.rights.contains('x') && (line.inode != 0 || line.path == VDSO) {
                maps.code.push(Code { start, end, offset, file: file() });
            }
        }
        maps
    }

    /// End of the mapping that contains `address`.
    pub(crate) fn end_of_memory(&self, address: u64) -> Option<u64> {
        let at = self.writable.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (_, end) = *self.writable.get(at)?;
        (address < end).then_some(end)
    }
}

/// Name of the kernel's vDSO.
pub(crate) const VDSO: &str = "[vdso]";
/// Suffix of the path of a deleted file.
const DELETED: &str = " (deleted)";

struct Line<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // The path is the rest of the line, blanks included.
        let mut rest = line;
        let mut word = || {
            let text = rest.trim_start_matches(' ');
            let (word, after) = text.split_at(text.find(' ').unwrap_or(text.len()));
            rest = after;
            word
        };
        let (range, rights, offset, device, inode) = (word(), word(), word(), word(), word());
        let (start, end) = range.split_once('-')?;
        let (major, minor) = device.split_once(':')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            rights,
            offset: hex(offset)?,
            device: (hex(major)? as u32, hex(minor)? as u32),
            inode: inode.parse().ok()?,
            path: rest.trim_start_matches(' '),
        })
    }
}

impl Code {
    /// Opens the file through the process, which must still exist.
    pub(crate) fn open(&self, pid: i32) -> Option<File> {
        if self.file.inode == 0 {
            return None;
        }
        let path = &self.file.path;
        if !path.ends_with(DELETED)
            && let Ok(file) = File::open(format!("/proc/{pid}/root{path}"))
        {
            return Some(file);
        }
        // This leads to the same file even if it was renamed, but needs privileges.
        let (start, end) = (self.start, self.end);
        File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}")).ok()
    }
}

impl FileKey {
    /// The path without the suffix of deleted files.
    pub(crate) fn name(&self) -> &str {
        self.path.strip_suffix(DELETED).unwrap_or(&self.path)
    }

    /// The path, if it still leads to this file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        (self.inode != 0 && !self.path.ends_with(DELETED)).then(|| PathBuf::from(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 42                         /opt/a b/app
55d0c0001000-55d0c0002000 r-xp 00001000 08:01 42                         /opt/a b/app
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f0010000000-7f0010001000 r-xp 00002000 fe:00 7                          /lib/gone.so (deleted)
7f0020000000-7f0020001000 r-xp 00000000 00:00 0 
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_and_stacks_are_found_in_a_map() {
        let maps = Maps::parse(TEXT);
        let names: Vec<&str> = maps.code.iter().map(|code| code.file.name()).collect();
        assert_eq!(names, ["/opt/a b/app", "/lib/gone.so", VDSO]);
        assert_eq!((maps.code[0].offset, maps.code[0].file.inode), (0x1000, 42));
        assert_eq!(maps.code[1].file.device, (0xfe, 0));
        assert_eq!(maps.code[1].file.path(), None);
        assert_eq!(maps.starts, [(0x55d0_c000_0000, maps.code[0].file.clone())]);
        assert_eq!(maps.end_of_memory(0x7ffc_0000_0010), Some(0x7ffc_0002_1000));
        assert_eq!(maps.end_of_memory(0x7f00_0002_1000), None);
        assert_eq!(maps.end_of_memory(3), None);
    }

    #[test]
    fn a_line_that_is_no_map_is_passed_over() {
        assert_eq!(Maps::parse("nonsense\n\n1-2\nx-y rw-p 0 0:0 0\n"), Maps::default());
    }
}
