//! Who held memory at its highest point, as a tree of calls and as sites with their stacks.
//!
//! The blocks are those of [`WatermarkFold`], whose state this fold shares. Blocks without a stack go by
//! their name, those without a name by thread, stream and size, so that there is always something to
//! look into. A node's bytes are those of all blocks below it and of its own; a child comes after its
//! parent. Nodes that are too small to be seen are left out and counted.

use std::cmp::Reverse;

use floodmark_event::StackId;
use floodmark_event::units::format_bytes;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::block::StackText;
use crate::change::{Block, Ending};
use crate::describe::{Describe, Origin, share};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::watermark::{Watermark, WatermarkFold, WatermarkOptions};

/// A node smaller than this part of all is left out.
const SMALLEST_PART: u128 = 4000;
/// Most nodes that are kept.
const MOST_NODES: usize = 20_000;
/// Most stacks that are kept of a site.
const MOST_STACKS: usize = 20;

/// Who held memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Holders {
    /// Whether there are stacks; else nodes are names, threads, streams and sizes.
    pub has_stacks: bool,
    /// Calls from the outermost to the innermost.
    pub nodes: Vec<HolderNode>,
    /// Nodes that are left out because they are too small.
    pub nodes_omitted: u64,
    /// Sites, most bytes first; none without stacks and names.
    pub sites: Vec<HolderSite>,
}

/// A call, and what was held below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderNode {
    /// Index of the caller.
    pub parent: Option<u32>,
    /// The frame.
    pub text: String,
    /// Bytes held below it, and by itself.
    pub bytes: u64,
    /// Blocks of those.
    pub blocks: u64,
}

/// A site, and what it held.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HolderSite {
    /// The site.
    pub site: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Its share of all bytes, from 0 to 1.
    pub share: f64,
    /// Stacks that lead to it, most bytes first.
    pub stacks: Vec<HolderStack>,
    /// Stacks that are left out.
    pub stacks_omitted: u64,
}

/// A stack, and what was held by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderStack {
    /// The frames, innermost first.
    pub stack: StackText,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Folds events into a [`Watermark`] and its [`Holders`].
#[derive(Clone, Debug, Default)]
pub struct HoldersFold {
    watermark: WatermarkFold,
}

/// What blocks have in common that are told apart nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Likeness {
    origin: Origin,
    /// Thread, stream and size of blocks without stack and name.
    otherwise: (u64, u64, u64),
}

type Sum = (u64, u64);

impl HoldersFold {
    /// Starts a watermark.
    pub fn new(options: WatermarkOptions) -> Self {
        Self { watermark: WatermarkFold::new(options) }
    }

    fn sums(&self, end: &End<'_>) -> Vec<(Likeness, Sum)> {
        let mut sums: FxHashMap<Likeness, Sum> = FxHashMap::default();
        for block in self.watermark.marked(end.live.tallies().main(), end) {
            let origin = Origin::of(block);
            let otherwise =
                if origin.is_known() { (0, 0, 0) } else { (block.thread, block.stream, block.bytes) };
            let sum = sums.entry(Likeness { origin, otherwise }).or_default();
            *sum = (sum.0.saturating_add(block.bytes), sum.1 + 1);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(like, sum)| {
            (Reverse(*sum), like.origin.stack.0, like.origin.name.0, like.otherwise)
        });
        sums
    }

    fn holders(&self, end: &End<'_>) -> Holders {
        let sums = self.sums(end);
        let mut tree = Tree::default();
        let mut describe = Describe::new(end, &self.watermark.options.sites);
        let mut sites: FxHashMap<u32, HolderSite> = FxHashMap::default();
        for (like, sum) in &sums {
            tree.add(&path(like, end), *sum);
            if like.origin.is_known() {
                let id = describe.site_id(like.origin.stack, like.origin.name);
                let site = sites.entry(id).or_insert_with(|| HolderSite::new(describe.site(id)));
                site.add(like.origin.stack, *sum, end);
            }
        }
        let total = sums.iter().fold(0u64, |total, (_, sum)| total.saturating_add(sum.0));
        let mut sites: Vec<HolderSite> = sites.into_values().collect();
        for site in &mut sites {
            site.share = share(site.bytes, total);
        }
        sites.sort_by(|a, b| (Reverse(a.bytes), &a.site).cmp(&(Reverse(b.bytes), &b.site)));
        let has_stacks = sums.iter().any(|(like, _)| like.origin.stack.0 != 0);
        let (nodes, nodes_omitted) = tree.finish(total);
        Holders { has_stacks, nodes, nodes_omitted, sites }
    }
}

/// The texts that lead to blocks, outermost first.
fn path(like: &Likeness, end: &End<'_>) -> Vec<String> {
    let Likeness { origin, otherwise: (thread, stream, bytes) } = *like;
    if origin.stack.0 != 0 {
        let mut frames = end.tables.stack_text(origin.stack);
        frames.reverse();
        return frames;
    }
    if origin.name.0 != 0 {
        return vec![end.tables.string(origin.name).to_owned()];
    }
    vec![
        format!("thread {thread}"),
        format!("stream {stream:#x}"),
        format!("blocks of {}", format_bytes(bytes)),
    ]
}

impl HolderSite {
    fn new(site: &str) -> Self {
        let site = site.to_owned();
        Self { site, bytes: 0, blocks: 0, share: 0.0, stacks: Vec::new(), stacks_omitted: 0 }
    }

    /// Sums come in the order of their bytes, so the first stacks are the largest.
    fn add(&mut self, stack: StackId, (bytes, blocks): Sum, end: &End<'_>) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks += blocks;
        if stack.0 == 0 {
            return;
        }
        if self.stacks.len() == MOST_STACKS {
            self.stacks_omitted += 1;
        } else {
            let stack = end.tables.stack_text(stack).into();
            self.stacks.push(HolderStack { stack, bytes, blocks });
        }
    }
}

/// A tree that grows.
#[derive(Default)]
struct Tree {
    nodes: Vec<HolderNode>,
    children: FxHashMap<(Option<u32>, String), u32>,
}

impl Tree {
    fn add(&mut self, path: &[String], (bytes, blocks): Sum) {
        let mut at = None;
        for text in path {
            let nodes = &mut self.nodes;
            let node = *self.children.entry((at, text.clone())).or_insert_with(|| {
                nodes.push(HolderNode { parent: at, text: text.clone(), bytes: 0, blocks: 0 });
                nodes.len() as u32 - 1
            });
            let known = &mut nodes[node as usize];
            known.bytes = known.bytes.saturating_add(bytes);
            known.blocks += blocks;
            at = Some(node);
        }
    }

    /// The nodes that can be seen, and how many cannot.
    fn finish(self, total: u64) -> (Vec<HolderNode>, u64) {
        let mut sizes: Vec<u64> = self.nodes.iter().map(|node| node.bytes).collect();
        sizes.sort_unstable_by_key(|bytes| Reverse(*bytes));
        // With as many nodes of one size as there is room for, all of that size go.
        let least = sizes.get(MOST_NODES).map_or(0, |bytes| bytes.saturating_add(1));
        let is_seen = |node: &HolderNode| {
            node.bytes >= least && u128::from(node.bytes) * SMALLEST_PART >= u128::from(total)
        };
        let mut new_at: Vec<Option<u32>> = vec![None; self.nodes.len()];
        let count = self.nodes.len();
        let mut kept = Vec::new();
        for (at, mut node) in self.nodes.into_iter().enumerate() {
            if is_seen(&node) {
                // A parent holds at least as much, and came before.
                node.parent = node.parent.and_then(|parent| new_at[parent as usize]);
                new_at[at] = Some(kept.len() as u32);
                kept.push(node);
            }
        }
        let omitted = (count - kept.len()) as u64;
        (kept, omitted)
    }
}

impl Fold for HoldersFold {
    type Output = (Watermark, Holders);

    fn start(&mut self, first_ns: i64) {
        self.watermark.start(first_ns);
    }
    fn carried(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.watermark.carried(block, time_ns, level);
    }
    #[inline]
    fn alloc(&mut self, block: &Block, level: &Level) {
        self.watermark.alloc(block, level);
    }
    #[inline]
    fn free(&mut self, block: &Block, ending: &Ending, level: &Level) {
        self.watermark.free(block, ending, level);
    }
    fn replaced(&mut self, block: &Block, time_ns: i64, level: &Level) {
        self.watermark.replaced(block, time_ns, level);
    }
    fn finish(&self, end: &End<'_>) -> (Watermark, Holders) {
        (self.watermark.finish(end), self.holders(end))
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::tables::Frame;
    use floodmark_event::{Event, EventBatch, Tables};

    use super::*;
    use crate::{Narrow, Pass};

    fn stack(tables: &mut Tables, functions: &[&str]) -> StackId {
        functions.iter().fold(StackId(0), |parent, function| {
            let frame = Frame { function: tables.intern(function), ..Frame::default() };
            let frame = tables.intern_frame(frame);
            tables.intern_stack(parent, frame)
        })
    }

    fn holders(events: &[Event], tables: &Tables) -> Holders {
        let mut batch = EventBatch::new();
        for event in events {
            batch.push(event);
        }
        let mut pass = Pass::new(&Narrow::default(), HoldersFold::default());
        pass.update(&batch);
        pass.finish(tables).1
    }

    #[test]
    fn calls_add_up_and_sites_know_their_stacks() {
        let mut tables = Tables::default();
        let (load, step) = (stack(&mut tables, &["main", "load"]), stack(&mut tables, &["main", "step"]));
        let event =
            |time_ns, address, bytes, stack| Event { time_ns, address, bytes, stack, ..Event::default() };
        let events = [event(1, 16, 100, load), event(2, 32, 50, load), event(3, 48, 30, step)];
        let holders = holders(&events, &tables);
        let seen: Vec<_> = holders
            .nodes
            .iter()
            .map(|node| (node.parent, node.text.as_str(), node.bytes, node.blocks))
            .collect();
        assert_eq!(seen, [(None, "main", 180, 3), (Some(0), "load", 150, 2), (Some(0), "step", 30, 1)]);
        assert_eq!((holders.sites[0].site.as_str(), holders.sites[0].bytes), ("load", 150));
        assert_eq!(holders.sites[0].stacks[0].stack[..], ["load", "main"]);
        assert!(holders.has_stacks);
    }

    #[test]
    fn blocks_without_stacks_go_by_thread_stream_and_size() {
        let event = |address, thread| Event { address, bytes: 1024, thread, stream: 1, ..Event::default() };
        let holders = holders(&[event(16, 7), event(32, 7), event(48, 8)], &Tables::default());
        let texts: Vec<_> = holders.nodes.iter().map(|node| node.text.as_str()).collect();
        let (seven, eight) = ("thread 7", "thread 8");
        assert_eq!(
            texts,
            [seven, "stream 0x1", "blocks of 1.00 KiB", eight, "stream 0x1", "blocks of 1.00 KiB"]
        );
        assert_eq!((holders.nodes[0].bytes, holders.nodes[2].blocks, holders.has_stacks), (2048, 2, false));
    }

    #[test]
    fn what_is_too_small_to_be_seen_is_counted() {
        let event = |address, bytes, thread| Event { address, bytes, thread, ..Event::default() };
        let holders = holders(&[event(16, 1 << 30, 7), event(32, 1, 8)], &Tables::default());
        assert_eq!((holders.nodes.len(), holders.nodes_omitted), (3, 3));
    }
}
