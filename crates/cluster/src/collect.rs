//! Taking in spools that were left on nodes, or that lie in a shared directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_store::{LocalTail, ReceivedTail, Run, Sealer, TailItem, TailSource};
use floodmark_tail::record::Control;
use floodmark_tail::stream::StreamItem;

use crate::error::{Error, Result};
use crate::spool::{Spool, spools};

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
}

/// Finds spools below directories: the directories themselves, or those in them. Without any, those of this user on this
/// host.
///
/// # Errors
/// If a directory cannot be read or has no spool.
pub fn find(directories: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let usual = [spools("")];
    let places = if directories.is_empty() { &usual[..] } else { directories };
    let is_spool = |path: &Path| path.join("frames").is_file() || path.join("node.flood").is_dir();
    let mut found = Vec::new();
    for place in places {
        if is_spool(place) {
            found.push(place.clone());
            continue;
        }
        let entries = std::fs::read_dir(place).map_err(Error::io(format!("reading {}", place.display())))?;
        let mut inner: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_spool(path)).collect();
        inner.sort();
        if inner.is_empty() {
            return Err(Error::refused(
                format!("{} has no spool", place.display()),
                "a spool is a directory with a file 'frames'; the summary of a run names those of lost nodes",
            ));
        }
        found.extend(inner);
    }
    Ok(found)
}

/// Takes spools into the trace at `trace`, which is made if it is not there.
///
/// # Errors
/// If an agent still writes to one of them, or the trace cannot be written. Spools before that one are in the trace.
pub fn collect(trace: &Path, directories: &[PathBuf]) -> Result<Vec<Collected>> {
    let mut sealer = Sealer::open(trace, Run::default())?;
    let mut collected = Vec::new();
    for directory in directories {
        let spool = Spool::at(directory);
        let Some(_lock) = spool.lock()? else {
            return Err(Error::refused(
                format!("an agent still writes to {}", directory.display()),
                "wait until the job has ended",
            ));
        };
        let (mut items, mut stems) = (0, BTreeSet::new());
        if spool.frames().is_file() {
            let path = spool.frames();
            let file = File::open(&path).map_err(Error::io(format!("reading {}", path.display())))?;
            let mut source =
                UntilDamage { source: ReceivedTail::new(BufReader::new(file)), stems: &mut stems };
            items += sealer.accept(&mut source)?;
        }
        // What an agent that was killed had not moved.
        if spool.trace().is_dir() {
            let mut tail = LocalTail::open(&spool.trace());
            tail.poll()?;
            items += sealer.accept(&mut UntilDamage { source: tail, stems: &mut stems })?;
        }
        // The lock is ours, so no agent records there any more, on whichever host it was.
        sealer.accept(&mut Ends(stems.into_iter()))?;
        collected.push(Collected {
            spool: directory.clone(),
            about: spool.about(),
            items,
            is_complete: spool.is_complete(),
        });
    }
    sealer.finish()?;
    Ok(collected)
}

/// Ends at the first damage: the last frame of an agent that was killed may be torn, and is in its tail then. Remembers
/// the processes.
struct UntilDamage<'a, S> {
    source: S,
    stems: &'a mut BTreeSet<Arc<str>>,
}

impl<S: TailSource> TailSource for UntilDamage<'_, S> {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        let item = self.source.next().unwrap_or(None);
        if let Some(TailItem { stem, .. }) = &item
            && !self.stems.contains(stem)
        {
            self.stems.insert(Arc::clone(stem));
        }
        Ok(item)
    }
}

/// Says of processes that they record no more.
struct Ends(std::collections::btree_set::IntoIter<Arc<str>>);

impl TailSource for Ends {
    fn next(&mut self) -> io::Result<Option<TailItem>> {
        let item = StreamItem::Control(Control::Ended { time_ns: 0 });
        Ok(self.0.next().map(|stem| TailItem { stem, item }))
    }
}
