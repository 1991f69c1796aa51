//! What the dynamic loader knows: which libraries are in memory, where, and with which unwind tables.
//!
//! Invariant: a module's memory is looked at only while the loader is kept from unloading it, that is
//! inside of `dl_iterate_phdr`.
#![expect(unsafe_code, reason = "asks the dynamic loader, and reads what it has mapped")]

use std::ffi::{CStr, OsStr};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use libc::{Elf64_Phdr, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, c_int, c_void, dl_phdr_info};

use crate::forking::Visit;

/// How many modules have been loaded and unloaded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loads {
    added: u64,
    removed: u64,
}

impl Loads {
    /// Asks the loader.
    pub(super) fn now() -> Self {
        let mut loads = Self::default();
        each_module(&mut |info| {
            loads = Self::of(info);
            Next::Enough
        });
        loads
    }

    fn of(info: &dl_phdr_info) -> Self {
        Self { added: info.dlpi_adds, removed: info.dlpi_subs }
    }

    /// Whether something was unloaded since `earlier`: the same address may be other code now.
    pub(super) fn unloaded_since(self, earlier: Self) -> bool {
        self.removed != earlier.removed
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    More,
    Enough,
}

/// Calls `visit` for each module, with the loader's lock held.
fn each_module(visit: &mut dyn FnMut(&dl_phdr_info) -> Next) {
    unsafe extern "C" fn callback(info: *mut dl_phdr_info, bytes: usize, data: *mut c_void) -> c_int {
        // A loader from before the counters existed is older than what Rust runs on.
        if bytes < std::mem::offset_of!(dl_phdr_info, dlpi_subs) + 8 {
            return 1;
        }
        // SAFETY: the loader passes a valid description, and `data` as it was given below.
        let (info, visit) = unsafe { (&*info, &mut *data.cast::<&mut dyn FnMut(&dl_phdr_info) -> Next>()) };
        c_int::from(visit(info) == Next::Enough)
    }
    let mut visit = visit;
    let _visit = Visit::begin();
    // SAFETY: the callback gets the visitor back, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast()) };
}

/// A library or executable in this process's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    start: u64,
    end: u64,
    /// What is added to the addresses in its file.
    bias: u64,
    headers: *const Elf64_Phdr,
    header_count: u16,
}

/// The unwind tables of a module, with the addresses at which they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
}

impl Module {
    fn of(info: &dl_phdr_info) -> Option<Self> {
        let (bias, headers, header_count) = (info.dlpi_addr, info.dlpi_phdr, info.dlpi_phnum);
        let mut module = Self { start: u64::MAX, end: 0, bias, headers, header_count };
        let none = (module.start, module.end);
        let loaded = module.headers().iter().filter(|header| header.p_type == PT_LOAD);
        (module.start, module.end) = loaded.fold(none, |(start, end), header| {
            let at = bias.wrapping_add(header.p_vaddr);
            (start.min(at), end.max(at.saturating_add(header.p_memsz)))
        });
        (module.start < module.end).then_some(module)
    }

    fn headers(&self) -> &[Elf64_Phdr] {
        if self.headers.is_null() {
            return &[];
        }
        // SAFETY: the loader's own list of this module, which is loaded whenever this is called.
        unsafe { std::slice::from_raw_parts(self.headers, usize::from(self.header_count)) }
    }

    /// The index that leads to the unwind tables.
    pub(super) fn unwind_index(&self) -> Option<Bytes<'_>> {
        let header = self.headers().iter().find(|header| header.p_type == PT_GNU_EH_FRAME)?;
        let at = self.bias.wrapping_add(header.p_vaddr);
        let after = self.from(at)?;
        let bytes = after.bytes.get(..usize::try_from(header.p_memsz).ok()?)?;
        Some(Bytes { at, bytes })
    }

    /// The build id in the notes of the module, in hexadecimal.
    fn build_id(&self) -> Option<String> {
        let notes = self.headers().iter().filter(|header| header.p_type == PT_NOTE);
        notes.into_iter().find_map(|header| {
            let mapped = self.from(self.bias.wrapping_add(header.p_vaddr))?;
            let bytes = mapped.bytes.get(..usize::try_from(header.p_filesz).ok()?)?;
            let id = build_id_in(bytes, usize::try_from(header.p_align).ok()?)?;
            Some(hexadecimal(id))
        })
    }

    /// What is mapped from an address to the end of its segment.
    pub(super) fn from(&self, at: u64) -> Option<Bytes<'_>> {
        let segment = self.headers().iter().find_map(|header| {
            let start = self.bias.wrapping_add(header.p_vaddr);
            // Beyond what the file has there may be nothing mapped.
            let end = start.checked_add(header.p_filesz)?;
            let readable = header.p_type == PT_LOAD && header.p_flags & libc::PF_R != 0;
            (readable && start <= at && at < end).then_some(end)
        })?;
        let len = usize::try_from(segment - at).ok()?;
        // SAFETY: within a readable segment that the loader has mapped and does not unmap while this
        // module is looked at; such segments do not change after the loader relocated them.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at as usize), len) };
        Some(Bytes { at, bytes })
    }
}

/// Writes bytes with two digits each.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Finds the build id among the notes of a module.
pub(crate) fn build_id_in(mut notes: &[u8], alignment: usize) -> Option<&[u8]> {
    const GNU_BUILD_ID: u32 = 3;
    let alignment = alignment.clamp(4, 8);
    loop {
        let field = |at: usize| Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name_bytes, id_bytes) = (field(0)? as usize, field(4)? as usize);
        let name = notes.get(12..12_usize.checked_add(name_bytes)?)?;
        let start = (12 + name_bytes).next_multiple_of(alignment);
        let end = start.checked_add(id_bytes)?;
        let id = notes.get(start..end)?;
        if field(8)? == GNU_BUILD_ID && name == b"GNU\0" {
            return Some(id);
        }
        notes = notes.get(end.next_multiple_of(alignment)..)?;
    }
}

/// The modules of this process, as one thread last saw them.
#[derive(Default)]
pub(super) struct Modules {
    loads: Loads,
    /// In order of address.
    list: Vec<Module>,
}

impl Modules {
    /// What had been loaded and unloaded when the list was made.
    pub(super) const fn loads(&self) -> Loads {
        self.loads
    }

    /// Calls `look` with the module that an address is in.
    pub(super) fn look<T>(&mut self, address: u64, mut look: impl FnMut(&Module) -> Option<T>) -> Option<T> {
        // The list is made anew in one round and used in the next, where its modules are known to be
        // loaded. If something is loaded in between there is another one, but not without end.
        for _ in 0..4 {
            let (mut found, mut current, mut first) = (None, false, true);
            each_module(&mut |info| {
                if std::mem::take(&mut first) {
                    let loads = Loads::of(info);
                    current = loads == self.loads && !self.list.is_empty();
                    if current {
                        found = self.find(address).and_then(&mut look);
                        return Next::Enough;
                    }
                    self.loads = loads;
                    self.list.clear();
                }
                self.list.extend(Module::of(info));
                Next::More
            });
            if current || self.list.is_empty() {
                return found;
            }
            self.list.sort_unstable_by_key(|module| module.start);
        }
        None
    }

    fn find(&self, address: u64) -> Option<&Module> {
        let after = self.list.partition_point(|module| module.start <= address);
        self.list.get(after.checked_sub(1)?).filter(|module| address < module.end)
    }
}

/// A module and the file it came from.
#[derive(Clone, Debug)]
pub(super) struct NamedModule {
    start: u64,
    end: u64,
    /// What is added to the addresses in its file.
    pub(super) bias: u64,
    /// Its file, as the loader found it.
    pub(super) path: PathBuf,
    /// Identifies the contents of its file, in hexadecimal; none if the linker wrote none.
    pub(super) build_id: Option<String>,
}

/// All modules with their files, in order of address.
pub(super) fn named_modules() -> Vec<NamedModule> {
    let mut list = Vec::new();
    each_module(&mut |info| {
        if let Some(module) = Module::of(info) {
            let Module { start, end, bias, .. } = module;
            let build_id = module.build_id();
            let name = if info.dlpi_name.is_null() {
                c""
            } else {
                // SAFETY: the loader's own name of the module, which is loaded.
                unsafe { CStr::from_ptr(info.dlpi_name) }
            };
            let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
            list.push(NamedModule { start, end, bias, path, build_id });
        }
        Next::More
    });
    // The loader has no name for the program itself.
    if let Some(program) = list.iter_mut().find(|module| module.path.as_os_str().is_empty()) {
        program.path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("program"));
    }
    list.sort_unstable_by_key(|module| module.start);
    list
}

/// Where in such a list the module is that an address is in.
pub(super) fn find_named(list: &[NamedModule], address: u64) -> Option<usize> {
    let at = list.partition_point(|module| module.start <= address).checked_sub(1)?;
    (address < list[at].end).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_code_and_the_c_library_are_in_modules_with_unwind_tables() {
        let mut modules = Modules::default();
        let own = this_code_and_the_c_library_are_in_modules_with_unwind_tables as *const () as u64;
        let library = libc::getppid as *const () as u64;
        for address in [own, library, own] {
            let index = modules.look(address, |module| module.unwind_index().map(|index| index.bytes.len()));
            assert!(index.is_some_and(|bytes| bytes > 12));
        }
        assert_eq!(modules.look(8, |_| Some(())), None);
        assert_eq!(modules.loads(), Loads::now());
    }

    #[test]
    fn a_build_id_is_found_among_other_notes() {
        let note = |kind: u32, name: &[u8], id: &[u8]| {
            let mut note = Vec::new();
            for field in [name.len() as u32, id.len() as u32, kind] {
                note.extend(field.to_ne_bytes());
            }
            for bytes in [name, id] {
                note.extend(bytes);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes = [note(1, b"GNU\0", &[0; 16]), note(3, b"go\0", &[7]), note(3, b"GNU\0", &[1, 2, 3])];
        let notes = notes.concat();
        assert_eq!(build_id_in(&notes, 4), Some(&[1, 2, 3][..]));
        for cut in 0..notes.len() - 1 {
            assert_eq!(build_id_in(&notes[..cut], 4), None);
        }
        assert_eq!(build_id_in(&[0xff; 40], 4), None);
    }

    #[test]
    fn modules_have_the_names_of_their_files() {
        let list = named_modules();
        let name_of = |address| find_named(&list, address).map(|at| list[at].path.clone());
        let own = modules_have_the_names_of_their_files as *const () as u64;
        assert_eq!(name_of(own), std::env::current_exe().ok());
        let library = name_of(libc::getppid as *const () as u64).unwrap();
        assert!(library.to_string_lossy().contains("libc"), "{library:?}");
        assert_eq!(name_of(8), None);
    }
}
