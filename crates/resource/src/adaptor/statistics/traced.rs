//! Scopes of statistics as scopes of the recording.
//!
//! Scopes of a recording nest on each thread, whereas those of two adaptors may close in any order. A scope
//! that closes while one opened after it is still open leaves the recording when that one does.

use std::cell::RefCell;

use floodmark_tail as tail;

/// A scope that was entered in the recording.
struct TracedScope {
    /// Identifies the scope on its thread while it is open.
    key: usize,
    /// The scope to return to.
    outer: u32,
    /// Number of the recording that it was entered in.
    recording: u32,
    is_closed: bool,
}

thread_local! {
    /// The scopes that the thread entered, innermost last.
    static SCOPES: RefCell<Vec<TracedScope>> = const { RefCell::new(Vec::new()) };
}

/// Calls `with` with the calling thread's scopes, unless its thread-local values are being dropped.
fn scopes(with: impl FnOnce(&mut Vec<TracedScope>)) {
    // A thread that ends needs no scopes any more.
    let _ = SCOPES.try_with(|scopes| scopes.try_borrow_mut().map(|mut scopes| with(&mut scopes)));
}

/// Enters a scope on the calling thread, if the process records.
pub(super) fn enter(key: usize, name: &str) {
    let recording = tail::recording();
    if recording != 0 {
        let outer = tail::enter_scope(tail::intern(name));
        scopes(|scopes| scopes.push(TracedScope { key, outer, recording, is_closed: false }));
    }
}

/// Leaves the scope that was entered with `key`, if there is one; call it on the thread that entered it.
pub(super) fn exit(key: usize) {
    scopes(|scopes| {
        if let Some(scope) = scopes.iter_mut().rfind(|scope| scope.key == key) {
            scope.is_closed = true;
        }
        while let Some(scope) = scopes.pop_if(|scope| scope.is_closed) {
            if scope.recording == tail::recording() {
                tail::exit_scope(scope.outer);
            }
        }
    });
}
