//! Live bytes of allocations, by kind of memory or by process and device.

use std::path::Path;

use anyhow::Result;
use floodmark_analyze::{Space, SpaceSeries, SpaceSeriesFold, Usage, UsageFold, UsageMode};
use floodmark_convert::OpenProps;
use floodmark_event::{NO_DEVICE, Tables};
use floodmark_store::Source;
use floodmark_view::Report;
use floodmark_view::plot::{Layer, Peak, Series, Stack, label};
use floodmark_view::usage::kinds_text;

use super::parts::{few, part_lines, parts, points, total};
use super::{GatherProps, Gathered, Per};
use crate::error::hinted;
use crate::pass::{Columns, fold_over};
use crate::printer::Printer;

/// How to open something whose events are only counted.
pub(super) fn open_props(props: &GatherProps) -> OpenProps {
    OpenProps { scan: Columns::Figures.props(&props.filter), ..props.open.clone() }
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
            let (report, _) = fold_over(source.as_mut(), &name, &props.filter, fold, printer)?;
            Ok(of_usage(report))
        }
        Some(per) => {
            let fold = SpaceSeriesFold::new(props.points);
            let (report, _) = fold_over(source.as_mut(), &name, &props.filter, fold, printer)?;
            Ok(of_spaces(&report, per, source.tables(), props))
        }
    }
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

fn of_spaces(report: &Report<SpaceSeries>, per: Per, tables: &Tables, props: &GatherProps) -> Gathered {
    let SpaceSeries { kinds, courses } = &report.result;
    let Some(end_ns) = courses.end_ns.filter(|_| !courses.moments.is_empty()) else {
        return Gathered { losses: report.losses.clone(), ..Gathered::default() };
    };
    let times_ns: Vec<i64> = courses.moments.iter().map(|moment| moment.total.time_ns).collect();
    // Of several resources of one device every instant is the sum.
    let parts = parts(courses, |_, space| space_name(space, per, tables));
    let layers = parts.into_iter().map(|(name, values)| Layer { name, values }).collect();
    let (layers, remark) = few(layers);
    let total = total("total".into(), courses, end_ns);
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
