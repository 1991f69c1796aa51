//! Functions and source lines of addresses in the files of modules.

use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::names::Detail;

/// A function in the file of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Demangled name.
    pub name: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line in the source file; 0 if unknown.
    pub line: u32,
}

impl Function {
    fn new(name: &str, code: Option<&CodeInfo<'_>>) -> Self {
        let file = code.map_or_else(String::new, |code| code.to_path().display().to_string());
        Self { name: name.to_owned(), file, line: code.and_then(|code| code.line).unwrap_or(0) }
    }
}

/// Finds functions in the files of modules, and keeps the files that it has parsed.
#[derive(Debug, Default)]
pub struct Symbols(Symbolizer);

impl Symbols {
    /// Returns the function at an address of a file, preceded by those that were inlined into it, innermost
    /// first. None are found in a file that cannot be read, or is not that of a module (`[vdso]`).
    pub fn functions(&self, module: &Path, address: u64, detail: Detail) -> Vec<Function> {
        // Debug information has the lines, but not always the whole names.
        let symbol = self.symbol(module, address, Detail::Functions);
        let line = (detail == Detail::Lines).then(|| self.symbol(module, address, detail)).flatten();
        let Some(outermost) = symbol.as_ref().or(line.as_ref()) else { return Vec::new() };
        let place = line.as_ref().and_then(|line| line.code_info.as_deref());
        let mut functions = vec![Function::new(&outermost.name, place)];
        let inlined = line.iter().flat_map(|line| line.inlined.iter());
        functions.extend(inlined.map(|inlined| Function::new(&inlined.name, inlined.code_info.as_ref())));
        // They come from the outside in.
        functions.reverse();
        functions
    }

    fn symbol(&self, module: &Path, address: u64, detail: Detail) -> Option<Sym<'_>> {
        let mut file = Elf::new(module);
        file.debug_syms = detail == Detail::Lines;
        match self.0.symbolize_single(&Source::Elf(file), Input::VirtOffset(address)).ok()? {
            Symbolized::Sym(symbol) => Some(symbol),
            Symbolized::Unknown(_) => None,
        }
    }
}
