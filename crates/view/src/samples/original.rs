//! The layout in which `memory_logger --read` shows a log, to the character.
//!
//! A line has the date, the total in KiB and a bar that is as long, of the columns behind the date and
//! the total, as the total is of the highest; what stands at the end of the line is taken off the bar,
//! not off its scale. With several hosts the bar is divided where the share of the reporting host ends.
//!
//! Two things differ, because the original is wrong there: a share of exactly half is `50.00%` (it prints
//! `5.%`, and likewise for all shares with few digits), and times are UTC (it uses the zone of whoever
//! reads).

use std::fmt::Write as _;

use floodmark_event::units::{Date, NS_PER_DAY, NS_PER_S, format_count};

use super::{MemoryAt, Separate, shown_lines};
use crate::layout::Layout;
use crate::plain::plain;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const RESET: &str = "\x1b[0m";
const GREW: &str = "\x1b[31m";
const SHRANK: &str = "\x1b[32m";
const SAME: &str = "\x1b[36m";
/// Columns of the date, the total and what is between them and the bar, less two that overlap it.
const BEFORE_BAR: usize = 40;
/// Columns behind the bar, besides the digits of the percentage.
const BEHIND_BAR: usize = 6;

/// What the layout has to know before the first line.
#[derive(Clone, Copy, Debug)]
pub struct OriginalProps {
    /// The highest total.
    pub highest_bytes: u64,
    /// How many hosts report.
    pub hosts: usize,
    /// Whether to name them.
    pub separate: Separate,
}

/// Writes lines.
#[derive(Clone, Debug)]
pub struct OriginalLayout {
    highest_kib: u64,
    has_hosts: bool,
    separate: Separate,
    width: usize,
    has_color: bool,
    last_kib: u64,
    output: Vec<u8>,
    stacks: Vec<String>,
}

impl OriginalLayout {
    /// Begins for a source with such an extent.
    pub fn new(props: OriginalProps, layout: &Layout) -> Self {
        Self {
            highest_kib: props.highest_bytes / 1024,
            has_hosts: props.hosts > 1,
            separate: props.separate,
            width: layout.width,
            has_color: !layout.palette.is_plain(),
            last_kib: 0,
            output: Vec::new(),
            stacks: Vec::new(),
        }
    }

    /// The line at the top and at the bottom.
    pub fn header(&self) -> String {
        let blanks = " ".repeat(17);
        let highest = format_count(self.highest_kib);
        format!("Date Stamp{blanks}Memory Usage | Percent of MAX memory used: ( {highest} K )\n")
    }

    /// Keeps output to show under the next line.
    pub fn output(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Keeps the lines of a stack to show under the next line.
    pub fn stack(&mut self, lines: Vec<String>) {
        self.stacks.extend(lines);
    }

    /// Writes a line, one for each host that reported, and what was kept.
    pub fn text(&mut self, memory: &MemoryAt) -> String {
        let kib = memory.total_bytes / 1024;
        let color = match kib {
            kib if kib == self.highest_kib => RESET,
            kib if kib > self.last_kib => GREW,
            kib if kib == self.last_kib => SAME,
            _ => SHRANK,
        };
        self.last_kib = kib;
        let reports = if self.has_hosts { memory.reports.len().max(1) } else { 1 };
        let mut text = String::new();
        for report in 0..reports {
            let host = memory.reports.get(report).filter(|_| self.has_hosts);
            let host = host.map(|host| (plain(&host.name), host.bytes / 1024));
            text += &self.line(memory.time_ns, kib, host.as_ref().map(|(name, kib)| (&**name, *kib)), color);
            if report == 0 {
                text += &self.kept();
            }
        }
        text
    }

    /// What was kept and has no line to stand under.
    pub fn kept(&mut self) -> String {
        let mut text = String::new();
        let output = shown_lines(&std::mem::take(&mut self.output));
        for (title, lines) in [("stdout", output), ("pstack", std::mem::take(&mut self.stacks))] {
            for line in lines {
                let _ = writeln!(text, "{title:>0$} | {line}", BEFORE_BAR - 1);
            }
        }
        text
    }

    fn line(&self, time_ns: i64, kib: u64, host: Option<(&str, u64)>, color: &str) -> String {
        let (color, reset) = if self.has_color { (color, RESET) } else { ("", "") };
        let percent = percent(kib, self.highest_kib);
        let room = self.width.saturating_sub(BEFORE_BAR) as u64;
        let total = columns(kib, room, self.highest_kib);
        let (before, message, message_len) = match host {
            Some((name, kib)) => {
                let before = columns(kib, room, self.highest_kib);
                let message = match self.separate {
                    Separate::Yes => format!("< {reset}{name} - {:>10} K{color} >", format_count(kib)),
                    Separate::No => "< >".to_owned(),
                };
                let len = message.chars().count()
                    - if self.separate == Separate::Yes { color.len() + reset.len() } else { 0 };
                (before, message, len)
            }
            None => (0, String::new(), 0),
        };
        let behind = total.saturating_sub(before).saturating_sub(message_len + percent.len() + BEHIND_BAR);
        format!(
            "{}{:>15} K | {color}{}{message}{}{reset}| {percent}%\n",
            date(time_ns),
            format_count(kib),
            "-".repeat(before),
            "-".repeat(behind),
        )
    }
}

/// `15 Nov 06:28:50.446520`
fn date(time_ns: i64) -> String {
    let Date { month, day, .. } = Date::from_epoch_days(time_ns.div_euclid(NS_PER_DAY));
    let in_day = time_ns.rem_euclid(NS_PER_DAY);
    let (second, micros) = (in_day / NS_PER_S, in_day % NS_PER_S / 1000);
    let month = MONTHS[month as usize - 1];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{day:02} {month} {hour:02}:{minute:02}:{second:02}.{micros:06}")
}

/// A share in percent, cut after two decimals.
fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0".into();
    }
    if part >= whole {
        return "100".into();
    }
    let share = u128::from(part) * 10_000 / u128::from(whole);
    format!("{:02}.{:02}", share / 100, share % 100)
}

/// Significant digits of the original's decimal numbers.
const DIGITS: u32 = 28;

/// Columns of `part` where `room` stand for `whole`: the product of `part` and `room / whole`, cut.
///
/// The original computes with 28 decimal digits, each step rounded. That shows in one case: a product
/// that is a whole number comes out just below it when the quotient was rounded down.
fn columns(part: u64, room: u64, whole: u64) -> usize {
    if whole == 0 || room == 0 {
        return 0;
    }
    let product = u128::from(part) * u128::from(room);
    let (exact, rest) = (product / u128::from(whole), product % u128::from(whole));
    let exact = usize::try_from(exact).unwrap_or(usize::MAX);
    if rest == 0 && exact > 0 && falls_short(part, room, whole, exact) { exact - 1 } else { exact }
}

/// Whether the rounded product is less than `exact`, which it would be without rounding.
fn falls_short(part: u64, room: u64, whole: u64, exact: usize) -> bool {
    let Some((rest, decimals)) = quotient_rest(room, whole) else { return false };
    // The product lacks part × rest / whole of the last decimal, and half a unit of its own last digit is
    // rounded away; just below a power of ten there is one digit less before the point.
    let before_point = (exact - 1).checked_ilog10().map_or(0, |log| log + 1);
    let lost = u128::from(part).saturating_mul(u128::from(rest)).saturating_mul(2);
    let scale = 10u128.checked_pow((decimals + before_point).saturating_sub(DIGITS)).unwrap_or(u128::MAX);
    lost > u128::from(whole).saturating_mul(scale)
}

/// What `room / whole` loses when it is rounded to 28 digits, in parts of `whole`, and how many decimals
/// it has then; none if it loses nothing or is rounded up.
fn quotient_rest(room: u64, whole: u64) -> Option<(u64, u32)> {
    let whole = u128::from(whole);
    let (mut digit, mut rest) = (u128::from(room) / whole, u128::from(room) % whole);
    let mut digits = digit.checked_ilog10().map_or(0, |log| log + 1);
    let mut decimals = 0;
    while digits < DIGITS && rest != 0 {
        (digit, rest) = (rest * 10 / whole, rest * 10 % whole);
        decimals += 1;
        digits += u32::from(digits > 0 || digit > 0);
    }
    let is_up = rest * 2 > whole || (rest * 2 == whole && digit % 2 == 1);
    (rest != 0 && !is_up).then_some((rest as u64, decimals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Palette;
    use crate::samples::Reported;

    fn layout(width: usize, palette: Palette) -> Layout {
        Layout { width, palette, rows: None }
    }

    fn memory(kib: u64, reports: &[(&str, u64)]) -> MemoryAt {
        let report = |(name, kib): &(&str, u64)| Reported { name: (*name).to_owned(), bytes: kib * 1024 };
        let reports = reports.iter().map(report).collect();
        MemoryAt { time_ns: 1_794_724_130_446_520_000, total_bytes: kib * 1024, reports }
    }

    #[test]
    fn a_line_is_that_of_the_original() {
        let props = OriginalProps { highest_bytes: 206_328 * 1024, hosts: 1, separate: Separate::No };
        let mut lines = OriginalLayout::new(props, &layout(110, Palette::color()));
        assert_eq!(
            lines.header(),
            "Date Stamp                 Memory Usage | Percent of MAX memory used: ( 206,328 K )\n"
        );
        lines.output(b"step 0\n\n\x1b[2Jstep 1");
        lines.stack(vec!["#0  main".into()]);
        assert_eq!(
            lines.text(&memory(52_716, &[])),
            "15 Nov 06:28:50.446520         52,716 K | \x1b[31m------\x1b[0m| 25.54%\n\
             \x20                                stdout | step 0\n\
             \x20                                stdout | [2Jstep 1\n\
             \x20                                pstack | #0  main\n"
        );
        assert!(lines.text(&memory(52_716, &[])).contains("\x1b[36m------\x1b[0m| 25.54%"));
        assert!(lines.text(&memory(206_328, &[])).ends_with("| 100%\n"));
        assert!(lines.text(&memory(0, &[])).contains(" 0 K | \x1b[32m\x1b[0m| 0%\n"));
    }

    #[test]
    fn hosts_divide_the_bar() {
        let props = OriginalProps { highest_bytes: 266_648 * 1024, hosts: 2, separate: Separate::No };
        let mut lines = OriginalLayout::new(props, &layout(110, Palette::plain()));
        let two = [("nodeA", 133_324), ("nodeB", 0)];
        assert_eq!(
            lines.text(&memory(266_648, &two)),
            format!(
                "15 Nov 06:28:50.446520        266,648 K | {}< >{}| 100%\n\
                 15 Nov 06:28:50.446520        266,648 K | < >{}| 100%\n",
                "-".repeat(35),
                "-".repeat(22),
                "-".repeat(57)
            )
        );
    }

    #[test]
    fn shares_are_cut_and_never_lack_digits() {
        let shares =
            [(1, 2), (1, 3), (2, 3), (999_999, 1_000_000), (1, 1_000_000_000), (0, 5), (5, 5), (0, 0)];
        assert_eq!(
            shares.map(|(part, whole)| percent(part, whole)),
            ["50.00", "33.33", "66.66", "99.99", "00.00", "0", "100", "0"]
        );
    }

    /// From Python: `int(part * (Decimal(room) / Decimal(whole)))`.
    #[test]
    fn columns_are_those_of_decimal_numbers_with_28_digits() {
        for (part, room, whole, expected) in COLUMNS {
            assert_eq!(columns(part, room, whole), expected, "{part} × {room} / {whole}");
        }
        assert_eq!(columns(u64::MAX, 70, u64::MAX), 69);
        assert_eq!((columns(1, 0, 1), columns(1, 1, 0)), (0, 0));
    }

    /// Part, room, whole and columns.
    const COLUMNS: [(u64, u64, u64, usize); 58] = [
        (51_243, 59, 51_243, 58),
        (4_006_324, 160, 6_967_520, 91),
        (66, 70, 4620, 0),
        (230_714, 100, 230_714, 99),
        (7_480_263, 99, 7_480_263, 98),
        (39, 60, 39, 59),
        (54_661, 59, 54_661, 58),
        (51_877_137, 100, 51_877_137, 99),
        (261, 100, 261, 99),
        (8_173_466, 40, 32_693_864, 9),
        (394, 60, 394, 59),
        (95, 99, 95, 98),
        (3483, 99, 4257, 80),
        (178, 99, 8811, 1),
        (620_727, 99, 620_727, 98),
        (79_607_241, 100, 79_607_241, 99),
        (19_213_175, 59, 19_213_175, 58),
        (2_344_831, 37, 2_344_831, 36),
        (8790, 100, 8790, 99),
        (24_452, 37, 24_452, 36),
        (18_648_054, 70, 31_080_090, 41),
        (418_967, 100, 418_967, 99),
        (45, 60, 45, 59),
        (454, 60, 454, 59),
        (48_048, 70, 70_070, 48),
        (708, 37, 708, 37),
        (32_753_693, 60, 65_507_386, 30),
        (24_218, 70, 24_218, 70),
        (35_440_825, 40, 70_881_650, 20),
        (288, 59, 531, 32),
        (94_782, 37, 94_782, 37),
        (88_662_306, 60, 88_662_306, 60),
        (2_665_163, 60, 2_665_163, 60),
        (6_031_845, 40, 20_106_150, 12),
        (4_105_381, 160, 16_421_524, 40),
        (260, 37, 260, 37),
        (1514, 60, 1514, 60),
        (119_196, 110, 198_660, 66),
        (758, 59, 758, 59),
        (731, 60, 731, 60),
        (206_328, 70, 206_328, 70),
        (103_164, 70, 206_328, 35),
        (266_648, 70, 266_648, 69),
        (133_324, 70, 266_648, 35),
        (408_980, 70, 408_980, 70),
        (204_490, 70, 408_980, 35),
        (3, 70, 3, 69),
        (1, 70, 3, 23),
        (7, 70, 7, 70),
        (3, 70, 7, 30),
        (9, 70, 9, 70),
        (4, 70, 9, 31),
        (11, 70, 11, 70),
        (5, 70, 11, 31),
        (13, 70, 13, 70),
        (6, 70, 13, 32),
        (1_000_000_000_039, 70, 1_000_000_000_039, 70),
        (500_000_000_019, 70, 1_000_000_000_039, 34),
    ];
}
