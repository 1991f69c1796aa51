//! How wide, how colored and how long text may be.

use anstyle::{AnsiColor, Style};

use crate::table::wrap;

/// What the reader's terminal can show and how much of it they want.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Columns of the terminal, at least 40; no line is wider.
    pub width: usize,
    /// Styles of the parts of a report.
    pub palette: Palette,
    /// Rows a table may have; all if none.
    pub rows: Option<usize>,
}

impl Layout {
    /// The first rows of a list, as many as a table may have, and how many are left.
    pub(crate) fn first<'a, T>(&self, list: &'a [T]) -> (&'a [T], u64) {
        let (first, rest) = list.split_at(self.rows.unwrap_or(usize::MAX).min(list.len()));
        (first, rest.len() as u64)
    }

    /// Columns for the longest bar beside a table.
    pub(crate) fn bar_width(&self) -> usize {
        (self.width / 5).clamp(8, 24)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { width: 100, palette: Palette::plain(), rows: Some(10) }
    }
}

/// Styles by what they mean. Every report is readable without them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Palette {
    /// Names of inputs and headlines.
    pub title: Style,
    /// What may be passed over: headings of columns, units of charts.
    pub faint: Style,
    /// Paths and things to type.
    pub literal: Style,
    /// The figure a report is about.
    pub figure: Style,
    /// Bars and curves.
    pub bar: Style,
    /// Things as they should be.
    pub good: Style,
    /// Things that need attention.
    pub doubtful: Style,
    /// Things that are wrong.
    pub bad: Style,
}

impl Palette {
    /// No styles at all.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Whether there are no styles.
    pub fn is_plain(&self) -> bool {
        self.bad == Style::new()
    }

    /// The sixteen colors every terminal has, in the shades the user gave them.
    pub fn color() -> Self {
        let colored = |color: AnsiColor| color.on_default();
        Self {
            title: Style::new().bold(),
            faint: Style::new().dimmed(),
            literal: colored(AnsiColor::Cyan),
            figure: Style::new().bold(),
            bar: colored(AnsiColor::Blue),
            good: colored(AnsiColor::Green),
            doubtful: colored(AnsiColor::Yellow),
            bad: colored(AnsiColor::Red).bold(),
        }
    }
}

/// Wraps `text` in a style.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Text that grows by lines.
#[derive(Debug, Default)]
pub(crate) struct Lines(String);

impl Lines {
    /// Adds a line.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.0 += line.as_ref();
        self.0.push('\n');
    }

    /// Adds a line in a style.
    pub(crate) fn styled(&mut self, style: Style, line: impl std::fmt::Display) {
        self.line(styled(style, line));
    }

    /// Adds a sentence, its figure set off from the rest.
    pub(crate) fn headline(&mut self, sentence: &str, figure: &str, layout: &Layout) {
        let lines = wrap(sentence, layout.width, 2);
        self.line(lines.replacen(figure, &styled(layout.palette.figure, figure), 1));
    }

    /// Adds an empty line.
    pub(crate) fn blank(&mut self) {
        self.0.push('\n');
    }

    /// Adds lines that are ended already.
    pub(crate) fn block(&mut self, lines: impl AsRef<str>) {
        self.0 += lines.as_ref();
    }

    /// Returns the text.
    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// Returns lines that suggest commands to type next, with what each shows if there is room for it.
pub fn suggestions(commands: &[(String, &str)], layout: &Layout) -> String {
    let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    let longest = commands.iter().map(|(_, shows)| shows.len()).max().unwrap_or(0);
    let has_room = longest > 0 && "next:   # ".len() + width + longest <= layout.width;
    let style = layout.palette.literal;
    let line = |(at, (command, shows)): (usize, &(String, &str))| {
        let lead = if at == 0 { "next: " } else { "      " };
        let pad = " ".repeat(width - command.chars().count());
        let remark = if has_room { format!("{pad}  # {shows}") } else { String::new() };
        format!("{lead}{style}{command}{style:#}{remark}")
    };
    commands.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}
