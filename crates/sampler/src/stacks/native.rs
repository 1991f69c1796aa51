//! Taking stacks natively: a tracer copies them, and a worker resolves them later.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use floodmark_event::StackReason;

use super::image::{Bytes, MOST_VDSO};
use super::maps::{Code, FileKey, Maps};
use super::tracer::{Job, Languages, Tracer};
use super::worker::{Snapshot, Worker};
use super::{StackReport, StackTarget, TakenStack};
use crate::error::{Error, Result};
use crate::sys::trace::read_memory;

/// The tracer and the worker, and the modules that the worker has.
#[derive(Debug)]
pub(crate) struct Native {
    tracer: Tracer,
    worker: Worker,
    /// Modules that were sent to the worker.
    known: HashSet<FileKey>,
    languages: Languages,
}

impl Native {
    pub(crate) fn start(languages: Languages) -> Result<Self> {
        let worker = Worker::start().map_err(Error::system("starting a thread for names"))?;
        Ok(Self { tracer: Tracer::default(), worker, known: HashSet::new(), languages })
    }

    pub(crate) fn take(
        &mut self,
        target: StackTarget,
        at_ns: u64,
        reason: StackReason,
        report: &mut StackReport,
    ) {
        let process = target.process;
        // A process that has ended has no mappings.
        let Some(maps) = Maps::read(process).ok().filter(|maps| !maps.code.is_empty()) else {
            report.gone_processes += 1;
            return;
        };
        let maps = Arc::new(maps);
        let job = Job { process, maps: Arc::clone(&maps), languages: self.languages, tried: Vec::new() };
        let Ok(copies) = self.tracer.take(job) else {
            report.fail("no thread could be started to take stacks".into());
            return;
        };
        report.gone_threads += copies.gone;
        report.stuck_threads += copies.stuck;
        if copies.denied > 0 && copies.threads.is_empty() {
            match tracer_of(process) {
                Some(_) => report.busy_processes += 1,
                None => report.denied_processes += 1,
            }
        }
        if copies.threads.is_empty() {
            return;
        }
        report.processes += 1;
        if let Some(failure) = copies.python_failure {
            report.python_failures += 1;
            report.say(format!("frames of Python in process {process}: {failure}"));
        }
        let files = self.new_files(process, &maps);
        let (threads, python, subject) = (copies.threads, copies.python, target.subject);
        self.worker.send(Snapshot { at_ns, subject, process, reason, maps, files, threads, python });
    }

    /// Opens modules that are new.
    fn new_files(&mut self, process: i32, maps: &Maps) -> Vec<(FileKey, Option<Bytes>)> {
        let mut files = Vec::new();
        for code in &maps.code {
            if self.known.insert(code.file.clone()) {
                files.push((code.file.clone(), bytes_of(process, code)));
            }
        }
        files
    }

    pub(crate) fn next(&mut self) -> Option<TakenStack> {
        self.worker.next().ok()
    }

    pub(crate) fn finish(&mut self) -> Vec<TakenStack> {
        self.worker.finish()
    }
}

fn bytes_of(process: i32, code: &Code) -> Option<Bytes> {
    if let Some(file) = code.open(process) {
        return Some(Bytes::File(file));
    }
    let length = code.end - code.start;
    if code.file.inode != 0 || length > MOST_VDSO {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    let read = read_memory(process, code.start, &mut bytes);
    (read == bytes.len()).then_some(Bytes::Memory(bytes))
}

/// PID of the process that traces a process.
pub(crate) fn tracer_of(process: i32) -> Option<i32> {
    let status = fs::read(format!("/proc/{process}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|pid| *pid != 0)
}
