//! Which rows of a page have a value.

use super::packing::{put_packed_head, put_run};

/// Definition levels of a page: a bit for each row, or one for all while they agree.
#[derive(Debug, Default)]
pub(super) struct Levels {
    rows: usize,
    nulls: usize,
    /// Empty while all rows agree.
    words: Vec<u64>,
}

impl Levels {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn nulls(&self) -> usize {
        self.nulls
    }

    /// Whether some rows have a value and some have not.
    pub(super) fn is_mixed(&self) -> bool {
        self.nulls > 0 && self.nulls < self.rows
    }

    /// Appends rows that all have a value, or all have none.
    pub(super) fn push_same(&mut self, has_value: bool, rows: usize) {
        let nulls = if has_value { 0 } else { rows };
        if rows == 0 {
            return;
        }
        let agrees = self.nulls + nulls == 0 || self.nulls + nulls == self.rows + rows;
        if self.words.is_empty() && agrees {
            (self.rows, self.nulls) = (self.rows + rows, self.nulls + nulls);
            return;
        }
        self.spell_out();
        let word = if has_value { u64::MAX } else { 0 };
        for start in (0..rows).step_by(64) {
            let count = (rows - start).min(64);
            self.push_word(word & u64::MAX >> (64 - count), count);
        }
        self.nulls += nulls;
    }

    /// Appends as many rows as there are values, those for which `has_value`.
    pub(super) fn push<T>(&mut self, values: &[T], has_value: impl Fn(&T) -> bool) {
        let present = values.iter().filter(|value| has_value(value)).count();
        if present == values.len() || present == 0 {
            return self.push_same(present > 0, values.len());
        }
        self.spell_out();
        for values in values.chunks(64) {
            let bit = |word, (at, value): (usize, &T)| word | u64::from(has_value(value)) << at;
            let word = values.iter().enumerate().fold(0, bit);
            self.push_word(word, values.len());
        }
        self.nulls += values.len() - present;
    }

    /// Gives every row so far a bit of its own.
    fn spell_out(&mut self) {
        if self.words.is_empty() && self.rows > 0 {
            let word = if self.nulls == 0 { u64::MAX } else { 0 };
            self.words.resize(self.rows.div_ceil(64), word);
            if let (Some(last), 1..) = (self.words.last_mut(), self.rows % 64) {
                *last &= (1 << (self.rows % 64)) - 1;
            }
        }
    }

    fn push_word(&mut self, word: u64, count: usize) {
        let used = self.rows % 64;
        match self.words.last_mut() {
            Some(last) if used > 0 => {
                *last |= word << used;
                if used + count > 64 {
                    self.words.push(word >> (64 - used));
                }
            }
            _ => self.words.push(word),
        }
        self.rows += count;
    }

    /// Appends the levels to `out` as a page of Parquet's first version has them, and starts anew.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let head = out.len();
        out.extend_from_slice(&[0; 4]);
        if self.is_mixed() {
            put_packed_head(out, self.rows);
            let bytes = out.len() + self.rows.div_ceil(8);
            self.words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            out.truncate(bytes);
        } else {
            put_run(out, u64::from(self.nulls == 0), self.rows, 1);
        }
        let len = (out.len() - head - 4) as u32;
        out[head..head + 4].copy_from_slice(&len.to_le_bytes());
        self.words.clear();
        (self.rows, self.nulls) = (0, 0);
    }
}
