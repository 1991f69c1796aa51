//! Statistics: what was allocated, how high it rose, how it ended, and in which sizes.

use floodmark_analyze::Stats;
use floodmark_event::units::{format_bytes, format_count, format_duration_ns, format_time_ns};

use crate::chart::bar;
use crate::figures::{Clock, counted, instant_exactly, mean_bytes};
use crate::layout::{Layout, Lines, styled};
use crate::report::{OtherKind, View};
use crate::table::{Cell, Column, Table, omitted, wrap, wrap_after};

/// Columns of the names and figures of the summary.
const NAME_WIDTH: usize = 15;
const VALUE_WIDTH: usize = 10;

impl View for Stats {
    const SCHEMA: &'static str = "floodmark.stats/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.line(headline(self, layout));
        if self.events == 0 {
            return text.text();
        }
        text.blank();
        text.block(summary(self, layout));
        if self.size.count > 0 {
            text.blank();
            text.styled(layout.palette.title, "Sizes");
            text.block(sizes(self, layout));
            text.blank();
            text.block(histogram(self, layout));
        }
        if self.ledgers.len() > 1 {
            text.blank();
            text.block(ledgers(self, layout));
        }
        text.text()
    }

    fn others(&self) -> Vec<OtherKind> {
        self.others.iter().map(OtherKind::from).collect()
    }
}

fn headline(stats: &Stats, layout: &Layout) -> String {
    let (Some(first), Some(last)) = (stats.first_time_ns, stats.last_time_ns) else {
        return "no events".into();
    };
    let clock = Clock::of([first, last]);
    let span = format_duration_ns(last.saturating_sub(first).max(0) as u64);
    let events = counted(stats.events, "event");
    wrap(&format!("{events} in {span}, {} to {}", format_time_ns(first), clock.time(last)), layout.width, 2)
}

fn summary(stats: &Stats, layout: &Layout) -> String {
    let mut text = Lines::default();
    let mut row = |name: &str, value: String, details: Vec<String>| {
        let value = styled(layout.palette.figure, format!("{value:>VALUE_WIDTH$}"));
        let lead = format!("  {name:NAME_WIDTH$}  {value}  ");
        let indent = 2 + NAME_WIDTH + 2 + VALUE_WIDTH + 2;
        text.line(wrap_after(&lead, indent, &details.join(", "), layout.width).trim_end());
    };
    let exact = |bytes: u64| (bytes >= 1024).then(|| format!("{} bytes", format_count(bytes)));
    let some = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", format_count(count)));

    let peak = [
        exact(stats.peak_bytes),
        stats.peak_time_ns.map(|time_ns| format!("at {}", instant_exactly(time_ns, stats.origin_time_ns))),
        Some(counted(stats.peak_blocks, "block")),
        (!stats.peak_exact).then(|| "an upper bound".into()),
    ];
    row("peak", format_bytes(stats.peak_bytes), joined_time(peak.into_iter().flatten().collect()));
    let live = [exact(stats.live_bytes), Some(counted(stats.live_blocks, "block"))];
    row("live at the end", format_bytes(stats.live_bytes), live.into_iter().flatten().collect());
    let total = [exact(stats.total_bytes)];
    row("allocated", format_bytes(stats.total_bytes), total.into_iter().flatten().collect());
    let allocations = [
        some(stats.zero_size, "of no bytes"),
        some(
            stats.address_reuses,
            if stats.address_reuses_exact { "at a re-used address" } else { "or more at a re-used address" },
        ),
    ];
    row("allocations", format_count(stats.allocations), allocations.into_iter().flatten().collect());
    let frees = [
        some(stats.cross_thread_frees, "by another thread than allocated"),
        some(stats.unmatched_frees, "more of unknown blocks"),
        some(stats.null_frees, "more of null"),
    ];
    row("frees", format_count(stats.frees), frees.into_iter().flatten().collect());
    let failures = (stats.failures > 0).then(|| match stats.failures {
        1 => format!("asked for {}", format_bytes(stats.failed_bytes)),
        _ => format!("largest asked for {}", format_bytes(stats.largest_failure_bytes)),
    });
    row("failures", format_count(stats.failures), failures.into_iter().collect());
    if stats.carried_blocks > 0 {
        let carried = format!("{} live when the window opened", counted(stats.carried_blocks, "block"));
        row("carried in", format_bytes(stats.carried_bytes), vec![carried]);
    }
    text.text()
}

/// Joins `3,500 bytes` and `at 10:00` without a comma between them.
fn joined_time(mut parts: Vec<String>) -> Vec<String> {
    if let Some(at) = parts.iter().position(|part| part.starts_with("at ")).filter(|at| *at > 0) {
        let time = parts.remove(at);
        parts[at - 1].push(' ');
        parts[at - 1] += &time;
    }
    parts
}

fn sizes(stats: &Stats, layout: &Layout) -> String {
    let size = &stats.size;
    let titles = ["mean", "std", "min", "25 %", "50 %", "75 %", "95 %", "99 %", "max"];
    let ranks = [0, 5, 0, 4, 0, 4, 2, 3, 0];
    let columns = titles.iter().zip(ranks).map(|(title, rank)| Column::figure(title).rank(rank));
    let mut table = Table::new(columns.collect::<Vec<_>>());
    let whole = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), format_bytes);
    table.row(
        [
            mean_bytes(size.mean),
            mean_bytes(size.std),
            whole(size.min),
            mean_bytes(size.p25),
            mean_bytes(size.p50),
            mean_bytes(size.p75),
            mean_bytes(size.p95),
            mean_bytes(size.p99),
            whole(size.max),
        ]
        .map(Cell::from),
    );
    table.text(layout)
}

fn histogram(stats: &Stats, layout: &Layout) -> String {
    let most = stats.histogram.iter().map(|class| class.count).max().unwrap_or(0);
    let mut table = Table::new([
        Column::figure("size"),
        Column::figure("allocations"),
        Column::figure("bytes").rank(1),
        Column::text("").rank(2),
    ]);
    for class in &stats.histogram {
        table.row([
            Cell::from(size_class(class.from_bytes, class.to_bytes)),
            Cell::from(format_count(class.count)),
            Cell::from(format_bytes(class.bytes)),
            Cell::from(bar(class.count, most, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    table.text(layout)
}

/// A class of sizes: `0 B`, `256 B to 512 B`.
fn size_class(from: u64, to: u64) -> String {
    if to <= from + 1 {
        return format_bytes(from);
    }
    format!("{} to {}", short_bytes(from), short_bytes(to))
}

/// A power of two without decimals.
fn short_bytes(bytes: u64) -> String {
    format_bytes(bytes).replace(".00 ", " ").replace(".0 ", " ")
}

fn ledgers(stats: &Stats, layout: &Layout) -> String {
    let (shown, left) = layout.first(&stats.ledgers);
    let mut table = Table::new([
        Column::figure("process"),
        Column::figure("device"),
        Column::text("kind"),
        Column::long("resource"),
        Column::figure("peak"),
        Column::figure("live"),
        Column::figure("blocks").rank(2),
        Column::figure("allocations").rank(1),
        Column::figure("failures").rank(3),
    ]);
    for ledger in shown {
        table.row([
            Cell::from(ledger.process.to_string()),
            Cell::from(ledger.device.map_or_else(|| "-".into(), |device| device.to_string())),
            Cell::from(ledger.kind.name()),
            Cell::from(ledger.resource.as_deref().unwrap_or("-")),
            Cell::from(format_bytes(ledger.peak_bytes)),
            Cell::from(format_bytes(ledger.live_bytes)),
            Cell::from(format_count(ledger.live_blocks)),
            Cell::from(format_count(ledger.allocations)),
            Cell::from(format_count(ledger.failures)),
        ]);
    }
    let keys = ["process", "device", "kind", "resource"];
    let mut varies: Vec<bool> = (0..keys.len()).map(|at| table.varies(at)).collect();
    if !varies.contains(&true) {
        // Those that differ are not shown.
        varies[1] = true;
    }
    let named: Vec<&str> =
        keys.into_iter().zip(&varies).filter(|(_, varies)| **varies).map(|(key, _)| key).collect();
    table.keep(&varies);
    let mut text = Lines::default();
    text.styled(layout.palette.title, format!("By {}", named.join(", ")));
    text.block(table.text(layout));
    text.block(omitted(left, layout));
    text.text()
}
