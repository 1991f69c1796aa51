//! Taking in spools that were left on nodes, or that lie in a shared directory.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use floodmark_store::{LocalTail, ReceivedTail, Run, Sealer, TailItem, TailSource};

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
        let mut items = 0;
        if spool.frames().is_file() {
            let path = spool.frames();
            let file = File::open(&path).map_err(Error::io(format!("reading {}", path.display())))?;
            let mut source = UntilDamage(ReceivedTail::new(BufReader::new(file)));
            items += sealer.accept(&mut source)?;
        }
        // What an agent that was killed had not moved.
        if spool.trace().is_dir() {
            let mut tail = LocalTail::open(&spool.trace());
            tail.poll()?;
            items += sealer.accept(&mut tail)?;
        }
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

/// Ends at the first damage: the last frame of an agent that was killed may be torn, and is in its tail then.
struct UntilDamage<S>(S);

impl<S: TailSource> TailSource for UntilDamage<S> {
    fn next(&mut self) -> std::io::Result<Option<TailItem>> {
        Ok(self.0.next().unwrap_or(None))
    }
}
