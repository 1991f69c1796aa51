//! Ranks of a job side by side, as tables that stay readable with thousands of them.

use floodmark_analyze::{NodeMemory, RankMemory, Ranks};
use floodmark_event::units::{format_bytes, format_count, format_elapsed_ns};

use crate::chart::bar;
use crate::figures::{bytes_exactly, counted, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::View;
use crate::run::peak_stack;
use crate::table::{Cell, Column, Table, omitted, wrap, wrap_after};

/// Jobs with more ranks than this get a table of quantiles.
pub(crate) const FEW_RANKS: u64 = 8;
/// Ranks with the lowest peaks that are shown where not all are.
pub(crate) const LOWEST: usize = 3;
/// Ranges of numbers that a sentence may have.
const MOST_RANGES: usize = 8;

impl View for Ranks {
    const SCHEMA: &'static str = "floodmark.ranks/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let Some(highest) = self.rank_list.first() else {
            text.line("No memory of a rank could be read");
            if !self.ranks_without_samples.is_empty() {
                text.line(wrap(&no_samples(&self.ranks_without_samples), layout.width, 2));
            }
            return text.text();
        };
        text.line(wrap(&self.headline(highest), layout.width, 2));
        text.blank();
        for (name, value) in self.facts() {
            let lead = format!("  {}{}", styled(layout.palette.faint, name), " ".repeat(11 - name.len()));
            text.line(wrap_after(&lead, 13, &value, layout.width));
        }
        text.blank();
        if self.ranks > FEW_RANKS {
            text.block(self.quantile_table(layout));
            text.blank();
        }
        text.block(self.rank_tables(layout));
        text.blank();
        text.block(self.node_table(layout));
        if let Some(line) = &highest.last_output {
            text.blank();
            let lead = format!("Last output of rank {} before its peak: ", highest.rank);
            text.line(wrap(&(lead + &plain(line)), layout.width, 2));
        }
        if let Some(stack) = &self.peak_stack {
            text.blank();
            text.line(format!("Rank {} at its peak:", highest.rank));
            text.block(peak_stack(stack, layout));
        }
        text.text()
    }
}

/// Peaks that a share of the ranks or processes does not exceed: the share, the peak, and the number of one that has it.
pub(crate) fn quantile_table(
    titles: [&'static str; 3],
    rows: impl Iterator<Item = (f64, u64, u64)> + Clone,
    layout: &Layout,
) -> String {
    let [share, peak, example] = titles;
    let mut table = Table::new([
        Column::text(share),
        Column::figure(peak),
        Column::figure(example),
        Column::text("").rank(1),
    ]);
    let most = rows.clone().last().map_or(0, |(_, bytes, _)| bytes);
    for (share, bytes, number) in rows {
        let name = match share {
            share if share <= 0.0 => "lowest".to_owned(),
            share if share >= 1.0 => "highest".to_owned(),
            share => percent(share),
        };
        table.row([
            Cell::from(name),
            Cell::from(format_bytes(bytes)),
            Cell::from(number.to_string()),
            Cell::from(bar(bytes, most, layout.bar_width())).styled(layout.palette.bar),
        ]);
    }
    table.text(layout)
}

/// Names the ranks that no figure includes.
fn no_samples(ranks: &[u64]) -> String {
    format!("rank {}: no memory could be read", ranges(ranks))
}

/// Sentences and tables about ranks.
trait RanksText {
    fn headline(&self, highest: &RankMemory) -> String;
    fn facts(&self) -> Vec<(&'static str, String)>;
    fn quantile_table(&self, layout: &Layout) -> String;
    fn rank_tables(&self, layout: &Layout) -> String;
    fn node_table(&self, layout: &Layout) -> String;
    fn elapsed(&self, time_ns: i64) -> String;
}

impl RanksText for Ranks {
    fn headline(&self, highest: &RankMemory) -> String {
        let host =
            if highest.host.is_empty() { String::new() } else { format!(" on {}", plain(&highest.host)) };
        let bound = if highest.peak_is_bound { "at most " } else { "" };
        format!(
            "Rank {} peaks highest: {bound}{} resident at {}{host}, {} times the mean",
            highest.rank,
            bytes_exactly(highest.peak_rss_bytes),
            self.elapsed(highest.peak_time_ns),
            ratio(self.imbalance.highest_to_mean),
        )
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let imbalance = &self.imbalance;
        let mut facts = vec![
            (
                "ranks",
                format!("{} on {}", format_count(self.ranks), counted(self.nodes.len() as u64, "node")),
            ),
            (
                "peaks",
                format!(
                    "mean {}, median {}, standard deviation {} of the mean",
                    format_bytes(imbalance.mean_bytes),
                    format_bytes(imbalance.median_bytes),
                    percent(imbalance.variation)
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
        if !self.outliers.is_empty() {
            let count = format_count(self.outliers.len() as u64);
            facts.push(("outliers", format!("{count}: rank {}", ranges(&self.outliers))));
        }
        if !self.ranks_without_samples.is_empty() {
            facts.push(("no samples", no_samples(&self.ranks_without_samples)));
        }
        facts
    }

    fn quantile_table(&self, layout: &Layout) -> String {
        let rows = self.quantiles.iter().map(|one| (one.share, one.bytes, one.rank));
        quantile_table(["ranks", "peak RSS at most", "such as rank"], rows, layout)
    }

    fn rank_tables(&self, layout: &Layout) -> String {
        let (mut shown, mut left) = layout.first(&self.rank_list);
        let few = layout.rows.is_some_and(|rows| rows > 2 * LOWEST) && left + self.ranks_omitted > 0;
        if few {
            // Their places go to the lowest ones.
            let cut = shown.len() - LOWEST;
            left += LOWEST as u64;
            shown = &shown[..cut];
        }
        let lowest: Vec<&RankMemory> = match (few, self.ranks_omitted) {
            (false, _) => Vec::new(),
            // Those that were not listed are lower than the listed ones.
            (true, 1..) => self.lowest.iter().chain(self.rank_list.iter().rev()).take(LOWEST).collect(),
            (true, 0) => self.rank_list.iter().rev().take(LOWEST).collect(),
        };
        let hidden = (left + self.ranks_omitted).saturating_sub(lowest.len() as u64);
        let has_hosts = self.nodes.len() > 1;
        let most = self.rank_list.first().map_or(0, |rank| rank.peak_rss_bytes);
        let mut table = Table::new([
            Column::figure("rank"),
            Column::long("node"),
            Column::figure("peak RSS"),
            Column::figure("to mean"),
            Column::figure("at").rank(2),
            Column::long("process").rank(3),
            Column::text("").rank(1),
        ]);
        let cells = |rank: &RankMemory| {
            let note = if self.outliers.binary_search(&rank.rank).is_ok() { " *" } else { "" };
            [
                Cell::from(rank.rank.to_string()),
                Cell::from(&rank.host),
                Cell::from(format_bytes(rank.peak_rss_bytes)),
                Cell::from(format!("{}{note}", ratio(rank.peak_to_mean))),
                Cell::from(self.elapsed(rank.peak_time_ns)),
                Cell::from(&rank.name),
                Cell::from(bar(rank.peak_rss_bytes, most, layout.bar_width())).styled(layout.palette.bar),
            ]
        };
        for rank in shown {
            table.row(cells(rank));
        }
        let above = shown.len();
        for rank in lowest.iter().rev() {
            table.row(cells(rank));
        }
        table.keep(&[true, has_hosts, true, true, true, true, true]);
        if lowest.is_empty() {
            return table.text(layout) + &omitted(hidden, layout);
        }
        table.text_with(layout, |at, lines| {
            if at + 1 == above && hidden > 0 {
                let between = format!("  … {} between (--limit 0 shows all)", counted(hidden, "rank"));
                lines.line(styled(layout.palette.faint, between));
            }
        })
    }

    fn node_table(&self, layout: &Layout) -> String {
        let (shown, left) = layout.first(&self.nodes);
        let mut table = Table::new([
            Column::long("node"),
            Column::figure("ranks"),
            Column::figure("processes").rank(3),
            Column::figure("peak RSS"),
            Column::figure("shared once (PSS)"),
            Column::figure("at").rank(2),
            Column::figure("highest rank").rank(1),
        ]);
        for node in shown {
            let NodeMemory { host, .. } = node;
            table.row([
                Cell::from(if host.is_empty() { "(not known)" } else { host }),
                Cell::from(format_count(node.ranks)),
                Cell::from(format_count(node.processes)),
                Cell::from(format_bytes(node.peak_rss_bytes)),
                Cell::from(node.peak_pss_bytes.map_or_else(|| "-".to_owned(), format_bytes)),
                Cell::from(self.elapsed(node.peak_pss_time_ns.unwrap_or(node.peak_time_ns))),
                Cell::from(node.highest_rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string())),
            ]);
        }
        table.text(layout) + &omitted(left, layout)
    }

    fn elapsed(&self, time_ns: i64) -> String {
        format_elapsed_ns(time_ns.saturating_sub(self.origin_time_ns.unwrap_or(0)))
    }
}

pub(crate) fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Writes sorted numbers as few ranges: `1, 4-7`.
pub(crate) fn ranges(numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let more = ranges.len().saturating_sub(MOST_RANGES);
    let mut text: Vec<String> = ranges.iter().take(MOST_RANGES).map(text).collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_few_ranges() {
        assert_eq!(ranges(&[1, 4, 5, 6, 9]), "1, 4-6, 9");
        assert_eq!(ranges(&(0..40).step_by(2).collect::<Vec<_>>()), "0, 2, 4, 6, 8, 10, 12, 14, and 12 more");
    }
}
