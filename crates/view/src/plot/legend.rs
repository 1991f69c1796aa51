//! Names of series: at the ends of their curves, in rows above, or in a corner.

use crate::plot::font::{fit_name, width};
use crate::plot::model::{Edge, Side};
use crate::plot::notes::{Frame, Taken};
use crate::plot::scene::{Anchor, Color, Fill, Item, Pen, Text};

/// A name with the sign that stands for its series.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) color: Color,
    pub(crate) sign: Sign,
}

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A piece of line.
    Line,
    /// A piece of dashed line.
    Dashes,
    /// A square.
    Square,
}

/// Length of a sign and its gap, in sizes of the font.
const SIGN: f64 = 1.5;
const SIGN_GAP: f64 = 0.4;
/// Space between two names, in sizes of the font.
const BETWEEN: f64 = 1.6;

/// Rows of entries that fit into a width.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Vec<(f64, Entry)>>,
    size: f64,
}

impl Rows {
    /// Spreads `entries` over rows of `room`; the first row begins later by `indent`.
    pub(crate) fn of(entries: &[Entry], size: f64, room: f64, indent: f64) -> Self {
        let mut rows: Vec<Vec<(f64, Entry)>> = vec![Vec::new()];
        let mut x = indent;
        for entry in entries {
            let name = fit_name(&entry.name, size, room - (SIGN + SIGN_GAP) * size);
            let needed = (SIGN + SIGN_GAP) * size + width(&name, size);
            if x + needed > room && x > 0.0 {
                rows.push(Vec::new());
                x = 0.0;
            }
            if let Some(row) = rows.last_mut() {
                row.push((x, Entry { name, ..entry.clone() }));
            }
            x += needed + BETWEEN * size;
        }
        Self { rows, size }
    }

    pub(crate) fn height(&self) -> f64 {
        self.rows.len() as f64 * self.size * 1.5
    }

    /// Draws with the first base line at `y`.
    pub(crate) fn draw(&self, left: f64, y: f64, ink: Color, items: &mut Vec<Item>) {
        for (number, row) in self.rows.iter().enumerate() {
            for (x, entry) in row {
                draw_entry(entry, left + x, y + number as f64 * self.size * 1.5, self.size, ink, items);
            }
        }
    }
}

fn draw_entry(entry: &Entry, x: f64, y: f64, size: f64, ink: Color, items: &mut Vec<Item>) {
    let middle = y - 0.36 * size;
    match entry.sign {
        Sign::Square => {
            let at = [x + 0.3 * size, middle - 0.45 * size, 0.9 * size, 0.9 * size];
            items.push(Item::Rect { at, fill: Fill { color: entry.color, opacity: 1.0 }, hint: None });
        }
        sign => {
            let dash = (sign == Sign::Dashes).then_some((0.35 * size, 0.23 * size));
            let pen = Pen { color: entry.color, width: 0.17 * size, dash };
            let points = vec![(x, middle), (x + SIGN * size, middle)];
            items.push(Item::Path { points, pen: Some(pen), fill: None });
        }
    }
    items.push(Item::Text(Text {
        x: x + (SIGN + SIGN_GAP) * size,
        y,
        text: entry.name.clone(),
        size,
        color: ink,
        anchor: Anchor::Start,
        angle: 0.0,
        halo: None,
    }));
}

/// A box with names inside of the picture.
pub(crate) struct Corner {
    pub(crate) side: Side,
    pub(crate) edge: Edge,
    pub(crate) size: f64,
    pub(crate) paper: Color,
    pub(crate) ink: Color,
}

impl Corner {
    /// Draws it into a corner of `field`; what does not fit is left out and counted.
    pub(crate) fn draw(
        &self,
        entries: &[Entry],
        field: [f64; 4],
        taken: &mut Taken,
        items: &mut Vec<Item>,
    ) -> usize {
        let (size, [left, top, w, h]) = (self.size, field);
        let room = w * 0.5 - (SIGN + SIGN_GAP + 1.6) * size;
        let most = ((h - size) / (1.5 * size)).max(0.0) as usize;
        let shown: Vec<Entry> = entries
            .iter()
            .take(most)
            .map(|entry| Entry { name: fit_name(&entry.name, size, room), ..entry.clone() })
            .collect();
        if shown.is_empty() {
            return entries.len();
        }
        let widest = shown.iter().map(|entry| width(&entry.name, size)).fold(0.0, f64::max);
        let box_w = widest + (SIGN + SIGN_GAP + 1.2) * size;
        let box_h = shown.len() as f64 * 1.5 * size + 0.5 * size;
        let gap = 0.6 * size;
        let x = match self.side {
            Side::Left => left + gap,
            Side::Middle => left + (w - box_w) / 2.0,
            Side::Right => left + w - box_w - gap,
        };
        let y = match self.edge {
            Edge::Top => top + gap,
            Edge::Middle => top + (h - box_h) / 2.0,
            Edge::Bottom => top + h - box_h - gap,
        };
        let at = [x, y, box_w, box_h];
        taken.take(Frame::upright(at));
        items.push(Item::Rect { at, fill: Fill { color: self.paper, opacity: 0.85 }, hint: None });
        for (number, entry) in shown.iter().enumerate() {
            let line = y + 0.25 * size + (number as f64 + 1.0) * 1.5 * size - 0.45 * size;
            draw_entry(entry, x + 0.6 * size, line, size, self.ink, items);
        }
        entries.len() - shown.len()
    }
}
