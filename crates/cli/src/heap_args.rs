//! Options of the recording of heaps from inside.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use floodmark_event::units::parse_bytes;
use floodmark_record::{DEFAULT_SAMPLE_BYTES, HeapMode, HeapOptions, HeapProps, MAX_DEPTH};

use crate::env::{EnvVars, value};

/// What to record of heaps.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Heap")]
pub(crate) struct HeapArgs {
    /// Record malloc, free and their like of all processes from inside, with stacks: all of them, a sample of about one
    /// in so many bytes (sample:512KiB), or all with the small objects of Python (python)
    ///
    /// Preloads a library into the command, so that it has to be linked dynamically with glibc. Programs that cannot be
    /// recorded run as they would otherwise, and the summary names them
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) heap: Option<HeapChoice>,
    /// Record allocations without their stacks
    #[arg(long, requires = "heap", alias = "no-stacks")]
    no_heap_stacks: bool,
    /// Maximum number of frames of a stack, counted from the innermost one [default: 256]
    #[arg(long, value_name = "FRAMES", requires = "heap", conflicts_with = "no_heap_stacks",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)))]
    heap_depth: Option<u32>,
    /// Record only allocations of at least this size
    #[arg(long, value_name = "SIZE", requires = "heap", value_parser = parse_bytes)]
    heap_min: Option<u64>,
    /// Record only programs with this name; repeatable
    #[arg(long, value_name = "PROGRAM", requires = "heap", value_parser = parse_program)]
    heap_include: Vec<String>,
    /// Do not record programs with this name; repeatable
    #[arg(long, value_name = "PROGRAM", requires = "heap", value_parser = parse_program)]
    heap_exclude: Vec<String>,
    /// File of the library to preload, in place of the embedded one [env: `FLOODMARK_HEAP_LIBRARY`]
    #[arg(long, value_name = "FILE", requires = "heap")]
    heap_library: Option<PathBuf>,
}

/// Which allocations to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapChoice(HeapMode);

impl FromStr for HeapChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = match text.split_once(':') {
            None if text == "all" => HeapMode::All,
            None if text == "python" => HeapMode::Python,
            None if text == "sample" => HeapMode::Sample(DEFAULT_SAMPLE_BYTES),
            Some(("sample", bytes)) => match parse_bytes(bytes)? {
                0 => return Err("a sample needs at least one byte".into()),
                bytes => HeapMode::Sample(bytes),
            },
            _ => return Err("it is one of all, sample, sample:512KiB and python".into()),
        };
        Ok(Self(mode))
    }
}

/// Checks the name of a program: a list of them, separated by commas, goes through the environment.
fn parse_program(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([',', '/']) {
        return Err("write the name of a program, without its directory".into());
    }
    Ok(text.to_owned())
}

impl HeapArgs {
    /// What to record, if anything.
    pub(crate) fn props(&self) -> Option<HeapProps> {
        let HeapChoice(mode) = self.heap?;
        let options = HeapOptions {
            mode,
            stacks: !self.no_heap_stacks,
            depth: self.heap_depth.unwrap_or(MAX_DEPTH),
            min_bytes: self.heap_min.unwrap_or(0),
            only: self.heap_include.clone(),
            not: self.heap_exclude.clone(),
            ..HeapOptions::default()
        };
        let library = self.heap_library.clone().or_else(|| value(EnvVars::HEAP_LIBRARY).map(PathBuf::from));
        Some(HeapProps { options, library })
    }
}
