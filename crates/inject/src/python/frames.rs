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
    /// A number that no other code object of the process ever had.
    version: Option<usize>,
    /// Of a string: where the characters of one of ASCII begin, and those of another.
    text: (usize, usize),
}

/// Of a code object, in all known versions.
const FILE_NAME: usize = 112;
const NAME: usize = 120;
const QUALIFIED_NAME: usize = 128;
/// The same in 3.11.
const FIRST_LINE: usize = 72;
/// Of a string: the hash of its text.
const HASH: usize = 24;

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
            version: Some(92),
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
                version: None,
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
    /// Frames in the recording.
    frames: HashMap<PythonPlace, u32>,
    /// The stack that was put together last, outermost first: the next one mostly begins as it does.
    last: Vec<Joined>,
    /// Memory for putting a stack together.
    python: Vec<PythonFrame>,
    natives: Vec<u64>,
}

/// A code object, what tells it from others that come to lie at its address, and an instruction of it.
type PythonPlace = (usize, u64, usize);

/// A frame of a stack that was put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A native one, by its number in the recording.
    Native(u32),
    Python(PythonPlace),
}

/// A frame with the stack from the outermost one to it.
#[derive(Clone, Copy)]
struct Joined {
    part: Part,
    stack: StackId,
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
    /// What tells the code object from others that come to lie at its address.
    identity: u64,
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
                let identity = if code.is_null() { 0 } else { self.identity(code) };
                each(PythonFrame { code, identity, instruction: word(frame, layout.instruction), is_entry });
                frame = word(frame, layout.previous);
            }
        }
    }

    /// What tells a code object from others that come to lie at its address, of which a program that runs texts makes
    /// many: its number, or else its names and its first line.
    ///
    /// # Safety
    /// The code object is alive, and of a version with this layout.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the recording path")]
    unsafe fn identity(&self, code: *const u8) -> u64 {
        // SAFETY: as the caller guarantees; its name lives as long as it does.
        unsafe {
            let number = |at: usize| u64::from(code.add(at).cast::<u32>().read_unaligned());
            match self.layout.version {
                Some(version) => number(version),
                None => {
                    let [file, name, qualified] = [FILE_NAME, NAME, QUALIFIED_NAME].map(|at| word(code, at));
                    (word(name, HASH).addr() as u64).wrapping_add(number(FIRST_LINE) << 48)
                        ^ (file.addr() as u64).rotate_left(24)
                        ^ (qualified.addr() as u64).rotate_left(36)
                }
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
        let value = (frame.code.addr() as u64).rotate_left(20)
            ^ frame.identity.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ frame.instruction.addr() as u64;
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
            thread.python.set(Box::into_raw(Box::new(PythonThread::new())));
        }
        // SAFETY: this thread's own.
        let own = unsafe { &mut *thread.python.get() };
        merged = own.merge(python, frame, replay, native);
        own.remembered[place as usize] = Remembered { python: hash, native: native.0, merged: merged.0 };
    });
    merged
}

impl PythonThread {
    fn new() -> Self {
        Self {
            remembered: vec![Remembered::default(); REMEMBERED].into(),
            frames: HashMap::new(),
            last: Vec::new(),
            python: Vec::new(),
            natives: Vec::new(),
        }
    }

    /// Puts a stack together, outermost frame first.
    fn merge(&mut self, python: &Python, frame: *const u8, replay: &mut Replay, native: StackId) -> StackId {
        let (mut frames, mut natives) = (std::mem::take(&mut self.python), std::mem::take(&mut self.natives));
        frames.clear();
        python.frames_from(frame, |frame| frames.push(frame));
        frames.reverse();
        natives.clear();
        natives.extend(replay.return_addresses());
        let stack = self.merge_frames(python, &frames, replay, &natives);
        (self.python, self.natives) = (frames, natives);
        stack.unwrap_or(native)
    }

    /// Does that with the Python frames and the native return addresses, outermost first; none if no native frame runs
    /// Python code.
    fn merge_frames(
        &mut self,
        python: &Python,
        frames: &[PythonFrame],
        replay: &mut Replay,
        natives: &[u64],
    ) -> Option<StackId> {
        let is_eval = |ra: u64| (python.eval.0..=python.eval.1).contains(&ra);
        let evals = natives.iter().filter(|ra| is_eval(**ra)).count();
        let entries = frames.iter().filter(|frame| frame.is_entry).count();
        if evals == 0 {
            return None;
        }
        let mut rest = frames;
        let mut count = 0;
        for ra in natives {
            if !is_eval(*ra) {
                count = self.join(count, Part::Native(replay.frame_id(*ra)), python);
                continue;
            }
            // One call of that function runs Python functions that call each other. If the numbers do not fit, some calls
            // were not recognized: all Python frames stand at the first then.
            let run = if evals == entries { run_length(rest) } else { rest.len() };
            let (now, after) = rest.split_at(run);
            for frame in now.iter().filter(|frame| !frame.code.is_null()) {
                let place = (frame.code.expose_provenance(), frame.identity, frame.instruction.addr());
                count = self.join(count, Part::Python(place), python);
            }
            rest = after;
        }
        self.last.truncate(count);
        self.last.last().map(|last| last.stack).filter(|stack| *stack != StackId(0))
    }

    /// Adds a frame to the first `count` of the stack, unless it is there from the last one; returns how many they are now.
    fn join(&mut self, count: usize, part: Part, python: &Python) -> usize {
        if self.last.get(count).is_none_or(|last| last.part != part) {
            self.last.truncate(count);
            let outer = self.last.last().map_or(StackId(0), |last| last.stack);
            let frame = match part {
                Part::Native(frame) => frame,
                Part::Python(place) => self.frame_id(python, place),
            };
            // A frame that could not be recorded is left out.
            let stack = if frame == 0 { outer } else { intern_stack(outer, frame) };
            self.last.push(Joined { part, stack });
        }
        count + 1
    }

    /// The frame of Python code in the recording. The calling thread has a frame there, which keeps the code object alive.
    fn frame_id(&mut self, python: &Python, place: PythonPlace) -> u32 {
        *self.frames.entry(place).or_insert_with(|| {
            let (code, _, instruction) = place;
            let code = std::ptr::with_exposed_provenance::<u8>(code);
            let start = code.wrapping_add(python.layout.instructions);
            let offset = instruction.wrapping_sub(start.addr()) as i32;
            // SAFETY: the code object is alive; its table of lines is only read.
            let line = unsafe { (python.line_of)(code, offset) };
            // SAFETY: as above; both are strings of the code object.
            let [function, file] =
                [QUALIFIED_NAME, FILE_NAME].map(|at| unsafe { text(python, word(code, at)) });
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
