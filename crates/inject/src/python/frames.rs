//! The frames of Python code on the calling thread, and stacks in which they stand where the interpreter ran them.
//!
//! The interpreter keeps its frames in a list, which only the thread itself changes, and only while it holds the global
//! lock. So a thread can read its own at any time: while it holds the lock nothing else runs on it, and without the lock, as
//! in a library that gave it up before it allocates, the list stays as it is. Objects that the frames keep alive are read
//! without calling the interpreter then. A stack of the recording is found by the native stack and a hash of the Python
//! frames; only a new pair of both is put together frame by frame.

use std::collections::HashMap;
use std::ffi::CStr;

use floodmark_event::StackId;
use floodmark_event::tables::Frame;
use floodmark_stacks::Replay;
use floodmark_tail::{intern, intern_frame, intern_stack};

use super::{Python, word};
use crate::cold::run_cold;
use crate::thread::Thread;

/// Most frames of Python code that are followed.
const MAX_FRAMES: usize = 1000;
/// Stacks that a thread remembers.
const REMEMBERED: usize = 1 << 12;
/// Owner of a frame that stands for a call from C and has no code.
const ENTRY: u8 = 3;

/// Where a version of `CPython` keeps what is needed.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Of the thread state: what the current frame is found through, if it is not there itself.
    through: Option<usize>,
    current: usize,
    /// Of a frame.
    code: usize,
    previous: usize,
    instruction: usize,
    owner: usize,
    /// A flag of frames that C called; in later versions those are followed by a frame of their own.
    is_entry: Option<usize>,
    /// Of a code object: its instructions.
    instructions: usize,
    /// Of a string: where the characters of one of ASCII begin, and those of another.
    text: (usize, usize),
}

/// Of a code object, in all known versions.
const FILE_NAME: usize = 112;
const QUALIFIED_NAME: usize = 128;

impl Layout {
    pub(super) fn of(version: (u64, u64)) -> Option<Self> {
        let later = Self {
            through: None,
            current: 72,
            code: 0,
            previous: 8,
            instruction: 56,
            owner: 70,
            is_entry: None,
            instructions: 200,
            text: (40, 56),
        };
        match version {
            (3, 11) => Some(Self {
                through: Some(56),
                current: 8,
                code: 32,
                previous: 48,
                instruction: 56,
                owner: 69,
                is_entry: Some(68),
                instructions: 184,
                text: (48, 72),
            }),
            (3, 12) => Some(Self { through: Some(56), current: 0, instructions: 192, ..later }),
            (3, 13) => Some(later),
            _ => None,
        }
    }
}

/// What a thread keeps for stacks with Python frames.
pub(crate) struct PythonThread {
    remembered: Box<[Remembered]>,
    /// Frames in the recording, by code object, its name and instruction.
    frames: HashMap<(usize, usize, usize), u32>,
}

#[derive(Clone, Copy, Default)]
struct Remembered {
    python: u64,
    native: u32,
    merged: u32,
}

/// A frame of Python code.
#[derive(Clone, Copy)]
struct PythonFrame {
    code: *const u8,
    instruction: *const u8,
    /// Whether C called it.
    is_entry: bool,
}

impl Python {
    /// The innermost frame of the calling thread; null if it runs no Python code.
    #[inline]
    fn current_frame(&self) -> *const u8 {
        // SAFETY: functions of the interpreter that may be called by any thread at any time.
        let state = unsafe { (self.thread_state)() };
        if state.is_null() {
            return state;
        }
        // SAFETY: the thread's own state, of a version whose layout is known.
        unsafe {
            match self.layout.through {
                Some(through) => match word(state, through) {
                    frames if frames.is_null() => frames,
                    frames => word(frames, self.layout.current),
                },
                None => word(state, self.layout.current),
            }
        }
    }

    /// Calls `each` with the frames from `frame` on outwards.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    fn frames_from(&self, mut frame: *const u8, mut each: impl FnMut(PythonFrame)) {
        let layout = &self.layout;
        for _ in 0..MAX_FRAMES {
            if frame.is_null() {
                return;
            }
            // SAFETY: a frame of the calling thread, which alone changes its frames.
            unsafe {
                let is_shim = *frame.add(layout.owner) == ENTRY && layout.is_entry.is_none();
                let code = if is_shim { std::ptr::null() } else { word(frame, layout.code) };
                let is_entry = is_shim || layout.is_entry.is_some_and(|flag| *frame.add(flag) != 0);
                each(PythonFrame { code, instruction: word(frame, layout.instruction), is_entry });
                frame = word(frame, layout.previous);
            }
        }
    }
}

/// Returns the stack that `native`, which `replay` has just found, and the Python frames of the thread make together.
#[inline]
pub(crate) fn merged_stack(
    python: &Python,
    thread: &Thread,
    replay: &mut Replay,
    native: StackId,
) -> StackId {
    let frame = python.current_frame();
    if frame.is_null() || native == StackId(0) {
        return native;
    }
    let mut hash = 0_u64;
    python.frames_from(frame, |frame| {
        let value = (frame.code.addr() as u64).rotate_left(20) ^ frame.instruction.addr() as u64;
        hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    });
    let place = (hash ^ u64::from(native.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> (64 - REMEMBERED.trailing_zeros());
    let known = thread.python.get();
    if !known.is_null() {
        // SAFETY: this thread's own.
        let remembered = unsafe { &(*known).remembered }[place as usize];
        if remembered.python == hash && remembered.native == native.0 {
            return StackId(remembered.merged);
        }
    }
    let mut merged = native;
    run_cold(&mut || {
        if thread.python.get().is_null() {
            let remembered = vec![Remembered::default(); REMEMBERED].into();
            thread.python.set(Box::into_raw(Box::new(PythonThread { remembered, frames: HashMap::new() })));
        }
        // SAFETY: this thread's own.
        let own = unsafe { &mut *thread.python.get() };
        merged = own.merge(python, frame, replay, native);
        own.remembered[place as usize] = Remembered { python: hash, native: native.0, merged: merged.0 };
    });
    merged
}

impl PythonThread {
    /// Puts a stack together, outermost frame first.
    fn merge(&mut self, python: &Python, frame: *const u8, replay: &mut Replay, native: StackId) -> StackId {
        let mut frames = Vec::new();
        python.frames_from(frame, |frame| frames.push(frame));
        frames.reverse();
        let natives: Vec<u64> = replay.return_addresses().collect();
        let is_eval = |ra: u64| (python.eval.0..=python.eval.1).contains(&ra);
        let evals = natives.iter().filter(|ra| is_eval(**ra)).count();
        let entries = frames.iter().filter(|frame| frame.is_entry).count();
        if evals == 0 {
            return native;
        }
        let mut rest = frames.as_slice();
        let mut stack = StackId(0);
        for ra in natives {
            if !is_eval(ra) {
                stack = joined(stack, replay.frame_id(ra));
                continue;
            }
            // One call of that function runs Python functions that call each other. If the numbers do not fit, some calls
            // were not recognized: all Python frames stand at the first then.
            let run = if evals == entries { run_length(rest) } else { rest.len() };
            let (now, after) = rest.split_at(run);
            for frame in now.iter().filter(|frame| !frame.code.is_null()) {
                stack = joined(stack, self.frame_id(python, *frame));
            }
            rest = after;
        }
        if stack == StackId(0) { native } else { stack }
    }

    /// The frame of Python code in the recording.
    fn frame_id(&mut self, python: &Python, frame: PythonFrame) -> u32 {
        // SAFETY: a code object of a frame of the calling thread, which keeps it alive.
        let (name, file) = unsafe { (word(frame.code, QUALIFIED_NAME), word(frame.code, FILE_NAME)) };
        // Another code object may come to lie at the same address; it has another name.
        let key = (frame.code.addr(), name.addr(), frame.instruction.addr());
        *self.frames.entry(key).or_insert_with(|| {
            let start = frame.code.wrapping_add(python.layout.instructions);
            let offset = frame.instruction.addr().wrapping_sub(start.addr()) as i32;
            // SAFETY: the code object is alive; its table of lines is only read.
            let line = unsafe { (python.line_of)(frame.code, offset) };
            // SAFETY: as above; both are strings of the code object.
            let (function, file) = unsafe { (text(python, name), text(python, file)) };
            let (function, file) = (intern(&function), intern(&file));
            intern_frame(&Frame {
                function,
                file,
                line: u32::try_from(line).unwrap_or(0),
                ..Frame::default()
            })
        })
    }
}

/// How many frames, from the outermost, one call from C runs.
fn run_length(frames: &[PythonFrame]) -> usize {
    let next = frames.iter().skip(1).position(|frame| frame.is_entry);
    next.map_or(frames.len(), |at| at + 1)
}

/// `frame` called from `stack`; a frame that could not be recorded is left out.
fn joined(stack: StackId, frame: u32) -> StackId {
    match frame {
        0 => stack,
        frame => intern_stack(stack, frame),
    }
}

/// The text of a string of Python.
///
/// # Safety
/// `string` is a string that is alive.
unsafe fn text(python: &Python, string: *const u8) -> String {
    // SAFETY: as the caller guarantees; the text lives as long as the string.
    unsafe {
        if (python.has_lock)() == 0 {
            return text_without_lock(python.layout.text, string);
        }
        let text = (python.text_of)(string, std::ptr::null_mut());
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

/// Most characters of a name that is read without the lock.
const MOST_CHARACTERS: usize = 4096;

/// The text of a string of Python, read where the interpreter keeps it: calling it may change the string, for which the
/// lock is needed.
///
/// # Safety
/// `string` is a string that is alive, of a version with this layout.
unsafe fn text_without_lock((ascii, other): (usize, usize), string: *const u8) -> String {
    const LENGTH: usize = 16;
    const STATE: usize = 32;
    // SAFETY: as the caller guarantees.
    let (length, state) = unsafe { (word(string, LENGTH).addr(), word(string, STATE).addr()) };
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact || ![1, 2, 4].contains(&width) {
        return String::new();
    }
    let data = string.wrapping_add(if is_ascii { ascii } else { other });
    let character = |at: usize| {
        let place = data.wrapping_add(at * width);
        // SAFETY: the string has so many characters of this width.
        let code = unsafe {
            match width {
                1 => u32::from(*place),
                2 => u32::from(place.cast::<u16>().read_unaligned()),
                _ => place.cast::<u32>().read_unaligned(),
            }
        };
        char::from_u32(code).unwrap_or('\u{fffd}')
    };
    (0..length.min(MOST_CHARACTERS)).map(character).collect()
}
