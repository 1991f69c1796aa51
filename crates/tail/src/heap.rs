//! How the recorder of the heap is told what to record, and what it leaves in the trace: the protocol between
//! `floodmark run --heap` and the library that it preloads into the command (`crates/inject`).
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `FLOODMARK_TRACE` | directory of the running trace; without it nothing is recorded |
//! | `FLOODMARK_HEAP` | options of [`HeapOptions`], comma-separated; without it nothing is recorded |
//! | `LD_PRELOAD` | the library, before what was there already, separated by `:` |
//!
//! | option | meaning |
//! |---|---|
//! | `all` | every allocation; the default, also of an empty text |
//! | `sample:BYTES` | a sample: an allocation about every BYTES bytes of each thread |
//! | `python` | every allocation, with the small objects of `CPython` that pymalloc divides |
//! | `stacks=on`, `stacks=off` | whether allocations have stacks; the default is `on` |
//! | `depth=N` | most frames of a stack, counted from the innermost one |
//! | `check=on`, `check=off` | whether each stack is found in a second way and compared, for tests; the default is `off` |
//! | `min=BYTES` | records only allocations of at least that many bytes, and their frees |
//! | `only=NAME` | records only programs whose file has this name; may be given several times |
//! | `not=NAME` | does not record programs whose file has this name; may be given several times |
//!
//! An option that the library does not know is left out, with a note in the trace. Children inherit the environment, so
//! the whole tree of processes is recorded, each process with a ring of its own.
//!
//! # Trace
//!
//! | what | kind | resource |
//! |---|---|---|
//! | blocks of `malloc` and its like | `pageable` | [`MALLOC_RESOURCE`] |
//! | small objects that pymalloc divides (`python`) | `pageable` | [`PYMALLOC_RESOURCE`] |
//! | mappings by `mmap` | `mapped` | [`MMAP_RESOURCE`] |
//!
//! A block has one resource: an object that pymalloc passes on to `malloc` is recorded once, under
//! [`PYMALLOC_RESOURCE`]. Mappings that `malloc` makes for itself are not recorded. The live bytes of the heap are those
//! of the kind `pageable`; what is `mapped` is address space, overlaps with the arenas that pymalloc and other allocators
//! map, and is never added to it.
//!
//! Of a sample, `bytes` is the size divided by the probability with which a block of that size is sampled, so that sums
//! over the trace estimate the sums over the program without bias: [`scaled_bytes`].
//!
//! Each process says how it was recorded in frames that are in no stack: their function is [`HEAP_NOTE`], their file is
//! the text, and their line is a number if the text has one. [`HeapNote`] lists the texts. Events that are known to be
//! missing are counted in the header of the ring, as for any other recorder.

use std::fmt;

/// Environment variable with the directory of the running trace.
pub const TRACE_VARIABLE: &str = "FLOODMARK_TRACE";
/// Environment variable with the options of [`HeapOptions`].
pub const HEAP_VARIABLE: &str = "FLOODMARK_HEAP";

/// Resource of blocks that `malloc`, `calloc`, `realloc` and aligned variants returned.
pub const MALLOC_RESOURCE: &str = "malloc";
/// Resource of objects that `CPython`'s own allocator returned.
pub const PYMALLOC_RESOURCE: &str = "pymalloc";
/// Resource of mappings.
pub const MMAP_RESOURCE: &str = "mmap";

/// Function of a frame in no stack that says how the heap of a process was recorded.
pub const HEAP_NOTE: &str = "(heap capture)";

/// Bytes between two samples where the option names none.
pub const DEFAULT_SAMPLE_BYTES: u64 = 512 << 10;
/// Most frames of a stack where the options name no number, and the most that they can name.
pub const MAX_DEPTH: u32 = 512;

/// Which allocations are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapMode {
    /// Every one.
    #[default]
    All,
    /// About one in that many bytes of each thread.
    Sample(u64),
    /// Every one, and the objects that pymalloc divides.
    Python,
}

/// What the recorder of the heap is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapOptions {
    /// Which allocations are recorded.
    pub mode: HeapMode,
    /// Whether they have stacks.
    pub stacks: bool,
    /// Most frames of a stack, counted from the innermost one.
    pub depth: u32,
    /// Whether each stack is found in a second way and compared, for tests.
    pub check: bool,
    /// Least bytes of an allocation that is recorded.
    pub min_bytes: u64,
    /// Names of programs that are recorded; all if there are none.
    pub only: Vec<String>,
    /// Names of programs that are not recorded.
    pub not: Vec<String>,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self {
            mode: HeapMode::All,
            stacks: true,
            depth: MAX_DEPTH,
            check: false,
            min_bytes: 0,
            only: Vec::new(),
            not: Vec::new(),
        }
    }
}

/// An option that is not known or has no valid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption {
    /// The variable that has it.
    pub variable: &'static str,
    /// The option.
    pub text: String,
}

impl fmt::Display for UnknownOption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the option {:?} of {} is not known", self.text, self.variable)
    }
}

impl std::error::Error for UnknownOption {}

impl HeapOptions {
    /// Parses the value of [`HEAP_VARIABLE`]. Options that are not known change nothing and are returned beside.
    pub fn parse(text: &str) -> (Self, Vec<UnknownOption>) {
        let mut options = Self::default();
        let mut unknown = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if options.set(word).is_none() {
                unknown.push(UnknownOption { variable: HEAP_VARIABLE, text: word.to_owned() });
            }
        }
        (options, unknown)
    }

    fn set(&mut self, word: &str) -> Option<()> {
        if let Some((name, value)) = word.split_once('=') {
            match name {
                "stacks" => self.stacks = on_or_off(value)?,
                "check" => self.check = on_or_off(value)?,
                "depth" => self.depth = value.parse::<u32>().ok()?.clamp(1, MAX_DEPTH),
                "min" => self.min_bytes = value.parse().ok()?,
                "only" => self.only.push(value.to_owned()),
                "not" => self.not.push(value.to_owned()),
                _ => return None,
            }
            return Some(());
        }
        self.mode = match word.split_once(':') {
            Some(("sample", bytes)) => HeapMode::Sample(bytes.parse().ok().filter(|bytes| *bytes > 0)?),
            None if word == "sample" => HeapMode::Sample(DEFAULT_SAMPLE_BYTES),
            None if word == "all" => HeapMode::All,
            None if word == "python" => HeapMode::Python,
            _ => return None,
        };
        Some(())
    }

    /// Whether a program whose file is called `name` is recorded.
    pub fn selects_program(&self, name: &str) -> bool {
        let is_named = |names: &[String]| names.iter().any(|other| other == name);
        (self.only.is_empty() || is_named(&self.only)) && !is_named(&self.not)
    }
}

pub(crate) fn on_or_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Writes the value of [`HEAP_VARIABLE`].
impl fmt::Display for HeapOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            HeapMode::All => out.write_str("all")?,
            HeapMode::Sample(bytes) => write!(out, "sample:{bytes}")?,
            HeapMode::Python => out.write_str("python")?,
        }
        if !self.stacks {
            out.write_str(",stacks=off")?;
        }
        if self.depth != MAX_DEPTH {
            write!(out, ",depth={}", self.depth)?;
        }
        if self.check {
            out.write_str(",check=on")?;
        }
        if self.min_bytes > 0 {
            write!(out, ",min={}", self.min_bytes)?;
        }
        for name in &self.only {
            write!(out, ",only={name}")?;
        }
        for name in &self.not {
            write!(out, ",not={name}")?;
        }
        Ok(())
    }
}

/// Texts of the frames with the function [`HEAP_NOTE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapNote {
    /// Every allocation is recorded; the line is the least number of bytes, 0 for all.
    All,
    /// A sample; the line is the number of bytes between two samples.
    Sampled,
    /// Objects of pymalloc are recorded too; the line is the version of `CPython`, as in 311 for 3.11.
    Python,
    /// The objects of this version of `CPython` cannot be recorded.
    PythonUnknown,
    /// The program was recorded from its middle on: blocks from before are not known.
    Attached,
    /// The program has an allocator of its own linked into it, which is not recorded.
    OwnAllocator,
    /// The allocator that the program brings has an `operator new` of its own, which is not recorded.
    OwnNew,
    /// The program was built with a sanitizer and is not recorded.
    Sanitizer,
    /// An option that the library does not know was left out.
    UnknownOption,
    /// The recorder failed repeatedly and switched itself off.
    SwitchedOff,
    /// Stacks were checked; the line is their number.
    Checked,
    /// Checked stacks were wrong; the line is their number.
    Mismatch,
}

impl HeapNote {
    /// All notes.
    pub const ALL: [Self; 12] = [
        Self::All,
        Self::Sampled,
        Self::Python,
        Self::PythonUnknown,
        Self::Attached,
        Self::OwnAllocator,
        Self::OwnNew,
        Self::Sanitizer,
        Self::UnknownOption,
        Self::SwitchedOff,
        Self::Checked,
        Self::Mismatch,
    ];

    /// The text in the trace.
    pub const fn text(self) -> &'static str {
        match self {
            Self::All => "every allocation is recorded",
            Self::Sampled => "a sample of the allocations is recorded",
            Self::Python => "objects of pymalloc are recorded",
            Self::PythonUnknown => "objects of this version of CPython cannot be recorded",
            Self::Attached => "blocks allocated before the recorder was loaded are not known",
            Self::OwnAllocator => "the program brings its own allocator, which is not recorded",
            Self::OwnNew => {
                "operator new of the program's allocator does not call malloc and is not recorded"
            }
            Self::Sanitizer => "the program was built with a sanitizer and is not recorded",
            Self::UnknownOption => "an option of FLOODMARK_HEAP is not known and was left out",
            Self::SwitchedOff => "the recorder of the heap failed repeatedly and switched itself off",
            Self::Checked => "stacks were found in two ways and compared",
            Self::Mismatch => "stacks that were found in two ways differ",
        }
    }

    /// The note with this text, if there is one.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|note| note.text() == text)
    }
}

/// Returns what a sampled block of `bytes` bytes counts, where a sample is taken every `period` bytes on average: its size
/// divided by its probability of being sampled, `1 - exp(-bytes / period)`.
pub fn scaled_bytes(bytes: u64, period: u64) -> u64 {
    // A block of no bytes counts as one byte: it can be sampled like one.
    let ratio = bytes.max(1) as f64 / period.max(1) as f64;
    (bytes.max(1) as f64 / -(-ratio).exp_m1()).round() as u64
}

/// Returns how many blocks a sampled block stands for whose scaled size is `scaled`.
pub fn scaled_blocks(scaled: u64, period: u64) -> f64 {
    // The scaled size grows with the size, so the size is found by halving.
    let (mut low, mut high) = (1_u64, scaled.max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if scaled_bytes(middle, period) < scaled { low = middle + 1 } else { high = middle }
    }
    1.0 / -(-(low as f64) / period.max(1) as f64).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_environment() {
        let options = HeapOptions {
            mode: HeapMode::Sample(4096),
            stacks: false,
            depth: 20,
            check: true,
            min_bytes: 64,
            only: vec!["python3".into(), "cc1plus".into()],
            not: vec!["sh".into()],
        };
        for options in
            [options, HeapOptions::default(), HeapOptions { mode: HeapMode::Python, ..Default::default() }]
        {
            assert_eq!(HeapOptions::parse(&options.to_string()), (options, Vec::new()));
        }
        assert_eq!(HeapOptions::parse(""), (HeapOptions::default(), Vec::new()));
        let (options, unknown) = HeapOptions::parse("sample:0,depth=0,color=red,stacks=maybe");
        assert_eq!(options, HeapOptions { depth: 1, ..HeapOptions::default() });
        assert_eq!(
            unknown.iter().map(|option| option.text.as_str()).collect::<Vec<_>>(),
            ["sample:0", "color=red", "stacks=maybe"]
        );
    }

    #[test]
    fn programs_are_selected_by_name() {
        let (options, _) = HeapOptions::parse("only=a,only=b,not=b");
        assert_eq!(["a", "b", "c"].map(|name| options.selects_program(name)), [true, false, false]);
        assert!(HeapOptions::default().selects_program("a"));
    }

    #[test]
    fn scaled_sizes_give_the_number_of_blocks_back() {
        for bytes in [1, 16, 1000, 524_288, 5 << 20] {
            let scaled = scaled_bytes(bytes, DEFAULT_SAMPLE_BYTES);
            let blocks = scaled_blocks(scaled, DEFAULT_SAMPLE_BYTES);
            assert!((blocks * bytes as f64 / scaled as f64 - 1.0).abs() < 0.5, "{bytes} {scaled} {blocks}");
        }
        // Large blocks are all sampled and count as what they are.
        assert_eq!(scaled_bytes(1 << 30, DEFAULT_SAMPLE_BYTES), 1 << 30);
    }
}
