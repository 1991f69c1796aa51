//! Lifetimes: how long blocks live, and who allocates only to free at once.

use floodmark_analyze::Lifetimes;
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};

use crate::chart::bar;
use crate::figures::{counted, mean_duration, percent};
use crate::layout::{Layout, Lines};
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap};

impl View for Lifetimes {
    const SCHEMA: &'static str = "floodmark.lifetimes/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.line(wrap(&headline(self), layout.width, 2));
        if self.ended_blocks == 0 {
            return text.text();
        }
        text.blank();
        text.block(histogram(self, layout));
        if self.churned_blocks > 0 {
            text.blank();
            text.styled(layout.palette.title, "Who churns");
            text.block(sites(self, layout));
        }
        text.text()
    }
}

fn headline(lifetimes: &Lifetimes) -> String {
    if lifetimes.ended_blocks == 0 {
        return format!("no block was freed, {} live at the end", counted(lifetimes.live_blocks, "block"));
    }
    let churned = lifetimes.churned_blocks as f64 / lifetimes.ended_blocks as f64;
    format!(
        "{} freed, half of them within {}; {} ({}) lived less than {}",
        counted(lifetimes.ended_blocks, "block"),
        lifetimes
            .median_ns
            .map_or_else(|| "-".into(), |median| format!("about {}", format_duration_ns(median))),
        format_count(lifetimes.churned_blocks),
        percent(churned),
        format_duration_ns(lifetimes.threshold_ns),
    )
}

fn histogram(lifetimes: &Lifetimes, layout: &Layout) -> String {
    let most = lifetimes.histogram.iter().map(|class| class.count).max().unwrap_or(0);
    let mut table = Table::new([
        Column::figure("lifetime"),
        Column::figure("blocks"),
        Column::figure("bytes").rank(1),
        Column::text("").rank(2),
    ]);
    for class in &lifetimes.histogram {
        table.row([
            Cell::from(format!(
                "{} to {}",
                format_duration_ns(class.from_ns),
                format_duration_ns(class.to_ns)
            )),
            Cell::from(format_count(class.count)),
            Cell::from(format_bytes(class.bytes)),
            Cell::from(bar(class.count, most, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    table.text(layout)
}

fn sites(lifetimes: &Lifetimes, layout: &Layout) -> String {
    let churning: Vec<_> = lifetimes.sites.iter().filter(|site| site.churned_blocks > 0).collect();
    let (shown, left) = layout.first(&churning);
    let mut table = Table::new([
        Column::long("site"),
        Column::figure("freed"),
        Column::figure("bytes").rank(3),
        Column::figure("median"),
        Column::figure("mean").rank(4),
        Column::figure("churned"),
        Column::figure("share").rank(1),
        Column::figure("bytes churned").rank(2),
    ]);
    for site in shown {
        table.row([
            Cell::from(&site.site),
            Cell::from(format_count(site.ended_blocks)),
            Cell::from(format_bytes(site.bytes)),
            // Medians come from a histogram and are within 1/16.
            Cell::from(
                site.median_ns.map_or_else(|| "-".into(), |ns| format!("≈ {}", format_duration_ns(ns))),
            ),
            Cell::from(mean_duration(site.mean_ns)),
            Cell::from(format_count(site.churned_blocks)),
            Cell::from(percent(site.churn)),
            Cell::from(format_bytes(site.churned_bytes)),
        ]);
    }
    table.text(layout) + &omitted(left + lifetimes.sites_omitted, layout)
}
