//! Names for frames that were recorded as addresses in modules.

use std::fmt;

use floodmark_event::tables::Process;

/// The module of a frame, as its process had loaded it.
#[derive(Clone, Copy, Debug)]
pub struct RecordedModule<'a> {
    /// The process that recorded the frame.
    pub process: &'a Process,
    /// Path of the module's file.
    pub path: &'a str,
    /// Build id of the file, in hexadecimal; none if it has none or was not recorded.
    pub build_id: Option<&'a str>,
}

/// A function that a frame stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameName {
    /// Demangled name of the function.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line in the source file; 0 if unknown.
    pub line: u32,
    /// Whether it serves whatever calls it, as functions of a standard library do.
    pub is_helper: bool,
}

/// What is known of a frame that was recorded as an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameNames {
    /// Its functions, innermost first: several if functions were inlined, none if the frame is to be left out
    /// of stacks.
    Known(Vec<FrameName>),
    /// A function of the recorder, which is left out of stacks together with helpers that it calls.
    Recorder,
    /// The module's file has no name for the address.
    Unknown,
    /// The module's file cannot be used, for this reason, which completes "frames in MODULE have no names: ...".
    Unavailable(String),
}

/// Finds names for the frames of a trace while its tables are read.
pub trait NameFrames: fmt::Debug + Send + Sync {
    /// Returns the functions at an address of a module.
    fn names(&self, module: &RecordedModule<'_>, address: u64) -> FrameNames;
}
