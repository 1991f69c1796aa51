//! Bars and areas drawn with characters: block elements, or braille patterns where detail counts more.

const EIGHTHS_ACROSS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const EIGHTHS_UP: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Dots of a braille pattern by column, lowest first.
const DOTS: [[u32; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

/// Draws a bar of `part` of `whole`, where the whole is `width` characters; never empty for a part above 0.
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    if part == 0 || whole == 0 {
        return String::new();
    }
    let eighths = (part as f64 / whole as f64 * (width * 8) as f64).round() as usize;
    let eighths = eighths.clamp(1, width * 8);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS_ACROSS[eighths % 8 - 1]);
    }
    bar
}

/// Draws values as a curve of at most `width` characters; neighbors are added up, and a value above 0 is never blank.
pub fn sparkline(values: &[u64], width: usize) -> String {
    let joined = values.len().div_ceil(width.max(1)).max(1);
    let sums: Vec<u64> =
        values.chunks(joined).map(|chunk| chunk.iter().fold(0u64, |a, b| a.saturating_add(*b))).collect();
    let most = sums.iter().copied().max().unwrap_or(0);
    let level = |sum: &u64| match sum {
        0 => ' ',
        sum => EIGHTHS_UP[((*sum as f64 / most as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    sums.iter().map(level).collect()
}

/// The lowest and highest value of a step function within one column of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Lowest value.
    pub low: u64,
    /// Highest value.
    pub high: u64,
    /// Number of values.
    pub values: usize,
}

/// Spreads a step function over columns: `points` are (x, value from there on), in order of x.
///
/// Every value is in the span of the column it falls into, so no peak is lost however few columns.
pub fn spans(points: &[(i64, u64)], from: i64, to: i64, columns: usize) -> Vec<Option<Span>> {
    let mut spans: Vec<Option<Span>> = vec![None; columns];
    let length = i128::from(to) - i128::from(from) + 1;
    let column = |x: i64| {
        let at = (i128::from(x) - i128::from(from)).clamp(0, length - 1) * columns as i128 / length;
        at as usize
    };
    for (at, (x, value)) in points.iter().enumerate() {
        let first = column(*x);
        let last = points.get(at + 1).map_or(columns - 1, |(next, _)| column(*next).max(first));
        for (offset, span) in spans[first..=last].iter_mut().enumerate() {
            // The value reaches into the column of the next point only if that is not its first instant;
            // one column of overlap is what a step looks like.
            if offset > 0
                && first + offset == last
                && points.get(at + 1).is_some_and(|next| starts(next.0, from, length, columns))
            {
                continue;
            }
            *span = Some(span.map_or(Span { low: *value, high: *value, values: 1 }, |span| Span {
                low: span.low.min(*value),
                high: span.high.max(*value),
                values: span.values + 1,
            }));
        }
    }
    spans
}

/// Returns whether `x` is the first instant of its column.
fn starts(x: i64, from: i64, length: i128, columns: usize) -> bool {
    let offset = i128::from(x) - i128::from(from);
    offset == 0 || (offset * columns as i128 / length) != ((offset - 1) * columns as i128 / length)
}

/// Characters that an area is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Block elements: a column and eight levels each. A column with one step in it is solid up to the
    /// higher value; light means up and down.
    Blocks,
    /// Braille patterns: two columns and four levels each.
    Braille,
}

impl Glyphs {
    /// Returns how many columns a character shows.
    pub const fn columns(self) -> usize {
        match self {
            Self::Blocks => 1,
            Self::Braille => 2,
        }
    }

    const fn levels(self) -> usize {
        match self {
            Self::Blocks => 8,
            Self::Braille => 4,
        }
    }

    /// Returns the levels of a column, of `most`, below its lowest and its highest value.
    fn heights(self, span: Option<&Span>, top: u64, most: usize) -> (usize, usize) {
        let height = |value: u64| {
            let height = (value as f64 / top as f64 * most as f64).round() as usize;
            if top == 0 || value == 0 { 0 } else { height.clamp(1, most) }
        };
        span.map_or((0, 0), |span| {
            let high = height(span.high);
            let is_step = self == Self::Blocks && span.values <= 2;
            (if is_step { high } else { height(span.low) }, high)
        })
    }

    /// Returns the character of columns with these heights whose lowest level is `floor`.
    fn character(self, columns: &[(usize, usize)], floor: usize) -> char {
        match (self, columns) {
            (Self::Blocks, [(low, high), ..]) => match high.saturating_sub(floor) {
                0 => ' ',
                part @ 1..8 => EIGHTHS_UP[part - 1],
                _ if *low > floor => '█',
                _ => '░',
            },
            (Self::Blocks, []) => ' ',
            (Self::Braille, columns) => match braille(columns, floor) {
                0 => ' ',
                dots => char::from_u32(0x2800 + dots).unwrap_or(' '),
            },
        }
    }
}

/// Returns the dots of a braille pattern: full up to the lowest value, every other one from there to the
/// highest.
fn braille(columns: &[(usize, usize)], floor: usize) -> u32 {
    let mut all = 0;
    for (side, ((low, high), dots)) in columns.iter().zip(DOTS).enumerate() {
        for (level, bit) in (floor..).zip(dots) {
            let is_light = level < *high && (level + side).is_multiple_of(2);
            if level < *low || is_light || level + 1 == *high {
                all |= bit;
            }
        }
    }
    all
}

/// Draws spans as an area of `height` lines, top line first: solid up to the low value, light from there to
/// the high one. A character shows as many spans as its [`Glyphs::columns`].
pub fn area(spans: &[Option<Span>], top: u64, height: usize, glyphs: Glyphs) -> Vec<String> {
    let most = height * glyphs.levels();
    let heights: Vec<(usize, usize)> =
        spans.iter().map(|span| glyphs.heights(span.as_ref(), top, most)).collect();
    (0..height)
        .rev()
        .map(|line| {
            let cells = heights.chunks(glyphs.columns());
            let cells = cells.map(|columns| glyphs.character(columns, line * glyphs.levels()));
            cells.collect::<String>().trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_join_neighbors_and_keep_what_is_small() {
        assert_eq!(sparkline(&[0, 1, 100, 50], 4), " ▁█▄");
        assert_eq!(sparkline(&[0, 0, 1, 1, 4, 4], 3), " ▂█");
        assert_eq!((sparkline(&[], 5), sparkline(&[0, 0], 5)), (String::new(), "  ".to_owned()));
    }

    #[test]
    fn bars_show_eighths_and_never_hide_a_part() {
        assert_eq!(bar(1, 1_000_000, 10), "▏");
        assert_eq!(bar(1, 2, 5), "██▌");
        assert_eq!(bar(7, 7, 3), "███");
        assert_eq!(bar(0, 7, 3), "");
    }

    #[test]
    fn every_peak_is_in_a_column() {
        let points: Vec<(i64, u64)> = (0..1000).map(|x| (x, if x == 613 { 9 } else { 1 })).collect();
        let spans = spans(&points, 0, 1000, 10);
        assert_eq!(spans.iter().flatten().map(|span| span.high).max(), Some(9));
        assert_eq!(spans.iter().flatten().filter(|span| (span.low, span.high) == (1, 9)).count(), 1);
        assert!(spans.iter().all(Option::is_some));
    }

    #[test]
    fn a_value_holds_until_the_next_point() {
        let spans = spans(&[(0, 4), (5, 2)], 0, 9, 10);
        let low: Vec<u64> = spans.iter().map(|span| span.unwrap().low).collect();
        assert_eq!(low, [4, 4, 4, 4, 4, 2, 2, 2, 2, 2]);
        assert_eq!(spans[5], Some(Span { low: 2, high: 2, values: 1 }));
    }

    #[test]
    fn areas_are_solid_below_the_lowest_value_and_light_up_to_the_highest() {
        let span = |low, high, values| Some(Span { low, high, values });
        let spans = [span(8, 8, 1), span(0, 12, 3), span(0, 12, 2), None];
        assert_eq!(area(&spans, 16, 2, Glyphs::Blocks), [" ▄▄", "█░█"]);
        assert_eq!(area(&spans, 0, 1, Glyphs::Blocks), [""]);
    }

    #[test]
    fn braille_shows_two_columns_and_four_levels_a_character() {
        let span = |low, high, values| Some(Span { low, high, values });
        let spans = [span(4, 4, 1), span(8, 8, 1), span(0, 8, 5), None, None];
        assert_eq!(area(&spans, 8, 2, Glyphs::Braille), ["⢸⡃", "⣿⡂"]);
        assert_eq!(area(&spans, 0, 1, Glyphs::Braille), [""]);
    }
}
