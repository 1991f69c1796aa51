//! The ranks of a job: a map of rank and time, and a table.

use floodmark_event::units::format_bytes;
use floodmark_inspect::page::RanksPart;

use super::build::{Builder, cut, heads};
use super::data::{CellKind, RankMap, Severity, Table, Target};
use crate::figures::{counted, percent};

/// Rows of the map; where there are more ranks, neighbors share a row.
const ROWS: usize = 256;
/// A rank that takes this many times the mean is worth a try to balance.
const UNEVEN: f64 = 1.25;
/// Steps of a cell.
const STEPS: f64 = 255.0;

/// Adds all of it.
pub(super) fn add(builder: &mut Builder, part: &RanksPart) {
    let ranks = &part.ranks;
    let imbalance = &ranks.imbalance;
    if let Some(highest) = ranks.rank_list.first() {
        let target = Target { tab: "ranks", ..Target::default() };
        builder.tell_parts([
            ("Of ", None),
            (counted(ranks.ranks, "rank").as_str(), Some(target)),
            (
                format!(
                    " rank {} took most: {}, {:.2} times the mean of {}",
                    highest.rank,
                    format_bytes(highest.peak_rss_bytes),
                    imbalance.highest_to_mean,
                    format_bytes(imbalance.mean_bytes)
                )
                .as_str(),
                None,
            ),
        ]);
        if imbalance.highest_to_mean >= UNEVEN {
            let saved = highest.peak_rss_bytes.saturating_sub(imbalance.mean_bytes);
            builder.tell(&format!(
                "To try: spread what rank {} holds. If all ranks took the same, the highest would be {} lower ({})",
                highest.rank,
                format_bytes(saved),
                percent(saved as f64 / highest.peak_rss_bytes.max(1) as f64)
            ));
        }
    }
    if !ranks.outliers.is_empty() {
        let list: Vec<String> = ranks.outliers.iter().take(8).map(u64::to_string).collect();
        let more = if ranks.outliers.len() > 8 { " and more" } else { "" };
        let text = format!("Ranks {}{more} took far more or less than the others.", list.join(", "));
        builder.find(Severity::Doubtful, text);
    }
    map(builder, part);
    table(builder, part);
}

/// The highest value of each row and interval, as a share of the highest of all.
fn map(builder: &mut Builder, part: &RanksPart) {
    let map = &part.map;
    let highest = map.values.iter().flatten().flatten().copied().max().unwrap_or(0).max(1);
    let per_row = map.ranks.len().div_ceil(ROWS);
    let rows: Vec<&[Vec<Option<u64>>]> = map.values.chunks(per_row).collect();
    let columns = map.columns();
    let mut cells = Vec::with_capacity(rows.len() * columns);
    for column in 0..columns {
        for row in &rows {
            let most = row.iter().filter_map(|rank| rank.get(column).copied().flatten()).max();
            // A rank that runs can be told from one that does not.
            cells.push(most.map_or(0, |bytes| ((bytes as f64 / highest as f64 * STEPS) as i64).max(1)));
        }
    }
    let times =
        (0..columns as i64).map(|column| map.first_ns.saturating_add(column.saturating_mul(map.interval_ns)));
    let times: Vec<i64> = times.map(|time_ns| builder.time(time_ns)).collect();
    builder.document.ranks = Some(RankMap {
        highest,
        rows: map.ranks.chunks(per_row).map(|row| (row[0], row[row.len() - 1])).collect(),
        times: builder.column(times.into_iter()),
        cells: builder.column(cells.into_iter()),
    });
}

fn table(builder: &mut Builder, part: &RanksPart) {
    let list = &part.ranks.rank_list;
    let row = |rank: &floodmark_analyze::RankMemory| {
        vec![
            rank.rank.into(),
            cut(&rank.host).into(),
            rank.peak_rss_bytes.into(),
            builder.time_cell(Some(rank.peak_time_ns)),
            format!("{:.2}", rank.peak_to_mean).into(),
            rank.processes.into(),
            cut(&rank.name).into(),
        ]
    };
    let rows = list.iter().map(row).collect();
    let columns = heads([
        ("rank", CellKind::Number),
        ("host", CellKind::Code),
        ("peak RSS", CellKind::Bytes),
        ("peak at", CellKind::Time),
        ("of the mean", CellKind::Text),
        ("processes", CellKind::Count),
        ("largest process", CellKind::Code),
    ]);
    let omitted = part.ranks.ranks_omitted;
    builder.table(Table { id: "ranks", title: "Ranks".into(), columns, rows, omitted, ..Table::default() });
}
