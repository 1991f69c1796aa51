//! Processes of a job side by side, by what they had live, and the report of a job as a page.

use std::fmt::Write as _;

use floodmark_analyze::{JobProcesses, ProcessPeak};
use floodmark_event::units::{format_bytes, format_count, format_elapsed_ns};
use floodmark_inspect::ranks::RankPlot;

use crate::chart::bar;
use crate::figures::{bytes_exactly, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::plot::Props;
use crate::plot::html;
use crate::plot::model::TimeAxis;
use crate::plot::ranks::scene;
use crate::plot::svg::escape;
use crate::ranks::{FEW_RANKS, LOWEST, quantile_table, ranges, ratio};
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap, wrap_after};

impl View for JobProcesses {
    const SCHEMA: &'static str = "floodmark.processes/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let Some(highest) = self.process_list.first() else {
            text.line("No process had live memory");
            return text.text();
        };
        text.line(wrap(&headline(self, highest), layout.width, 2));
        text.blank();
        for (name, value) in facts(self) {
            let lead = format!("  {}{}", styled(layout.palette.faint, name), " ".repeat(11 - name.len()));
            text.line(wrap_after(&lead, 13, &value, layout.width));
        }
        text.blank();
        if self.processes > FEW_RANKS {
            let rows = self.quantiles.iter().map(|one| (one.share, one.bytes, one.process));
            text.block(quantile_table(["processes", "peak at most", "such as process"], rows, layout));
            text.blank();
        }
        text.block(process_table(self, layout));
        text.text()
    }
}

fn headline(job: &JobProcesses, highest: &ProcessPeak) -> String {
    let host = if highest.host.is_empty() { String::new() } else { format!(" on {}", plain(&highest.host)) };
    format!(
        "Process {} peaks highest: {} live at {}{host}, {} times the mean",
        highest.process,
        bytes_exactly(highest.peak_bytes),
        elapsed(job, highest.peak_time_ns),
        ratio(job.imbalance.highest_to_mean),
    )
}

fn facts(job: &JobProcesses) -> Vec<(&'static str, String)> {
    let imbalance = &job.imbalance;
    let without = match job.processes_without {
        0 => String::new(),
        without => format!(", and {} that had no such memory", format_count(without)),
    };
    let mut facts = vec![
        ("processes", format!("{}{without}", format_count(job.processes))),
        (
            "peaks",
            format!(
                "mean {}, median {}, standard deviation {} of the mean; their sum is {}",
                format_bytes(imbalance.mean_bytes),
                format_bytes(imbalance.median_bytes),
                percent(imbalance.variation),
                format_bytes(job.sum_of_peaks_bytes),
            ),
        ),
        (
            "imbalance",
            format!(
                "{} highest to mean, {} highest to median",
                ratio(imbalance.highest_to_mean),
                ratio(imbalance.highest_to_median)
            ),
        ),
    ];
    if !job.outliers.is_empty() {
        let count = format_count(job.outliers.len() as u64);
        facts.push(("outliers", format!("{count}: process {}", ranges(&job.outliers))));
    }
    facts
}

fn process_table(job: &JobProcesses, layout: &Layout) -> String {
    let (shown, left) = layout.first(&job.process_list);
    let hidden = left + job.processes_omitted;
    let lowest: Vec<&ProcessPeak> = match (hidden, job.processes_omitted) {
        (0, _) => Vec::new(),
        (_, 0) => job.process_list.iter().rev().take(LOWEST.min(left as usize)).collect(),
        _ => job.lowest.iter().take(LOWEST).collect(),
    };
    let hidden = hidden.saturating_sub(lowest.len() as u64);
    let most = job.process_list.first().map_or(0, |one| one.peak_bytes);
    let has_hosts = job.process_list.iter().any(|one| !one.host.is_empty());
    let has_names = job.process_list.iter().any(|one| !one.name.is_empty());
    let mut table = Table::new([
        Column::figure("process"),
        Column::long("node"),
        Column::figure("peak"),
        Column::figure("to mean"),
        Column::figure("at").rank(2),
        Column::figure("live at the end").rank(2),
        Column::figure("allocations").rank(3),
        Column::long("command").rank(3),
        Column::text("").rank(1),
    ]);
    let cells = |one: &ProcessPeak| {
        let note = if job.outliers.binary_search(&one.process).is_ok() { " *" } else { "" };
        [
            Cell::from(one.process.to_string()),
            Cell::from(&one.host),
            Cell::from(format_bytes(one.peak_bytes)),
            Cell::from(format!("{}{note}", ratio(one.peak_to_mean))),
            Cell::from(elapsed(job, one.peak_time_ns)),
            Cell::from(format_bytes(one.live_bytes)),
            Cell::from(format_count(one.allocations)),
            Cell::from(&one.name),
            Cell::from(bar(one.peak_bytes, most, layout.bar_width())).styled(layout.palette.bar),
        ]
    };
    for one in shown {
        table.row(cells(one));
    }
    let above = shown.len();
    for one in lowest.iter().rev() {
        table.row(cells(one));
    }
    table.keep(&[true, has_hosts, true, true, true, true, true, has_names, true]);
    if lowest.is_empty() {
        return table.text(layout) + &omitted(hidden, layout);
    }
    table.text_with(layout, |at, lines| {
        if at + 1 == above && hidden > 0 {
            let between = format!("  … {} between (--limit 0 shows all)", format_count(hidden));
            lines.line(styled(layout.palette.faint, between));
        }
    })
}

fn elapsed(job: &JobProcesses, time_ns: i64) -> String {
    format_elapsed_ns(time_ns.saturating_sub(job.origin_time_ns.unwrap_or(0)))
}

/// Writes the report of a job as a page: the map of its processes, and answers as text, each with its title.
pub fn job_page(plot: &RankPlot, answers: &[(&str, String)]) -> String {
    let page = html::html(&scene(plot, &Props::default()), TimeAxis::Elapsed);
    let mut below = String::from("<main>\n");
    for (title, text) in answers {
        let _ = writeln!(below, "<h2>{}</h2>\n<pre>{}</pre>", escape(title), escape(text));
    }
    below.push_str("</main>\n");
    let style = "main { max-width: 1100px; margin: 0 auto; padding: 0 16px 32px; }\n\
                 h2 { font-size: 15px; margin: 24px 0 4px; }\n\
                 pre { font: 12px/1.45 monospace; overflow-x: auto; margin: 0; }\n</style>";
    let page = page.replacen("</style>", style, 1);
    // The data for the script is the last element but one.
    match page.rfind("<script type=\"application/json\"") {
        Some(at) => format!("{}{below}{}", &page[..at], &page[at..]),
        None => page,
    }
}
