//! Tables that fit: columns line up, long text is cut in its middle, no line is wider than asked.
//!
//! Where the room is too small even so, columns are left out, the least important first; the first
//! column and those without a rank stay. Cells hold plain text, styles are put around them last.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;

const INDENT: usize = 2;
const GAP: usize = 2;
/// What a column of long text shrinks to at most before columns are left out.
const SHORTEST: usize = 34;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// What a column is called and how it behaves.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: String,
    align: Align,
    shrinks: bool,
    rank: u8,
}

impl Column {
    /// Short text.
    pub(crate) fn text(title: &str) -> Self {
        Self { title: title.into(), align: Align::Left, shrinks: false, rank: 0 }
    }

    /// Figures.
    pub(crate) fn figure(title: &str) -> Self {
        Self { align: Align::Right, ..Self::text(title) }
    }

    /// Text that may be cut.
    pub(crate) fn long(title: &str) -> Self {
        Self { shrinks: true, ..Self::text(title) }
    }

    /// Leaves the column out when room is short; those of the highest rank go first.
    pub(crate) fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// One cell: text with a style.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: plain(text.as_ref()).into_owned(), style: Style::new() }
    }
}

/// Rows under named columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// Leaves out columns for which `informative` is false.
    pub(crate) fn keep(&mut self, informative: &[bool]) {
        let mut at = informative.iter();
        self.columns.retain(|_| *at.next().unwrap_or(&true));
        for row in &mut self.rows {
            let mut at = informative.iter();
            row.retain(|_| *at.next().unwrap_or(&true));
        }
    }

    /// Whether the cells of a column differ.
    pub(crate) fn varies(&self, column: usize) -> bool {
        self.rows.windows(2).any(|pair| pair[0][column].text != pair[1][column].text)
    }

    /// Whether all columns fit into a width, with long text cut at most.
    pub(crate) fn fits(&self, room: usize) -> bool {
        let widths = self.widths();
        let least = widths.iter().zip(&self.columns);
        let least = least.map(|(width, column)| if column.shrinks { (*width).min(SHORTEST) } else { *width });
        INDENT + least.sum::<usize>() + GAP * (widths.len() - 1) <= room
    }

    /// Widths in which nothing is cut.
    fn widths(&self) -> Vec<usize> {
        let width = |at: usize| {
            let title = self.columns[at].title.width();
            self.rows.iter().map(|row| row[at].width()).max().unwrap_or(0).max(title)
        };
        (0..self.columns.len()).map(width).collect()
    }

    /// Lays the table out, every line ended.
    pub(crate) fn text(self, layout: &Layout) -> String {
        self.text_with(layout, |_, _| {})
    }

    /// Lays the table out; `under` adds lines below the row with this index.
    pub(crate) fn text_with(mut self, layout: &Layout, mut under: impl FnMut(usize, &mut Lines)) -> String {
        let widths = self.fit(layout.width);
        let mut text = Lines::default();
        let titles = self.columns.iter().map(|column| Cell::from(&column.title)).collect::<Vec<_>>();
        let line = self.line(&titles, &widths);
        text.line(format!("{:INDENT$}{}", "", styled(layout.palette.faint, line)));
        for (at, row) in self.rows.iter().enumerate() {
            text.line(format!("{:INDENT$}{}", "", self.line(row, &widths)));
            under(at, &mut text);
        }
        text.text()
    }

    /// Chooses the columns to show and their widths.
    fn fit(&mut self, room: usize) -> Vec<usize> {
        let mut widths = self.widths();
        let total = |widths: &[usize]| INDENT + widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        loop {
            let least: Vec<usize> = widths
                .iter()
                .zip(&self.columns)
                .map(|(width, column)| if column.shrinks { (*width).min(SHORTEST) } else { *width })
                .collect();
            let lowest = (1..self.columns.len()).rev().max_by_key(|at| self.columns[*at].rank);
            let Some(lowest) = lowest.filter(|at| self.columns[*at].rank > 0 && total(&least) > room) else {
                break;
            };
            let informative: Vec<bool> = (0..self.columns.len()).map(|at| at != lowest).collect();
            self.keep(&informative);
            widths.remove(lowest);
        }
        // Take from the widest column that shrinks, then, if that does not do, from the widest at all.
        while total(&widths) > room {
            let widest = |shrinks: bool| {
                let candidates = (0..widths.len()).filter(|at| widths[*at] > 1);
                candidates.filter(|at| !shrinks || self.columns[*at].shrinks).max_by_key(|at| widths[*at])
            };
            let Some(at) = widest(true).or_else(|| widest(false)) else { break };
            widths[at] -= 1;
        }
        widths
    }

    fn line(&self, cells: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        let mut owed = 0;
        for ((cell, width), column) in cells.iter().zip(widths).zip(&self.columns) {
            let text = shorten(&cell.text, *width);
            let slack = width - text.width().min(*width);
            let before = if column.align == Align::Right { slack } else { 0 };
            owed += before;
            if !text.is_empty() {
                line += &" ".repeat(owed);
                line += &styled(cell.style, &text);
                owed = 0;
            }
            owed += slack - before + GAP;
        }
        line
    }
}

/// Cuts `text` to a width, with `…` for what was in its middle; of a place in a program the directories
/// go first.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if let Some((function, path)) = text.split_once(" (") {
        let shorter = path.match_indices('/').map(|(at, _)| format!("{function} (…{}", &path[at..]));
        let file = path.rsplit('/').next().map(|file| format!("{function} ({file}"));
        if let Some(shorter) = shorter.chain(file).find(|place| place.width() <= width) {
            return shorter;
        }
    }
    if width == 0 {
        return String::new();
    }
    // What is to the right tells more: file and line of a site, the last digits of an address.
    let head = take(text.chars(), (width - 1) / 2);
    let tail = take(text.chars().rev(), width - 1 - head.width());
    format!("{head}…{}", tail.chars().rev().collect::<String>())
}

/// Cuts `text` to a width at its end.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    take(text.chars(), width.saturating_sub(1)) + if width == 0 { "" } else { "…" }
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut taken = 0;
    chars
        .take_while(|c| {
            taken += c.width().unwrap_or(0);
            taken <= width
        })
        .collect()
}

/// Breaks a sentence into lines of a width, the first after `lead`, which may be styled already, the
/// others indented by as much as `indent`.
pub(crate) fn wrap_after(lead: &str, indent: usize, sentence: &str, width: usize) -> String {
    let lines = wrap(sentence, width.saturating_sub(indent).max(1), 0);
    lead.to_owned() + &lines.replace('\n', &format!("\n{:indent$}", ""))
}

/// Breaks a sentence into lines of a width; what follows the first is indented by `indent`.
pub(crate) fn wrap(sentence: &str, width: usize, indent: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for word in sentence.split_whitespace() {
        let word = cut(word, width.saturating_sub(indent).max(1));
        if used > 0 && used + 1 + word.width() > width {
            let _ = write!(text, "\n{:indent$}", "");
            used = indent;
        } else if used > 0 {
            text.push(' ');
            used += 1;
        }
        used += word.width();
        text += &word;
    }
    text
}

/// The line that says how many rows a table does not show.
pub(crate) fn omitted(count: u64, layout: &Layout) -> String {
    if count == 0 {
        return String::new();
    }
    let line = format!("… and {} more (--limit 0 shows all)", floodmark_event::units::format_count(count));
    format!("{:INDENT$}{}\n", "", styled(layout.palette.faint, cut(&line, layout.width - INDENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            Column::long("site"),
            Column::figure("bytes"),
            Column::figure("share").rank(2),
            Column::text("kind").rank(1),
        ]);
        table.row(
            ["load_everything (src/a/long/path/app.py:90)", "3.42 KiB", "97 %", "device"].map(Cell::from),
        );
        table.row(["step (b.py:1)", "64 B", "3 %", ""].map(Cell::from));
        table
    }

    fn shown(width: usize) -> String {
        table().text(&Layout { width, ..Layout::default() })
    }

    #[test]
    fn wide_terminals_show_everything_lined_up_and_nothing_trails() {
        assert_eq!(
            shown(100),
            "  site                                            bytes  share  kind\n  \
               load_everything (src/a/long/path/app.py:90)  3.42 KiB   97 %  device\n  \
               step (b.py:1)                                    64 B    3 %\n"
        );
    }

    #[test]
    fn narrow_terminals_cut_text_then_leave_out_columns() {
        assert_eq!(
            shown(65).lines().nth(1),
            Some("  load_everything (…/path/app.py:90)      3.42 KiB   97 %  device")
        );
        assert_eq!(shown(55).lines().nth(1), Some("  load_everything (…/path/app.py:90)   3.42 KiB  device"));
        assert_eq!(shown(24).lines().nth(1), Some("  load_…py:90)  3.42 KiB"));
        assert_eq!(shown(16).lines().nth(1), Some("  l…0)  3.42 KiB"));
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for width in 1..120 {
            for line in shown(width).lines() {
                assert!(line.width() <= width.max(12), "{width}: {line}");
            }
        }
    }

    #[test]
    fn cells_are_plain_and_wide_characters_count_double() {
        let mut table = Table::new([Column::text("name"), Column::figure("n")]);
        table.row([Cell::from("メモリ\x1b[31m"), Cell::from("1")]);
        assert_eq!(table.text(&Layout::default()), "  name        n\n  メモリ[31m  1\n");
        assert_eq!(shorten("メモリメモリ", 7), "メ…モリ");
    }

    #[test]
    fn sentences_break_between_words() {
        assert_eq!(wrap("note: one two three", 11, 6), "note: one\n      two\n      three");
        assert_eq!(wrap("", 5, 0), "");
    }
}
