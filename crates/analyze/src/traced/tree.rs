//! The call tree: what was gained and released on each path of calls.

use std::cmp::Reverse;

use floodmark_event::Tables;

use super::answer::CallNode;
use super::{CallsFold, CallsOptions, Change, ROOT};

/// Paths with less than this part of all that was gained are left out, unless everything is listed.
const LEAST_PART: u64 = 200;

/// What happened on a path and below.
#[derive(Clone, Debug, Default)]
struct Below {
    change: Change,
    children: Vec<u32>,
}

impl CallsFold {
    /// Returns the call tree, a call before those that it makes.
    pub(super) fn tree(&self, tables: &Tables, options: &CallsOptions) -> Vec<CallNode> {
        let mut below: Vec<Below> =
            self.paths.iter().map(|path| Below { change: path.own, children: Vec::new() }).collect();
        let mut roots = Vec::new();
        // A path comes after the one around it.
        for (at, path) in self.paths.iter().enumerate().rev() {
            let Below { change, .. } = below[at];
            match below.get_mut(path.parent as usize).filter(|_| path.parent != ROOT) {
                Some(parent) => {
                    parent.change.gained += change.gained;
                    parent.change.released += change.released;
                    parent.children.push(at as u32);
                }
                None => roots.push(at as u32),
            }
        }
        let all: u64 = roots.iter().map(|root| below[*root as usize].change.gained).sum();
        let least = options.limit.map_or(0, |_| all / LEAST_PART).max(1);
        let shown = |mut list: Vec<u32>| {
            list.sort_by_key(|at| (Reverse(below[*at as usize].change.gained), *at));
            list.retain(|at| below[*at as usize].change.gained >= least);
            list.truncate(options.limit.unwrap_or(usize::MAX));
            list
        };
        let (mut nodes, mut left) = (Vec::new(), Vec::new());
        left.extend(shown(roots).into_iter().rev().map(|root| (root, 0)));
        while let Some((at, depth)) = left.pop() {
            let (path, below) = (&self.paths[at as usize], &below[at as usize]);
            let children =
                if depth + 1 < options.tree_depth { shown(below.children.clone()) } else { Vec::new() };
            let named = self.named(path.code, tables);
            nodes.push(CallNode {
                depth: depth as u64,
                function: named.function,
                file: named.file,
                line: named.line,
                calls: path.calls,
                own_gained_bytes: path.own.gained,
                gained_bytes: below.change.gained,
                released_bytes: below.change.released,
                omitted: (below.children.len() - children.len()) as u64,
            });
            left.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
        }
        nodes
    }
}
