//! Reads from the environment what is to be recorded. The variables, the options and what the library leaves in the trace
//! are described in [`floodmark_tail::heap`], which the command uses too.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use floodmark_tail::gpu::{GPU_VARIABLE, GpuOptions};
use floodmark_tail::heap::{HEAP_VARIABLE, HeapOptions, TRACE_VARIABLE, UnknownOption};

/// What is to be recorded, and where to.
pub(crate) struct Config {
    pub(crate) trace: PathBuf,
    pub(crate) options: HeapOptions,
    pub(crate) unknown: Vec<UnknownOption>,
}

/// Reads what is to be recorded; none if this process is not.
pub(crate) fn read() -> Option<Config> {
    let environment = Environment::now();
    let trace = environment.variable(TRACE_VARIABLE).filter(|trace| !trace.is_empty())?;
    let heap = environment.variable(HEAP_VARIABLE)?;
    let (options, unknown) = HeapOptions::parse(&String::from_utf8_lossy(&heap));
    if !options.selects_program(&program_name()) {
        return None;
    }
    let trace = PathBuf::from(OsStr::from_bytes(&trace));
    Some(Config { trace, options, unknown })
}

/// What is to be recorded of CUDA memory, and where to.
pub(crate) struct GpuConfig {
    pub(crate) trace: PathBuf,
    pub(crate) options: GpuOptions,
    pub(crate) unknown: Vec<UnknownOption>,
}

/// Reads what is to be recorded of CUDA memory; none if nothing is.
pub(crate) fn read_gpu() -> Option<GpuConfig> {
    let environment = Environment::now();
    let trace = environment.variable(TRACE_VARIABLE).filter(|trace| !trace.is_empty())?;
    let (options, unknown) =
        GpuOptions::parse(&String::from_utf8_lossy(&environment.variable(GPU_VARIABLE)?));
    Some(GpuConfig { trace: PathBuf::from(OsStr::from_bytes(&trace)), options, unknown })
}

/// A variable of the environment of the program, as a path.
pub(crate) fn path_variable(name: &str) -> Option<PathBuf> {
    let value = Environment::now().variable(name).filter(|value| !value.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(&value)))
}

/// Where variables are read from.
enum Environment {
    /// The C library, as the program has them now. Rust's own functions would take a lock.
    Library,
    /// The kernel, as the program was started: the C library is not set up yet.
    Start(Vec<u8>),
}

impl Environment {
    fn now() -> Self {
        unsafe extern "C" {
            static environ: *const *const libc::c_char;
        }
        // SAFETY: a variable of the C library, which is null until the library is set up.
        if unsafe { environ }.is_null() {
            return Self::Start(std::fs::read("/proc/self/environ").unwrap_or_default());
        }
        Self::Library
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        match self {
            Self::Library => {
                let name: Vec<u8> = name.bytes().chain([0]).collect();
                // SAFETY: the name ends with a zero; the value is copied before anything can change it.
                unsafe {
                    let value = libc::getenv(name.as_ptr().cast());
                    (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
                }
            }
            Self::Start(variables) => variables.split(|byte| *byte == 0).find_map(|variable| {
                Some(variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec())
            }),
        }
    }
}

/// The name of the program's file, without its directory.
fn program_name() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
