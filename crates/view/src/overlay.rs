//! Usage with what devices say beside it: tracked, in use, and what is left over.

use std::fmt::Write as _;

use floodmark_analyze::{DeviceOverlay, Overlay, OverlayPoint, Spread, Usage};
use floodmark_event::units::{format_bytes, format_count, format_signed_bytes};
use floodmark_inspect::overlay::UsageBeside;

use crate::figures::{Clock, counted};
use crate::layout::{Layout, Lines};
use crate::report::{OtherKind, View};
use crate::table::{Cell, Column, Table, cut, wrap};

impl View for UsageBeside {
    const SCHEMA: &'static str = Usage::SCHEMA;

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.block(self.usage.body(layout));
        for device in self.overlay.iter().flat_map(|overlay| &overlay.devices) {
            text.blank();
            text.block(device_text(device, layout));
        }
        if let Some(overlay) = self.overlay.as_ref().filter(|overlay| overlay.samples_outside > 0) {
            text.blank();
            let outside = counted(overlay.samples_outside, "sample");
            let are = if overlay.samples_outside == 1 { "is" } else { "are" };
            let note = format!("{outside} {are} from before the first event or after the last and left out.");
            text.line(wrap(&note, layout.width, 0));
        }
        text.text()
    }

    fn others(&self) -> Vec<OtherKind> {
        self.usage.others()
    }
}

fn device_text(device: &DeviceOverlay, layout: &Layout) -> String {
    let mut text = Lines::default();
    let samples = counted(device.points.len() as u64, "sample");
    let title = format!("Device {}: what it says is in use, in {samples}", device.device);
    text.styled(layout.palette.title, cut(&title, layout.width));
    text.block(spreads(device, layout));
    if device.points.len() > 1 {
        text.blank();
        text.block(timeline(device, layout));
    }
    text.text()
}

fn spreads(device: &DeviceOverlay, layout: &Layout) -> String {
    let mut table = Table::new([
        Column::long(""),
        Column::figure("least"),
        Column::figure("median"),
        Column::figure("most"),
        Column::figure("at the peak"),
    ]);
    let mut row = |what: &str, spread: &Spread, at_peak: i64| {
        table.row([
            Cell::from(what),
            Cell::from(format_signed_bytes(spread.min)),
            Cell::from(format_signed_bytes(spread.median)),
            Cell::from(format_signed_bytes(spread.max)),
            Cell::from(format_signed_bytes(at_peak)),
        ]);
    };
    let at = &device.at_peak;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    row("tracked", &device.tracked, signed(at.tracked_bytes));
    if let Some(held) = &device.held {
        row("held by allocators", held, signed(at.held_bytes));
    }
    row("in use", &device.used, signed(at.used_bytes));
    row(floodmark_analyze::overlay::RESIDUAL, &device.residual, at.residual_bytes);
    table.text(layout)
}

/// Some samples, evenly chosen, each with a bar of what is tracked and what is left over.
fn timeline(device: &DeviceOverlay, layout: &Layout) -> String {
    let count = device.points.len();
    let rows = layout.rows.unwrap_or(count).clamp(2, count);
    let mut chosen: Vec<OverlayPoint> =
        (0..rows).map(|row| device.points[row * (count - 1) / (rows - 1)]).collect();
    if !chosen.contains(&device.at_peak) {
        chosen.push(device.at_peak);
        chosen.sort_by_key(|point| point.time_ns);
    }
    let clock = Clock::of(chosen.iter().map(|point| point.time_ns));
    let most = chosen.iter().map(|point| point.used_bytes.max(point.tracked_bytes)).max().unwrap_or(0);
    let mut table = Table::new([
        Column::text("time"),
        Column::figure("tracked"),
        Column::figure("in use"),
        Column::figure("rest"),
        Column::text("█ tracked ░ rest").rank(1),
    ]);
    for point in &chosen {
        table.row([
            Cell::from(clock.time(point.time_ns)),
            Cell::from(format_bytes(point.tracked_bytes)),
            Cell::from(format_bytes(point.used_bytes)),
            Cell::from(format_signed_bytes(point.residual_bytes)),
            Cell::from(bar(point, most, layout.bar_width() + 4)).styled(layout.palette.bar),
        ]);
    }
    let left_out = count.saturating_sub(chosen.len()) as u64;
    let mut text = Lines::default();
    text.block(table.text(layout));
    if left_out > 0 {
        let line = format!("… and {} more samples (--json or --csv has all)", format_count(left_out));
        text.styled(layout.palette.faint, format!("  {}", cut(&line, layout.width - 2)));
    }
    text.text()
}

fn bar(point: &OverlayPoint, most: u64, width: usize) -> String {
    let cells = |bytes: u64| {
        if most == 0 { 0 } else { (bytes as f64 / most as f64 * width as f64).round() as usize }
    };
    let tracked = cells(point.tracked_bytes).min(width);
    let used = cells(point.used_bytes).min(width).max(tracked);
    "█".repeat(tracked) + &"░".repeat(used - tracked)
}

/// The first line of a table of samples.
pub const CSV_HEADER: &str = "time_ns,device,tracked_bytes,held_bytes,used_bytes,residual_bytes\n";

/// Writes all samples as CSV, by device.
pub fn csv(overlay: &Overlay) -> String {
    let mut text = CSV_HEADER.to_owned();
    for device in &overlay.devices {
        for point in &device.points {
            let OverlayPoint { time_ns, tracked_bytes, held_bytes, used_bytes, residual_bytes } = point;
            let _ = writeln!(
                text,
                "{time_ns},{},{tracked_bytes},{held_bytes},{used_bytes},{residual_bytes}",
                device.device
            );
        }
    }
    text
}
