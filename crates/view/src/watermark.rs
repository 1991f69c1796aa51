//! The watermark: how high, when, and who held it.

use floodmark_analyze::{Group, GroupBy, Grouping, PoolUse, Watermark};
use floodmark_event::units::{format_bytes, format_count};

use crate::blocks::{block_table, stream};
use crate::chart::bar;
use crate::figures::{bytes_exactly, counted, instant_exactly, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::{OtherKind, View};
use crate::table::{Cell, Column, Table, cut, omitted};

/// Frames of a stack to show under a group.
pub(crate) const FRAMES: usize = 12;

impl View for Watermark {
    const SCHEMA: &'static str = "floodmark.watermark/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.headline(&headline(self), &format_bytes(self.reported_bytes), layout);
        if self.failures > 0 {
            let failed = format!("{} failed (out of memory)", counted(self.failures, "allocation"));
            text.line(styled(layout.palette.doubtful, failed));
        }
        if self.reported_blocks == 0 {
            return text.text();
        }
        for grouping in &self.groups {
            text.blank();
            text.block(group_table(grouping, layout));
        }
        if !self.pools.is_empty() {
            text.blank();
            text.block(pool_table(&self.pools, layout));
        }
        text.blank();
        text.styled(layout.palette.title, "Largest blocks");
        text.block(block_table(&self.blocks, self.blocks_omitted, layout));
        text.text()
    }

    fn others(&self) -> Vec<OtherKind> {
        self.others.iter().map(OtherKind::from).collect()
    }
}

fn headline(watermark: &Watermark) -> String {
    let Some(peak_time_ns) = watermark.peak_time_ns else {
        return "no memory was allocated".into();
    };
    let instant = |time_ns| instant_exactly(time_ns, watermark.origin_time_ns);
    let peak = format!("Peak {} at {}", bytes_exactly(watermark.peak_bytes), instant(peak_time_ns));
    match watermark.at_ns {
        None => format!("{peak}, {} live", counted(watermark.reported_blocks, "block")),
        Some(at_ns) => format!(
            "{} at {}, {} live ({} of the peak of {} at {})",
            bytes_exactly(watermark.reported_bytes),
            instant(at_ns),
            counted(watermark.reported_blocks, "block"),
            percent(watermark.reported_bytes as f64 / watermark.peak_bytes.max(1) as f64),
            format_bytes(watermark.peak_bytes),
            instant(peak_time_ns)
        ),
    }
}

pub(crate) fn group_table(grouping: &Grouping, layout: &Layout) -> String {
    let (shown, left) = layout.first(&grouping.groups);
    let key = match grouping.by {
        GroupBy::Size | GroupBy::Thread | GroupBy::Device => Column::figure(grouping.by.name()),
        by => Column::long(by.name()),
    };
    let columns = [
        key,
        Column::figure("blocks"),
        Column::figure("bytes"),
        Column::figure("share"),
        Column::text("").rank(1),
    ];
    let most = grouping.groups.first().map_or(0, |group| group.bytes);
    let row = |group: &Group| {
        [
            Cell::from(key_text(grouping.by, &group.key)),
            Cell::from(format_count(group.blocks)),
            Cell::from(format_bytes(group.bytes)),
            Cell::from(percent(group.share)),
            Cell::from(bar(group.bytes, most, layout.bar_width())).styled(layout.palette.bar),
        ]
    };
    let rest = omitted(left, layout);
    let mut table = Table::new(columns);
    for group in shown {
        table.row(row(group));
    }
    if grouping.by != GroupBy::Stack {
        return table.text(layout) + &rest;
    }
    // The further frames of each stack are below its row.
    let text = table.text_with(layout, |at, text| {
        let stack = &shown[at].stack;
        for frame in stack.iter().skip(1).take(FRAMES) {
            let frame = cut(&format!("    {}", plain(frame)), layout.width);
            text.styled(layout.palette.faint, frame);
        }
        let further = stack.len().saturating_sub(1 + FRAMES);
        if further > 0 {
            let line = cut(&format!("    … {}", counted(further as u64, "frame")), layout.width);
            text.styled(layout.palette.faint, line);
        }
    });
    text + &rest
}

fn pool_table(pools: &[PoolUse], layout: &Layout) -> String {
    let (shown, left) = layout.first(pools);
    let mut table = Table::new([
        Column::long("pool"),
        Column::figure("reserved"),
        Column::figure("in use"),
        Column::figure("not in use"),
        Column::figure("most reserved").rank(1),
    ]);
    for pool in shown {
        let name = [&*pool.name, &*pool.process].into_iter().filter(|text| !text.is_empty());
        table.row([
            Cell::from(name.collect::<Vec<_>>().join(", ")),
            Cell::from(format_bytes(pool.reserved_bytes)),
            Cell::from(format_bytes(pool.used_bytes)),
            Cell::from(format_bytes(pool.reserved_bytes.saturating_sub(pool.used_bytes))),
            Cell::from(format_bytes(pool.peak_reserved_bytes)),
        ]);
    }
    table.text(layout) + &omitted(left, layout)
}

fn key_text(by: GroupBy, key: &str) -> String {
    match by {
        GroupBy::Size => key.parse().map_or_else(|_| key.to_owned(), format_bytes),
        GroupBy::Stream => key
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map_or_else(|| key.to_owned(), stream),
        _ => key.to_owned(),
    }
}
