//! Debuggers.
use super::{StackReport, StackTarget, TakenStack};
use crate::error::Result;
use floodmark_event::StackReason;
/// A debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The GNU debugger.
    Gdb,
}
#[derive(Debug)]
pub(crate) struct Helper;
impl Helper {
    pub(crate) fn start(_tool: Tool) -> Result<Self> {
        Ok(Self)
    }
    pub(crate) fn take(
        &mut self,
        _target: StackTarget,
        _at_ns: u64,
        _reason: StackReason,
        _report: &mut StackReport,
    ) -> Vec<TakenStack> {
        vec![]
    }
}
