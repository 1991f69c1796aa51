//! Scopes and marks of an input: their names, how they nest, when iterations end.

use std::collections::{BTreeMap, HashMap, HashSet};

use floodmark_analyze::{Mark, ScopePaths, ScopeRoles};
use floodmark_event::{ProcessId, Row, ScopeAction, ScopeRow, Tables};
use floodmark_store::ScanProps;
use regex::Regex;

use crate::error::{Error, Result};
use crate::input::Input;
use crate::plain::plain;

/// Names that are suggested where a name is unknown.
const SUGGESTIONS: usize = 8;

/// What is known of an input's scopes, read once.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopeTable {
    roles: ScopeRoles,
    marks: Vec<Mark>,
    /// Read only when asked for: it grows with the number of scopes.
    paths: Option<ScopePaths>,
}

/// Whether the names that lead to scopes are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    Needed,
    NotNeeded,
}

impl ScopeTable {
    /// Reads all scope rows of `input`.
    pub(crate) fn read(input: &Input, needed: Paths) -> Result<Self> {
        let mut table = Self::default();
        let mut paths = ScopePaths::default();
        each(input, |row, tables| {
            let name = tables.string(row.name);
            if matches!(row.action, ScopeAction::Enter | ScopeAction::Begin) {
                table.roles.add(row.scope, name);
                if needed == Paths::Needed {
                    paths.add(row.scope, row.parent, name);
                }
            }
            table.marks.extend(Mark::of(row, tables));
        })?;
        table.paths = (needed == Paths::Needed).then_some(paths);
        Ok(table)
    }

    /// Whether it has what is needed.
    pub(crate) fn has(&self, needed: Paths) -> bool {
        needed == Paths::NotNeeded || self.paths.is_some()
    }
}

/// Hands every scope row of `input` to `visit`; none where reading them would use up its events.
fn each(input: &Input, mut visit: impl FnMut(&ScopeRow, &Tables)) -> Result<()> {
    let contents = input.contents();
    if !contents.has_rows || !contents.can_rewind {
        return Ok(());
    }
    if let Some(trace) = input.trace() {
        let mut scan = trace.rows::<ScopeRow>(&ScanProps::default())?;
        let mut rows = Vec::new();
        while scan.next(&mut rows)? {
            for row in &rows {
                visit(row, scan.tables());
            }
        }
        return Ok(());
    }
    // The scopes of a format without events concern no events.
    if !contents.has_events {
        return Ok(());
    }
    let (mut source, mut rows) = (input.rows(&ScanProps::default())?, Vec::new());
    while source.next(&mut rows)? {
        for row in &rows {
            if let Row::Scope(row) = row {
                visit(row, source.tables());
            }
        }
    }
    Ok(())
}

impl Input {
    /// Returns which scopes say how blocks began or ended.
    ///
    /// # Errors
    /// If the input is damaged.
    pub fn scope_roles(&self) -> Result<ScopeRoles> {
        self.scopes(Paths::NotNeeded, |scopes| scopes.roles.clone())
    }

    /// Returns the names that lead to scopes.
    ///
    /// # Errors
    /// If the input is damaged.
    pub fn scope_paths(&self) -> Result<ScopePaths> {
        self.scopes(Paths::Needed, |scopes| scopes.paths.clone().unwrap_or_default())
    }

    /// Returns the marks of a trace, in the order of time.
    ///
    /// # Errors
    /// If the input is damaged.
    pub(crate) fn marks(&self) -> Result<Vec<Mark>> {
        self.scopes(Paths::NotNeeded, |scopes| scopes.marks.clone())
    }

    /// Returns when iterations end, by process: where scopes named `name` are left, or the next mark of that
    /// name comes. If nothing has exactly that name, `name` is a regular expression.
    ///
    /// # Errors
    /// [`Error::NoContent`] suggests names if none matches.
    pub fn iteration_ends(&self, name: &str) -> Result<BTreeMap<ProcessId, Vec<i64>>> {
        let mut names: HashMap<String, u64> = HashMap::new();
        each(self, |row, tables| {
            if !matches!(row.action, ScopeAction::Exit | ScopeAction::End) {
                *names.entry(tables.string(row.name).to_owned()).or_default() += 1;
            }
        })?;
        let matching = matching(&names, name);
        if matching.is_empty() {
            return Err(unknown(self.name(), name, names));
        }
        let mut ends: BTreeMap<ProcessId, Vec<i64>> = BTreeMap::new();
        let mut entered: HashSet<u64> = HashSet::new();
        let mut marked: HashSet<ProcessId> = HashSet::new();
        each(self, |row, tables| match row.action {
            ScopeAction::Enter | ScopeAction::Begin if matching.contains(tables.string(row.name)) => {
                entered.insert(row.scope);
            }
            // A mark ends the iteration that began with the one before.
            ScopeAction::Mark
                if matching.contains(tables.string(row.name)) && !marked.insert(row.process) =>
            {
                ends.entry(row.process).or_default().push(row.time_ns);
            }
            ScopeAction::Exit | ScopeAction::End if entered.remove(&row.scope) => {
                ends.entry(row.process).or_default().push(row.time_ns);
            }
            _ => {}
        })?;
        Ok(ends)
    }
}

fn matching(names: &HashMap<String, u64>, name: &str) -> HashSet<String> {
    if names.contains_key(name) {
        return HashSet::from([name.to_owned()]);
    }
    let Ok(pattern) = Regex::new(name) else { return HashSet::new() };
    names.keys().filter(|name| pattern.is_match(name)).cloned().collect()
}

fn unknown(input: &str, name: &str, names: HashMap<String, u64>) -> Error {
    let message = format!("no scope or mark of {input} is called '{}'", plain(name));
    let mut repeated: Vec<(String, u64)> = names.into_iter().filter(|(_, count)| *count > 1).collect();
    repeated.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if repeated.is_empty() {
        return Error::no_content(
            message,
            "none comes more than once here; NVTX ranges, profiler scopes and marks can serve",
        );
    }
    let suggested = repeated.iter().take(SUGGESTIONS).map(|(name, count)| format!("'{name}' ({count})"));
    Error::no_content(
        message,
        format!("these come more than once: {}", suggested.collect::<Vec<_>>().join(", ")),
    )
}
