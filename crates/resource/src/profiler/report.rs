//! The figures as text, to the character as RMM prints them.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::{MemoryRecord, ProfilerRecords};

/// The column that a report is ordered by, highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderedBy {
    /// Number of calls.
    Calls,
    /// Peak bytes.
    #[default]
    Peak,
    /// Total bytes.
    Total,
}

impl OrderedBy {
    /// All columns.
    pub const ALL: [Self; 3] = [Self::Calls, Self::Peak, Self::Total];

    /// Name of the column in RMM.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "num_calls",
            Self::Peak => "memory_peak",
            Self::Total => "memory_total",
        }
    }

    const fn value(self, record: &MemoryRecord) -> i64 {
        match self {
            Self::Calls => record.calls as i64,
            Self::Peak => record.peak_bytes,
            Self::Total => record.total_bytes,
        }
    }
}

const TITLE: &str = "Memory Profiling\n================\n\n";
const LEGENDS: &str = "\
Legends:
  ncalls       - number of times the function or code block was called
  memory_peak  - peak memory allocated in function or code block (in bytes)
  memory_total - total memory allocated in function or code block (in bytes)
";
const HEADINGS: &str = "ncalls     memory_peak    memory_total  filename:lineno(function)";

impl ProfilerRecords {
    /// The figures as a table, highest first; names with the same figure are in the order in which they were first
    /// recorded.
    pub fn report(&self, ordered_by: OrderedBy) -> String {
        let mut rows = self.rows();
        if rows.is_empty() {
            return format!("{TITLE}No data, maybe profiling wasn't enabled?");
        }
        rows.sort_by_key(|(_, record)| Reverse(ordered_by.value(record)));
        let mut text = format!("{TITLE}{LEGENDS}\nOrdered by: {}\n\n{HEADINGS}", ordered_by.name());
        for (name, MemoryRecord { calls, peak_bytes, total_bytes }) in rows {
            let (calls, peak, total) = (grouped(calls as i64), grouped(peak_bytes), grouped(total_bytes));
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{calls:>6} {peak:>15} {total:>15}  {name}");
        }
        text
    }
}

/// A number with commas between thousands.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let shown: Vec<String> =
            [0, 7, -7, 999, 1000, -1000, 1_234_567, i64::MIN].into_iter().map(grouped).collect();
        let expected = ["0", "7", "-7", "999", "1,000", "-1,000", "1,234,567", "-9,223,372,036,854,775,808"];
        assert_eq!(shown, expected);
    }
}
