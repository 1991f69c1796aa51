//! Ranks of an MPI job that record into one trace, each under a recorder of its own.
//!
//! `mpiexec -n 4 floodmark run -o job.flood -- app` starts four recorders that know nothing of each other but the
//! directory and the job ([`own_job`]). The first one creates the trace, with the job in `segments/job`; the others find
//! it there and join. Each has a ring of its own in the trace, and all take turns as its sealer.
//!
//! Invariants: a trace appears together with its `segments/job`, by one rename. A recorder holds a shared lock on that
//! file while it records, and gives it up only after its ring is complete; the one that can lock the file exclusively then
//! is the last one and seals the trace. Two may be last one after the other, so completing a trace twice changes nothing.
//! Where there are no locks, every recorder completes the trace as far as it is there. A recorder that is killed loses its
//! lock, so it keeps none of the others waiting; if it was the last one, the first reader seals, as after any crash.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use floodmark_event::SubjectKind;
use floodmark_store::{Manifest, Trace, is_trace};

use crate::error::{Error, Result};
use crate::lock::{self, HeldFile, LockState, Lockable as _};
use crate::recording::{host, is_empty, remove_trace, set_aside};

/// File that names the job whose ranks record into a trace, and that is locked while they do.
const JOB_FILE: &str = "segments/job";
/// Ending of the files that are locked by the rank which watches something for all.
const CLAIM: &str = ".claim";
/// Ending of the files that say which ranks have joined, until the last one lists them in [`JOB_FILE`].
const JOINED: &str = ".rank";
/// Longest text that is read of [`JOB_FILE`].
const MOST_BYTES: u64 = 16 << 20;
/// How long to wait for a recorder that completes the trace, or replaces one.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(20) };
/// What to do if the trace cannot be joined.
const OTHER_NAME: &str =
    "choose another name with -o, or give every rank a trace of its own, as in -o run-%r.flood";
/// How many names are tried.
const MOST_NAMES: u32 = 10_000;

/// Where the recording of a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDestination {
    /// The job, as its launcher identifies it.
    pub job: String,
    /// Rank of this process in it.
    pub rank: u32,
    /// Directory of the trace.
    pub name: JobTrace,
}

/// Directory of the trace of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobTrace {
    /// This one, which must not be the trace of something else.
    New(PathBuf),
    /// This one; the trace of something else is replaced.
    Over(PathBuf),
    /// A directory of this name, or of this name and a number.
    Numbered(String),
}

/// A rank's place in the recording of its job.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) trace: PathBuf,
    rank: u32,
    /// Locked while this rank records.
    presence: File,
}

impl JobDestination {
    /// Creates the trace, or joins the one that another rank has created.
    pub(crate) fn join(&self) -> Result<Membership> {
        match &self.name {
            JobTrace::New(path) => match self.try_join(path)? {
                Some(membership) => Ok(membership),
                None => Err(Error::refused(
                    format!("{} exists already", path.display()),
                    "choose another name, replace it with --force, or give every rank a trace of its own, as in \
                     -o run-%r.flood",
                )),
            },
            JobTrace::Over(path) => self.replace(path),
            JobTrace::Numbered(name) => {
                for number in 1..=MOST_NAMES {
                    let path = match number {
                        1 => PathBuf::from(format!("{name}.flood")),
                        _ => PathBuf::from(format!("{name}-{number}.flood")),
                    };
                    if let Some(membership) = self.try_join(&path)? {
                        return Ok(membership);
                    }
                }
                let what = format!("there are {MOST_NAMES} traces named {name} here");
                Err(Error::refused(what, "choose a name with -o"))
            }
        }
    }

    /// Joins the trace at `path`, creating it if there is none; none if it is the trace of something else.
    fn try_join(&self, path: &Path) -> Result<Option<Membership>> {
        if !path.exists() || is_empty(path) {
            self.create(path).map_err(Error::create(path))?;
        }
        // Locked before it is read: the last rank of those before us may be completing the trace.
        let Some(presence) = presence(path)? else { return Ok(None) };
        let Some((job, ranks)) = job_of(path) else { return Ok(None) };
        // A second recording of the same rank is another one, even in the same job.
        if job != self.job || ranks.contains(&self.rank) { Ok(None) } else { self.enter(path, presence) }
    }

    /// Creates the trace under another name first, so that it never exists without its job. Another rank may be faster.
    fn create(&self, path: &Path) -> io::Result<()> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let host = host().map(|host| crate::recording::name_of(&host)).unwrap_or_default();
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let fresh = path.with_file_name(format!(".{name}.{host}-{}-{number}.new", std::process::id()));
        let made = fs::create_dir(&fresh)
            .and_then(|()| fs::create_dir(fresh.join("segments")))
            .and_then(|()| File::create_new(fresh.join(JOB_FILE)))
            .and_then(|mut file| writeln!(file, "{}", self.job))
            .and_then(|()| fs::rename(&fresh, path));
        let made = match made {
            Err(error) if is_taken(&error) && path.exists() => Ok(()),
            made => made,
        };
        let _ = fs::remove_dir_all(&fresh);
        made
    }

    /// Joins the trace, after setting that of something else aside. One rank at a time does this, so that none replaces
    /// the trace that another one has just created.
    fn replace(&self, path: &Path) -> Result<Membership> {
        let turn = Turn::take(path)?;
        if let Some(membership) = self.try_join(path)? {
            return Ok(membership);
        }
        let replaced = set_aside(path)?;
        let joined = self.try_join(path);
        if let (Ok(Some(_)), Some(replaced)) = (&joined, replaced) {
            let _ = fs::remove_dir_all(replaced);
        }
        drop(turn);
        joined?.ok_or_else(|| {
            Error::refused(format!("{} exists already", path.display()), "choose another name with -o")
        })
    }

    /// Joins the trace at `path`; none if this rank has before.
    fn enter(&self, path: &Path, presence: File) -> Result<Option<Membership>> {
        let joined = joined_file(path, self.rank);
        match File::create_new(&joined) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made.map_err(Error::create(&joined))?,
        };
        Ok(Some(Membership { trace: path.to_owned(), rank: self.rank, presence }))
    }
}

/// Opens the file that names the job of a trace, with a shared lock on it; none if there is no such file.
fn presence(trace: &Path) -> Result<Option<File>> {
    let path = trace.join(JOB_FILE);
    let file = match File::options().read(true).write(true).open(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        opened => opened.map_err(Error::create(&path))?,
    };
    match lock::wait(PATIENCE, || file.try_shared()) {
        LockState::Locked | LockState::Unsupported => Ok(Some(file)),
        LockState::Busy => Err(Error::refused(
            format!("{} is being completed by another rank, for {PATIENCE:?} by now", trace.display()),
            OTHER_NAME,
        )),
    }
}

impl Membership {
    /// Claims something that one rank is to watch for all; none if another rank has done so.
    pub(crate) fn claim(&self, what: &str) -> Option<HeldFile> {
        let name: String = what.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let path = self.trace.join("segments").join(format!("{name}{CLAIM}"));
        HeldFile::hold(&path, Duration::ZERO).ok().flatten()
    }

    /// Gives up the place after the ring is complete. Returns whether no other rank records: then the trace is to be
    /// completed, and until the value is dropped, ranks that start now wait.
    pub(crate) fn is_last(&self) -> bool {
        lock::is_last(&self.presence)
    }

    /// Whether another rank was last after this one had given up its place, and has completed the trace. Without locks
    /// that cannot be known.
    pub(crate) fn is_completed(&self) -> bool {
        self.presence.try_exclusive() == LockState::Locked && !joined_file(&self.trace, self.rank).exists()
    }

    /// Removes what this rank has in the trace: its command did not start.
    pub(crate) fn remove_own_tail(&self) {
        let _ = fs::remove_file(joined_file(&self.trace, self.rank));
        let own = own_stem();
        for entry in entries(&self.trace.join("segments")) {
            if entry.file_name().to_string_lossy().starts_with(&own) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the trace if nothing was recorded into it; returns whether that was so.
    pub(crate) fn remove_if_empty(&self) -> bool {
        let is_tail = |name: &str| [".ring", ".process", ".seg"].iter().any(|ending| name.ends_with(ending));
        let has_tail =
            entries(&self.trace.join("segments")).any(|entry| entry.file_name().to_str().is_none_or(is_tail));
        let has_parts = Manifest::load(&self.trace).map_or(true, |found| {
            found.is_some_and(|found| found.parts.iter().any(|part| part.table != "process"))
        });
        let is_empty = !has_tail && !has_parts;
        if is_empty {
            remove_trace(&self.trace);
        }
        is_empty
    }

    /// Lists the ranks that have joined in one file, and removes what only ranks need of each other.
    pub(crate) fn tidy(&self) {
        let Some((job, mut ranks)) = job_of(&self.trace) else { return };
        // Not those that join from now on, as they may where there are no locks.
        let joined: Vec<PathBuf> = ranks.iter().map(|rank| joined_file(&self.trace, *rank)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
        // Written in place: the file is locked, and a new one would not be.
        if fs::write(self.trace.join(JOB_FILE), format!("{job}\n{}\n", list.join(" "))).is_err() {
            return;
        }
        let segments = self.trace.join("segments");
        let claims = entries(&segments).map(|entry| entry.path());
        let claims = claims.filter(|path| path.to_string_lossy().ends_with(CLAIM));
        for path in claims.chain(joined) {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Children that were forked meanwhile hold the same lock.
        self.presence.release();
    }
}

/// The right to replace a trace: a file beside it that is held.
struct Turn {
    path: PathBuf,
    _held: HeldFile,
}

impl Turn {
    fn take(trace: &Path) -> Result<Self> {
        let name = trace.file_name().unwrap_or_default().to_string_lossy();
        let path = trace.with_file_name(format!(".{name}.turn"));
        match HeldFile::hold(&path, PATIENCE).map_err(Error::create(trace))? {
            Some(held) => Ok(Self { path, _held: held }),
            None => Err(Error::refused(
                format!("{} is being replaced by another rank, for {PATIENCE:?} by now", trace.display()),
                OTHER_NAME,
            )),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // While it is held; ranks that wait for it notice.
        let _ = fs::remove_file(&self.path);
    }
}

fn joined_file(trace: &Path, rank: u32) -> PathBuf {
    trace.join("segments").join(format!("{rank}{JOINED}"))
}

/// The job whose ranks record into the trace at `path`, and the ranks that have joined.
fn job_of(path: &Path) -> Option<(String, Vec<u32>)> {
    if !is_trace(path) {
        return None;
    }
    let mut text = String::new();
    io::Read::read_to_string(
        &mut io::Read::take(File::open(path.join(JOB_FILE)).ok()?, MOST_BYTES),
        &mut text,
    )
    .ok()?;
    let mut lines = text.lines();
    let job = lines.next()?.to_owned();
    let mut ranks: Vec<u32> =
        lines.next().unwrap_or("").split(' ').filter_map(|rank| rank.parse().ok()).collect();
    ranks.extend(
        entries(&path.join("segments"))
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(JOINED)?.parse::<u32>().ok()),
    );
    Some((job, ranks))
}

/// Exit code of a job: that of the first rank which did not end well.
pub(crate) fn exit_code(trace: &Path) -> Option<i32> {
    let subjects = Trace::open(trace).ok()?.subjects().ok()?;
    let jobs = subjects.values().filter(|subject| subject.kind == SubjectKind::Job);
    let code = |status: i32| {
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
    };
    let mut ended: Vec<(Option<i64>, i32)> =
        jobs.filter_map(|job| Some((job.end_ns, code(job.wait_status?)))).collect();
    ended.sort_unstable();
    ended.iter().map(|(_, code)| *code).find(|code| *code != 0).or(ended.first().map(|_| 0))
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Start of the names of tail files that this process makes. Processes of other hosts may have the same PID.
fn own_stem() -> String {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte as char } else { '_' };
    let host: String = host().unwrap_or_default().bytes().take(32).map(plain).collect();
    format!("{host}-{}-{:x}-", std::process::id(), namespace())
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(job: &str, rank: u32, name: JobTrace) -> JobDestination {
        JobDestination { job: job.to_owned(), rank, name }
    }

    #[test]
    fn ranks_of_a_job_find_one_trace_and_the_last_one_knows() {
        let test = floodmark_testkit::TempDir::new("job");
        let path = test.join("job.flood");
        let new = |job: &str, rank: u32| destination(job, rank, JobTrace::New(path.clone())).join();
        let (first, second) = (new("slurm 1.0", 0).unwrap(), new("slurm 1.0", 1).unwrap());
        assert_eq!((&first.trace, &second.trace), (&path, &path));
        new("slurm 1.0", 1).unwrap_err();
        let refused = new("slurm 1.1", 2).unwrap_err();
        assert!(refused.remedy().unwrap().contains("-o run-%r.flood"), "{refused}");
        assert!(first.claim("gpu").is_some() && second.claim("gpu").is_some(), "the first claim was dropped");
        let held = first.claim("gpu");
        assert!(held.is_some() && second.claim("gpu").is_none());
        assert!(!first.is_last());
        assert!(second.is_last());
        drop((first, second));
        // A rank that starts when all others have ended.
        let third = new("slurm 1.0", 2).unwrap();
        assert!(third.is_last());
        assert!(!third.is_completed());
        third.tidy();
        assert!(third.is_completed());
        // As if two ranks were last.
        third.tidy();
        assert_eq!(job_of(&path), Some(("slurm 1.0".to_owned(), vec![0, 1, 2])));
        assert_eq!(entries(&path.join("segments")).count(), 1, "the job alone");
        drop(third);
        new("slurm 1.0", 0).unwrap_err();
        let names: Vec<_> = entries(&test).map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["job.flood"], "nothing is left beside it");
    }

    #[test]
    fn traces_of_other_jobs_are_replaced_once_and_only_if_asked() {
        let test = floodmark_testkit::TempDir::new("job");
        let path = test.join("job.flood");
        let over = |job: &str, rank: u32| destination(job, rank, JobTrace::Over(path.clone())).join();
        drop(over("a", 0).unwrap());
        fs::write(path.join("segments/old"), "").unwrap();
        let first = over("b", 0).unwrap();
        fs::write(path.join("segments/new"), "").unwrap();
        let second = over("b", 1).unwrap();
        assert!(!path.join("segments/old").exists() && path.join("segments/new").exists());
        drop((first, second));
        assert_eq!(entries(&test).count(), 1, "neither the old trace nor the turn is left");
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("thesis.tex"), "").unwrap();
        over("c", 0).unwrap_err();
        assert!(path.join("thesis.tex").exists(), "what is no trace is not replaced");
    }

    #[test]
    fn a_rank_that_waits_too_long_is_refused_with_a_remedy() {
        let test = floodmark_testkit::TempDir::new("job");
        let path = test.join("job.flood");
        let first = destination("a", 0, JobTrace::New(path.clone())).join().unwrap();
        assert!(first.is_last());
        let refused = destination("a", 1, JobTrace::New(path.clone())).join().unwrap_err();
        assert!(refused.to_string().contains("is being completed by another rank"), "{refused}");
        assert_eq!(refused.remedy().unwrap(), OTHER_NAME);
        drop(first);
        let turn = Turn::take(&path).unwrap();
        let refused = destination("a", 1, JobTrace::Over(path.clone())).join().unwrap_err();
        assert!(refused.to_string().contains("is being replaced by another rank"), "{refused}");
        assert_eq!(refused.remedy().unwrap(), OTHER_NAME);
        drop(turn);
        destination("a", 1, JobTrace::Over(path)).join().unwrap();
    }

    #[test]
    fn many_ranks_at_once_agree_on_one_name() {
        let test = floodmark_testkit::TempDir::new("job");
        let name = test.join("app").display().to_string();
        let join = &|rank| destination("x", rank, JobTrace::Numbered(name.clone())).join().unwrap();
        let ranks: Vec<Membership> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..16).map(|rank| scope.spawn(move || join(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert!(ranks.iter().all(|rank| rank.trace == test.join("app.flood")));
        let last: Vec<bool> = ranks.iter().map(Membership::is_last).collect();
        assert_eq!(last.iter().filter(|last| **last).count(), 1);
        drop(ranks);
        let other = destination("y", 0, JobTrace::Numbered(name)).join().unwrap();
        assert_eq!(other.trace, test.join("app-2.flood"));
    }
}
