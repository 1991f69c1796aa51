//! Files that appear under their name only once they are complete.
//!
//! Until then they have another name beside it, which goes if anything fails. `-` is standard output. What is
//! there already and is no file, such as `/dev/null` or a pipe, is written to and never replaced.

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
    if overwrite == Overwrite::No && !is_standard(path) && path.exists() && !is_special(path) {
        return Err(Error::Exists { path: path.to_owned() }.into());
    }
    Ok(())
}

/// Whether a path stands for standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes what is known as a whole, and says so.
pub(crate) fn write(path: &Path, bytes: &[u8], overwrite: Overwrite, printer: &Printer) -> Result<()> {
    fill(path, overwrite, |out| Ok(out.write_all(bytes)?))?;
    say_written(path, &format_bytes(bytes.len() as u64), printer);
    Ok(())
}

/// Says that a file was written, and what it is like.
pub(crate) fn say_written(path: &Path, like: &str, printer: &Printer) {
    if !is_standard(path) {
        printer.say(&format!("wrote {} ({like})", plain(&path.display().to_string())));
    }
}

/// Has `content` fill a file, which appears when that is done; gives back what `content` gives.
pub(crate) fn fill<T>(
    path: &Path,
    overwrite: Overwrite,
    content: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let place = || if is_standard(path) { "standard output".into() } else { path.display().to_string() };
    if is_standard(path) {
        let mut out = BufWriter::new(io::stdout().lock());
        let filled = content(&mut out)?;
        out.flush().context("writing to standard output")?;
        return Ok(filled);
    }
    let filled = match target(path) {
        Target::Other => {
            File::options().write(true).open(path).map_err(anyhow::Error::from).and_then(|file| {
                let mut out = BufWriter::new(file);
                let filled = content(&mut out)?;
                out.flush()?;
                Ok(filled)
            })
        }
        Target::File(file) => {
            refuse_existing(path, overwrite)?;
            replace(&file, overwrite, content)
        }
    };
    filled.with_context(|| format!("writing {}", place()))
}

fn replace<T>(
    path: &Path,
    overwrite: Overwrite,
    content: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let unfinished = Unfinished::beside(path, "");
    let mut out = BufWriter::new(File::create(unfinished.path())?);
    let filled = content(&mut out)?;
    out.flush()?;
    drop(out);
    unfinished.finish(path, overwrite)?;
    Ok(filled)
}

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A file, or nothing yet; behind links, if any.
    File(PathBuf),
    /// A device, a pipe.
    Other,
}

fn target(path: &Path) -> Target {
    match fs::metadata(path) {
        Ok(known) if !known.is_file() && !known.is_dir() => Target::Other,
        Ok(_) => Target::File(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        Err(_) => Target::File(path.to_owned()),
    }
}

/// Whether something is there that is neither file nor folder.
pub(crate) fn is_special(path: &Path) -> bool {
    target(path) == Target::Other
}

/// The name of a file that goes unless it is given another one.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// A name beside that of `path`; `tag` tells several apart.
    pub(crate) fn beside(path: &Path, tag: &str) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!("{tag}.{}.unfinished", std::process::id()));
        Self(path.with_file_name(name))
    }

    /// Where the file is until it is finished.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Gives the file its name.
    pub(crate) fn finish(self, path: &Path, overwrite: Overwrite) -> Result<()> {
        // Another process may have created a file there meanwhile.
        refuse_existing(path, overwrite)?;
        Ok(fs::rename(&self.0, path).map_err(Error::io("creating", path))?)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Whatever failed before is what the user needs to know; and mostly it has its name already.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_no_files_and_links_lead_to_files() {
        assert_eq!(target(Path::new("/dev/null")), Target::Other);
        let missing = Path::new("no such file");
        assert_eq!(target(missing), Target::File(missing.to_owned()));
        assert!(!is_special(Path::new("/")), "a folder cannot be written to, and the error says so");
    }
}
