//! Compares two inputs.

use floodmark_analyze::budget::{BudgetFigure, MissingFigure};
use floodmark_analyze::{
    Budget, BudgetOutcome, Caveats, Diff, DiffEvents, DiffParts, DiffSide, GroupBy, Leaks, LeaksFold,
    LeaksOptions, OriginTotals, OriginTotalsFold, PathRules, RunFold, RunMemory, ScopePaths, SplitBy, Stats,
    StatsFold, Watermark, WatermarkFold, WatermarkOptions,
};
use floodmark_event::units::{format_bytes, format_count};
use floodmark_event::{Kind, Row, Tables};
use serde::{Serialize, Serializer};

use crate::answer::{Answer, Loss, join_losses};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::job::Job;
use crate::page::mark_of;
use crate::pass::Columns;
use crate::plain::plain;
use crate::query::Query;

/// One of the inputs of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// File or trace as the user named it.
    pub source: String,
    /// Losses that concern its figures, and remarks on the input. In JSON each has a list of its own.
    #[serde(flatten, serialize_with = "crate::answer::split_losses::serialize")]
    pub losses: Vec<Loss>,
    /// Counts of events that make its figures less certain.
    pub caveats: Caveats,
}

/// A comparison and what it compares.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The first input.
    pub before: Side,
    /// The second input.
    pub after: Side,
    /// If figures are of one process of a job on average: how many processes there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_process: Option<PerProcess>,
    /// Budgets that growth exceeds.
    #[serde(serialize_with = "serialize_growth")]
    pub broken: Vec<BudgetOutcome>,
    /// What changed.
    #[serde(flatten)]
    pub diff: Diff,
}

/// By what the figures of jobs were divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PerProcess {
    /// Processes of the first job.
    pub before: u64,
    /// Processes of the second job.
    pub after: u64,
    /// Whether a peak is an upper bound, because it was not searched for.
    pub bounds: bool,
}

/// How to compare.
#[derive(Clone, Debug, Default)]
pub struct CompareProps<'a> {
    /// What to group by; without it, by site where origins are known and by size otherwise.
    pub by: Option<GroupBy>,
    /// Budgets that growth from the first input to the second must keep.
    pub rules: &'a [Budget],
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
    totals: OriginTotals,
    watermark: Watermark,
    leaks: Leaks,
    tables: Tables,
    rules: PathRules,
}

/// Reads both inputs and compares them.
///
/// # Errors
/// If there is nothing to compare, rules cannot be checked, or an input cannot be read.
pub fn compare(
    before: &Input,
    after: &Input,
    query: &Query<'_>,
    props: &CompareProps<'_>,
) -> Result<Compared> {
    for input in [before, after] {
        input.need_rewind("a comparison reads its inputs more than once")?;
    }
    let (first, second) = (gather(before, query, props)?, gather(after, query, props)?);
    let events = [&first.events, &second.events];
    let has_origins =
        events.iter().any(|events| events.as_ref().is_some_and(|events| events.totals.has_origins()));
    let by = props.by.unwrap_or(if has_origins { GroupBy::Site } else { GroupBy::Size });
    let side = |gathered: &Gathered| DiffSide {
        events: gathered.events.as_ref().map(|events| events.compared(by)),
        run: gathered.run.clone(),
        process_peaks: None,
    };
    let diff = Diff::new(&side(&first), &side(&second), by);
    if !props.rules.is_empty() {
        [&first, &second].into_iter().try_for_each(Gathered::refuse_nothing)?;
        refuse_other_kinds(&[&first, &second], &diff, props.rules)?;
    }
    let broken = broken(props.rules, &diff)?;
    Ok(Compared { before: first.side, after: second.side, per_process: None, broken, diff })
}

/// Rules that do not hold.
fn broken(rules: &[Budget], diff: &Diff) -> Result<Vec<BudgetOutcome>> {
    let check = |rule: &Budget| rule.check_growth(diff).map_err(|error| cannot_check(&error));
    let outcomes: Result<Vec<BudgetOutcome>> = rules.iter().map(check).collect();
    Ok(outcomes?.into_iter().filter(|outcome| outcome.is_violated).collect())
}

/// Compares two jobs, which may have different numbers of processes, by their figures per process.
///
/// # Errors
/// If one of them has no events, or rules cannot be checked.
pub fn compare_jobs(before: &Job, after: &Job, props: &CompareProps<'_>) -> Result<Compared> {
    let jobs = [before, after];
    let has_origins = jobs.iter().any(|job| job.has_origins());
    let by = props.by.unwrap_or(if has_origins { GroupBy::Site } else { GroupBy::Size });
    let bounds = jobs.iter().any(|job| !job.is_complete());
    let gather = |job: &Job| -> Result<(Side, DiffSide, u64)> {
        let stats = job.stats()?;
        let leaks = job.leaks(LeaksOptions { limit: Some(0), ..LeaksOptions::default() })?;
        let options = WatermarkOptions { group_by: vec![by], limit: Some(0), ..WatermarkOptions::default() };
        // Holders of one side alone would all look as if they were new or gone.
        let watermark = if bounds { None } else { job.holders(options)? };
        let peaks = job.processes(Some(0))?.result;
        let Answer { source, losses, caveats, result } = stats;
        let events =
            DiffEvents::per_process(&result.stats, &leaks.result, watermark.as_ref(), peaks.processes);
        let highest = peaks.quantiles.last().map_or(0, |quantile| quantile.bytes);
        let process_peaks = Some((peaks.imbalance.median_bytes, highest));
        let side = DiffSide { events: Some(events), run: None, process_peaks };
        Ok((Side { source, losses, caveats }, side, peaks.processes))
    };
    let ((first, one, first_count), (second, other, second_count)) = (gather(before)?, gather(after)?);
    let diff = Diff::new(&one, &other, by);
    if !props.rules.is_empty() && diff.kinds_before != diff.kinds_after {
        return Err(Error::unsuitable(
            "rules cannot be checked: the jobs are about different kinds of memory",
            "make both partial results with the same --kind",
        ));
    }
    let per_process = Some(PerProcess { before: first_count, after: second_count, bounds });
    Ok(Compared { before: first, after: second, per_process, broken: broken(props.rules, &diff)?, diff })
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
            return Err(Error::unsuitable(
                format!("{} has no events, so there is nothing to check", plain(source)),
                "see whether recording worked; 'floodmark info' shows what an input contains",
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
        format!(
            "{} is about {} memory",
            plain(&side.side.source),
            kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and ")
        )
    };
    let [first, second] = sides;
    Err(Error::unsuitable(
        format!(
            "rules cannot be checked: {} and {}",
            about(first, &diff.kinds_before),
            about(second, &diff.kinds_after)
        ),
        "choose a kind that both have, as in --kind device; 'floodmark info' shows which there are",
    ))
}

fn cannot_check(error: &MissingFigure) -> Error {
    Error::unsuitable(
        error.to_string(),
        "'floodmark info' shows what an input contains; leave the rule out or choose another figure",
    )
}

impl Events {
    fn compared(&self, by: GroupBy) -> DiffEvents {
        let Self { stats, totals, watermark, leaks, tables, rules } = self;
        DiffEvents::new(DiffParts { stats, weights: totals, watermark, leaks, tables }, by, rules)
    }
}

fn gather(input: &Input, query: &Query<'_>, props: &CompareProps<'_>) -> Result<Gathered> {
    let contents = input.contents();
    let side = Side { source: input.name().to_owned(), losses: Vec::new(), caveats: Caveats::default() };
    let mut gathered = Gathered { side, events: None, run: None };
    if contents.has_events {
        read_events(input, query, props, &mut gathered)?;
    }
    if contents.has_rows {
        gathered.run = run(input, query, &mut gathered.side.losses)?;
    }
    if gathered.run.is_some() && gathered.side.caveats.events_read == 0 {
        gathered.events = None;
    }
    if gathered.events.is_none() && gathered.run.is_none() {
        return Err(Error::no_content(
            format!("{} contains nothing to compare", plain(&gathered.side.source)),
            "'floodmark info' shows what it contains",
        ));
    }
    Ok(gathered)
}

fn read_events(
    input: &Input,
    query: &Query<'_>,
    props: &CompareProps<'_>,
    gathered: &mut Gathered,
) -> Result<()> {
    let by_scope = props.by == Some(GroupBy::Scope);
    let split = if by_scope { SplitBy::Scope } else { SplitBy::Nothing };
    let names = if by_scope { input.scope_paths()? } else { ScopePaths::default() };
    let watermark = WatermarkOptions {
        group_by: props.ways(),
        limit: Some(0),
        scopes: names.clone(),
        ..WatermarkOptions::default()
    };
    let leaks = LeaksOptions { limit: Some(0), scopes: input.scope_roles()?, ..LeaksOptions::default() };
    let folds = (
        StatsFold::default(),
        OriginTotalsFold::new(None, split),
        WatermarkFold::new(watermark),
        LeaksFold::new(leaks),
    );
    let folded = input.fold_any(query, Columns::All, folds)?;
    let answer = folded.answer;
    gathered.side.losses = answer.losses;
    // A trace without any events may have samples.
    if answer.caveats.events_read > 0 || input.trace().is_none() {
        let (stats, totals, watermark, leaks) = answer.result;
        let rules = PathRules { scopes: names, ..PathRules::default() };
        let tables = folded.source.tables().clone();
        gathered.side.caveats = answer.caveats;
        gathered.events = Some(Events { stats, totals, watermark, leaks, tables, rules });
    }
    Ok(())
}

/// Returns the memory of the run that was sampled; none if nothing was.
fn run(input: &Input, query: &Query<'_>, lost: &mut Vec<Loss>) -> Result<Option<RunMemory>> {
    if input.trace().is_some() {
        let known = input.run_memory(Some(0))?;
        return Ok(known.map(|(memory, losses)| {
            join_losses(lost, &losses);
            memory
        }));
    }
    let mut marks = Vec::new();
    let source = input.each_row(query.progress, |rows, tables| {
        marks.extend(rows.iter().filter_map(|row| mark_of(row, tables)));
    })?;
    let mut fold = RunFold::new(&source.tables().subjects, marks);
    drop(source);
    let (mut samples, mut count) = (Vec::new(), 0);
    input.each_row(query.progress, |rows, _| {
        samples.clear();
        samples.extend(rows.iter().filter_map(|row| match row {
            Row::Sample(row) => Some(*row),
            _ => None,
        }));
        count += samples.len();
        fold.update(&samples);
    })?;
    // Figures that an allocator counted itself are not samples from outside.
    let memory = RunMemory { origin_time_ns: input.origin_ns(), ..fold.finish(Some(0)) };
    Ok((count > 0 && memory.peak_rss_bytes > 0).then_some(memory))
}

/// Describes growth beyond a budget, as a sentence without its period.
pub fn growth_sentence(outcome: &BudgetOutcome) -> String {
    let figure = outcome.budget.figure;
    let words = match figure {
        BudgetFigure::Growth | BudgetFigure::Peak => "the peak",
        BudgetFigure::Live => "what is live at the end",
        BudgetFigure::Leaked | BudgetFigure::LeakedBlocks => "what leaks",
        BudgetFigure::Allocations => "the number of allocations",
        BudgetFigure::Failures => "the number of failed allocations",
        BudgetFigure::LostEvents => "the number of lost events",
        BudgetFigure::Rss => "the peak of resident memory",
    };
    let shown = |value| if figure.is_bytes() { format_bytes(value) } else { format_count(value) };
    let before = outcome.before.unwrap_or(0);
    let growth = outcome.actual.saturating_sub(before);
    let share = if before == 0 {
        "from nothing".to_owned()
    } else {
        format!("{:.1} %", growth as f64 / before as f64 * 100.0)
    };
    format!(
        "'{}' is broken: {words} grew by {} ({share}), from {} to {}",
        outcome.budget.name,
        shown(growth),
        shown(before),
        shown(outcome.actual)
    )
}

/// Serializes violations of a comparison with their sentences.
fn serialize_growth<S: Serializer>(
    violations: &[BudgetOutcome],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Broken<'a> {
        rule: &'a str,
        before: u64,
        after: u64,
        sentence: String,
    }
    serializer.collect_seq(violations.iter().map(|violation| Broken {
        rule: &violation.budget.name,
        before: violation.before.unwrap_or(0),
        after: violation.actual,
        sentence: growth_sentence(violation),
    }))
}

/// Returns the error for rules that would be checked on nothing.
pub fn nothing_selected(source: &str, caveats: &Caveats) -> Error {
    let input = if source == "-" { "standard input".into() } else { plain(source).into_owned() };
    Error::NothingSelected { input, events_read: format_count(caveats.events_read) }
}
