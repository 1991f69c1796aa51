//! Live bytes of allocations, by kind of memory or by process and device.

use floodmark_analyze::{Space, SpaceSeries, SpaceSeriesFold, Usage, UsageFold, UsageMode};
use floodmark_event::{Kind, NO_DEVICE, Tables};

use super::calls::process_name;
use super::parts::{few, part_lines, parts, points, total};
use super::{Gathered, Layer, Peak, Per, PlotProps, Series, Stack};
use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::pass::Columns;
use crate::query::Query;

/// Gathers live bytes over time.
pub(super) fn gather(input: &Input, query: &Query<'_>, props: &PlotProps) -> Result<Gathered> {
    match props.per {
        Some(Per::Host | Per::Rank) => Err(Error::unsuitable(
            format!("allocations in {} do not say of which host or rank they are", input.name()),
            "take --per process, --per device or --per kind",
        )),
        None | Some(Per::Kind) => {
            let fold = UsageFold::new(UsageMode::Reduced(props.points));
            let folded = input.fold_any(query, Columns::Figures, fold)?;
            Ok(Gathered { origin_ns: folded.pass.live().origin_ns(), ..of_usage(folded.answer) })
        }
        Some(per) => {
            let fold = SpaceSeriesFold::new(props.points);
            let folded = input.fold_any(query, Columns::Figures, fold)?;
            let gathered = of_spaces(&folded.answer, per, folded.source.tables(), props);
            Ok(Gathered { origin_ns: folded.pass.live().origin_ns(), ..gathered })
        }
    }
}

/// Returns kinds as one word: `device`, `device+managed`.
fn kinds_text(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join("+")
}

/// Kinds are never added up: each is a curve.
fn of_usage(answer: Answer<Usage>) -> Gathered {
    let Answer { caveats, losses, result: usage, .. } = answer;
    let Some(end_ns) = usage.end_time_ns.filter(|_| !usage.points.is_empty() || !usage.others.is_empty())
    else {
        return Gathered { losses, ..Gathered::default() };
    };
    let kind = kinds_text(&usage.kinds);
    let peak = |time_ns: Option<i64>, bytes| time_ns.map(|time_ns| Peak { time_ns, bytes });
    let mut series = Vec::new();
    if !usage.points.is_empty() {
        series.push(Series {
            name: kind.clone(),
            points: points(&usage.points),
            end_ns,
            peak: peak(usage.peak_time_ns, usage.peak_bytes),
            ..Series::default()
        });
    }
    series.extend(usage.others.iter().filter(|other| other.peak_bytes > 0).map(|other| Series {
        name: other.kind.name().into(),
        points: points(&other.points),
        end_ns,
        peak: peak(other.peak_time_ns, other.peak_bytes),
        ..Series::default()
    }));
    let measure = if series.len() > 1 { "live bytes".into() } else { format!("live bytes of {kind} memory") };
    let mut remarks = Vec::new();
    if caveats.unmatched_frees > 0 {
        remarks.push(format!(
            "{} frees of blocks never seen allocated are not counted",
            caveats.unmatched_frees
        ));
    }
    Gathered { start_ns: usage.first_time_ns, measure, series, losses, remarks, ..Gathered::default() }
}

fn of_spaces(answer: &Answer<SpaceSeries>, per: Per, tables: &Tables, props: &PlotProps) -> Gathered {
    let SpaceSeries { kinds, series } = &answer.result;
    let Some(end_ns) = series.end_ns.filter(|_| !series.points.is_empty()) else {
        return Gathered { losses: answer.losses.clone(), ..Gathered::default() };
    };
    let times_ns: Vec<i64> = series.points.iter().map(|point| point.total.time_ns).collect();
    // Of several resources of one device every instant is the sum.
    let parts = parts(series, |_, space| space_name(space, per, tables));
    let layers = parts.into_iter().map(|(name, values)| Layer { name, values }).collect();
    let (layers, remark) = few(layers);
    let total = total("total".into(), series, end_ns);
    let stack = Stack { times_ns, layers, end_ns };
    let measure = format!("live bytes of {} memory", kinds_text(kinds));
    let (series, stack) =
        if props.stacks_parts() { (vec![total], Some(stack)) } else { (part_lines(&stack), None) };
    Gathered {
        measure,
        series,
        stack,
        remarks: remark.into_iter().collect(),
        losses: answer.losses.clone(),
        ..Gathered::default()
    }
}

fn space_name(space: &Space, per: Per, tables: &Tables) -> String {
    if per == Per::Device {
        return if space.device == NO_DEVICE {
            "no device".into()
        } else {
            format!("device {}", space.device)
        };
    }
    process_name(space.process, tables)
}
