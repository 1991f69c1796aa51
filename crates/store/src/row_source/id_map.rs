//! Translates ids of several sources to one set of tables.
//!
//! Every source numbers its strings, frames and stacks itself, and so does every scan of a trace.

use std::collections::HashSet;

use floodmark_event::tables::{Frame, Thread};
use floodmark_event::{Column, EventBatch, ProcessId, Row, StackId, StringId, Tables};

use crate::rows::Columns as _;

/// Ids that stacks and texts of one source have in other tables.
#[derive(Clone, Debug, Default)]
pub struct IdMap {
    stacks: NewIds,
    texts: NewIds,
}

/// New ids by old ones, which are dense. Looked up for every event.
#[derive(Clone, Debug, Default)]
struct NewIds(Vec<Option<u32>>);

impl NewIds {
    #[inline]
    fn of(&self, id: u32) -> Option<u32> {
        self.0.get(id as usize).copied().flatten()
    }

    fn set(&mut self, id: u32, new: u32) {
        let at = id as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(new);
    }
}

impl IdMap {
    /// Adds processes, threads, subjects and devices of `from`, as they are now, to `to`.
    pub fn merge_names(from: &Tables, to: &mut Tables) {
        for process in &from.processes {
            if to.process(process.id).is_none() {
                to.processes.push(process.clone());
            }
        }
        to.processes.sort_by_key(|process| process.id);
        // Polls come every tenth of a second and hardly ever know more.
        if from.threads != to.threads {
            let known: HashSet<_> = to.threads.iter().map(key).collect();
            let is_new = |thread: &&Thread| !known.contains(&key(thread));
            let new: Vec<Thread> = from.threads.iter().filter(is_new).cloned().collect();
            to.threads.extend(new);
        }
        for (id, subject) in &from.subjects {
            if to.subjects.get(id) != Some(subject) {
                to.subjects.insert(*id, subject.clone());
            }
        }
        for (device, uuid) in &from.devices {
            if to.devices.get(device) != Some(uuid) {
                to.devices.insert(*device, uuid.clone());
            }
        }
    }

    /// Translates the ids of `row` from `from` to `to`, adding to `to` what is missing there.
    pub fn remap_row(&mut self, row: &mut Row, from: &Tables, to: &mut Tables) {
        match row {
            Row::Scope(row) => row.remap(self, from, to),
            Row::Sample(row) => row.remap(self, from, to),
            Row::Output(row) => row.remap(self, from, to),
            Row::Stack(row) => row.remap(self, from, to),
            Row::Log(row) => row.remap(self, from, to),
            Row::Call(row) => row.remap(self, from, to),
        }
    }

    /// Translates the stacks of events. Their other ids are texts, which a trace holds with its events.
    pub fn remap_stacks(&mut self, batch: &mut EventBatch, from: &Tables, to: &mut Tables) {
        match &mut batch.stack {
            Column::Same(stack) => *stack = self.stack(*stack, from, to),
            Column::Each(stacks) => {
                for stack in stacks {
                    *stack = self.stack(*stack, from, to);
                }
            }
        }
    }

    /// Translates stacks, resources and names of events: for readers that keep events while their source
    /// reads its tables anew.
    pub(crate) fn remap_events(&mut self, batch: &mut EventBatch, from: &Tables, to: &mut Tables) {
        self.remap_stacks(batch, from, to);
        for texts in [&mut batch.resource, &mut batch.name] {
            match texts {
                Column::Same(id) => *id = self.text(*id, from, to),
                Column::Each(ids) => ids.iter_mut().for_each(|id| *id = self.text(*id, from, to)),
            }
        }
    }

    /// Translates a text.
    pub(crate) fn text(&mut self, id: StringId, from: &Tables, to: &mut Tables) -> StringId {
        if let Some(new) = self.texts.of(id.0) {
            return StringId(new);
        }
        let new = string(id, from, to);
        // An id that means nothing may be any number.
        if (id.0 as usize) < from.counts().0 {
            self.texts.set(id.0, new.0);
        }
        new
    }

    /// Translates a frame.
    pub(crate) fn frame(frame: u32, from: &Tables, to: &mut Tables) -> u32 {
        let Frame { function, file, line, module, address } = from.frame(frame);
        let [function, file, module] = [function, file, module].map(|id| string(id, from, to));
        to.intern_frame(Frame { function, file, line, module, address })
    }

    /// Translates a stack.
    pub(crate) fn stack(&mut self, stack: StackId, from: &Tables, to: &mut Tables) -> StackId {
        // From the stack up to a caller that is known, then back down.
        let mut new = Vec::new();
        let mut at = stack;
        let mut id = StackId(0);
        while let Some((parent, frame)) = from.stack(at) {
            if let Some(known) = self.stacks.of(at.0) {
                id = StackId(known);
                break;
            }
            new.push((at, frame));
            // Parents come first; an entry that breaks that would make the walk endless.
            at = if parent.0 < at.0 { parent } else { StackId(0) };
        }
        for (of, frame) in new.into_iter().rev() {
            let frame = Self::frame(frame, from, to);
            id = to.intern_stack(id, frame);
            self.stacks.set(of.0, id.0);
        }
        id
    }
}

fn key(thread: &Thread) -> (ProcessId, u64, &str) {
    (thread.process, thread.thread, &thread.name)
}

fn string(id: StringId, from: &Tables, to: &mut Tables) -> StringId {
    to.intern(from.string(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_added_once_in_their_order() {
        let thread = |thread| Thread { process: ProcessId(1), thread, name: format!("worker {thread}") };
        let tables = |threads: &[u64]| {
            let mut tables = Tables::default();
            tables.threads.extend(threads.iter().copied().map(thread));
            tables
        };
        let mut to = tables(&[1, 2]);
        for from in [tables(&[2, 3]), tables(&[1, 2, 3]), tables(&[4, 1])] {
            IdMap::merge_names(&from, &mut to);
        }
        assert_eq!(to.threads, tables(&[1, 2, 3, 4]).threads);
    }

    #[test]
    fn a_stack_reads_the_same_wherever_it_is_brought() {
        let mut from = Tables::default();
        let mut stack = StackId(0);
        for name in ["main", "load", "alloc"] {
            let function = from.intern(name);
            let frame = from.intern_frame(Frame { function, ..Frame::default() });
            stack = from.intern_stack(stack, frame);
        }
        let mut to = Tables::default();
        to.intern("something else");
        let mut ids = IdMap::default();
        let (outer, _) = from.stack(stack).expect("three frames");
        let (new_outer, new) = (ids.stack(outer, &from, &mut to), ids.stack(stack, &from, &mut to));
        assert_eq!(to.stack_text(new), from.stack_text(stack));
        assert_eq!(to.stack(new).map(|(parent, _)| parent), Some(new_outer));
        assert_eq!(ids.stack(StackId(0), &from, &mut to), StackId(0));
        assert_eq!(ids.stack(StackId(99), &from, &mut to), StackId(0));
    }
}
