//! Ranges of a program: scopes and NVTX ranges, as a lane under a timeline shows them.
//!
//! A program may have millions of them, and a lane has room for few: the longest are kept.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use floodmark_event::{
    BEFORE_CAPTURE, CONTEXT_TEARDOWN, LIVE_SNAPSHOT, Row, ScopeAction, ScopeRow, StringId, Tables,
};
use rustc_hash::FxHashMap;

/// Ranges that are kept at most.
pub const MOST_RANGES: usize = 2000;
/// Rows of a lane at most; ranges that are nested deeper are left out.
pub const MOST_ROWS: usize = 12;

/// A named extent of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRange {
    /// Its name.
    pub name: String,
    /// Nanoseconds since the Unix epoch at which it began.
    pub from_ns: i64,
    /// Nanoseconds since the Unix epoch at which it ended; the time of the last row if it did not.
    pub to_ns: i64,
    /// Row of the lane, counted from 0; ranges of a row do not overlap.
    pub row: usize,
}

/// Ranges of a program, in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// The ranges, in order of their beginnings.
    pub list: Vec<NamedRange>,
    /// Number of shorter or deeper ones that are left out.
    pub omitted: u64,
}

/// Length, beginning and name of a range; the shortest is the least.
type Ended = (u64, Reverse<i64>, StringId);

/// Folds rows into [`Ranges`].
#[derive(Clone, Debug, Default)]
pub struct RangesFold {
    open: FxHashMap<u64, (i64, StringId)>,
    /// The longest so far, the shortest of them first.
    longest: BinaryHeap<Reverse<Ended>>,
    omitted: u64,
    last_ns: Option<i64>,
}

impl RangesFold {
    /// Takes in a row of any table; rows come in the order of time.
    pub fn row(&mut self, row: &Row, tables: &Tables) {
        match row {
            Row::Scope(row) => self.update(row, tables),
            row => self.reach(row.time_ns()),
        }
    }

    /// Takes in a scope that was entered or left.
    pub fn update(&mut self, row: &ScopeRow, tables: &Tables) {
        self.reach(row.time_ns);
        match row.action {
            ScopeAction::Enter | ScopeAction::Begin => {
                if is_shown(tables.string(row.name)) {
                    self.open.insert(row.scope, (row.time_ns, row.name));
                }
            }
            ScopeAction::Exit | ScopeAction::End => {
                if let Some((from_ns, name)) = self.open.remove(&row.scope) {
                    let ended = (row.time_ns.abs_diff(from_ns), Reverse(from_ns), name);
                    self.omitted += keep(&mut self.longest, ended);
                }
            }
            ScopeAction::Mark => {}
        }
    }

    /// Notes that something happened at `time_ns`, until which open ranges last.
    pub fn reach(&mut self, time_ns: i64) {
        self.last_ns = self.last_ns.max(Some(time_ns));
    }

    /// Returns the ranges so far.
    pub fn finish(&self, tables: &Tables) -> Ranges {
        let (mut longest, mut omitted) = (self.longest.clone(), self.omitted);
        for (from_ns, name) in self.open.values() {
            let length = self.last_ns.unwrap_or(*from_ns).saturating_sub(*from_ns).max(0) as u64;
            omitted += keep(&mut longest, (length, Reverse(*from_ns), *name));
        }
        let mut ranges: Vec<Ended> = longest.into_iter().map(|Reverse(ended)| ended).collect();
        // A range that holds another begins no later and is longer.
        ranges.sort_by_key(|(length, Reverse(from_ns), name)| (*from_ns, Reverse(*length), *name));
        let mut rows: Vec<i64> = Vec::new();
        let mut list = Vec::new();
        for (length, Reverse(from_ns), name) in ranges {
            let free = rows.iter().position(|end_ns| *end_ns <= from_ns);
            let row = free.unwrap_or(rows.len());
            if row == MOST_ROWS {
                omitted += 1;
                continue;
            }
            let to_ns = from_ns.saturating_add_unsigned(length);
            // An instant takes up its row for that instant.
            let end_ns = to_ns.max(from_ns.saturating_add(1));
            match free {
                Some(row) => rows[row] = end_ns,
                None => rows.push(end_ns),
            }
            list.push(NamedRange { name: tables.string(name).to_owned(), from_ns, to_ns, row });
        }
        Ranges { list, omitted }
    }
}

/// Whether the name of a range says something to a reader.
fn is_shown(name: &str) -> bool {
    !name.trim().is_empty() && ![BEFORE_CAPTURE, CONTEXT_TEARDOWN, LIVE_SNAPSHOT].contains(&name)
}

/// Keeps a range if it is one of the longest; returns the number of ranges that were dropped.
fn keep(longest: &mut BinaryHeap<Reverse<Ended>>, ended: Ended) -> u64 {
    longest.push(Reverse(ended));
    if longest.len() <= MOST_RANGES {
        return 0;
    }
    longest.pop();
    1
}

#[cfg(test)]
mod tests {
    use floodmark_event::ProcessId;
    use floodmark_event::ScopeAction::{Begin, End, Enter, Exit, Mark};

    use super::*;

    fn row(time_ns: i64, action: ScopeAction, scope: u64, name: StringId) -> ScopeRow {
        ScopeRow { time_ns, process: ProcessId(0), thread: 1, action, scope, parent: 0, name }
    }

    #[test]
    fn ranges_nest_in_rows_and_open_ones_last_until_the_end() {
        let mut tables = Tables::default();
        let [epoch, step, io, none] = ["epoch", "step", "io", " "].map(|name| tables.intern(name));
        let hidden = tables.intern(BEFORE_CAPTURE);
        let mut fold = RangesFold::default();
        for row in [
            row(10, Enter, 1, epoch),
            row(10, Enter, 2, step),
            row(15, Begin, 9, io),
            row(16, Enter, 3, none),
            row(16, Enter, 4, hidden),
            row(20, Exit, 2, StringId(0)),
            row(20, Enter, 5, step),
            row(25, End, 9, StringId(0)),
            row(26, Mark, 0, io),
            row(30, Exit, 5, StringId(0)),
            row(40, Exit, 77, StringId(0)),
        ] {
            fold.update(&row, &tables);
        }
        let found = fold.finish(&tables);
        let list: Vec<_> =
            found.list.iter().map(|one| (&*one.name, one.from_ns, one.to_ns, one.row)).collect();
        let expected = [("epoch", 10, 40, 0), ("step", 10, 20, 1), ("io", 15, 25, 2), ("step", 20, 30, 1)];
        assert_eq!((list, found.omitted), (expected.to_vec(), 0));
    }

    #[test]
    fn the_longest_are_kept_and_what_is_too_deep_is_counted() {
        let mut tables = Tables::default();
        let name = tables.intern("turn");
        let mut fold = RangesFold::default();
        let count = MOST_RANGES as i64 + 500;
        let mut at = 0;
        for turn in 0..count {
            fold.update(&row(at, ScopeAction::Enter, 1, name), &tables);
            at += turn + 1;
            fold.update(&row(at, ScopeAction::Exit, 1, StringId(0)), &tables);
        }
        let found = fold.finish(&tables);
        assert_eq!((found.list.len(), found.omitted), (MOST_RANGES, 500));
        assert!(found.list.iter().all(|one| one.to_ns - one.from_ns > 500 && one.row == 0));
        let mut deep = RangesFold::default();
        for scope in 0..20 {
            deep.update(&row(scope, ScopeAction::Enter, scope as u64 + 1, name), &tables);
        }
        deep.reach(100);
        let found = deep.finish(&tables);
        assert_eq!((found.list.len(), found.omitted), (MOST_ROWS, 20 - MOST_ROWS as u64));
    }

    #[test]
    fn ranges_of_a_row_never_overlap() {
        let mut tables = Tables::default();
        let name = tables.intern("range");
        let mut fold = RangesFold::default();
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut rows = Vec::new();
        for scope in 1..400 {
            let from = random(1000) as i64;
            rows.push(row(from, ScopeAction::Begin, scope, name));
            rows.push(row(from + random(60) as i64, ScopeAction::End, scope, StringId(0)));
        }
        rows.sort_by_key(|row| row.time_ns);
        for row in &rows {
            fold.update(row, &tables);
        }
        let found = fold.finish(&tables);
        assert!(found.list.len() > 300);
        for (at, one) in found.list.iter().enumerate() {
            let later = found.list[at + 1..].iter().filter(|other| other.row == one.row);
            for other in later {
                assert!(other.from_ns >= one.to_ns && other.from_ns > one.from_ns, "{one:?} {other:?}");
            }
        }
    }
}
