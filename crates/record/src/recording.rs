//! A recording: where its trace goes, the sealer and the recorder that write it, and how it is completed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use floodmark_sampler::{Exit, Outcome, own_job, own_rank};
use floodmark_store::{Inbox, Manifest, Run, SealerThread, Trace, is_trace};
use floodmark_tail::clock::Anchor;
use floodmark_tail::reader::boot_id;
use floodmark_tail::{RecordProps, Recorder, SHARED_MEMORY, remove_abandoned_rings};

use crate::error::{Error, Result};
use crate::job::{self, JobDestination, JobTrace, Membership};
use crate::lock::HeldFile;

/// Longest name that is made of a command.
const NAME_BYTES: usize = 60;
/// How many names are tried.
const MOST_NAMES: u32 = 10_000;

/// Where a recording goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A directory that must not exist yet.
    New(PathBuf),
    /// A directory; a trace that exists there is replaced.
    Over(PathBuf),
    /// A trace that is continued.
    Append(PathBuf),
    /// A directory of this name, or of this name and a number.
    Numbered(String),
    /// A trace that all ranks of an MPI job share.
    Job(JobDestination),
}

impl Destination {
    /// Returns where the trace of `program` goes, `output` and whether a trace may be replaced there given. Ranks of an
    /// MPI job share a trace unless its name is to contain their rank or PID.
    pub fn of_run(output: Option<&Path>, is_replaced: bool, program: &str) -> Self {
        let job = own_job().zip(own_rank()).filter(|_| !output.is_some_and(is_named_by_rank));
        match (output.map(filled_in), job) {
            (None, None) => Self::Numbered(name_of(program)),
            (Some(path), None) if is_replaced => Self::Over(path),
            (Some(path), None) => Self::New(path),
            (None, Some((job, rank))) => {
                Self::Job(JobDestination { job, rank, name: JobTrace::Numbered(name_of(program)) })
            }
            (Some(path), Some((job, rank))) => {
                let name = if is_replaced { JobTrace::Over(path) } else { JobTrace::New(path) };
                Self::Job(JobDestination { job, rank, name })
            }
        }
    }

    /// Returns the same destination for a recorder that is alone, though it runs in the environment of a rank.
    #[must_use]
    pub(crate) fn unshared(self) -> Self {
        match self {
            Self::Job(JobDestination { name: JobTrace::New(path), .. }) => Self::New(path),
            Self::Job(JobDestination { name: JobTrace::Over(path), .. }) => Self::Over(path),
            Self::Job(JobDestination { name: JobTrace::Numbered(name), .. }) => Self::Numbered(name),
            alone => alone,
        }
    }

    /// Makes the directory.
    fn take(&self) -> Result<ReservedDirectory> {
        let new = |path: &Path| ReservedDirectory {
            trace: path.to_owned(),
            is_new: true,
            replaced: None,
            membership: None,
        };
        match self {
            Self::New(path) => make(path).map(|()| new(path)).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Error::refused(
                    format!("{} exists already", path.display()),
                    name_hint("choose another name, or replace it with --force"),
                ),
                _ => Error::create(path)(error),
            }),
            Self::Over(path) => {
                let reserved = ReservedDirectory { replaced: set_aside(path)?, ..new(path) };
                if let Err(error) = make(path) {
                    reserved.restore();
                    return Err(Error::create(path)(error));
                }
                Ok(reserved)
            }
            Self::Append(path) => {
                if Trace::open(path)?.is_live() {
                    let what = format!("{} is being recorded", path.display());
                    return Err(Error::refused(what, "wait until that has ended"));
                }
                Ok(ReservedDirectory { is_new: false, ..new(path) })
            }
            Self::Numbered(name) => numbered(name).map(|path| new(&path)),
            Self::Job(destination) => {
                let membership = destination.join()?;
                let trace = membership.trace.clone();
                Ok(ReservedDirectory { is_new: false, membership: Some(membership), ..new(&trace) })
            }
        }
    }
}

impl Destination {
    /// Reserves the directory for another process to record into; returns it and whether a trace there may be
    /// replaced.
    ///
    /// # Errors
    /// If no directory can be made.
    pub fn reserve(&self) -> Result<(PathBuf, bool)> {
        match self {
            Self::New(path)
            | Self::Append(path)
            | Self::Job(JobDestination { name: JobTrace::New(path), .. }) => Ok((path.clone(), false)),
            Self::Over(path) | Self::Job(JobDestination { name: JobTrace::Over(path), .. }) => {
                Ok((path.clone(), true))
            }
            // An empty one may be recorded into.
            Self::Numbered(name) | Self::Job(JobDestination { name: JobTrace::Numbered(name), .. }) => {
                Ok((numbered(name)?, false))
            }
        }
    }
}

/// What to do about a name that is reserved: ranks of one job need one each.
fn name_hint(otherwise: &'static str) -> &'static str {
    if own_rank().is_some() { "give every rank a name of its own, as in -o run-%r.flood" } else { otherwise }
}

/// A directory to record into.
struct ReservedDirectory {
    trace: PathBuf,
    /// Whether there is nothing in it but what we record.
    is_new: bool,
    /// Where the trace is that was there before.
    replaced: Option<PathBuf>,
    /// This rank's place, if ranks of a job share the trace.
    membership: Option<Membership>,
}

impl ReservedDirectory {
    /// Restores what was there. A trace that cannot be put back stays where it was set aside.
    fn restore(&self) {
        if self.is_new {
            remove_trace(&self.trace);
        }
        if let Some(replaced) = &self.replaced {
            let _ = fs::rename(replaced, &self.trace);
        }
    }

    /// Deletes the trace that was replaced.
    fn keep(&self) {
        if let Some(replaced) = &self.replaced {
            let _ = fs::remove_dir_all(replaced);
        }
    }
}

/// Makes a directory for a trace, or takes an empty one.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_empty(path) => Ok(()),
        made => made,
    }
}

pub(crate) fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Sets a trace aside that is not being recorded, so that it can be put back should the command not
/// start.
pub(crate) fn set_aside(path: &Path) -> Result<Option<PathBuf>> {
    if !path.exists() || is_empty(path) {
        return Ok(None);
    }
    if !is_trace(path) {
        let what = format!("{} is no trace, so it is not replaced", path.display());
        return Err(Error::refused(what, "choose another name with -o"));
    }
    // A trace that cannot be read may be replaced; one that is being recorded may not.
    if Trace::open(path).is_ok_and(|trace| trace.is_live()) {
        let what = format!("{} is being recorded, so it is not replaced", path.display());
        return Err(Error::refused(what, name_hint("choose another name with -o")));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}.replaced", std::process::id()));
    fs::rename(path, &aside)
        .map_err(|source| Error::Io { act: format!("replacing {}", path.display()), source })?;
    Ok(Some(aside))
}

/// Deletes a trace into which nothing was recorded, under another name first: a launcher that kills its ranks must not leave
/// half of one, which would be neither readable nor replaced by the next recording.
pub(crate) fn remove_trace(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doomed = path.with_file_name(format!(".{name}.{}.removed", std::process::id()));
    let is_renamed = fs::rename(path, &doomed).is_ok();
    let _ = fs::remove_dir_all(if is_renamed { &doomed } else { path });
}

/// Makes the first of `name.flood`, `name-2.flood`, … that is not there.
fn numbered(name: &str) -> Result<PathBuf> {
    for number in 1..=MOST_NAMES {
        let path = match number {
            1 => PathBuf::from(format!("{name}.flood")),
            _ => PathBuf::from(format!("{name}-{number}.flood")),
        };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let folder = std::env::current_dir().unwrap_or_default();
                let act = format!("creating {} in {}", path.display(), folder.display());
                return Err(Error::Io { act, source: error });
            }
        }
    }
    Err(Error::refused(format!("there are {MOST_NAMES} traces named {name} here"), "choose a name with -o"))
}

/// Replaces `%r` by our rank in an MPI job, 0 where there is none, `%h` by the host, `%p` by our process
/// and `%%` by a percent sign; anything else stays as it is.
pub fn filled_in(path: &Path) -> PathBuf {
    let Some(text) = path.to_str().filter(|text| text.contains('%')) else { return path.to_owned() };
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        filled.push_str(&rest[..at]);
        let value = match rest.as_bytes().get(at + 1) {
            Some(b'r') => Some(own_rank().unwrap_or(0).to_string()),
            Some(b'h') => host().map(|host| name_of(&host)),
            Some(b'p') => Some(std::process::id().to_string()),
            Some(b'%') => Some("%".to_owned()),
            _ => None,
        };
        filled.push_str(value.as_deref().unwrap_or("%"));
        rest = &rest[at + if value.is_some() { 2 } else { 1 }..];
    }
    PathBuf::from(filled + rest)
}

/// Whether a path has a placeholder that is different in every rank of the MPI job which this process is a rank of.
pub fn is_named_by_rank(path: &Path) -> bool {
    let text = path.to_string_lossy().replace("%%", "");
    (text.contains("%r") || text.contains("%p")) && own_job().is_some()
}

/// Makes a name for a trace of what was typed: only characters that need no quoting.
pub fn name_of(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or_default();
    let keep = |c: char| if c.is_alphanumeric() || "._-+".contains(c) { c } else { '_' };
    let mut name: String = name.chars().filter(|c| !c.is_control()).map(keep).collect();
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

/// A recording that is going on.
pub struct Recording {
    reserved: ReservedDirectory,
    /// What the manifest says of the run, if this recorder creates it.
    run: Run,
    recorder: Recorder,
    sealer: SealerThread,
}

impl Recording {
    /// Starts to record `command` into a new trace; `job` is the id by which agents on other nodes know it. Rings of
    /// deleted traces are removed from shared memory first.
    ///
    /// # Errors
    /// If the destination cannot be used or recording cannot be started; nothing is left behind then.
    pub fn start(destination: &Destination, command: String, job: Option<String>) -> Result<Self> {
        let reserved = destination.take()?;
        let trace = &reserved.trace;
        remove_abandoned_rings(Path::new(SHARED_MEMORY), SystemTime::now());
        let run = Run {
            command: Some(command),
            host: host(),
            user: environment("USER").or_else(|| environment("LOGNAME")),
            start_ns: Some(Anchor::now().utc_ns),
            job,
            ..Run::default()
        };
        let sealer = match &reserved.membership {
            Some(_) => SealerThread::share(trace, run.clone()),
            None => SealerThread::spawn(trace, run.clone()),
        };
        let started = sealer.map_err(Error::from).and_then(|sealer| {
            match Recorder::start_global(RecordProps::new(trace)) {
                Ok(recorder) => Ok((sealer, recorder)),
                Err(error) => {
                    sealer.leave();
                    Err(error.into())
                }
            }
        });
        match started {
            Ok((sealer, recorder)) => Ok(Self { reserved, run, recorder, sealer }),
            Err(error) => {
                match &reserved.membership {
                    Some(membership) => discard_rank(membership, run),
                    None => reserved.restore(),
                }
                Err(error)
            }
        }
    }

    /// Directory of the trace.
    pub fn trace(&self) -> &Path {
        &self.reserved.trace
    }

    /// Returns where to deliver what is recorded on other hosts.
    pub fn inbox(&self) -> Inbox {
        self.sealer.inbox()
    }

    /// Whether ranks of a job share the trace.
    pub(crate) fn is_of_job(&self) -> bool {
        self.reserved.membership.is_some()
    }

    /// Claims something of this host that one recorder is to watch where ranks of a job share the trace. Returns
    /// whether it is this one's; it is while `claims` is kept.
    pub(crate) fn claim(&self, what: &str, claims: &mut Vec<HeldFile>) -> bool {
        let Some(membership) = &self.reserved.membership else { return true };
        let claim = membership.claim(&format!("{}-{what}", host().unwrap_or_default()));
        let is_claimed = claim.is_some();
        claims.extend(claim);
        is_claimed
    }

    /// Discards the recording of a command that did not start.
    pub fn discard(self) {
        self.recorder.stop();
        let Some(membership) = &self.reserved.membership else {
            if self.reserved.is_new {
                // Not sealed: that takes memory, and lack of it may be why the command did not start.
                self.sealer.leave();
                remove_rings(&self.reserved.trace);
            } else {
                let _ = self.sealer.stop();
            }
            self.reserved.restore();
            return;
        };
        // Before its ring is removed, so that it is not sealed.
        self.sealer.leave();
        discard_rank(membership, self.run);
    }

    /// Completes the trace; none if other ranks of the job still record into it, the last of which will.
    ///
    /// # Errors
    /// If the trace cannot be completed.
    pub fn finish(self, outcome: &Outcome) -> Result<Option<Manifest>> {
        self.recorder.stop();
        if let Some(membership) = &self.reserved.membership {
            // Of two that are last one after the other, one sums up.
            if !membership.is_last() || membership.is_completed() {
                self.sealer.leave();
                return Ok(None);
            }
            let own = outcome.exit.map(Exit::code).map(i32::from);
            let end_ns = Anchor::now().utc_ns(outcome.began_ns.saturating_add(outcome.duration_ns));
            return complete_job(membership, self.sealer, own, end_ns).map(Some);
        }
        self.reserved.keep();
        let mut manifest = self.sealer.stop()?;
        manifest.run.exit_status = outcome.exit.map(Exit::code).map(i32::from);
        let anchor = anchor(&manifest).unwrap_or_else(Anchor::now);
        if self.reserved.is_new {
            manifest.run.start_ns = Some(anchor.utc_ns(outcome.began_ns));
        }
        manifest.run.end_ns = Some(anchor.utc_ns(outcome.began_ns.saturating_add(outcome.duration_ns)));
        manifest.save(&self.reserved.trace)?;
        Ok(Some(manifest))
    }
}

/// Completes the trace of a job as its last rank, whose exit code counts if none is recorded. Doing so again changes
/// nothing.
fn complete_job(
    membership: &Membership,
    sealer: SealerThread,
    own_code: Option<i32>,
    end_ns: i64,
) -> Result<Manifest> {
    let mut manifest = sealer.stop()?;
    manifest.run.exit_status = job::exit_code(&membership.trace).or(own_code);
    // The trace may have clocks of several hosts; this is ours.
    manifest.run.end_ns = manifest.run.end_ns.max(Some(end_ns));
    manifest.save(&membership.trace)?;
    membership.tidy();
    Ok(manifest)
}

/// Removes what a rank has in the trace of its job. If it is the last one, no other would complete what they recorded.
/// Removes the shared memory of a trace that is about to be deleted; links in the trace lead to it.
fn remove_rings(trace: &Path) {
    let entries = fs::read_dir(trace.join("segments")).into_iter().flatten().flatten();
    for ring in entries.filter_map(|entry| fs::read_link(entry.path()).ok()) {
        if ring.starts_with(floodmark_tail::SHARED_MEMORY) {
            let _ = fs::remove_file(ring);
        }
    }
}

fn discard_rank(membership: &Membership, run: Run) {
    membership.remove_own_tail();
    if membership.is_last() && !membership.remove_if_empty() {
        // Its command did not start, which is the error to report; the first reader seals what is left.
        let _ = SealerThread::share(&membership.trace, run)
            .map_err(Error::from)
            .and_then(|sealer| complete_job(membership, sealer, None, Anchor::now().utc_ns));
    }
}

/// Where the monotonic clock of this host stands in UTC for samples of this trace. Other nodes have clocks of their own.
pub fn anchor(manifest: &Manifest) -> Option<Anchor> {
    let boot = format!("{:032x}", u128::from_be_bytes(boot_id()));
    let clock = manifest.clocks.iter().find(|clock| clock.boot == boot)?;
    Some(Anchor { monotonic_ns: clock.monotonic_ns, utc_ns: clock.utc_ns })
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Name of this host.
pub fn host() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            exit: None,
            began_ns: floodmark_tail::clock::monotonic_ns(),
            duration_ns: 1,
            peaks: floodmark_sampler::Peaks::default(),
            processes: floodmark_sampler::ProcessCounts::default(),
            largest: Vec::new(),
            cost: floodmark_sampler::Cost::default(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_discarded_rank_that_is_last_completes_the_trace_and_touches_no_other_host() {
        let test = floodmark_testkit::TempDir::new("recording");
        let path = test.join("job.flood");
        let destination =
            |rank| JobDestination { job: "a".to_owned(), rank, name: JobTrace::New(path.clone()) };
        let start =
            |rank| Recording::start(&Destination::Job(destination(rank)), "app".to_owned(), None).unwrap();
        let other = destination(2).join().unwrap();
        let first = start(0);
        floodmark_tail::mark(floodmark_tail::intern("here"));
        assert!(first.finish(&outcome()).unwrap().is_none(), "another rank records");
        let segments = path.join("segments");
        let names = || -> Vec<String> {
            let entries = fs::read_dir(&segments).unwrap().map(|entry| entry.unwrap().file_name());
            entries.map(|name| name.into_string().unwrap()).collect()
        };
        // The first rank ran on another host, where it had the same PID in a namespace of the same number.
        for name in names().iter().filter(|name| name.contains('-')) {
            let (_, rest) = name.split_once('-').unwrap();
            fs::rename(segments.join(name), segments.join(format!("other_host-{rest}"))).unwrap();
            fs::write(segments.join(format!("other_host-{rest}.seen")), "").unwrap();
        }
        let second = start(1);
        drop(other);
        second.discard();
        let manifest = Manifest::load(&path).unwrap().expect("sealed");
        assert!(manifest.run.end_ns.is_some() && manifest.run.command.as_deref() == Some("app"));
        assert!(names().iter().any(|name| name.ends_with(".seen")), "{:?}", names());
        let is_left = |name: &String| name.ends_with(".rank") || name.ends_with(".ring");
        assert!(!names().iter().any(is_left), "the trace is complete: {:?}", names());
    }

    #[test]
    fn placeholders_are_filled_in_and_nothing_else_is() {
        let filled = |text: &str| filled_in(Path::new(text)).display().to_string();
        let rank = own_rank().unwrap_or(0);
        assert_eq!(filled("a/run-%r.flood"), format!("a/run-{rank}.flood"));
        assert_eq!(filled("%p%p"), format!("{0}{0}", std::process::id()));
        assert_eq!(filled("100%%r %x %é%"), "100%r %x %é%");
        assert!(!filled("%h").contains(['%', '/']));
        assert_eq!(filled("plain.flood"), "plain.flood");
    }

    #[test]
    fn names_of_traces_need_no_quoting() {
        assert_eq!(name_of("/usr/bin/python3.11"), "python3.11");
        assert_eq!(name_of("./my solver;rm"), "my_solver_rm");
        assert_eq!(name_of("../.."), "run");
        assert_eq!(name_of("-rf"), "rf");
        assert_eq!(name_of(""), "run");
        assert_eq!(name_of("\u{1b}[31mevil"), "_31mevil");
        assert_eq!(name_of(&"é".repeat(100)).len(), 60);
    }
}
