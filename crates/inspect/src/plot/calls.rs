//! Resident memory at traced calls, by process.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use floodmark_analyze::{SeriesFold, UsagePoint};
use floodmark_event::{ProcessId, Tables};

use super::parts::{MOST_PARTS, points};
use super::{Gathered, PlotProps, Role, Series, label};
use crate::error::Result;
use crate::input::Input;
use crate::query::Query;

/// Gathers the resident memory of each process; of several inputs, only that of the largest process is drawn.
pub(super) fn gather(input: &Input, query: &Query<'_>, props: &PlotProps) -> Result<Gathered> {
    let query = Query::new(props.filter.clone(), query.progress);
    let mut fold: SeriesFold<ProcessId, UsagePoint> = SeriesFold::new(props.points);
    let (mut ends_ns, mut first_ns) = (BTreeMap::new(), None);
    let mut names = BTreeMap::new();
    let losses = input.each_call(&query, |rows, tables| {
        for row in rows.unwrap_or_default() {
            first_ns.get_or_insert(row.time_ns);
            ends_ns.insert(row.process, row.time_ns);
            if let Some(rss_bytes) = row.rss_bytes {
                fold.set(&row.process, row.time_ns, rss_bytes);
            }
        }
        if rows.is_none() {
            names = ends_ns.keys().map(|process| (*process, process_name(*process, tables))).collect();
        }
        ControlFlow::Continue(())
    })?;
    let groups = fold.finish().groups.into_iter();
    let mut series: Vec<Series> = groups
        .map(|group| Series {
            name: names.get(&group.group).cloned().unwrap_or_default(),
            points: points(&group.points),
            end_ns: ends_ns.get(&group.group).copied().unwrap_or_default(),
            role: Role::Main,
            ..Series::default()
        })
        .collect();
    series.sort_by_key(|series| Reverse(series.highest().map_or(0, |peak| peak.bytes)));
    let mut remarks = Vec::new();
    if series.len() > MOST_PARTS {
        remarks.push(format!("the {} smallest processes are left out", series.len() - MOST_PARTS));
        series.truncate(MOST_PARTS);
    }
    Ok(Gathered {
        start_ns: first_ns,
        origin_ns: props.filter.origin_ns.or(first_ns),
        measure: "resident memory (RSS) at calls".into(),
        series,
        remarks,
        losses: losses.gaps,
        ..Gathered::default()
    })
}

/// Names a process by its program and number.
pub(super) fn process_name(process: ProcessId, tables: &Tables) -> String {
    let Some(found) = tables.process(process) else { return format!("process {}", process.0) };
    let program = found.command.split(' ').next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    match (program, found.pid) {
        ("", 0) => format!("process {}", process.0),
        ("", pid) => format!("process {pid}"),
        (program, pid) => label(&format!("{program} ({pid})")),
    }
}
