//! A tree of steps with sums: what flame graphs and their differences are made of.
//!
//! Invariant: a node's weights are its own and those of its children. Nodes come depth first, a parent
//! before its children, of which the heaviest comes first.
//!
//! Runs of folded frames under one parent are one node however long they are, so that what is below them
//! adds up; its text says from how many to how many frames it stands for.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::origins::Totals;
use crate::paths::Step;

/// Stands for no parent, and for the text of folded frames.
const NONE: u32 = u32::MAX;

/// A tree that grows; every path has `N` weights.
#[derive(Debug)]
pub(crate) struct CallTree<const N: usize> {
    nodes: Vec<Node<N>>,
    /// By parent and text.
    known: FxHashMap<(u32, u32), u32>,
    texts: Vec<String>,
    text_ids: FxHashMap<String, u32>,
}

#[derive(Debug)]
struct Node<const N: usize> {
    parent: u32,
    text: u32,
    /// Fewest and most frames of a folded run.
    frames: (u32, u32),
    weights: [Totals; N],
    own: [Totals; N],
}

/// A node of a tree that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallNode<const N: usize> {
    pub(crate) parent: Option<u32>,
    pub(crate) text: String,
    pub(crate) is_folded: bool,
    pub(crate) weights: [Totals; N],
    pub(crate) own: [Totals; N],
}

impl<const N: usize> Default for CallTree<N> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            known: FxHashMap::default(),
            texts: Vec::new(),
            text_ids: FxHashMap::default(),
        }
    }
}

impl<const N: usize> CallTree<N> {
    /// Adds what a path holds.
    pub(crate) fn add<'a>(&mut self, path: impl IntoIterator<Item = &'a Step>, weights: [Totals; N]) {
        let mut at = NONE;
        for step in path {
            let (text, frames) = match step {
                Step::Call(text) => (self.text(text), 0),
                Step::Folded(count) => (NONE, *count),
            };
            let nodes = &mut self.nodes;
            let node = *self.known.entry((at, text)).or_insert_with(|| {
                nodes.push(Node {
                    parent: at,
                    text,
                    frames: (frames, frames),
                    weights: [Totals::default(); N],
                    own: [Totals::default(); N],
                });
                nodes.len() as u32 - 1
            });
            let node_of = &mut nodes[node as usize];
            node_of.frames = (node_of.frames.0.min(frames), node_of.frames.1.max(frames));
            for (sum, weight) in node_of.weights.iter_mut().zip(weights) {
                sum.add(weight);
            }
            at = node;
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            for (sum, weight) in node.own.iter_mut().zip(weights) {
                sum.add(weight);
            }
        }
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(id) = self.text_ids.get(text) {
            return *id;
        }
        let id = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.text_ids.insert(text.to_owned(), id);
        id
    }

    /// The nodes, depth first; of siblings that with the highest `rank` first.
    pub(crate) fn finish(self, rank: impl Fn(&[Totals; N]) -> u64) -> Vec<CallNode<N>> {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        let mut roots = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let siblings = children.get_mut(node.parent as usize).unwrap_or(&mut roots);
            siblings.push(at as u32);
        }
        let text = |node: &Node<N>| match self.texts.get(node.text as usize) {
            Some(text) => text.clone(),
            None => folded_text(node.frames),
        };
        // What is handed out last is taken first.
        let sorted = |mut siblings: Vec<u32>| {
            siblings.sort_by_cached_key(|at| {
                let node = &self.nodes[*at as usize];
                (rank(&node.weights), Reverse(text(node)))
            });
            siblings
        };
        let mut open: Vec<(u32, Option<u32>)> = sorted(roots).into_iter().map(|at| (at, None)).collect();
        let mut nodes: Vec<CallNode<N>> = Vec::with_capacity(self.nodes.len());
        while let Some((at, parent)) = open.pop() {
            let node = &self.nodes[at as usize];
            let number = nodes.len() as u32;
            nodes.push(CallNode {
                parent,
                text: text(node),
                is_folded: node.text == NONE,
                weights: node.weights,
                own: node.own,
            });
            let below = sorted(std::mem::take(&mut children[at as usize]));
            open.extend(below.into_iter().map(|at| (at, Some(number))));
        }
        nodes
    }
}

/// Returns the label of a run of folded frames, given their least and greatest number.
pub fn folded_text((least, most): (u32, u32)) -> String {
    match (least, most) {
        (1, 1) => "… 1 frame".to_owned(),
        (least, most) if least == most => format!("… {most} frames"),
        (least, most) => format!("… {least}–{most} frames"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_their_parent_heaviest_first_and_runs_of_any_length_are_one() {
        let call = |text: &str| Step::Call(text.to_owned());
        let weight = |bytes| [Totals { bytes, blocks: 1 }];
        let mut tree = CallTree::<1>::default();
        tree.add(&[call("main"), Step::Folded(2), call("small")], weight(1));
        tree.add(&[call("main"), Step::Folded(5), call("large")], weight(9));
        tree.add(&[call("main")], weight(3));
        let nodes = tree.finish(|weights| weights[0].bytes);
        let seen: Vec<_> = nodes
            .iter()
            .map(|node| (node.parent, node.text.as_str(), node.weights[0].bytes, node.own[0].bytes))
            .collect();
        assert_eq!(
            seen,
            [
                (None, "main", 13, 3),
                (Some(0), "… 2–5 frames", 10, 0),
                (Some(1), "large", 9, 9),
                (Some(1), "small", 1, 1)
            ]
        );
        assert!(nodes[1].is_folded && !nodes[0].is_folded);
    }
}
