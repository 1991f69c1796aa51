//! Finds the user's code that a stack without any belongs to.
//!
//! Threads of a library, such as those of BLAS, take memory for the thread that called the library. And now and then
//! the frames of an interpreter cannot be read. Then another stack of the process shows the user's code: an earlier
//! one of the same thread, or that of a thread which is in the same library.

use std::collections::VecDeque;

use floodmark_event::{StackId, StackSampleRow, StringId, Tables};
use rustc_hash::FxHashMap;

use super::stack::waits;
use crate::site::SiteRules;

/// Instants at which stacks were taken to look back on.
const LOOK_BACK: u64 = 4;
/// Stacks that are kept of a process.
const MOST_STACKS: usize = 64;

/// Latest stacks with code of the user, by subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Callers {
    of_subject: FxHashMap<u64, Recent>,
    /// Whether a stack has code of the user.
    known: FxHashMap<StackId, bool>,
    rules: SiteRules,
}

#[derive(Clone, Debug, Default)]
struct Recent {
    taken_ns: Option<i64>,
    /// Number of the latest instant.
    instant: u64,
    stacks: VecDeque<(u64, StackSampleRow)>,
}

impl Callers {
    fn is_users(&mut self, stack: StackId, tables: &Tables) -> bool {
        *self.known.entry(stack).or_insert_with(|| self.rules.has_user_code(stack, tables))
    }

    /// Takes in a stack.
    pub(super) fn add(&mut self, row: &StackSampleRow, tables: &Tables) {
        let is_users = self.is_users(row.stack, tables);
        let recent = self.of_subject.entry(row.subject).or_default();
        if recent.taken_ns.replace(row.time_ns) != Some(row.time_ns) {
            recent.instant += 1;
        }
        if is_users {
            if recent.stacks.len() == MOST_STACKS {
                recent.stacks.pop_front();
            }
            recent.stacks.push_back((recent.instant, *row));
        }
    }

    /// Returns the stack to show instead of `row`, which is one of the latest instant; none if it has code of the
    /// user itself, or if there is no other.
    pub(super) fn caller(&mut self, row: &StackSampleRow, tables: &Tables) -> Option<StackSampleRow> {
        if self.is_users(row.stack, tables) {
            return None;
        }
        let library = self.rules.frame_of(row.stack, tables).map(|frame| frame.module);
        let library = library.filter(|module| *module != StringId(0));
        let recent = self.of_subject.get(&row.subject)?;
        let is_in_library = |stack| tables.frames_of(stack).any(|frame| Some(frame.module) == library);
        let callers = recent.stacks.iter().filter(|(instant, caller)| {
            recent.instant - instant < LOOK_BACK
                && (caller.thread == row.thread || is_in_library(caller.stack))
        });
        let fit = |(instant, caller): &&(u64, StackSampleRow)| {
            (
                *instant,
                !waits(caller.stack, tables),
                caller.thread == row.thread,
                std::cmp::Reverse(caller.thread),
            )
        };
        callers.max_by_key(fit).map(|(_, caller)| *caller)
    }
}
