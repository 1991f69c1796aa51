//! Events counted and added up by the columns that a query uses.
//!
//! SQLite groups by sorting row by row, which takes minutes where there are hundreds of millions of events. This table
//! has a row for every combination of values of those columns that a query names, and no other: grouping its few rows
//! again costs nothing. Sites are looked up once for every stack, after everything was counted.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use floodmark_analyze::SiteRules;
use floodmark_event::{
    Action, EventBatch, Kind, NO_DEVICE, ProcessId, StackId, StringId, Tables, UNKNOWN_BYTES,
};
use floodmark_store::{ScanProps, Source as _, Trace};
use rusqlite::types::Value;
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::pass::read_ahead;

/// Columns of the table: those to group by, and what is counted.
pub(super) const TOTAL_COLUMNS: [(&str, &str); 11] = [
    ("process", "INTEGER"),
    ("thread", "INTEGER"),
    ("action", "TEXT"),
    ("device", "INTEGER"),
    ("stream", "INTEGER"),
    ("kind", "TEXT"),
    ("resource", "TEXT"),
    ("name", "TEXT"),
    ("site", "TEXT"),
    ("events", "INTEGER"),
    ("bytes", "INTEGER"),
];
/// How many of them are to group by.
const KEYS: usize = 9;
const SITE: usize = 8;
const BYTES: usize = 10;
/// Most combinations that are counted, which take about 400 MB.
const MOST: usize = 4 << 20;

/// Combinations of the values of the columns up to one: the combination of those before it, and its value.
#[derive(Default)]
struct Level {
    ids: FxHashMap<(u32, u64), u32>,
    entries: Vec<(u32, u64)>,
}

impl Level {
    /// Turns the combinations of rows into those with one more column.
    fn refine(&mut self, combinations: &mut [u32], value: impl Fn(usize) -> u64) {
        let mut last = None;
        for (row, combination) in combinations.iter_mut().enumerate() {
            let key = (*combination, value(row));
            *combination = match last {
                Some((same, id)) if same == key => id,
                _ => {
                    let entries = &mut self.entries;
                    *self.ids.entry(key).or_insert_with(|| {
                        entries.push(key);
                        entries.len() as u32 - 1
                    })
                }
            };
            last = Some((key, *combination));
        }
    }
}

#[derive(Default)]
struct Counted {
    /// Columns to group by that are used, each with its combinations.
    levels: Vec<(usize, Level)>,
    combinations: Vec<u32>,
    sums: Vec<(u64, u64)>,
}

impl Counted {
    fn update(&mut self, batch: &EventBatch, has_bytes: bool) {
        self.combinations.clear();
        self.combinations.resize(batch.len(), 0);
        let combinations = &mut self.combinations[..];
        for (column, level) in &mut self.levels {
            match *column {
                0 => level.refine(combinations, |row| u64::from(batch.process.at(row).0)),
                1 => level.refine(combinations, |row| batch.thread.at(row)),
                2 => level.refine(combinations, |row| batch.action.at(row) as u64),
                3 => level.refine(combinations, |row| i64::from(batch.device.at(row)) as u64),
                4 => level.refine(combinations, |row| batch.stream.at(row)),
                5 => level.refine(combinations, |row| batch.kind.at(row) as u64),
                6 => level.refine(combinations, |row| u64::from(batch.resource.at(row).0)),
                7 => level.refine(combinations, |row| u64::from(batch.name.at(row).0)),
                _ => level.refine(combinations, |row| {
                    u64::from(batch.stack.at(row).0) << 32 | u64::from(batch.name.at(row).0)
                }),
            }
        }
        let count = self.levels.last().map_or(1, |(_, level)| level.entries.len());
        self.sums.resize(count, (0, 0));
        for (row, combination) in combinations.iter().enumerate() {
            let (events, bytes) = &mut self.sums[*combination as usize];
            *events += 1;
            if has_bytes && batch.bytes.at(row) != UNKNOWN_BYTES {
                *bytes = bytes.saturating_add(batch.bytes.at(row));
            }
        }
    }

    /// The combinations, sites as indexes of `sites`.
    fn finish(&self, tables: &Tables, sites: &mut Vec<String>) -> BTreeMap<Vec<u64>, (u64, u64)> {
        let (mut ids, rules) = (FxHashMap::<String, u64>::default(), SiteRules::default());
        let mut site_of = |at: u64| {
            let (stack, name) = (StackId((at >> 32) as u32), StringId(at as u32));
            let text = rules.site(stack, name, tables);
            *ids.entry(text).or_insert_with_key(|text| {
                sites.push(text.clone());
                sites.len() as u64 - 1
            })
        };
        let site_ids: Vec<u64> = match self.levels.last() {
            Some((SITE, level)) => {
                let mut known = FxHashMap::default();
                level
                    .entries
                    .iter()
                    .map(|(_, at)| *known.entry(*at).or_insert_with(|| site_of(*at)))
                    .collect()
            }
            _ => Vec::new(),
        };
        let mut rows: BTreeMap<Vec<u64>, (u64, u64)> = BTreeMap::new();
        for (at, (events, bytes)) in self.sums.iter().enumerate() {
            let (mut key, mut combination) = (vec![0; self.levels.len()], at as u32);
            for (place, (column, level)) in self.levels.iter().enumerate().rev() {
                let (before, value) = level.entries[combination as usize];
                key[place] = if *column == SITE { site_ids[combination as usize] } else { value };
                combination = before;
            }
            let row = rows.entry(key).or_default();
            row.0 += events;
            row.1 = row.1.saturating_add(*bytes);
        }
        rows
    }
}

/// Reads the events of some processes and returns the rows of the table, in which columns that are not used are empty.
pub(super) fn totals(
    trace: &Arc<Trace>,
    used: u64,
    processes: Option<Vec<ProcessId>>,
) -> Result<Vec<Vec<Value>>> {
    let is_used = |at: usize| used >> at & 1 == 1;
    let mut columns: Vec<&'static str> = Vec::new();
    for (at, (name, _)) in TOTAL_COLUMNS.iter().enumerate().filter(|(at, _)| is_used(*at)) {
        match at {
            SITE => columns.extend(["stack", "name"]),
            9 => {}
            _ => columns.push(name),
        }
    }
    let mut source = trace.scan(&ScanProps { columns: Some(columns), processes, ..ScanProps::default() })?;
    let levels = (0..KEYS).filter(|at| is_used(*at)).map(|at| (at, Level::default())).collect();
    let mut counted = Counted { levels, ..Counted::default() };
    let mut is_too_much = false;
    read_ahead(&mut source, "", &(), |batch| {
        counted.update(batch, is_used(BYTES));
        is_too_much = counted.sums.len() > MOST;
        if is_too_much { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if is_too_much {
        return Err(Error::unsuitable(
            format!("the table totals would have more than {MOST} rows"),
            "use fewer of its columns, or the table events",
        ));
    }
    let (tables, mut sites) = (source.tables(), Vec::new());
    let rows = counted.finish(tables, &mut sites);
    let text = |id: u64| match tables.string(StringId(id as u32)) {
        "" => Value::Null,
        text => Value::Text(text.to_owned()),
    };
    let value = |column: usize, value: u64| match column {
        2 => Action::from_number(value as u8).map_or(Value::Null, |one| Value::Text(one.name().to_owned())),
        3 if value as i64 == i64::from(NO_DEVICE) => Value::Null,
        5 => Kind::from_number(value as u8).map_or(Value::Null, |one| Value::Text(one.name().to_owned())),
        6 | 7 => text(value),
        SITE => Value::Text(sites[value as usize].clone()),
        _ => Value::Integer(value as i64),
    };
    let row = |(key, (events, bytes)): (Vec<u64>, (u64, u64))| {
        let mut row = vec![Value::Null; TOTAL_COLUMNS.len()];
        for ((column, _), code) in counted.levels.iter().zip(key) {
            row[*column] = value(*column, code);
        }
        (row[9], row[10]) = (Value::Integer(events as i64), Value::Integer(bytes as i64));
        row
    };
    Ok(rows.into_iter().filter(|(_, (events, _))| *events > 0).map(row).collect())
}
