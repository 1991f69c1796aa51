//! Flame graphs: bytes of allocations by call path or, where there are none, stack samples.

use floodmark_analyze::{
    Caveats, Direction, Flame, FlameOf, FrameChoice, OriginTotalsFold, PathBy, PathRules, ScopePaths,
    SplitBy, StackCounts,
};
use floodmark_event::Row;
use floodmark_event::units::Instant;

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::Columns;
use crate::plain::plain;
use crate::query::Query;

/// Which flame graph to make.
#[derive(Clone, Debug)]
pub struct FlameProps {
    /// What the width of a box measures.
    pub of: FlameOf,
    /// Instant to look at instead of the peak.
    pub at: Option<Instant>,
    /// What each box is.
    pub by: PathBy,
    /// Whether callers or callees are at the bottom.
    pub direction: Direction,
    /// Which frames are shown.
    pub frames: FrameChoice,
}

/// What a flame graph is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameContent {
    /// Bytes or counts of allocations.
    Allocations,
    /// How often stacks were sampled, because there are no allocations.
    StackSamples,
    /// Resident bytes that traced calls gained, because there are no allocations.
    Calls,
}

impl Input {
    /// Makes a flame graph of allocations or, where there are none, of stack samples.
    ///
    /// # Errors
    /// If there is neither, or the input cannot be read.
    pub fn flame(&self, query: &Query<'_>, props: &FlameProps) -> Result<(Answer<Flame>, FlameContent)> {
        let contents = self.contents();
        if contents.has_events {
            let answer = self.flame_of_events(query, props)?;
            if answer.caveats.events_read > 0 || !contents.has_rows {
                return Ok((answer, FlameContent::Allocations));
            }
        }
        if self.has_calls() {
            match self.flame_of_calls(query, props.direction) {
                Err(Error::NoContent { .. }) => {}
                flame => return Ok((flame?, FlameContent::Calls)),
            }
        }
        Ok((self.flame_of_stacks(query, props)?, FlameContent::StackSamples))
    }

    fn flame_of_events(&self, query: &Query<'_>, props: &FlameProps) -> Result<Answer<Flame>> {
        let by_scope = props.by == PathBy::Scope;
        let scopes = if by_scope { self.scope_paths()? } else { ScopePaths::default() };
        let rules = PathRules { by: props.by, frames: props.frames, scopes, ..PathRules::default() };
        let split = if by_scope { SplitBy::Scope } else { SplitBy::Nothing };
        let folded = self.fold_any(query, Columns::All, OriginTotalsFold::new(props.at, split))?;
        let tables = folded.source.tables();
        Ok(folded.answer.map(|totals| Flame::of_weights(&totals, tables, &rules, props.of, props.direction)))
    }

    fn flame_of_stacks(&self, query: &Query<'_>, props: &FlameProps) -> Result<Answer<Flame>> {
        let mut counts = StackCounts::default();
        let source = self.each_row(query.progress, |rows, _| {
            for row in rows {
                if let Row::Stack(row) = row {
                    counts.add(row);
                }
            }
        })?;
        if counts.is_empty() {
            return Err(Error::no_content(
                format!("{} contains neither allocations nor stacks", plain(self.name())),
                "'floodmark run --stacks' takes stacks of what it runs; 'floodmark info' shows what an input contains",
            ));
        }
        let rules = PathRules { by: props.by, frames: props.frames, ..PathRules::default() };
        let flame = counts.flame(source.tables(), &rules, props.direction);
        let caveats = Caveats { events_read: 1, events_selected: 1, ..Caveats::default() };
        Ok(Answer { caveats, ..Answer::new(self.name(), &source.losses(), flame) })
    }
}
