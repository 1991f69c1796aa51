//! A foreign file as a trace that exists as long as it is queried.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use floodmark_convert::OpenProps;
use floodmark_store::{Gap, Overwrite, is_trace};

use crate::error::{Error, Result};
use crate::import::{ImportProps, import};
use crate::input::Input;
use crate::progress::ProgressListener;

/// A trace, or a foreign file that was imported into a folder for temporary files.
pub struct Queried {
    /// What to query.
    pub input: Input,
    /// What is known to be missing of a foreign file.
    pub losses: Vec<Gap>,
    // Goes last.
    _folder: Option<Folder>,
}

impl Queried {
    /// Opens a trace, or imports a foreign file as `floodmark import` does.
    ///
    /// # Errors
    /// If the input cannot be read, or there is no space for the trace.
    pub fn open(path: &Path, open: &OpenProps, progress: &dyn ProgressListener) -> Result<Self> {
        if is_trace(path) {
            let input = Input::open(path, open)?;
            return Ok(Self { input, losses: Vec::new(), _folder: None });
        }
        let folder = Folder::create()?;
        let trace = folder.0.join("import.flood");
        let props = ImportProps { trace: trace.clone(), overwrite: Overwrite::No, open: open.clone() };
        let imported = import(&[path.to_owned()], &props, progress)?;
        Ok(Self { input: Input::open(&trace, open)?, losses: imported.losses, _folder: Some(folder) })
    }
}

impl std::fmt::Debug for Queried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queried").field("input", &self.input.name()).finish_non_exhaustive()
    }
}

/// A folder of this process alone, which goes when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("floodmark-sql-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(source) => {
                    return Err(Error::System { act: "making a folder for temporary files", source });
                }
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // There is nobody to tell, and the system empties its folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
