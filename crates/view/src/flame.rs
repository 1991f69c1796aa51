//! Flame graphs as pictures, pages and text.
//!
//! A [`FlameChart`] says what boxes there are and how wide each is; [`place`] gives every box its place,
//! joining those too narrow to see. What is left for [`draw`](draw::scene), [`page`] and
//! [`terminal`] is to write boxes down. The root is at the top. Runs of folded frames are seams: thin lines
//! that keep a picture of deep stacks about code with names.
//!
//! Texts come from traces: they lose what is invisible when they enter a chart, and every writer escapes
//! what its format needs escaped.

pub mod draw;
pub mod page;
pub mod terminal;

use std::fmt::Write as _;

use floodmark_analyze::{Diff, DiffNode, Flame, FlameNode, FlameOf, Totals};
use floodmark_event::units::{format_bytes, format_count};

use crate::figures::{counted, instant_exactly, percent};
use crate::plain::plain;
use crate::plot::label;
use crate::usage::kinds_in_words;

/// Rows that are drawn; deeper calls are left out and counted.
const MOST_ROWS: usize = 256;
/// A call that changed by this part of all or less is drawn as unchanged.
const SLIGHT: f64 = 0.001;

/// What boxes of stack samples measure: a reader expects memory of a flame graph.
const COUNTS_OF_CALLS: &str = "how often each call was sampled, not memory at the peak";

/// What a box stands for, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tone {
    /// A call; those of one file share a number.
    Call(usize),
    /// A run of folded frames.
    Folded,
    /// Boxes that are too narrow to be seen, joined.
    Joined,
    /// A call of two runs: from -1, it is gone, to 1, it is new.
    Change(f64),
}

/// A box before it has a place.
#[derive(Clone, Debug, PartialEq)]
pub struct FlameBox {
    /// Index of the box around it, which comes before it.
    pub parent: Option<u32>,
    /// What is written in it.
    pub text: String,
    /// What it says when pointed at.
    pub hint: String,
    /// How wide it is.
    pub value: u64,
    /// What it stands for.
    pub tone: Tone,
    /// Whether it is a run of folded frames, which is drawn as a thin line without text.
    pub is_seam: bool,
}

/// What is to be drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlameChart {
    /// What it is about.
    pub title: String,
    /// What widths are.
    pub what: String,
    /// What widths mean, in sentences.
    pub caption: String,
    /// How wide all of it is.
    pub total: u64,
    /// The boxes, a parent before its children.
    pub boxes: Vec<FlameBox>,
    /// How values are written.
    pub unit: Unit,
}

/// What values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes,
    /// Allocations.
    Allocations,
    /// Samples.
    Samples,
}

impl Unit {
    fn of(of: FlameOf) -> Self {
        match of {
            FlameOf::Marked | FlameOf::End | FlameOf::Allocated | FlameOf::Gained => Self::Bytes,
            FlameOf::Count => Self::Allocations,
            FlameOf::Samples => Self::Samples,
        }
    }

    /// A value with its unit.
    pub(crate) fn text(self, value: u64) -> String {
        match self {
            Self::Bytes => format_bytes(value),
            Self::Allocations => counted(value, "allocation"),
            Self::Samples => counted(value, "sample"),
        }
    }

    /// A value in few characters.
    pub(crate) fn short(self, value: u64) -> String {
        if self == Self::Bytes { format_bytes(value) } else { format_count(value) }
    }
}

/// A box with its place, in parts of the whole width.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Where it begins.
    pub left: f64,
    /// How wide it is.
    pub width: f64,
    /// Number of boxes of full height above it.
    pub row: usize,
    /// Number of seams above it.
    pub seams: usize,
    /// What is written in it.
    pub text: String,
    /// What it says when pointed at.
    pub hint: String,
    /// What it stands for.
    pub tone: Tone,
    /// Whether it is a seam: a run of folded frames, drawn as a thin line without text.
    pub is_seam: bool,
}

impl Placed {
    /// Distance of its upper edge from the top, given the heights of a box and of a seam.
    pub fn top(&self, box_height: f64, seam_height: f64) -> f64 {
        self.row as f64 * box_height + self.seams as f64 * seam_height
    }

    /// Distance of its lower edge from the top, given the heights of a box and of a seam.
    pub fn bottom(&self, box_height: f64, seam_height: f64) -> f64 {
        self.top(box_height, seam_height) + if self.is_seam { seam_height } else { box_height }
    }
}

/// All boxes with their places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The boxes; no two of them overlap.
    pub boxes: Vec<Placed>,
    /// Boxes that are too narrow to be seen even if joined, or too deep to be drawn.
    pub unseen: u64,
}

impl Placement {
    /// Height of all boxes, given the heights of a box and of a seam.
    pub fn height(&self, box_height: f64, seam_height: f64) -> f64 {
        self.boxes.iter().map(|one| one.bottom(box_height, seam_height)).fold(0.0, f64::max)
    }
}

/// Gives every box its place; those narrower than `narrowest` of the whole are joined with those beside
/// them.
pub fn place(chart: &FlameChart, narrowest: f64) -> Placement {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); chart.boxes.len()];
    let mut roots = Vec::new();
    for (at, one) in chart.boxes.iter().enumerate() {
        match one.parent {
            Some(parent) => children[parent as usize].push(at as u32),
            None => roots.push(at as u32),
        }
    }
    let mut placement = Placement::default();
    let mut open = vec![(roots, 0.0, 1.0, (0, 0))];
    while let Some((siblings, from, to, (row, seams))) = open.pop() {
        if row + seams == MOST_ROWS {
            placement.unseen += siblings.len() as u64;
            continue;
        }
        let (mut left, mut narrow) = (from, (0u64, 0u64));
        for at in siblings {
            let one = &chart.boxes[at as usize];
            // Sums that are too large to be counted may be less than their parts.
            let width = part(one.value, chart.total).min(to - left).max(0.0);
            if width < narrowest {
                narrow = (narrow.0 + 1, narrow.1.saturating_add(one.value));
                continue;
            }
            placement.boxes.push(Placed {
                left,
                width,
                row,
                seams,
                text: one.text.clone(),
                hint: one.hint.clone(),
                tone: one.tone,
                is_seam: one.is_seam,
            });
            let below = std::mem::take(&mut children[at as usize]);
            if !below.is_empty() {
                let under = if one.is_seam { (row, seams + 1) } else { (row + 1, seams) };
                open.push((below, left, left + width, under));
            }
            left += width;
        }
        let width = part(narrow.1, chart.total).min(to - left).max(0.0);
        if width < narrowest {
            placement.unseen += narrow.0;
        } else if narrow.0 > 0 {
            placement.boxes.push(Placed {
                left,
                width,
                row,
                seams,
                text: format!("{} more", format_count(narrow.0)),
                hint: format!(
                    "{} too narrow to be drawn: {} together, {} of all",
                    counted(narrow.0, "call"),
                    chart.unit.text(narrow.1),
                    percent(width)
                ),
                tone: Tone::Joined,
                is_seam: false,
            });
        }
    }
    placement
}

fn part(value: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { value as f64 / total as f64 }
}

impl FlameChart {
    /// A chart of a flame graph; `source` is what it is called.
    pub fn of(flame: &Flame, source: &str) -> Self {
        let unit = Unit::of(flame.of);
        let total = flame.of.value(flame.total);
        let boxed = |node: &FlameNode| {
            let value = flame.value(node);
            let own = flame.of.value(node.own);
            let mut hint = format!(
                "{}\n{}, {} of all",
                label(&node.text),
                amount(flame.of, node.weight),
                percent(part(value, total))
            );
            if own > 0 && own < value {
                let _ = write!(hint, "\n{} of it by itself", unit.text(own));
            }
            let tone = if node.is_folded { Tone::Folded } else { Tone::Call(color_number(&node.text)) };
            let (text, is_seam) = (label(&node.text), node.is_folded);
            FlameBox { parent: node.parent, text, hint, value, tone, is_seam }
        };
        Self {
            title: format!("{}: {}", what(flame), label(source)),
            what: what(flame),
            caption: caption(flame),
            total,
            boxes: flame.nodes.iter().map(boxed).collect(),
            unit,
        }
    }

    /// A chart of what changed between two runs at their peaks.
    pub fn of_diff(diff: &Diff) -> Self {
        let roots = diff.nodes.iter().filter(|node| node.parent.is_none());
        let total = roots.fold(0u64, |total, node| total.saturating_add(node.most_bytes));
        let boxed = |node: &DiffNode| {
            let change = floodmark_analyze::diff::change(node.before.bytes, node.after.bytes);
            let tone = tone(node, total);
            let word = word(node, tone);
            let text = label(&node.text);
            let hint = format!(
                "{text}\n{} → {} ({}{})\n{} → {} blocks",
                format_bytes(node.before.bytes),
                format_bytes(node.after.bytes),
                if change == 0 { "no change".to_owned() } else { crate::diff::signed(change) },
                relative(node.before.bytes, node.after.bytes)
                    .map_or_else(String::new, |by| format!(", {by}")),
                format_count(node.before.blocks),
                format_count(node.after.blocks)
            );
            let text = if word.is_empty() { text } else { format!("{word} {text}") };
            let is_seam = node.is_folded;
            FlameBox { parent: node.parent, text, hint, value: node.most_bytes, tone, is_seam }
        };
        Self {
            title: "Held at the peak, by call: what changed".into(),
            what: "Held at the peak".into(),
            caption: "The wider, the more was held at the peak of either run. Red with a solid edge grew, \
                      blue with a dashed edge shrank, gray stayed as it was"
                .into(),
            total,
            boxes: diff.nodes.iter().map(boxed).collect(),
            unit: Unit::Bytes,
        }
    }
}

fn amount(of: FlameOf, weight: Totals) -> String {
    match of {
        FlameOf::Marked | FlameOf::End => {
            format!("{} in {}", format_bytes(weight.bytes), counted(weight.blocks, "block"))
        }
        FlameOf::Allocated => {
            format!("{} in {}", format_bytes(weight.bytes), counted(weight.blocks, "allocation"))
        }
        FlameOf::Count => {
            format!("{} of {}", counted(weight.blocks, "allocation"), format_bytes(weight.bytes))
        }
        FlameOf::Samples => counted(weight.blocks, "sample"),
        FlameOf::Gained => format!("{} in {}", format_bytes(weight.bytes), counted(weight.blocks, "step")),
    }
}

fn what(flame: &Flame) -> String {
    match flame.of {
        FlameOf::Marked if flame.at_ns.is_some() => "Live bytes",
        FlameOf::Marked => "Live at the peak",
        FlameOf::End => "Live at the end",
        FlameOf::Allocated => "Allocated in all",
        FlameOf::Count => "Allocations",
        FlameOf::Samples => "Stack samples of the run",
        FlameOf::Gained => "Resident memory that calls gained",
    }
    .into()
}

fn caption(flame: &Flame) -> String {
    let kinds = match &flame.kinds[..] {
        [] => String::new(),
        kinds => format!(" of {} memory", kinds_in_words(kinds)),
    };
    let at = flame.time_ns.map_or_else(String::new, |time_ns| {
        format!(" at {}", instant_exactly(time_ns, flame.origin_time_ns))
    });
    match flame.of {
        FlameOf::Marked | FlameOf::End => format!("{}{kinds}{at}", amount(flame.of, flame.total)),
        FlameOf::Samples => {
            let mut text = format!("{COUNTS_OF_CALLS}; {}", amount(flame.of, flame.total));
            if flame.waiting_samples > 0 {
                let waiting = counted(flame.waiting_samples, "sample");
                let _ = write!(text, "; {waiting} of waiting threads left out");
            }
            text
        }
        FlameOf::Allocated | FlameOf::Count | FlameOf::Gained => {
            format!("{}{kinds}", amount(flame.of, flame.total))
        }
    }
}

/// Calls of one file or module have one color.
fn color_number(text: &str) -> usize {
    let place = text.rsplit_once(" (").or_else(|| text.rsplit_once(" [")).map_or(text, |(_, place)| place);
    let place = place.rsplit_once(':').map_or(place, |(file, _)| file);
    // FNV: the same on every machine and in every version.
    let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize
}

fn tone(node: &DiffNode, total: u64) -> Tone {
    let (before, after) = (node.before.bytes, node.after.bytes);
    if part(before.abs_diff(after), total) <= SLIGHT {
        return Tone::Change(0.0);
    }
    let share = before.abs_diff(after) as f64 / before.max(after).max(1) as f64;
    Tone::Change(if after > before { share } else { -share })
}

/// What a change is, in one word; so that color is not all that tells.
fn word(node: &DiffNode, tone: Tone) -> String {
    if tone == Tone::Change(0.0) {
        return String::new();
    }
    match (node.before.bytes, node.after.bytes) {
        (0, _) => "new:".into(),
        (_, 0) => "gone:".into(),
        (before, after) => relative(before, after).unwrap_or_default(),
    }
}

/// `+12 %`, `−5 %`; none if there was nothing before, or nothing changed.
pub(crate) fn relative(before: u64, after: u64) -> Option<String> {
    if before == 0 || before == after {
        return None;
    }
    let share = before.abs_diff(after) as f64 / before as f64;
    if after > before && share >= 10.0 {
        return Some(format!("×{}", format_count((after as f64 / before as f64).round() as u64)));
    }
    Some(format!("{}{}", if after > before { "+" } else { "−" }, percent(share)))
}

/// A place with the name of its file alone: `load (app.py:9)` of `load (/home/me/app.py:9)`.
pub(crate) fn without_directories(text: &str) -> String {
    let cut = |open: &str| {
        let (name, place) = text.rsplit_once(open)?;
        let file = place.rsplit('/').next().filter(|file| file.len() < place.len())?;
        Some(format!("{name}{open}{file}"))
    };
    cut(" (").or_else(|| cut(" [")).unwrap_or_else(|| text.to_owned())
}

/// The lines of a hint or title, without anything that acts.
pub(crate) fn inert(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}
