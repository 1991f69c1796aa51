//! Logs of `pymemtrace` (`cPyMemTrace`): calls of functions with the resident memory at each.
//!
//! | row | in a trace |
//! |---|---|
//! | `CALL`, `RETURN`, `C_CALL`, `C_RETURN`, `C_EXCEPT` | a call row with the function, the line and the resident bytes |
//! | `LINE`, `EXCEPT`, `OPCODE` | the function is left and resumed, so that a change belongs to it |
//! | `FRST`, `LAST` | the function around the traced block begins and ends |
//! | `MSG` | a mark |
//!
//! There are three layouts. The first has no prefixes and no distance to the previous event; the second has `NEXT`
//! and `PREV` rows and a `#` before the line; the third has no `#`. `PREV` rows of the third repeat an earlier row, so a row
//! counts only if its number is higher than the last one. Where numbers are missing, a row without a function says so.
//!
//! Times are seconds of processor time. They count from the date and time in the name of the log, else from midnight of
//! [`OpenProps::date`]. The log does not say which thread it is about; its name does in the newest version.

mod logs;
mod write;

use std::io::Read;
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::units::{Date, NS_PER_DAY};
use floodmark_event::{CallAction, CallRow, Row, ScopeAction, ScopeRow, StringId};
use floodmark_store::RowSource;

use crate::OpenProps;
use crate::numbers::float_seconds_ns;
use crate::quote::quoted;
use crate::records::{Lines, LogReader, Out, ParseLine};

pub use logs::CallLogs;
pub use write::CallText;

/// Opens a log; `path` is what messages call it.
pub fn open<'a>(input: impl Read + Send + 'a, path: &Path, props: &OpenProps) -> Box<dyn RowSource + 'a> {
    Box::new(reader(input, path, props))
}

pub(crate) fn reader<R: Read>(input: R, path: &Path, props: &OpenProps) -> LogReader<R, Lines<Format>> {
    let days = props.date.map_or(0, Date::epoch_days);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let start_ns = start_of(&name).or_else(|| days.checked_mul(NS_PER_DAY)).unwrap_or(0);
    let format =
        Format { start_ns, thread: thread_of(&name), last_event: None, is_begun: false, message: None };
    LogReader::new(input, Lines::of(format), path, props)
}

/// Whether the beginning of a file is a log. Messages of the program may come before the first row.
pub(crate) fn begins_log(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().take(50);
    lines.any(|line| is_header(line) || (line.len() > 100 && parse(line).is_ok_and(|row| row.is_some())))
}

/// Whether the beginning of a file is a log of `ReferenceTracing`, which has no calls and so is not read.
pub(crate) fn begins_reference_log(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    text.lines().take(50).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.starts_with(&["HDR:", "Clock", "Address", "LiveCnt", "Type"])
    })
}

fn is_header(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let words = match words.first() {
        Some(&("HDR:" | "HEDR:")) => &words[1..],
        _ => &words[..],
    };
    words.first() == Some(&"Event")
        && ["Clock", "What", "File", "Function", "RSS"].iter().all(|word| words.contains(word))
}

/// The time in a name such as `20241107_195847_0_62264_P_0_PY3.13.0.log`.
fn start_of(name: &str) -> Option<i64> {
    let (date, rest) = name.split_once('_')?;
    let clock = rest.get(..6)?;
    let number = |text: &str| text.parse::<u32>().ok();
    if date.len() != 8 || !rest[6..].starts_with(['_', '.']) {
        return None;
    }
    let (month, day) = (number(date.get(4..6)?)?, number(date.get(6..)?)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = Date { year: i64::from(number(date.get(..4)?)?), month, day }.epoch_days();
    let seconds = number(clock.get(..2)?)? * 3600 + number(clock.get(2..4)?)? * 60 + number(clock.get(4..)?)?;
    days.checked_mul(NS_PER_DAY)?.checked_add(i64::from(seconds) * 1_000_000_000)
}

/// The thread in a name of the newest version: the fifth field, if the one after it is the sort of tracer.
fn thread_of(name: &str) -> u64 {
    let fields: Vec<&str> = name.split('_').collect();
    match fields[..] {
        [_, _, _, _, thread, "P" | "T" | "O", ..] => thread.parse().unwrap_or(0),
        _ => 0,
    }
}

/// What a row says.
#[derive(Debug, PartialEq)]
enum Parsed<'a> {
    /// Something was called or ended.
    Event {
        prefix: &'a str,
        number: u64,
        clock_ns: i64,
        what: &'a str,
        file: &'a str,
        line: u32,
        function: &'a str,
        rss_bytes: u64,
    },
    /// A message of the program.
    Message { clock_ns: i64, text: &'a str },
}

/// Bytes of a message of several lines that are kept.
const MAX_MESSAGE: usize = 4096;

const PREFIXES: [&str; 5] = ["FRST", "NEXT", "PREV", "LAST", "MSG"];

/// Takes the next word off the beginning of a text.
fn word<'a>(text: &mut &'a str) -> &'a str {
    let trimmed = text.trim_start();
    let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
    let (word, rest) = trimmed.split_at(end);
    *text = rest;
    word
}

/// Takes the last word off the end of a text.
fn last_word<'a>(text: &mut &'a str) -> &'a str {
    let trimmed = text.trim_end();
    let (rest, word) = trimmed.rsplit_once(char::is_whitespace).unwrap_or(("", trimmed));
    *text = rest;
    word
}

/// Parses a line; none for those that say nothing.
fn parse(line: &str) -> Result<Option<Parsed<'_>>, String> {
    let mut rest = line;
    let mut first = word(&mut rest);
    let prefix = first.strip_suffix(':').filter(|prefix| PREFIXES.contains(prefix)).unwrap_or("");
    if !prefix.is_empty() {
        first = word(&mut rest);
    }
    let bad = |what: &str, text: &str| format!("{} is no {what}", quoted(text.as_bytes()));
    let number = first.parse::<u64>().map_err(|_| bad("number of an event", first))?;
    let mut clock = word(&mut rest);
    if let Some(distance) = clock.strip_prefix('+') {
        distance.parse::<u64>().map_err(|_| bad("distance to the previous event", distance))?;
        clock = word(&mut rest);
    }
    let clock_ns = float_seconds_ns(clock).ok_or_else(|| bad("time", clock))?;
    if prefix == "MSG" {
        let text = rest.trim_start().strip_prefix('#').unwrap_or(rest).trim();
        return Ok(Some(Parsed::Message { clock_ns, text }));
    }
    let what = word(&mut rest);
    let change = last_word(&mut rest);
    change.parse::<i64>().map_err(|_| bad("change of memory", change))?;
    let rss = last_word(&mut rest);
    let rss_bytes = rss.parse::<u64>().map_err(|_| bad("resident memory", rss))?;
    let function = last_word(&mut rest);
    let trimmed = rest.trim_end();
    let file = trimmed.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &trimmed[file.len()..];
    let line = digits.parse::<u32>().map_err(|_| bad("line", trimmed))?;
    let file = file.trim_end();
    let file = file.strip_suffix('#').unwrap_or(file).trim();
    if function.is_empty() || !what.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') {
        return Err(bad("row of a call", line_start(what)));
    }
    Ok(Some(Parsed::Event { prefix, number, clock_ns, what, file, line, function, rss_bytes }))
}

fn line_start(text: &str) -> &str {
    text.get(..40).unwrap_or(text)
}

/// Parses lines.
#[derive(Debug)]
pub(crate) struct Format {
    start_ns: i64,
    thread: u64,
    last_event: Option<u64>,
    is_begun: bool,
    /// Time and text of the last row if it was a message, which goes on where no row begins.
    message: Option<(i64, String)>,
}

impl ParseLine for Format {
    fn line(&mut self, line: &str, out: &mut Out) -> Result<(), String> {
        if is_header(line) || line.trim() == "SOF" {
            self.is_begun = true;
            return Ok(());
        }
        if matches!(line.trim(), "" | "EOF" | "...") {
            return Ok(());
        }
        let parsed = match parse(line) {
            Ok(Some(parsed)) => parsed,
            // Messages of the program stand before the header, and the newest version repeats a part of one as PREV.
            Err(_) if !self.is_begun || line.starts_with("PREV:") => return Ok(()),
            // A message may have several lines.
            Err(error) => {
                let Some((_, text)) = &mut self.message else { return Err(error) };
                if text.len() + line.len() < MAX_MESSAGE {
                    text.push('\n');
                    text.push_str(line);
                }
                return Ok(());
            }
            Ok(None) => return Ok(()),
        };
        self.is_begun = true;
        self.push_message(out);
        match parsed {
            Parsed::Message { clock_ns, text } => {
                self.message = Some((clock_ns, text.to_owned()));
                Ok(())
            }
            Parsed::Event { prefix, number, clock_ns, what, file, line, function, rss_bytes } => {
                let actions = actions(prefix, what)
                    .ok_or_else(|| format!("{} is no action of the tracer", quoted(what.as_bytes())))?;
                // Numbers begin anew with the block's own first row, which is number 0 as the one around it.
                if let Some(last) = self.last_event.filter(|_| prefix != "FRST" && prefix != "LAST") {
                    if prefix == "PREV" && number <= last {
                        return Ok(());
                    }
                    if number > last.saturating_add(1) {
                        self.push(out, clock_ns, CallAction::Return, 0, 0, None);
                    }
                }
                self.last_event = Some(number);
                let frame = Frame {
                    function: out.tables.intern(function),
                    file: if file.is_empty() { StringId(0) } else { out.tables.intern(file) },
                    ..Frame::default()
                };
                let code = out.tables.intern_frame(frame);
                for action in actions {
                    self.push(out, clock_ns, *action, code, line, Some(rss_bytes));
                }
                Ok(())
            }
        }
    }

    fn end(&mut self, out: &mut Out) {
        self.push_message(out);
    }
}

impl Format {
    /// Makes a mark of a message whose last line was read.
    fn push_message(&mut self, out: &mut Out) {
        let Some((clock_ns, text)) = self.message.take() else { return };
        let name = out.tables.intern(&text);
        let time_ns = self.start_ns.saturating_add(clock_ns);
        let (process, thread) = (out.process, self.thread);
        let action = ScopeAction::Mark;
        out.rows.push(Row::Scope(ScopeRow { time_ns, process, thread, action, scope: 0, parent: 0, name }));
    }

    fn push(
        &self,
        out: &mut Out,
        clock_ns: i64,
        action: CallAction,
        code: u32,
        line: u32,
        rss_bytes: Option<u64>,
    ) {
        let time_ns = self.start_ns.saturating_add(clock_ns) / 1000 * 1000;
        let (process, thread) = (out.process, self.thread);
        out.rows.push(Row::Call(CallRow { time_ns, process, thread, action, code, line, rss_bytes }));
    }
}

/// What a row stands for.
fn actions(prefix: &str, what: &str) -> Option<&'static [CallAction]> {
    use CallAction::{CCall, CException, CReturn, Call, Resume, Return, Yield};
    Some(match (prefix, what) {
        ("FRST", _) => &[Resume],
        ("LAST", _) => &[Yield],
        (_, "CALL") => &[Call],
        (_, "RETURN") => &[Return],
        (_, "C_CALL") => &[CCall],
        (_, "C_RETURN") => &[CReturn],
        (_, "C_EXCEPT") => &[CException],
        (_, "LINE" | "EXCEPT" | "OPCODE") => &[Yield, Resume],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(CallAction, String, u32, Option<u64>)> {
        let mut source = open(text.as_bytes(), Path::new("a.log"), &OpenProps::default());
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        while source.next(&mut rows).expect("readable") {
            for row in &rows {
                if let Row::Call(row) = row {
                    let frame = source.tables().frame(row.code);
                    let name = format!(
                        "{}|{}",
                        source.tables().string(frame.file),
                        source.tables().string(frame.function)
                    );
                    all.push((row.action, name, row.line, row.rss_bytes));
                }
            }
        }
        all
    }

    #[test]
    fn the_three_layouts_read_alike() {
        let expected = [
            (CallAction::Call, "a b/x.py|helper".to_owned(), 238, Some(41_041_920)),
            (CallAction::CCall, "__init__.py|next".to_owned(), 2080, Some(41_041_920)),
            (CallAction::CReturn, "__init__.py|next".to_owned(), 2080, Some(41_046_016)),
        ];
        let first = "0 0.630983     CALL     a b/x.py        # 238 helper   41041920     41041920\n\
                     1 0.631218     C_CALL   __init__.py#2080 next   41041920     0\n\
                     2 0.631308     C_RETURN __init__.py#2080 next   41046016     4096\n";
        let second = "NEXT: 0 +0 0.630983     CALL     a b/x.py        # 238 helper   41041920     41041920\n\
                      PREV: 1 +1 0.631218     C_CALL   __init__.py#2080 next   41041920     0\n\
                      NEXT: 2 +2 0.631308     C_RETURN __init__.py#2080 next   41046016     4096\n";
        let third = "a message\nSOF\nHDR: Event dEvent Clock What File Line Function RSS dRSS\n\
                     NEXT: 0 +1 0.630983     CALL     a b/x.py         238 helper   41041920     41041920\n\
                     NEXT: 1 +1 0.631218     C_CALL   __init__.py     2080 next   41041920     0\n\
                     PREV: 1 +1 0.631218     C_CALL   __init__.py     2080 next   41041920     0\n\
                     NEXT: 2 +1 0.631308     C_RETURN __init__.py     2080 next   41046016     4096\nEOF\n";
        for text in [first, second, third] {
            assert_eq!(rows(text), expected, "{text}");
        }
    }

    #[test]
    fn missing_numbers_and_lines_of_code_are_said() {
        let text = "SOF\nFRST: 0 +0 0.1 LINE m.py 3 main 1000 1000\n\
                    NEXT: 1 +1 0.2 LINE m.py 4 main 2000 1000\n\
                    NEXT: 9 +8 0.3 CALL m.py 10 f 3000 1000\n\
                    MSG:  9 +0 0.3 # half way\n\
                    LAST: 12 +3 0.4 LINE m.py 5 main 3000 0\nEOF\n";
        let found: Vec<_> = rows(text).into_iter().map(|(action, name, ..)| (action, name)).collect();
        let main = || "m.py|main".to_owned();
        assert_eq!(
            found,
            [
                (CallAction::Resume, main()),
                (CallAction::Yield, main()),
                (CallAction::Resume, main()),
                (CallAction::Return, "|".to_owned()),
                (CallAction::Call, "m.py|f".to_owned()),
                (CallAction::Yield, main()),
            ]
        );
    }

    #[test]
    fn messages_of_several_lines_are_marks() {
        let text = "SOF\nNEXT: 1 +1 0.2 CALL m.py 4 main 2000 2000\nMSG:  1 +0 0.3 # half\nway, at\nNEXT: or so\n\
                    NEXT: 2 +1 0.4 RETURN m.py 4 main 2000 0\nEOF\n";
        let mut source = open(text.as_bytes(), Path::new("a.log"), &OpenProps::default());
        let (mut marks, mut calls, mut rows) = (Vec::new(), 0, Vec::new());
        while source.next(&mut rows).expect("readable") {
            for row in &rows {
                match row {
                    Row::Scope(row) => marks.push(source.tables().string(row.name).to_owned()),
                    _ => calls += 1,
                }
            }
        }
        assert_eq!((marks, calls), (vec!["half\nway, at\nNEXT: or so".to_owned()], 2));
        // Without a message before it, such a line is an error.
        let text = text.replace("MSG:  1 +0 0.3 # half\n", "");
        let mut source = open(text.as_bytes(), Path::new("a.log"), &OpenProps::default());
        let failed = std::iter::repeat_with(|| source.next(&mut rows)).find(|read| !matches!(read, Ok(true)));
        assert!(matches!(failed, Some(Err(_))));
    }

    #[test]
    fn spaces_of_other_scripts_are_spaces() {
        let text = "SOF\nNEXT: 1 +1 0.2 CALL m.py 4\u{3000}main\u{a0}2000\u{3000}1000\n\
                    NEXT: 18446744073709551615 +1 0.3 RETURN m.py 4 main 2000 0\n\
                    NEXT: 7 +1 0.4 CALL m.py 4 main 2000 0\n";
        let found: Vec<_> = rows(text).into_iter().map(|(_, name, line, _)| (name, line)).collect();
        let main = || ("m.py|main".to_owned(), 4);
        assert_eq!(found, [main(), ("|".to_owned(), 0), main(), main()]);
    }

    #[test]
    fn names_of_logs_tell_when_and_which_thread() {
        assert_eq!(start_of("20241107_195847_0_62264_P_0_PY3.13.0b3.log"), Some(1_731_009_527_000_000_000));
        assert_eq!(start_of("run.log"), None);
        assert_eq!(start_of("20241107_aäöx_.log"), None);
        assert_eq!(thread_of("20260727_101010_0_62264_62270_P_0_PY3.13.0.log"), 62270);
        assert_eq!(thread_of("20241107_195847_0_62264_P_0_PY3.13.0b3.log"), 0);
    }
}
