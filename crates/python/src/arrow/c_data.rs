//! The structures of the Arrow C data and stream interfaces, and handing arrays over through them.
//!
//! Invariant: each exported structure owns what its pointers point to, through `private_data`, until its `release` is
//! called. A consumer may move a structure and release it later, on any thread and after the stream.
#![expect(unsafe_code, reason = "C structures that are freed by their consumers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::Arc;

const NULLABLE: i64 = 2;
/// Bytes that memory begins with; it doubles as they arrive.
const STEP_BYTES: usize = 16 << 20;

/// EIO, which a stream returns when it cannot be read.
const FAILED: c_int = 5;

/// `struct ArrowSchema`
#[repr(C)]
pub(super) struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`
#[repr(C)]
pub(super) struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`
#[repr(C)]
pub(super) struct ArrowArrayStream {
    get_schema: unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int,
    get_next: unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int,
    get_last_error: unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

// SAFETY: what `private_data` points to is Send, and no two threads use a stream at once.
unsafe impl Send for ArrowArrayStream {}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it has not been released, nor moved to a consumer, which would have cleared `release`.
            unsafe { release(self) };
        }
    }
}

/// A column, or the values of a dictionary.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: CString,
    /// Type in the notation of the C data interface, such as `L` or `tsn:UTC`.
    pub(super) format: CString,
    pub(super) is_nullable: bool,
    pub(super) dictionary: Option<Box<Field>>,
    pub(super) children: Vec<Field>,
}

impl Field {
    pub(super) fn new(name: CString, format: &CStr, is_nullable: bool) -> Self {
        Self { name, format: format.to_owned(), is_nullable, dictionary: None, children: Vec::new() }
    }

    /// The schema of a stream with these columns.
    pub(super) fn of_rows(children: Vec<Self>) -> Self {
        Self { children, ..Self::new(CString::default(), c"+s", false) }
    }
}

/// Memory of arrays, aligned as the format recommends.
#[derive(Debug, Default)]
pub(super) struct Memory {
    lines: Vec<CacheLine>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

impl Memory {
    /// Reads so many bytes.
    pub(super) fn read(input: &mut impl Read, len: usize) -> io::Result<Self> {
        let mut memory = Self::default();
        while memory.len < len {
            // A length that is wrong must not take all memory before the input turns out to be shorter.
            let (done, more) = (memory.len, (len - memory.len).min(memory.len.max(STEP_BYTES)));
            memory.lines.resize((done + more).div_ceil(64), CacheLine([0; 64]));
            memory.len += more;
            input.read_exact(&mut memory.bytes_mut()[done..])?;
        }
        Ok(memory)
    }

    pub(super) fn of(mut bytes: &[u8]) -> Arc<Self> {
        let len = bytes.len();
        // Reading from a slice of that length does not fail.
        Arc::new(Self::read(&mut bytes, len).unwrap_or_default())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the lines are that many initialized bytes, or more.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// A range of memory.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) memory: Arc<Memory>,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Buffer {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { memory: Memory::of(bytes), offset: 0, len: bytes.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.bytes().get(self.offset..self.offset + self.len).unwrap_or_default()
    }
}

/// Values of a column, or rows with columns as children.
#[derive(Clone, Debug, Default)]
pub(super) struct Array {
    pub(super) length: i64,
    pub(super) null_count: i64,
    /// The first says which values are there; none if all are.
    pub(super) buffers: Vec<Option<Buffer>>,
    pub(super) children: Vec<Array>,
    pub(super) dictionary: Option<Box<Array>>,
}

/// Yields batches of rows.
pub(super) trait Batches: Send {
    /// Columns of the batches.
    fn columns(&self) -> Vec<Field>;

    /// Returns the next batch: rows whose children are the columns.
    fn next(&mut self) -> Result<Option<Array>, String>;
}

/// What is behind a stream.
struct StreamState {
    batches: Box<dyn Batches>,
    error: CString,
}

impl ArrowArrayStream {
    pub(super) fn new(batches: Box<dyn Batches>) -> Self {
        let state = Box::new(StreamState { batches, error: CString::default() });
        Self {
            get_schema: stream_schema,
            get_next: stream_next,
            get_last_error: stream_error,
            release: Some(release_stream),
            private_data: Box::into_raw(state).cast(),
        }
    }
}

unsafe extern "C" fn stream_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the consumer passes a stream that was not released and room for a schema.
    unsafe {
        let state = &mut *(*stream).private_data.cast::<StreamState>();
        out.write(export_field(&Field::of_rows(state.batches.columns())));
    }
    0
}

unsafe extern "C" fn stream_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: the consumer passes a stream that was not released, which it alone uses.
    let state = unsafe { &mut *(*stream).private_data.cast::<StreamState>() };
    let next = catch_unwind(AssertUnwindSafe(|| state.batches.next()));
    let array = match next.unwrap_or_else(|_| Err("an internal error (please report this)".into())) {
        Ok(Some(batch)) => export_array(batch),
        Ok(None) => released_array(),
        Err(message) => {
            state.error = CString::new(message.replace('\0', " ")).unwrap_or_default();
            return FAILED;
        }
    };
    // SAFETY: there is room for an array.
    unsafe { out.write(array) };
    0
}

unsafe extern "C" fn stream_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: the consumer passes a stream that was not released; the text lives until its next call.
    let error = unsafe { &(*(*stream).private_data.cast::<StreamState>()).error };
    if error.is_empty() { null() } else { error.as_ptr() }
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: called once, with a stream that `new` made: afterwards `release` is cleared.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<StreamState>()));
        (*stream).private_data = null_mut();
        (*stream).release = None;
    }
}

/// What a schema points to.
struct SchemaState {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
}

fn export_field(field: &Field) -> ArrowSchema {
    let boxed = |field: &Field| Box::into_raw(Box::new(export_field(field)));
    let mut state = Box::new(SchemaState {
        format: field.format.clone(),
        name: field.name.clone(),
        children: field.children.iter().map(boxed).collect(),
        dictionary: field.dictionary.as_deref().map_or(null_mut(), boxed),
    });
    ArrowSchema {
        format: state.format.as_ptr(),
        name: state.name.as_ptr(),
        metadata: null(),
        flags: if field.is_nullable { NULLABLE } else { 0 },
        n_children: state.children.len() as i64,
        children: state.children.as_mut_ptr(),
        dictionary: state.dictionary,
        release: Some(release_schema),
        private_data: Box::into_raw(state).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: called once, with a schema that `export_field` made. Children that were moved have no `release`.
    unsafe {
        let state = Box::from_raw((*schema).private_data.cast::<SchemaState>());
        for child in state.children.iter().copied().chain([state.dictionary]).filter(|child| !child.is_null())
        {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*schema).release = None;
    }
}

/// What an array points to.
struct ArrayState {
    pointers: Vec<*const c_void>,
    _buffers: Vec<Option<Buffer>>,
    children: Vec<*mut ArrowArray>,
    dictionary: *mut ArrowArray,
}

fn export_array(array: Array) -> ArrowArray {
    let boxed = |array: Array| Box::into_raw(Box::new(export_array(array)));
    let pointer =
        |buffer: &Option<Buffer>| buffer.as_ref().map_or(null(), |buffer| buffer.bytes().as_ptr().cast());
    let mut state = Box::new(ArrayState {
        pointers: array.buffers.iter().map(pointer).collect(),
        _buffers: array.buffers,
        children: array.children.into_iter().map(boxed).collect(),
        dictionary: array.dictionary.map_or(null_mut(), |dictionary| boxed(*dictionary)),
    });
    ArrowArray {
        length: array.length,
        null_count: array.null_count,
        offset: 0,
        n_buffers: state.pointers.len() as i64,
        n_children: state.children.len() as i64,
        buffers: state.pointers.as_mut_ptr(),
        children: state.children.as_mut_ptr(),
        dictionary: state.dictionary,
        release: Some(release_array),
        private_data: Box::into_raw(state).cast(),
    }
}

/// Returns an array that was released, which stands for the end of a stream.
fn released_array() -> ArrowArray {
    ArrowArray {
        length: 0,
        null_count: 0,
        offset: 0,
        n_buffers: 0,
        n_children: 0,
        buffers: null_mut(),
        children: null_mut(),
        dictionary: null_mut(),
        release: None,
        private_data: null_mut(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: called once, with an array that `export_array` made. Children that were moved have no `release`.
    unsafe {
        let state = Box::from_raw((*array).private_data.cast::<ArrayState>());
        for child in state.children.iter().copied().chain([state.dictionary]).filter(|child| !child.is_null())
        {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*array).release = None;
    }
}
