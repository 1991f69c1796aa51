//! Panes that are lists: processes, devices, holders, phases, output.

use std::cmp::Reverse;

use floodmark_analyze::{Group, ProcessNow};
use floodmark_event::units::{format_bytes, format_count};
use floodmark_view::chart::bar;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::{Theme, frame_of, since_start, text, timeline, title_of};
use crate::picture::Picture;
use crate::state::{Pane, Sort, State, When};

/// Columns of a size.
const BYTES: Constraint = Constraint::Length(9);

/// Draws a list.
pub(super) fn draw(
    frame: &mut Frame,
    area: Rect,
    pane: Pane,
    picture: &Picture,
    state: &mut State,
    theme: &Theme,
) {
    let rows_shown = area.height.saturating_sub(if pane == Pane::Output { 1 } else { 2 });
    if pane == state.focus {
        state.page = rows_shown;
    }
    // Nothing below the last row is worth scrolling to.
    let most = pane.rows(picture).saturating_sub(usize::from(rows_shown));
    let scrolled = state.scrolled(pane).min(most);
    if pane == state.focus {
        state.scroll_to(pane, scrolled);
    }
    let view =
        View { picture, state, theme, width: area.width, from: scrolled, rows: usize::from(rows_shown) };
    let block = frame_of(pane, view.title(pane), state, theme);
    match pane {
        Pane::Timeline => {}
        Pane::Processes => frame.render_widget(view.processes().block(block), area),
        Pane::Devices => frame.render_widget(view.devices().block(block), area),
        Pane::Holders => frame.render_widget(view.holders().block(block), area),
        Pane::Phases => frame.render_widget(view.phases().block(block), area),
        Pane::Output => frame.render_widget(view.output().block(block), area),
    }
}

/// What is drawn of a list.
struct View<'a> {
    picture: &'a Picture,
    state: &'a State,
    theme: &'a Theme,
    width: u16,
    /// Rows that are passed over, and rows there is room for.
    from: usize,
    rows: usize,
}

impl View<'_> {
    fn title<'t>(&self, pane: Pane) -> TextLine<'t> {
        let rows = match pane {
            Pane::Holders => self.groups().len(),
            _ => pane.rows(self.picture),
        };
        let mut spans = vec![title_of(pane, self.state, self.theme)];
        spans.extend(match pane {
            Pane::Holders => {
                let when = if self.state.when == When::Peak { "at the peak" } else { "now" };
                Some(Span::raw(format!("{when} ")))
            }
            Pane::Processes => Some(Span::raw(format!("by {} ", process_order(self.state.process_sort)))),
            _ => None,
        });
        if rows > self.rows && pane != Pane::Output {
            let last = (self.from + self.rows).min(rows);
            let which = format!("{}–{last} of {} ", self.from + 1, format_count(rows as u64));
            spans.push(Span::styled(which, self.theme.faint));
        }
        if pane == Pane::Output && self.from > 0 {
            spans.push(Span::styled(format!("{} lines back ", self.from), self.theme.faint));
        }
        TextLine::from(spans)
    }

    fn table<'t>(
        &self,
        header: &[&'static str],
        widths: Vec<Constraint>,
        rows: impl Iterator<Item = Vec<Cell<'t>>>,
    ) -> Table<'t> {
        let head =
            header.iter().map(|name| if NUMBERS.contains(name) { right(name) } else { Cell::new(*name) });
        let rows = rows.skip(self.from).take(self.rows).map(Row::new);
        Table::new(rows, widths).header(Row::new(head).style(self.theme.faint)).column_spacing(1)
    }

    fn processes<'t>(&self) -> Table<'t> {
        let mut processes: Vec<&ProcessNow> = self.picture.processes.iter().collect();
        match self.state.process_sort {
            Sort::Now => processes.sort_by_key(|one| (Reverse(one.rss_bytes), Reverse(one.peak_rss_bytes))),
            Sort::Peak => processes.sort_by_key(|one| Reverse(one.peak_rss_bytes)),
            Sort::Name => processes.sort_by_key(|one| one.pid),
        }
        let (nodes, has_nodes) = (self.picture.nodes.clone(), !self.picture.nodes.is_empty());
        let widest = nodes.values().map(|name| name.chars().count()).max().unwrap_or(0).clamp(4, 12) as u16;
        let has_ranks = has_nodes && processes.iter().any(|one| one.rank.is_some());
        let has_pss = processes.iter().any(|one| one.pss_bytes.is_some());
        let has_gpu = processes.iter().any(|one| one.gpu_bytes.is_some());
        let total = processes.iter().map(|one| one.rss_bytes).fold(0, u64::saturating_add);
        let rows = processes.into_iter().map(move |one| {
            let is_over = one.end_time_ns.is_some();
            let amount = |bytes: u64| if is_over { right("ended") } else { right(&format_bytes(bytes)) };
            let optional = |bytes: Option<u64>| match bytes {
                Some(bytes) if !is_over => right(&format_bytes(bytes)),
                _ => right("-"),
            };
            let mut cells = vec![right(&one.pid.to_string())];
            cells
                .extend(has_nodes.then(|| Cell::new(text(nodes.get(&one.recorder).map_or("", |name| name)))));
            cells.extend(has_ranks.then(|| right(&one.rank.map_or("-".to_owned(), |rank| rank.to_string()))));
            cells.push(amount(one.rss_bytes));
            cells.extend(has_pss.then(|| optional(one.pss_bytes)));
            cells.extend(has_gpu.then(|| optional(one.gpu_bytes)));
            cells.push(right(&format_bytes(one.peak_rss_bytes)));
            cells.push(if is_over { right("-") } else { right(&percent(one.rss_bytes, total)) });
            cells.push(Cell::new(if one.command.is_empty() {
                text(&one.name)
            } else {
                command(&one.command)
            }));
            cells
        });
        let (mut header, mut widths) = (vec!["pid"], vec![Constraint::Length(7)]);
        for (name, has, width) in [("node", has_nodes, widest), ("rank", has_ranks, 5)] {
            if has {
                header.push(name);
                widths.push(Constraint::Length(width));
            }
        }
        header.push("RSS");
        widths.push(BYTES);
        for (name, has) in [("PSS", has_pss), ("GPU", has_gpu)] {
            if has {
                header.push(name);
                widths.push(BYTES);
            }
        }
        header.extend(["peak", "share", "command"]);
        widths.extend([BYTES, Constraint::Length(5), Constraint::Fill(1)]);
        self.table(&header, widths, rows)
    }

    fn devices<'t>(&self) -> Table<'t> {
        let rows = self.picture.devices.iter().map(|one| {
            let share =
                one.total_bytes.map_or_else(|| "-".to_owned(), |total| percent(one.used_bytes, total));
            vec![
                right(&one.device.to_string()),
                right(&format_bytes(one.used_bytes)),
                right(&one.total_bytes.map_or_else(|| "-".to_owned(), format_bytes)),
                right(&share),
                right(&format_bytes(one.peak_bytes)),
                Cell::new(text(&one.name)),
            ]
        });
        let widths =
            vec![Constraint::Length(6), BYTES, BYTES, Constraint::Length(5), BYTES, Constraint::Fill(1)];
        self.table(&["device", "in use", "of", "share", "peak", "name"], widths, rows)
    }

    fn groups(&self) -> Vec<&Group> {
        let Some(holders) = &self.picture.holders else { return Vec::new() };
        let by_site = holders[self.state.when as usize].groups.first();
        by_site.map_or_else(Vec::new, |by| by.groups.iter().collect())
    }

    fn holders<'t>(&self) -> Table<'t> {
        let mut groups = self.groups();
        match self.state.holder_sort {
            Sort::Now => {}
            Sort::Peak => groups.sort_by_key(|group| Reverse(group.blocks)),
            Sort::Name => groups.sort_by(|a, b| a.key.cmp(&b.key)),
        }
        let most = groups.iter().map(|group| group.bytes).max().unwrap_or(0);
        let bars: u16 = if self.width >= 70 { 10 } else { 0 };
        let rows = groups.into_iter().map(move |group| {
            vec![
                right(&format_bytes(group.bytes)),
                right(&format!("{:.0} %", group.share * 100.0)),
                right(&format_count(group.blocks)),
                Cell::new(if bars > 0 { bar(group.bytes, most, usize::from(bars)) } else { String::new() }),
                Cell::new(text(&group.key)),
            ]
        });
        let widths = vec![
            BYTES,
            Constraint::Length(5),
            Constraint::Length(7),
            Constraint::Length(bars),
            Constraint::Fill(1),
        ];
        self.table(&["bytes", "share", "blocks", "", "site"], widths, rows)
    }

    fn phases<'t>(&self) -> Table<'t> {
        let letters: Vec<char> = timeline::marks(self.picture).map(|(_, letter)| letter).collect();
        let highest = self.picture.phases.iter().map(|phase| phase.peak_bytes).max().unwrap_or(0);
        let mut letters = letters.into_iter();
        let rows = self.picture.phases.iter().map(move |phase| {
            let letter = phase.start_ns.and_then(|_| letters.next());
            let is_highest = phase.peak_bytes == highest && highest > 0;
            let peak = right(&format_bytes(phase.peak_bytes));
            let start =
                phase.start_ns.map_or_else(|| "the start".to_owned(), |at| since_start(self.picture, at));
            let name =
                phase.name.as_ref().map_or_else(|| "(before the first mark)".to_owned(), |name| text(name));
            vec![
                Cell::new(letter.map_or_else(String::new, String::from)),
                right(&start),
                if is_highest { peak.style(self.theme.peak) } else { peak },
                Cell::new(name),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let widths = vec![Constraint::Length(1), Constraint::Length(9), BYTES, Constraint::Fill(1)];
        self.table(&["", "from", "peak", "phase"], widths, rows.into_iter())
    }

    fn output<'t>(&self) -> Paragraph<'t> {
        let lines = &self.picture.output;
        let end = lines.len().saturating_sub(self.from);
        let start = end.saturating_sub(self.rows);
        let shown: Vec<TextLine> =
            lines[start..end].iter().map(|line| TextLine::raw(format!(" {}", written(line)))).collect();
        Paragraph::new(shown)
    }
}

/// Headings above numbers.
const NUMBERS: [&str; 13] = [
    "pid", "rank", "RSS", "PSS", "GPU", "peak", "share", "device", "in use", "of", "bytes", "blocks", "from",
];

/// A command without the folder of its program, which tells little and is long.
fn command(recorded: &str) -> String {
    let command = text(recorded);
    let (program, rest) = command.split_at(command.find(' ').unwrap_or(command.len()));
    let name = program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program);
    if program.starts_with('/') { format!("{name}{rest}") } else { command }
}

/// A line of output without its colors.
fn written(recorded: &str) -> String {
    text(&anstream::adapter::strip_str(recorded).to_string())
}

fn right<'t>(words: &str) -> Cell<'t> {
    Cell::new(TextLine::raw(words.to_owned()).right_aligned())
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

const fn process_order(sort: Sort) -> &'static str {
    match sort {
        Sort::Now => "resident memory",
        Sort::Peak => "peak",
        Sort::Name => "number",
    }
}
