//! A flame graph as boxes of an HTML page: they follow the width of the window and the theme of the
//! reader. A script zooms, searches and copies; without it the boxes are a picture.

use std::fmt::Write as _;

use crate::figures::counted;
use crate::flame::draw::{CALL_COLORS, color};
use crate::flame::{FlameChart, Placed, Tone, inert, place, without_directories};
use crate::plot::Shade;
use crate::plot::font::FAMILY;
use crate::plot::svg::{escape, hex};
use crate::plot::theme::Theme;

/// A box narrower than this part of all is joined with others.
const NARROWEST: f64 = 1.0 / 1500.0;
const ROW: f64 = 19.0;
/// Height of a run of folded frames.
const SEAM: f64 = 5.0;
/// Makes boxes interactive; `web/src/flame.ts` is its source.
const SCRIPT: &str = include_str!("../../assets/flame.js");
/// Hash of the script, which is the only one that the policy of a page allows.
const SCRIPT_HASH: &str = include_str!("../../assets/flame.csp");
/// Steps of color from no change to all.
const STEPS: usize = 4;

/// Which theme a page has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageTheme {
    /// That of the reader.
    #[default]
    Reader,
    /// The dark one.
    Dark,
}

/// Writes a page with one flame graph.
pub fn html(chart: &FlameChart, theme: PageTheme) -> String {
    let body = format!("<h1>{}</h1>\n{}", escape(&inert(&chart.title)), element(chart));
    page(&chart.title, &body, theme)
}

/// A page that loads nothing and runs nothing but its own script.
pub(crate) fn page(title: &str, body: &str, theme: PageTheme) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src '{SCRIPT_HASH}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n{body}<script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(&inert(title)),
        style(theme)
    )
}

/// A flame graph within a page.
pub(crate) fn element(chart: &FlameChart) -> String {
    let placement = place(chart, NARROWEST);
    let mut text = format!("<p class=\"faint\">{}</p>\n", escape(&inert(&chart.caption)));
    if placement.boxes.is_empty() {
        return text + "<p>there is nothing to draw</p>\n";
    }
    let _ = writeln!(text, "<div class=\"flame\" style=\"height:{}px\">", placement.height(ROW, SEAM));
    for placed in &placement.boxes {
        write_box(placed, &mut text);
    }
    text += "</div>\n";
    if placement.unseen > 0 {
        let unseen = counted(placement.unseen, "call");
        let _ = writeln!(text, "<p class=\"faint\">{unseen} too small to be drawn</p>");
    }
    text
}

fn write_box(placed: &Placed, text: &mut String) {
    let mut class: String = match placed.tone {
        Tone::Call(number) => format!("c{}", number % CALL_COLORS),
        Tone::Folded | Tone::Joined => "f".into(),
        Tone::Change(change) => match step(change) {
            0 => "f".into(),
            step if change > 0.0 => format!("up u{step}"),
            step => format!("down d{step}"),
        },
    };
    if placed.is_seam {
        class += " seam";
    }
    let label = if placed.is_seam { String::new() } else { without_directories(&placed.text) };
    let _ = writeln!(
        text,
        "<div class=\"{class}\" style=\"left:{:.3}%;width:{:.3}%;top:{}px\" title=\"{}\">{}</div>",
        placed.left * 100.0,
        placed.width * 100.0,
        placed.top(ROW, SEAM),
        escape(&inert(&placed.hint)).replace('\n', "&#10;"),
        escape(&inert(&label)),
    );
}

/// How strong the color of a change is.
fn step(change: f64) -> usize {
    if change == 0.0 { 0 } else { ((change.abs() * STEPS as f64).ceil() as usize).clamp(1, STEPS) }
}

fn style(theme: PageTheme) -> String {
    let root = match theme {
        PageTheme::Reader => format!(
            ":root {{ color-scheme: light dark; {} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {} }} }}\n",
            variables(Shade::Light),
            variables(Shade::Dark)
        ),
        PageTheme::Dark => format!(":root {{ color-scheme: dark; {} }}\n", variables(Shade::Dark)),
    };
    let mut text = root;
    let _ = write!(
        text,
        "body {{ margin: 12px auto; padding: 0 12px; max-width: 1900px; background: var(--paper); color: var(--ink); \
         font: 14px {FAMILY}; }}\n\
         h1 {{ font-size: 18px; overflow-wrap: anywhere; }}\nh2 {{ font-size: 15px; margin: 24px 0 4px; }}\n\
         .faint {{ color: var(--faint); }}\n\
         .flame {{ position: relative; }}\n\
         .flame div {{ position: absolute; height: {height}px; line-height: {height}px; box-sizing: border-box; \
         overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 12px; padding-left: 3px; \
         color: var(--ink); border-right: 1px solid var(--paper); }}\n\
         .flame div {{ cursor: pointer; }}\n.tools {{ min-height: 26px; }}\n\
         .tools button, .tools input {{ font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--faint); \
         border-radius: 5px; padding: 1px 8px; }}\n\
         .flame .found {{ outline: 2px solid var(--ink); outline-offset: -2px; font-weight: bold; }}\n\
         .flame div:hover, .flame .chosen {{ outline: 2px solid var(--ink); outline-offset: -2px; }}\n\
         .flame .f {{ background: var(--fold); }}\n.flame .seam {{ height: {seam}px; }}\n\
         .flame .up {{ border: 1px solid var(--grew); }}\n.flame .down {{ border: 1px dashed var(--shrank); }}\n",
        height = ROW - 1.0,
        seam = SEAM - 1.0
    );
    for number in 0..CALL_COLORS {
        let _ = writeln!(text, ".flame .c{number} {{ background: var(--c{number}); }}");
    }
    for step in 1..=STEPS {
        let _ = writeln!(
            text,
            ".flame .u{step} {{ background: var(--u{step}); }}\n.flame .d{step} {{ background: var(--d{step}); }}"
        );
    }
    text += TABLES;
    text
}

const TABLES: &str = "\
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: right; font-weight: normal; color: var(--faint); }
td { text-align: right; white-space: nowrap; border-top: 1px solid var(--fold); }
th, td { padding: 3px 8px; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 110px; }
td.bar { width: 22%; min-width: 90px; }
td.bar div { height: 10px; }
.plot svg { display: block; max-width: 100%; height: auto; }
.plot.dark { display: none; }
@media (prefers-color-scheme: dark) { .plot.light { display: none; } .plot.dark { display: block; } }
.bars { position: relative; }
.bars span { position: absolute; top: 0; height: 10px; box-sizing: border-box; }
.bars .more { background: var(--u3); border: 1px solid var(--grew); }
.bars .less { background: var(--d3); border: 1px dashed var(--shrank); }
.bars .axis { left: 50%; width: 1px; background: var(--faint); }
@media (max-width: 600px) { body { font-size: 12px; padding: 0 6px; } th, td { padding: 2px 4px; } }
.broken { border-left: 4px solid var(--grew); padding: 2px 10px; }
";

fn variables(shade: Shade) -> String {
    let theme = Theme::of(shade);
    let mut text = format!(
        "--paper: {}; --ink: {}; --faint: {}; --fold: {}; --grew: {}; --shrank: {};",
        hex(theme.paper),
        hex(theme.ink),
        hex(theme.faint),
        hex(theme.grid),
        hex(theme.grew()),
        hex(theme.shrank())
    );
    for number in 0..CALL_COLORS {
        let _ = write!(text, " --c{number}: {};", hex(color(Tone::Call(number), &theme)));
    }
    for step in 1..=STEPS {
        let share = step as f64 / STEPS as f64;
        let _ = write!(text, " --u{step}: {};", hex(color(Tone::Change(share), &theme)));
        let _ = write!(text, " --d{step}: {};", hex(color(Tone::Change(-share), &theme)));
    }
    text
}
