//! What the exit code of the command says.

use std::process::ExitCode;

use floodmark_sampler::Exit;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It did what it was asked to.
    Success,
    /// It worked, and the answer is bad: a rule is broken.
    Broken,
    /// It did not work.
    Failure,
    /// Another program was run, and ended like this.
    External(Exit),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Broken => 1,
            ExitStatus::Failure => 2,
            ExitStatus::External(exit) => exit.code(),
        })
    }
}
