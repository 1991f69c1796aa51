//! Locks on files that ranks of a job share, possibly from several hosts.
//!
//! File systems differ. Linux emulates `flock` on NFS by locks on byte ranges, which keep a shared lock when an exclusive
//! one cannot be had; some mounts of parallel file systems have no locks at all. Every use of a lock in a job therefore
//! goes through [`LockState`], which distinguishes a lock that another rank holds from one that cannot exist.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Outcome of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockState {
    /// The file is locked.
    Locked,
    /// Another process holds a lock that excludes this one.
    Busy,
    /// The file system has no locks.
    Unsupported,
}

impl From<Result<(), TryLockError>> for LockState {
    fn from(tried: Result<(), TryLockError>) -> Self {
        match tried {
            Ok(()) => Self::Locked,
            Err(TryLockError::WouldBlock) => Self::Busy,
            // The next attempt tells.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Self::Busy,
            Err(TryLockError::Error(_)) => Self::Unsupported,
        }
    }
}

/// A file that can be locked.
pub(crate) trait Lockable {
    fn try_shared(&self) -> LockState;
    fn try_exclusive(&self) -> LockState;
    fn release(&self);
}

impl Lockable for File {
    fn try_shared(&self) -> LockState {
        self.try_lock_shared().into()
    }

    fn try_exclusive(&self) -> LockState {
        self.try_lock().into()
    }

    fn release(&self) {
        let _ = self.unlock();
    }
}

/// Gives up a shared lock. Returns whether no other process has one; the lock is exclusive then.
///
/// Of processes that do this at once, the last one to give up its shared lock finds none. One that was faster may have
/// found none as well, and released the file since, so two may be last one after the other. Without locks all are.
pub(crate) fn is_last(lock: &impl Lockable) -> bool {
    // Not by an upgrade: on NFS one that fails keeps the shared lock, so two processes could each wait for the other.
    lock.release();
    lock.try_exclusive() != LockState::Busy
}

/// Repeats an attempt until the lock is not busy, for at most `patience`.
pub(crate) fn wait(patience: Duration, mut attempt: impl FnMut() -> LockState) -> LockState {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            LockState::Busy if Instant::now() < deadline => std::thread::sleep(POLL),
            state => return state,
        }
    }
}

/// A file that one process holds: locked, or created by it where there are no locks. A process that is killed loses the
/// lock, but leaves a file that it created.
#[derive(Debug)]
pub(crate) enum HeldFile {
    /// A locked file.
    Locked(File),
    /// A file that no other process could create.
    Created(PathBuf),
}

impl HeldFile {
    /// Holds the file at `path`, or one of a similar name; none if another process does for longer than `patience`.
    pub(crate) fn hold(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            match wait(patience, || file.try_exclusive()) {
                LockState::Busy => return Ok(None),
                LockState::Unsupported => return Self::create(path, patience),
                LockState::Locked => {}
            }
            // The process before us may have removed the file.
            let (held, there) = (file.metadata()?, fs::metadata(path));
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
                return Ok(Some(Self::Locked(file)));
            }
        }
    }

    /// Creates a file beside `path`; none if there is one for longer than `patience`.
    fn create(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let held = path.with_added_extension("held");
        let mut failed = None;
        let state = wait(patience, || match File::create_new(&held) {
            Ok(_) => LockState::Locked,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => LockState::Busy,
            Err(error) => {
                failed = Some(error);
                LockState::Unsupported
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok((state == LockState::Locked).then_some(Self::Created(held))),
        }
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        match self {
            Self::Locked(file) => file.release(),
            Self::Created(path) => {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// Locks as Linux emulates them on NFS: an upgrade that fails keeps the shared lock. Both ranks of a test try at the
    /// same time.
    struct NfsFile<'a> {
        /// Which of the two ranks have a shared lock, and which has the exclusive one.
        state: &'a Mutex<([bool; 2], Option<usize>)>,
        together: &'a Barrier,
        rank: usize,
    }

    impl Lockable for NfsFile<'_> {
        fn try_shared(&self) -> LockState {
            let mut state = self.state.lock().unwrap();
            if state.1.is_some() {
                return LockState::Busy;
            }
            state.0[self.rank] = true;
            LockState::Locked
        }

        fn try_exclusive(&self) -> LockState {
            self.together.wait();
            let mut state = self.state.lock().unwrap();
            let is_free = !state.0[1 - self.rank] && state.1.is_none();
            if is_free {
                *state = ([false; 2], Some(self.rank));
            }
            drop(state);
            self.together.wait();
            if is_free { LockState::Locked } else { LockState::Busy }
        }

        fn release(&self) {
            let mut state = self.state.lock().unwrap();
            state.0[self.rank] = false;
            state.1 = state.1.filter(|holder| *holder != self.rank);
        }
    }

    #[test]
    fn of_two_ranks_that_end_together_one_is_last_even_on_nfs() {
        let (state, together) = (Mutex::default(), Barrier::new(2));
        let ranks = [0, 1].map(|rank| NfsFile { state: &state, together: &together, rank });
        assert!(ranks.iter().all(|rank| rank.try_shared() == LockState::Locked));
        let last = std::thread::scope(|scope| {
            let ends = ranks.each_ref().map(|rank| scope.spawn(move || is_last(rank)));
            ends.map(|end| end.join().unwrap())
        });
        assert_eq!(last.iter().filter(|last| **last).count(), 1, "{last:?}");
    }

    #[test]
    fn a_lock_that_cannot_exist_is_not_waited_for() {
        let state =
            |error: i32| LockState::from(Err(TryLockError::Error(io::Error::from_raw_os_error(error))));
        for error in [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP] {
            assert_eq!(state(error), LockState::Unsupported, "{error}");
        }
        assert_eq!(state(libc::EINTR), LockState::Busy);
        assert_eq!(LockState::from(Err(TryLockError::WouldBlock)), LockState::Busy);
        let attempts = Cell::new(0);
        let count = |state| {
            attempts.set(attempts.get() + 1);
            state
        };
        assert_eq!(wait(Duration::from_hours(1), || count(LockState::Unsupported)), LockState::Unsupported);
        assert_eq!(attempts.get(), 1);
        assert_eq!(wait(Duration::ZERO, || count(LockState::Busy)), LockState::Busy);
    }

    #[test]
    fn one_process_holds_a_file_with_locks_and_without() {
        type Hold = fn(&Path, Duration) -> io::Result<Option<HeldFile>>;
        let test = floodmark_testkit::TempDir::new("lock");
        let path = test.join("x.claim");
        for hold in [HeldFile::hold as Hold, HeldFile::create] {
            let held = hold(&path, Duration::ZERO).unwrap().expect("free");
            assert!(hold(&path, Duration::ZERO).unwrap().is_none());
            drop(held);
            assert!(hold(&path, Duration::ZERO).unwrap().is_some(), "it was released");
        }
        HeldFile::create(&test.join("missing/x"), Duration::ZERO).unwrap_err();
    }
}
