//! What stands at instants: phases, peaks, stacks that were seen, notes.

use floodmark_event::units::{format_bytes, format_count};

use crate::plot::arrange::field::Field;
use crate::plot::arrange::{Names, Picture};
use crate::plot::axis::{instant, peak_instant};
use crate::plot::font::{fit, width};
use crate::plot::model::{Dot, Peak, Role};
use crate::plot::notes::Frame;
use crate::plot::scene::{Anchor, Color, Fill, Item, Pen, Text};

/// Notes that are looked at; more are only counted.
const MOST_NOTES: usize = 2000;
/// Series whose peaks are labeled.
const MOST_PEAKS: usize = 4;
/// Frames of a stack that are shown.
const MOST_FRAMES: usize = 24;

impl Picture<'_> {
    /// Bands, every other one shaded, with names at the top.
    pub(super) fn phases(&mut self, field: &Field) {
        let (size, [_, top, w, h]) = (self.size, field.at);
        let figure = self.figure;
        if figure.phases.is_empty() {
            return;
        }
        if w / (figure.phases.len() as f64) < 3.0 {
            let count = format_count(figure.phases.len() as u64);
            self.remarks.push(format!("{count} phases are too many to be drawn"));
            return;
        }
        let mut unnamed = 0u64;
        for (number, phase) in figure.phases.iter().enumerate() {
            let (x, end) = (field.x(phase.from_ns), field.x(phase.to_ns));
            if number % 2 == 0 {
                let fill = Fill { color: self.theme.band, opacity: 0.10 };
                let hint = (!phase.name.is_empty()).then(|| phase.name.clone());
                self.items.push(Item::Rect { at: [x, top, end - x, h], fill, hint });
            }
            let name = fit(&phase.name, size, end - x - 0.8 * size);
            if name.is_empty() {
                unnamed += u64::from(!phase.name.is_empty());
                continue;
            }
            let (x, y) = (x + 0.4 * size, top + 1.1 * size);
            self.taken.take(self.frame(x, y, &name));
            self.text(x, y, name, Anchor::Start, self.theme.faint);
        }
        if unnamed > 0 {
            let of = format_count(figure.phases.len() as u64);
            self.remarks.push(format!("names of {} of {of} phases have no room", format_count(unnamed)));
        }
    }

    /// A ring and the figure at the highest points.
    pub(super) fn peaks(&mut self, field: &Field) {
        let figure = self.figure;
        let of_series = |(number, series): (usize, &crate::plot::model::Series)| {
            let peak = series.highest()?;
            (series.role == Role::Main || figure.series.len() <= 2).then_some((number, peak))
        };
        let mut peaks: Vec<(usize, Peak)> = figure.series.iter().enumerate().filter_map(of_series).collect();
        peaks.sort_by_key(|(number, peak)| (std::cmp::Reverse(peak.bytes), *number));
        let least = figure.highest_bytes() / 30;
        peaks.retain(|(_, peak)| peak.bytes >= least);
        let mut rings: Vec<(f64, f64)> = Vec::new();
        for (order, (number, peak)) in peaks.into_iter().take(MOST_PEAKS).enumerate() {
            let color = self.color(number);
            let (x, y) = (field.x(peak.time_ns), field.y(peak.bytes));
            // One that is nearly the same says nothing new.
            if rings.iter().any(|(rx, ry)| (rx - x).hypot(ry - y) < 2.0 * self.size) {
                continue;
            }
            rings.push((x, y));
            let bytes = format_bytes(peak.bytes);
            let at = peak_instant(peak.time_ns, field.span_ns(), figure.time);
            let long = format!("peak {bytes} at {at}");
            let texts = if order == 0 { vec![long, bytes] } else { vec![bytes] };
            let pen = Pen::solid(color, (0.13 * self.size).max(1.2));
            let (radius, fill) = (0.32 * self.size, Fill { color: self.theme.paper, opacity: 1.0 });
            self.items.push(Item::Circle {
                at: (x, y),
                radius,
                pen: Some(pen),
                fill: Some(fill),
                hint: None,
            });
            for text in texts {
                if self.peak_label(field, (x, y), text, color) {
                    break;
                }
            }
        }
    }

    /// Writes a label near a point; whether there was room.
    fn peak_label(&mut self, field: &Field, (x, y): (f64, f64), text: String, color: Color) -> bool {
        let (size, [left, top, w, h]) = (self.size, field.at);
        let long = width(&text, size);
        if long + 4.0 > w {
            return false;
        }
        let within = |x: f64| x.clamp(left + 2.0, left + w - long - 2.0);
        let above = y - 0.75 * size;
        let places = [
            (within(x - long / 2.0), above),
            (within(x + 0.7 * size), above),
            (within(x - long - 0.7 * size), above),
            (within(x + 0.7 * size), y + 0.35 * size),
            (within(x - long - 0.7 * size), y + 0.35 * size),
            (within(x - long / 2.0), above - 1.3 * size),
            (within(x - long / 2.0), y + 1.6 * size),
        ];
        let wide = format!(" {text} ");
        let space = width(" ", size);
        let frames = places.map(|(x, y)| ((x, y), Frame::of_text(x - space, y, &wide, size, 0.0)));
        let bounds = [left - space, top, w + 2.0 * space, h];
        let Some((x, y)) = self.taken.first_free(frames, bounds) else { return false };
        let color = if self.figure.series.len() > 1 { color } else { self.theme.ink };
        let halo = Some(self.theme.paper);
        self.items.push(Item::Text(Text {
            x,
            y,
            text,
            size,
            color,
            anchor: Anchor::Start,
            angle: 0.0,
            halo,
        }));
        true
    }

    /// Stacks that were seen: one dot per column and series.
    pub(super) fn dots(&mut self, field: &Field) {
        let radius = 0.28 * self.size;
        let mut last: Option<(usize, f64)> = None;
        let mut merged = 0u64;
        for dot in &self.figure.dots {
            let Some(series) = self.figure.series.get(dot.series) else { continue };
            let Some(bytes) = series.at(dot.time_ns) else { continue };
            let (x, y) = (field.x(dot.time_ns), field.y(bytes));
            if last.is_some_and(|(series, before)| series == dot.series && (x - before).abs() < radius) {
                merged += 1;
                continue;
            }
            last = Some((dot.series, x));
            let fill = Fill { color: self.color(dot.series), opacity: 1.0 };
            let pen = Pen::solid(self.theme.paper, 0.8);
            let hint = Some(self.stack_hint(dot, field));
            self.items.push(Item::Circle { at: (x, y), radius, pen: Some(pen), fill: Some(fill), hint });
        }
        if merged > 0 {
            let what = if merged == 1 { "stack shares" } else { "stacks share" };
            self.remarks.push(format!("{} {what} a dot with another", format_count(merged)));
        }
    }

    fn stack_hint(&self, dot: &Dot, field: &Field) -> String {
        let mut lines = vec![instant(dot.time_ns, field.span_ns(), self.figure.time)];
        lines.extend(dot.lines.iter().take(MOST_FRAMES).cloned());
        if dot.lines.len() > MOST_FRAMES {
            lines.push(format!("… {} more", dot.lines.len() - MOST_FRAMES));
        }
        lines.join("\n")
    }

    /// Texts at instants: a cross on the curve, the text beside it where there is room.
    pub(super) fn notes(&mut self, field: &Field) {
        let figure = self.figure;
        let mut left_out = 0u64;
        for (number, note) in figure.notes.iter().enumerate() {
            let Some(series) = figure.series.get(note.series) else { continue };
            let Some(bytes) = series.at(note.time_ns) else { continue };
            let (x, y) = (field.x(note.time_ns), field.y(bytes));
            let text = self.note_text(&note.text);
            let is_written =
                number < MOST_NOTES && !text.is_empty() && self.note(field, (x, y), &text, note.series);
            left_out += u64::from(!is_written && !text.is_empty());
            self.cross((x, y), &note.text, note.series);
        }
        if left_out > 0 {
            let (left_out, all) = (format_count(left_out), format_count(figure.notes.len() as u64));
            self.remarks
                .push(format!("{left_out} of {all} lines of output have no room and are crosses only"));
        }
    }

    /// Whether a turned text that begins at a place would lie on its curve.
    fn crosses(&self, field: &Field, series: usize, (x, y): (f64, f64), long: f64) -> bool {
        let Some(series) = self.figure.series.get(series) else { return false };
        let (sin, cos) = self.props.note_angle.to_radians().sin_cos();
        let mut was_above = None;
        (0..=16).any(|step| {
            let along = long * f64::from(step) / 16.0;
            let (px, py) = (x + along * cos, y - along * sin - 0.3 * self.size);
            let Some(bytes) = series.at(field.time_ns(px)) else { return false };
            let apart = field.y(bytes) - py;
            let is_through = was_above.is_some_and(|above| above != (apart > 0.0));
            was_above = Some(apart > 0.0);
            is_through || apart.abs() < 0.6 * self.size
        })
    }

    fn cross(&mut self, (x, y): (f64, f64), text: &str, series: usize) {
        let arm = 0.25 * self.size;
        let pen = Pen::solid(self.color(series), 1.2);
        for points in
            [vec![(x - arm, y - arm), (x + arm, y + arm)], vec![(x - arm, y + arm), (x + arm, y - arm)]]
        {
            self.items.push(Item::Path { points, pen: Some(pen), fill: None });
        }
        let at = [x - 2.0 * arm, y - 2.0 * arm, 4.0 * arm, 4.0 * arm];
        let fill = Fill { color: self.theme.paper, opacity: 0.0 };
        self.items.push(Item::Rect { at, fill, hint: Some(text.to_owned()) });
    }

    /// Writes a note near a point; whether there was room.
    fn note(&mut self, field: &Field, (x, y): (f64, f64), text: &str, series: usize) -> bool {
        let (size, angle) = (self.size, self.props.note_angle);
        let long = width(text, size);
        let (sin, cos) = angle.to_radians().sin_cos();
        let (dx, dy) = self.props.note_shift;
        let (x0, y0) = (x + 0.5 * size + dx, y - 0.6 * size - dy);
        // From the point up; up to the point from the left; higher; at the right end back inside.
        let rising = (x - long * cos - 0.9 * size + dx, y + long * sin - 0.3 * size - dy);
        let is_at_end = x0 + long * cos > field.at[0] + field.at[2];
        let x1 = if is_at_end { x0 - long * cos } else { x0 };
        let lifted = (0..4).map(|lift| (x1, y0 - f64::from(lift) * 1.3 * size));
        let places: Vec<(f64, f64)> = [(x0, y0), rising].into_iter().chain(lifted).collect();
        let is_clear = |at: &(f64, f64)| !self.crosses(field, series, *at, long);
        let clear: Vec<(f64, f64)> = places.iter().copied().filter(is_clear).collect();
        let frames = clear.into_iter().map(|(x, y)| ((x, y), Frame::of_text(x, y, text, size, angle)));
        let [left, top, w, h] = field.at;
        // Beyond the right edge there may be names.
        let over = if self.names == Names::Ends { 0.0 } else { 1.5 * size };
        let bounds = [left, top, w + over, h];
        let Some(at) = self.taken.first_free(frames, bounds) else { return false };
        let color = if self.figure.series.len() > 1 { self.color(series) } else { self.theme.ink };
        if at != rising && (at.0 - x0).abs() + (at.1 - y0).abs() > size {
            let points = vec![(x, y), (at.0, at.1)];
            let pen = Pen { color: self.theme.faint, width: 0.6, dash: None };
            self.items.push(Item::Path { points, pen: Some(pen), fill: None });
        }
        let halo = Some(self.theme.paper);
        let text = text.to_owned();
        self.items.push(Item::Text(Text {
            x: at.0,
            y: at.1,
            text,
            size,
            color,
            anchor: Anchor::Start,
            angle,
            halo,
        }));
        true
    }
}
