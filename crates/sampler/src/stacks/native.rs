//! Taking stacks natively: a tracer copies them, and a worker resolves them later.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use floodmark_event::StackReason;

use super::image::{Bytes, MOST_VDSO};
use super::maps::{Code, FileKey, Maps};
use super::tracer::{Job, Languages, Tracer};
use super::worker::{Snapshot, Worker};
use super::{Faulted, StackReport, StackTarget, TakenStack};
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
        faulted: Option<Faulted>,
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
        if copies.threads.is_empty() && copies.busy > 0 {
            report.busy_processes += 1;
        } else if copies.threads.is_empty() && copies.denied > 0 {
            report.denied_processes += 1;
            report.say(why_denied(process));
        }
        if copies.threads.is_empty() {
            return;
        }
        report.processes += 1;
        match copies.python_failure {
            Some(failure) => {
                report.python_failures += 1;
                let message = || format!("frames of Python in process {process}: {failure}");
                report.python_failure.get_or_insert_with(message);
            }
            None => report.python_processes += u64::from(!copies.python.is_empty()),
        }
        let files = self.new_files(process, &maps);
        let (threads, python, subject) = (copies.threads, copies.python, target.subject);
        self.worker.send(Snapshot { at_ns, subject, process, reason, maps, files, threads, faulted, python });
    }

    /// Finds the stack of the thread that made a process grow by its page faults alone; returns false if there are
    /// none.
    pub(crate) fn take_samples(&mut self, target: StackTarget, at_ns: u64, faulted: Faulted) -> bool {
        let (process, subject, reason) = (target.process, target.subject, StackReason::Fault);
        let maps = Maps::read(process).ok().filter(|maps| !maps.code.is_empty());
        let Some(maps) = maps.filter(|_| !faulted.samples.is_empty()) else { return false };
        let (files, maps, faulted) = (self.new_files(process, &maps), Arc::new(maps), Some(faulted));
        let (threads, python) = (Vec::new(), Vec::new());
        self.worker.send(Snapshot { at_ns, subject, process, reason, maps, files, threads, faulted, python });
        true
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

/// Describes why a process may not be traced, and what would change that.
pub(crate) fn why_denied(process: i32) -> String {
    let owner = |path: String| fs::metadata(path).ok().map(|metadata| metadata.uid());
    let (own, its) = (owner("/proc/self".into()), owner(format!("/proc/{process}")));
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        _ if its.is_some() && own != its => {
            let its = its.unwrap_or(0);
            format!("process {process} belongs to user {its}: run as that user, or with CAP_SYS_PTRACE")
        }
        "1" => format!(
            "process {process} may not be traced because kernel.yama.ptrace_scope is 1: start it with \
             `floodmark run`, or have CAP_SYS_PTRACE"
        ),
        "2" => format!(
            "process {process} may not be traced because kernel.yama.ptrace_scope is 2: CAP_SYS_PTRACE is needed"
        ),
        "3" => format!(
            "process {process} may not be traced because kernel.yama.ptrace_scope is 3, until the next boot"
        ),
        _ => format!(
            "process {process} may not be traced: it runs a program with more permissions, or the container \
             or a security module forbids it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_reason_for_a_refusal_names_the_owner_of_the_process() {
        let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
        if !is_root {
            assert!(why_denied(1).contains("process 1 belongs to user 0"), "{}", why_denied(1));
            return;
        }
        let mut child = Command::new("sleep").arg("60").uid(65534).spawn().expect("it starts");
        let why = why_denied(child.id() as i32);
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(why.contains("belongs to user 65534: run as that user, or with CAP_SYS_PTRACE"), "{why}");
        let own = why_denied(std::process::id() as i32);
        assert!(own.contains("may not be traced") && !own.contains("belongs"), "{own}");
    }
}
