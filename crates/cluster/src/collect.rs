//! Taking in spools that were left on nodes, or that lie in a shared directory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_store::{LocalTail, Manifest, ReceivedTail, Run, Sealer, TailItem, TailSource};
use floodmark_tail::record::Control;
use floodmark_tail::stream::StreamItem;

use crate::error::{Error, Result};
use crate::frames::{Damage, sound_frames};
use crate::spool::{Spool, spools};

/// Spools after which the trace is sealed: until then, each has two open files there.
const SEALED_TOGETHER: usize = 64;

/// What was taken in of one spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The spool's directory.
    pub spool: PathBuf,
    /// What it is about.
    pub about: String,
    /// Frames that were in it; those that the trace had already count too.
    pub items: u64,
    /// Whether its agent had finished it.
    pub is_complete: bool,
    /// Parts that are damaged, and are missing from the trace.
    pub damages: Vec<Damage>,
    /// Hosts whose times are as their own clocks had them, because their offsets to the trace's clock were never measured.
    pub unmeasured_clocks: Vec<String>,
}

/// Finds spools below directories: the directories themselves, or those in them. Without any, those of this user on this
/// host.
///
/// # Errors
/// If a directory cannot be read or has no spool.
pub fn find(directories: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let usual = [spools("")];
    let places = if directories.is_empty() { &usual[..] } else { directories };
    let is_spool = |path: &Path| !Spool::at(path).frames().is_empty() || path.join("node.flood").is_dir();
    let mut found = Vec::new();
    for place in places {
        if is_spool(place) {
            found.push(place.clone());
            continue;
        }
        let entries = fs::read_dir(place).map_err(Error::io(format!("reading {}", place.display())))?;
        let mut inner: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_spool(path)).collect();
        inner.sort();
        if inner.is_empty() {
            return Err(Error::refused(
                format!("{} has no spool", place.display()),
                "a spool is a directory with files 'frames-...'; the summary of a run names those of lost nodes",
            ));
        }
        found.extend(inner);
    }
    Ok(found)
}

/// Returns the one job that the spools belong to, and its spools: that of the trace, or `wanted`, if they are of several.
fn one_job(
    trace: &Path,
    directories: &[PathBuf],
    wanted: Option<&str>,
) -> Result<(Option<String>, Vec<PathBuf>)> {
    let mut jobs: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for directory in directories {
        jobs.entry(Spool::at(directory).job()).or_default().push(directory.clone());
    }
    let of_trace = Manifest::load(trace)?.map(|manifest| manifest.run.job);
    let chosen = match (&of_trace, wanted) {
        (Some(job), Some(wanted)) if job.as_deref() != Some(wanted) => {
            return Err(Error::refused(
                format!("{} is not the trace of job {wanted}", trace.display()),
                "name that trace, or one that is not there yet, with -o",
            ));
        }
        (Some(job), _) => job.clone().unwrap_or_default(),
        (None, Some(wanted)) => wanted.to_owned(),
        (None, None) if jobs.len() > 1 => {
            let names: Vec<&str> = jobs.keys().map(String::as_str).collect();
            return Err(Error::refused(
                format!("these are spools of {} jobs: {}", jobs.len(), names.join(", ")),
                "choose one with --job, each for a trace of its own",
            ));
        }
        (None, None) => jobs.keys().next().cloned().unwrap_or_default(),
    };
    let Some(found) = jobs.remove(&chosen) else {
        let names: Vec<&str> = jobs.keys().map(String::as_str).collect();
        let job = if chosen.is_empty() { "a job without nodes" } else { &chosen };
        return Err(Error::refused(
            format!("no spool is of job {job}; there are spools of {}", names.join(", ")),
            "name the trace of that job, or one that is not there yet, with -o",
        ));
    };
    Ok((Some(chosen).filter(|job| !job.is_empty()), found))
}

/// Takes the spools of one job into the trace at `trace`, which is made if it is not there. Spools of other jobs are left
/// alone.
///
/// # Errors
/// If the job is not clear, an agent still writes to one of its spools, or the trace cannot be written. Spools before
/// that one are in the trace.
pub fn collect(trace: &Path, directories: &[PathBuf], job: Option<&str>) -> Result<Vec<Collected>> {
    let (job, directories) = one_job(trace, directories, job)?;
    let mut sealer = Sealer::open(trace, Run { job, ..Run::default() })?;
    let (mut collected, mut stems_of) = (Vec::new(), Vec::new());
    for (number, directory) in directories.iter().enumerate() {
        let spool = Spool::at(directory);
        let Some(_lock) = spool.lock()? else {
            return Err(Error::refused(
                format!("an agent still writes to {}", directory.display()),
                "wait until the job has ended",
            ));
        };
        let mut stems = BTreeSet::new();
        let (mut items, damages) = take_frames(&mut sealer, &spool, &mut stems)?;
        // What an agent that was killed had not moved.
        if spool.trace().is_dir() {
            let mut tail = LocalTail::open(&spool.trace());
            tail.poll()?;
            let source = Renamed { source: tail, node: spool.node_name() };
            items += sealer.accept(&mut Noting { source, stems: &mut stems })?;
        }
        // The lock is ours, so no agent records there any more, on whichever host it was.
        sealer.accept(&mut Items(stems.iter().cloned().map(ended).collect()))?;
        stems_of.push(if spool.has_recorders_clock() { BTreeSet::new() } else { stems });
        if !damages.is_empty() {
            let name = directory.file_name().unwrap_or_default().to_string_lossy();
            // Once, however often the spool is collected.
            sealer.set_loss(damages.len() as u64, &format!("parts of the spool {name} are damaged"));
        }
        if number % SEALED_TOGETHER == SEALED_TOGETHER - 1 {
            // Closes the files of the processes that have ended.
            sealer.seal()?;
        }
        collected.push(Collected {
            spool: directory.clone(),
            about: spool.about(),
            items,
            is_complete: spool.is_complete(),
            damages,
            unmeasured_clocks: Vec::new(),
        });
    }
    sealer.finish()?;
    if let Some(manifest) = Manifest::load(trace)? {
        for (one, stems) in collected.iter_mut().zip(&stems_of) {
            one.unmeasured_clocks = unmeasured_clocks(&manifest, stems);
        }
    }
    Ok(collected)
}

/// Returns the hosts of these processes whose clocks have an offset of unknown error.
fn unmeasured_clocks(manifest: &Manifest, stems: &BTreeSet<Arc<str>>) -> Vec<String> {
    let is_unmeasured =
        |boot: &str| manifest.clocks.iter().any(|clock| clock.boot == boot && clock.error_ns.is_none());
    let found = manifest.processes.iter().filter(|one| stems.contains(one.stem.as_str()));
    let hosts: BTreeSet<&String> =
        found.filter(|one| is_unmeasured(&one.boot)).map(|one| &one.host).collect();
    hosts.into_iter().cloned().collect()
}

/// Takes in the frames of a spool that are sound; returns their number, and what is damaged.
fn take_frames(
    sealer: &mut Sealer,
    spool: &Spool,
    stems: &mut BTreeSet<Arc<str>>,
) -> Result<(u64, Vec<Damage>)> {
    let (mut items, mut damages) = (0, Vec::new());
    let files = spool.frames();
    for (number, (position, path)) in files.iter().enumerate() {
        let bytes = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
        // The last frame of an agent that was killed may be torn, and is in its tail then.
        let may_be_torn = number + 1 == files.len() && !spool.is_complete();
        let (pieces, found) = sound_frames(&bytes, may_be_torn);
        damages.extend(
            found.into_iter().map(|damage| Damage { position: position + damage.position, ..damage }),
        );
        let mut all = VecDeque::new();
        for piece in pieces {
            let mut source = ReceivedTail::new(&bytes[piece]);
            // Behind damage, frames whose process is not known are of no use; they are counted with it.
            loop {
                match source.next() {
                    Ok(Some(item)) => all.push_back(item),
                    Ok(None) => break,
                    Err(error) => return Err(Error::io(format!("reading {}", path.display()))(error)),
                }
            }
        }
        items += sealer.accept(&mut Noting { source: Items(all), stems })?;
    }
    Ok((items, damages))
}

fn ended(stem: Arc<str>) -> TailItem {
    TailItem { stem, item: StreamItem::Control(Control::Ended { time_ns: 0 }) }
}

/// Gives processes the name of their node, as the agent does when it moves them into the spool.
struct Renamed<S> {
    source: S,
    node: Option<String>,
}

impl<S: TailSource> TailSource for Renamed<S> {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        let mut item = self.source.next()?;
        if let Some(TailItem { item: StreamItem::Control(Control::Process(header)), .. }) = &mut item
            && let Some(node) = &self.node
        {
            header.host.clone_from(node);
        }
        Ok(item)
    }
}

/// Remembers the processes whose items come.
struct Noting<'a, S> {
    source: S,
    stems: &'a mut BTreeSet<Arc<str>>,
}

impl<S: TailSource> TailSource for Noting<'_, S> {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        let item = self.source.next()?;
        if let Some(TailItem { stem, .. }) = &item
            && !self.stems.contains(stem)
        {
            self.stems.insert(Arc::clone(stem));
        }
        Ok(item)
    }
}

/// Items that are there already.
struct Items(VecDeque<TailItem>);

impl TailSource for Items {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        Ok(self.0.pop_front())
    }
}
