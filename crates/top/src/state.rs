//! What the person who looks has chosen: which pane, which part of the time, in which order.
//!
//! The state knows the picture it is about and nothing of how either is drawn.

use super::picture::Picture;

/// A part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    Timeline,
    Processes,
    Devices,
    Holders,
    Phases,
    Output,
}

impl Pane {
    pub(crate) const ALL: [Self; 6] =
        [Self::Timeline, Self::Processes, Self::Devices, Self::Holders, Self::Phases, Self::Output];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Timeline => "Timeline",
            Self::Processes => "Processes",
            Self::Devices => "Devices",
            Self::Holders => "Holders",
            Self::Phases => "Phases",
            Self::Output => "Output",
        }
    }

    /// Whether there is something in it.
    pub(crate) fn has_content(self, picture: &Picture) -> bool {
        match self {
            Self::Timeline => true,
            Self::Processes => !picture.processes.is_empty(),
            Self::Devices => !picture.devices.is_empty(),
            Self::Holders => picture.holders.is_some(),
            Self::Phases => !picture.phases.is_empty(),
            Self::Output => !picture.output.is_empty(),
        }
    }

    /// The panes that have something in them.
    pub(crate) fn present(picture: &Picture) -> Vec<Self> {
        Self::ALL.into_iter().filter(|pane| pane.has_content(picture)).collect()
    }

    /// How many rows it has to scroll through.
    pub(crate) fn rows(self, picture: &Picture) -> usize {
        match self {
            Self::Timeline => 0,
            Self::Processes => picture.processes.len(),
            Self::Devices => picture.devices.len(),
            Self::Holders => picture.holders.as_ref().map_or(0, |[peak, now]| {
                let groups =
                    |of: &floodmark_analyze::Watermark| of.groups.first().map_or(0, |by| by.groups.len());
                groups(peak).max(groups(now))
            }),
            Self::Phases => picture.phases.len(),
            Self::Output => picture.output.len(),
        }
    }
}

/// Whose blocks are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    #[default]
    Peak,
    Now,
}

/// What comes first in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// What there is now; of holders, bytes.
    #[default]
    Now,
    /// The highest there was; of holders, blocks.
    Peak,
    /// The number of the process; of holders, the name.
    Name,
}

impl Sort {
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Now => Self::Peak,
            Self::Peak => Self::Name,
            Self::Name => Self::Now,
        }
    }
}

/// Shortest time that is worth a screen.
const SHORTEST_NS: i64 = 1_000;

/// What was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) focus: Pane,
    /// The list that is shown where there is room for one.
    pub(crate) list: Option<Pane>,
    /// Rows that were scrolled, by pane; of output, back from the end.
    scrolled: [usize; Pane::ALL.len()],
    /// Part of the time that is shown; all of it if none.
    pub(crate) window: Option<(i64, i64)>,
    /// Instant that is looked at.
    pub(crate) cursor_ns: Option<i64>,
    pub(crate) when: When,
    pub(crate) process_sort: Sort,
    pub(crate) holder_sort: Sort,
    pub(crate) is_paused: bool,
    pub(crate) has_help: bool,
    /// Columns and rows that were last drawn: what one step, or one page, is.
    pub(crate) columns: u16,
    pub(crate) page: u16,
}

impl State {
    pub(crate) fn scrolled(&self, pane: Pane) -> usize {
        self.scrolled[pane as usize]
    }

    pub(crate) fn scroll_to(&mut self, pane: Pane, rows: usize) {
        self.scrolled[pane as usize] = rows;
    }

    /// Scrolls the pane in focus; of output up is back.
    pub(crate) fn scroll(&mut self, by: isize, picture: &Picture) {
        let by = if self.focus == Pane::Output { -by } else { by };
        let most = self.focus.rows(picture).saturating_sub(1);
        let rows = self.scrolled(self.focus).saturating_add_signed(by).min(most);
        self.scroll_to(self.focus, rows);
    }

    /// The list to show where there is room for one: the one last looked at, else the first there is.
    pub(crate) fn shown_list(&self, picture: &Picture) -> Option<Pane> {
        let present = Pane::present(picture);
        self.list.filter(|list| present.contains(list)).or_else(|| present.get(1).copied())
    }

    /// Moves the focus among the panes that have something in them.
    pub(crate) fn move_focus(&mut self, by: isize, picture: &Picture) {
        let present = Pane::present(picture);
        let at = present.iter().position(|pane| *pane == self.focus).unwrap_or(0);
        let count = present.len() as isize;
        self.focus = present[(at as isize + by).rem_euclid(count) as usize];
        if self.focus != Pane::Timeline {
            self.list = Some(self.focus);
        }
    }

    /// The time that is shown.
    pub(crate) fn shown(&self, picture: &Picture) -> Option<(i64, i64)> {
        let (first, last) = picture.span?;
        let (from, to) = self.window.unwrap_or((first, last));
        Some((from, to.max(from.saturating_add(1))))
    }

    /// Zooms around the cursor, or the end: by halves in, by doubles out.
    pub(crate) fn zoom(&mut self, way: Zoom, picture: &Picture) {
        let (Some((first, last)), Some((from, to))) = (picture.span, self.shown(picture)) else { return };
        let length = to.saturating_sub(from);
        let new = match way {
            Zoom::In => (length / 2).max(SHORTEST_NS),
            Zoom::Out => length.saturating_mul(2),
        };
        if new >= last.saturating_sub(first) {
            self.window = None;
            return;
        }
        let middle = self.cursor_ns.unwrap_or(to).clamp(from, to);
        let before = (middle.saturating_sub(from) as f64 / length.max(1) as f64 * new as f64) as i64;
        self.look_from(middle.saturating_sub(before), new, (first, last));
    }

    fn look_from(&mut self, from: i64, length: i64, (first, last): (i64, i64)) {
        let from = from.clamp(first, last.saturating_sub(length).max(first));
        self.window = Some((from, from.saturating_add(length)));
    }

    /// Moves the cursor by columns; the window goes with it.
    pub(crate) fn move_cursor(&mut self, columns: i64, picture: &Picture) {
        let (Some((first, last)), Some((from, to))) = (picture.span, self.shown(picture)) else { return };
        let length = to.saturating_sub(from);
        let step = (length / i64::from(self.columns.max(1))).max(1);
        let at = self.cursor_ns.unwrap_or(to).saturating_add(step.saturating_mul(columns)).clamp(first, last);
        self.cursor_ns = Some(at);
        if at < from {
            self.look_from(at, length, (first, last));
        } else if at > to {
            self.look_from(at.saturating_sub(length), length, (first, last));
        }
    }

    /// Looks at all of it, and goes along as it grows.
    pub(crate) fn look_at_all(&mut self) {
        (self.window, self.cursor_ns) = (None, None);
    }
}

/// Which way to zoom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zoom {
    In,
    Out,
}
