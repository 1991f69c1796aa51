//! Answers of a partial result, by the same code as those of one pass.

use floodmark_event::ProcessId;
use rustc_hash::FxHashMap;

use crate::change::Block;
use crate::describe::sort_largest_first;
use crate::fold::{End, Fold as _};
use crate::growth::{Growth, GrowthFold, GrowthOptions};
use crate::layers::Layer;
use crate::leaks::{Leaks, LeaksOptions};
use crate::lifetimes::{Lifetimes, LifetimesOptions};
use crate::merge::SpaceMap;
use crate::partial::blocks::BlockIds;
use crate::partial::ids::Expand;
use crate::partial::{HeldBlocks, Partial, PartialError};
use crate::process_map::JobProcesses;
use crate::ranks::RankMap;
use crate::stats::Stats;
use crate::watermark::{Watermark, WatermarkOptions};

impl Partial {
    /// Turns the partial result into one whose processes and blocks are numbered as in one pass over everything.
    #[must_use]
    pub fn numbered(mut self) -> Self {
        let mut names: Vec<((&str, u32), ProcessId)> = self
            .names
            .iter()
            .map(|(id, (source, number))| ((self.sources[*source as usize].as_str(), *number), *id))
            .collect();
        names.sort_unstable();
        let keep = self.sources.len() == 1;
        let new = |at: usize, number: u32| ProcessId(if keep { number } else { at as u32 + 1 });
        let ids: FxHashMap<ProcessId, ProcessId> =
            names.iter().enumerate().map(|(at, ((_, number), id))| (*id, new(at, *number))).collect();
        let of = |id: ProcessId| ids.get(&id).copied().unwrap_or(id);
        self.names = self.names.into_iter().map(|(id, name)| (of(id), name)).collect();
        for process in &mut self.tables.processes {
            process.id = of(process.id);
        }
        self.tables.processes.sort_by_key(|process| process.id);
        self.live.spaces_mut().for_each(|space| space.process = of(space.process));
        self.layers.iter_mut().for_each(|layer| layer.process = of(ProcessId(layer.process)).0);
        self.layers
            .sort_by(|a, b| (a.process, a.device, &a.resource).cmp(&(b.process, b.device, &b.resource)));
        self.map.renumber(of);
        if let Some(growth) = &mut self.growth {
            growth.processes_mut().for_each(|process| *process = of(*process));
        }
        let processes: Vec<ProcessId> = self.live.spaces_mut().map(|space| space.process).collect();
        let blocks: Vec<&mut Block> = self.live.blocks_mut().chain(self.leaks.torn_down_mut()).collect();
        number_blocks(blocks, |block| processes[block.space as usize]);
        self
    }

    fn end(&self) -> End<'_> {
        End { live: &self.live, tables: &self.tables }
    }

    /// Returns counters, sizes and peaks, which may be bounds; see [`Stats::peak_exact`].
    pub fn stats(&self) -> (Stats, Vec<Layer>) {
        let mut stats = self.stats.finish(&self.end());
        if !stats.peak_exact {
            stats.peak_bytes = self.peak_bounds().1;
        }
        (stats, self.layers.clone())
    }

    /// Puts the processes side by side, with at most `limit` listed at either end.
    pub fn processes_compared(&self, limit: Option<usize>) -> JobProcesses {
        self.map.compared(self.main_tally(), &self.stats().0, &self.tables, limit)
    }

    /// Returns live bytes of all processes over time; none if none ever had any.
    pub fn process_map(&self) -> Option<RankMap> {
        self.map.map(self.main_tally())
    }

    /// Whether stacks or names tell where blocks were allocated.
    pub fn has_origins(&self) -> bool {
        self.lifetimes.has_origins()
            || self.live.blocks().any(|block| block.stack.0 != 0 || block.name.0 != 0)
    }

    /// Returns the blocks that are live at the end.
    pub fn leaks(&self, options: LeaksOptions) -> Leaks {
        let mut fold = self.leaks.clone();
        fold.set_report(options.limit, options.sites);
        fold.finish(&self.end())
    }

    /// Returns how long blocks lived.
    pub fn lifetimes(&self, options: LifetimesOptions) -> Lifetimes {
        let mut fold = self.lifetimes.clone();
        fold.set_report(options.limit, options.sites);
        fold.finish(&self.end())
    }

    /// Below which lifetime blocks count as churn.
    pub fn churn_ns(&self) -> u64 {
        self.lifetimes.threshold_ns()
    }

    /// What an iteration is called and how many were passed over, if growth was looked for.
    pub fn iterations(&self) -> Option<(&str, u64)> {
        self.growth.as_ref().map(GrowthFold::question)
    }

    /// Returns how sites grow from iteration to iteration, if that was looked for.
    pub fn growth(&self, options: GrowthOptions) -> Option<Growth> {
        let mut fold = self.growth.clone()?;
        fold.set_report(options.limit, options.sites);
        Some(fold.finish(&self.end()))
    }

    /// Returns what held memory: the blocks of `held`, which are those at the peak or at `at_ns`.
    ///
    /// # Errors
    /// If `held` is damaged or of a process that is not known here.
    pub fn watermark(
        &mut self,
        held: &[HeldBlocks],
        at_ns: Option<i64>,
        options: &WatermarkOptions,
    ) -> Result<Watermark, PartialError> {
        let mut blocks = Vec::new();
        for held in held {
            self.hold(held, &mut blocks)?;
        }
        let main = self.live.tallies().main();
        blocks.retain(|block| block.tally == main);
        let live = &self.live;
        number_blocks(blocks.iter_mut().collect(), |block| live.space(block.space).process);
        let mut sorted: Vec<&Block> = blocks.iter().collect();
        sort_largest_first(&mut sorted);
        // Without events there is no instant to look at.
        let at_ns = at_ns.filter(|_| self.first_ns().is_some());
        Ok(options.report(at_ns, &sorted, &self.end()))
    }

    /// Adds the blocks of a part, with ids of these tables.
    fn hold(&mut self, held: &HeldBlocks, blocks: &mut Vec<Block>) -> Result<(), PartialError> {
        let mut ids = FxHashMap::default();
        for (id, name) in &held.processes {
            let is_same = |(_, (source, number)): &(&ProcessId, &(u32, u32))| {
                self.sources[*source as usize] == held.source && number == name
            };
            let known = self.names.iter().find(is_same).map(|(id, _)| *id);
            ids.insert(*id, known.ok_or(PartialError::Damaged("a process"))?);
        }
        let ids = Expand::new(&held.tables, &mut self.tables, ids)?;
        let mut spaces = Vec::with_capacity(held.spaces.len());
        for space in &held.spaces {
            spaces.push(self.live.known_space(space.space(&ids)?));
        }
        let map = SpaceMap { spaces, orders: 0 };
        let block_ids = BlockIds { ids: &ids, spaces: held.spaces.len() };
        for block in &held.blocks {
            blocks.push(map.moved(&block.block(&block_ids)?));
        }
        Ok(())
    }
}

/// Numbers blocks by process, and within one as they were numbered.
fn number_blocks(mut blocks: Vec<&mut Block>, process: impl Fn(&Block) -> ProcessId) {
    blocks.sort_by_key(|block| (process(block), block.order));
    for (order, block) in (1..).zip(blocks) {
        block.order = order;
    }
}
