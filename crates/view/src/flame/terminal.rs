//! A flame graph drawn with characters: a tree with a bar for every fork.
//!
//! A chain of calls that each call one other only keeps its indent, and only its first line has figures:
//! what differs is what one looks for. Folded frames have a line only where nothing they call is listed.
//! Calls that are too small are counted where they are left out.

use floodmark_analyze::Flame;
use unicode_width::UnicodeWidthStr as _;

use crate::chart::bar;
use crate::figures::{counted, percent};
use crate::flame::{FlameChart, part};
use crate::layout::{Layout, Lines, styled};
use crate::report::{OtherKind, View};
use crate::table::{cut, shorten, wrap};

/// A call that is a smaller part of all is left out unless asked for.
const SMALLEST_PART: u64 = 200;
/// Columns of the longest bar.
const BAR: usize = 12;
/// Columns by which a level is indented, and the most of them.
const INDENT: usize = 2;
const MOST_INDENT: usize = 24;

struct CallLine {
    at: u32,
    indent: usize,
    /// Whether its figures are those of the line above.
    continues: bool,
}

/// Lines of a flame graph unless asked for more.
pub const USUAL_LINES: usize = 40;

impl View for Flame {
    const SCHEMA: &'static str = "floodmark.flame/1";

    fn body(&self, layout: &Layout) -> String {
        text(&FlameChart::of(self, ""), layout)
    }

    fn others(&self) -> Vec<OtherKind> {
        self.others.iter().map(OtherKind::from).collect()
    }
}

/// Draws a chart as text without its title; no line is wider than the layout. Where that limits rows, what
/// is less than half a percent is left out too.
pub fn text(chart: &FlameChart, layout: &Layout) -> String {
    let palette = &layout.palette;
    let mut text = Lines::default();
    text.line(wrap(&format!("{}: {}", chart.what, chart.caption), layout.width, 2));
    if chart.total == 0 {
        return text.text();
    }
    text.blank();
    let least = layout.rows.map_or(0, |_| chart.total / SMALLEST_PART);
    let most = layout.rows.unwrap_or(usize::MAX);
    let (lines, left_out) = lines(chart, most, least);
    let values: Vec<String> =
        lines.iter().map(|line| chart.unit.short(chart.boxes[line.at as usize].value)).collect();
    let wide = values.iter().map(|value| value.width()).max().unwrap_or(0);
    let bar_width = BAR.min(layout.width / 6);
    for (line, value) in lines.iter().zip(&values) {
        let one = &chart.boxes[line.at as usize];
        let share = part(one.value, chart.total);
        let bar = bar(one.value, chart.total, bar_width);
        let figures = if line.continues {
            " ".repeat(wide + bar_width + 10)
        } else {
            let slack = bar_width.saturating_sub(bar.width());
            format!("{value:>wide$} {:>6} {}{:slack$}  ", percent(share), styled(palette.bar, &bar), "")
        };
        let indent = line.indent.min(MOST_INDENT);
        let room = layout.width.saturating_sub(wide + bar_width + 10 + indent);
        let name = shorten(&one.text, room);
        let name = if line.continues || one.is_seam { styled(palette.faint, name) } else { name };
        text.line(format!("{figures}{:indent$}{name}", "").trim_end());
    }
    if left_out > 0 {
        let line = format!("… and {} (--limit 0 shows all)", counted(left_out, "smaller call"));
        text.styled(palette.faint, cut(&line, layout.width));
    }
    text.text()
}

/// The largest calls as far as there is room, in the order of the tree, and how many are left out.
fn lines(chart: &FlameChart, most: usize, least: u64) -> (Vec<CallLine>, u64) {
    let listings = listings(chart, least);
    let mut only_child = vec![true; chart.boxes.len()];
    let mut last_child: Vec<Option<u32>> = vec![None; chart.boxes.len()];
    for (at, listing) in listings.iter().enumerate() {
        if let Listing::Under(Some(caller)) = listing
            && let Some(before) = last_child[*caller as usize].replace(at as u32)
        {
            only_child[before as usize] = false;
            only_child[at] = false;
        }
    }
    let mut indents = vec![0; chart.boxes.len()];
    let mut lines = Vec::new();
    for (at, listing) in listings.iter().enumerate() {
        let Listing::Under(caller) = listing else { continue };
        let one = &chart.boxes[at];
        let value = |caller: u32| chart.boxes[caller as usize].value;
        let continues = caller.is_some_and(|caller| only_child[at] && value(caller) == one.value);
        let above = caller.map_or(0, |caller| indents[caller as usize]);
        indents[at] = if continues || caller.is_none() { above } else { above + INDENT };
        // A run of frames that says nothing new about its caller is not worth a line.
        if !continues || !one.is_seam {
            lines.push(CallLine { at: at as u32, indent: indents[at], continues });
        }
    }
    let count = lines.len();
    let value = |line: &CallLine| chart.boxes[line.at as usize].value;
    lines.retain(|line| value(line) >= least);
    // Parents are at least as large as their children and come before them.
    lines.sort_by_key(|line| std::cmp::Reverse(value(line)));
    lines.truncate(most);
    lines.sort_by_key(|line| line.at);
    let left_out = (count - lines.len()) as u64;
    (lines, left_out)
}

/// Where each box is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// Nowhere: what this run of folded frames calls is listed in its place.
    LeftOut,
    /// Under another box, or as a root.
    Under(Option<u32>),
}

/// Where each box is listed, given the value from which on calls are.
fn listings(chart: &FlameChart, least: u64) -> Vec<Listing> {
    let mut is_left_out = vec![false; chart.boxes.len()];
    for one in chart.boxes.iter().filter(|one| one.value >= least) {
        if let Some(parent) = one.parent
            && chart.boxes[parent as usize].is_seam
        {
            is_left_out[parent as usize] = true;
        }
    }
    // Parents come before their children.
    let mut listings: Vec<Listing> = Vec::with_capacity(chart.boxes.len());
    // The nearest box that is listed, from each on outwards.
    let mut listed: Vec<Option<u32>> = Vec::with_capacity(chart.boxes.len());
    for (at, one) in chart.boxes.iter().enumerate() {
        let caller = one.parent.and_then(|parent| listed[parent as usize]);
        listed.push(if is_left_out[at] { caller } else { Some(at as u32) });
        listings.push(if is_left_out[at] { Listing::LeftOut } else { Listing::Under(caller) });
    }
    listings
}
