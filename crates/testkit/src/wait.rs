//! Waiting in tests: every wait has a deadline and names what it waits for.
//!
//! A test must not sleep and hope. It waits for the condition it needs, and when the condition does not
//! come, it fails with a message instead of hanging until the test runner kills it without one.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Longest wait for one condition. The test runner kills a test after 60 s (`.config/nextest.toml`), so the
/// deadline has to pass before that.
pub const DEADLINE: Duration = Duration::from_secs(45);

/// Pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(2);

/// Waits until `holds` returns true.
///
/// # Panics
/// If it does not within [`DEADLINE`]; the message names `what`.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until `holds` returns true, which the program under test promises to happen within a time of its own; returns how
/// long it took.
///
/// # Panics
/// If it does not within `limit`; the message names `what`.
#[track_caller]
pub fn wait_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    let found = poll(limit, || holds().then(|| began.elapsed()));
    match found.filter(|took| *took <= limit) {
        Some(took) => took,
        None => panic!("waited {:?} for {what}, which has to come within {limit:?}", began.elapsed()),
    }
}

/// Waits until `find` returns a value, and returns it.
///
/// # Panics
/// If it does not within [`DEADLINE`]; the message names `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, find: impl FnMut() -> Option<T>) -> T {
    match poll(DEADLINE, find) {
        Some(found) => found,
        None => panic!("waited {DEADLINE:?} in vain for {what}"),
    }
}

/// Waits until a process ends. One that does not is killed.
///
/// # Panics
/// If it does not end within [`DEADLINE`]; the message names `what`.
#[track_caller]
pub fn wait_for_exit(child: &mut Child, what: &str) -> ExitStatus {
    if let Some(status) = poll(DEADLINE, || child.try_wait().expect("a child can be waited for")) {
        return status;
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("waited {DEADLINE:?} in vain for {what} to end");
}

fn poll<T>(deadline: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        let found = find();
        if found.is_some() || began.elapsed() >= deadline {
            return found;
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_comes_is_returned_and_one_that_does_not_come_is_given_up() {
        let mut checks = 0;
        let third = poll(DEADLINE, || {
            checks += 1;
            (checks == 3).then_some(checks)
        });
        assert_eq!(third, Some(3));
        assert_eq!(poll(Duration::from_millis(20), || None::<()>), None);
    }
}
