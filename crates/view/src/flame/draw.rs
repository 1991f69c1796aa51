//! A flame graph as a scene, from which SVG, PNG and PDF are written.
//!
//! It is as high as it is deep. Text is cut to its box, measured with the one bundled font.

use crate::figures::counted;
use crate::flame::{FlameChart, Placed, Tone, place, without_directories};
use crate::plot::Shade;
use crate::plot::font::{fit, width};
use crate::plot::scene::{Anchor, Color, Fill, Item, Pen, Scene, Text};
use crate::plot::svg::svg;
use crate::plot::theme::Theme;

const MARGIN: f64 = 8.0;
const TITLE: f64 = 14.0;
const SMALL: f64 = 11.0;
const ROW: f64 = 18.0;
/// Height of a run of folded frames.
const SEAM: f64 = 5.0;
/// Between two boxes.
const GAP: f64 = 1.0;
/// Between a box and its text.
const INSET: f64 = 3.0;
/// A box narrower than this many pixels is joined with others.
const NARROWEST: f64 = 2.0;
/// How much of a color is left of it in a box, on either paper.
const STRENGTH: f64 = 0.42;

/// Makes boxes of a picture interactive where it is opened on its own.
const SCRIPT: &str = include_str!("../../assets/flame.js");

/// Writes a chart as an SVG document in which boxes can be zoomed and searched.
pub fn interactive_svg(scene: &Scene) -> String {
    let picture = svg(scene);
    let end = picture.rfind("</svg>").unwrap_or(picture.len());
    format!("{}<script><![CDATA[{SCRIPT}]]></script>\n{}", &picture[..end], &picture[end..])
}

/// Lays a chart out for a width in pixels.
pub fn scene(chart: &FlameChart, pixels: u32, shade: Shade) -> Scene {
    let theme = Theme::of(shade);
    let full = f64::from(pixels.max(100));
    let room = full - 2.0 * MARGIN;
    let placement = place(chart, NARROWEST / room);
    let mut items = Vec::new();
    let mut y = MARGIN + TITLE;
    let mut line = |text: String, size: f64, color: Color, y: f64| {
        let (anchor, angle, halo) = (Anchor::Start, 0.0, None);
        items.push(Item::Text(Text { x: MARGIN, y, text, size, color, anchor, angle, halo }));
    };
    line(fit(&chart.title, TITLE, room), TITLE, theme.ink, y);
    for text in wrapped(&chart.caption, SMALL, room) {
        y += SMALL * 1.4;
        line(text, SMALL, theme.faint, y);
    }
    y += SMALL * 0.8;
    if placement.boxes.is_empty() {
        y += SMALL * 1.4;
        line("there is nothing to draw".into(), SMALL, theme.ink, y);
    }
    for placed in &placement.boxes {
        items.push(item(placed, y, room, &theme));
    }
    y += placement.height(ROW, SEAM);
    if placement.unseen > 0 {
        let text = format!("{} too small to be drawn", counted(placement.unseen, "call"));
        for text in wrapped(&text, SMALL, room) {
            y += SMALL * 1.4;
            items.push(Item::Text(Text {
                x: MARGIN,
                y,
                text,
                size: SMALL,
                color: theme.faint,
                anchor: Anchor::Start,
                angle: 0.0,
                halo: None,
            }));
        }
    }
    Scene {
        size: (full, (y + MARGIN).ceil()),
        paper: theme.paper,
        title: chart.title.clone(),
        items,
        field: [0.0; 4],
        times_ns: (0, 0),
        curves: Vec::new(),
    }
}

fn item(placed: &Placed, top: f64, room: f64, theme: &Theme) -> Item {
    let x = MARGIN + placed.left * room;
    let wide = (placed.width * room - GAP).max(0.5);
    let (y, bottom) = (top + placed.top(ROW, SEAM), top + placed.bottom(ROW, SEAM));
    let space = wide - 2.0 * INSET;
    let is_long = width(&placed.text, SMALL) > space;
    let text = if is_long { without_directories(&placed.text) } else { placed.text.clone() };
    let text = fit(&text, SMALL, space);
    let label = (!text.is_empty() && !placed.is_seam).then_some(Text {
        x: x + INSET,
        y: y + ROW - GAP - 5.0,
        text,
        size: SMALL,
        color: theme.ink,
        anchor: Anchor::Start,
        angle: 0.0,
        halo: None,
    });
    Item::Labeled {
        at: [x, y, wide, bottom - y - GAP],
        fill: Fill { color: color(placed.tone, theme), opacity: 1.0 },
        pen: edge(placed.tone, theme),
        label,
        hint: placed.hint.clone(),
    }
}

/// The color of a box.
pub(crate) fn color(tone: Tone, theme: &Theme) -> Color {
    match tone {
        Tone::Call(number) => mixed(theme.series(number % CALL_COLORS), theme.paper, STRENGTH),
        Tone::Folded | Tone::Joined | Tone::Change(0.0) => theme.grid,
        Tone::Change(change) => {
            let color = if change > 0.0 { theme.grew() } else { theme.shrank() };
            // The least change can be told from none.
            mixed(color, theme.paper, 0.2 + 0.4 * change.abs().min(1.0))
        }
    }
}

/// Colors of calls: the gray of the series is left to what is folded.
pub(crate) const CALL_COLORS: usize = 6;

/// The edge of a box: what grew has a solid one, what shrank a dashed one.
fn edge(tone: Tone, theme: &Theme) -> Option<Pen> {
    match tone {
        Tone::Change(change) if change > 0.0 => Some(Pen::solid(theme.grew(), 1.0)),
        Tone::Change(change) if change < 0.0 => {
            Some(Pen { dash: Some((3.0, 2.0)), ..Pen::solid(theme.shrank(), 1.0) })
        }
        _ => None,
    }
}

pub(crate) fn mixed(color: Color, paper: Color, strength: f64) -> Color {
    let mix = |color: u8, paper: u8| {
        (f64::from(color) * strength + f64::from(paper) * (1.0 - strength)).round() as u8
    };
    Color(mix(color.0, paper.0), mix(color.1, paper.1), mix(color.2, paper.2))
}

/// Breaks a sentence into lines; a word that is too long is cut.
fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                line.push(' ');
                *line += word;
            }
            _ => lines.push(fit(word, size, room)),
        }
    }
    lines
}
