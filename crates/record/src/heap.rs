//! Recording the heap of a command from inside: which library is preloaded with which options, and which programs of the
//! tree it cannot record.
//!
//! What is said to the library, and what it leaves in the trace, is in [`floodmark_tail::heap`].

mod library;
mod program;
mod seen;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use floodmark_analyze::HeapSummary;
use floodmark_sampler::Launch;
use floodmark_tail::heap::{HEAP_VARIABLE, HeapNote, HeapOptions};

use crate::error::Result;
pub(crate) use library::LibraryFile;
pub(crate) use program::program_file;
pub use program::{Limitation, limitation};
pub(crate) use seen::{HeapSink, SeenPrograms};

/// Environment variable with the libraries that the dynamic loader loads before all others.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// The recorder's own programs, which are not what a user wants to see.
const OWN_PROGRAM: &str = "floodmark";

/// How to record heaps.
#[derive(Clone, Debug, Default)]
pub struct HeapProps {
    /// What is recorded.
    pub options: HeapOptions,
    /// File of the library to preload instead of the embedded one.
    pub library: Option<PathBuf>,
}

/// The recording of the heap of a command.
#[derive(Debug)]
pub(crate) struct HeapCapture {
    library: LibraryFile,
    options: HeapOptions,
}

impl HeapCapture {
    /// Provides the library.
    pub(crate) fn prepare(props: HeapProps) -> Result<Self> {
        let HeapProps { mut options, library } = props;
        options.not.push(OWN_PROGRAM.to_owned());
        Ok(Self { library: LibraryFile::open(library.as_deref())?, options })
    }

    /// Adds what makes the library record to the environment of a command.
    pub(crate) fn add_to(&self, launch: &mut Launch) {
        launch.environment.push((HEAP_VARIABLE.into(), self.options.to_string().into()));
        preload(self.library.path(), launch);
    }

    /// Where the library is.
    pub(crate) fn library_path(&self) -> &Path {
        self.library.path()
    }

    /// Returns a list for the programs of the command.
    pub(crate) fn seen_programs(&self) -> SeenPrograms {
        SeenPrograms::new(self.library.path())
    }

    /// Ends the recording, in which these programs were seen; processes that are still running keep the library.
    pub(crate) fn finish(self, seen: SeenPrograms, are_processes_left: bool) -> HeapReport {
        if are_processes_left {
            self.library.leave();
        }
        HeapReport { options: self.options, seen }
    }
}

/// What is known of the recording of heaps beside what the trace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapReport {
    options: HeapOptions,
    seen: SeenPrograms,
}

impl HeapReport {
    /// Adds the programs that were not recorded to what the trace shows.
    pub(crate) fn complete(&self, mut heap: HeapSummary) -> HeapSummary {
        heap.not_recorded = self.seen.not_recorded(&self.options, &heap.pids);
        if !heap.not_recorded.is_empty() {
            // The library says the same without the name of the program.
            let is_said = [HeapNote::OwnAllocator, HeapNote::Sanitizer].map(HeapNote::text);
            heap.remarks.retain(|remark| !is_said.contains(&remark.as_str()));
        }
        heap
    }
}

/// Has a library preloaded into a command, unless the command would not start or complain then.
pub(crate) fn preload(library: &Path, launch: &mut Launch) {
    let file = program_file(&launch.program);
    let limitation = file.and_then(|file| limitation(&file).ok()).flatten();
    if !limitation.is_some_and(|limitation| limitation.forbids_preloading()) {
        let before = std::env::var_os(PRELOAD_VARIABLE).filter(|before| !before.is_empty());
        let preloaded = preloaded(library.as_os_str(), before.as_deref());
        launch.environment.push((PRELOAD_VARIABLE.into(), preloaded));
    }
}

/// The value of `LD_PRELOAD` that adds a library to what is preloaded anyway.
fn preloaded(library: &OsStr, before: Option<&OsStr>) -> OsString {
    let mut value = library.to_owned();
    if let Some(before) = before {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays() {
        let library = OsStr::new("/run/lib.so");
        assert_eq!(preloaded(library, None), "/run/lib.so");
        assert_eq!(preloaded(library, Some(OsStr::new("a.so b.so"))), "/run/lib.so:a.so b.so");
    }
}
