//! The device in a file's name.
//!
//! RMM for Python writes one log per device and puts `.devN` before the extension: `log.csv` becomes
//! `log.dev0.csv`, `log` becomes `log.dev0`, `a.tar.gz` becomes `a.tar.dev0.gz`. Files that differ in
//! nothing else come from one process.

use std::path::Path;

use floodmark_event::ProcessId;

/// Returns the number in `.devN` in the name of a file, if there is one.
pub fn device_of(path: &Path) -> Option<i32> {
    split(path).map(|(_, device, _)| device)
}

/// Gives every file its process, from 1 in the order of the files: files that differ only in `.devN`
/// share one, all others have their own.
pub fn group_devices<P: AsRef<Path>>(paths: &[P]) -> Vec<ProcessId> {
    let mut groups = Vec::new();
    let mut ids = Vec::with_capacity(paths.len());
    for path in paths.iter().map(AsRef::as_ref) {
        let group = split(path).map(|(before, _, after)| (path.parent(), before, after));
        let known = groups.iter().position(|known| group.is_some() && *known == group);
        let index = known.unwrap_or(groups.len());
        if known.is_none() {
            groups.push(group);
        }
        ids.push(ProcessId(index as u32 + 1));
    }
    ids
}

/// Splits a file's name into what comes before `.devN`, N, and what comes after. The last one counts:
/// that is where RMM put it.
fn split(path: &Path) -> Option<(&[u8], i32, &[u8])> {
    const MARK: &[u8] = b".dev";
    let name = path.file_name()?.as_encoded_bytes();
    let mut end = name.len();
    loop {
        let dot = memchr::memrchr(b'.', &name[..end])?;
        if let Some(number) = name[dot..end].strip_prefix(MARK)
            && number.iter().all(u8::is_ascii_digit)
            && let Ok(device) = str::from_utf8(number).unwrap_or("").parse()
        {
            return Some((&name[..dot], device, &name[end..]));
        }
        end = dot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_where_rmm_puts_it() {
        for (name, device) in [
            ("hello.dev1.txt", Some(1)),
            ("log.dev0", Some(0)),
            ("a.tar.dev0.gz", Some(0)),
            (".dev7", Some(7)),
            ("run.dev3/log.csv", None),
            ("log.dev1.dev12.csv", Some(12)),
            ("log.csv", None),
            ("log.dev.csv", None),
            ("log.dev-1.csv", None),
            ("log.dev1x.csv", None),
            ("dev1.csv", None),
            ("log.dev99999999999.csv", None),
            ("-", None),
        ] {
            assert_eq!(device_of(Path::new(name)), device, "{name}");
        }
    }

    #[test]
    fn files_that_differ_only_in_the_device_belong_to_one_process() {
        let paths = [
            "a/log.dev0.csv",
            "b/log.dev0.csv",
            "a/log.dev1.csv",
            "a/log.csv",
            "a/log.dev1.txt",
            "a/log.csv",
            "a/log.dev2.csv",
        ];
        assert_eq!(group_devices(&paths), [1, 2, 1, 3, 4, 5, 1].map(ProcessId));
    }
}
