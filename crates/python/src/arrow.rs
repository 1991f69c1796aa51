//! Tables for other libraries through the Arrow C stream interface.
//!
//! A stream is a capsule `arrow_array_stream` that pandas, Polars, PyArrow, DuckDB and others import without a copy.
//! The tables of a trace come from a `floodmark` command as an Arrow IPC stream: each message is read into one buffer,
//! and arrays point into it. So a table of any length needs the memory of one batch here.
//!
//! Invariants: a stream owns all it needs, so it outlives the Python objects it was made from; a command is waited for
//! at the end of its stream and killed if the consumer releases the stream early.

mod c_data;
mod ipc;

use std::ffi::{CStr, CString};
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use self::c_data::{Array, ArrowArrayStream, Batches, Buffer, Field};
use self::ipc::StreamReader;

pyo3::create_exception!(
    floodmark,
    TraceError,
    PyException,
    "What the command says about an input that it cannot read, or an option that it does not know."
);

/// Name of a capsule with a stream, as the Arrow PyCapsule interface has it.
const STREAM_NAME: &CStr = c"arrow_array_stream";
/// Bytes of an error message that are kept.
const MESSAGE_BYTES: u64 = 16 << 10;

fn capsule(py: Python<'_>, batches: Box<dyn Batches>) -> PyResult<Bound<'_, PyCapsule>> {
    // A consumer takes the stream out of the capsule and marks it released; otherwise the capsule releases it.
    PyCapsule::new_with_value(py, ArrowArrayStream::new(batches), STREAM_NAME)
}

/// Record batches that a command writes to its stdout.
struct CommandStream {
    columns: Vec<Field>,
    /// None at the end.
    reader: Option<StreamReader<ChildStdout>>,
    command: RunningCommand,
}

impl Batches for CommandStream {
    fn columns(&self) -> Vec<Field> {
        self.columns.clone()
    }

    fn next(&mut self) -> Result<Option<Array>, String> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let next = reader.next();
        if !matches!(next, Ok(Some(_))) {
            // Closed first: the command may be waiting for its output to be read.
            self.reader = None;
            // Where reading failed, the command knows better why.
            self.command.finish()?;
        }
        next
    }
}

/// A command, killed when it is dropped before its end.
struct RunningCommand {
    child: Child,
    /// Reads what it writes to stderr, so that it never waits for that.
    messages: Option<JoinHandle<Vec<u8>>>,
}

impl RunningCommand {
    /// Waits until the command has ended; an error is what it wrote to stderr if it failed.
    fn finish(&mut self) -> Result<(), String> {
        let message = self.messages.take().and_then(|messages| messages.join().ok()).unwrap_or_default();
        // A program that waits for all its children may have been faster; the stream says whether it is complete.
        let Some(status) = self.child.wait().ok().filter(|status| !status.success()) else { return Ok(()) };
        let message = String::from_utf8_lossy(&message).trim().to_owned();
        Err(if message.is_empty() { format!("the floodmark command ended early: {status}") } else { message })
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads a stream to its end; returns its beginning.
fn message_of(mut stream: impl Read) -> Vec<u8> {
    let mut message = Vec::new();
    let _ = stream.by_ref().take(MESSAGE_BYTES).read_to_end(&mut message);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    message
}

fn start(arguments: &[String]) -> PyResult<CommandStream> {
    let (program, rest) =
        arguments.split_first().ok_or_else(|| PyValueError::new_err("there is no command"))?;
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            PyOSError::new_err((error.raw_os_error().unwrap_or(0), error.to_string(), program.clone()))
        })?;
    let reading = std::thread::Builder::new().name("floodmark-messages".to_owned());
    // Without the thread only the reason for a failure is missing.
    let messages = child.stderr.take().and_then(|stderr| reading.spawn(move || message_of(stderr)).ok());
    let mut command = RunningCommand { child, messages };
    let stdout =
        command.child.stdout.take().ok_or_else(|| TraceError::new_err("the command has no stdout"))?;
    match StreamReader::open(stdout) {
        Ok(reader) => Ok(CommandStream { columns: reader.columns(), reader: Some(reader), command }),
        Err(error) => Err(TraceError::new_err(command.finish().err().unwrap_or(error))),
    }
}

/// Run a command that writes an Arrow IPC stream to its stdout; return a capsule with the stream.
#[pyfunction]
pub(crate) fn arrow_stream_of_command(
    py: Python<'_>,
    arguments: Vec<String>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = py.detach(|| start(&arguments))?;
    capsule(py, Box::new(stream))
}

/// One batch of columns.
struct Columns {
    fields: Vec<Field>,
    rows: Option<Array>,
}

impl Batches for Columns {
    fn columns(&self) -> Vec<Field> {
        self.fields.clone()
    }

    fn next(&mut self) -> Result<Option<Array>, String> {
        Ok(self.rows.take())
    }
}

/// Make a capsule with a stream of one batch from columns, each a name, a type and a list of values or None.
#[pyfunction]
pub(crate) fn arrow_stream_of_columns<'py>(
    py: Python<'py>,
    columns: Vec<(String, String, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut rows = Array { buffers: vec![None], ..Array::default() };
    for (name, kind, values) in columns {
        let (format, array) = array_of(&kind, &values)?;
        if !rows.children.is_empty() && rows.length != array.length {
            return Err(PyValueError::new_err("columns have different lengths"));
        }
        let name = CString::new(name).map_err(|_| PyValueError::new_err("a name contains a NUL"))?;
        let children =
            if kind == "list[str]" { vec![Field::new(c"item".into(), c"u", true)] } else { vec![] };
        fields.push(Field { children, ..Field::new(name, format, true) });
        rows.length = array.length;
        rows.children.push(array);
    }
    capsule(py, Box::new(Columns { fields, rows: Some(rows) }))
}

fn array_of(kind: &str, values: &Bound<'_, PyAny>) -> PyResult<(&'static CStr, Array)> {
    Ok(match kind {
        "int" => (c"l", fixed(&values.extract::<Vec<Option<i64>>>()?, i64::to_le_bytes)),
        "time" => (c"tsn:UTC", fixed(&values.extract::<Vec<Option<i64>>>()?, i64::to_le_bytes)),
        "unsigned" => (c"L", fixed(&values.extract::<Vec<Option<u64>>>()?, u64::to_le_bytes)),
        "float" => (c"g", fixed(&values.extract::<Vec<Option<f64>>>()?, f64::to_le_bytes)),
        "bool" => {
            let values = values.extract::<Vec<Option<bool>>>()?;
            let bits = bits(values.iter().map(|value| value.unwrap_or(false)));
            (c"b", plain(&values, [bits]))
        }
        "str" => (c"u", texts(&values.extract::<Vec<Option<String>>>()?)?),
        "list[str]" => {
            let values = values.extract::<Vec<Option<Vec<String>>>>()?;
            let offsets = offsets(values.iter().map(|list| list.as_ref().map_or(0, Vec::len)))?;
            let items: Vec<Option<String>> = values.iter().flatten().flatten().cloned().map(Some).collect();
            (c"+l", Array { children: vec![texts(&items)?], ..plain(&values, [offsets]) })
        }
        _ => return Err(PyValueError::new_err(format!("there is no type of columns named {kind:?}"))),
    })
}

/// Makes an array of buffers, with another in front for the values that are there.
fn plain<T, const N: usize>(values: &[Option<T>], buffers: [Vec<u8>; N]) -> Array {
    let null_count = values.iter().filter(|value| value.is_none()).count() as i64;
    let validity = (null_count > 0).then(|| Buffer::of(&bits(values.iter().map(Option::is_some))));
    let buffers = buffers.iter().map(|bytes| Some(Buffer::of(bytes)));
    let buffers = std::iter::once(validity).chain(buffers).collect();
    Array { length: values.len() as i64, null_count, buffers, ..Array::default() }
}

fn fixed<T: Copy + Default>(values: &[Option<T>], bytes: impl Fn(T) -> [u8; 8]) -> Array {
    plain(values, [values.iter().flat_map(|value| bytes(value.unwrap_or_default())).collect()])
}

fn texts(values: &[Option<String>]) -> PyResult<Array> {
    let offsets = offsets(values.iter().map(|text| text.as_ref().map_or(0, String::len)))?;
    let bytes = values.iter().flatten().map(String::as_str).collect::<String>().into_bytes();
    Ok(plain(values, [offsets, bytes]))
}

/// Packs bits, the first in the lowest place.
fn bits(values: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, value) in values.enumerate() {
        if index % 8 == 0 {
            bytes.push(0);
        }
        if let Some(byte) = bytes.last_mut() {
            *byte |= u8::from(value) << (index % 8);
        }
    }
    bytes
}

fn offsets(lengths: impl Iterator<Item = usize>) -> PyResult<Vec<u8>> {
    let mut bytes = 0i32.to_le_bytes().to_vec();
    let mut end = 0usize;
    for length in lengths {
        end += length;
        let offset = i32::try_from(end).map_err(|_| PyValueError::new_err("a column has more than 2 GiB"))?;
        bytes.extend(offset.to_le_bytes());
    }
    Ok(bytes)
}
