//! What frames are called.
//!
//! Nothing is named before somebody asks. A frame always has its module and its address there, which
//! is what symbol tools take; functions that a module exports have their names from the dynamic loader,
//! and with the feature `symbols` all functions, inlined ones included, from the module's file.
#![cfg_attr(not(feature = "symbols"), expect(unsafe_code, reason = "asks the dynamic loader for names"))]

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Stack;
use super::loader::{Loads, NamedModule, find_named, named_modules};

/// Functions whose names begin so are not where somebody allocates.
const OWN: [&str; 2] = ["floodmark_", "<floodmark_"];

/// What is known of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// Where the frame's function is returned to.
    pub address: u64,
    /// File of its module; none for code that no module has.
    pub module: Option<Arc<PathBuf>>,
    /// Address of the call as the module's file counts.
    pub offset: u64,
    /// Its function.
    pub function: Option<String>,
    /// Source file and line.
    pub place: Option<String>,
}

impl FrameName {
    /// The shortest that says which function this is.
    pub fn short(&self) -> String {
        if let Some(function) = &self.function {
            return function.clone();
        }
        match &self.module {
            Some(module) => format!("{}+{:#x}", file_name(module), self.offset),
            None => format!("{:#x}", self.address),
        }
    }

    fn is_own(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        OWN.iter().any(|own| function.starts_with(own))
    }
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}

impl fmt::Display for FrameName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => out.write_str(function)?,
            None => write!(out, "{:#x}", self.address)?,
        }
        if let Some(place) = &self.place {
            write!(out, " at {place}")?;
        }
        match &self.module {
            Some(module) => write!(out, " from {}+{:#x}", file_name(module), self.offset),
            None => Ok(()),
        }
    }
}

/// Names of the frames of some stacks, looked up together.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<u64, Arc<[FrameName]>>);

impl Names {
    pub(crate) fn of(stacks: impl IntoIterator<Item = Stack>) -> Self {
        static KNOWN: Mutex<Option<(Loads, Names)>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let loads = Loads::now();
        let (before, Names(known)) = known.get_or_insert_with(|| (loads, Self::default()));
        if loads.forget(*before) {
            known.clear();
        }
        *before = loads;
        let wanted: Vec<u64> = stacks.into_iter().flat_map(Stack::frames).copied().collect();
        let mut new: Vec<u64> = wanted.iter().copied().filter(|frame| !known.contains_key(frame)).collect();
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            name(&new, known);
        }
        let found = wanted.iter().filter_map(|frame| Some((*frame, Arc::clone(known.get(frame)?))));
        Self(found.collect())
    }

    /// The frames of a stack, innermost first; a function that was inlined is a frame too.
    pub(crate) fn frames(&self, stack: Stack) -> impl Iterator<Item = &FrameName> {
        stack.frames().iter().filter_map(|frame| self.0.get(frame)).flat_map(|names| names.iter())
    }

    /// The innermost functions of a stack that are not this library's own, in one line.
    pub(crate) fn line(&self, stack: Stack) -> String {
        let own = self.frames(stack).take_while(|name| name.is_own()).count();
        let callers = self.frames(stack).skip(own).take(3).map(FrameName::short);
        callers.collect::<Vec<_>>().join(" < ")
    }
}

/// Finds names for frames, which are in order.
fn name(frames: &[u64], known: &mut HashMap<u64, Arc<[FrameName]>>) {
    let modules = named_modules();
    let module_of = |frame: &u64| find_named(&modules, frame.wrapping_sub(1));
    for together in frames.chunk_by(|a, b| module_of(a) == module_of(b)) {
        name_in(module_of(&together[0]).map(|at| &modules[at]), together, known);
    }
}

fn name_in(module: Option<&NamedModule>, frames: &[u64], known: &mut HashMap<u64, Arc<[FrameName]>>) {
    let path = module.map(|module| Arc::new(module.path.clone()));
    let bias = module.map_or(0, |module| module.bias);
    let unnamed = |address: u64| FrameName {
        address,
        module: path.clone(),
        // A return address is after the call and may belong to the next function.
        offset: address.wrapping_sub(1).wrapping_sub(bias),
        function: None,
        place: None,
    };
    let unnamed: Vec<FrameName> = frames.iter().copied().map(unnamed).collect();
    let named = functions(module, &unnamed);
    for (frame, names) in frames.iter().zip(named) {
        known.insert(*frame, names.into());
    }
}

#[cfg(feature = "symbols")]
fn functions(module: Option<&NamedModule>, frames: &[FrameName]) -> Vec<Vec<FrameName>> {
    use blazesym::symbolize::source::{Elf, Source};
    use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

    let unnamed = || frames.iter().map(|frame| vec![frame.clone()]).collect();
    let Some(module) = module else { return unnamed() };
    let symbolizer = Symbolizer::new();
    let source = Source::Elf(Elf::new(&module.path));
    let offsets: Vec<u64> = frames.iter().map(|frame| frame.offset).collect();
    // A file that cannot be read any more, or was never one ([vdso]).
    let Ok(symbols) = symbolizer.symbolize(&source, Input::VirtOffset(&offsets)) else { return unnamed() };
    let place = |code: &CodeInfo<'_>| match code.line {
        Some(line) => format!("{}:{line}", code.to_path().display()),
        None => code.to_path().display().to_string(),
    };
    let named = frames.iter().zip(&symbols).map(|(frame, symbol)| {
        let Symbolized::Sym(symbol) = symbol else { return vec![frame.clone()] };
        let mut names = vec![FrameName {
            function: Some(symbol.name.to_string()),
            place: symbol.code_info.as_deref().map(place),
            ..frame.clone()
        }];
        for inlined in &symbol.inlined {
            names.push(FrameName {
                function: Some(inlined.name.to_string()),
                place: inlined.code_info.as_ref().map(place),
                ..frame.clone()
            });
        }
        names.reverse();
        names
    });
    named.collect()
}

#[cfg(not(feature = "symbols"))]
fn functions(_: Option<&NamedModule>, frames: &[FrameName]) -> Vec<Vec<FrameName>> {
    let named = frames
        .iter()
        .map(|frame| FrameName { function: exported(frame.address.wrapping_sub(1)), ..frame.clone() });
    named.map(|name| vec![name]).collect()
}

/// The exported function that an address is in.
#[cfg(not(feature = "symbols"))]
fn exported(address: u64) -> Option<String> {
    // SAFETY: zeros are valid for a description that is filled in by the call; what it points to belongs
    // to a module that is loaded, because one of its addresses is on some thread's stack, or was: names
    // of a module that is being unloaded at this moment are the loader's to give or to refuse.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let address = std::ptr::with_exposed_provenance(address as usize);
        if libc::dladdr(address, &raw mut found) == 0 || found.dli_sname.is_null() {
            return None;
        }
        Some(std::ffi::CStr::from_ptr(found.dli_sname).to_string_lossy().into_owned())
    }
}
