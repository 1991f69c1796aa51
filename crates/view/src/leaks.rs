//! Leaks: what is live at the end, how old it is and which site it comes from.

use floodmark_analyze::{ExcludeReason, Leaks, Verdict};
use floodmark_event::Kind;
use floodmark_event::units::{format_bytes, format_count, format_duration_ns, format_time_ns};

use crate::blocks::{NO_SITE, leak_table};
use crate::figures::{bytes_exactly, counted, percent};
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::{OtherKind, View};
use crate::table::{Cell, Column, Table, omitted, wrap};

impl View for Leaks {
    const SCHEMA: &'static str = "floodmark.leaks/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        text.headline(&headline(self), &format_bytes(self.leaked_bytes), layout);
        if self.leaked_blocks > 0 {
            if self.groups.iter().any(|group| group.site != NO_SITE) {
                text.blank();
                text.block(sites(self, layout));
                text.blank();
                text.styled(layout.palette.title, "Largest blocks");
            } else {
                text.blank();
            }
            text.block(leak_table(&self.blocks, self.blocks_omitted, layout));
        }
        for excluded in &self.excluded {
            text.blank();
            let blocks = counted(excluded.blocks, "block");
            let title = match excluded.reason {
                ExcludeReason::Static => format!("{} in {}", bytes_exactly(excluded.bytes), excluded.why),
                _ => format!("{} in {} ({blocks})", bytes_exactly(excluded.bytes), excluded.why),
            };
            text.line(wrap(&title, layout.width, 2));
            text.block(leak_table(&excluded.listed, excluded.blocks - excluded.listed.len() as u64, layout));
        }
        text.text()
    }

    fn others(&self) -> Vec<OtherKind> {
        // Reserved and static memory that is live is listed among the excluded blocks.
        let is_listed = |kind: Kind| matches!(kind, Kind::Reserved | Kind::Static);
        let others = self.others.iter().filter(|other| !is_listed(other.kind) || other.live_blocks == 0);
        others.map(OtherKind::from).collect()
    }
}

fn headline(leaks: &Leaks) -> String {
    let Some(end_ns) = leaks.end_time_ns else {
        return "no memory was allocated".into();
    };
    if leaks.leaked_blocks == 0
        && leaks.excluded.iter().any(|excluded| excluded.reason != ExcludeReason::Static)
    {
        return format!(
            "No leaks by the end at {}; what was never freed has a reason",
            format_time_ns(end_ns)
        );
    }
    if leaks.leaked_blocks == 0 {
        return format!("No leaks: every block was freed by {}", format_time_ns(end_ns));
    }
    format!(
        "{} in {} {} at {}",
        bytes_exactly(leaks.leaked_bytes),
        counted(leaks.leaked_blocks, "block"),
        if leaks.is_live_snapshot { "still live at the snapshot" } else { "never freed by the end" },
        format_time_ns(end_ns)
    )
}

fn sites(leaks: &Leaks, layout: &Layout) -> String {
    let (shown, left) = layout.first(&leaks.groups);
    let mut table = Table::new([
        Column::long("site"),
        Column::text("verdict").rank(1),
        Column::figure("blocks"),
        Column::figure("bytes"),
        Column::figure("share"),
        Column::text("why"),
        Column::figure("age").rank(2),
    ]);
    for group in shown {
        let verdict = match group.verdict {
            Verdict::Leak => layout.palette.bad,
            Verdict::Candidate => layout.palette.doubtful,
            Verdict::Live => layout.palette.faint,
        };
        let (oldest, youngest) =
            (format_duration_ns(group.oldest_age_ns), format_duration_ns(group.youngest_age_ns));
        table.row([
            Cell::from(&group.site),
            Cell::from(group.verdict.name()).styled(verdict),
            Cell::from(format_count(group.blocks)),
            Cell::from(format_bytes(group.bytes)),
            Cell::from(percent(group.share)),
            Cell::from(&group.reason),
            Cell::from(if oldest == youngest { oldest } else { format!("{youngest} to {oldest}") }),
        ]);
    }
    let mut without_age = table.clone();
    without_age.keep(&[true, true, true, true, true, true, false]);
    if without_age.fits(layout.width) {
        return table.text(layout) + &omitted(left, layout);
    }
    // Reasons are sentences: where they do not fit beside the figures, each is under its row.
    table.keep(&[true, true, true, true, true, false, true]);
    let text = table.text_with(layout, |at, text| {
        let reason = wrap(&plain(&shown[at].reason), layout.width.saturating_sub(4).max(1), 0);
        reason.lines().for_each(|line| text.styled(layout.palette.faint, format!("    {line}")));
    });
    text + &omitted(left, layout)
}
