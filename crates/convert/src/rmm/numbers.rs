//! Which line a row came from.
//!
//! Nearly all logs have one row on each line after their header, so what is kept is where that changes:
//! nothing for most logs. A log with a great many blank or bad lines would need memory that grows with
//! it; beyond [`CHANGES_MAX`] changes the lines of further rows are not known.

/// How many changes are kept.
const CHANGES_MAX: usize = 1 << 16;

/// Rows and their lines.
#[derive(Debug, Default)]
pub(super) struct LineNumbers {
    /// From this row on, the line of this number and those after it.
    changes: Vec<(u64, u64)>,
    /// The first row whose line is not known.
    forgotten_from: Option<u64>,
}

impl LineNumbers {
    /// Says that the row with this index is on the line with this number. Rows come in order.
    #[inline]
    pub(super) fn note(&mut self, row: u64, line: u64) {
        let follows = self.changes.last().is_some_and(|(from, first)| row - from + first == line);
        if !follows {
            self.change(row, line);
        }
    }

    #[cold]
    fn change(&mut self, row: u64, line: u64) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push((row, line));
        } else {
            self.forgotten_from.get_or_insert(row);
        }
    }

    /// The number of the line, from 1, of the row with this index.
    pub(super) fn line_of(&self, row: u64) -> Option<u64> {
        if self.forgotten_from.is_some_and(|from| row >= from) {
            return None;
        }
        let after = self.changes.partition_point(|(from, _)| *from <= row);
        let (from, first) = self.changes[..after].last()?;
        Some(row - from + first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_known_until_there_are_too_many_gaps() {
        let mut numbers = LineNumbers::default();
        assert_eq!(numbers.line_of(0), None);
        (0..10).for_each(|row| numbers.note(row, row + 2));
        numbers.note(10, 15);
        assert_eq!([0, 9, 10, 11].map(|row| numbers.line_of(row)), [2, 11, 15, 16].map(Some));
        assert_eq!(numbers.changes.len(), 2);
        (11..CHANGES_MAX as u64 + 20).for_each(|row| numbers.note(row, row * 2));
        let last_known = CHANGES_MAX as u64 + 8;
        assert_eq!(numbers.line_of(last_known), Some(last_known * 2));
        assert_eq!(numbers.line_of(last_known + 1), None);
    }
}
