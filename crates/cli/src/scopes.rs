//! Reads the names of scopes, which events know by number only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{ScopePaths, ScopeRoles};
use floodmark_convert::{OpenProps, Opened, open_any};
use floodmark_event::Row;
use floodmark_event::{ProcessId, ScopeAction, ScopeRow};
use floodmark_store::{ScanProps, Trace, is_trace};
use floodmark_view::plain;
use regex::Regex;

use crate::error::hinted;
use crate::whole_file::is_standard;

/// Names that are offered.
const SUGGESTIONS: usize = 8;

/// Hands every row of scopes that an input has to `visit`, with its name.
///
/// What can be read only once has none: its events are read afterwards.
fn each(path: &Path, props: &OpenProps, mut visit: impl FnMut(&ScopeRow, &str)) -> Result<()> {
    if is_standard(path) {
        return Ok(());
    }
    if is_trace(path) {
        let trace = Trace::open(path)?;
        let mut scan = trace.rows::<ScopeRow>(&ScanProps::default())?;
        let mut rows = Vec::new();
        while scan.next(&mut rows)? {
            for row in &rows {
                visit(row, scan.tables().string(row.name));
            }
        }
        return Ok(());
    }
    let Opened::Both(_, mut seen) = open_any(path, props)? else { return Ok(()) };
    let mut rows = Vec::new();
    while seen.next(&mut rows)? {
        for row in &rows {
            if let Row::Scope(row) = row {
                visit(row, seen.tables().string(row.name));
            }
        }
    }
    Ok(())
}

/// Which scopes say how blocks began or ended.
pub(crate) fn roles(path: &Path, props: &OpenProps) -> Result<ScopeRoles> {
    let mut roles = ScopeRoles::default();
    each(path, props, |row, name| {
        if row.action == ScopeAction::Enter {
            roles.add(row.scope, name);
        }
    })?;
    Ok(roles)
}

/// The names that lead to scopes.
pub(crate) fn paths(path: &Path, props: &OpenProps) -> Result<ScopePaths> {
    let mut paths = ScopePaths::default();
    each(path, props, |row, name| {
        if row.action == ScopeAction::Enter {
            paths.add(row.scope, row.parent, name);
        }
    })?;
    Ok(paths)
}

/// When iterations end, by process: where scopes called `name` are left, or the next mark called so comes.
///
/// Where nothing is called exactly so, `name` is a pattern.
pub(crate) fn iteration_ends(
    path: &Path,
    props: &OpenProps,
    name: &str,
) -> Result<BTreeMap<ProcessId, Vec<i64>>> {
    let mut names: HashMap<String, u64> = HashMap::new();
    each(path, props, |row, name| {
        if row.action != ScopeAction::Exit {
            *names.entry(name.to_owned()).or_default() += 1;
        }
    })?;
    let matching = matching(&names, name);
    if matching.is_empty() {
        return Err(unknown(path, name, names));
    }
    let mut ends: BTreeMap<ProcessId, Vec<i64>> = BTreeMap::new();
    let mut entered: HashSet<u64> = HashSet::new();
    let mut marked: HashSet<ProcessId> = HashSet::new();
    each(path, props, |row, name| match row.action {
        ScopeAction::Enter if matching.contains(name) => {
            entered.insert(row.scope);
        }
        // A mark ends the iteration that began with the one before.
        ScopeAction::Mark if matching.contains(name) && !marked.insert(row.process) => {
            ends.entry(row.process).or_default().push(row.time_ns);
        }
        ScopeAction::Exit if entered.remove(&row.scope) => {
            ends.entry(row.process).or_default().push(row.time_ns);
        }
        _ => {}
    })?;
    Ok(ends)
}

fn matching(names: &HashMap<String, u64>, name: &str) -> HashSet<String> {
    if names.contains_key(name) {
        return HashSet::from([name.to_owned()]);
    }
    let Ok(pattern) = Regex::new(name) else { return HashSet::new() };
    names.keys().filter(|name| pattern.is_match(name)).cloned().collect()
}

/// Says that nothing is called so, and what is.
fn unknown(path: &Path, name: &str, names: HashMap<String, u64>) -> anyhow::Error {
    let message = format!("no scope or mark of {} is called '{}'", path.display(), plain(name));
    let mut repeated: Vec<(String, u64)> = names.into_iter().filter(|(_, count)| *count > 1).collect();
    repeated.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if repeated.is_empty() {
        return hinted(
            message,
            "none comes more than once here; NVTX ranges, profiler scopes and marks can serve",
        );
    }
    let offered = repeated.iter().take(SUGGESTIONS).map(|(name, count)| format!("'{name}' ({count})"));
    hinted(message, format!("these come more than once: {}", offered.collect::<Vec<_>>().join(", ")))
}
