//! What held memory at the peak of a run.

use floodmark_analyze::{RunWatermark, Watermark};
use floodmark_event::units::{format_bytes, format_elapsed_ns};
use floodmark_inspect::questions::HeldAtPeak;

use crate::chart::bar;
use crate::figures::{bytes_exactly, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::{OtherKind, View};
use crate::run::peak_stack;
use crate::table::{Cell, Column, Table, omitted, wrap};

impl View for HeldAtPeak {
    const SCHEMA: &'static str = Watermark::SCHEMA;

    fn body(&self, layout: &Layout) -> String {
        match self {
            Self::Blocks(watermark) => watermark.body(layout),
            Self::Processes(watermark) => body(watermark, layout),
        }
    }

    fn others(&self) -> Vec<OtherKind> {
        match self {
            Self::Blocks(watermark) => watermark.others(),
            Self::Processes(_) => Vec::new(),
        }
    }
}

fn body(watermark: &RunWatermark, layout: &Layout) -> String {
    let mut text = Lines::default();
    text.line(wrap(&headline(watermark), layout.width, 2));
    if watermark.processes.is_empty() {
        return text.text();
    }
    text.blank();
    text.block(process_table(watermark, layout));
    match &watermark.peak_stack {
        Some(stack) => {
            text.blank();
            text.block(peak_stack(stack, layout));
        }
        None => {
            let hint = "No stacks were sampled: 'floodmark run --stacks' records what runs at a peak";
            text.blank();
            text.line(wrap(hint, layout.width, 2));
        }
    }
    text.text()
}

fn headline(watermark: &RunWatermark) -> String {
    if watermark.peak_rss_bytes == 0 {
        return "No memory could be read".into();
    }
    let bound = match (watermark.peak_is_bound, watermark.peak_is_lower_bound) {
        (true, _) => "at most ",
        (false, true) => "≥ ",
        (false, false) => "",
    };
    let elapsed = watermark.peak_time_ns.zip(watermark.origin_time_ns);
    let when = elapsed.map(|(at, origin)| format!(" at {}", format_elapsed_ns(at.saturating_sub(origin))));
    let phase = watermark.peak_phase.as_ref().map(|name| format!(", in phase {}", plain(name)));
    let pss =
        watermark.peak_pss_bytes.map(|bytes| format!("; {} with shared pages once", format_bytes(bytes)));
    let peak = bytes_exactly(watermark.peak_rss_bytes);
    let parts = [when, phase, pss].map(Option::unwrap_or_default).concat();
    format!("Peak {bound}{peak} resident{parts}")
}

fn process_table(watermark: &RunWatermark, layout: &Layout) -> String {
    let (shown, left) = layout.first(&watermark.processes);
    let mut table = Table::new([
        Column::long("process"),
        Column::figure("pid"),
        Column::figure("rank"),
        Column::figure("RSS at the peak"),
        Column::figure("share"),
        Column::figure("own peak").rank(2),
        Column::text("").rank(1),
    ]);
    let most = watermark.processes.first().map_or(0, |process| process.rss_bytes);
    for process in shown {
        table.row([
            Cell::from(&process.name),
            Cell::from(process.pid.to_string()),
            Cell::from(process.rank.map_or_else(|| "-".into(), |rank| rank.to_string())),
            Cell::from(format_bytes(process.rss_bytes)),
            Cell::from(percent(process.share)),
            Cell::from(format_bytes(process.peak_rss_bytes)),
            Cell::from(bar(process.rss_bytes, most, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    let has_ranks = shown.iter().any(|process| process.rank.is_some());
    table.keep(&[true, true, has_ranks, true, true, true, true]);
    table.text(layout) + &omitted(left + watermark.processes_omitted, layout)
}
