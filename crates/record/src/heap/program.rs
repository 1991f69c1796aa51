//! Whether the heap of a program can be recorded by a preloaded library, by its file.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn as _, ElfFile, FileHeader, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind, Object as _, ObjectSymbol as _, elf};

/// How often the first line of a script leads to another one.
const MOST_SCRIPTS: u32 = 5;

/// Why the heap of a program is not recorded, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limitation {
    /// It has no dynamic loader, which would load the library.
    Static,
    /// It is made of the code of another processor, or of 32 bits.
    Architecture,
    /// Its dynamic loader is that of another C library than glibc.
    Loader(String),
    /// It runs with more rights than its caller has, so that its loader ignores `LD_PRELOAD`.
    Privileged,
    /// A sanitizer replaces `malloc` in it and does not run beside other libraries that do.
    Sanitizer(&'static str),
    /// It has an allocator linked into it, which other programs cannot replace.
    OwnAllocator(&'static str),
    /// Go's runtime has an allocator of its own; what is written in C is recorded.
    Go,
}

impl Limitation {
    /// Whether a process of the program would fail, or write to its standard error, if the library was preloaded.
    pub fn forbids_preloading(&self) -> bool {
        matches!(self, Self::Architecture | Self::Loader(_) | Self::Sanitizer(_))
    }
}

impl fmt::Display for Limitation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => out.write_str("statically linked"),
            Self::Architecture => out.write_str("built for another architecture"),
            Self::Loader(loader) => write!(out, "uses the loader {loader}, not that of glibc"),
            Self::Privileged => out.write_str("runs with other rights (setuid, setgid or capabilities)"),
            Self::Sanitizer(name) => write!(out, "built with {name}"),
            Self::OwnAllocator(name) => write!(out, "has {name} linked into it"),
            Self::Go => out.write_str("written in Go; only what its C code allocates is recorded"),
        }
    }
}

/// Runtimes of sanitizers: a symbol, how its library is called, and its name.
const SANITIZERS: [(&str, &str, &str); 5] = [
    ("__asan_init", "asan", "AddressSanitizer"),
    ("__hwasan_init", "hwasan", "HWAddressSanitizer"),
    ("__lsan_init", "lsan", "LeakSanitizer"),
    ("__msan_init", "msan", "MemorySanitizer"),
    ("__tsan_init", "tsan", "ThreadSanitizer"),
];

/// Functions of allocators that a program was linked with statically, under names that nothing can replace.
const ALLOCATORS: [(&str, &str); 5] = [
    ("_rjem_malloc", "jemalloc"),
    ("je_malloc", "jemalloc"),
    ("mi_malloc", "mimalloc"),
    ("tc_malloc", "tcmalloc"),
    ("rpmalloc", "rpmalloc"),
];

/// Returns why the heap of the program in a file is not recorded, or not all of it; none if it is.
///
/// # Errors
/// If the file cannot be read, or is no program.
pub fn limitation(path: &Path) -> io::Result<Option<Limitation>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let is_privileged = is_set_id(&metadata) || has_capabilities(path);
    let cache = ReadCache::new(file);
    let found = match FileKind::parse(&cache).map_err(io::Error::other)? {
        FileKind::Elf64 => {
            of_elf(&ElfFile::<elf::FileHeader64<Endianness>, _>::parse(&cache).map_err(io::Error::other)?)
        }
        FileKind::Elf32 => Some(Limitation::Architecture),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok(found.or(is_privileged.then_some(Limitation::Privileged)))
}

/// Whether a program gets rights that this process does not have.
fn is_set_id(metadata: &fs::Metadata) -> bool {
    let Ok(own) = fs::metadata("/proc/self") else { return false };
    let mode = metadata.permissions().mode();
    (mode & 0o4000 != 0 && metadata.uid() != own.uid())
        || (mode & 0o2010 == 0o2010 && metadata.gid() != own.gid())
}

/// Whether a file has capabilities that the kernel gives to its processes. Those of root have them anyway.
#[expect(unsafe_code, reason = "asks the system for an attribute of a file")]
fn has_capabilities(path: &Path) -> bool {
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    // SAFETY: both names end in a zero byte, and a size of zero asks for the length alone.
    let length =
        unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    length > 0 && !is_root
}

fn of_elf<'data, R: ReadRef<'data>>(
    file: &ElfFile<'data, elf::FileHeader64<Endianness>, R>,
) -> Option<Limitation> {
    let endian = file.endian();
    if file.elf_header().e_machine(endian) != own_machine() {
        return Some(Limitation::Architecture);
    }
    let interpreter = file.elf_program_headers().iter().find_map(|header| {
        let name = header.interpreter(endian, file.data()).ok().flatten()?;
        Some(Path::new(OsStr::from_bytes(name)).to_owned())
    });
    let Some(interpreter) = interpreter else { return Some(Limitation::Static) };
    let loader = interpreter.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !loader.starts_with("ld-linux") {
        return Some(Limitation::Loader(loader));
    }
    let needed = needed_libraries(file);
    let is_needed = |part: &str| {
        needed.iter().any(|name| {
            name.starts_with(&format!("lib{part}.so")) || name.contains(&format!("clang_rt.{part}"))
        })
    };
    // What a sanitizer or an allocator defines stands in both tables, unless the program was stripped.
    let mut own_malloc = None;
    let mut sanitizer =
        SANITIZERS.iter().find(|(_, library, _)| is_needed(library)).map(|(_, _, name)| *name);
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if name == "malloc" && symbol.is_definition() && symbol.kind() == object::SymbolKind::Text {
            own_malloc = own_malloc.or(Some("an allocator"));
        }
        if symbol.is_definition()
            && let Some((_, known)) = ALLOCATORS.iter().find(|(known, _)| *known == name)
        {
            own_malloc = Some(*known);
        }
        if let Some((_, _, known)) = SANITIZERS.iter().find(|(known, _, _)| *known == name) {
            sanitizer = Some(*known);
        }
    }
    sanitizer
        .map(Limitation::Sanitizer)
        .or(own_malloc.map(Limitation::OwnAllocator))
        .or_else(|| is_go(file).then_some(Limitation::Go))
}

/// The processor that this program was built for, as files of programs name it.
const fn own_machine() -> elf::Machine {
    if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 }
}

fn is_go<'data, R: ReadRef<'data>>(file: &ElfFile<'data, elf::FileHeader64<Endianness>, R>) -> bool {
    file.section_by_name(".go.buildinfo").is_some()
}

/// Libraries that a program is linked with.
fn needed_libraries<'data, R: ReadRef<'data>>(
    file: &ElfFile<'data, elf::FileHeader64<Endianness>, R>,
) -> Vec<String> {
    let endian = file.endian();
    let sections = file.elf_section_table();
    let Ok(Some((entries, strings))) = sections.dynamic(endian, file.data()) else { return Vec::new() };
    let Ok(strings) = sections.strings(endian, file.data(), strings) else { return Vec::new() };
    let needed = entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
    let names = needed.filter_map(|entry| entry.string(endian, strings).ok());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Finds the file of a program as the shell does, and follows the first lines of scripts to their interpreter. Returns
/// none if there is no such program.
pub(crate) fn program_file(program: &OsStr) -> Option<PathBuf> {
    let mut path =
        if program.as_bytes().contains(&b'/') { Some(PathBuf::from(program)) } else { in_path(program) }?;
    for _ in 0..MOST_SCRIPTS {
        match interpreter_of_script(&path) {
            Some(interpreter) => path = interpreter,
            None => break,
        }
    }
    path.is_file().then_some(path)
}

fn in_path(program: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

/// The program that runs a script; with `env`, the one that it finds.
fn interpreter_of_script(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let interpreter = Path::new(words.next()?);
    if interpreter.file_name().is_some_and(|name| name == "env") {
        let program = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return in_path(OsStr::new(program));
    }
    Some(interpreter.to_owned())
}
