//! Turns blocks into what results show: resolves their ids and groups them.
//!
//! Each stack and site is turned into text once, however many blocks share it.

use std::cmp::Reverse;

use floodmark_event::tables::Process;
use floodmark_event::{NO_DEVICE, StackId, StringId};
use rustc_hash::FxHashMap;

use crate::block::{BlockInfo, Group, GroupBy, StackText};
use crate::change::Block;
use crate::fold::End;
use crate::scopes::ScopePaths;
use crate::site::{NO_SITE, SiteRules};

/// Set in the key of a scope whose names are not known.
const UNNAMED_SCOPE: u64 = 1 << 63;

/// What blocks of one site and tally have in common while stacks are still numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) tally: u8,
    pub(crate) stack: StackId,
    /// Name of a block without a stack; others go by their stack alone.
    pub(crate) name: StringId,
}

impl Origin {
    #[inline]
    pub(crate) fn of(block: &Block) -> Self {
        let name = if block.stack.0 == 0 { block.name } else { StringId(0) };
        Self { tally: block.tally, stack: block.stack, name }
    }

    /// Whether there is anything that tells where it is.
    pub(crate) fn is_known(self) -> bool {
        self.stack.0 != 0 || self.name.0 != 0
    }
}

/// Resolves ids of blocks.
pub(crate) struct Describe<'a> {
    end: &'a End<'a>,
    rules: &'a SiteRules,
    scopes: Option<&'a ScopePaths>,
    stacks: FxHashMap<StackId, StackText>,
    site_ids: FxHashMap<(StackId, StringId), u32>,
    modules: FxHashMap<StackId, u32>,
    texts: Texts,
}

/// Sites and modules by their text, because several stacks lead to one.
#[derive(Default)]
struct Texts {
    ids: FxHashMap<String, u32>,
    texts: Vec<String>,
}

impl Texts {
    fn id(&mut self, text: String) -> u32 {
        *self.ids.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            self.texts.len() as u32 - 1
        })
    }
}

impl<'a> Describe<'a> {
    pub(crate) fn new(end: &'a End<'a>, rules: &'a SiteRules) -> Self {
        Self {
            end,
            rules,
            scopes: None,
            stacks: FxHashMap::default(),
            site_ids: FxHashMap::default(),
            modules: FxHashMap::default(),
            texts: Texts::default(),
        }
    }

    /// Groups scopes by the names that lead to them.
    pub(crate) fn with_scopes(mut self, scopes: &'a ScopePaths) -> Self {
        self.scopes = Some(scopes);
        self
    }

    /// The site of blocks with this stack and name, as a number that [`Self::site`] resolves.
    pub(crate) fn site_id(&mut self, stack: StackId, name: StringId) -> u32 {
        // The name matters only to blocks without a stack.
        let name = if stack.0 == 0 { name } else { StringId(0) };
        *self.site_ids.entry((stack, name)).or_insert_with(|| {
            let text = self.rules.site(stack, name, self.end.tables);
            self.texts.id(text)
        })
    }

    /// The module of blocks with this stack, as a number that [`Self::site`] resolves.
    fn module_id(&mut self, stack: StackId) -> u32 {
        *self.modules.entry(stack).or_insert_with(|| {
            let text = self.rules.module(stack, self.end.tables);
            self.texts.id(text)
        })
    }

    /// The text of a site or module.
    pub(crate) fn site(&self, id: u32) -> &str {
        &self.texts.texts[id as usize]
    }

    pub(crate) fn stack(&mut self, stack: StackId) -> StackText {
        self.stacks.entry(stack).or_insert_with(|| self.end.tables.stack_text(stack).into()).clone()
    }

    fn text(&self, id: StringId) -> Option<String> {
        let text = self.end.tables.string(id);
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(crate) fn info(&mut self, block: &Block) -> BlockInfo {
        let space = self.end.live.space(block.space);
        let site = self.site_id(block.stack, block.name);
        BlockInfo {
            address: block.address,
            bytes: block.bytes,
            time_ns: block.time_ns,
            thread: block.thread,
            stream: block.stream,
            device: (space.device != NO_DEVICE).then_some(space.device),
            kind: block.kind,
            process: space.process.0,
            name: self.text(block.name),
            resource: self.text(space.resource),
            scope: block.scope,
            site: self.site(site).to_owned(),
            stack: self.stack(block.stack),
        }
    }

    /// Groups blocks; most bytes first.
    pub(crate) fn group(&mut self, blocks: &[&Block], by: GroupBy) -> Vec<Group> {
        let mut sums: FxHashMap<u64, (u64, u64)> = FxHashMap::default();
        for block in blocks {
            let sum = sums.entry(self.key(block, by)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(block.bytes));
        }
        let total: u64 = sums.values().fold(0, |total, sum| total.saturating_add(sum.1));
        let groups = sums.into_iter().map(|(key, (blocks, bytes))| Group {
            key: self.key_text(key, by),
            blocks,
            bytes,
            share: share(bytes, total),
            stack: if by == GroupBy::Stack { self.stack(StackId(key as u32)) } else { StackText::default() },
        });
        let mut groups: Vec<Group> = groups.collect();
        groups.sort_by(|a, b| {
            (Reverse(a.bytes), Reverse(a.blocks), &a.key, &a.stack[..]).cmp(&(
                Reverse(b.bytes),
                Reverse(b.blocks),
                &b.key,
                &b.stack[..],
            ))
        });
        groups
    }

    fn key(&mut self, block: &Block, by: GroupBy) -> u64 {
        let space = self.end.live.space(block.space);
        match by {
            GroupBy::Site => u64::from(self.site_id(block.stack, block.name)),
            GroupBy::Stack => u64::from(block.stack.0),
            GroupBy::Stream => block.stream,
            GroupBy::Thread => block.thread,
            GroupBy::Size => block.bytes,
            GroupBy::Device => space.device as u64,
            GroupBy::Process => u64::from(space.process.0),
            GroupBy::Kind => block.kind as u64,
            GroupBy::Name => u64::from(block.name.0),
            GroupBy::Resource => u64::from(space.resource.0),
            // The thousandth turn of a loop is the same scope as the first.
            GroupBy::Scope => match self.scopes.map_or(0, |scopes| scopes.path(block.scope)) {
                0 if block.scope != 0 => UNNAMED_SCOPE | block.scope,
                path => u64::from(path),
            },
            GroupBy::Module => u64::from(self.module_id(block.stack)),
        }
    }

    fn key_text(&mut self, number: u64, by: GroupBy) -> String {
        let tables = self.end.tables;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "(none)".to_owned());
        match by {
            GroupBy::Site | GroupBy::Module => self.site(number as u32).to_owned(),
            GroupBy::Stack => {
                self.stack(StackId(number as u32)).first().cloned().unwrap_or_else(|| NO_SITE.to_owned())
            }
            GroupBy::Stream => format!("{number:#x}"),
            GroupBy::Thread | GroupBy::Size => number.to_string(),
            GroupBy::Device => or_none((number as i32 != NO_DEVICE).then(|| (number as i32).to_string())),
            GroupBy::Process => {
                let known = tables.processes.iter().find(|process| u64::from(process.id.0) == number);
                known.map_or_else(|| format!("process {number}"), process_text)
            }
            GroupBy::Kind => {
                floodmark_event::Kind::from_number(number as u8).unwrap_or_default().name().to_owned()
            }
            GroupBy::Name | GroupBy::Resource => or_none(self.text(StringId(number as u32))),
            GroupBy::Scope if number & UNNAMED_SCOPE != 0 => format!("scope {}", number & !UNNAMED_SCOPE),
            GroupBy::Scope => {
                let names = self.scopes.map_or_else(Vec::new, |scopes| scopes.names(number as u32));
                or_none((number != 0).then(|| names.join(" / ")))
            }
        }
    }
}

pub(crate) fn process_text(process: &Process) -> String {
    let mut text = if process.command.is_empty() { "process".to_owned() } else { process.command.clone() };
    if process.pid != 0 {
        text.push_str(" (pid ");
        text.push_str(&process.pid.to_string());
        text.push(')');
    }
    if !process.host.is_empty() {
        text.push_str(" on ");
        text.push_str(&process.host);
    }
    text
}

/// `part` of `whole`, from 0 to 1.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Sorts blocks: largest first, oldest first among equals.
pub(crate) fn sort_largest_first(blocks: &mut [&Block]) {
    blocks.sort_unstable_by_key(|block| largest_first(block));
}

/// The order in which blocks are listed.
pub(crate) fn largest_first(block: &Block) -> (Reverse<u64>, i64, u64, u64) {
    (Reverse(block.bytes), block.time_ns, block.address, block.order)
}

#[cfg(test)]
mod tests {
    use floodmark_event::{Event, EventBatch, Filter, Tables};

    use crate::Pass;
    use crate::block::GroupBy;
    use crate::scopes::ScopePaths;
    use crate::watermark::{WatermarkFold, WatermarkOptions};

    #[test]
    fn scopes_of_one_name_are_one_group() {
        let mut batch = EventBatch::new();
        for (address, scope) in [(1, 11), (2, 12), (3, 13), (4, 10), (5, 0), (6, 99)] {
            batch.push(&Event { address, bytes: 100, scope, ..Event::default() });
        }
        let mut scopes = ScopePaths::default();
        scopes.add(10, 0, "epoch");
        for step in 11..=13 {
            scopes.add(step, 10, "step");
        }
        let options =
            WatermarkOptions { group_by: vec![GroupBy::Scope], scopes, ..WatermarkOptions::default() };
        let mut pass = Pass::new(&Filter::default(), WatermarkFold::new(options));
        pass.update(&batch);
        let watermark = pass.finish(&Tables::default());
        let groups: Vec<_> =
            watermark.groups[0].groups.iter().map(|group| (&*group.key, group.blocks)).collect();
        assert_eq!(groups, [("epoch / step", 3), ("(none)", 1), ("epoch", 1), ("scope 99", 1)]);
    }
}
