//! A comparison as a page that stands alone: tables with bars, and the flame graph of differences.
//!
//! It has no script, loads nothing and says so to the browser. Both themes are in it.

use std::fmt::Write as _;

use floodmark_event::units::{format_bytes, format_count};

use floodmark_inspect::compare::Compared;

use crate::check::growth_sentence;
use crate::diff::{
    doubts, figure_cells, group_name, groups_title, is_worth_showing, kinds_differ, manner, signed,
};
use crate::flame::page::{PageTheme, element, page};
use crate::flame::{FlameChart, inert};
use crate::plot::model::Figure;
use crate::plot::svg::{self, escape};
use crate::plot::{Props, Shade, Size, arrange};
use crate::table::shorten;

/// Rows of a table; further ones are counted.
const MOST_ROWS: usize = 500;
/// Characters of a place.
const LONGEST_PLACE: usize = 110;

/// Size of the timelines, which follow the width of the window.
const TIMELINES: Size = Size { width: 1200, height: 360 };

/// Writes a comparison as an HTML page; `timelines` are both runs on one axis, where they have times.
pub fn html(compared: &Compared, timelines: Option<&Figure>) -> String {
    let diff = &compared.diff;
    let title = format!("{} → {}", compared.before.source, compared.after.source);
    let mut body = format!("<h1>What changed: {}</h1>\n", safe(&title));
    for broken in &compared.broken {
        let _ = writeln!(body, "<p class=\"broken\">{}</p>", safe(&growth_sentence(broken)));
    }
    if diff.is_empty() {
        body += "<p>Nothing changed.</p>\n";
    }
    figures(compared, &mut body);
    for sentence in kinds_differ(compared).into_iter().chain(doubts(compared)) {
        let _ = writeln!(body, "<p class=\"faint\">Note: {}</p>", safe(&sentence));
    }
    if let Some(figure) = timelines {
        draw(figure, &mut body);
    }
    if !diff.nodes.is_empty() {
        let chart = FlameChart::of_diff(diff);
        let _ = writeln!(body, "<h2>{}</h2>", safe(&chart.title));
        body += &element(&chart);
    }
    groups(compared, &mut body);
    leaks(compared, &mut body);
    page(&format!("What changed: {title}"), &body, PageTheme::Reader)
}

/// Draws timelines for both themes, of which the reader's is shown.
fn draw(figure: &Figure, body: &mut String) {
    *body += "<h2>Memory over time, from the start of each</h2>\n";
    for (class, shade) in [("light", Shade::Light), ("dark", Shade::Dark)] {
        let scene = arrange(figure, &Props { size: TIMELINES, shade, ..Props::default() });
        let _ = writeln!(body, "<div class=\"plot {class}\">{}</div>", svg::element(&scene));
    }
}

fn safe(text: &str) -> String {
    escape(&inert(text))
}

/// A cell with a place, cut where it is very long; all of it is there when pointed at.
fn place(text: &str) -> String {
    let shown = shorten(&inert(text), LONGEST_PLACE);
    if shown == text {
        return format!("<td>{}</td>", safe(text));
    }
    format!("<td title=\"{}\">{}</td>", safe(text), safe(&shown))
}

fn figures(compared: &Compared, body: &mut String) {
    *body += "<div class=\"scroll\"><table>\n<tr><th></th><th>before</th><th>after</th><th>change</th><th></th></tr>\n";
    for figure in compared.diff.figures.iter().filter(|figure| is_worth_showing(figure)) {
        *body += "<tr>";
        for cell in figure_cells(figure) {
            let _ = write!(body, "<td>{}</td>", safe(&cell));
        }
        *body += "</tr>\n";
    }
    *body += "</table></div>\n";
}

fn groups(compared: &Compared, body: &mut String) {
    let diff = &compared.diff;
    if diff.groups.is_empty() {
        return;
    }
    let _ = writeln!(body, "<h2>{}</h2>", groups_title(diff.by));
    let _ = writeln!(
        body,
        "<div class=\"scroll\"><table>\n<tr><th>{}</th><th>before</th><th>after</th><th>change</th><th></th>\
         <th>blocks</th><th></th></tr>",
        diff.by.name()
    );
    let most = diff.groups.iter().map(|group| group.change_bytes.unsigned_abs()).max().unwrap_or(0);
    for group in diff.groups.iter().take(MOST_ROWS) {
        let _ = writeln!(
            body,
            "<tr>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} → {}</td>{}</tr>",
            place(&group_name(group, diff.by)),
            format_bytes(group.before.bytes),
            format_bytes(group.after.bytes),
            signed(group.change_bytes),
            manner(group.presence, group.before.bytes, group.after.bytes),
            format_count(group.before.blocks),
            format_count(group.after.blocks),
            bar(group.change_bytes, most)
        );
    }
    *body += "</table></div>\n";
    more(diff.groups.len(), "changed", body);
    if diff.groups_unchanged > 0 {
        let _ =
            writeln!(body, "<p class=\"faint\">{} the same in both</p>", format_count(diff.groups_unchanged));
    }
}

fn leaks(compared: &Compared, body: &mut String) {
    let leaks = &compared.diff.leaks;
    if leaks.is_empty() {
        return;
    }
    *body += "<h2>Leaks that are new or grew</h2>\n<div class=\"scroll\"><table>\n<tr><th>site</th><th>before</th>\
              <th>after</th><th>change</th><th></th><th>verdict</th><th></th></tr>\n";
    let most = leaks.iter().map(|leak| leak.change_bytes.unsigned_abs()).max().unwrap_or(0);
    for leak in leaks.iter().take(MOST_ROWS) {
        let _ = writeln!(
            body,
            "<tr>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            place(&leak.site),
            format_bytes(leak.before.bytes),
            format_bytes(leak.after.bytes),
            signed(leak.change_bytes),
            manner(leak.presence, leak.before.bytes, leak.after.bytes),
            leak.verdict.name(),
            bar(leak.change_bytes, most)
        );
    }
    *body += "</table></div>\n";
    more(leaks.len(), "that leak more", body);
}

fn more(count: usize, what: &str, body: &mut String) {
    let left_out = count.saturating_sub(MOST_ROWS);
    if left_out > 0 {
        let _ = writeln!(body, "<p class=\"faint\">and {} more {what}</p>", format_count(left_out as u64));
    }
}

/// A bar to the right of the middle for what grew, to the left for what shrank.
fn bar(change: i64, most: u64) -> String {
    let width = if most == 0 { 0.0 } else { change.unsigned_abs() as f64 / most as f64 * 50.0 };
    let (class, left) = if change >= 0 { ("more", 50.0) } else { ("less", 50.0 - width) };
    format!(
        "<td class=\"bar\"><div class=\"bars\"><span class=\"axis\"></span>\
         <span class=\"{class}\" style=\"left:{left:.1}%;width:{width:.1}%\"></span></div></td>"
    )
}
