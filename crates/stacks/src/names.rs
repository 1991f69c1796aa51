//! What frames are called.
//!
//! Nothing is symbolized before it is asked for. A frame always has its module and its address there, which
//! is what symbol tools take; functions that a module exports have their names from the dynamic loader,
//! and with the feature `symbols` all functions from the module's file, with lines and what was inlined
//! into them where the caller asks for that.
#![cfg_attr(not(feature = "symbols"), expect(unsafe_code, reason = "asks the dynamic loader for names"))]

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Stack;
use super::loader::{Loads, NamedModule, find_named, named_modules};

/// Prefixes of functions, with or without `<`, that are never shown as the site of an allocation.
const PASSED_OVER: [&str; 4] = ["floodmark_", "core::", "alloc::", "std::"];
/// How many functions a line has.
const LINE_FUNCTIONS: usize = 3;

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
    /// Whether this function was inlined into the one that comes next.
    pub inlined: bool,
}

/// How much to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What functions are called.
    Functions,
    /// Lines too, and what was inlined; takes much longer in large programs.
    Lines,
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

    fn is_passed_over(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        let function = function.strip_prefix('<').unwrap_or(function);
        PASSED_OVER.iter().any(|prefix| function.starts_with(prefix))
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
pub struct Names(HashMap<u64, Arc<[FrameName]>>);

impl Names {
    /// Looks up the frames of `stacks`.
    pub fn of(stacks: impl IntoIterator<Item = Stack>, detail: Detail) -> Self {
        static KNOWN: [Mutex<Option<(Loads, Names)>>; 2] = [const { Mutex::new(None) }; 2];
        let mut known = KNOWN[detail as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let loads = Loads::now();
        let (before, Names(known)) = known.get_or_insert_with(|| (loads, Self::default()));
        if loads.unloaded_since(*before) {
            known.clear();
        }
        *before = loads;
        let wanted: Vec<u64> = stacks.into_iter().flat_map(Stack::frames).copied().collect();
        let mut new: Vec<u64> = wanted.iter().copied().filter(|frame| !known.contains_key(frame)).collect();
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            name(&new, detail, known);
        }
        let found = wanted.iter().filter_map(|frame| Some((*frame, Arc::clone(known.get(frame)?))));
        Self(found.collect())
    }

    /// The frames of a stack, innermost first; a function that was inlined is a frame too.
    pub fn frames(&self, stack: Stack) -> impl Iterator<Item = &FrameName> {
        stack.frames().iter().filter_map(|frame| self.0.get(frame)).flat_map(|names| names.iter())
    }

    /// Returns the innermost functions of a stack that belong to the program, in one line.
    pub fn line(&self, stack: Stack) -> String {
        let mut functions: Vec<String> = self
            .frames(stack)
            .filter(|name| !name.inlined && !name.is_passed_over())
            .take(LINE_FUNCTIONS)
            .map(FrameName::short)
            .collect();
        if functions.is_empty() {
            functions = self.frames(stack).take(LINE_FUNCTIONS).map(FrameName::short).collect();
        }
        functions.join(" < ")
    }
}

/// Finds names for frames, which are in order.
fn name(frames: &[u64], detail: Detail, known: &mut HashMap<u64, Arc<[FrameName]>>) {
    let modules = named_modules();
    let module_of = |frame: &u64| find_named(&modules, frame.wrapping_sub(1));
    for together in frames.chunk_by(|a, b| module_of(a) == module_of(b)) {
        let names = names_in(module_of(&together[0]).map(|at| &modules[at]), together, detail);
        known.extend(together.iter().copied().zip(names.into_iter().map(Arc::from)));
    }
}

/// Names of frames that are in the same module; several for one into which others were inlined.
fn names_in(module: Option<&NamedModule>, frames: &[u64], detail: Detail) -> Vec<Vec<FrameName>> {
    let path = module.map(|module| Arc::new(module.path.clone()));
    let bias = module.map_or(0, |module| module.bias);
    let unnamed = |address: u64| FrameName {
        address,
        module: path.clone(),
        // A return address is after the call and may belong to the next function.
        offset: address.wrapping_sub(1).wrapping_sub(bias),
        function: None,
        place: None,
        inlined: false,
    };
    let unnamed: Vec<FrameName> = frames.iter().copied().map(unnamed).collect();
    functions(module, &unnamed, detail)
}

#[cfg(feature = "symbols")]
fn functions(module: Option<&NamedModule>, frames: &[FrameName], detail: Detail) -> Vec<Vec<FrameName>> {
    use crate::symbols::{Function, Symbols};

    let symbols = Symbols::default();
    let place = |function: &Function| match (function.file.as_str(), function.line) {
        ("", _) => None,
        (file, 0) => Some(file.to_owned()),
        (file, line) => Some(format!("{file}:{line}")),
    };
    let named = frames.iter().map(|frame| {
        let found = module.map(|module| symbols.functions(&module.path, frame.offset, detail));
        let found = found.unwrap_or_default();
        let names = found.iter().enumerate().map(|(at, function)| FrameName {
            function: Some(function.name.clone()),
            place: place(function),
            inlined: at + 1 < found.len(),
            ..frame.clone()
        });
        if found.is_empty() { vec![frame.clone()] } else { names.collect() }
    });
    named.collect()
}

#[cfg(not(feature = "symbols"))]
fn functions(_: Option<&NamedModule>, frames: &[FrameName], _: Detail) -> Vec<Vec<FrameName>> {
    let named =
        |frame: &FrameName| FrameName { function: exported(frame.address.wrapping_sub(1)), ..frame.clone() };
    frames.iter().map(|frame| vec![named(frame)]).collect()
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
