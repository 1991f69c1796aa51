//! The last lines of what a command wrote, however much that was.
//!
//! Bytes come in pieces that end anywhere. A carriage return begins a line anew, as progress bars want it.

use std::collections::VecDeque;

/// Lines that are kept.
const LINES: usize = 500;
/// Bytes that are kept of a line.
const LINE_BYTES: usize = 1000;

/// The last lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    open: Vec<u8>,
    /// A carriage return was read, and what follows decides what it means.
    is_returned: bool,
}

impl Tail {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => {
                    self.is_returned = false;
                    let line = std::mem::take(&mut self.open);
                    self.push(&line);
                }
                b'\r' => self.is_returned = true,
                byte => {
                    if std::mem::take(&mut self.is_returned) {
                        self.open.clear();
                    }
                    if self.open.len() < LINE_BYTES {
                        self.open.push(byte);
                    }
                }
            }
        }
    }

    fn push(&mut self, line: &[u8]) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(String::from_utf8_lossy(line).into_owned());
    }

    /// The lines, with the one that is not ended.
    pub(crate) fn lines(&self) -> Vec<String> {
        let open = (!self.open.is_empty()).then(|| String::from_utf8_lossy(&self.open).into_owned());
        self.lines.iter().cloned().chain(open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_and_progress_bars_show_their_last_state() {
        let mut tail = Tail::default();
        for piece in ["one\r\nt", "wo\n10 %\r50 %", "\r100 %\r", "\nth\u{e9}"] {
            tail.add(piece.as_bytes());
        }
        assert_eq!(tail.lines(), ["one", "two", "100 %", "th\u{e9}"]);
    }

    #[test]
    fn there_are_never_more_lines_or_longer_ones_than_are_kept() {
        let mut tail = Tail::default();
        for number in 0..2 * LINES {
            tail.add(format!("{number}{}\n", "x".repeat(5 * LINE_BYTES)).as_bytes());
        }
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].starts_with("500x")), (LINES, true));
        assert!(lines.iter().all(|line| line.len() == LINE_BYTES));
    }
}
