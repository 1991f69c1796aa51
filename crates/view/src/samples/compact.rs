//! Our own layout of memory over time: the seconds since the start, the total with its unit, a bar, and
//! between the lines what happened at that time.

use std::collections::HashMap;

use floodmark_analyze::LineRanks;
use floodmark_event::units::{NS_PER_S, format_bytes};
use floodmark_event::{LogLevel, LogRow, OutputRow, OutputStream, ProcessId, ScopeAction, ScopeRow, Tables};

use super::{MemoryAt, Separate, shown_lines};
use crate::chart::bar;
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::table::cut;

/// Columns of the time and of the total.
const TIME: usize = 11;
const TOTAL: usize = 11;
/// Columns for the word at the highest total.
const WORD: usize = 6;
/// A line of output without an end is shown when it is this long.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What the layout has to know.
#[derive(Clone, Debug)]
pub struct CompactProps {
    /// What is shown, as in "rss of the job".
    pub title: String,
    /// The highest total; where it is not known bars grow with the highest so far.
    pub highest_bytes: Option<u64>,
    /// Whether to name who reported.
    pub separate: Separate,
    /// Which rank of an MPI job wrote a line of output.
    pub line_ranks: LineRanks,
}

/// Writes lines.
#[derive(Clone, Debug)]
pub struct CompactLayout {
    props: CompactProps,
    start_ns: Option<i64>,
    has_header: bool,
    highest_so_far: u64,
    peak_was_shown: bool,
    scopes: HashMap<u64, String>,
    /// Output without the end of its line, by who wrote it, with the time of its beginning.
    begun: HashMap<(ProcessId, OutputStream), (i64, Vec<u8>)>,
}

impl CompactLayout {
    /// Begins.
    pub fn new(props: CompactProps) -> Self {
        Self {
            props,
            start_ns: None,
            has_header: false,
            highest_so_far: 0,
            peak_was_shown: false,
            scopes: HashMap::new(),
            begun: HashMap::new(),
        }
    }

    /// Says what is shown, where that was not known before.
    pub fn set_title(&mut self, title: String) {
        self.props.title = title;
    }

    /// Takes the time of a row as the start, if it is the first.
    pub fn begin(&mut self, time_ns: i64) {
        self.start_ns.get_or_insert(time_ns);
    }

    fn time(&self, time_ns: i64) -> String {
        let since = time_ns.saturating_sub(self.start_ns.unwrap_or(time_ns));
        let millis = since / (NS_PER_S / 1000);
        let sign = if millis < 0 { '-' } else { '+' };
        let (seconds, millis) = (millis.unsigned_abs() / 1000, millis.unsigned_abs() % 1000);
        // Long runs have no use for milliseconds, and the column no room.
        let text = match seconds {
            0..10_000 => format!("{sign}{seconds}.{millis:03} s"),
            10_000..100_000 => format!("{sign}{seconds}.{:02} s", millis / 10),
            _ => format!("{sign}{seconds} s"),
        };
        format!("{text:>TIME$}")
    }

    /// Writes a line of memory; the titles come before the first.
    pub fn memory(&mut self, memory: &MemoryAt, layout: &Layout) -> String {
        let mut text = Lines::default();
        if !std::mem::replace(&mut self.has_header, true) {
            let titles = format!("{:>TIME$} {:>TOTAL$}  {}", "time", "memory", self.props.title);
            text.styled(layout.palette.faint, cut(&titles, layout.width));
        }
        self.highest_so_far = self.highest_so_far.max(memory.total_bytes);
        let highest = self.props.highest_bytes.unwrap_or(self.highest_so_far);
        let names = match self.props.separate {
            Separate::Yes => {
                let names: Vec<String> = memory
                    .reports
                    .iter()
                    .map(|report| format!("{} {}", plain(&report.name), format_bytes(report.bytes)))
                    .collect();
                format!("  {}", names.join(", "))
            }
            Separate::No => String::new(),
        };
        let room = layout.width.saturating_sub(TIME + TOTAL + 3 + WORD);
        let room = if names.is_empty() { room } else { room / 2 };
        let drawn = bar(memory.total_bytes.min(highest), highest, room);
        let is_peak = self.props.highest_bytes == Some(memory.total_bytes) && memory.total_bytes > 0;
        let word = if is_peak && !std::mem::replace(&mut self.peak_was_shown, true) { " peak" } else { "" };
        let drawn_len = drawn.chars().count() + word.len();
        let blanks = " ".repeat(if names.is_empty() { 0 } else { room + WORD - drawn_len });
        let left = layout.width.saturating_sub(TIME + TOTAL + 3 + room + WORD);
        text.line(
            format!(
                "{} {:>TOTAL$}  {}{}{blanks}{}",
                self.time(memory.time_ns),
                format_bytes(memory.total_bytes),
                styled(layout.palette.bar, drawn),
                styled(layout.palette.figure, word),
                cut(&names, left),
            )
            .trim_end(),
        );
        text.text()
    }

    /// Writes what happened to a scope, or a mark.
    pub fn scope(&mut self, row: &ScopeRow, tables: &Tables, layout: &Layout) -> String {
        let name = || plain(tables.string(row.name)).into_owned();
        let (sign, name) = match row.action {
            ScopeAction::Mark => ("•", name()),
            ScopeAction::Enter | ScopeAction::Begin => {
                self.scopes.insert(row.scope, name());
                ("▸", name())
            }
            // One that was entered before the recording has no name here.
            ScopeAction::Exit | ScopeAction::End => ("◂", self.scopes.remove(&row.scope).unwrap_or_default()),
        };
        let line = format!("{} {:>TOTAL$}  {name}", self.time(row.time_ns), sign);
        let mut text = Lines::default();
        text.styled(layout.palette.title, cut(&line, layout.width));
        text.text()
    }

    /// Learns that a recorder reads the output of one rank.
    pub fn learn_rank(&mut self, recorder: u32, rank: u64) {
        self.props.line_ranks.learn(recorder, rank);
    }

    /// Writes the lines of output that are complete now.
    pub fn output(&mut self, row: &OutputRow, layout: &Layout) -> String {
        let key = (row.process, row.stream);
        let (start_ns, mut bytes) = self.begun.remove(&key).unwrap_or((row.time_ns, Vec::new()));
        bytes.extend_from_slice(&row.bytes);
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = if bytes.len() - whole > LINE_BYTES_MAX { bytes.len() } else { whole };
        let rest = bytes.split_off(whole);
        if !rest.is_empty() {
            let time_ns = if bytes.is_empty() { start_ns } else { row.time_ns };
            self.begun.insert(key, (time_ns, rest));
        }
        self.output_lines(start_ns, key, &bytes, layout)
    }

    fn output_lines(
        &self,
        time_ns: i64,
        (process, stream): (ProcessId, OutputStream),
        bytes: &[u8],
        layout: &Layout,
    ) -> String {
        let style =
            if stream == OutputStream::Stderr { layout.palette.doubtful } else { layout.palette.faint };
        let mut text = Lines::default();
        for line in shown_lines(bytes) {
            let line = match self.props.line_ranks.split(process.0, &line) {
                Some((rank, line)) => format!("rank {rank}: {line}"),
                None => line,
            };
            let line = format!("{} {:>TOTAL$}  {line}", self.time(time_ns), stream.name());
            text.styled(style, cut(&line, layout.width));
        }
        text.text()
    }

    /// Writes a stack.
    pub fn stack(&self, time_ns: i64, whose: &str, lines: &[String], layout: &Layout) -> String {
        let mut text = Lines::default();
        let head = format!("{} {:>TOTAL$}  {}", self.time(time_ns), "stack", plain(whose));
        text.styled(layout.palette.faint, cut(&head, layout.width));
        for line in lines {
            let line = format!("{:>1$}  {line}", "", TIME + TOTAL + 1);
            text.styled(layout.palette.faint, cut(&line, layout.width));
        }
        text.text()
    }

    /// Writes a message; those that matter stand out.
    pub fn log(&self, row: &LogRow, tables: &Tables, layout: &Layout) -> String {
        let style = match row.level {
            LogLevel::Error | LogLevel::Warning => layout.palette.doubtful,
            _ => layout.palette.faint,
        };
        let source = plain(tables.string(row.source));
        let source = if source.is_empty() { String::new() } else { format!("{source}: ") };
        let mut text = Lines::default();
        let line =
            format!("{} {:>TOTAL$}  {source}{}", self.time(row.time_ns), row.level.name(), plain(&row.text));
        text.styled(style, cut(&line, layout.width));
        text.text()
    }

    /// Writes output whose last line has no end.
    pub fn finish(&mut self, layout: &Layout) -> String {
        let mut begun: Vec<_> = self.begun.drain().collect();
        begun.sort_by_key(|(key, (time_ns, _))| (*time_ns, *key));
        let lines =
            begun.into_iter().map(|(key, (time_ns, bytes))| self.output_lines(time_ns, key, &bytes, layout));
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Reported;

    fn compact(highest_bytes: Option<u64>, separate: Separate) -> CompactLayout {
        let (title, line_ranks) = ("rss of the job".into(), LineRanks::default());
        CompactLayout::new(CompactProps { title, highest_bytes, separate, line_ranks })
    }

    fn memory(ms: i64, mib: u64) -> MemoryAt {
        let reports = vec![Reported { name: "no\x1bde".into(), bytes: mib << 20 }];
        MemoryAt { time_ns: ms * 1_000_000, total_bytes: mib << 20, reports }
    }

    #[test]
    fn lines_show_time_total_bar_and_peak() {
        let layout = Layout { width: 59, ..Layout::default() };
        let mut lines = compact(Some(8 << 20), Separate::No);
        lines.begin(500_000_000);
        assert_eq!(
            lines.memory(&memory(750, 4), &layout),
            "       time      memory  rss of the job\n   +0.250 s    4.00 MiB  ██████████████\n"
        );
        assert_eq!(
            lines.memory(&memory(1500, 8), &layout),
            "   +1.000 s    8.00 MiB  ████████████████████████████ peak\n"
        );
        assert!(!lines.memory(&memory(1600, 8), &layout).contains("peak"), "the first one is");
        assert_eq!(lines.memory(&memory(1700, 0), &layout), "   +1.200 s         0 B\n");
        assert_eq!(lines.memory(&memory(22_878_145, 0), &layout), "+22877.64 s         0 B\n");
        assert_eq!(lines.memory(&memory(222_878_145, 0), &layout), "  +222877 s         0 B\n");
    }

    #[test]
    fn bars_grow_with_the_highest_so_far_and_reports_are_named() {
        let layout = Layout { width: 60, ..Layout::default() };
        let mut lines = compact(None, Separate::Yes);
        lines.begin(0);
        let text = lines.memory(&memory(0, 4), &layout);
        assert!(text.ends_with("    4.00 MiB  ██████████████        node 4.00 MiB\n"), "{text}");
        assert!(lines.memory(&memory(1, 8), &layout).contains("██████████████        node"));
        assert!(lines.memory(&memory(2, 4), &layout).contains("  ███████               node"));
    }

    #[test]
    fn output_is_shown_line_by_line_however_it_was_read() {
        let layout = Layout { width: 60, ..Layout::default() };
        let mut lines = compact(None, Separate::No);
        lines.begin(0);
        let row = |ms: i64, stream, bytes: &[u8]| OutputRow {
            time_ns: ms * 1_000_000,
            process: ProcessId(1),
            stream,
            bytes: bytes.to_vec(),
        };
        assert_eq!(lines.output(&row(1, OutputStream::Stdout, b"ste"), &layout), "");
        assert_eq!(
            lines.output(&row(2, OutputStream::Stderr, b"warn\x1b[2J\n"), &layout),
            "   +0.002 s      stderr  warn[2J\n"
        );
        assert_eq!(
            lines.output(&row(3, OutputStream::Stdout, b"p 1\nst"), &layout),
            "   +0.001 s      stdout  step 1\n"
        );
        assert_eq!(lines.finish(&layout), "   +0.003 s      stdout  st\n");
        assert_eq!(lines.finish(&layout), "");
    }

    #[test]
    fn output_of_ranks_names_the_rank_that_wrote_each_line() {
        use floodmark_analyze::LineLabels;
        let layout = Layout { width: 60, ..Layout::default() };
        let mut lines = compact(None, Separate::No);
        lines.props.line_ranks = LineRanks::new([].into(), LineLabels::of_command("srun -l ./app"));
        lines.begin(0);
        let row = |process, bytes: &[u8]| OutputRow {
            time_ns: 1_000_000,
            process: ProcessId(process),
            stream: OutputStream::Stdout,
            bytes: bytes.to_vec(),
        };
        assert_eq!(
            lines.output(&row(1, b"0: a\n12: b\nnote\n"), &layout),
            "   +0.001 s      stdout  rank 0: a\n   +0.001 s      stdout  rank 12: b\n   +0.001 s      stdout  note\n"
        );
        // A recorder that wraps one rank reads that one's output.
        lines.learn_rank(7, 3);
        assert_eq!(lines.output(&row(7, b"x\n"), &layout), "   +0.001 s      stdout  rank 3: x\n");
    }

    #[test]
    fn scopes_keep_their_names_until_they_are_left() {
        let layout = Layout { width: 60, ..Layout::default() };
        let mut tables = Tables::default();
        let name = tables.intern("load\n\x1b");
        let row = |action, scope, name| ScopeRow {
            time_ns: 0,
            process: ProcessId(1),
            thread: 0,
            action,
            scope,
            parent: 0,
            name,
        };
        let none = floodmark_event::StringId(0);
        let mut lines = compact(None, Separate::No);
        lines.begin(0);
        let mut text = String::new();
        for row in [
            row(ScopeAction::Enter, 7, name),
            row(ScopeAction::Exit, 7, none),
            row(ScopeAction::Mark, 0, name),
        ] {
            text += &lines.scope(&row, &tables, &layout);
        }
        let shown: Vec<&str> =
            text.lines().map(|line| line.trim_start_matches("   +0.000 s").trim()).collect();
        assert_eq!(shown, ["▸  load", "◂  load", "•  load"]);
    }
}
