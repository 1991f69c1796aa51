//! Reads two inputs and compares them.

use std::path::Path;

use anyhow::Result;
use floodmark_analyze::budget::MissingFigure;
use floodmark_analyze::{
    Budget, BudgetOutcome, Diff, DiffEvents, DiffParts, DiffSide, GroupBy, Leaks, LeaksFold, LeaksOptions,
    OriginTotals, OriginTotalsFold, PathRules, RunFold, RunMemory, ScopePaths, SplitBy, Stats, StatsFold,
    Watermark, WatermarkFold, WatermarkOptions,
};
use floodmark_convert::{OpenProps, open_samples};
use floodmark_event::Filter;
use floodmark_event::Row;
use floodmark_event::{Kind, Tables};
use floodmark_store::{Trace, is_trace};
use floodmark_view::usage::kinds_in_words;
use floodmark_view::{Caveats, Compared, Loss, Side, plain};

use crate::caveats::nothing_selected;
use crate::error::hinted;
use crate::pass::{fold_over, join_losses, losses, open, refuse_standard};
use crate::printer::Printer;
use crate::reporting::{each_row, holds, mark};
use crate::{run_memory, scopes};

/// How to compare.
#[derive(Clone, Debug)]
pub(crate) struct CompareProps<'a> {
    /// By what to group; none for what says most.
    pub(crate) by: Option<GroupBy>,
    pub(crate) rules: &'a [Budget],
    pub(crate) filter: Filter,
    pub(crate) open: OpenProps,
}

impl CompareProps<'_> {
    /// What the watermark groups by, so that either can be chosen afterwards.
    fn ways(&self) -> Vec<GroupBy> {
        self.by.map_or_else(|| vec![GroupBy::Size], |by| vec![by])
    }
}

/// What one input holds.
struct Gathered {
    side: Side,
    events: Option<Events>,
    run: Option<RunMemory>,
}

struct Events {
    stats: Stats,
    weights: OriginTotals,
    watermark: Watermark,
    leaks: Leaks,
    tables: Tables,
    rules: PathRules,
}

/// Reads both and compares them.
pub(crate) fn compare(
    before: &Path,
    after: &Path,
    props: &CompareProps<'_>,
    printer: &Printer,
) -> Result<Compared> {
    for path in [before, after] {
        refuse_standard(path, "a comparison looks at its inputs more than once")?;
    }
    let (first, second) = (gather(before, props, printer)?, gather(after, props, printer)?);
    let events = [&first.events, &second.events];
    let has_origins =
        events.iter().any(|events| events.as_ref().is_some_and(|events| events.weights.has_origins()));
    let by = props.by.unwrap_or(if has_origins { GroupBy::Site } else { GroupBy::Size });
    let side = |gathered: &Gathered| DiffSide {
        events: gathered.events.as_ref().map(|events| events.compared(by)),
        run: gathered.run.clone(),
    };
    let diff = Diff::new(&side(&first), &side(&second), by);
    if !props.rules.is_empty() {
        [&first, &second].into_iter().try_for_each(Gathered::refuse_nothing)?;
        refuse_other_kinds(&[&first, &second], &diff, props.rules)?;
    }
    let outcomes: Result<Vec<BudgetOutcome>> = props
        .rules
        .iter()
        .map(|rule| rule.check_growth(&diff).map_err(|error| cannot_check(&error)))
        .collect();
    let broken = outcomes?.into_iter().filter(|outcome| outcome.is_violated).collect();
    Ok(Compared { before: first.side, after: second.side, broken, diff })
}

impl Gathered {
    /// Refuses to check rules on an input of which nothing is looked at: they would hold whatever happened.
    fn refuse_nothing(&self) -> Result<()> {
        let Some(events) = &self.events else { return Ok(()) };
        let Side { source, caveats, .. } = &self.side;
        if caveats.events_read > 0 && caveats.events_selected == 0 && events.stats.peak_bytes == 0 {
            return Err(nothing_selected(source, caveats));
        }
        if caveats.events_read == 0 {
            return Err(hinted(
                format!("{} has no events, so there is nothing to check", plain(source)),
                "see whether recording worked; 'floodmark info' says what an input holds",
            ));
        }
        Ok(())
    }
}

/// Refuses to check figures that are about other memory on either side.
fn refuse_other_kinds(sides: &[&Gathered; 2], diff: &Diff, rules: &[Budget]) -> Result<()> {
    let both_have_events = sides.iter().all(|side| side.events.is_some());
    let is_about_events = rules.iter().any(|rule| rule.figure.needs_events());
    if !both_have_events || !is_about_events || diff.kinds_before == diff.kinds_after {
        return Ok(());
    }
    let about = |side: &Gathered, kinds: &[Kind]| {
        format!("{} is about {} memory", plain(&side.side.source), kinds_in_words(kinds))
    };
    let [first, second] = sides;
    Err(hinted(
        format!(
            "rules cannot be checked: {} and {}",
            about(first, &diff.kinds_before),
            about(second, &diff.kinds_after)
        ),
        "choose a kind that both have, as in --kind device; 'floodmark info' says which there are",
    ))
}

fn cannot_check(error: &MissingFigure) -> anyhow::Error {
    hinted(
        error.to_string(),
        "'floodmark info' says what an input holds; leave the rule out or choose another figure",
    )
}

impl Events {
    fn compared(&self, by: GroupBy) -> DiffEvents {
        let Self { stats, weights, watermark, leaks, tables, rules } = self;
        DiffEvents::new(DiffParts { stats, weights, watermark, leaks, tables }, by, rules)
    }
}

fn gather(path: &Path, props: &CompareProps<'_>, printer: &Printer) -> Result<Gathered> {
    let source = path.display().to_string();
    let (has_events, has_samples) = holds(path, &props.open)?;
    let mut gathered = Gathered {
        side: Side { source, losses: Vec::new(), caveats: Caveats::default() },
        events: None,
        run: None,
    };
    if has_events {
        read_events(path, props, &mut gathered, printer)?;
    }
    if has_samples {
        gathered.run = run(path, props, &mut gathered.side.losses, printer)?;
    }
    if gathered.run.is_some() && gathered.side.caveats.events_read == 0 {
        gathered.events = None;
    }
    if gathered.events.is_none() && gathered.run.is_none() {
        return Err(hinted(
            format!("{} has nothing to compare", plain(&gathered.side.source)),
            "'floodmark info' says what it holds",
        ));
    }
    Ok(gathered)
}

fn read_events(
    path: &Path,
    props: &CompareProps<'_>,
    gathered: &mut Gathered,
    printer: &Printer,
) -> Result<()> {
    let by_scope = props.by == Some(GroupBy::Scope);
    let split = if by_scope { SplitBy::Scope } else { SplitBy::Nothing };
    let names = if by_scope { scopes::paths(path, &props.open)? } else { ScopePaths::default() };
    let watermark =
        WatermarkOptions { group_by: props.ways(), limit: Some(0), ..WatermarkOptions::default() };
    let leaks =
        LeaksOptions { limit: Some(0), scopes: scopes::roles(path, &props.open)?, ..LeaksOptions::default() };
    let folds = (
        StatsFold::default(),
        OriginTotalsFold::new(None, split),
        WatermarkFold::new(watermark),
        LeaksFold::new(leaks),
    );
    let mut source = open(path, &props.open)?;
    let (report, _) = fold_over(source.as_mut(), &gathered.side.source, &props.filter, folds, printer)?;
    gathered.side.losses = report.losses;
    // Of a trace that has no events at all there may be samples.
    if report.caveats.events_read > 0 || !is_trace(path) {
        let (stats, weights, watermark, leaks) = report.result;
        let rules = PathRules { scopes: names, ..PathRules::default() };
        let tables = source.tables().clone();
        gathered.side.caveats = report.caveats;
        gathered.events = Some(Events { stats, weights, watermark, leaks, tables, rules });
    }
    Ok(())
}

/// What was sampled of processes; none if nothing was.
fn run(
    path: &Path,
    props: &CompareProps<'_>,
    lost: &mut Vec<Loss>,
    printer: &Printer,
) -> Result<Option<RunMemory>> {
    if is_trace(path) {
        let known = run_memory::of(&Trace::open(path)?, Some(0))?;
        return Ok(known.map(|(memory, losses_of)| {
            join_losses(lost, losses(&losses_of));
            memory
        }));
    }
    let name = path.display().to_string();
    let (mut marks, mut source) = (Vec::new(), open_samples(path, &props.open)?);
    each_row(source.as_mut(), &name, printer, |rows, tables| {
        marks.extend(rows.iter().filter_map(|row| mark(row, tables)));
    })?;
    let mut fold = RunFold::new(&source.tables().subjects, marks);
    let (mut source, mut samples, mut count) = (open_samples(path, &props.open)?, Vec::new(), 0);
    each_row(source.as_mut(), &name, printer, |rows, _| {
        samples.clear();
        samples.extend(rows.iter().filter_map(|row| match row {
            Row::Sample(row) => Some(*row),
            _ => None,
        }));
        count += samples.len();
        fold.update(&samples);
    })?;
    // What an allocator counted itself is no look from outside.
    let memory = fold.finish(Some(0));
    Ok((count > 0 && memory.peak_rss_bytes > 0).then_some(memory))
}
