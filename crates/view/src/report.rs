//! Answers as text and as JSON.

use std::fmt::Write as _;

use floodmark_analyze::{Caveats, KindSummary, UsageSeries};
use floodmark_event::Kind;
use floodmark_event::text::is_active;
use floodmark_event::units::format_bytes;
use floodmark_inspect::{Answer, Loss};
use serde::ser::{Serialize, Serializer};

use crate::figures::counted;
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::table::{cut, wrap_after};

/// A result that can be shown.
pub trait View: serde::Serialize {
    /// Name and version of its JSON form. The version rises when a key changes its meaning or goes.
    const SCHEMA: &'static str;

    /// Lays it out as text, every line ended.
    fn body(&self, layout: &Layout) -> String;

    /// Kinds of memory that the figures do not cover.
    fn others(&self) -> Vec<OtherKind> {
        Vec::new()
    }
}

/// A kind of memory that the figures of a report do not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind {
    /// The kind.
    pub kind: Kind,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// Live bytes at the end.
    pub live_bytes: u64,
}

impl From<&KindSummary> for OtherKind {
    fn from(summary: &KindSummary) -> Self {
        Self { kind: summary.kind, peak_bytes: summary.peak_bytes, live_bytes: summary.live_bytes }
    }
}

impl From<&UsageSeries> for OtherKind {
    fn from(series: &UsageSeries) -> Self {
        Self { kind: series.kind, peak_bytes: series.peak_bytes, live_bytes: series.live_bytes }
    }
}

/// Lays answers out as text.
pub trait AnswerText {
    /// Returns the name of the source, the result and the notes.
    fn text(&self, layout: &Layout) -> String;
}

impl<T: View> AnswerText for Answer<T> {
    fn text(&self, layout: &Layout) -> String {
        let name = if self.source == "-" { "standard input" } else { &self.source };
        let name = cut(&plain(name), layout.width);
        let mut text = Lines::default();
        text.styled(layout.palette.title, name);
        text.block(self.result.body(layout));
        let notes = notes(self, layout);
        if !notes.is_empty() {
            text.blank();
            text.block(notes);
        }
        text.text()
    }
}

fn notes<T: View>(answer: &Answer<T>, layout: &Layout) -> String {
    let mut notes = Vec::new();
    for other in answer.result.others() {
        let kind = other.kind.name();
        notes.push(format!(
            "{kind} memory is not included: peak {}, {} live at the end (--kind {kind} shows it)",
            format_bytes(other.peak_bytes),
            format_bytes(other.live_bytes),
        ));
    }
    notes.extend(caveat_sentences(&answer.caveats));
    notes.extend(answer.losses.iter().map(loss_sentence));
    let label = styled(layout.palette.doubtful, "note:");
    let lead = format!("{label} ");
    notes.iter().map(|note| wrap_after(&lead, 6, note, layout.width) + "\n").collect()
}

/// Returns what is missing, as a sentence without its period and without characters that act on a terminal.
pub fn loss_sentence(loss: &Loss) -> String {
    plain(&loss.sentence()).into_owned()
}

/// Describes what makes figures less certain, in sentences without their periods.
pub fn caveat_sentences(caveats: &Caveats) -> Vec<String> {
    let mut notes = Vec::new();
    if caveats.events_selected == 0 && caveats.events_read > 0 {
        notes.push(format!(
            "none of {} is selected; check --device, --process, --thread, --stream, --kind, --from and --to",
            counted(caveats.events_read, "event"),
        ));
    }
    if caveats.unmatched_frees > 0 {
        let blocks = if caveats.unmatched_frees == 1 { "a block" } else { "blocks" };
        notes.push(format!(
            "{} of {blocks} never seen allocated ({} at least); recording may have begun later",
            counted(caveats.unmatched_frees, "free"),
            format_bytes(caveats.unmatched_free_bytes)
        ));
    }
    if caveats.size_mismatches > 0 {
        notes.push(format!(
            "{} stated another size than the allocation; that of the allocation counts",
            counted(caveats.size_mismatches, "free"),
        ));
    }
    if caveats.replaced_blocks > 0 {
        notes.push(format!(
            "{} ended unseen: the same address was allocated again; frees are missing",
            counted(caveats.replaced_blocks, "block"),
        ));
    }
    if caveats.sums_saturated {
        notes.push("the bytes add up to more than 2^64, so totals, peak and live bytes are not exact".into());
    }
    notes
}

/// What is common to all JSON documents: one report is flat, several are a list.
struct Document<'a, T>(&'a [Answer<T>]);

#[derive(serde::Serialize)]
struct One<'a, R> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a R,
}

#[derive(serde::Serialize)]
struct Many<'a, R> {
    schema: &'static str,
    inputs: &'a [R],
}

impl<T: View> Serialize for Document<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [report] => One { schema: T::SCHEMA, report }.serialize(serializer),
            inputs => Many { schema: T::SCHEMA, inputs }.serialize(serializer),
        }
    }
}

/// Writes reports as a JSON document, its last line ended.
///
/// # Panics
/// Never: reports have string keys and serialize without failing.
pub fn document<T: View>(reports: &[Answer<T>]) -> String {
    let text = serde_json::to_string_pretty(&Document(reports)).expect("keys are strings");
    inert(text) + "\n"
}

/// Writes any value as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    inert(serde_json::to_string(value).expect("keys are strings")) + "\n"
}

/// Escapes characters that JSON allows but that act on a terminal. They occur in strings only, so
/// the value stays the same.
fn inert(json: String) -> String {
    if json.chars().all(|c| c == '\n' || !is_active(c)) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_active(c) {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize)]
    struct Named {
        name: &'static str,
    }

    impl View for Named {
        const SCHEMA: &'static str = "floodmark.named/1";

        fn body(&self, _layout: &Layout) -> String {
            format!("{}\n", plain(self.name))
        }
    }

    fn report(name: &'static str) -> Answer<Named> {
        Answer {
            source: "a.csv".into(),
            losses: Vec::new(),
            caveats: Caveats::default(),
            result: Named { name },
        }
    }

    #[test]
    fn one_report_is_flat_and_several_are_a_list() {
        let one: serde_json::Value = serde_json::from_str(&document(&[report("x")])).unwrap();
        assert_eq!((&one["schema"], &one["name"]), (&"floodmark.named/1".into(), &"x".into()));
        let two: serde_json::Value = serde_json::from_str(&document(&[report("x"), report("y")])).unwrap();
        assert_eq!(two["schema"], "floodmark.named/1");
        assert_eq!(two["inputs"][1]["name"], "y");
        let none: serde_json::Value = serde_json::from_str(&document::<Named>(&[])).unwrap();
        assert_eq!(none["inputs"], serde_json::json!([]));
    }

    #[test]
    fn json_shows_active_characters_escaped_and_keeps_their_value() {
        let name = "\u{1b}[31m\u{9b}\u{202e}\u{e0041}\u{7f}ü";
        let text = document(&[report(name)]);
        assert!(text.chars().all(|c| c == '\n' || !is_active(c)), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["name"], name);
    }

    #[test]
    fn notes_follow_the_report_and_fit_the_width() {
        let mut report = report("x");
        report.losses.push(Loss::loss(2, "lines that\nare not rows"));
        report.losses.push(Loss::loss(0, "the end is cut off"));
        report.caveats = Caveats {
            events_read: 9,
            events_selected: 9,
            unmatched_frees: 1,
            unmatched_free_bytes: 64,
            size_mismatches: 2,
            replaced_blocks: 1,
            sums_saturated: true,
        };
        let text = report.text(&Layout { width: 200, ..Layout::default() });
        assert_eq!(
            text,
            "a.csv\nx\n\n\
             note: 1 free of a block never seen allocated (64 B at least); recording may have begun later\n\
             note: 2 frees stated another size than the allocation; that of the allocation counts\n\
             note: 1 block ended unseen: the same address was allocated again; frees are missing\n\
             note: the bytes add up to more than 2^64, so totals, peak and live bytes are not exact\n\
             note: 2 were lost: lines that are not rows\n\
             note: an unknown number was lost: the end is cut off\n"
        );
        let narrow = report.text(&Layout { width: 30, ..Layout::default() });
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
    }
}
