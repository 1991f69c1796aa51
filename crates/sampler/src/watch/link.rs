//! The connection to the command: signals and the terminal.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};

use crate::launch::Group;
use crate::sys::signal::{self, Arrived, Sender};
use crate::sys::terminal::{self, Raw};

/// The connection to the command.
pub(super) struct Link<'a> {
    pub(super) root: i32,
    pub(super) group: Group,
    pub(super) terminal: Option<&'a OwnedFd>,
    pub(super) raw: Option<&'a Raw>,
}

impl Link<'_> {
    /// Forwards a signal unless the command has received it already.
    pub(super) fn forward(&self, arrived: Arrived) {
        if arrived.sender == Sender::Process || self.group == Group::Other {
            signal::send(self.root, arrived.number);
        }
    }

    /// Copies the new size of our terminal to the command's.
    pub(super) fn resized(&self) {
        if let Some(terminal) = self.terminal {
            let (input, output) = (io::stdin(), io::stdout());
            let ours = if output.is_terminal() { output.as_fd() } else { input.as_fd() };
            terminal::copy_size(ours, terminal.as_fd());
        }
    }

    /// Restores raw mode after we were stopped, because another program may have changed it.
    pub(super) fn continued(&self) {
        if let Some(raw) = self.raw {
            raw.again();
        }
    }
}

pub(super) fn enter_raw_mode() -> Option<Raw> {
    let input = io::stdin();
    input.is_terminal().then(|| Raw::enter(input.as_fd()).ok()).flatten()
}
