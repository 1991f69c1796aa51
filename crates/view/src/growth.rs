//! Growth: which sites hold more from iteration to iteration.

use floodmark_analyze::{Growth, SiteGrowth, Trend};
use floodmark_event::units::{format_bytes, format_count, format_signed_bytes};

use crate::figures::counted;
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, omitted, wrap};

impl View for Growth {
    const SCHEMA: &'static str = "floodmark.growth/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let growing = match self.growing {
            0 => "no site grows".to_owned(),
            1 => "1 site grows".to_owned(),
            many => format!("{} sites grow", format_count(many)),
        };
        let passed = if self.warm_up == 0 {
            String::new()
        } else {
            format!(" after the first {}", format_count(self.warm_up))
        };
        let looked =
            format!("{} of {}{passed}: {growing}", counted(self.iterations, "iteration"), plain(&self.per));
        text.headline(&looked, &growing, layout);
        if self.iterations < 3 {
            text.line(wrap("Three iterations are the least of which anything can be said.", layout.width, 2));
        }
        text.blank();
        text.block(table(self, layout));
        text.blank();
        let how = "Slopes are those of lines fitted to what is live when an iteration ends, by least squares. \
                   A site grows if the whole 95 % interval of its slope is above zero; the interval allows \
                   for iterations that resemble the one before.";
        text.line(wrap(how, layout.width, 0));
        text.text()
    }
}

fn table(growth: &Growth, layout: &Layout) -> String {
    let (shown, left) = layout.first(&growth.sites);
    let mut table = Table::new([
        Column::long("site"),
        Column::figure("process").rank(5),
        Column::text("verdict"),
        Column::figure("per iteration"),
        Column::figure("95 % interval").rank(2),
        Column::figure("per 1,000").rank(1),
        Column::figure("at first").rank(4),
        Column::figure("at last").rank(3),
    ]);
    let mut row = |site: &SiteGrowth| {
        let palette = &layout.palette;
        let style = match site.trend {
            Trend::Grows => palette.bad,
            Trend::Steady => palette.faint,
            Trend::Shrinks => palette.good,
        };
        let interval = match (site.low, site.high) {
            (Some(low), Some(high)) => format!("{} to {}", signed(low), signed(high)),
            _ => "-".to_owned(),
        };
        table.row([
            Cell::from(&site.site),
            Cell::from(site.process.to_string()),
            Cell::from(site.trend.name()).styled(style),
            Cell::from(signed(site.bytes_per_iteration)),
            Cell::from(interval),
            Cell::from(signed(site.bytes_per_thousand)),
            Cell::from(format_bytes(site.first_bytes)),
            Cell::from(format_bytes(site.last_bytes)),
        ]);
    };
    shown.iter().for_each(&mut row);
    growth.totals.iter().for_each(&mut row);
    let varies = table.varies(1);
    table.keep(&[true, varies]);
    table.text(layout) + &omitted(growth.sites_omitted + left, layout)
}

/// Bytes with a sign; the least amounts count as none.
fn signed(bytes: f64) -> String {
    let whole = bytes.round() as i64;
    if whole == 0 { "0 B".into() } else { format_signed_bytes(whole) }
}
