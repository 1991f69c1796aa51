//! What was live at many instants, as the page travels through them.
//!
//! Groups of blocks are leaves of forests (by stack, by site, by scope, by place); their bytes are step
//! functions over the instants. The page adds up what a forest held at an instant by itself, because all
//! instants of all forests would be far more than the changes between them.

use std::collections::HashMap;
use std::fmt::Write as _;

use floodmark_analyze::paths::NO_SCOPE;
use floodmark_analyze::{
    Breakdown, CumulativeAllocations, FunctionProfile, Held, HolderGroup, SeenBlock, Snapshots, Step,
    folded_text,
};
use floodmark_event::units::format_count;

use super::build::{Builder, cut, heads};
use super::data::{self, CellKind, Forest, Listed, Map, Steps, Table};
use crate::blocks::NO_SITE;
use crate::figures::counted;

/// Functions that are listed.
const FUNCTIONS: usize = 500;

/// What leads to the blocks of a group, outermost first.
type Path = Vec<Step>;

/// Stands for the text of folded frames until their number is known.
const FOLDED: i64 = -1;

/// Adds the instants.
pub(super) fn add(builder: &mut Builder, snapshots: &Snapshots) {
    if snapshots.snapshots.is_empty() {
        return;
    }
    let document = document(builder, snapshots);
    builder.document.snapshots = Some(document);
}

/// The instants as the page knows them.
pub(super) fn document(builder: &mut Builder, snapshots: &Snapshots) -> data::Snapshots {
    let times: Vec<i64> = snapshots.snapshots.iter().map(|snapshot| builder.time(snapshot.time_ns)).collect();
    data::Snapshots {
        note: note(snapshots),
        exact: snapshots.exact,
        times: builder.column(times.into_iter()),
        bytes: builder.whole(snapshots.snapshots.iter().map(|snapshot| snapshot.bytes)),
        blocks: builder.whole(snapshots.snapshots.iter().map(|snapshot| snapshot.blocks)),
        peak: snapshots.peak,
        forests: forests(builder, snapshots),
        steps: steps(builder, snapshots),
        cumulative: snapshots.counts_cumulative.then(|| cumulative(builder, snapshots)),
        breakdowns: snapshots.breakdowns.iter().map(|breakdown| divided(builder, breakdown)).collect(),
        listed: listed(builder, snapshots),
        limit: snapshots.blocks_limit,
        maps: maps(builder, snapshots),
    }
}

fn note(snapshots: &Snapshots) -> String {
    let instants = counted(snapshots.snapshots.len() as u64, "instant");
    let mut note = if snapshots.exact {
        "Every change of live bytes is here, so any instant is exact.".to_owned()
    } else {
        let are = if snapshots.snapshots.len() == 1 { "is" } else { "are" };
        format!(
            "{instants} {are} kept here, where memory was highest and lowest; each is exact. \
             'floodmark serve' and 'floodmark watermark --at' show any other."
        )
    };
    add_limit(&mut note, snapshots);
    note
}

/// Returns the note on instants that a request asked for.
pub(super) fn note_of_answer(snapshots: &Snapshots) -> String {
    let mut note = "Exactly this instant; 'floodmark watermark --at' tells the same.".to_owned();
    add_limit(&mut note, snapshots);
    note
}

fn add_limit(note: &mut String, snapshots: &Snapshots) {
    if let Some(limit) = snapshots.blocks_limit {
        let limit = format_count(limit as u64);
        let _ = write!(note, " Of every instant the {limit} largest blocks are listed; sums cover all.");
    }
}

fn forests(builder: &mut Builder, snapshots: &Snapshots) -> Vec<Forest> {
    let groups = &snapshots.groups;
    let has_stacks = groups.iter().any(|group| !group.stack.is_empty());
    let has_scopes = groups.iter().any(|group| !group.scope.is_empty());
    let has_places = groups.iter().any(|group| !group.place.is_empty() && group.place != groups[0].place);
    let has_names = groups.iter().any(|group| group.stack.is_empty() && group.path.len() == 1);
    let first = match (has_stacks, has_names) {
        (true, _) => "stack",
        (_, true) => "name",
        _ => "thread, stream and size",
    };
    let mut forests = vec![forest(builder, first, groups, |group| group.path.clone())];
    if has_stacks {
        if groups.iter().any(|group| group.path.iter().any(|step| matches!(step, Step::Folded(_)))) {
            forests.push(forest(builder, "stack with every frame", groups, every_frame));
        }
        forests.push(forest(builder, "site", groups, by_site));
    }
    if has_scopes {
        forests.push(forest(builder, "scope", groups, |group| under(&group.scope, NO_SCOPE, group)));
    }
    if has_places {
        forests.push(forest(builder, "place", groups, |group| under(&group.place, "(unknown)", group)));
    }
    forests
}

fn every_frame(group: &HolderGroup) -> Path {
    if group.stack.is_empty() {
        return group.path.clone();
    }
    group.stack.iter().rev().cloned().map(Step::Call).collect()
}

fn by_site(group: &HolderGroup) -> Path {
    if group.site == NO_SITE { group.path.clone() } else { vec![Step::Call(group.site.clone())] }
}

fn under(outer: &[String], nothing: &str, group: &HolderGroup) -> Path {
    let mut path: Path = outer.iter().cloned().map(Step::Call).collect();
    if path.is_empty() {
        path.push(Step::Call(nothing.to_owned()));
    }
    path.extend(by_site(group));
    path
}

fn forest(
    builder: &mut Builder,
    name: &'static str,
    groups: &[HolderGroup],
    path: impl Fn(&HolderGroup) -> Path,
) -> Forest {
    // Index of the parent plus one, and text; of a run of folded frames, how many there are.
    let mut nodes: Vec<(i64, i64, (u32, u32))> = Vec::new();
    let mut known: HashMap<(i64, i64), i64> = HashMap::new();
    let mut leaves = Vec::with_capacity(groups.len());
    for group in groups {
        let mut at = 0;
        for step in path(group) {
            let (text, frames) = match step {
                Step::Call(text) => (i64::from(builder.string(&text)), 0),
                Step::Folded(frames) => (FOLDED, frames),
            };
            let parent = at;
            at = *known.entry((parent, text)).or_insert_with(|| {
                nodes.push((parent, text, (frames, frames)));
                nodes.len() as i64
            });
            let counts = &mut nodes[at as usize - 1].2;
            *counts = (counts.0.min(frames), counts.1.max(frames));
        }
        leaves.push(at);
    }
    let texts: Vec<i64> = nodes
        .iter()
        .map(
            |(_, text, frames)| {
                if *text == FOLDED { i64::from(builder.string(&folded_text(*frames))) } else { *text }
            },
        )
        .collect();
    Forest {
        name,
        parents: builder.column(nodes.iter().map(|(parent, ..)| *parent)),
        texts: builder.column(texts.into_iter()),
        leaves: builder.column(leaves.into_iter()),
    }
}

fn steps(builder: &mut Builder, snapshots: &Snapshots) -> Steps {
    let count = snapshots.snapshots.len();
    let all: Vec<(usize, &Held)> = snapshots
        .groups
        .iter()
        .enumerate()
        .flat_map(|(at, group)| group.held.iter().map(move |held| (at, held)))
        .filter(|(_, held)| held.snapshot < count)
        .collect();
    Steps {
        groups: builder.column(all.iter().map(|(group, _)| *group as i64)),
        snapshots: builder.column(all.iter().map(|(_, held)| held.snapshot as i64)),
        bytes: builder.whole(all.iter().map(|(_, held)| held.bytes)),
        blocks: builder.whole(all.iter().map(|(_, held)| held.blocks)),
    }
}

fn cumulative(builder: &mut Builder, snapshots: &Snapshots) -> data::CumulativeAllocations {
    let count = snapshots.snapshots.len();
    let all: Vec<(usize, &CumulativeAllocations)> = snapshots
        .groups
        .iter()
        .enumerate()
        .flat_map(|(at, group)| group.cumulative.iter().map(move |cumulative| (at, cumulative)))
        .filter(|(_, cumulative)| cumulative.snapshot < count)
        .collect();
    data::CumulativeAllocations {
        groups: builder.column(all.iter().map(|(group, _)| *group as i64)),
        snapshots: builder.column(all.iter().map(|(_, cumulative)| cumulative.snapshot as i64)),
        bytes: builder.whole(all.iter().map(|(_, cumulative)| cumulative.bytes)),
        blocks: builder.whole(all.iter().map(|(_, cumulative)| cumulative.blocks)),
    }
}

fn divided(builder: &mut Builder, breakdown: &Breakdown) -> data::Breakdown {
    let steps: Vec<(usize, &Held)> = breakdown
        .bands
        .iter()
        .enumerate()
        .flat_map(|(at, band)| band.held.iter().map(move |held| (at, held)))
        .collect();
    data::Breakdown {
        by: breakdown.by.name(),
        names: breakdown.bands.iter().map(|band| builder.string(&band.name)).collect(),
        others: breakdown.has_others.then(|| breakdown.bands.len() - 1),
        bands: builder.column(steps.iter().map(|(band, _)| *band as i64)),
        snapshots: builder.column(steps.iter().map(|(_, held)| held.snapshot as i64)),
        bytes: builder.whole(steps.iter().map(|(_, held)| held.bytes)),
    }
}

fn listed(builder: &mut Builder, snapshots: &Snapshots) -> Listed {
    let seen = &snapshots.blocks;
    let mut texts = |text: &dyn Fn(&SeenBlock) -> String| -> Vec<i64> {
        seen.iter().map(|seen| i64::from(builder.string(&text(seen)))).collect()
    };
    let threads = texts(&|seen| seen.block.thread.to_string());
    let streams = texts(&|seen| format!("{:#x}", seen.block.stream));
    let sites = texts(&|seen| match &seen.block.name {
        Some(name) if seen.block.site == NO_SITE => name.clone(),
        _ => seen.block.site.clone(),
    });
    let times: Vec<i64> = seen.iter().map(|seen| builder.time(seen.block.time_ns)).collect();
    Listed {
        first: builder.column(seen.iter().map(|seen| seen.live.start as i64)),
        after: builder.column(seen.iter().map(|seen| seen.live.end as i64)),
        groups: builder.column(seen.iter().map(|seen| i64::from(seen.group))),
        bytes: builder.whole(seen.iter().map(|seen| seen.block.bytes)),
        // A browser's numbers cannot hold all addresses.
        high: builder.column(seen.iter().map(|seen| (seen.block.address >> 32) as i64)),
        low: builder.column(seen.iter().map(|seen| (seen.block.address & 0xffff_ffff) as i64)),
        times: builder.column(times.into_iter()),
        threads: builder.column(threads.into_iter()),
        streams: builder.column(streams.into_iter()),
        sites: builder.column(sites.into_iter()),
    }
}

fn maps(builder: &mut Builder, snapshots: &Snapshots) -> Vec<Map> {
    let maps = snapshots.maps.iter().filter(|map| map.snapshots.len() > 1);
    maps.map(|map| Map {
        title: cut(&map.place.join(", ")),
        bands: map.bands.iter().map(|band| (format!("{:#x}", band.start), band.bytes)).collect(),
        cell: map.cell_bytes,
        cells: map.cells,
        snapshots: builder.column(map.snapshots.iter().map(|snapshot| *snapshot as i64)),
        taken: builder.column(map.taken.iter().map(|part| i64::from(*part))),
    })
    .collect()
}

/// A function, and the name of its file: its folder would take the room of the figures.
fn function_text(function: &FunctionProfile) -> String {
    match function.file.rsplit('/').next() {
        None | Some("") => function.function.clone(),
        Some(file) => format!("{} ({file})", function.function),
    }
}

/// Adds what functions held.
pub(super) fn functions(builder: &mut Builder, snapshots: &Snapshots) {
    let shown = &snapshots.functions[..snapshots.functions.len().min(FUNCTIONS)];
    let rows = shown.iter().map(|function| {
        let when = snapshots.snapshots.get(function.most_at).map(|snapshot| snapshot.time_ns);
        vec![
            cut(&function_text(function)).into(),
            function.peak_bytes.into(),
            function.own_peak_bytes.into(),
            function.most_bytes.into(),
            builder.time_cell(when),
            function.end_bytes.into(),
            function.allocations.into(),
            function.allocated_bytes.into(),
            function.own_allocated_bytes.into(),
        ]
    });
    let rows = rows.collect();
    let rule = if snapshots.exact { "" } else { ", as far as the instants that are kept tell" };
    builder.table(Table {
        id: "functions",
        title: "Functions".into(),
        note: format!(
            "What a function and those it called held and allocated; \"own\" is what it asked for by itself. \
             \"Most\" is the highest it ever held{rule}."
        ),
        columns: heads([
            ("function", CellKind::Code),
            ("at peak", CellKind::Bytes),
            ("own at peak", CellKind::Bytes),
            ("most", CellKind::Bytes),
            ("when", CellKind::Time),
            ("at end", CellKind::Bytes),
            ("allocations", CellKind::Count),
            ("allocated", CellKind::Bytes),
            ("own allocated", CellKind::Bytes),
        ]),
        rows,
        omitted: (snapshots.functions.len() - shown.len()) as u64,
        ..Table::default()
    });
}
