//! Draws a picture on a screen of any size.
//!
//! A large screen shows every pane; a small one the timeline and one list, which Tab changes. Text that was
//! recorded passes through [`text`], so it can neither act on the terminal nor take its time.

mod lists;
mod timeline;

use floodmark_event::units::{format_bytes, format_count, format_elapsed_ns};
use floodmark_view::plain;
use floodmark_view::plot::TimeAxis;
use floodmark_view::plot::axis::instant;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use super::picture::{Picture, Progress};
use super::state::{Pane, State};

/// Smallest screen that shows anything.
pub(crate) const SMALLEST: (u16, u16) = (40, 10);
/// From here on all panes are shown.
const LARGE: (u16, u16) = (120, 30);
/// Characters that are looked at of a recorded text.
const TEXT_CHARS: usize = 400;

/// Styles by what they mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Theme {
    pub(crate) title: Style,
    pub(crate) faint: Style,
    pub(crate) focus: Style,
    pub(crate) area: Style,
    pub(crate) peak: Style,
    pub(crate) cursor: Style,
    pub(crate) good: Style,
    pub(crate) doubtful: Style,
}

impl Theme {
    /// Without colors, for terminals and people that want none.
    pub(crate) fn plain() -> Self {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Self { title: bold, focus: bold, peak: bold, cursor: bold, ..Self::default() }
    }

    /// The sixteen colors every terminal has.
    pub(crate) fn color() -> Self {
        let of = |color| Style::new().fg(color);
        Self {
            title: Style::new().add_modifier(Modifier::BOLD),
            faint: Style::new().add_modifier(Modifier::DIM),
            focus: of(Color::Cyan).add_modifier(Modifier::BOLD),
            area: of(Color::Blue),
            peak: of(Color::Red).add_modifier(Modifier::BOLD),
            cursor: of(Color::Yellow),
            good: of(Color::Green),
            doubtful: of(Color::Yellow),
        }
    }
}

/// Recorded text, made harmless and short.
pub(crate) fn text(recorded: &str) -> String {
    let end = recorded.char_indices().nth(TEXT_CHARS).map_or(recorded.len(), |(at, _)| at);
    plain(&recorded[..end]).into_owned()
}

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame, picture: &Picture, state: &mut State, theme: &Theme) {
    let screen = frame.area();
    if screen.width < SMALLEST.0 || screen.height < SMALLEST.1 {
        let (columns, rows) = SMALLEST;
        let words = format!(
            "{} x {} is too small; make the window at least {columns} x {rows}, or press q to leave",
            screen.width, screen.height
        );
        frame.render_widget(Paragraph::new(words).wrap(ratatui::widgets::Wrap { trim: true }), screen);
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)]).areas(screen);
    header(frame, head, picture, theme);
    if screen.width >= LARGE.0 && screen.height >= LARGE.1 {
        large(frame, body, picture, state, theme);
    } else {
        small(frame, body, picture, state, theme);
    }
    footer(frame, foot, picture, state, theme);
    if state.has_help {
        help(frame, screen, picture, theme);
    }
}

fn large(frame: &mut Frame, body: Rect, picture: &Picture, state: &mut State, theme: &Theme) {
    let present = Pane::present(picture);
    let right: Vec<Pane> =
        present.iter().copied().filter(|pane| !matches!(pane, Pane::Timeline | Pane::Output)).collect();
    let columns = if right.is_empty() { [100, 0] } else { [58, 42] };
    let [left, lists_area] = Layout::horizontal(columns.map(Constraint::Percentage)).spacing(1).areas(body);
    let has_output = present.contains(&Pane::Output);
    let output_rows = if has_output { body.height * 3 / 10 } else { 0 };
    let [chart, output] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(output_rows)]).areas(left);
    timeline::draw(frame, chart, picture, state, theme);
    if has_output {
        lists::draw(frame, output, Pane::Output, picture, state, theme);
    }
    // Short lists take what they need, and leave the rest to long ones.
    let rows = |pane: &Pane| pane.rows(picture).min(1000) as u16 + 3;
    let rooms = right.iter().map(|pane| match pane {
        Pane::Devices => Constraint::Length(rows(pane).min(body.height / 3)),
        _ => Constraint::Fill(if rows(pane) * 3 < body.height { 2 } else { 3 }),
    });
    let areas = Layout::vertical(rooms).split(lists_area);
    for (pane, area) in right.iter().zip(areas.iter()) {
        lists::draw(frame, *area, *pane, picture, state, theme);
    }
}

fn small(frame: &mut Frame, body: Rect, picture: &Picture, state: &mut State, theme: &Theme) {
    let list = state.shown_list(picture);
    let list_rows = if list.is_some() && body.height >= 12 { body.height * 45 / 100 } else { 0 };
    let [chart, rest] = Layout::vertical([Constraint::Fill(1), Constraint::Length(list_rows)]).areas(body);
    if let Some(list) = list {
        if list_rows > 0 {
            timeline::draw(frame, chart, picture, state, theme);
            lists::draw(frame, rest, list, picture, state, theme);
            others(frame, rest, list, picture, theme);
            return;
        }
        // With room for one pane only it is the one in focus.
        if state.focus != Pane::Timeline {
            lists::draw(frame, body, list, picture, state, theme);
            return;
        }
    }
    timeline::draw(frame, chart, picture, state, theme);
}

/// Names the lists that there is no room for, in the title of the one there is.
fn others(frame: &mut Frame, area: Rect, shown: Pane, picture: &Picture, theme: &Theme) {
    let others = Pane::present(picture).into_iter().skip(1).filter(|pane| *pane != shown);
    let names: Vec<&str> = others.map(Pane::name).collect();
    if !names.is_empty() {
        let line = TextLine::styled(format!(" Tab: {} ", names.join(" ")), theme.faint).right_aligned();
        let width = (line.width() as u16).min(area.width / 2);
        let right = Rect { x: area.right() - width, width, height: 1, ..area };
        frame.render_widget(line, right);
    }
}

/// Frame of a pane; in focus it stands out.
fn frame_of<'a>(pane: Pane, title: TextLine<'a>, state: &State, theme: &Theme) -> Block<'a> {
    let style = if state.focus == pane { theme.focus } else { theme.faint };
    Block::new().borders(Borders::TOP).border_style(style).title(title)
}

/// Name of a pane as its title says it.
fn title_of(pane: Pane, state: &State, theme: &Theme) -> Span<'static> {
    let style = if state.focus == pane { theme.focus } else { theme.title };
    Span::styled(format!(" {} ", pane.name()), style)
}

/// An instant as time since the start.
fn since_start(picture: &Picture, time_ns: i64) -> String {
    let (first, last) = picture.span.unwrap_or((time_ns, time_ns));
    let origin = picture.origin_ns.unwrap_or(first);
    let text = instant(time_ns.saturating_sub(origin), last.saturating_sub(origin), TimeAxis::Elapsed);
    if text == "0" { "the start".to_owned() } else { text }
}

fn header(frame: &mut Frame, area: Rect, picture: &Picture, theme: &Theme) {
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let (word, style) = match picture.progress {
        Progress::Beginning => ("waiting for data", theme.doubtful),
        Progress::Recording => ("recording", theme.good),
        Progress::Ended => ("ended", theme.faint),
    };
    let ending = picture.ending.as_ref().map_or_else(|| word.to_owned(), |ending| text(ending));
    let length = picture.span.map(|(first, last)| {
        instant(last.saturating_sub(first), last.saturating_sub(first), TimeAxis::Elapsed)
    });
    let length =
        length.filter(|length| length != "0").map_or_else(String::new, |length| format!(" · {length}"));
    let right = TextLine::from(vec![Span::styled(ending, style), Span::raw(length), Span::raw(" ")]);
    let name = picture.origin.command.as_ref().unwrap_or(&picture.origin.source);
    let [left_area, right_area] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(right.width() as u16 + 1)]).areas(first);
    frame.render_widget(
        TextLine::from(vec![Span::raw(" "), Span::styled(text(name), theme.title)]),
        left_area,
    );
    frame.render_widget(right.alignment(Alignment::Right), right_area);
    frame.render_widget(figures(picture, theme), second);
}

/// The figures the screen is about.
fn figures<'a>(picture: &Picture, theme: &Theme) -> TextLine<'a> {
    let Some(line) = picture.lines.first() else {
        return TextLine::from(Span::styled(" nothing was recorded so far", theme.faint));
    };
    let mut spans = vec![Span::raw(" peak "), Span::styled(format_bytes(line.peak_bytes), theme.peak)];
    if let Some(time_ns) = line.peak_time_ns {
        let origin = picture.origin_ns.or(picture.span.map(|(first, _)| first)).unwrap_or(time_ns);
        spans.push(Span::raw(format!(" at {}", format_elapsed_ns(time_ns.saturating_sub(origin)))));
    }
    let now = if picture.progress == Progress::Ended { "at the end" } else { "now" };
    // A run that is over has no memory; blocks may be left.
    if picture.progress != Progress::Ended || line.now_bytes > 0 {
        spans.push(Span::raw(format!(" · {now} {}", format_bytes(line.now_bytes))));
    }
    if !picture.processes.is_empty() {
        let alive = picture.processes.iter().filter(|process| process.end_time_ns.is_none()).count();
        let all = picture.processes.len();
        let noun = if all == 1 { "process" } else { "processes" };
        spans.push(Span::raw(match picture.progress {
            Progress::Ended => format!(" · {} {noun}", format_count(all as u64)),
            _ => format!(" · {} of {} {noun} alive", format_count(alive as u64), format_count(all as u64)),
        }));
    }
    if picture.losses.iter().any(|loss| !loss.is_remark) {
        spans.push(Span::styled(" · something is missing, see ?", theme.doubtful));
    }
    TextLine::from(spans)
}

fn footer(frame: &mut Frame, area: Rect, picture: &Picture, state: &State, theme: &Theme) {
    let keys: &[&str] = match state.focus {
        Pane::Timeline => &["q quit", "? help", "Tab pane", "←→ look", "+- zoom", "p pause", "h peak/now"],
        Pane::Processes => &["q quit", "? help", "Tab pane", "↑↓ scroll", "s sort", "p pause"],
        Pane::Holders => &["q quit", "? help", "Tab pane", "↑↓ scroll", "h peak/now", "s sort", "p pause"],
        _ => &["q quit", "? help", "Tab pane", "↑↓ scroll", "p pause"],
    };
    let mut spans = Vec::new();
    if state.is_paused {
        let word =
            if picture.progress == Progress::Ended { " paused " } else { " paused; it is recorded on " };
        spans.push(Span::styled(word, theme.doubtful.add_modifier(Modifier::REVERSED)));
    }
    spans.push(Span::styled(format!(" {}", keys.join("  ")), theme.faint));
    frame.render_widget(TextLine::from(spans), area);
}

const KEYS: [(&str, &str); 11] = [
    ("q  Esc  Ctrl-C", "leave; a command goes on"),
    ("Tab  Shift-Tab", "next or previous pane"),
    ("← →", "look at an instant; with Shift farther"),
    ("+ -", "zoom the time in and out"),
    ("End  0", "all of the time, as it grows"),
    ("↑ ↓  PgUp PgDn", "scroll a list"),
    ("s", "sort: now, peak, name"),
    ("h", "holders at the peak or now"),
    ("p", "pause, and go on"),
    ("Ctrl-Z", "suspend"),
    ("?", "this help; any key closes it"),
];

fn help(frame: &mut Frame, screen: Rect, picture: &Picture, theme: &Theme) {
    let losses = picture.losses.iter().take(5).map(|loss| text(&loss.sentence()));
    let losses: Vec<TextLine> =
        losses.map(|loss| TextLine::styled(format!(" {loss}"), theme.doubtful)).collect();
    let (width, height) = (62.min(screen.width), ((KEYS.len() + losses.len()) as u16 + 2).min(screen.height));
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<TextLine> = KEYS
        .iter()
        .map(|(keys, what)| {
            TextLine::from(vec![
                Span::styled(format!(" {keys:<16}"), theme.title),
                Span::raw((*what).to_owned()),
            ])
        })
        .chain(losses)
        .collect();
    frame.render_widget(Clear, area);
    let block = Block::new().borders(Borders::ALL).border_style(theme.focus).title(" Keys ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
