//! An export as a folder with a file for each table: Parquet (`parquetdir`) or Arrow (`arrowdir`).
//!
//! Numbers keep the type they have in Nsight Systems, which is often without a sign; here they are what
//! they are in a database.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, LargeStringArray, RecordBatch, StringArray, StringViewArray};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use floodmark_store::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::export::{Catalog, Row, Value, Visit, malformed};

/// Tables that tell an export from other folders.
const TELLING: [&str; 3] = ["StringIds", super::memory::TABLE, "META_DATA_EXPORT"];
/// How every Arrow file but a stream begins.
const ARROW_MAGIC: &[u8] = b"ARROW1";

/// How a table is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Parquet,
    Arrow,
}

impl Encoding {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "parquet" | "pq" => Some(Self::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// Whether a folder has tables of an export.
pub(super) fn is_export(path: &Path) -> bool {
    path.is_dir()
        && files(path).is_ok_and(|files| TELLING.iter().any(|table| files.contains_key(&lower(table))))
}

fn lower(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Files of tables by the tables' names in small letters.
fn files(path: &Path) -> std::io::Result<HashMap<String, (PathBuf, Encoding)>> {
    let mut files = HashMap::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if let (Some(encoding), Some(stem)) =
            (Encoding::of(&path), path.file_stem().and_then(|stem| stem.to_str()))
        {
            files.insert(lower(stem), (path.clone(), encoding));
        }
    }
    Ok(files)
}

/// A folder.
pub(crate) struct Folder {
    catalog: Catalog,
    files: HashMap<String, (PathBuf, Encoding)>,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let files = files(path).map_err(Error::io("reading", path))?;
        let mut catalog = Catalog::default();
        for (path, encoding) in files.values() {
            let table = path.file_stem().unwrap_or_default().to_string_lossy();
            let (schema, _) = batches(path, *encoding, &table, None)?;
            catalog.add(&table, schema.fields().iter().map(|field| field.name().clone()));
        }
        Ok(Self { catalog, files })
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn scan(&self, table: &str, columns: &[&str], visit: Visit<'_>) -> Result<()> {
        let Some((path, encoding)) = self.files.get(&lower(table)) else { return Ok(()) };
        let names: Vec<Option<&str>> =
            columns.iter().map(|column| self.catalog.column(table, column)).collect();
        let (_, batches) = batches(path, *encoding, table, Some(&names))?;
        for batch in batches {
            let batch = batch.map_err(|error| damaged(path, table, &error))?;
            let cells = |name: Option<&str>| {
                name.and_then(|name| batch.column_by_name(name)).map_or(Cells::Null, cells)
            };
            let cells: Vec<Cells> = names.iter().copied().map(cells).collect();
            for row in 0..batch.num_rows() {
                visit(&Row::Folder(FolderRow { cells: &cells, row }))?;
            }
        }
        Ok(())
    }
}

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>>>;

/// Opens a table: its columns, and its rows with those of `names`, or all.
fn batches(
    path: &Path,
    encoding: Encoding,
    table: &str,
    names: Option<&[Option<&str>]>,
) -> Result<(SchemaRef, Batches)> {
    let file = File::open(path).map_err(Error::io("opening", path))?;
    match encoding {
        Encoding::Parquet => {
            let broken = |error: parquet::errors::ParquetError| damaged(path, table, &error.into());
            let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(broken)?;
            let schema = builder.schema().clone();
            let wanted = names.into_iter().flatten().flatten().copied();
            let mask = ProjectionMask::columns(builder.parquet_schema(), wanted);
            let reader = if names.is_some() { builder.with_projection(mask) } else { builder };
            let reader = reader.build().map_err(broken)?;
            Ok((schema, Box::new(reader)))
        }
        Encoding::Arrow => {
            let broken = |error: ArrowError| damaged(path, table, &error);
            let mut input = BufReader::new(file);
            let mut head = [0; ARROW_MAGIC.len()];
            let is_file = input.read_exact(&mut head).is_ok() && head == ARROW_MAGIC;
            input.rewind().map_err(Error::io("reading", path))?;
            if is_file {
                let reader = FileReader::try_new(input, None).map_err(broken)?;
                Ok((reader.schema(), Box::new(reader)))
            } else {
                let reader = StreamReader::try_new(input, None).map_err(broken)?;
                Ok((reader.schema(), Box::new(reader)))
            }
        }
    }
}

fn damaged(path: &Path, table: &str, error: &ArrowError) -> Error {
    malformed(
        path,
        table,
        format!("{}; export the report again, or with --type sqlite", error.to_string().escape_debug()),
    )
}

/// The values of a column in one batch.
enum Cells {
    Null,
    Ints(Vec<Option<i64>>),
    Text(StringArray),
    LargeText(LargeStringArray),
    ViewedText(StringViewArray),
    /// Values by their places in a dictionary.
    Words(Vec<Option<usize>>, Box<Self>),
    Other(ArrayRef),
}

impl Cells {
    fn value(&self, row: usize) -> Value<'_> {
        match self {
            Self::Ints(values) => values[row].map_or(Value::Null, Value::Int),
            Self::Text(texts) if texts.is_valid(row) => Value::Text(texts.value(row).as_bytes()),
            Self::LargeText(texts) if texts.is_valid(row) => Value::Text(texts.value(row).as_bytes()),
            Self::ViewedText(texts) if texts.is_valid(row) => Value::Text(texts.value(row).as_bytes()),
            Self::Words(places, words) => places[row].map_or(Value::Null, |place| words.value(place)),
            Self::Other(array) if array.is_valid(row) => Value::Other,
            _ => Value::Null,
        }
    }
}

fn cells(array: &ArrayRef) -> Cells {
    macro_rules! ints {
        ($kind:ty) => {
            Cells::Ints(array.as_primitive::<$kind>().iter().map(|value| value.map(i64::from)).collect())
        };
    }
    match array.data_type() {
        DataType::Null => Cells::Null,
        DataType::Int8 => ints!(Int8Type),
        DataType::Int16 => ints!(Int16Type),
        DataType::Int32 => ints!(Int32Type),
        DataType::Int64 => ints!(Int64Type),
        DataType::UInt8 => ints!(UInt8Type),
        DataType::UInt16 => ints!(UInt16Type),
        DataType::UInt32 => ints!(UInt32Type),
        DataType::UInt64 => {
            let signed =
                array.as_primitive::<UInt64Type>().iter().map(|value| value.map(|value| value as i64));
            Cells::Ints(signed.collect())
        }
        DataType::Float64 => {
            // Other tools turn columns with nulls into these.
            let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64);
            Cells::Ints(
                array.as_primitive::<Float64Type>().iter().map(|value| value.and_then(whole)).collect(),
            )
        }
        DataType::Boolean => {
            Cells::Ints(array.as_boolean().iter().map(|value| value.map(i64::from)).collect())
        }
        DataType::Utf8 => Cells::Text(array.as_string::<i32>().clone()),
        DataType::LargeUtf8 => Cells::LargeText(array.as_string::<i64>().clone()),
        DataType::Utf8View => Cells::ViewedText(array.as_string_view().clone()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            // A dictionary without values has no place that a key could be brought to.
            if dictionary.values().is_empty() {
                return Cells::Null;
            }
            let places = dictionary.normalized_keys().into_iter().enumerate();
            let places = places.map(|(row, place)| dictionary.is_valid(row).then_some(place));
            Cells::Words(places.collect(), Box::new(cells(dictionary.values())))
        }
        _ => Cells::Other(array.clone()),
    }
}

/// The current row of a scan.
pub(crate) struct FolderRow<'a> {
    cells: &'a [Cells],
    row: usize,
}

impl FolderRow<'_> {
    pub(super) fn value(&self, column: usize) -> Value<'_> {
        self.cells.get(column).map_or(Value::Null, |cells| cells.value(self.row))
    }
}
