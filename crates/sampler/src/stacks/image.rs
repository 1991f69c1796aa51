//! Programs and libraries: their unwind tables, read once for all processes that use them.
//!
//! A file is opened through a process that uses it and stays open: its inode number is then not reused, and
//! its symbols can be read after the process has ended.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, ReadRef};

use super::maps::{Code, FileKey};

/// Largest plausible size of the kernel's vDSO.
pub(crate) const MOST_VDSO: u64 = 1 << 20;

/// Directory in which distributions install separate debug information, by build id.
const SEPARATE: &str = "/usr/lib/debug/.build-id";

/// Source of the bytes of a module.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// A file.
    File(File),
    /// Memory of a process, for code without a file.
    Memory(Vec<u8>),
}

/// Address and contents of a section.
type Section = (Range<u64>, Arc<[u8]>);

/// A module: a program or library.
#[derive(Debug)]
pub(crate) struct Image {
    key: FileKey,
    bytes: Bytes,
    /// Loaded segments: offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    text: Option<Range<u64>>,
    frames: Option<Section>,
    index: Option<Section>,
    /// Build id, which names the file of separate debug information.
    build: Option<Vec<u8>>,
    /// Functions of a module without a file: address, size, name.
    functions: Vec<(u64, u64, String)>,
}

impl Image {
    fn read(key: FileKey, bytes: Bytes) -> Option<Self> {
        let mut image = Self {
            key,
            bytes,
            segments: Vec::new(),
            text: None,
            frames: None,
            index: None,
            build: None,
            functions: Vec::new(),
        };
        match &image.bytes {
            Bytes::File(file) => {
                let cache = ReadCache::new(file.try_clone().ok()?);
                let parts = Parts::read(&cache)?;
                parts.put(&mut image);
            }
            Bytes::Memory(bytes) => {
                let bytes = bytes.clone();
                let parts = Parts::read(bytes.as_slice())?;
                parts.put(&mut image);
                image.functions = functions(&bytes);
            }
        }
        Some(image)
    }

    /// Difference between the addresses in memory and those in the file.
    pub(crate) fn bias(&self, code: &Code) -> Option<u64> {
        let inside = |(offset, length, _): &&(u64, u64, u64)| {
            // A mapping begins at the page of the segment's start.
            (offset & !0xfff..offset + length).contains(&code.offset)
        };
        // If two segments share a page, the mapping belongs to the later one.
        let (offset, _, address) = self.segments.iter().rfind(inside)?;
        Some(code.start.wrapping_sub(address.wrapping_add(code.offset.wrapping_sub(*offset))))
    }

    /// The module for the unwinder, loaded at these addresses.
    pub(crate) fn module(&self, range: Range<u64>, bias: u64) -> Module<Arc<[u8]>> {
        let (frames, index) = (self.frames.clone(), self.index.clone());
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: self.text.clone(),
            eh_frame_svma: frames.as_ref().map(|(range, _)| range.clone()),
            eh_frame: frames.map(|(_, bytes)| bytes),
            eh_frame_hdr_svma: index.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: index.map(|(_, bytes)| bytes),
            ..Default::default()
        };
        Module::new(self.key.path.clone(), range, bias, info)
    }

    /// Name of the module.
    pub(crate) fn name(&self) -> &str {
        self.key.name()
    }

    /// Separate debug information of the module, if it is installed.
    pub(crate) fn separate_symbols(&self) -> Option<PathBuf> {
        let (first, rest) = self.build.as_deref()?.split_first()?;
        let mut name = format!("{SEPARATE}/{first:02x}/");
        for byte in rest {
            let _ = write!(name, "{byte:02x}");
        }
        let path = PathBuf::from(name + ".debug");
        path.is_file().then_some(path)
    }

    /// A path to read symbols from; none for a module without a file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let Bytes::File(file) = &self.bytes else { return None };
        // Separate debug information is searched for by the real path, which may lead to another file here
        // than in the process, or to none.
        let same = |path: &PathBuf| {
            use std::os::unix::fs::MetadataExt as _;
            let (theirs, ours) = (std::fs::metadata(path).ok()?, file.metadata().ok()?);
            ((theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino())).then_some(())
        };
        let named = self.key.path().filter(|path| same(path).is_some());
        Some(named.unwrap_or_else(|| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))))
    }

    /// The function at an address of a module without a file.
    pub(crate) fn function(&self, address: u64) -> Option<&str> {
        let inside =
            |(start, size, _): &&(u64, u64, String)| (*start..start + size.max(&1)).contains(&address);
        self.functions.iter().find(inside).map(|(_, _, name)| name.as_str())
    }
}

struct Parts {
    segments: Vec<(u64, u64, u64)>,
    text: Option<Range<u64>>,
    frames: Option<Section>,
    index: Option<Section>,
    build: Option<Vec<u8>>,
}

impl Parts {
    fn read<'a, R: ReadRef<'a>>(bytes: R) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let section = |name: &str| -> Option<Section> {
            let contents = file.section_by_name(name)?.data().ok()?;
            Some((range(name)?, Arc::from(contents)))
        };
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        Some(Self {
            segments: segments.collect(),
            text: range(".text"),
            frames: section(".eh_frame"),
            index: section(".eh_frame_hdr"),
            build: file.build_id().ok().flatten().map(<[u8]>::to_vec),
        })
    }

    fn put(self, image: &mut Image) {
        (image.segments, image.text) = (self.segments, self.text);
        (image.frames, image.index, image.build) = (self.frames, self.index, self.build);
    }
}

fn functions(bytes: &[u8]) -> Vec<(u64, u64, String)> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let named = file.dynamic_symbols().filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        symbol.is_definition().then(|| (symbol.address(), symbol.size(), name.to_owned()))
    });
    named.collect()
}

/// All known modules.
#[derive(Debug, Default)]
pub(crate) struct Images(HashMap<FileKey, Option<Arc<Image>>>);

impl Images {
    /// Adds a module; one that cannot be parsed is remembered as such.
    pub(crate) fn add(&mut self, key: FileKey, bytes: Option<Bytes>) {
        let image = bytes.and_then(|bytes| Image::read(key.clone(), bytes));
        self.0.entry(key).or_insert(image.map(Arc::new));
    }

    pub(crate) fn get(&self, key: &FileKey) -> Option<&Arc<Image>> {
        self.0.get(key)?.as_ref()
    }
}
