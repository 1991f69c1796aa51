//! Reads a stream of Arrow IPC, as the `floodmark` command writes it.
//!
//! The crate `arrow-ipc` would do, but makes the wheel more than twice as large (1.35 MB instead of 0.63) and its build
//! take 3.5 times as long, because it brings the computing half of Arrow along. Types and messages that the command
//! never writes are refused: nested types, compressed bodies, dictionaries that grow.
//!
//! Invariants: the body of a message is one piece of memory that its arrays point into; every offset and length in a
//! message is checked before it is used.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io::Read;
use std::sync::Arc;

use super::c_data::{Array, Buffer, Field, Memory};

type Result<T> = std::result::Result<T, String>;

/// Bytes of a message without its body, at most: a schema has a few kilobytes.
const MAX_METADATA_BYTES: usize = 16 << 20;
/// Bytes of a body, at most.
const MAX_BODY_BYTES: i64 = 1 << 40;
const DAMAGED: &str = "the table arrived damaged";
/// A stream announces its end, so that one whose writer was killed can be told from a complete one.
const ENDED_EARLY: &str = "the table ended early";

/// How values of a type are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Values of so many bytes each.
    Fixed(usize),
    Bits,
    /// Offsets of 32 bits, and bytes.
    Variable,
}

#[derive(Clone, Debug)]
struct Column {
    field: Field,
    layout: Layout,
    /// Number and layout of the dictionary that values are indices of.
    dictionary: Option<(i64, Layout)>,
}

/// Reads record batches from a stream.
pub(super) struct StreamReader<R> {
    input: R,
    columns: Vec<Column>,
    dictionaries: HashMap<i64, Array>,
}

impl<R: Read> StreamReader<R> {
    /// Reads the columns, with which a stream begins.
    pub(super) fn open(mut input: R) -> Result<Self> {
        let message = Message::read(&mut input)?.ok_or("the command wrote no table")?;
        let HeaderKind::Schema = message.kind()? else { return Err(DAMAGED.into()) };
        let columns: Vec<Column> = message.header()?.tables(1)?.iter().map(column).collect::<Result<_>>()?;
        let mut ids: Vec<i64> =
            columns.iter().filter_map(|column| column.dictionary).map(|(id, _)| id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|ids| ids[0] == ids[1]) {
            return Err("the table has two columns with one dictionary, which is not supported".into());
        }
        Ok(Self { input, columns, dictionaries: HashMap::new() })
    }

    pub(super) fn columns(&self) -> Vec<Field> {
        self.columns.iter().map(|column| column.field.clone()).collect()
    }

    /// Reads the next batch; none at the end of the stream.
    pub(super) fn next(&mut self) -> Result<Option<Array>> {
        while let Some(message) = Message::read(&mut self.input)? {
            let header = message.header()?;
            match message.kind()? {
                HeaderKind::RecordBatch => return self.batch(&message, &header).map(Some),
                HeaderKind::DictionaryBatch => {
                    let id = header.i64(0)?;
                    let layout = self.columns.iter().filter_map(|column| column.dictionary);
                    let layout = layout.filter(|(of, _)| *of == id).map(|(_, layout)| layout).next();
                    if header.bool(2)? {
                        return Err("the table has a dictionary that grows, which is not supported".into());
                    }
                    let mut buffers = Buffers::new(&message, &header.table(1)?.ok_or(DAMAGED)?)?;
                    let values = buffers.array(layout.ok_or(DAMAGED)?)?;
                    self.dictionaries.insert(id, values);
                }
                HeaderKind::Schema => return Err(DAMAGED.into()),
            }
        }
        Ok(None)
    }

    fn batch(&self, message: &Message, header: &Table<'_>) -> Result<Array> {
        let mut buffers = Buffers::new(message, header)?;
        let length = header.i64(0)?;
        let mut children = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let mut array = buffers.array(column.layout)?;
            if array.length != length {
                return Err(DAMAGED.into());
            }
            if let Some((id, _)) = column.dictionary {
                let values = self.dictionaries.get(&id).ok_or(DAMAGED)?;
                if !has_indices_below(&array, values.length) {
                    return Err(DAMAGED.into());
                }
                array.dictionary = Some(Box::new(values.clone()));
            }
            children.push(array);
        }
        Ok(Array { length, buffers: vec![None], children, ..Array::default() })
    }
}

/// Whether all values that are there are indices below `count`.
fn has_indices_below(array: &Array, count: i64) -> bool {
    let (Some(validity), Some(Some(keys))) = (array.buffers.first(), array.buffers.get(1)) else {
        return false;
    };
    let count = count.clamp(0, i32::MAX.into()) as u32;
    let keys = keys.bytes().as_chunks::<4>().0.iter().map(|key| u32::from_le_bytes(*key));
    let keys = keys.take(array.length as usize);
    match validity {
        None => keys.max().is_none_or(|highest| highest < count),
        Some(bits) => {
            let bits = bits.bytes();
            let is_there = |row: usize| bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1);
            keys.enumerate().all(|(row, key)| key < count || !is_there(row))
        }
    }
}

/// Arrays of a record batch, one after the other.
struct Buffers<'a> {
    body: &'a Arc<Memory>,
    nodes: std::vec::IntoIter<[i64; 2]>,
    ranges: std::vec::IntoIter<[i64; 2]>,
}

impl<'a> Buffers<'a> {
    fn new(message: &'a Message, batch: &Table<'_>) -> Result<Self> {
        if batch.field(3)?.is_some() {
            return Err("the table is compressed, which is not supported".into());
        }
        let (nodes, ranges) = (batch.pairs(1)?.into_iter(), batch.pairs(2)?.into_iter());
        Ok(Self { body: &message.body, nodes, ranges })
    }

    /// Takes the next buffer, which has at least `len` bytes.
    fn buffer(&mut self, len: usize) -> Result<Buffer> {
        let [offset, bytes] = self.ranges.next().ok_or(DAMAGED)?;
        let (offset, bytes) = (usize::try_from(offset).ok(), usize::try_from(bytes).ok());
        let (offset, bytes) = offset.zip(bytes).ok_or(DAMAGED)?;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.body.bytes().len());
        if !is_inside || bytes < len || !offset.is_multiple_of(8) {
            return Err(DAMAGED.into());
        }
        Ok(Buffer { memory: Arc::clone(self.body), offset, len: bytes })
    }

    fn array(&mut self, layout: Layout) -> Result<Array> {
        let [length, null_count] = self.nodes.next().ok_or(DAMAGED)?;
        let rows = usize::try_from(length).map_err(|_| DAMAGED)?;
        if !(0..=length).contains(&null_count) {
            return Err(DAMAGED.into());
        }
        let validity = self.buffer(if null_count > 0 { rows.div_ceil(8) } else { 0 })?;
        let mut buffers = vec![(null_count > 0).then_some(validity)];
        match layout {
            Layout::Fixed(width) => {
                buffers.push(Some(self.buffer(rows.checked_mul(width).ok_or(DAMAGED)?)?));
            }
            Layout::Bits => buffers.push(Some(self.buffer(rows.div_ceil(8))?)),
            Layout::Variable => {
                // Without rows there may be no offsets either.
                let bytes = rows.checked_add(1).and_then(|count| count.checked_mul(4)).ok_or(DAMAGED)?;
                let mut offsets = self.buffer(if rows == 0 { 0 } else { bytes })?;
                if offsets.len < 4 {
                    offsets = Buffer::of(&[0; 4]);
                }
                let values = self.buffer(0)?;
                let mut last = 0;
                for offset in offsets.bytes().chunks_exact(4).take(rows + 1) {
                    let offset = offset.try_into().map_or(-1, i32::from_le_bytes);
                    if offset < last || offset as usize > values.len {
                        return Err(DAMAGED.into());
                    }
                    last = offset;
                }
                buffers.extend([Some(offsets), Some(values)]);
            }
        }
        Ok(Array { length, null_count, buffers, ..Array::default() })
    }
}

fn column(field: &Table<'_>) -> Result<Column> {
    let name = CString::new(field.text(0)?.unwrap_or_default()).map_err(|_| DAMAGED)?;
    let (format, layout) = format(field)?;
    let described = Field::new(name, &format, field.bool(1)?);
    let Some(encoding) = field.table(4)? else {
        return Ok(Column { field: described, layout, dictionary: None });
    };
    // The type of the field is that of the values; the indices have one of their own.
    let (index, index_layout) = match encoding.table(1)? {
        Some(int) => integer(&int)?,
        None => (c"i", Layout::Fixed(4)),
    };
    if index != c"i" {
        return Err("the table has a dictionary with indices of a type that is not supported".into());
    }
    let dictionary = Some((encoding.i64(0)?, layout));
    let field = Field {
        format: index.to_owned(),
        dictionary: Some(Box::new(Field {
            name: CString::default(),
            is_nullable: true,
            ..described.clone()
        })),
        ..described
    };
    Ok(Column { field, layout: index_layout, dictionary })
}

fn format(field: &Table<'_>) -> Result<(CString, Layout)> {
    let unknown = || Err("the table has a column of a type that is not supported".to_owned());
    let kind = field.table(3)?.ok_or(DAMAGED)?;
    let (format, layout) = match field.u8(2)? {
        2 => integer(&kind)?,
        3 => match kind.i16(0)? {
            1 => (c"f", Layout::Fixed(4)),
            2 => (c"g", Layout::Fixed(8)),
            _ => return unknown(),
        },
        4 => (c"z", Layout::Variable),
        5 => (c"u", Layout::Variable),
        6 => (c"b", Layout::Bits),
        10 => {
            let unit = *["s", "m", "u", "n"].get(kind.i16(0)? as usize).ok_or(DAMAGED)?;
            let text = format!("ts{unit}:{}", kind.text(1)?.unwrap_or_default());
            return Ok((CString::new(text).map_err(|_| DAMAGED)?, Layout::Fixed(8)));
        }
        _ => return unknown(),
    };
    Ok((format.to_owned(), layout))
}

fn integer(kind: &Table<'_>) -> Result<(&'static CStr, Layout)> {
    Ok(match (kind.i32(0)?, kind.bool(1)?) {
        (8, true) => (c"c", Layout::Fixed(1)),
        (8, false) => (c"C", Layout::Fixed(1)),
        (16, true) => (c"s", Layout::Fixed(2)),
        (16, false) => (c"S", Layout::Fixed(2)),
        (32, true) => (c"i", Layout::Fixed(4)),
        (32, false) => (c"I", Layout::Fixed(4)),
        (64, true) => (c"l", Layout::Fixed(8)),
        (64, false) => (c"L", Layout::Fixed(8)),
        _ => return Err(DAMAGED.into()),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderKind {
    Schema,
    DictionaryBatch,
    RecordBatch,
}

/// A message of the stream.
struct Message {
    metadata: Vec<u8>,
    body: Arc<Memory>,
}

impl Message {
    /// Reads a message; none at the end of the stream.
    fn read(input: &mut impl Read) -> Result<Option<Self>> {
        let (mut marker, mut len) = ([0; 4], [0; 4]);
        input.read_exact(&mut marker).map_err(failed)?;
        if marker != [0xff; 4] {
            return Err(DAMAGED.into());
        }
        input.read_exact(&mut len).map_err(failed)?;
        let len = u32::from_le_bytes(len) as usize;
        if len == 0 {
            return Ok(None);
        }
        if len > MAX_METADATA_BYTES {
            return Err(DAMAGED.into());
        }
        let mut metadata = vec![0; len];
        input.read_exact(&mut metadata).map_err(failed)?;
        let bytes = Table::root(&metadata)?.i64(3)?;
        if !(0..=MAX_BODY_BYTES).contains(&bytes) {
            return Err(DAMAGED.into());
        }
        let body = Memory::read(input, bytes as usize).map_err(failed)?;
        Ok(Some(Self { metadata, body: Arc::new(body) }))
    }

    fn kind(&self) -> Result<HeaderKind> {
        match Table::root(&self.metadata)?.u8(1)? {
            1 => Ok(HeaderKind::Schema),
            2 => Ok(HeaderKind::DictionaryBatch),
            3 => Ok(HeaderKind::RecordBatch),
            _ => Err(DAMAGED.into()),
        }
    }

    fn header(&self) -> Result<Table<'_>> {
        Table::root(&self.metadata)?.table(2)?.ok_or_else(|| DAMAGED.into())
    }
}

fn failed(error: std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return ENDED_EARLY.into();
    }
    format!("reading a table from the command: {error}")
}

/// A table of a flatbuffer: fields by number, absent ones have their default.
struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Table<'a> {
    fn root(bytes: &'a [u8]) -> Result<Self> {
        let at = u32::from_le_bytes(take(bytes, 0)?) as usize;
        Ok(Self { bytes, at })
    }

    /// Returns where a field is.
    fn field(&self, number: usize) -> Result<Option<usize>> {
        let back = i32::from_le_bytes(take(self.bytes, self.at)?);
        let fields = (self.at as i64).checked_sub(back.into()).and_then(|at| usize::try_from(at).ok());
        let fields = fields.ok_or(DAMAGED)?;
        let entry = 4 + 2 * number;
        if usize::from(u16::from_le_bytes(take(self.bytes, fields)?)) < entry + 2 {
            return Ok(None);
        }
        let offset = u16::from_le_bytes(take(self.bytes, fields + entry)?);
        Ok((offset != 0).then(|| self.at + usize::from(offset)))
    }

    fn number<const N: usize>(&self, number: usize) -> Result<[u8; N]> {
        self.field(number)?.map_or(Ok([0; N]), |at| take(self.bytes, at))
    }

    fn u8(&self, number: usize) -> Result<u8> {
        self.number::<1>(number).map(|[byte]| byte)
    }

    fn bool(&self, number: usize) -> Result<bool> {
        self.u8(number).map(|byte| byte != 0)
    }

    fn i16(&self, number: usize) -> Result<i16> {
        self.number(number).map(i16::from_le_bytes)
    }

    fn i32(&self, number: usize) -> Result<i32> {
        self.number(number).map(i32::from_le_bytes)
    }

    fn i64(&self, number: usize) -> Result<i64> {
        self.number(number).map(i64::from_le_bytes)
    }

    /// Follows the offset at a position.
    fn follow(&self, at: usize) -> Result<usize> {
        at.checked_add(u32::from_le_bytes(take(self.bytes, at)?) as usize).ok_or_else(|| DAMAGED.into())
    }

    fn table(&self, number: usize) -> Result<Option<Self>> {
        let at = self.field(number)?.map(|at| self.follow(at)).transpose()?;
        Ok(at.map(|at| Self { bytes: self.bytes, at }))
    }

    /// Returns the length of a vector and where its first element is.
    fn vector(&self, number: usize) -> Result<(usize, usize)> {
        let Some(at) = self.field(number)? else { return Ok((0, 0)) };
        let at = self.follow(at)?;
        Ok((u32::from_le_bytes(take(self.bytes, at)?) as usize, at + 4))
    }

    fn text(&self, number: usize) -> Result<Option<String>> {
        let (len, at) = self.vector(number)?;
        let bytes = at.checked_add(len).and_then(|end| self.bytes.get(at..end)).ok_or(DAMAGED)?;
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| DAMAGED)?;
        Ok((len > 0).then_some(text))
    }

    fn tables(&self, number: usize) -> Result<Vec<Self>> {
        let (count, at) = self.vector(number)?;
        let table = |index| self.follow(at + 4 * index).map(|at| Self { bytes: self.bytes, at });
        (0..count).map(table).collect()
    }

    /// Returns a vector of structures of two numbers.
    fn pairs(&self, number: usize) -> Result<Vec<[i64; 2]>> {
        let (count, at) = self.vector(number)?;
        let value = |at| take(self.bytes, at).map(i64::from_le_bytes);
        (0..count).map(|index| Ok([value(at + 16 * index)?, value(at + 16 * index + 8)?])).collect()
    }
}

/// Returns so many bytes at a position.
fn take<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied();
    found.ok_or_else(|| DAMAGED.into())
}
