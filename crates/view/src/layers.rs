//! Statistics with what allocators held beside what was in use of it.

use floodmark_analyze::{Layer, Stats};
use floodmark_event::units::{format_bytes, format_count};
use floodmark_inspect::questions::LayeredStats;

use crate::figures::Clock;
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::{OtherKind, View};
use crate::table::wrap_after;

/// Columns of the names and figures.
const NAME_WIDTH: usize = 15;
const VALUE_WIDTH: usize = 10;

impl View for LayeredStats {
    const SCHEMA: &'static str = Stats::SCHEMA;

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.block(self.stats.body(layout));
        for layer in &self.layers {
            text.blank();
            text.block(section(layer, self.layers.len(), layout));
        }
        text.text()
    }

    fn others(&self) -> Vec<OtherKind> {
        self.stats.others()
    }
}

fn section(layer: &Layer, count: usize, layout: &Layout) -> String {
    let mut text = Lines::default();
    let device = layer.device.map_or_else(|| "the host".to_owned(), |device| format!("device {device}"));
    let place = if count > 1 { format!(", process {}, {device}", layer.process) } else { String::new() };
    let title = format!("Layers: {} in {}{place}", plain(&layer.blocks_resource), plain(&layer.resource));
    text.styled(layout.palette.title, title);
    let whole = layer.whole_blocks.unwrap_or_default();
    let times = [layer.reserved_peak_time_ns, layer.live_peak_time_ns, layer.slack_peak_time_ns];
    let clock = Clock::of(times.into_iter().chain([whole.peak_time_ns]).flatten());
    let mut row = |name: &str, bytes: u64, time_ns: Option<i64>, detail: String| {
        let value = styled(layout.palette.figure, format!("{:>VALUE_WIDTH$}", format_bytes(bytes)));
        let lead = format!("  {name:NAME_WIDTH$}  {value}  ");
        let time = time_ns.map_or_else(String::new, |time_ns| format!(" at {}", clock.time(time_ns)));
        let exact = format!("{} bytes{time}", format_count(bytes));
        let detail = if detail.is_empty() { exact } else { format!("{exact}, {detail}") };
        let indent = 2 + NAME_WIDTH + 2 + VALUE_WIDTH + 2;
        text.line(wrap_after(&lead, indent, &detail, layout.width).trim_end());
    };
    let slack = |reserved: u64, live: u64| format!("slack {}", format_bytes(reserved.saturating_sub(live)));
    row(
        "peak reserved",
        layer.reserved_peak_bytes,
        layer.reserved_peak_time_ns,
        slack(layer.reserved_peak_bytes, layer.live_at_reserved_peak_bytes),
    );
    if let Some(peak) = whole.peak_bytes {
        row("peak in blocks", peak, whole.peak_time_ns, "as the allocator rounds".to_owned());
    }
    row(
        "peak requested",
        layer.live_peak_bytes,
        layer.live_peak_time_ns,
        slack(layer.reserved_at_live_peak_bytes, layer.live_peak_bytes),
    );
    row(
        "largest slack",
        layer.slack_peak_bytes,
        layer.slack_peak_time_ns,
        "reserved, not requested".to_owned(),
    );
    row("reserved at end", layer.reserved_bytes, None, slack(layer.reserved_bytes, layer.live_bytes));
    if layer.whole_blocks.is_some() {
        let rounding = format_bytes(whole.live_bytes.saturating_sub(layer.live_bytes));
        row("blocks at end", whole.live_bytes, None, format!("rounding {rounding}"));
    }
    row("live at end", layer.live_bytes, None, String::new());
    text.text()
}
