//! Lines of what a command wrote, as many as a page has room for.
//!
//! The first lines and the last ones are kept; what lies between is counted. A line has the time at
//! which its first byte was read. What only moves a terminal's cursor or colors it is left out, and of a
//! line that was written over, as progress bars are, the last state is kept.

use std::collections::{BTreeMap, VecDeque};

use floodmark_analyze::LineRanks;
use floodmark_event::{OutputRow, OutputStream, ProcessId};

/// Lines kept from the beginning and from the end.
const FIRST: usize = 1000;
const LAST: usize = 3000;
/// Characters kept of a line.
const WIDTH: usize = 400;
/// Bytes of a line that are looked at.
const LONGEST: usize = 16 << 10;

/// A line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    /// Nanoseconds since the Unix epoch at which its first byte was read.
    pub time_ns: i64,
    /// Stream it was written to.
    pub stream: OutputStream,
    /// Recorder that read it.
    pub process: ProcessId,
    /// Rank of the job that wrote it, if that is known.
    pub rank: Option<u64>,
    /// Its text, without what moves a cursor or colors it, and without the label of a launcher if `rank` is known.
    pub text: String,
}

/// What a command wrote, by lines.
#[derive(Clone, Debug, Default)]
pub struct OutputLines {
    first: Vec<OutputLine>,
    last: VecDeque<OutputLine>,
    omitted: u64,
    /// Lines that have no end yet, by process and stream.
    open: BTreeMap<(u32, u8), (i64, OutputStream, Vec<u8>)>,
}

impl OutputLines {
    /// Takes in what was read next.
    pub fn add(&mut self, row: &OutputRow) {
        let key = (row.process.0, row.stream as u8);
        let mut pieces = row.bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let is_whole = pieces.peek().is_some();
            if piece.is_empty() && !is_whole {
                break;
            }
            let (_, _, line) = self.open.entry(key).or_insert_with(|| (row.time_ns, row.stream, Vec::new()));
            let room = LONGEST.saturating_sub(line.len());
            line.extend_from_slice(&piece[..piece.len().min(room)]);
            if is_whole && let Some((time_ns, stream, line)) = self.open.remove(&key) {
                self.push(OutputLine {
                    time_ns,
                    stream,
                    process: row.process,
                    rank: None,
                    text: shown(&line),
                });
            }
        }
    }

    /// Nothing more comes: lines without an end are lines too. The rank that wrote each line is found last, because ranks
    /// become known while rows come.
    pub fn finish(&mut self, ranks: &LineRanks) {
        for ((process, _), (time_ns, stream, line)) in std::mem::take(&mut self.open) {
            self.push(OutputLine {
                time_ns,
                stream,
                process: ProcessId(process),
                rank: None,
                text: shown(&line),
            });
        }
        for line in self.first.iter_mut().chain(&mut self.last) {
            if let Some((rank, text)) = ranks.split(line.process.0, &line.text) {
                (line.rank, line.text) = (Some(rank), text.to_owned());
            }
        }
    }

    fn push(&mut self, line: OutputLine) {
        if self.first.len() < FIRST {
            self.first.push(line);
            return;
        }
        self.last.push_back(line);
        if self.last.len() > LAST {
            self.last.pop_front();
            self.omitted += 1;
        }
    }

    /// Returns the kept lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = &OutputLine> {
        self.first.iter().chain(&self.last)
    }

    /// How many lines are left out, and before which of the others.
    pub fn omitted(&self) -> Option<(u64, usize)> {
        (self.omitted > 0).then_some((self.omitted, self.first.len()))
    }
}

/// A line as it looks.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\r');
    let text = text.rsplit('\r').find(|state| !state.trim().is_empty()).unwrap_or("");
    let text = without_escapes(text);
    let mut shown: String = crate::plain(&text).chars().take(WIDTH).collect();
    if text.chars().count() > WIDTH {
        shown.push('…');
    }
    shown
}

/// Leaves sequences out that act on a terminal: those of controls, and those of titles and links.
fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
            Some(']') => while chars.next().is_some_and(|c| c != '\x07' && c != '\x1b') {},
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use floodmark_analyze::LineLabels;

    use super::*;

    fn row(time_ns: i64, stream: OutputStream, text: &str) -> OutputRow {
        OutputRow { time_ns, process: ProcessId(1), stream, bytes: text.into() }
    }

    fn texts(lines: &OutputLines) -> Vec<(i64, &str)> {
        lines.lines().map(|line| (line.time_ns, line.text.as_str())).collect()
    }

    #[test]
    fn pieces_become_lines_with_the_time_of_their_first_byte() {
        let mut lines = OutputLines::default();
        lines.add(&row(1, OutputStream::Stdout, "one\ntw"));
        lines.add(&row(2, OutputStream::Stderr, "oops\n\n"));
        lines.add(&row(3, OutputStream::Stdout, "o\nthree"));
        lines.finish(&LineRanks::default());
        assert_eq!(texts(&lines), [(1, "one"), (2, "oops"), (2, ""), (1, "two"), (3, "three")]);
    }

    #[test]
    fn lines_have_the_rank_of_their_label_or_of_their_recorder() {
        let mut lines = OutputLines::default();
        lines.add(&row(1, OutputStream::Stdout, "[2] step 1\nplain\n"));
        lines.add(&OutputRow { process: ProcessId(9), ..row(2, OutputStream::Stdout, "[2] step 2\n") });
        lines.finish(&LineRanks::new([(9, 4)].into(), LineLabels::of_command("mpiexec -l ./app")));
        let found: Vec<_> = lines.lines().map(|line| (line.rank, line.text.as_str())).collect();
        assert_eq!(found, [(Some(2), "step 1"), (None, "plain"), (Some(4), "[2] step 2")]);
    }

    #[test]
    fn colors_titles_and_states_that_were_written_over_are_left_out() {
        let mut lines = OutputLines::default();
        lines.add(&row(1, OutputStream::Terminal, "\x1b[31mred\x1b[0m \x1b]0;title\x07end\r\n"));
        lines.add(&row(1, OutputStream::Terminal, " 10 %\r 50 %\r100 %\r\n"));
        assert_eq!(texts(&lines), [(1, "red end"), (1, "100 %")]);
    }

    #[test]
    fn too_many_lines_lose_their_middle() {
        let mut lines = OutputLines::default();
        for at in 0..5000 {
            lines.add(&row(at, OutputStream::Stdout, &format!("{at}\n")));
        }
        assert_eq!(lines.omitted(), Some((1000, 1000)));
        let last = lines.lines().last().map(|line| line.text.clone());
        assert_eq!((lines.lines().count(), last.as_deref()), (4000, Some("4999")));
        let long = "x".repeat(100_000);
        lines.add(&row(1, OutputStream::Stdout, &format!("{long}\n")));
        assert_eq!(lines.lines().last().map(|line| line.text.chars().count()), Some(WIDTH + 1));
    }
}
