//! The call tree: what was gained and released on each path of calls.
//!
//! Functions of Python's import system are left out: an import goes through five of them. What they gained counts for the
//! function that imports.

use std::cmp::Reverse;

use floodmark_event::Tables;

use super::answer::CallNode;
use super::list::function_of;
use super::{CallsFold, CallsOptions, Change, ROOT};

/// What files of the import system are called.
const IMPORTS: &str = "<frozen importlib";

/// A path as the tree has it.
#[derive(Clone, Debug, Default)]
struct Branch {
    is_left_out: bool,
    /// The path around it that is in the tree.
    parent: u32,
    depth: usize,
    own: Change,
    /// With all that is below.
    all: Change,
    /// Paths below it that gained.
    children: u64,
    listed: Vec<u32>,
}

impl CallsFold {
    /// Returns the paths that gained most, a call before those that it makes.
    pub(super) fn tree(&self, tables: &Tables, options: &CallsOptions) -> Vec<CallNode> {
        let mut branches = self.branches(tables);
        let gained = |branch: &Branch| branch.all.gained;
        let mut listed: Vec<u32> = (0..branches.len() as u32)
            .filter(|at| {
                let branch = &branches[*at as usize];
                !branch.is_left_out && gained(branch) > 0 && branch.depth < options.tree_depth
            })
            .collect();
        // What is around a path gained as much at least and comes before it, so it is listed, too.
        listed.sort_by_key(|at| (Reverse(gained(&branches[*at as usize])), *at));
        listed.truncate(options.tree_rows.unwrap_or(usize::MAX));
        let mut roots = Vec::new();
        for at in listed {
            match branches[at as usize].parent {
                ROOT => roots.push(at),
                parent => branches[parent as usize].listed.push(at),
            }
        }
        let (mut nodes, mut left) = (Vec::new(), roots);
        left.reverse();
        while let Some(at) = left.pop() {
            let (path, branch) = (&self.paths[at as usize], &branches[at as usize]);
            let named = self.named(path.code, tables);
            nodes.push(CallNode {
                depth: branch.depth as u64,
                function: named.function,
                file: named.file,
                line: named.line,
                calls: path.calls,
                own_gained_bytes: branch.own.gained,
                gained_bytes: branch.all.gained,
                released_bytes: branch.all.released,
                omitted: branch.children - branch.listed.len() as u64,
            });
            left.extend(branch.listed.iter().rev());
        }
        nodes
    }

    fn branches(&self, tables: &Tables) -> Vec<Branch> {
        let mut branches: Vec<Branch> = Vec::with_capacity(self.paths.len());
        // A path comes after the one around it.
        for path in &self.paths {
            let around = branches.get(path.parent as usize);
            let parent = match around {
                Some(branch) if branch.is_left_out => branch.parent,
                Some(_) => path.parent,
                None => ROOT,
            };
            let depth = branches.get(parent as usize).map_or(0, |branch| branch.depth + 1);
            let is_import = tables.string(tables.frame(function_of(path.code)).file).starts_with(IMPORTS);
            let branch = Branch { parent, depth, own: path.own, all: path.own, ..Branch::default() };
            branches.push(Branch { is_left_out: is_import && parent != ROOT, ..branch });
        }
        for at in (0..branches.len()).rev() {
            let Branch { is_left_out, parent, own, all, .. } = branches[at];
            if let Some(around) = branches.get_mut(parent as usize) {
                if is_left_out {
                    around.own.join(own);
                    around.all.join(own);
                } else {
                    around.all.join(all);
                    around.children += u64::from(all.gained > 0);
                }
            }
        }
        branches
    }
}
