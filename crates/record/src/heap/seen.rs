//! The programs of a tree of processes, and why some of them cannot be recorded.
//!
//! A sink learns of every process and every exec. The file of the program is examined at that moment, because a short
//! process is gone at the end of the recording, and each file only once.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use floodmark_analyze::NotRecorded;
use floodmark_event::{Metric, OutputStream, Subject, SubjectEnd, SubjectId, SubjectKind};
use floodmark_sampler::Sink;
use floodmark_tail::heap::HeapOptions;

use super::program::{Limitation, limitation, program_file};
use crate::words::words;

/// Why a program that could be recorded was not.
const NOT_LOADED: &str = "the recording library was not loaded; was LD_PRELOAD removed from its environment?";

/// Passes everything on, and examines the programs of processes where heaps are recorded.
pub(crate) struct HeapSink<'a, S> {
    pub(crate) inner: &'a mut S,
    /// None where heaps are not recorded.
    pub(crate) seen: Option<SeenPrograms>,
}

impl<S: Sink> Sink for HeapSink<'_, S> {
    fn subject(&mut self, at_ns: u64, subject: &Subject) -> SubjectId {
        if let Some(seen) = self.seen.as_mut().filter(|_| subject.kind == SubjectKind::Process) {
            seen.add(subject.number as u32, &subject.detail);
        }
        self.inner.subject(at_ns, subject)
    }

    fn ended(&mut self, at_ns: u64, subject: SubjectId, end: SubjectEnd) {
        self.inner.ended(at_ns, subject, end);
    }

    fn samples(&mut self, at_ns: u64, subject: SubjectId, samples: &[(Metric, u64)]) {
        self.inner.samples(at_ns, subject, samples);
    }

    fn output(&mut self, at_ns: u64, stream: OutputStream, bytes: &[u8]) {
        self.inner.output(at_ns, stream, bytes);
    }

    fn mark(&mut self, at_ns: u64, name: &str) {
        self.inner.mark(at_ns, name);
    }
}

/// Programs that processes ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenPrograms {
    /// By the path of the program's file.
    programs: BTreeMap<PathBuf, Program>,
    /// Limitations by file.
    examined: HashMap<PathBuf, Option<Limitation>>,
    /// Path of the library that is preloaded.
    library: Vec<u8>,
}

/// A program that processes ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Program {
    pids: Vec<u32>,
    /// Those of them whose environment does not name the library.
    without_library: Vec<u32>,
    limitation: Option<Limitation>,
}

impl SeenPrograms {
    /// Creates an empty list for a recording that preloads this library.
    pub(super) fn new(library: &Path) -> Self {
        Self { library: library.as_os_str().as_bytes().to_vec(), ..Self::default() }
    }

    /// Adds a process with its command line, which has begun or has a new program.
    fn add(&mut self, pid: u32, command: &str) {
        let link = PathBuf::from(format!("/proc/{pid}/exe"));
        let (path, file) = match fs::read_link(&link) {
            // The link leads to the file also if it was deleted or is in another mount namespace.
            Ok(path) => (path, link),
            // The process has ended, or is not ours to see.
            Err(_) => {
                let first = words(command).ok().and_then(|words| words.into_iter().next());
                let Some(path) = first.and_then(|word| program_file(OsStr::new(&word))) else { return };
                let path = path.canonicalize().unwrap_or(path);
                (path.clone(), path)
            }
        };
        let limitation = self.examine(&path, &file);
        // A process that has called exec since has the environment of its next program.
        let is_same = || fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|now| now == path);
        let is_without_library = self.is_without_library(pid) && is_same();
        let program = self.programs.entry(path).or_default();
        program.limitation = limitation;
        if !program.pids.contains(&pid) {
            program.pids.push(pid);
        }
        program.without_library.retain(|other| *other != pid);
        program.without_library.extend(is_without_library.then_some(pid));
    }

    /// Whether the environment that a process was started with is known and does not name the library.
    fn is_without_library(&self, pid: u32) -> bool {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
        // A process that has ended or is in the middle of an exec has neither arguments nor an environment.
        let is_running = read("cmdline").is_some_and(|arguments| !arguments.is_empty());
        let is_named = |environment: &[u8]| {
            environment.windows(self.library.len().max(1)).any(|part| part == self.library)
        };
        is_running && read("environ").is_some_and(|environment| !is_named(&environment))
    }

    fn examine(&mut self, path: &Path, file: &Path) -> Option<Limitation> {
        if let Some(known) = self.examined.get(path) {
            return known.clone();
        }
        // A setuid program may not be readable through its process.
        let found = limitation(file).or_else(|_| limitation(path)).ok()?;
        self.examined.insert(path.to_owned(), found.clone());
        found
    }

    /// Programs that were not recorded, or not completely, given the PIDs of the processes that were.
    pub(super) fn not_recorded(&self, options: &HeapOptions, pids: &[u32]) -> Vec<NotRecorded> {
        let entries = self.programs.iter().filter_map(|(path, program)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(name);
            if !options.selects_program(&name) {
                return None;
            }
            let all = program.pids.len();
            let (reason, processes) = match (&program.limitation, program.without_library.len()) {
                (Some(limitation), _) => (limitation.to_string(), all),
                // A child that only forked may never allocate, so one process speaks for all of its program.
                (None, 0) if program.pids.iter().any(|pid| pids.contains(pid)) => return None,
                (None, 0) => (NOT_LOADED.to_owned(), all),
                (None, without) => (NOT_LOADED.to_owned(), without),
            };
            Some(NotRecorded { program: name, reason, processes: processes as u64 })
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(programs: &[(&str, &[u32], Option<Limitation>)]) -> SeenPrograms {
        let programs = programs.iter().map(|(path, pids, limitation)| {
            let program =
                Program { pids: pids.to_vec(), limitation: limitation.clone(), ..Program::default() };
            (PathBuf::from(path), program)
        });
        SeenPrograms { programs: programs.collect(), ..SeenPrograms::default() }
    }

    #[test]
    fn programs_that_were_not_recorded_are_named_with_the_reason() {
        let seen = seen(&[
            ("/bin/app", &[1, 2], None),
            ("/bin/busybox", &[3], Some(Limitation::Static)),
            ("/bin/cleared", &[4, 5], None),
            ("/bin/sh", &[6], None),
        ]);
        let (options, _) = HeapOptions::parse("not=sh");
        let found = seen.not_recorded(&options, &[1]);
        let lines: Vec<String> =
            found.iter().map(|one| format!("{} {}: {}", one.program, one.processes, one.reason)).collect();
        assert_eq!(lines, ["busybox 1: statically linked".to_owned(), format!("cleared 2: {NOT_LOADED}")]);
    }

    #[test]
    fn the_program_of_a_process_is_found_while_it_runs_and_after_its_end() {
        let mut seen = SeenPrograms::new(Path::new("/no/such/library.so"));
        seen.add(std::process::id(), "");
        let own = std::env::current_exe().unwrap();
        assert_eq!(seen.programs.keys().collect::<Vec<_>>(), [&own]);
        // Its environment does not name the library.
        let found = seen.not_recorded(&HeapOptions::default(), &[std::process::id()]);
        assert_eq!((found.len(), found[0].reason.as_str()), (1, NOT_LOADED));
        // Above the highest number that the kernel gives to a process.
        seen.add(u32::MAX - 1, "sh -c true");
        let shell = program_file(OsStr::new("sh")).unwrap().canonicalize().unwrap();
        assert!(seen.programs.contains_key(&shell), "{seen:?}");
        seen.add(u32::MAX - 1, "/no/such/program");
        assert_eq!(seen.programs.len(), 2);
    }
}
