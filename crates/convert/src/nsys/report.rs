//! Reports of Nsight Systems, which it alone can read: it is asked to make an export.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use floodmark_store::{Error, Result};

/// A database: a file of the user, or one of ours that goes with its last holder.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    path: PathBuf,
    _folder: Option<Arc<Folder>>,
}

impl Database {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A folder that is removed when its last owner is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns whether a file is a report, by its name: the format is not documented.
pub(crate) fn is_report(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "nsys-rep" || extension == "qdrep")
        && path.is_file()
}

/// The export at `path`, or one that `nsys` makes of the report there.
pub(crate) fn database(path: &Path) -> Result<Database> {
    if !is_report(path) {
        return Ok(Database { path: path.to_owned(), _folder: None });
    }
    let folder = Arc::new(scratch()?);
    let database = folder.0.join("report.sqlite");
    let mut command = Command::new("nsys");
    command.args(["export", "--type", "sqlite", "--force-overwrite", "true", "--output"]).arg(&database);
    // A name that begins with a dash is no option.
    let dotted = path.as_os_str().as_encoded_bytes().starts_with(b"-").then(|| Path::new(".").join(path));
    command.arg(dotted.as_deref().unwrap_or(path)).stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => unreadable(path, "nsys is not installed here or not on the PATH"),
        _ => unreadable(path, &format!("nsys cannot be run: {error}")),
    })?;
    if output.status.success() && database.is_file() {
        return Ok(Database { path: database, _folder: Some(folder) });
    }
    let said = [&output.stderr[..], &output.stdout[..]].concat();
    let line = said.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty());
    let said = line.map_or_else(|| output.status.to_string(), crate::quote::quoted);
    Err(unreadable(path, &format!("nsys export failed: {said}")))
}

fn unreadable(path: &Path, why: &str) -> Error {
    let mut export = OsString::from("nsys export --type sqlite ");
    export.push(path.file_name().unwrap_or_default());
    let reason = format!(
        "it is a report of Nsight Systems, which only nsys can read, and {why}; where nsys is installed run \
         '{}' and read the .sqlite file",
        export.to_string_lossy().escape_debug()
    );
    Error::Unrecognized { path: path.to_owned(), reason }
}

/// A private folder, which other users cannot read.
fn scratch() -> Result<Folder> {
    use std::os::unix::fs::DirBuilderExt as _;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("floodmark-nsys-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(Error::io("creating", &path))?;
    Ok(Folder(path))
}
