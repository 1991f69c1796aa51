//! Files that appear under their name only once they are complete.
//!
//! Until then they have another name beside it, which goes if anything fails. `-` is standard output.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use floodmark_event::units::format_bytes;
use floodmark_store::Error;
use floodmark_view::plain;

use crate::printer::Printer;

/// Whether files that are there already may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overwrite {
    /// They stay.
    No,
    /// They go.
    Yes,
}

impl Overwrite {
    /// What `--force` asks for.
    pub(crate) fn forced(force: bool) -> Self {
        if force { Self::Yes } else { Self::No }
    }
}

/// Refuses to replace a file that must stay.
pub(crate) fn refuse_existing(path: &Path, overwrite: Overwrite) -> Result<()> {
    if overwrite == Overwrite::No && !is_stdout(path) && path.exists() {
        return Err(Error::Exists { path: path.to_owned() }.into());
    }
    Ok(())
}

/// Whether a path stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes what is known as a whole, and says so.
pub(crate) fn write(path: &Path, bytes: &[u8], overwrite: Overwrite, printer: &Printer) -> Result<()> {
    fill(path, overwrite, |out| Ok(out.write_all(bytes)?))?;
    if !is_stdout(path) {
        let name = path.display().to_string();
        printer.say(&format!("wrote {} ({})", plain(&name), format_bytes(bytes.len() as u64)));
    }
    Ok(())
}

/// Has `content` fill a file, which appears when that is done; gives back what `content` gives.
pub(crate) fn fill<T>(
    path: &Path,
    overwrite: Overwrite,
    content: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    refuse_existing(path, overwrite)?;
    let place = || if is_stdout(path) { "standard output".into() } else { path.display().to_string() };
    if is_stdout(path) {
        let mut out = BufWriter::new(io::stdout().lock());
        let filled = content(&mut out)?;
        out.flush().context("writing to standard output")?;
        return Ok(filled);
    }
    let unfinished = Unfinished::beside(path);
    let written = || -> Result<T> {
        let mut out = BufWriter::new(File::create(&unfinished.0)?);
        let filled = content(&mut out)?;
        out.flush()?;
        drop(out);
        // Somebody else may have put a file there meanwhile.
        refuse_existing(path, overwrite)?;
        fs::rename(&unfinished.0, path)?;
        Ok(filled)
    };
    written().with_context(|| format!("writing {}", place()))
}

/// A file that goes unless it was given another name.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(path: &Path) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.unfinished", std::process::id()));
        Self(path.with_file_name(name))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Whatever failed before is what the user needs to know; and mostly it has its name already.
        let _ = fs::remove_file(&self.0);
    }
}
