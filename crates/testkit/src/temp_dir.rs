//! A temporary directory that a test owns.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A directory that is removed when the value is dropped, with the rings of the traces in it.
///
/// The ring of a recording lies in shared memory, and its trace links to it. A recorder that was killed
/// leaves it there, so removing the directory alone would leak up to 64 MiB of memory per killed process.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// Creates a directory below the system's directory for temporary files; `name` is part of its name.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new(name: &str) -> Self {
        Self::new_in(std::env::temp_dir(), name)
    }

    /// Creates a directory in `parent`. Tests that run programs from it pass `CARGO_TARGET_TMPDIR`, because
    /// the system's directory may be mounted `noexec`.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new_in(parent: impl AsRef<Path>, name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix(&format!("floodmark-{name}-")).tempdir_in(parent);
        Self(dir.expect("a temporary directory can be created"))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Path of an entry of the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.path()
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let traces = std::fs::read_dir(self.path()).into_iter().flatten().flatten();
        let segments = traces.flat_map(|trace| {
            std::fs::read_dir(trace.path().join("segments")).into_iter().flatten().flatten()
        });
        for ring in segments.filter_map(|segment| std::fs::read_link(segment.path()).ok()) {
            let _ = std::fs::remove_file(ring);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_its_value_and_takes_the_rings_of_its_traces_along() {
        let rings = TempDir::new("rings");
        let ring = rings.join("ring");
        let dir = TempDir::new("traces");
        let path = dir.path().to_path_buf();
        std::fs::create_dir_all(dir.join("run.flood/segments")).expect("a trace");
        std::fs::write(&ring, "").expect("a ring");
        std::os::unix::fs::symlink(&ring, dir.join("run.flood/segments/1.ring")).expect("a link");
        drop(dir);
        assert!(!path.exists() && !ring.exists() && rings.exists());
    }
}
