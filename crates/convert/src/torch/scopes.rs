//! Annotations as scopes: which are open on a device at a time.
//!
//! Annotations tell neither thread nor number. An end closes the innermost open one of its name.

use floodmark_event::{ProcessId, ScopeAction};
use rustc_hash::FxHashMap;

/// A beginning or end, as a snapshot has it.
#[derive(Clone, Debug)]
pub(super) struct Annotation {
    pub(super) time_ns: i64,
    pub(super) device: i32,
    pub(super) is_end: bool,
    pub(super) name: String,
}

/// A scope is entered or left.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) time_ns: i64,
    pub(super) action: ScopeAction,
    pub(super) scope: u64,
    pub(super) parent: u64,
    /// Innermost scope from here on.
    pub(super) innermost: u64,
    pub(super) name: String,
}

/// All scopes of a snapshot.
#[derive(Debug)]
pub(super) struct Scopes {
    /// That of what was there before the traces begin.
    pub(super) before: u64,
    /// The scope that says that the program went on running.
    pub(super) live: u64,
    /// By device, in the order of time.
    pub(super) changes: FxHashMap<i32, Vec<Change>>,
    /// Those that were left out because too many were open.
    pub(super) omitted: u64,
}

impl Scopes {
    pub(super) fn new(mut annotations: Vec<Annotation>, process: ProcessId) -> Self {
        annotations.sort_by_key(|annotation| annotation.time_ns);
        let numbered = |own: u64| u64::from(process.0) << 32 | own;
        let mut changes: FxHashMap<i32, Vec<Change>> = FxHashMap::default();
        let mut open: FxHashMap<i32, Vec<(u64, String)>> = FxHashMap::default();
        let (mut count, mut omitted) = (1, 0);
        for Annotation { time_ns, device, is_end, name } in annotations {
            let open = open.entry(device).or_default();
            let innermost = |open: &[(u64, String)]| open.last().map_or(0, |(scope, _)| *scope);
            let parent = innermost(open);
            let change = if is_end {
                // One that began before recording did has no beginning here.
                let Some(at) = open.iter().rposition(|(_, own)| *own == name) else { continue };
                let (scope, _) = open.remove(at);
                let name = String::new();
                let innermost = innermost(open);
                Change { time_ns, action: ScopeAction::Exit, scope, parent: 0, innermost, name }
            } else if open.len() < OPEN_MAX {
                count += 1;
                let scope = numbered(count);
                open.push((scope, name.clone()));
                Change { time_ns, action: ScopeAction::Enter, scope, parent, innermost: scope, name }
            } else {
                omitted += 1;
                continue;
            };
            changes.entry(device).or_default().push(change);
        }
        Self { before: numbered(1), live: numbered(count + 1), changes, omitted }
    }

    /// Changes on a device.
    pub(super) fn on(&self, device: i32) -> &[Change] {
        self.changes.get(&device).map_or(&[], |changes| changes)
    }
}

/// More are not open at a time; ends are looked for among them.
const OPEN_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation(time_ns: i64, name: &str, is_end: bool) -> Annotation {
        Annotation { time_ns, device: 0, is_end, name: name.to_owned() }
    }

    #[test]
    fn ends_close_the_innermost_of_their_name() {
        let annotations = vec![
            annotation(1, "gone", true),
            annotation(2, "step", false),
            annotation(3, "step", false),
            annotation(4, "load", false),
            annotation(5, "step", true),
            annotation(6, "load", true),
        ];
        let scopes = Scopes::new(annotations, ProcessId(1));
        let of = |own: u64| (1 << 32) | own;
        let seen: Vec<_> =
            scopes.on(0).iter().map(|change| (change.time_ns, change.scope, change.innermost)).collect();
        assert_eq!(
            seen,
            [(2, of(2), of(2)), (3, of(3), of(3)), (4, of(4), of(4)), (5, of(3), of(4)), (6, of(4), of(2))]
        );
        assert!(scopes.on(1).is_empty() && scopes.omitted == 0);
        let many = (0..1500).map(|time_ns| annotation(time_ns, "step", false)).collect();
        let scopes = Scopes::new(many, ProcessId(1));
        assert_eq!((scopes.on(0).len(), scopes.omitted), (OPEN_MAX, 500));
    }
}
