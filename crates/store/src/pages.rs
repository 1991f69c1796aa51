//! Columns of the event table, encoded into pages of Parquet as they come.
//!
//! A general writer hashes every value of every column, keeps statistics of pages that are never read, and copies
//! each value several times; most of what sealing cost was that. Here a column that has one value costs nothing,
//! others go straight from a batch into packed numbers, and each has the encoding that suits it: differences, or
//! indexes of a dictionary as long as that is worth it. What comes out are ordinary pages.

mod dictionary;
mod levels;
mod packing;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, EncodingMask, Type, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use self::dictionary::Dictionary;
use self::levels::Levels;
use self::packing::{Deltas, bit_width, pack, put_packed_head, put_run};
use crate::stages::{SealStage, stage};

/// Rows after which a page ends.
const PAGE_ROWS: usize = 1 << 16;
/// Most entries of a dictionary; readers keep it in memory while they read a row group.
const MAX_ENTRIES: usize = 1 << 17;
/// Most bytes of the words of a dictionary.
const MAX_WORD_BYTES: usize = 1 << 20;
/// Longest word that statistics have.
const MAX_STATISTICS_BYTES: usize = 64;

/// Level of compression: more takes much longer and saves a few percent.
pub(crate) const ZSTD_LEVEL: i32 = 1;

/// Compresses pages, one after the other.
pub(crate) struct PageCompressor {
    zstd: Compressor<'static>,
}

impl PageCompressor {
    pub(crate) fn new() -> Result<Self> {
        let zstd = Compressor::new(ZSTD_LEVEL).map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(Self { zstd })
    }

    fn compress(&mut self, page: &[u8]) -> Result<Bytes> {
        let compressed = stage(SealStage::Compress, || self.zstd.compress(page));
        Ok(compressed.map_err(|error| ParquetError::External(Box::new(error)))?.into())
    }
}

/// How the values of a page are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Dictionary,
    Deltas,
    Plain,
}

/// Indexes of a dictionary, or one for all while they agree.
#[derive(Debug, Default)]
struct Indexes {
    first: u32,
    count: usize,
    /// Empty while all agree.
    each: Vec<u32>,
}

impl Indexes {
    fn push_same(&mut self, index: u32, count: usize) {
        if self.count == 0 {
            self.first = index;
        }
        if !self.each.is_empty() || index != self.first {
            self.each.resize(self.count, self.first);
            self.each.resize(self.count + count, index);
        }
        self.count += count;
    }

    fn extend(&mut self, values: &[u64], dictionary: &mut Dictionary) {
        if values.is_empty() {
            return;
        }
        self.each.resize(self.count, self.first);
        self.each.extend(values.iter().map(|value| dictionary.index(*value)));
        if let Some(first) = self.each.first() {
            self.first = *first;
        }
        self.count = self.each.len();
    }

    /// Appends the indexes to `out` and starts anew.
    fn finish(&mut self, entries: usize, out: &mut Vec<u8>) {
        let width = match bit_width(entries.saturating_sub(1) as u64) {
            // Bytes that mean the same each time are what zstd can work with.
            width @ 0..=8 => width.next_power_of_two().max(1),
            width => width,
        };
        out.push(width as u8);
        if self.each.iter().all(|index| *index == self.first) {
            put_run(out, self.first.into(), self.count, width);
        } else {
            put_packed_head(out, self.count);
            let padded = self.count.next_multiple_of(8);
            self.each.resize(padded, 0);
            pack(out, self.each.iter().map(|index| u64::from(*index)), width);
        }
        self.each.clear();
        self.count = 0;
    }
}

/// One column of a part, of which the pages of a row group are in memory.
pub(crate) struct ColumnWriter {
    descr: ColumnDescPtr,
    is_nullable: bool,
    is_signed: bool,
    /// How the values of a row group's first page are encoded.
    first_mode: Mode,
    mode: Mode,
    levels: Levels,
    dictionary: Dictionary,
    /// Entries of the dictionary before this page.
    known: usize,
    /// Words of the dictionary.
    words: Vec<String>,
    word_bytes: usize,
    indexes: Indexes,
    deltas: Deltas,
    plain: Vec<u8>,
    /// Memory for values of a batch.
    values: Vec<u64>,
    /// Complete pages of the row group.
    pages: TrackedWrite<Vec<u8>>,
    uncompressed: usize,
    rows: usize,
    nulls: usize,
    /// Least and greatest value that is not in the dictionary, in the order of the column.
    span: Option<(u64, u64)>,
    word_span: Option<(String, String)>,
    encodings: Vec<PageEncodingStats>,
}

impl ColumnWriter {
    /// Starts a column whose values are never looked up in a dictionary if they are `ascending`.
    pub(crate) fn new(descr: ColumnDescPtr, ascending: bool) -> Self {
        let first_mode = if ascending { Mode::Deltas } else { Mode::Dictionary };
        Self {
            is_nullable: descr.max_def_level() > 0,
            is_signed: descr.sort_order().is_signed(),
            descr,
            first_mode,
            mode: first_mode,
            levels: Levels::default(),
            dictionary: Dictionary::default(),
            known: 0,
            words: Vec::new(),
            word_bytes: 0,
            indexes: Indexes::default(),
            deltas: Deltas::default(),
            plain: Vec::new(),
            values: Vec::new(),
            pages: TrackedWrite::new(Vec::new()),
            uncompressed: 0,
            rows: 0,
            nulls: 0,
            span: None,
            word_span: None,
            encodings: Vec::new(),
        }
    }

    /// Bytes in memory that are to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes_written() + 4 * self.indexes.each.len() + self.deltas.bytes() + self.plain.len()
    }

    /// Appends `rows` times the same value, or none.
    pub(crate) fn push_same<'a>(&mut self, value: Option<u64>, rows: usize, word: impl Fn(u64) -> &'a str) {
        self.levels.push_same(value.is_some(), rows);
        let Some(value) = value.filter(|_| rows > 0) else { return };
        if self.mode == Mode::Dictionary {
            let index = self.dictionary.index(value);
            self.indexes.push_same(index, rows);
            self.add_words(word);
        } else {
            self.values.clear();
            self.values.resize(rows, value);
            self.push_values(word);
        }
    }

    /// Appends the values of a batch, each as the bits of a number; `is_none` says which are null.
    pub(crate) fn push<'a, T>(
        &mut self,
        values: &[T],
        bits: impl Fn(&T) -> u64,
        is_none: impl Fn(&T) -> bool,
        word: impl Fn(u64) -> &'a str,
    ) {
        self.values.clear();
        if self.is_nullable {
            let before = self.levels.nulls();
            self.levels.push(values, |value| !is_none(value));
            if self.levels.nulls() - before < values.len() {
                // Written over if it is none: no branch that the processor would have to guess.
                self.values.resize(values.len(), 0);
                let mut present = 0;
                for value in values {
                    self.values[present] = bits(value);
                    present += usize::from(!is_none(value));
                }
                self.values.truncate(present);
            }
        } else {
            self.levels.push_same(true, values.len());
            self.values.extend(values.iter().map(bits));
        }
        self.push_values(word);
    }

    fn push_values<'a>(&mut self, word: impl Fn(u64) -> &'a str) {
        let values = std::mem::take(&mut self.values);
        match self.mode {
            Mode::Dictionary => {
                self.indexes.extend(&values, &mut self.dictionary);
                self.add_words(word);
            }
            Mode::Deltas => {
                self.deltas.push(&values);
                self.cover(&values);
            }
            Mode::Plain => match self.descr.physical_type() {
                Type::BYTE_ARRAY => values.iter().for_each(|value| self.push_plain_word(word(*value))),
                Type::INT32 => {
                    for value in &values {
                        self.plain.extend((*value as u32).to_le_bytes());
                    }
                    self.cover(&values);
                }
                _ => {
                    for value in &values {
                        self.plain.extend(value.to_le_bytes());
                    }
                    self.cover(&values);
                }
            },
        }
        self.values = values;
    }

    fn push_plain_word(&mut self, word: &str) {
        self.plain.extend((word.len() as u32).to_le_bytes());
        self.plain.extend(word.as_bytes());
        cover_word(&mut self.word_span, word);
    }

    /// Keeps the words of new entries of the dictionary.
    fn add_words<'a>(&mut self, word: impl Fn(u64) -> &'a str) {
        if self.descr.physical_type() == Type::BYTE_ARRAY {
            for value in &self.dictionary.values()[self.words.len()..] {
                let word = word(*value);
                self.word_bytes += word.len() + 4;
                self.words.push(word.to_owned());
            }
        }
    }

    /// Position of a value in the order of the column.
    fn rank(&self, value: u64) -> u64 {
        if self.is_signed { value ^ 1 << 63 } else { value }
    }

    fn cover(&mut self, values: &[u64]) {
        let flip = self.rank(0);
        let span = values
            .iter()
            .fold((u64::MAX, 0), |(least, most), value| (least.min(value ^ flip), most.max(value ^ flip)));
        if !values.is_empty() {
            let (least, most) = self.span.unwrap_or(span);
            self.span = Some((least.min(span.0), most.max(span.1)));
        }
    }

    /// Ends the page if it is long enough.
    pub(crate) fn cut(&mut self, compressor: &mut PageCompressor) -> Result<()> {
        let is_uniform =
            self.indexes.each.is_empty() && self.mode == Mode::Dictionary && !self.levels.is_mixed();
        if self.levels.rows() >= PAGE_ROWS && !is_uniform { self.end_page(compressor) } else { Ok(()) }
    }

    fn end_page(&mut self, compressor: &mut PageCompressor) -> Result<()> {
        let (rows, nulls) = (self.levels.rows(), self.levels.nulls());
        if rows == 0 {
            return Ok(());
        }
        let mut page = Vec::new();
        if self.is_nullable {
            self.levels.finish(&mut page);
        } else {
            self.levels = Levels::default();
        }
        let encoding = match self.mode {
            // There need not be a dictionary.
            _ if nulls == rows => Encoding::PLAIN,
            Mode::Dictionary => {
                self.indexes.finish(self.dictionary.len(), &mut page);
                Encoding::RLE_DICTIONARY
            }
            Mode::Deltas => {
                self.deltas.finish(&mut page);
                Encoding::DELTA_BINARY_PACKED
            }
            Mode::Plain => {
                page.append(&mut self.plain);
                Encoding::PLAIN
            }
        };
        let compressed = Page::DataPage {
            buf: compressor.compress(&page)?,
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.write(compressed, page.len())?;
        self.rows += rows;
        self.nulls += nulls;
        self.consider_mode(rows - nulls);
        Ok(())
    }

    /// Gives the dictionary up if it has become too large, or if most values of a page were new.
    fn consider_mode(&mut self, values: usize) {
        let added = self.dictionary.len() - self.known;
        self.known = self.dictionary.len();
        let is_too_large = self.known > MAX_ENTRIES || self.word_bytes > MAX_WORD_BYTES;
        if self.mode == Mode::Dictionary && (is_too_large || (added > 1 << 10 && added * 2 > values)) {
            let is_long = self.descr.physical_type() == Type::INT64;
            self.mode = if is_long { Mode::Deltas } else { Mode::Plain };
        }
    }

    fn write(&mut self, page: Page, uncompressed: usize) -> Result<()> {
        let (page_type, encoding) = (page.page_type(), page.encoding());
        let written =
            SerializedPageWriter::new(&mut self.pages).write_page(CompressedPage::new(page, uncompressed))?;
        self.uncompressed += written.uncompressed_size;
        match self.encodings.last_mut() {
            Some(last) if last.page_type == page_type && last.encoding == encoding => last.count += 1,
            _ => self.encodings.push(PageEncodingStats { page_type, encoding, count: 1 }),
        }
        Ok(())
    }

    /// Ends the column's share of a row group and starts the next one. Returns its bytes and what is known of it.
    pub(crate) fn finish(&mut self, compressor: &mut PageCompressor) -> Result<(Bytes, ColumnCloseResult)> {
        self.end_page(compressor)?;
        let pages = std::mem::replace(&mut self.pages, TrackedWrite::new(Vec::new())).into_inner()?;
        let statistics = self.statistics();
        let mut dictionary_bytes = 0;
        let mut bytes = Vec::new();
        if self.dictionary.len() > 0 {
            let data = std::mem::take(&mut self.encodings);
            let page = self.dictionary_page();
            let dictionary = Page::DictionaryPage {
                buf: compressor.compress(&page)?,
                num_values: self.dictionary.len() as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            self.write(dictionary, page.len())?;
            self.encodings.extend(data);
            bytes = std::mem::replace(&mut self.pages, TrackedWrite::new(Vec::new())).into_inner()?;
            dictionary_bytes = bytes.len() as i64;
        }
        bytes.extend_from_slice(&pages);
        let levels = [Encoding::RLE];
        let encodings = self.encodings.iter().map(|stats| &stats.encoding).chain(&levels);
        let metadata = ColumnChunkMetaData::builder(self.descr.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings))
            .set_page_encoding_stats(self.encodings.clone())
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(self.rows as i64)
            .set_data_page_offset(dictionary_bytes)
            .set_dictionary_page_offset((dictionary_bytes > 0).then_some(0))
            .set_statistics(statistics)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        self.reset();
        Ok((bytes.into(), close))
    }

    fn reset(&mut self) {
        self.mode = self.first_mode;
        self.dictionary.clear();
        self.words.clear();
        self.encodings.clear();
        (self.known, self.word_bytes, self.uncompressed) = (0, 0, 0);
        (self.rows, self.nulls) = (0, 0);
        (self.span, self.word_span) = (None, None);
    }

    fn dictionary_page(&self) -> Vec<u8> {
        let mut page = Vec::new();
        match self.descr.physical_type() {
            Type::BYTE_ARRAY => {
                for word in &self.words {
                    page.extend((word.len() as u32).to_le_bytes());
                    page.extend(word.as_bytes());
                }
            }
            Type::INT32 => {
                self.dictionary.values().iter().for_each(|value| page.extend((*value as u32).to_le_bytes()));
            }
            _ => self.dictionary.values().iter().for_each(|value| page.extend(value.to_le_bytes())),
        }
        page
    }

    /// Least and greatest value, and the number of nulls, of the row group.
    fn statistics(&mut self) -> Statistics {
        fn of<T>(span: Option<(T, T)>, nulls: usize, is_signed: bool) -> ValueStatistics<T> {
            let (least, most) = span.unzip();
            ValueStatistics::new(least, most, None, Some(nulls as u64), false)
                .with_backwards_compatible_min_max(is_signed)
        }
        let (nulls, is_signed) = (self.nulls, self.is_signed);
        if self.descr.physical_type() == Type::BYTE_ARRAY {
            let mut span = self.word_span.take();
            self.words.iter().for_each(|word| cover_word(&mut span, word));
            let is_short = |word: &String| word.len() <= MAX_STATISTICS_BYTES;
            let span = span.filter(|(least, most)| is_short(least) && is_short(most));
            let span = span.map(|(least, most)| (ByteArray::from(&*least), ByteArray::from(&*most)));
            return Statistics::ByteArray(of(span, nulls, is_signed));
        }
        let entries = std::mem::take(&mut self.dictionary);
        self.cover(entries.values());
        self.dictionary = entries;
        let span = self.span.map(|(least, most)| (self.rank(least), self.rank(most)));
        match self.descr.physical_type() {
            Type::INT32 => {
                Statistics::Int32(of(span.map(|(least, most)| (least as i32, most as i32)), nulls, is_signed))
            }
            _ => {
                Statistics::Int64(of(span.map(|(least, most)| (least as i64, most as i64)), nulls, is_signed))
            }
        }
    }
}

fn cover_word(span: &mut Option<(String, String)>, word: &str) {
    match span {
        None => *span = Some((word.to_owned(), word.to_owned())),
        Some((least, _)) if word < &**least => word.clone_into(least),
        Some((_, most)) if word > &**most => word.clone_into(most),
        Some(_) => {}
    }
}
