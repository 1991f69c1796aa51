//! Frames of Python.
use super::maps::Maps;
use super::names::NamedFrame;
use super::tracer::Copied;
use super::worker::Frames;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct PythonProcess;

#[derive(Debug, Default)]
pub(crate) struct PythonProcesses;
impl PythonProcesses {
    pub(crate) fn find(&mut self, _process: i32, _maps: &Maps) -> Option<PythonProcess> {
        None
    }
    pub(crate) fn names(&mut self, _process: i32, _threads: &[Copied]) -> Names {
        Names
    }
}

#[derive(Debug)]
pub(crate) struct RawFrame;

#[derive(Debug, Default)]
pub(crate) struct Names;

impl PythonProcess {
    pub(crate) fn frames(&self, _thread: i32, _frames: &mut Vec<RawFrame>) {}
}

pub(crate) fn merge(native: &[Arc<[Arc<NamedFrame>]>], _python: &[RawFrame], _names: &Names) -> Frames {
    native.iter().flat_map(|names| names.iter().cloned()).collect()
}
