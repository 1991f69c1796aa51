//! What the scope of a block or of its free says about it.
//!
//! Events carry the number of their innermost scope; its name is in another table. The caller of a fold
//! reads that table first and adds the scopes whose names mean something.

use floodmark_event::{BEFORE_CAPTURE, CONTEXT_TEARDOWN, LIVE_SNAPSHOT};
use rustc_hash::{FxHashMap, FxHashSet};

/// The scopes whose names say how blocks began or ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRoles {
    before_capture: FxHashSet<u64>,
    teardown: FxHashSet<u64>,
    is_live_snapshot: bool,
}

impl ScopeRoles {
    /// Remembers a scope if its name says something.
    pub fn add(&mut self, scope: u64, name: &str) {
        match name {
            BEFORE_CAPTURE => self.before_capture.insert(scope),
            CONTEXT_TEARDOWN => self.teardown.insert(scope),
            LIVE_SNAPSHOT => std::mem::replace(&mut self.is_live_snapshot, true),
            _ => false,
        };
    }

    /// Takes in the scopes of another part.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.before_capture.extend(&other.before_capture);
        self.teardown.extend(&other.teardown);
        self.is_live_snapshot |= other.is_live_snapshot;
    }

    /// The scopes of blocks that were live before recording began.
    pub(crate) fn before_capture(&self) -> impl Iterator<Item = u64> {
        self.before_capture.iter().copied()
    }

    /// Whether blocks allocated in this scope were live before recording began.
    pub fn is_before_capture(&self, scope: u64) -> bool {
        self.before_capture.contains(&scope)
    }

    /// Whether the events end with a snapshot of a program that went on running.
    pub fn is_live_snapshot(&self) -> bool {
        self.is_live_snapshot
    }

    /// Whether blocks freed in this scope ended with their context.
    #[inline]
    pub fn is_teardown(&self, scope: u64) -> bool {
        !self.teardown.is_empty() && self.teardown.contains(&scope)
    }
}

/// Names of a path; scopes that are deeper count as the one around them.
const MOST_DEEP: u32 = 64;

/// Scopes by the names that lead to them, so that the thousandth turn of a loop is the same as the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopePaths {
    /// Path of each scope, as an index plus one; 0 is no scope.
    paths: FxHashMap<u64, u32>,
    /// The path around each, and its innermost name.
    names: Vec<(u32, String)>,
    /// How many names each has.
    depths: Vec<u32>,
    known: FxHashMap<(u32, String), u32>,
}

impl ScopePaths {
    /// Remembers a scope that was entered inside another, which was entered before; 0 is none.
    pub fn add(&mut self, scope: u64, parent: u64, name: &str) {
        let around = self.path(parent);
        let depth = around.checked_sub(1).map_or(1, |at| self.depths[at as usize] + 1);
        if depth > MOST_DEEP {
            self.paths.insert(scope, around);
            return;
        }
        let (names, depths) = (&mut self.names, &mut self.depths);
        let path = *self.known.entry((around, name.to_owned())).or_insert_with_key(|key| {
            names.push(key.clone());
            depths.push(depth);
            names.len() as u32
        });
        self.paths.insert(scope, path);
    }

    /// Whether no scope was entered.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The path of a scope; 0 if nothing is known of it.
    pub(crate) fn path(&self, scope: u64) -> u32 {
        if scope == 0 { 0 } else { self.paths.get(&scope).copied().unwrap_or(0) }
    }

    /// Names of a path, outermost first.
    pub(crate) fn names(&self, mut path: u32) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((around, name)) = path.checked_sub(1).and_then(|at| self.names.get(at as usize)) {
            names.push(name.clone());
            path = *around;
        }
        names.reverse();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_loop_have_one_path() {
        let mut paths = ScopePaths::default();
        paths.add(1, 0, "epoch");
        paths.add(2, 1, "step");
        paths.add(3, 1, "step");
        paths.add(4, 0, "step");
        assert_eq!(paths.path(2), paths.path(3));
        assert_ne!(paths.path(2), paths.path(4));
        assert_eq!(paths.names(paths.path(3)), ["epoch", "step"]);
        for scope in 5..200 {
            paths.add(scope, scope - 1, "deeper");
        }
        assert_eq!(paths.names(paths.path(199)).len(), 64);
        assert_eq!((paths.path(0), paths.path(999), paths.names(0).len()), (0, 0, 0));
    }
}
