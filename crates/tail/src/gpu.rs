//! How the recorder of CUDA memory is told what to record, and what it leaves in the trace: the protocol between
//! `floodmark run --gpu` and the library that it loads into the command (`crates/inject`).
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `FLOODMARK_TRACE` | directory of the running trace; without it nothing is recorded |
//! | `FLOODMARK_GPU` | options of [`GpuOptions`], comma-separated; without it nothing is recorded |
//! | `CUDA_INJECTION64_PATH` | the library: the driver loads it when CUDA is initialized |
//! | `NVTX_INJECTION64_PATH` | the library, unless another one is named: NVTX loads it at its first call |
//! | `LD_PRELOAD` | the library, before what was there already, for programs in which CUPTI cannot be used |
//!
//! | option | meaning |
//! |---|---|
//! | `level=driver`, `level=framework`, `level=all` | what is allocated from the driver, what PyTorch allocates from memory that it holds, or both; the default is `driver` |
//! | `way=auto`, `way=cupti`, `way=preload` | callbacks of CUPTI, interposed functions, or the first that works; the default is `auto` |
//! | `cupti=PATH` | file of `libcupti` to use |
//! | `next=PATH` | the library that `CUDA_INJECTION64_PATH` named before, which is loaded too |
//! | `stacks=on`, `stacks=off` | whether allocations have stacks; the default is `on` |
//! | `depth=N` | most frames of a stack, counted from the innermost one |
//!
//! Paths have no comma; the command refuses others. Where heaps are recorded too, their options decide about stacks.
//!
//! # Trace
//!
//! Kinds are those that an export of Nsight Systems has for the same calls. The resource is the driver's function without
//! its version, as in `cuMemAllocAsync`, so that blocks of two allocators of the driver are never confused.
//!
//! | what | kind | address |
//! |---|---|---|
//! | `cuMemAlloc`, `cuMemAllocPitch`, `cuMemAllocAsync`, `cuMemAllocFromPoolAsync` | `device` | of the memory |
//! | `cuMemCreate` (physical memory of a device) | `device` | the handle; it lives until it is released and nowhere mapped |
//! | `cuMemAllocManaged` | `managed` | of the memory |
//! | `cuMemAllocHost`, `cuMemHostAlloc`, `cuMemHostRegister` | `pinned` | of the memory |
//! | `cuArrayCreate`, `cuArray3DCreate`, `cuMipmappedArrayCreate` | `array` | the handle; bytes without padding |
//! | what PyTorch's cache hands out (`torch`), at `framework` and `all` | `device` | of the memory |
//! | what PyTorch's cache gets from `cuMemAlloc` or `cuMemMap` (`torch segments`), at `all` | `reserved` | of the memory |
//! | `cuMemMap`, `cuMemAddressReserve`, `cuGraphAddMemAllocNode`, memory that another process or API allocated | `mapped` | of the addresses |
//!
//! What PyTorch's cache does with segments is its own blocks, so at `all` its segments are of kind `reserved`, and physical
//! memory that it maps is `mapped`: tensors and what other libraries hold add up to what is in use.
//!
//! What is `mapped` is addresses: its memory is counted elsewhere or not there yet, so it is never added to other kinds.
//!
//! Each process says how it was recorded in frames that are in no stack: their function is [`GPU_NOTE`], their file is
//! the text, their line is a number and their module a name, if the text has one. [`GpuNote`] lists the texts.

use std::fmt;

use crate::heap::{MAX_DEPTH, UnknownOption, on_or_off};

/// Environment variable with the options of [`GpuOptions`].
pub const GPU_VARIABLE: &str = "FLOODMARK_GPU";
/// Environment variable that names the library which the CUDA driver loads when it is initialized.
pub const CUDA_INJECTION_VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// Environment variable that names the library which NVTX loads.
pub const NVTX_INJECTION_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// Function of a frame in no stack that says how the CUDA memory of a process was recorded.
pub const GPU_NOTE: &str = "(gpu capture)";

/// Resource of what PyTorch's cache hands out.
pub const TORCH_RESOURCE: &str = "torch";
/// Resource of what it holds for that.
pub const TORCH_SEGMENTS_RESOURCE: &str = "torch segments";

/// At which level memory is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLevel {
    /// What is allocated from the driver.
    #[default]
    Driver,
    /// What frameworks allocate from memory that they hold.
    Framework,
    /// Both.
    All,
}

impl GpuLevel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Driver, Self::Framework, Self::All];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Framework => "framework",
            Self::All => "all",
        }
    }

    /// The level with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// How calls of the driver are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuWay {
    /// Through CUPTI, or by interposed functions where that is not possible.
    #[default]
    Auto,
    /// By callbacks of CUPTI alone.
    Cupti,
    /// By functions that take the place of the driver's.
    Preload,
}

impl GpuWay {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Cupti, Self::Preload];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cupti => "cupti",
            Self::Preload => "preload",
        }
    }

    /// The way with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// What the recorder of CUDA memory is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// What is recorded.
    pub level: GpuLevel,
    /// How calls are seen.
    pub way: GpuWay,
    /// File of `libcupti`.
    pub cupti: Option<String>,
    /// Library that the driver would have loaded.
    pub next: Option<String>,
    /// Whether allocations have stacks.
    pub stacks: bool,
    /// Most frames of a stack.
    pub depth: u32,
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self {
            level: GpuLevel::Driver,
            way: GpuWay::Auto,
            cupti: None,
            next: None,
            stacks: true,
            depth: MAX_DEPTH,
        }
    }
}

impl GpuOptions {
    /// Parses the value of [`GPU_VARIABLE`]. Options that are not known change nothing and are returned beside.
    pub fn parse(text: &str) -> (Self, Vec<UnknownOption>) {
        let mut options = Self::default();
        let mut unknown = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if options.set(word).is_none() {
                unknown.push(UnknownOption { variable: GPU_VARIABLE, text: word.to_owned() });
            }
        }
        (options, unknown)
    }

    fn set(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=')?;
        match name {
            "level" => self.level = GpuLevel::from_name(value)?,
            "way" => self.way = GpuWay::from_name(value)?,
            "cupti" => self.cupti = Some(value.to_owned()),
            "next" => self.next = Some(value.to_owned()),
            "stacks" => self.stacks = on_or_off(value)?,
            "depth" => self.depth = value.parse::<u32>().ok()?.clamp(1, MAX_DEPTH),
            _ => return None,
        }
        Some(())
    }
}

/// Writes the value of [`GPU_VARIABLE`].
impl fmt::Display for GpuOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "way={}", self.way.name())?;
        if self.level != GpuLevel::Driver {
            write!(out, ",level={}", self.level.name())?;
        }
        for (name, path) in [("cupti", &self.cupti), ("next", &self.next)] {
            if let Some(path) = path {
                write!(out, ",{name}={path}")?;
            }
        }
        if !self.stacks {
            out.write_str(",stacks=off")?;
        }
        if self.depth != MAX_DEPTH {
            write!(out, ",depth={}", self.depth)?;
        }
        Ok(())
    }
}

/// Texts of the frames with the function [`GPU_NOTE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuNote {
    /// Through CUPTI; the line is its version, the module its file.
    Cupti,
    /// By interposed functions.
    Preload,
    /// What PyTorch's cache hands out is recorded.
    Torch,
    /// Another tool holds CUPTI; the module is its name, if it gives one.
    CuptiTaken,
    /// No CUPTI was found.
    NoCupti,
    /// CUPTI was found and does not work; the line is its error number, the module its file.
    CuptiFailed,
    /// Some functions are not known to this CUPTI; the line is their number.
    CallbacksMissing,
    /// The library that the driver would have loaded was loaded too; the module is its path.
    Chained,
    /// The library that the driver would have loaded could not be loaded; the module is its path.
    ChainFailed,
    /// Neither way works.
    Impossible,
    /// An allocation failed; the line is its number among those of its process, device and kind, and the module has the
    /// pid, the device, the kind, and the free and all bytes of the device then.
    FreeAtFailure,
    /// An option that the library does not know was left out.
    UnknownOption,
}

impl GpuNote {
    /// All notes.
    pub const ALL: [Self; 12] = [
        Self::Cupti,
        Self::Preload,
        Self::Torch,
        Self::CuptiTaken,
        Self::NoCupti,
        Self::CuptiFailed,
        Self::CallbacksMissing,
        Self::Chained,
        Self::ChainFailed,
        Self::Impossible,
        Self::FreeAtFailure,
        Self::UnknownOption,
    ];

    /// The text in the trace.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Cupti => "CUDA memory is recorded through CUPTI",
            Self::Preload => "CUDA memory is recorded by interposed functions of the driver",
            Self::Torch => "what PyTorch's caching allocator hands out is recorded",
            Self::CuptiTaken => "another tool holds CUPTI",
            Self::NoCupti => "no libcupti was found (--cupti names its file)",
            Self::CuptiFailed => "CUPTI could not be used",
            Self::CallbacksMissing => "this version of CUPTI does not know all functions",
            Self::Chained => "the library that CUDA_INJECTION64_PATH named was loaded too",
            Self::ChainFailed => "the library that CUDA_INJECTION64_PATH named could not be loaded",
            Self::Impossible => "CUDA memory could not be recorded in this program",
            Self::FreeAtFailure => "free memory of a device when an allocation failed",
            Self::UnknownOption => "an option of FLOODMARK_GPU is not known and was left out",
        }
    }

    /// The note with this text, if there is one.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|note| note.text() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_environment() {
        let options = GpuOptions {
            level: GpuLevel::All,
            way: GpuWay::Preload,
            cupti: Some("/opt/libcupti.so.12".into()),
            next: Some("/opt/tool.so".into()),
            stacks: false,
            depth: 20,
        };
        for options in [options, GpuOptions::default()] {
            assert_eq!(GpuOptions::parse(&options.to_string()), (options, Vec::new()));
        }
        let (options, unknown) = GpuOptions::parse("way=magic,depth=0,color=red,plain");
        assert_eq!(options, GpuOptions { depth: 1, ..GpuOptions::default() });
        assert_eq!(
            unknown.iter().map(|option| option.text.as_str()).collect::<Vec<_>>(),
            ["way=magic", "color=red", "plain"]
        );
    }
}
