//! Live bytes of allocations, by kind of memory or by process and device.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{Space, SpaceCourseFold, SpaceCourses, Usage, UsageFold, UsageMode, UsagePoint};
use floodmark_convert::OpenProps;
use floodmark_event::{NO_DEVICE, Tables};
use floodmark_store::Source;
use floodmark_view::Report;
use floodmark_view::plot::{Layer, Peak, Point, Series, Stack, label};
use floodmark_view::usage::kinds_text;

use super::samples::{few, part_lines};
use super::{GatherProps, Gathered, Per};
use crate::error::hinted;
use crate::pass::{Columns, fold_over};
use crate::printer::Printer;

/// How to open something whose events are only counted.
pub(super) fn open_props(props: &GatherProps) -> OpenProps {
    OpenProps { scan: Columns::Figures.props(&props.narrow), ..props.open.clone() }
}

/// Gathers live bytes over time.
pub(super) fn gather(
    mut source: Box<dyn Source>,
    path: &Path,
    props: &GatherProps,
    printer: &Printer,
) -> Result<Gathered> {
    let name = path.display().to_string();
    match props.per {
        Some(Per::Host | Per::Rank) => Err(hinted(
            format!("allocations in {name} do not say of which host or rank they are"),
            "take --per process, --per device or --per kind",
        )),
        None | Some(Per::Kind) => {
            let fold = UsageFold::new(UsageMode::Reduced(props.points));
            let (report, _) = fold_over(source.as_mut(), &name, &props.narrow, fold, printer)?;
            Ok(of_usage(report))
        }
        Some(per) => {
            let fold = SpaceCourseFold::new(props.points);
            let (report, _) = fold_over(source.as_mut(), &name, &props.narrow, fold, printer)?;
            Ok(of_spaces(&report, per, source.tables(), props))
        }
    }
}

fn points(points: &[UsagePoint]) -> Vec<Point> {
    points.iter().map(|point| Point { time_ns: point.time_ns, bytes: point.live_bytes }).collect()
}

/// Kinds are never added up: each is a curve.
fn of_usage(report: Report<Usage>) -> Gathered {
    let Report { caveats, losses, result: usage, .. } = report;
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

fn of_spaces(report: &Report<SpaceCourses>, per: Per, tables: &Tables, props: &GatherProps) -> Gathered {
    let SpaceCourses { kinds, courses } = &report.result;
    let Some(end_ns) = courses.end_ns.filter(|_| !courses.moments.is_empty()) else {
        return Gathered { losses: report.losses.clone(), ..Gathered::default() };
    };
    let times_ns: Vec<i64> = courses.moments.iter().map(|moment| moment.total.time_ns).collect();
    // Of several resources of one device every instant is the sum.
    let mut parts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, group) in courses.groups.iter().enumerate() {
        let sums =
            parts.entry(space_name(&group.group, per, tables)).or_insert_with(|| vec![0; times_ns.len()]);
        for (sum, moment) in sums.iter_mut().zip(&courses.moments) {
            *sum = sum.saturating_add(moment.values.get(at).copied().unwrap_or(0));
        }
    }
    let layers = parts.into_iter().map(|(name, values)| Layer { name, values }).collect();
    let (layers, remark) = few(layers);
    let total = courses.moments.iter().map(|moment| moment.total).collect::<Vec<_>>();
    let total = Series { name: "total".into(), points: points(&total), end_ns, ..Series::default() };
    let stack = Stack { times_ns, layers, end_ns };
    let measure = format!("live bytes of {} memory", kinds_text(kinds));
    let (series, stack) =
        if props.stacks_parts() { (vec![total], Some(stack)) } else { (part_lines(&stack), None) };
    Gathered {
        measure,
        series,
        stack,
        remarks: remark.into_iter().collect(),
        losses: report.losses.clone(),
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
    let Some(process) = tables.process(space.process) else { return format!("process {}", space.process.0) };
    let program = process.command.split(' ').next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    match (program, process.pid) {
        ("", 0) => format!("process {}", space.process.0),
        ("", pid) => format!("process {pid}"),
        (program, pid) => label(&format!("{program} ({pid})")),
    }
}
