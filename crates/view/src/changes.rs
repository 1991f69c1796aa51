//! What was done to a trace: imported, repaired.

use floodmark_event::units::{format_bytes, format_count};
use floodmark_inspect::import::Imported;

use crate::figures::counted;
use crate::layout::{Layout, Lines};
use crate::plain::plain;
use crate::report::View;
use crate::table::{wrap, wrap_after};

impl View for Imported {
    const SCHEMA: &'static str = "floodmark.import/1";

    fn body(&self, layout: &Layout) -> String {
        let of_bytes = self.bytes_in.map_or_else(String::new, |bytes| format!(" ({})", format_bytes(bytes)));
        let calls = format!("{} calls and returns", format_count(self.calls));
        let counts = [
            (self.events, counted(self.events, "event")),
            (self.samples, counted(self.samples, "sample")),
            (self.calls, calls),
        ];
        let known: Vec<String> =
            counts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        let what = if known.is_empty() { counted(0, "event") } else { known.join(" and ") };
        let sentence = format!(
            "imported {}{of_bytes} into {} ({}{})",
            what,
            plain(&self.trace),
            format_bytes(self.bytes_out),
            self.bytes_in.map_or_else(String::new, |bytes_in| times(bytes_in, self.bytes_out)),
        );
        wrap(&sentence, layout.width, 2) + "\n"
    }
}

/// `, 15.2 times smaller`, or nothing where that is no news.
fn times(before: u64, after: u64) -> String {
    let factor = before as f64 / after.max(1) as f64;
    if factor < 1.05 { String::new() } else { format!(", {factor:.1} times smaller") }
}

/// What became of a trace that was repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Repaired {
    /// Events that can be read now.
    pub events: u64,
    /// Events that were saved from the live tail.
    pub recovered_events: u64,
    /// Events in parts that could not be read.
    pub lost_events: u64,
    /// Whether the manifest was damaged and was made anew.
    pub manifest_rebuilt: bool,
    /// Parts that could not be read.
    pub set_aside: Vec<SetAside>,
}

/// A part that could not be read and was renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SetAside {
    /// Where it is now.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

impl View for Repaired {
    const SCHEMA: &'static str = "floodmark.repair/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let mut line = |sentence: String| text.line(wrap(&sentence, layout.width, 2));
        let sound = self.recovered_events == 0 && self.set_aside.is_empty() && !self.manifest_rebuilt;
        if sound {
            line(format!("Sound: nothing to repair, {}", counted(self.events, "event")));
        } else {
            line(format!("Repaired: {} can be read", counted(self.events, "event")));
        }
        if self.recovered_events > 0 {
            line(format!("{} saved from the live tail", format_count(self.recovered_events)));
        }
        if self.manifest_rebuilt {
            line("the manifest was damaged and was made anew from the parts".into());
        }
        if !self.set_aside.is_empty() {
            line(format!(
                "{} lost in parts that could not be read, set aside as",
                counted(self.lost_events, "event")
            ));
        }
        for SetAside { file, reason } in &self.set_aside {
            text.line(wrap_after("  ", 4, &format!("{}: {}", plain(file), plain(reason)), layout.width));
        }
        text.text()
    }
}
