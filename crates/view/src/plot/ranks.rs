//! Memory of the ranks of a job over time: bands of quantiles above, a map of rank by time below.
//!
//! A map of thousands of ranks has fewer rows than ranks, and a cell is as dark as the highest of the ranks and intervals
//! in it: a rank that peaks alone is seen, however many do not.

use floodmark_analyze::{RankBand, RankMap};
use floodmark_event::units::{format_bytes, format_count};
use floodmark_inspect::ranks::{RankPlot, RankRows};
use unicode_width::UnicodeWidthStr as _;

use crate::layout::{Layout, Lines, styled};
use crate::plot::arrange::Props;
use crate::plot::axis::{TimeProps, byte_ticks, instant, peak_instant, time_ticks};
use crate::plot::font::{fit, width};
use crate::plot::model::TimeAxis;
use crate::plot::scene::{Anchor, Color, Curve, Fill, Item, Pen, Scene, Span, Text};
use crate::plot::theme::{Shade, Theme};
use crate::table::cut;

/// Most rows of the map.
const MOST_ROWS: usize = 192;
/// Pixels that a row and a column of the map have at least.
const ROW_PIXELS: f64 = 2.0;
const COLUMN_PIXELS: f64 = 3.0;
/// Colors of the map.
const LEVELS: usize = 24;
/// Rows of the map in a terminal.
const TERMINAL_ROWS: usize = 16;
/// Shades of the map in a terminal, from little to much.
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];

/// Colors from little to much, which are also brighter or darker in this order: people with any kind of color vision, and
/// printers without colors, tell them apart.
const SCALE: [Color; 6] = [
    Color(0xf3, 0xf0, 0xc8),
    Color(0xb5, 0xdd, 0x9a),
    Color(0x52, 0xb9, 0x8e),
    Color(0x22, 0x86, 0x8d),
    Color(0x37, 0x4f, 0x8a),
    Color(0x40, 0x11, 0x5a),
];

/// Cells of the map, fewer than ranks and intervals.
struct Cells {
    rows: usize,
    columns: usize,
    values: Vec<Option<u64>>,
}

impl Cells {
    /// Takes the highest value of each cell.
    fn of(map: &RankMap, rows: usize, columns: usize) -> Self {
        let (ranks, intervals) = (map.values.len().max(1), map.columns().max(1));
        let (rows, columns) = (rows.clamp(1, ranks), columns.clamp(1, intervals));
        let mut values = vec![None; rows * columns];
        for (rank, list) in map.values.iter().enumerate() {
            for (interval, value) in list.iter().enumerate() {
                let cell: &mut Option<u64> =
                    &mut values[rank * rows / ranks * columns + interval * columns / intervals];
                *cell = (*cell).max(*value);
            }
        }
        Self { rows, columns, values }
    }
}

/// Index of the rank with the highest peak, the interval of that, and the peak. The answer of `floodmark ranks` counts,
/// as it includes peaks between samples; without one the highest sample does.
fn highest(plot: &RankPlot) -> Option<(usize, usize, u64)> {
    let map = &plot.map;
    if let Some(one) = &plot.highest
        && let Ok(rank) = map.ranks.binary_search(&one.rank)
    {
        let at = one.peak_time_ns.saturating_sub(map.first_ns) / map.interval_ns.max(1);
        let last = map.columns().saturating_sub(1);
        return Some((rank, usize::try_from(at).unwrap_or(0).min(last), one.peak_rss_bytes));
    }
    let cells = map.values.iter().enumerate().flat_map(|(rank, list)| {
        list.iter().enumerate().filter_map(move |(at, value)| Some((rank, at, (*value)?)))
    });
    // Of equal ones the first.
    cells.reduce(|best, one| if one.2 > best.2 { one } else { best })
}

/// What a row is called.
fn noun(plot: &RankPlot) -> &'static str {
    match plot.rows {
        RankRows::Ranks => "rank",
        RankRows::Processes => "process",
    }
}

/// What many rows are called.
fn nouns(plot: &RankPlot) -> &'static str {
    match plot.rows {
        RankRows::Ranks => "ranks",
        RankRows::Processes => "processes",
    }
}

fn sentence(plot: &RankPlot) -> String {
    let map = &plot.map;
    let Some((rank, at, bytes)) = highest(plot) else {
        return format!("no memory of a {} could be read", noun(plot));
    };
    let (from_ns, to_ns) = span(plot);
    let at_ns = from_ns + at as i64 * map.interval_ns;
    let when = peak_instant(at_ns, to_ns - from_ns, TimeAxis::Elapsed);
    format!("{} {} peaks highest: {} at {when}", noun(plot), map.ranks[rank], format_bytes(bytes))
}

/// First and last instant, since the origin.
fn span(plot: &RankPlot) -> (i64, i64) {
    let first_ns = plot.map.first_ns.saturating_sub(plot.origin_ns);
    (first_ns, first_ns.saturating_add(plot.map.interval_ns.saturating_mul(plot.map.columns() as i64)))
}

/// Makes a scene of the ranks.
pub fn scene(plot: &RankPlot, props: &Props) -> Scene {
    let mut picture = Picture::new(plot, props);
    picture.title();
    let (bands, cells) = picture.fields();
    let curves = picture.bands(bands);
    picture.cells(cells);
    picture.scale(cells);
    picture.time_axis(cells);
    picture.foot();
    Scene {
        size: (picture.width, picture.height),
        paper: picture.theme.paper,
        title: plot.title.clone(),
        items: picture.items,
        field: bands,
        times_ns: (picture.from_ns, picture.to_ns),
        curves,
    }
}

/// A picture in the making.
struct Picture<'a> {
    plot: &'a RankPlot,
    theme: Theme,
    shade: Shade,
    size: f64,
    width: f64,
    height: f64,
    from_ns: i64,
    to_ns: i64,
    items: Vec<Item>,
}

impl<'a> Picture<'a> {
    fn new(plot: &'a RankPlot, props: &Props) -> Self {
        let (width, height) = (f64::from(props.size.width), f64::from(props.size.height));
        let size = (width / 80.0).min(height / 30.0).clamp(8.0, 24.0);
        let (from_ns, to_ns) = span(plot);
        let (theme, shade) = (Theme::of(props.shade), props.shade);
        let to_ns = to_ns.max(from_ns + 1);
        Self { plot, theme, shade, size, width, height, from_ns, to_ns, items: Vec::new() }
    }

    fn text(&mut self, at: (f64, f64), text: String, anchor: Anchor, color: Color) {
        let size = self.size;
        if !text.is_empty() {
            let (x, y) = at;
            self.items.push(Item::Text(Text { x, y, text, size, color, anchor, angle: 0.0, halo: None }));
        }
    }

    fn line(&mut self, points: Vec<(f64, f64)>, pen: Pen) {
        self.items.push(Item::Path { points, pen: Some(pen), fill: None });
    }

    fn title(&mut self) {
        let size = 1.25 * self.size;
        let text = fit(&self.plot.title, size, self.width - 1.6 * self.size);
        let (x, y, color, anchor) =
            (0.8 * self.size, 0.4 * self.size + 1.05 * size, self.theme.ink, Anchor::Start);
        self.items.push(Item::Text(Text { x, y, text, size, color, anchor, angle: 0.0, halo: None }));
        let all = format!("all {}", nouns(self.plot));
        let entries = [(all.as_str(), 0.18), ("the middle half", 0.4), ("median", 1.0)];
        let mut x = 0.8 * self.size;
        let y = 3.0 * self.size;
        let caption = match self.plot.rows {
            RankRows::Ranks => "resident memory (RSS) of ranks:",
            RankRows::Processes => "live bytes of processes:",
        };
        self.text((x, y), caption.to_owned(), Anchor::Start, self.theme.faint);
        x += width(caption, self.size) + self.size;
        for (name, opacity) in entries {
            let side = 0.8 * self.size;
            let fill = Fill { color: self.theme.series(0), opacity };
            let height = if opacity < 1.0 { side } else { 0.2 * side };
            self.items.push(Item::Rect {
                at: [x, y - 0.4 * side - height / 2.0, side, height],
                fill,
                hint: None,
            });
            self.text((x + 1.2 * side, y), name.to_owned(), Anchor::Start, self.theme.ink);
            x += 1.2 * side + width(name, self.size) + self.size;
        }
    }

    /// Places of the bands and of the map: left, top, width and height.
    fn fields(&self) -> ([f64; 4], [f64; 4]) {
        let size = self.size;
        let ranks = self.plot.map.ranks.last().copied().unwrap_or(0).to_string();
        let labels = width("999.9 GiB", size)
            .max(width(noun(self.plot), size) + width(" ", size) + width(&ranks, size));
        let left = labels + 1.4 * size;
        let right = width("999.9 GiB", size) + 3.2 * size;
        let (top, foot) = (4.0 * size, 5.4 * size);
        let room = (self.height - top - foot).max(20.0);
        let upper = room * 0.4;
        let w = (self.width - left - right).max(20.0);
        ([left, top, w, upper], [left, top + upper + size, w, room - upper - size])
    }

    fn x(&self, field: [f64; 4], column: usize) -> f64 {
        field[0] + field[2] * column as f64 / self.plot.map.columns().max(1) as f64
    }

    fn bands(&mut self, field: [f64; 4]) -> Vec<Curve> {
        let [left, top, w, h] = field;
        let map = &self.plot.map;
        let most = map.highest_bytes().max(1);
        for tick in byte_ticks(most, (h / (2.4 * self.size)).clamp(2.0, 7.0) as usize) {
            let y = top + h - h * tick.at as f64 / most as f64;
            let color = if tick.at == 0 { self.theme.faint } else { self.theme.grid };
            self.line(vec![(left, y), (left + w, y)], Pen::solid(color, 1.0));
            let at = (left - 0.7 * self.size, y + 0.35 * self.size);
            self.text(at, tick.label, Anchor::End, self.theme.faint);
        }
        let bands: Vec<Option<RankBand>> = (0..map.columns()).map(|column| map.band(column)).collect();
        let y = |bytes: u64| top + h - h * bytes as f64 / most as f64;
        let color = self.theme.series(0);
        // Between two of these there are ranks throughout.
        let mut runs: Vec<Vec<(usize, RankBand)>> = vec![Vec::new()];
        for (column, band) in bands.iter().enumerate() {
            match (band, runs.last_mut()) {
                (Some(band), Some(run)) => run.push((column, *band)),
                (None, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
                _ => {}
            }
        }
        for run in runs.iter().filter(|run| !run.is_empty()) {
            let steps = |value: &dyn Fn(&RankBand) -> u64| -> Vec<(f64, f64)> {
                let ends = |(column, band): &(usize, RankBand)| {
                    let y = y(value(band));
                    [(self.x(field, *column), y), (self.x(field, column + 1), y)]
                };
                run.iter().flat_map(ends).collect()
            };
            let area = |lower: Vec<(f64, f64)>, upper: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
                lower.into_iter().chain(upper.into_iter().rev()).collect()
            };
            let outer = area(steps(&|band| band.lowest), steps(&|band| band.highest));
            let inner = area(steps(&|band| band.lower_quartile), steps(&|band| band.upper_quartile));
            let (middle, upper) = (steps(&|band| band.median), steps(&|band| band.highest));
            for (points, opacity) in [(outer, 0.18), (inner, 0.4)] {
                self.items.push(Item::Path { points, pen: None, fill: Some(Fill { color, opacity }) });
            }
            self.line(upper, Pen::solid(color, 1.0));
            self.line(middle, Pen::solid(color, 2.0));
        }
        let curve = |name: &str, value: &dyn Fn(&RankBand) -> u64| Curve {
            name: name.to_owned(),
            color,
            spans: (0..)
                .zip(&bands)
                .filter_map(|(column, band)| {
                    let bytes = value(band.as_ref()?);
                    Some(Span { x: self.x(field, column), low: bytes, high: bytes })
                })
                .collect(),
            to: left + w,
        };
        vec![
            curve(&format!("highest {}", noun(self.plot)), &|band| band.highest),
            curve("three quarters", &|band| band.upper_quartile),
            curve(&format!("median {}", noun(self.plot)), &|band| band.median),
            curve("a quarter", &|band| band.lower_quartile),
            curve(&format!("lowest {}", noun(self.plot)), &|band| band.lowest),
        ]
    }

    fn color(&self, level: usize) -> Color {
        let part = level as f64 / (LEVELS - 1) as f64;
        // Much stands out from the paper.
        let part = if self.shade == Shade::Dark { 1.0 - part } else { part };
        let place = part * (SCALE.len() - 1) as f64;
        let at = (place as usize).min(SCALE.len() - 2);
        let (from, to, share) = (SCALE[at], SCALE[at + 1], place - at as f64);
        let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
        Color(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
    }

    fn cells(&mut self, field: [f64; 4]) {
        let [left, top, w, h] = field;
        let map = &self.plot.map;
        let rows = ((h / ROW_PIXELS) as usize).min(MOST_ROWS);
        let cells = Cells::of(map, rows, (w / COLUMN_PIXELS) as usize);
        let most = map.highest_bytes().max(1);
        let level = |value: Option<u64>| {
            value.map(|bytes| (bytes as f64 / most as f64 * (LEVELS - 1) as f64).round() as usize)
        };
        let (cell_w, cell_h) = (w / cells.columns as f64, h / cells.rows as f64);
        for row in 0..cells.rows {
            let levels: Vec<Option<usize>> =
                (0..cells.columns).map(|column| level(cells.values[row * cells.columns + column])).collect();
            let mut from = 0;
            while from < levels.len() {
                let to = (from..levels.len()).find(|at| levels[*at] != levels[from]).unwrap_or(levels.len());
                if let Some(level) = levels[from] {
                    let fill = Fill { color: self.color(level), opacity: 1.0 };
                    let at = [
                        left + from as f64 * cell_w,
                        top + row as f64 * cell_h,
                        (to - from) as f64 * cell_w,
                        cell_h,
                    ];
                    self.items.push(Item::Rect { at, fill, hint: None });
                }
                from = to;
            }
        }
        let frame = vec![(left, top), (left + w, top), (left + w, top + h), (left, top + h), (left, top)];
        self.line(frame, Pen::solid(self.theme.grid, 1.0));
        self.rank_labels(field);
        if let Some((rank, at, bytes)) = highest(self.plot) {
            let place = |part: f64, of: usize| (part + 0.5) / of.max(1) as f64;
            let x = left + w * place(at as f64, map.columns());
            let y = top + h * place(rank as f64, map.ranks.len());
            let hint = Some(format!("{} {}: {}", noun(self.plot), map.ranks[rank], format_bytes(bytes)));
            let pen = Some(Pen::solid(self.theme.grew(), 1.5));
            self.items.push(Item::Circle { at: (x, y), radius: 0.55 * self.size, pen, fill: None, hint });
        }
    }

    fn rank_labels(&mut self, [left, top, _, h]: [f64; 4]) {
        let ranks = &self.plot.map.ranks;
        let most = ((h / (1.6 * self.size)) as usize).clamp(1, 9);
        let step = [1, 2, 5].into_iter().cycle().zip(0..).map(|(digit, at)| digit * 10_usize.pow(at / 3));
        let step = step.take(50).find(|step| ranks.len().div_ceil(*step) <= most).unwrap_or(1);
        for at in (0..ranks.len()).step_by(step) {
            let y = top + h * (at as f64 + 0.5) / ranks.len() as f64 + 0.35 * self.size;
            let text = format!("{} {}", noun(self.plot), ranks[at]);
            self.text((left - 0.7 * self.size, y), text, Anchor::End, self.theme.faint);
        }
    }

    /// Draws which color means how much.
    fn scale(&mut self, [left, top, w, h]: [f64; 4]) {
        let (x, side) = (left + w + self.size, 0.9 * self.size);
        let most = self.plot.map.highest_bytes();
        let step = h / LEVELS as f64;
        for level in 0..LEVELS {
            let fill = Fill { color: self.color(level), opacity: 1.0 };
            let at = [x, top + h - (level + 1) as f64 * step, side, step];
            self.items.push(Item::Rect { at, fill, hint: None });
        }
        for (part, baseline) in [(0.0, 0.0), (0.5, 0.35), (1.0, 0.7)] {
            let text = format_bytes((most as f64 * part) as u64);
            let y = top + h - h * part + baseline * self.size;
            self.text((x + side + 0.4 * self.size, y), text, Anchor::Start, self.theme.faint);
        }
    }

    fn time_axis(&mut self, [left, top, w, h]: [f64; 4]) {
        let (from_ns, to_ns, size) = (self.from_ns, self.to_ns, self.size);
        let (ticks, caption) =
            time_ticks(&TimeProps { from_ns, to_ns, axis: TimeAxis::Elapsed, room: w, size });
        for tick in ticks {
            let x = left + w * (tick.at - from_ns) as f64 / (to_ns - from_ns) as f64;
            let bottom = top + h;
            self.line(vec![(x, bottom), (x, bottom + 0.35 * size)], Pen::solid(self.theme.faint, 1.0));
            self.text((x, bottom + 1.4 * size), tick.label, Anchor::Middle, self.theme.faint);
        }
        let text = fit(&caption, size, w);
        self.text((left + w / 2.0, top + h + 2.8 * size), text, Anchor::Middle, self.theme.faint);
    }

    fn foot(&mut self) {
        let mut text = sentence(self.plot);
        if let Some(loss) = self.plot.losses.first() {
            text = format!("{text}; {}", loss.sentence());
        }
        let text = fit(&text, self.size, self.width - 1.6 * self.size);
        self.text((0.8 * self.size, self.height - 0.7 * self.size), text, Anchor::Start, self.theme.faint);
    }
}

/// Draws the map with characters; no line is wider than the layout.
pub fn text(plot: &RankPlot, layout: &Layout) -> String {
    let map = &plot.map;
    let mut text = Lines::default();
    text.styled(layout.palette.title, cut(&plot.title, layout.width));
    text.line(cut(&sentence(plot), layout.width));
    text.blank();
    let margin = format!("{} {}", noun(plot), map.ranks.last().copied().unwrap_or(0)).width();
    let columns = layout.width.saturating_sub(margin + 4).clamp(10, 200);
    let cells = Cells::of(map, TERMINAL_ROWS, columns);
    let most = map.highest_bytes().max(1);
    for row in 0..cells.rows {
        let shade = |column: usize| {
            let value = cells.values[row * cells.columns + column];
            value.map_or(' ', |bytes| {
                SHADES[((bytes as f64 / most as f64 * SHADES.len() as f64) as usize).min(SHADES.len() - 1)]
            })
        };
        let line: String = (0..cells.columns).map(shade).collect();
        let first = (row * map.ranks.len()).div_ceil(cells.rows);
        let label = styled(
            layout.palette.faint,
            format!("{:>margin$} │", format!("{} {}", noun(plot), map.ranks[first])),
        );
        text.line(format!("  {label}{}", styled(layout.palette.bar, line.trim_end())));
    }
    let (from_ns, to_ns) = span(plot);
    let [start, end] = [from_ns, to_ns].map(|ns| instant(ns, to_ns - from_ns, TimeAxis::Elapsed));
    let room = cells.columns.saturating_sub(start.width() + end.width());
    text.styled(layout.palette.faint, format!("  {:margin$}  {start}{:room$}{end}", "", ""));
    let key: Vec<String> = (1..=SHADES.len())
        .map(|part| {
            format!("{} {}", SHADES[part - 1], format_bytes(most / SHADES.len() as u64 * part as u64))
        })
        .collect();
    text.styled(layout.palette.faint, cut(&format!("  up to  {}", key.join("  ")), layout.width));
    if map.ranks.len() > cells.rows {
        let each = format_count(map.ranks.len().div_ceil(cells.rows) as u64);
        text.styled(
            layout.palette.faint,
            cut(&format!("  a row shows the highest of {each} {}", nouns(plot)), layout.width),
        );
    }
    text.text()
}
