//! Symbols of frames, resolved once for each address of a module.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use super::image::Image;
use super::unwind::Place;

/// A frame of a stack with its symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedFrame {
    /// Demangled name of the function; empty if unknown.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line in the source file; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty for code without a file.
    pub module: String,
    /// Address of the instruction, or of the call that has not returned, in the module's file; 0 if unknown.
    pub address: u64,
}

/// Frames of one address: the function, preceded by those inlined into it.
type Names = Arc<[Arc<NamedFrame>]>;

/// Cache of resolved frames.
pub(crate) struct Namer {
    symbolizer: Symbolizer,
    /// Frames by module and address. A module is identified by its pointer, which stays valid.
    known: HashMap<(usize, u64), Names>,
    /// Paths of modules; the module is kept alive so that its pointer is not reused.
    paths: HashMap<usize, (Arc<Image>, Vec<PathBuf>)>,
}

impl Default for Namer {
    fn default() -> Self {
        Self { symbolizer: Symbolizer::new(), known: HashMap::new(), paths: HashMap::new() }
    }
}

impl Namer {
    /// Resolves the frames of a stack, innermost first.
    pub(crate) fn name(&mut self, places: &[Place]) -> Vec<Names> {
        places.iter().map(|place| self.names_of(place)).collect()
    }

    fn names_of(&mut self, place: &Place) -> Names {
        let module = place.image.as_ref().map_or(0, |image| Arc::as_ptr(image) as usize);
        if let Some(names) = self.known.get(&(module, place.address)) {
            return Arc::clone(names);
        }
        let names: Names = match &place.image {
            Some(image) => self.look_up(image, place.address),
            None => vec![NamedFrame { address: place.address, ..NamedFrame::default() }],
        }
        .into_iter()
        .map(Arc::new)
        .collect();
        self.known.insert((module, place.address), Arc::clone(&names));
        names
    }

    fn look_up(&mut self, image: &Arc<Image>, address: u64) -> Vec<NamedFrame> {
        let key = Arc::as_ptr(image) as usize;
        let paths = || image.separate_symbols().into_iter().chain(image.path()).collect();
        let (_, paths) = self.paths.entry(key).or_insert_with(|| (Arc::clone(image), paths()));
        let unnamed = NamedFrame { module: image.name().to_owned(), address, ..NamedFrame::default() };
        if paths.is_empty() {
            let function = image.function(address).unwrap_or_default().to_owned();
            return vec![NamedFrame { function, ..unnamed }];
        }
        let paths = paths.clone();
        let names = paths.iter().find_map(|path| self.look_into(path, &unnamed));
        names.unwrap_or_else(|| vec![unnamed])
    }

    /// Resolves a frame by one file; returns none if the file does not have it.
    fn look_into(&self, path: &PathBuf, unnamed: &NamedFrame) -> Option<Vec<NamedFrame>> {
        // Debug information has line numbers, but not always the full names.
        let symbol = self.symbol(path, unnamed.address, Detail::Functions);
        let line = self.symbol(path, unnamed.address, Detail::Lines);
        let function = symbol.as_ref().or(line.as_ref()).map(|symbol| symbol.name.to_string())?;
        let mut names = vec![NamedFrame { function, ..unnamed.clone() }];
        if let Some(line) = line {
            if let Some(code) = line.code_info.as_deref() {
                put_place(&mut names[0], code);
            }
            names.extend(line.inlined.iter().map(|inlined| {
                let mut name = NamedFrame { function: inlined.name.to_string(), ..unnamed.clone() };
                if let Some(code) = &inlined.code_info {
                    put_place(&mut name, code);
                }
                name
            }));
        }
        // Inlined functions are listed from the outermost to the innermost.
        names.reverse();
        Some(names)
    }

    fn symbol(&self, path: &PathBuf, address: u64, detail: Detail) -> Option<Sym<'_>> {
        let mut file = Elf::new(path);
        file.debug_syms = detail == Detail::Lines;
        // None if the file cannot be parsed.
        match self.symbolizer.symbolize_single(&Source::Elf(file), Input::VirtOffset(address)).ok()? {
            Symbolized::Sym(symbol) => Some(symbol),
            Symbolized::Unknown(_) => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Functions,
    Lines,
}

fn put_place(name: &mut NamedFrame, code: &CodeInfo<'_>) {
    name.file = code.to_path().display().to_string();
    name.line = code.line.unwrap_or(0);
}
