//! Holders of memory at its peak: sites, with the stacks that lead to them.
//!
//! The blocks are those of [`WatermarkFold`], whose state this fold shares. Blocks that have neither stack
//! nor name belong to no site; shares are of all blocks nevertheless.

use std::cmp::Reverse;

use floodmark_event::StackId;
use rustc_hash::FxHashMap;

use crate::block::StackText;
use crate::change::{Block, Ending};
use crate::describe::{Describe, Origin, share};
use crate::fold::{End, Fold};
use crate::level::Level;
use crate::origins::Totals;
use crate::watermark::{Watermark, WatermarkFold, WatermarkOptions};

/// Most stacks that are kept of a site.
const MOST_STACKS: usize = 20;

/// A site, and what it held.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderStack {
    /// The frames, innermost first.
    pub stack: StackText,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Folds events into a [`Watermark`] and the sites that held it, most bytes first.
#[derive(Clone, Debug, Default)]
pub struct HoldersFold {
    watermark: WatermarkFold,
}

impl HoldersFold {
    /// Starts a watermark.
    pub fn new(options: WatermarkOptions) -> Self {
        Self { watermark: WatermarkFold::new(options) }
    }

    /// What every origin held, most first.
    fn sums(&self, end: &End<'_>) -> Vec<(Origin, Totals)> {
        let mut sums: FxHashMap<Origin, Totals> = FxHashMap::default();
        for block in self.watermark.marked(end.live.tallies().main(), end) {
            sums.entry(Origin::of(block)).or_default().add(Totals::block(block));
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(origin, sum)| (Reverse(*sum), origin.stack, origin.name));
        sums
    }

    fn sites(&self, end: &End<'_>) -> Vec<HolderSite> {
        let sums = self.sums(end);
        let mut describe = Describe::new(end, &self.watermark.options.sites);
        let mut sites: FxHashMap<u32, HolderSite> = FxHashMap::default();
        for (origin, sum) in sums.iter().filter(|(origin, _)| origin.is_known()) {
            let id = describe.site_id(origin.stack, origin.name);
            let site = sites.entry(id).or_insert_with(|| HolderSite::new(describe.site(id)));
            site.add(origin.stack, *sum, end);
        }
        let total = Totals::sum(sums.iter().map(|(_, sum)| *sum));
        let mut sites: Vec<HolderSite> = sites.into_values().collect();
        for site in &mut sites {
            site.share = share(site.bytes, total.bytes);
        }
        sites.sort_by(|a, b| (Reverse(a.bytes), &a.site).cmp(&(Reverse(b.bytes), &b.site)));
        sites
    }
}

impl HolderSite {
    fn new(site: &str) -> Self {
        let site = site.to_owned();
        Self { site, bytes: 0, blocks: 0, share: 0.0, stacks: Vec::new(), stacks_omitted: 0 }
    }

    /// Sums come in the order of their bytes, so the first stacks are the largest.
    fn add(&mut self, stack: StackId, Totals { bytes, blocks }: Totals, end: &End<'_>) {
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

impl Fold for HoldersFold {
    type Output = (Watermark, Vec<HolderSite>);

    fn start(&mut self, first_ns: i64, origin_ns: i64) {
        self.watermark.start(first_ns, origin_ns);
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
    fn finish(&self, end: &End<'_>) -> (Watermark, Vec<HolderSite>) {
        (self.watermark.finish(end), self.sites(end))
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::tables::Frame;
    use floodmark_event::{Event, EventBatch, Tables};

    use super::*;
    use crate::Pass;
    use floodmark_event::Filter;

    fn stack(tables: &mut Tables, functions: &[&str]) -> StackId {
        functions.iter().fold(StackId(0), |parent, function| {
            let frame = Frame { function: tables.intern(function), ..Frame::default() };
            let frame = tables.intern_frame(frame);
            tables.intern_stack(parent, frame)
        })
    }

    fn sites(events: &[Event], tables: &Tables) -> Vec<HolderSite> {
        let mut batch = EventBatch::new();
        for event in events {
            batch.push(event);
        }
        let mut pass = Pass::new(&Filter::default(), HoldersFold::default());
        pass.update(&batch);
        pass.finish(tables).1
    }

    fn event(address: u64, bytes: u64, stack: StackId) -> Event {
        Event { time_ns: address as i64, address, bytes, stack, ..Event::default() }
    }

    #[test]
    fn sites_know_their_stacks_and_their_share_of_all() {
        let mut tables = Tables::default();
        let (load, step) = (stack(&mut tables, &["main", "load"]), stack(&mut tables, &["main", "step"]));
        let again = stack(&mut tables, &["main", "retry", "load"]);
        let events = [
            event(16, 100, load),
            event(32, 50, load),
            event(48, 30, step),
            event(64, 10, again),
            event(80, 10, StackId(0)),
        ];
        let sites = sites(&events, &tables);
        let seen: Vec<_> = sites.iter().map(|site| (site.site.as_str(), site.bytes, site.blocks)).collect();
        assert_eq!(seen, [("load", 160, 3), ("step", 30, 1)]);
        assert_eq!((sites[0].share, sites[0].stacks_omitted), (0.8, 0));
        let stacks: Vec<_> = sites[0].stacks.iter().map(|stack| (&stack.stack[..], stack.bytes)).collect();
        let expected = [vec!["load", "main"], vec!["load", "retry", "main"]]
            .map(|frames| frames.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(stacks, [(&expected[0][..], 150), (&expected[1][..], 10)]);
    }

    #[test]
    fn stacks_beyond_the_largest_are_counted() {
        let mut tables = Tables::default();
        let callers: Vec<String> = (0..MOST_STACKS + 3).map(|number| format!("caller{number}")).collect();
        let mut events = Vec::new();
        for (number, caller) in (1..).zip(&callers) {
            events.push(event(number * 4096, number, stack(&mut tables, &[caller, "load"])));
        }
        let sites = sites(&events, &tables);
        assert_eq!((sites.len(), sites[0].stacks.len(), sites[0].stacks_omitted), (1, MOST_STACKS, 3));
        assert_eq!(sites[0].stacks[0].bytes, callers.len() as u64);
        assert_eq!(sites[0].stacks.last().map(|stack| stack.bytes), Some(4));
    }

    #[test]
    fn blocks_without_stack_and_name_belong_to_no_site() {
        assert_eq!(sites(&[event(16, 1024, StackId(0))], &Tables::default()), []);
    }
}
