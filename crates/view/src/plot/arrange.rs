//! Decides where everything goes.
//!
//! Invariants: no two texts overlap, none leaves the picture, and no curve has more than a few points per
//! column of pixels. A text for which there is no room is left out; notes that were are counted below the
//! picture.

mod curves;
mod field;
mod marks;

use floodmark_event::units::format_count;

use crate::plot::axis::{TimeProps, byte_ticks, time_ticks};
use crate::plot::font::{fit, fit_name, width};
use crate::plot::legend::{Corner, Entry, Rows, Sign};
use crate::plot::model::{Figure, LegendPlace, Role};
use crate::plot::notes::{Frame, Taken, apart};
use crate::plot::scene::{Anchor, Item, Pen, Scene, Text};
use crate::plot::theme::{COLORS, Shade, Theme};
use field::Field;

/// Lines at the foot.
const MOST_REMARKS: usize = 3;

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Width, from 200 to 10,000.
    pub width: u32,
    /// Height, from 120 to 10,000.
    pub height: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { width: 1200, height: 600 }
    }
}

/// How a picture is to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Props {
    /// How large it is.
    pub size: Size,
    /// Light or dark.
    pub shade: Shade,
    /// Where names stand.
    pub legend: LegendPlace,
    /// Degrees by which notes are turned.
    pub note_angle: f64,
    /// Where notes stand, in pixels beside the usual place.
    pub note_shift: (f64, f64),
    /// Characters that are shown of a note.
    pub note_length: usize,
}

impl Default for Props {
    fn default() -> Self {
        Self {
            size: Size::default(),
            shade: Shade::default(),
            legend: LegendPlace::default(),
            note_angle: 30.0,
            note_shift: (0.0, 0.0),
            note_length: 24,
        }
    }
}

/// Makes a scene of a figure.
pub fn arrange(figure: &Figure, props: &Props) -> Scene {
    let names = figure.stack.as_ref().map_or(0, |stack| stack.layers.len()) + figure.series.len();
    let may_label_ends = figure.stack.is_none() && (2..=7).contains(&names) && props.size.width >= 520;
    if props.legend == LegendPlace::Best
        && may_label_ends
        && let Some(scene) = drawn(figure, props, Names::Ends)
    {
        return scene;
    }
    let names = match props.legend {
        LegendPlace::None => Names::None,
        _ if names < 2 => Names::None,
        LegendPlace::Best | LegendPlace::Top => Names::Top,
        LegendPlace::Corner(side, edge) => Names::Corner(side, edge),
    };
    drawn(figure, props, names).expect("only labels at ends can fail to have room")
}

/// Draws with as many lines at the foot as turn out to be needed.
fn drawn(figure: &Figure, props: &Props, names: Names) -> Option<Scene> {
    let mut lines = figure.remarks.len().min(MOST_REMARKS);
    loop {
        let (scene, remarks) = Picture::new(figure, props, names).draw(lines)?;
        if remarks <= lines || lines == MOST_REMARKS {
            return Some(scene);
        }
        lines = remarks.min(MOST_REMARKS);
    }
}

/// Where names stand, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Ends,
    Top,
    Corner(crate::plot::model::Side, crate::plot::model::Edge),
    None,
}

/// A picture in the making.
struct Picture<'a> {
    figure: &'a Figure,
    props: &'a Props,
    theme: Theme,
    names: Names,
    /// Size of the font.
    size: f64,
    width: f64,
    height: f64,
    items: Vec<Item>,
    taken: Taken,
    remarks: Vec<String>,
}

impl<'a> Picture<'a> {
    fn new(figure: &'a Figure, props: &'a Props, names: Names) -> Self {
        let width = f64::from(props.size.width.clamp(200, 10_000));
        let height = f64::from(props.size.height.clamp(120, 10_000));
        // Small enough for a thumbnail, large enough for a wall.
        let by_width = 9.5 + (width - 300.0) / 1700.0 * 5.0;
        let by_height = height / 22.0;
        let size = (by_width.min(by_height).clamp(8.0, 40.0) * 2.0).round() / 2.0;
        Self {
            figure,
            props,
            theme: Theme::of(props.shade),
            names,
            size,
            width,
            height,
            items: Vec::new(),
            taken: Taken::default(),
            remarks: figure.remarks.clone(),
        }
    }

    /// Draws everything, with room for a number of lines at the foot; none if names have no room where they
    /// should stand. Returns how many lines there are to say.
    fn draw(mut self, lines: usize) -> Option<(Scene, usize)> {
        let size = self.size;
        let y = self.title(0.5 * size);
        let y = self.caption_and_names(y);
        let has_caption = self.height >= 16.0 * size;
        let below = 2.3 * size + if has_caption { 1.5 * size } else { 0.0 };
        let room = |lines: usize| self.height - y - below - lines as f64 * 1.3 * size;
        // Curves come first.
        let lines = (0..=lines).rev().find(|lines| room(*lines) >= 5.0 * size).unwrap_or(0);
        let room = room(lines).max(size);
        let mut field = Field::new(self.figure, [0.0, y, 0.0, room]);
        field.head = self.headroom();
        let ticks = byte_ticks(field.top_bytes(), (room / (3.2 * size)).clamp(2.0, 9.0) as usize);
        let left = ticks.iter().map(|tick| width(&tick.label, size)).fold(0.0, f64::max) + 1.6 * size;
        let right = self.right_margin();
        (field.at[0], field.at[2]) = (left, (self.width - left - right).max(10.0));

        self.phases(&field);
        for tick in &ticks {
            let y = field.y(tick.at);
            let color = if tick.at == 0 { self.theme.faint } else { self.theme.grid };
            let points = vec![(left, y), (left + field.at[2], y)];
            self.items.push(Item::Path { points, pen: Some(Pen::solid(color, 1.0)), fill: None });
            let text = tick.label.clone();
            self.text(left - 0.7 * size, y + 0.35 * size, text, Anchor::End, self.theme.faint);
        }
        let curves = self.curves(&field);
        self.time_axis(&field, has_caption);
        if let Names::Corner(side, edge) = self.names {
            // Names of phases are at the top.
            let below = if self.figure.phases.is_empty() { 0.0 } else { 1.5 * size };
            let [left, top, w, h] = field.at;
            let corner = Corner { side, edge, size, paper: self.theme.paper, ink: self.theme.ink };
            let left_out = corner.draw(
                &self.entries(),
                [left, top + below, w, h - below],
                &mut self.taken,
                &mut self.items,
            );
            if left_out > 0 {
                self.remarks.push(format!("{left_out} more names have no room"));
            }
        }
        if self.names == Names::Ends {
            self.end_labels(&field)?;
        }
        self.dots(&field);
        self.peaks(&field);
        self.notes(&field);
        let remarks = self.remarks.len();
        self.foot(lines);
        let scene = Scene {
            size: (self.width, self.height),
            paper: self.theme.paper,
            title: self.figure.title.clone(),
            items: self.items,
            field: field.at,
            times_ns: (field.from_ns, field.to_ns),
            curves,
        };
        Some((scene, remarks))
    }

    fn text(&mut self, x: f64, y: f64, text: String, anchor: Anchor, color: crate::plot::scene::Color) {
        if !text.is_empty() {
            let size = self.size;
            self.items.push(Item::Text(Text { x, y, text, size, color, anchor, angle: 0.0, halo: None }));
        }
    }

    /// Writes the title below `y`; returns where it ends.
    fn title(&mut self, y: f64) -> f64 {
        let size = self.size * 1.25;
        let text = fit(&self.figure.title, size, self.width - 1.6 * self.size);
        if text.is_empty() {
            return y;
        }
        let (x, color) = (0.8 * self.size, self.theme.ink);
        let line = y + 1.05 * size;
        let anchor = Anchor::Start;
        self.items.push(Item::Text(Text { x, y: line, text, size, color, anchor, angle: 0.0, halo: None }));
        y + 1.6 * size
    }

    /// Writes what is counted, and names behind it if they stand above; returns where that ends.
    fn caption_and_names(&mut self, y: f64) -> f64 {
        let (size, left) = (self.size, 0.8 * self.size);
        let room = self.width - 2.0 * left;
        let caption = fit(&self.figure.measure, size, room);
        let used = if caption.is_empty() { 0.0 } else { width(&caption, size) + 1.6 * size };
        let line = y + size;
        self.text(left, line, caption, Anchor::Start, self.theme.faint);
        if self.names != Names::Top {
            return if used > 0.0 { y + 1.7 * size } else { y + 0.5 * size };
        }
        let mut entries = self.entries();
        // Names must not push the picture out.
        let mut rows = Rows::of(&entries, size, room, used);
        while rows.height() > self.height * 0.3 && entries.len() > 1 {
            entries.pop();
            rows = Rows::of(&entries, size, room, used);
        }
        let left_out = self.entries().len() - entries.len();
        if left_out > 0 {
            self.remarks.push(format!("{left_out} more names have no room"));
        }
        rows.draw(left, line, self.theme.ink, &mut self.items);
        y + rows.height() + 0.7 * size
    }

    fn entries(&self) -> Vec<Entry> {
        let stack = self.figure.stack.iter().flat_map(|stack| stack.layers.iter().enumerate().rev());
        let layers = stack.map(|(number, layer)| Entry {
            name: layer.name.clone(),
            color: self.theme.series(number),
            sign: Sign::Square,
        });
        let series = self.figure.series.iter().enumerate().map(|(number, series)| Entry {
            name: series.name.clone(),
            color: self.color(number),
            sign: if self.is_dashed(number) { Sign::Dashes } else { Sign::Line },
        });
        series.chain(layers).collect()
    }

    /// Color of a series, those of a stack aside.
    fn color(&self, series: usize) -> crate::plot::scene::Color {
        let Some(stack) = &self.figure.stack else { return self.theme.series(series) };
        // The sum of a stack is drawn in ink.
        if series == 0 { self.theme.ink } else { self.theme.series(stack.layers.len() + series - 1) }
    }

    /// Whether a series is dashed: it stands beside others, or its color is there already.
    fn is_dashed(&self, series: usize) -> bool {
        self.figure.series[series].role == Role::Beside || (self.figure.stack.is_none() && series >= COLORS)
    }

    /// Room above the highest value for what is written there.
    fn headroom(&self) -> f64 {
        let phases = if self.figure.phases.is_empty() { 0.0 } else { 1.5 * self.size };
        let notes = if self.figure.notes.is_empty() {
            0.0
        } else {
            let longest = self.figure.notes.iter().map(|note| self.note_text(&note.text));
            let longest = longest.map(|text| width(&text, self.size)).fold(0.0, f64::max);
            (longest * self.props.note_angle.to_radians().sin().abs() + 2.0 * self.size)
                .min(self.height * 0.25)
        };
        phases + notes.max(2.2 * self.size)
    }

    fn right_margin(&self) -> f64 {
        let size = self.size;
        if self.names != Names::Ends {
            // The last label of the axis of time may reach over its end.
            return 2.2 * size;
        }
        let names = self.figure.series.iter().map(|series| width(&series.name, size));
        names.fold(0.0, f64::max).min(self.width * 0.25) + 1.8 * size
    }

    /// Names at the ends of curves; none if they would be far from them.
    fn end_labels(&mut self, field: &Field) -> Option<()> {
        let size = self.size;
        let ends: Vec<f64> = self
            .figure
            .series
            .iter()
            .map(|series| field.y(series.points.last().map_or(0, |point| point.bytes)))
            .collect();
        let (top, bottom) = (field.at[1], field.at[1] + field.at[3] + 0.6 * size);
        let places = apart(&ends, 1.25 * size, top, bottom)?;
        let is_near = |(end, place): (&f64, &f64)| (end - place).abs() <= 2.2 * size;
        if !ends.iter().zip(&places).all(is_near) {
            return None;
        }
        let right = field.at[0] + field.at[2];
        let ends_there = |end_ns: i64| right - field.x(end_ns) <= 0.25 * field.at[2];
        if !self.figure.series.iter().all(|series| ends_there(series.end_ns)) {
            return None;
        }
        for (number, series) in self.figure.series.iter().enumerate() {
            let color = self.color(number);
            let (end, place) = (ends[number], places[number]);
            let (x, from) = (right + 1.2 * size, field.x(series.end_ns));
            let mut pen = Pen::solid(color, 1.0);
            pen.dash = Some((2.0, 2.0));
            let points = vec![(from, end), (right, end), (x - 0.3 * size, place)];
            self.items.push(Item::Path { points, pen: Some(pen), fill: None });
            let text = fit_name(&series.name, size, self.width - x - 0.4 * size);
            self.text(x, place + 0.35 * size, text, Anchor::Start, color);
        }
        Some(())
    }

    fn time_axis(&mut self, field: &Field, has_caption: bool) {
        let (size, [left, top, w, h]) = (self.size, field.at);
        let (ticks, caption) = time_ticks(&TimeProps {
            from_ns: field.from_ns,
            to_ns: field.to_ns,
            axis: self.figure.time,
            room: w,
            size,
        });
        let bottom = top + h;
        let mut free_from = 0.0;
        for tick in ticks {
            let x = field.x(tick.at);
            let points = vec![(x, bottom), (x, bottom + 0.35 * size)];
            self.items.push(Item::Path { points, pen: Some(Pen::solid(self.theme.faint, 1.0)), fill: None });
            let half = width(&tick.label, size) / 2.0;
            let x = x.clamp(half + 2.0, (self.width - half - 2.0).max(half + 2.0));
            // A label that was moved inside may have come too close.
            if x - half < free_from {
                continue;
            }
            free_from = x + half + 0.5 * size;
            self.text(x, bottom + 1.4 * size, tick.label, Anchor::Middle, self.theme.faint);
        }
        if has_caption {
            let text = fit(&caption, size, w);
            self.text(left + w / 2.0, bottom + 2.9 * size, text, Anchor::Middle, self.theme.faint);
        }
    }

    /// Remarks at the foot, as lines.
    fn foot(&mut self, lines: usize) {
        let size = 0.92 * self.size;
        let mut remarks = std::mem::take(&mut self.remarks);
        if remarks.len() > lines {
            let more = format_count((remarks.len() + 1 - lines.max(1)) as u64);
            remarks.truncate(lines.saturating_sub(1));
            if lines > 0 {
                remarks.push(format!("and {more} more remarks"));
            }
        }
        let first = self.height - 0.7 * size - (remarks.len() as f64 - 1.0) * 1.3 * self.size;
        for (number, remark) in remarks.iter().enumerate() {
            let text = fit(remark, size, self.width - 1.6 * self.size);
            let (x, y) = (0.8 * self.size, first + number as f64 * 1.3 * self.size);
            let color = self.theme.faint;
            self.items.push(Item::Text(Text {
                x,
                y,
                text,
                size,
                color,
                anchor: Anchor::Start,
                angle: 0.0,
                halo: None,
            }));
        }
    }

    fn note_text(&self, text: &str) -> String {
        let text = text.lines().next().unwrap_or_default();
        let cut: String = text.chars().take(self.props.note_length).collect();
        if cut.len() < text.len() { format!("{}…", cut.trim_end()) } else { cut }
    }

    fn frame(&self, x: f64, y: f64, text: &str) -> Frame {
        Frame::of_text(x, y, text, self.size, 0.0)
    }
}
