//! The ledger of a process: items that add up to its resident memory.

use floodmark_analyze::{LedgerClass, LedgerItem, ProcessLedger, SlackPoint};
use floodmark_event::units::{format_bytes, format_count, format_duration_ns};

use crate::chart::bar;
use crate::figures::{instant_exactly, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap};

/// Rows of the table over time.
const ROWS: usize = 12;

impl View for ProcessLedger {
    const SCHEMA: &'static str = "floodmark.ledger/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        for sentence in headline(self) {
            text.line(wrap(&sentence, layout.width, 2));
        }
        text.blank();
        text.block(items(self, layout));
        if self.over_time.len() > 1 && self.live_heap_bytes.is_some() {
            text.blank();
            text.styled(layout.palette.title, "Resident memory and live heap over time");
            text.block(over_time(self, layout));
        }
        text.text()
    }
}

fn headline(ledger: &ProcessLedger) -> Vec<String> {
    let pid = if ledger.pid == 0 { String::new() } else { format!(" ({})", ledger.pid) };
    let others = match ledger.other_processes {
        0 => String::new(),
        1 => "; 1 other process was sampled (--pid shows it)".to_owned(),
        count => format!("; {} other processes were sampled (--pid shows one)", format_count(count)),
    };
    let mut sentences = vec![format!(
        "{}{pid} held {} at {}{others}",
        plain(&ledger.name),
        format_bytes(ledger.peak_rss_bytes),
        instant_exactly(ledger.peak_time_ns, Some(ledger.start_time_ns))
    )];
    match (ledger.read_time_ns, ledger.read_rss_bytes) {
        (Some(read_ns), Some(bytes)) => {
            let apart = read_ns.abs_diff(ledger.peak_time_ns);
            let when = if read_ns < ledger.peak_time_ns { "before" } else { "after" };
            sentences.push(format!(
                "its mappings were read {} {when} the peak, when they held {}",
                format_duration_ns(apart),
                format_bytes(bytes)
            ));
        }
        _ => sentences.push("its mappings were not read, so most of it cannot be told apart".to_owned()),
    }
    match ledger.live_heap_bytes {
        None => sentences.push("no heap was recorded, so live blocks cannot be told from slack".to_owned()),
        Some(live) => {
            let untouched = match ledger.untouched_bytes {
                0 => String::new(),
                bytes => format!(", of which {} cannot be resident: never touched", format_bytes(bytes)),
            };
            sentences.push(format!("the heap had {} of live blocks{untouched}", format_bytes(live)));
        }
    }
    sentences
}

fn label(item: &LedgerItem) -> String {
    match (item.class, &item.name) {
        (LedgerClass::HeapLive, _) => "heap: live blocks".to_owned(),
        (LedgerClass::HeapSlack, _) => "heap: slack (free chunks, headers, rounding)".to_owned(),
        (LedgerClass::Heap, _) => "heap ([heap])".to_owned(),
        (LedgerClass::File, Some(path)) => path.clone(),
        (LedgerClass::File, None) => "other files".to_owned(),
        (LedgerClass::Stack, _) => "stack of the first thread".to_owned(),
        (LedgerClass::Anonymous, _) => "other anonymous memory".to_owned(),
        (LedgerClass::NotRead, _) => "not told apart".to_owned(),
        (LedgerClass::Residual, _) => "residual: after mappings were read".to_owned(),
    }
}

fn signed_bytes(bytes: i64) -> String {
    let size = format_bytes(bytes.unsigned_abs());
    if bytes < 0 { format!("-{size}") } else { size }
}

fn items(ledger: &ProcessLedger, layout: &Layout) -> String {
    let (shown, left) = layout.first(&ledger.items);
    let mut table = Table::new([
        Column::long("what"),
        Column::figure("resident"),
        Column::figure("share").rank(1),
        Column::text("").rank(2),
    ]);
    let whole = ledger.peak_rss_bytes.max(1);
    for item in shown {
        let size = item.bytes.unsigned_abs();
        table.row([
            Cell::from(label(item)),
            Cell::from(signed_bytes(item.bytes)),
            Cell::from(percent(size as f64 / whole as f64)),
            Cell::from(bar(size, whole, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    let rest = &ledger.items[shown.len()..];
    if !rest.is_empty() {
        let bytes = rest.iter().fold(0i64, |sum, item| sum.saturating_add(item.bytes));
        table.row([Cell::from("the rest"), Cell::from(signed_bytes(bytes)), Cell::from(""), Cell::from("")]);
    }
    table.row([
        Cell::from("sum: resident memory"),
        Cell::from(format_bytes(ledger.peak_rss_bytes)),
        Cell::from("100 %"),
        Cell::from(""),
    ]);
    table.text(layout) + &omitted(left, layout)
}

fn over_time(ledger: &ProcessLedger, layout: &Layout) -> String {
    let joined = ledger.over_time.len().div_ceil(ROWS);
    let mut table = Table::new([
        Column::figure("at"),
        Column::figure("resident"),
        Column::figure("live heap"),
        Column::figure("beyond it"),
        Column::text("").rank(1),
    ]);
    for points in ledger.over_time.chunks(joined) {
        let Some(SlackPoint { time_ns, rss_bytes, live_bytes }) =
            points.iter().max_by_key(|point| point.rss_bytes).copied()
        else {
            continue;
        };
        let live = live_bytes.unwrap_or(0);
        let elapsed_ns = time_ns.saturating_sub(ledger.start_time_ns).unsigned_abs();
        let beyond = i64::try_from(rss_bytes).unwrap_or(i64::MAX).saturating_sub_unsigned(live);
        table.row([
            Cell::from(format!("+{}", format_duration_ns(elapsed_ns))),
            Cell::from(format_bytes(rss_bytes)),
            Cell::from(format_bytes(live)),
            Cell::from(signed_bytes(beyond)),
            Cell::from(bar(rss_bytes, ledger.peak_rss_bytes, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    table.text(layout)
}
