//! Child processes of this process that do not belong to a command that it watches.
//!
//! A watch adopts and reaps orphans of its command, which are children of this process like any other. Children
//! that other code starts while a watch goes on are therefore registered here, under a lock that a watch takes before it
//! decides about a child.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

static PIDS: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

fn pids() -> MutexGuard<'static, Option<HashSet<i32>>> {
    PIDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a child was started by [`spawn_unwatched`].
pub(crate) fn is_unwatched(pid: i32) -> bool {
    pids().as_ref().is_some_and(|pids| pids.contains(&pid))
}

/// A child process that no watch of this process takes for one of its command's, or reaps.
#[derive(Debug)]
pub struct Unwatched {
    child: Child,
}

/// Starts a process that a watch leaves alone.
///
/// # Errors
/// If it cannot be started.
pub fn spawn_unwatched(command: &mut Command) -> io::Result<Unwatched> {
    let mut pids = pids();
    let child = command.spawn()?;
    pids.get_or_insert_default().insert(child.id() as i32);
    Ok(Unwatched { child })
}

impl Unwatched {
    /// Returns the child, to talk to it; it must not be waited for through this.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns its exit status if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        pids().get_or_insert_default().remove(&(self.child.id() as i32));
        Some(status)
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        // It fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        pids().get_or_insert_default().remove(&(self.child.id() as i32));
    }
}

impl Drop for Unwatched {
    fn drop(&mut self) {
        if self.try_wait().is_none() {
            self.kill();
        }
    }
}
