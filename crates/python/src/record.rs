//! Recording into a trace: allocations with Python stacks, scopes and marks.
//!
//! Invariant: frames are named once per recording and thread; the code objects they stand for are kept alive as long,
//! so that an address stands for one of them.
#![expect(unsafe_code, reason = "walks the frames of the calling thread")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_event::StackId;
use floodmark_event::tables::Frame;
use floodmark_tail::{self as tail, RecordProps, Recorder, StartError};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Frames of a stack beyond these are left out, the outermost first.
const MAX_FRAMES: usize = 128;
/// Stands for a frame of the package itself, which no stack shows.
const HIDDEN: u32 = u32::MAX;

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);
/// Folder of the package.
static PACKAGE: Mutex<String> = Mutex::new(String::new());

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Start recording into the trace at `path`; `package` is the folder whose functions stacks leave out.
#[pyfunction]
#[pyo3(signature = (path, package, shared_memory_bytes = None))]
pub(crate) fn start_recording(
    path: PathBuf,
    package: String,
    shared_memory_bytes: Option<usize>,
) -> PyResult<()> {
    *PACKAGE.lock().unwrap_or_else(PoisonError::into_inner) = package;
    let mut props = RecordProps::new(path);
    if let Some(bytes) = shared_memory_bytes {
        props.shared_memory_bytes = bytes;
    }
    let started = Recorder::start_global(props).map_err(|error| match &error {
        StartError::Io { act, path, source } => {
            let message = format!("{act}: {source}");
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), message, path.clone().into_os_string()))
        }
        _ => PyRuntimeError::new_err(error.to_string()),
    })?;
    *recorder() = Some(started);
    Ok(())
}

/// Stop recording; return whether there was a recording.
#[pyfunction]
pub(crate) fn stop_recording(py: Python<'_>) -> bool {
    let started = recorder().take();
    // Other threads may be in the middle of a record.
    py.detach(|| started.map(Recorder::stop).is_some())
}

/// Whether this process records.
#[pyfunction]
pub(crate) fn is_recording() -> bool {
    tail::is_recording()
}

/// Record that the program came to a point worth remembering.
#[pyfunction]
pub(crate) fn mark(name: &str) {
    if tail::is_recording() {
        tail::mark(tail::intern(name));
    }
}

/// Frames that a thread has named.
#[derive(Default)]
struct Names {
    recording: u32,
    /// By code object and line.
    frames: HashMap<(usize, i32), u32>,
    /// The code objects of `frames`.
    codes: HashMap<usize, Py<PyAny>>,
}

thread_local! {
    static NAMES: RefCell<Names> = RefCell::default();
}

/// The Python stack of the calling thread in the recording; 0 where there is none.
pub(crate) fn python_stack() -> StackId {
    Python::try_attach(|py| {
        NAMES.try_with(|names| names.try_borrow_mut().ok().map(|mut names| names.stack(py))).ok().flatten()
    })
    .flatten()
    .unwrap_or(StackId(0))
}

impl Names {
    fn stack(&mut self, py: Python<'_>) -> StackId {
        let recording = tail::recording();
        if self.recording != recording {
            *self = Self { recording, ..Self::default() };
        }
        let mut frames = [0u32; MAX_FRAMES];
        let mut count = 0;
        // SAFETY: the interpreter is attached. The frame is borrowed from the thread that runs it, so it is made our own.
        let mut next = unsafe {
            let frame = ffi::PyEval_GetFrame();
            Bound::from_borrowed_ptr_or_opt(py, frame.cast())
        };
        while let Some(frame) = next {
            let id = self.frame(&frame);
            if id != HIDDEN && count < MAX_FRAMES {
                frames[count] = id;
                count += 1;
            }
            // SAFETY: it is a frame; the result is null for the outermost, else a new reference.
            next = unsafe {
                Bound::from_owned_ptr_or_opt(py, ffi::PyFrame_GetBack(frame.as_ptr().cast()).cast())
            };
        }
        frames[..count].iter().rev().fold(StackId(0), |parent, frame| tail::intern_stack(parent, *frame))
    }

    fn frame(&mut self, frame: &Bound<'_, PyAny>) -> u32 {
        // SAFETY: it is a frame; its code is a new reference and never null.
        let (code, line) = unsafe {
            let frame = frame.as_ptr().cast::<ffi::PyFrameObject>();
            let code = Bound::from_owned_ptr(frame_py(), ffi::PyFrame_GetCode(frame).cast());
            (code, ffi::PyFrame_GetLineNumber(frame))
        };
        let key = code.as_ptr().addr();
        if let Some(id) = self.frames.get(&(key, line)) {
            return *id;
        }
        let id = name(&code, line).unwrap_or(HIDDEN);
        self.frames.insert((key, line), id);
        self.codes.entry(key).or_insert_with(|| code.unbind());
        id
    }
}

/// # Safety
/// The interpreter is attached to the calling thread.
unsafe fn frame_py<'py>() -> Python<'py> {
    // SAFETY: the caller's promise.
    unsafe { Python::assume_attached() }
}

/// Names a frame in the recording; none for one of the package itself.
fn name(code: &Bound<'_, PyAny>, line: i32) -> Option<u32> {
    let text = |attribute: &str| code.getattr(attribute).and_then(|value| value.extract::<String>()).ok();
    let file = text("co_filename")?;
    let package = PACKAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if !package.is_empty() && file.starts_with(package.as_str()) {
        return None;
    }
    drop(package);
    let function = text("co_qualname").or_else(|| text("co_name"))?;
    Some(tail::intern_frame(&Frame {
        function: tail::intern(&function),
        file: tail::intern(&file),
        line: u32::try_from(line).unwrap_or(0),
        ..Frame::default()
    }))
}
