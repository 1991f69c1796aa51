//! Recording the CUDA memory of a command from inside: what the driver, NVTX and the loader of programs are told.
//!
//! What is said to the library, and what it leaves in the trace, is in [`floodmark_tail::gpu`].

use std::ffi::OsString;
use std::path::PathBuf;

use floodmark_sampler::Launch;
use floodmark_tail::gpu::{CUDA_INJECTION_VARIABLE, GPU_VARIABLE, GpuOptions, NVTX_INJECTION_VARIABLE};

use crate::error::{Error, Result};
use crate::heap::{HeapCapture, LibraryFile, preload};

/// How to record CUDA memory.
#[derive(Clone, Debug, Default)]
pub struct GpuProps {
    /// What is recorded, and how.
    pub options: GpuOptions,
    /// File of the library to load instead of the embedded one.
    pub library: Option<PathBuf>,
}

/// The recording of the CUDA memory of a command.
#[derive(Debug)]
pub(crate) struct GpuCapture {
    options: GpuOptions,
    path: PathBuf,
    /// The library, unless the recording of heaps has it.
    library: Option<LibraryFile>,
    /// Another library that gets the ranges of NVTX.
    nvtx: Option<OsString>,
}

impl GpuCapture {
    /// Provides the library. Where heaps are recorded too it is the same one, so that a process has one recorder.
    pub(crate) fn prepare(props: GpuProps, heap: Option<&HeapCapture>) -> Result<Self> {
        let GpuProps { mut options, library } = props;
        options.next = named_before(CUDA_INJECTION_VARIABLE).map(|path| in_options(&path)).transpose()?;
        options.cupti = options
            .cupti
            .map(|path| {
                let found = std::path::absolute(&path).and_then(|file| file.metadata().map(|_| file));
                let found = found.map_err(|source| Error::Io { act: format!("opening {path}"), source })?;
                in_options(found.as_os_str())
            })
            .transpose()?;
        let library = match heap {
            Some(_) => None,
            None => Some(LibraryFile::open(library.as_deref())?),
        };
        let path = match (heap, &library) {
            (Some(heap), _) => heap.library_path().to_owned(),
            (None, Some(library)) => library.path().to_owned(),
            (None, None) => PathBuf::new(),
        };
        Ok(Self { options, path, library, nvtx: named_before(NVTX_INJECTION_VARIABLE) })
    }

    /// Adds what makes the library record to the environment of a command.
    pub(crate) fn add_to(&self, launch: &mut Launch) {
        launch.environment.push((GPU_VARIABLE.into(), self.options.to_string().into()));
        launch.environment.push((CUDA_INJECTION_VARIABLE.into(), self.path.clone().into()));
        if self.nvtx.is_none() {
            launch.environment.push((NVTX_INJECTION_VARIABLE.into(), self.path.clone().into()));
        }
        // The recording of heaps has it preloaded already.
        if self.library.is_some() {
            preload(&self.path, launch);
        }
    }

    /// Ends the recording; processes that are still running keep the library.
    pub(crate) fn finish(self, are_processes_left: bool) -> GpuReport {
        if are_processes_left && let Some(library) = self.library {
            library.leave();
        }
        GpuReport { nvtx: self.nvtx.map(|path| path.to_string_lossy().into_owned()) }
    }
}

/// What a variable of our own environment names, which the recording would replace.
fn named_before(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|path| !path.is_empty())
}

/// A path as it stands in a list of options.
fn in_options(path: &std::ffi::OsStr) -> Result<String> {
    match path.to_str() {
        Some(path) if !path.contains(',') => Ok(path.to_owned()),
        _ => Err(Error::refused(
            format!("{} cannot be passed on to the command", path.display()),
            "use a path without commas",
        )),
    }
}

/// What is known of the recording of CUDA memory beside what the trace has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuReport {
    nvtx: Option<String>,
}

impl GpuReport {
    /// What a user should know that the trace does not tell.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> + '_ {
        let ranges = |path: &String| {
            format!("ranges of NVTX are not recorded: {NVTX_INJECTION_VARIABLE} named {path}, which has them")
        };
        self.nvtx.iter().map(ranges)
    }
}
