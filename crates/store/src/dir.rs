//! Writing files so that a crash leaves the old one or the new one.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use crate::error::{Error, Result};
use crate::steps;

/// Replaces the file at `path` by one with `bytes`, durably.
///
/// # Errors
/// [`Error::Io`]; the file is then as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    steps::reach()?;
    let replaced = written.and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = replaced {
        let _ = fs::remove_file(&temporary);
        return Err(Error::io("writing", path)(error));
    }
    sync_parent(path);
    Ok(())
}

/// Makes a rename or removal in the directory of `path` durable.
///
/// A file system that cannot do this still keeps the order of what was renamed, so its refusal is
/// not an error.
pub(crate) fn sync_parent(path: &Path) {
    if let Some(parent) = path.parent() {
        let _ = File::open(parent).and_then(|directory| directory.sync_all());
    }
}
