//! Exports that are a folder with a file for each table.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array as _, ArrayRef, DictionaryArray, Int32Array, Int64Array, LargeStringArray, RecordBatch,
    StringArray, StringViewArray, UInt8Array, UInt64Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use floodmark_convert::{Format, Mode, recognize};
use parquet::arrow::ArrowWriter;
use rusqlite::types::Value;

use crate::nsys_db::{Db, Generation, good, minimal, read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Parquet,
    Arrow,
    Stream,
}

/// A table of a database as columns; numbers without a sign where they have none.
fn table(db: &Db, name: &str) -> Option<RecordBatch> {
    let mut statement = db.connection().prepare(&format!("SELECT * FROM {name}")).expect("a table");
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        (0..names.len()).map(|at| row.get::<_, Value>(at)).collect::<Result<Vec<_>, _>>()
    });
    let rows: Vec<Vec<Value>> = rows.expect("rows").map(|row| row.expect("a row")).collect();
    if rows.is_empty() {
        return None;
    }
    let column = |at: usize| -> ArrayRef {
        if rows.iter().any(|row| matches!(row[at], Value::Text(_))) {
            let text =
                |row: &Vec<Value>| if let Value::Text(text) = &row[at] { Some(text.clone()) } else { None };
            return Arc::new(rows.iter().map(text).collect::<StringArray>());
        }
        let ints: Vec<Option<i64>> = rows
            .iter()
            .map(|row| if let Value::Integer(value) = row[at] { Some(value) } else { None })
            .collect();
        match &*names[at] {
            "address" | "globalPid" | "globalTid" => Arc::new(
                ints.into_iter().map(|value| value.map(|value| value as u64)).collect::<UInt64Array>(),
            ),
            "memKind" | "eventClass" => {
                Arc::new(ints.into_iter().map(|value| value.map(|value| value as u8)).collect::<UInt8Array>())
            }
            _ => Arc::new(ints.into_iter().collect::<Int64Array>()),
        }
    };
    let columns = (0..names.len()).map(|at| {
        // Others spell them otherwise.
        let name = if names[at] == "memKind" { "memkind".to_owned() } else { names[at].clone() };
        (name, column(at), true)
    });
    Some(RecordBatch::try_from_iter_with_nullable(columns).expect("columns"))
}

fn folder(db: &Db, form: Form) -> PathBuf {
    let folder = db.path.with_extension(format!("{form:?}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let mut names =
        db.connection().prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").expect("names");
    let names = names.query_map([], |row| row.get::<_, String>(0)).expect("names");
    for name in names.map(|name| name.expect("a name")) {
        let Some(batch) = table(db, &name) else { continue };
        write(&folder, form, &name, &batch);
    }
    folder
}

fn write(folder: &Path, form: Form, name: &str, batch: &RecordBatch) {
    let ending = if form == Form::Parquet { "parquet" } else { "arrow" };
    let file = File::create(folder.join(format!("{name}.{ending}"))).expect("a file");
    match form {
        Form::Parquet => {
            let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
            writer.write(batch).expect("rows");
            writer.close().expect("an end");
        }
        Form::Arrow => {
            let mut writer = FileWriter::try_new(file, &batch.schema()).expect("a writer");
            writer.write(batch).expect("rows");
            writer.finish().expect("an end");
        }
        Form::Stream => {
            let mut writer = StreamWriter::try_new(file, &batch.schema()).expect("a writer");
            writer.write(batch).expect("rows");
            writer.finish().expect("an end");
        }
    }
}

/// A table with one of its columns as another array.
fn with_column(batch: &RecordBatch, name: &str, other: &ArrayRef) -> RecordBatch {
    let fields = batch.schema();
    let columns = fields.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let column = if field.name() == name { other } else { column };
        (field.name().clone(), column.clone(), true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns")
}

fn dictionary(keys: Vec<Option<i32>>, values: ArrayRef) -> ArrayRef {
    Arc::new(DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), values).expect("a dictionary"))
}

#[test]
fn text_is_read_however_it_is_stored() {
    let db = minimal("texts", Generation::B);
    let expected = good(&db.path);
    let batch = table(&db, "StringIds").expect("strings");
    let texts: Vec<String> = batch
        .column_by_name("value")
        .expect("texts")
        .as_string::<i32>()
        .iter()
        .flatten()
        .map(str::to_owned)
        .collect();
    let keys = || (0..texts.len() as i32).map(Some).collect::<Vec<_>>();
    let plain = || Arc::new(StringArray::from_iter_values(&texts)) as ArrayRef;
    let large = || Arc::new(LargeStringArray::from_iter_values(&texts)) as ArrayRef;
    let viewed = || Arc::new(StringViewArray::from_iter_values(&texts)) as ArrayRef;
    let ways = [
        large(),
        viewed(),
        dictionary(keys(), plain()),
        dictionary(keys(), large()),
        dictionary(keys(), viewed()),
    ];
    for form in [Form::Parquet, Form::Arrow, Form::Stream] {
        let folder = folder(&db, form);
        for way in &ways {
            let kind = way.data_type();
            write(&folder, form, "StringIds", &with_column(&batch, "value", way));
            let read = good(&folder);
            assert_eq!(read.stack(&read.events[0]), expected.stack(&expected.events[0]), "{form:?} {kind}");
            assert_eq!(read.stack(&read.events[1]), ["cuMemAlloc_v2"], "{form:?} {kind}");
        }
        fs::remove_dir_all(folder).expect("the folder");
    }
}

#[test]
fn a_dictionary_without_words_is_a_column_without_values() {
    let db = minimal("wordless", Generation::B);
    let expected = good(&db.path);
    let batch = table(&db, "CUDA_GPU_MEMORY_USAGE_EVENTS").expect("events");
    let none = || vec![None; batch.num_rows()];
    let ways = [
        dictionary(none(), Arc::new(StringArray::from_iter_values([""; 0]))),
        dictionary(none(), Arc::new(LargeStringArray::from_iter_values([""; 0]))),
    ];
    for form in [Form::Parquet, Form::Arrow, Form::Stream] {
        let folder = folder(&db, form);
        for way in &ways {
            write(&folder, form, "CUDA_GPU_MEMORY_USAGE_EVENTS", &with_column(&batch, "name", way));
            assert_eq!(good(&folder).events, expected.events, "{form:?}");
        }
        fs::remove_dir_all(folder).expect("the folder");
    }
}

#[test]
fn a_folder_of_tables_reads_like_a_database() {
    for generation in [Generation::A, Generation::B] {
        let db = minimal("folder", generation);
        db.usage(&[(600, i64::MIN | (78 << 24), -4096, 64, 5, 0, 0)]);
        let expected = good(&db.path);
        for form in [Form::Parquet, Form::Arrow, Form::Stream] {
            let folder = folder(&db, form);
            assert_eq!(recognize(&folder).ok(), Some(Format::Nsys), "{form:?}");
            let read = good(&folder);
            assert_eq!(read.events, expected.events, "{form:?}");
            assert_eq!(read.stack(&read.events[0]), expected.stack(&expected.events[0]));
            fs::remove_dir_all(folder).expect("the folder");
        }
    }
}

#[test]
fn a_damaged_table_of_a_folder_is_named() {
    let db = minimal("damaged", Generation::A);
    for form in [Form::Parquet, Form::Arrow] {
        let folder = folder(&db, form);
        let ending = if form == Form::Parquet { "parquet" } else { "arrow" };
        let path = folder.join(format!("CUDA_GPU_MEMORY_USAGE_EVENTS.{ending}"));
        let bytes = fs::read(&path).expect("a file");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("a file");
        let error = read(&folder, Mode::Strict).err().expect("half a file");
        assert!(
            error.contains("CUDA_GPU_MEMORY_USAGE_EVENTS") && error.contains("export the report again"),
            "{error}"
        );
        fs::remove_dir_all(folder).expect("the folder");
    }
}
