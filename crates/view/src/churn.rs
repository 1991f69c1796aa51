//! What is allocated over time, by site, and how much of it for nothing.

use floodmark_analyze::{Churn, ChurnInterval};
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};

use crate::chart::{bar, sparkline};
use crate::figures::{counted, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap};

/// Rows of the table over time.
const ROWS: usize = 12;
/// Characters of a curve beside a site.
const CURVE_WIDTH: usize = 12;

impl View for Churn {
    const SCHEMA: &'static str = "floodmark.churn/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        for sentence in headline(self) {
            text.line(wrap(&sentence, layout.width, 2));
        }
        if self.total.allocations == 0 {
            return text.text();
        }
        if self.intervals.len() > 1 {
            text.blank();
            text.styled(layout.palette.title, "Over time");
            text.block(over_time(self, layout));
        }
        text.blank();
        text.styled(layout.palette.title, "Sites");
        text.block(sites(self, layout));
        text.text()
    }
}

fn headline(churn: &Churn) -> Vec<String> {
    let total = &churn.total;
    if total.allocations == 0 {
        return vec!["nothing was allocated".to_owned()];
    }
    let rate = match (churn.allocations_per_s, churn.bytes_per_s) {
        (Some(allocations), Some(bytes)) => format!(
            " in {}: {} and {} a second",
            format_duration_ns(churn.duration_ns),
            counted(allocations.round() as u64, "allocation"),
            format_bytes(bytes.round() as u64)
        ),
        _ => String::new(),
    };
    let share = total.temporary as f64 / total.allocations as f64;
    let mut sentences = vec![
        format!("{} of {}{rate}", counted(total.allocations, "allocation"), format_bytes(total.bytes)),
        format!(
            "{} temporary ({} of all, {}): freed by the next call of the same thread",
            format_count(total.temporary),
            percent(share),
            format_bytes(total.temporary_bytes)
        ),
    ];
    if churn.has_reallocs {
        sentences.push(format!(
            "{} by realloc, of which {} moved the block and copied up to {}",
            counted(total.reallocs, "allocation"),
            format_count(total.moves),
            format_bytes(total.copied_bytes)
        ));
    }
    if let Some(chain) = &churn.longest_chain {
        sentences.push(format!(
            "longest chain: one block grew from {} to {} in {}, copying up to {}",
            format_bytes(chain.first_bytes),
            format_bytes(chain.last_bytes),
            counted(chain.steps, "step"),
            format_bytes(chain.copied_bytes)
        ));
    }
    if let Some(waste) = &churn.waste_at_peak {
        sentences.push(format!(
            "{} added {} to the {} live at the peak ({}), as computed from the size classes of {}",
            plain(&waste.allocators.join(" and ")),
            format_bytes(waste.waste_bytes),
            format_bytes(waste.live_bytes),
            percent(waste.waste_bytes as f64 / waste.live_bytes.max(1) as f64),
            if waste.allocators.iter().any(|name| name == "pymalloc") {
                "glibc and CPython"
            } else {
                "glibc"
            }
        ));
    }
    sentences
}

fn over_time(churn: &Churn, layout: &Layout) -> String {
    let joined = churn.intervals.len().div_ceil(ROWS);
    let rows: Vec<&[ChurnInterval]> = churn.intervals.chunks(joined).collect();
    let sum = |row: &[ChurnInterval]| {
        row.iter().fold((0u64, 0u64), |sum, interval| {
            (sum.0 + interval.allocations, sum.1.saturating_add(interval.bytes))
        })
    };
    let most = rows.iter().map(|row| sum(row).1).max().unwrap_or(0);
    let start_ns = churn.intervals[0].from_ns;
    let seconds = (joined as u64).saturating_mul(churn.interval_ns) as f64 / 1e9;
    let mut table = Table::new([
        Column::figure("from"),
        Column::figure("allocations/s"),
        Column::figure("bytes/s"),
        Column::figure("allocations so far").rank(2),
        Column::figure("bytes so far").rank(1),
        Column::text("").rank(3),
    ]);
    for row in rows {
        let (allocations, bytes) = sum(row);
        let (first, last) = (&row[0], &row[row.len() - 1]);
        let elapsed_ns = first.from_ns.saturating_sub(start_ns).unsigned_abs();
        table.row([
            Cell::from(format!("+{}", format_duration_ns(elapsed_ns))),
            Cell::from(format_count((allocations as f64 / seconds).round() as u64)),
            Cell::from(format_bytes((bytes as f64 / seconds).round() as u64)),
            Cell::from(format_count(last.cumulative_allocations)),
            Cell::from(format_bytes(last.cumulative_bytes)),
            Cell::from(bar(bytes, most, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    table.text(layout)
}

fn sites(churn: &Churn, layout: &Layout) -> String {
    let (shown, left) = layout.first(&churn.sites);
    let has_waste = churn.waste_at_peak.is_some();
    let mut columns = vec![
        Column::long("site"),
        Column::figure("allocations"),
        Column::figure("bytes"),
        Column::figure("temporary").rank(1),
        Column::figure("bytes/s").rank(4),
        Column::text("over time").rank(2),
    ];
    if churn.has_reallocs {
        columns.push(Column::figure("copied").rank(3));
    }
    if has_waste {
        columns.push(Column::figure("waste").rank(5));
    }
    let mut table = Table::new(columns);
    for site in shown {
        let total = &site.total;
        let rate = site.bytes_per_s.map_or_else(|| "-".into(), |rate| format_bytes(rate.round() as u64));
        let mut cells = vec![
            Cell::from(&site.site),
            Cell::from(format_count(total.allocations)),
            Cell::from(format_bytes(total.bytes)),
            Cell::from(percent(site.temporary_share)),
            Cell::from(rate),
            Cell::from(sparkline(&site.bytes_over_time, CURVE_WIDTH).trim_end()).styled(layout.palette.bar),
        ];
        if churn.has_reallocs {
            cells.push(Cell::from(format_bytes(total.copied_bytes)));
        }
        if has_waste {
            cells.push(Cell::from(format_bytes(total.waste_bytes)));
        }
        table.row(cells);
    }
    table.text(layout) + &omitted(left + churn.sites_omitted, layout)
}
