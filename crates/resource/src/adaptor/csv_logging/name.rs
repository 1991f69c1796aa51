//! What the log's file is called.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::CsvError;

/// Names the log where the program does not.
pub(super) const VARIABLE: &str = "RMM_LOG_FILE";

pub(super) fn default_file_name() -> Result<PathBuf, CsvError> {
    std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from).ok_or(CsvError::NoFileName)
}

pub(super) fn device_file_name(file: &Path, device: i32) -> PathBuf {
    let name = file.as_os_str().as_bytes();
    let begin = name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    // Dots that a name begins with separate nothing.
    let begin = begin + name[begin..].iter().take_while(|byte| **byte == b'.').count();
    let dot = name[begin..].iter().rposition(|byte| *byte == b'.');
    let (root, extension) = name.split_at(dot.map_or(name.len(), |dot| begin + dot));
    let mut numbered = root.to_vec();
    numbered.extend_from_slice(format!(".dev{device}").as_bytes());
    numbered.extend_from_slice(extension);
    let numbered = PathBuf::from(OsString::from_vec(numbered));
    std::path::absolute(&numbered).unwrap_or(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_goes_before_the_last_extension() {
        let name = |file: &str, device| {
            let named = device_file_name(Path::new(file), device);
            named.to_str().expect("was text").to_owned()
        };
        assert_eq!(name("/a/hello.txt", 1), "/a/hello.dev1.txt");
        assert_eq!(name("/a/log", 0), "/a/log.dev0");
        assert_eq!(name("/a/a.tar.gz", 0), "/a/a.tar.dev0.gz");
        assert_eq!(name("/a.d/log", 2), "/a.d/log.dev2");
        assert_eq!(name("/a/.hidden", 0), "/a/.hidden.dev0");
        assert_eq!(name("/a/..odd", 0), "/a/..odd.dev0");
        let here = std::env::current_dir().expect("there is one");
        assert_eq!(device_file_name(Path::new(""), 0), here.join(".dev0"));
        assert_eq!(device_file_name(Path::new("log.csv"), 0), here.join("log.dev0.csv"));
    }
}
