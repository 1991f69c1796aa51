//! Which format a file has, told by what is in it and never by its name.
//!
//! One table holds the formats, in the order in which they are tried. A format is added by one variant
//! of [`Format`] and one entry in the table.

use std::fs::{File, Metadata};
use std::io::{self, Chain, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use floodmark_event::text::shell_word;
use floodmark_store::{Error, Result};

use crate::decompress::{Compression, CutOff, Decompress};
use crate::foreign::{
    Opener, open_memory_logger, open_mprof, open_psrecord, open_pymemtrace, open_rmm_csv, open_smi,
};
use crate::quote::quoted;
use crate::{
    dhat, heap_profile, heaptrack, kineto, massif, memory_logger, memray, mprof, nsys, pprof, psrecord,
    pymemtrace, rmm, smi, torch,
};

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A trace of our own: a directory.
    Trace,
    /// A log of RMM's logging adaptor: CSV.
    RmmCsv,
    /// A log of MOOSE's `memory_logger`.
    MemoryLogger,
    /// What `nvidia-smi` printed.
    Smi,
    /// A file of `mprof`, of `memory_profiler`.
    Mprof,
    /// A log of `psrecord`.
    Psrecord,
    /// A log of `pymemtrace`.
    Pymemtrace,
    /// A memory snapshot of `PyTorch`: a pickle.
    Torch,
    /// A trace of `PyTorch`'s profiler: JSON.
    Kineto,
    /// A memory profile in pprof's format, as JAX writes.
    Pprof,
    /// An export of Nsight Systems: a database or a folder.
    Nsys,
    /// What heaptrack recorded, interpreted or raw.
    Heaptrack,
    /// What memray recorded: a `.bin` file.
    Memray,
    /// A file of valgrind's massif.
    Massif,
    /// A file of valgrind's DHAT: JSON.
    Dhat,
    /// A heap profile of jemalloc or of gperftools (tcmalloc).
    HeapProfile,
}

/// What is known of one format.
pub(crate) struct Known {
    pub(crate) format: Format,
    pub(crate) name: &'static str,
    recognizes: fn(&Candidate) -> bool,
    pub(crate) opener: Opener,
}

const FORMATS: [Known; 16] = [
    Known { format: Format::Trace, name: "trace directory", recognizes: is_trace, opener: Opener::Trace },
    // Before RMM's, because its text may hold a word that RMM has for what it did.
    Known {
        format: Format::MemoryLogger,
        name: "memory_logger log",
        recognizes: |candidate| memory_logger::begins_log(&candidate.head),
        opener: Opener::Rows(|candidate, props| Ok(open_memory_logger(candidate, props))),
    },
    Known {
        format: Format::RmmCsv,
        name: "RMM log (CSV)",
        recognizes: |candidate| rmm::begins_log(&candidate.head),
        opener: Opener::Events(open_rmm_csv),
    },
    Known {
        format: Format::Smi,
        name: "nvidia-smi output",
        recognizes: |candidate| smi::begins_log(&candidate.head),
        opener: Opener::Rows(|candidate, props| Ok(open_smi(candidate, props))),
    },
    Known {
        format: Format::Mprof,
        name: "mprof file",
        recognizes: |candidate| mprof::begins_log(&candidate.head),
        opener: Opener::Rows(open_mprof),
    },
    Known {
        format: Format::Psrecord,
        name: "psrecord log",
        recognizes: |candidate| psrecord::begins_log(&candidate.head),
        opener: Opener::Rows(|candidate, props| Ok(open_psrecord(candidate, props))),
    },
    Known {
        format: Format::Pymemtrace,
        name: "pymemtrace log",
        recognizes: |candidate| pymemtrace::begins_log(&candidate.head),
        opener: Opener::Rows(|candidate, props| Ok(open_pymemtrace(candidate, props))),
    },
    Known {
        format: Format::Torch,
        name: "PyTorch memory snapshot",
        recognizes: |candidate| torch::begins_pickle(&candidate.head),
        opener: Opener::Whole(torch::parse),
    },
    Known {
        format: Format::Kineto,
        name: "PyTorch profiler trace",
        recognizes: |candidate| kineto::begins_trace(&candidate.head),
        opener: Opener::Whole(kineto::parse),
    },
    Known {
        format: Format::Pprof,
        name: "pprof memory profile",
        recognizes: |candidate| pprof::begins_profile(&candidate.head),
        opener: Opener::Whole(pprof::parse),
    },
    Known {
        format: Format::Nsys,
        name: "Nsight Systems export",
        recognizes: |candidate| nsys::is_export(&candidate.path, &candidate.head),
        opener: Opener::Whole(|candidate, props| nsys::parse(&candidate, props)),
    },
    Known {
        format: Format::Heaptrack,
        name: "heaptrack file",
        recognizes: |candidate| heaptrack::begins_log(&candidate.head),
        opener: Opener::Whole(|candidate, props| heaptrack::STREAMS.parse(candidate, props)),
    },
    Known {
        format: Format::Memray,
        name: "memray file",
        recognizes: |candidate| memray::begins_file(&candidate.head),
        opener: Opener::Whole(|candidate, props| memray::STREAMS.parse(candidate, props)),
    },
    Known {
        format: Format::Massif,
        name: "massif file",
        recognizes: |candidate| massif::begins_file(&candidate.head),
        opener: Opener::Whole(massif::parse),
    },
    Known {
        format: Format::Dhat,
        name: "DHAT file",
        recognizes: |candidate| dhat::begins_file(&candidate.head),
        opener: Opener::Whole(dhat::parse),
    },
    Known {
        format: Format::HeapProfile,
        name: "heap profile (jemalloc, tcmalloc)",
        recognizes: |candidate| heap_profile::begins_file(&candidate.head),
        opener: Opener::Whole(heap_profile::parse),
    },
];

fn is_trace(candidate: &Candidate) -> bool {
    let path = &candidate.path;
    candidate.is_directory && (path.join("manifest.json").is_file() || path.join("segments").is_dir())
}

impl Format {
    /// What the format is called.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|known| known.format == self).map_or("", |known| known.name)
    }
}

/// Recognizes the file or directory at `path`.
///
/// # Errors
/// [`Error::Unrecognized`] says what it looks like instead; [`Error::Io`] if it cannot be read.
pub fn recognize(path: &Path) -> Result<Format> {
    Candidate::at(path)?.recognize().map(|known| known.format)
}

/// How much of a file is looked at.
const HEAD_BYTES: usize = 4096;

/// All bytes of an input: those that were read to recognize it, then the rest.
pub(crate) type WholeInput = Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>;

/// Something to recognize.
pub(crate) struct Candidate {
    /// Path as the user named it.
    pub(crate) path: PathBuf,
    /// Whether it is a regular file or a directory, which can be opened again.
    pub(crate) is_file: bool,
    is_directory: bool,
    /// Whether compressed data ended too early, if what is read is decompressed on the way.
    pub(crate) cut_off: Option<CutOff>,
    /// The first bytes of a file, which are gone from `rest`; all of a short one, none of a directory.
    head: Vec<u8>,
    rest: Box<dyn Read + Send>,
    /// Length of the file, if it has one.
    pub(crate) total_bytes: Option<u64>,
}

impl Candidate {
    /// Looks at the file or directory at `path`.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        if path.is_dir() {
            let (head, rest) = (Vec::new(), Box::new(io::empty()));
            let path = path.to_owned();
            return Ok(Self {
                path,
                is_file: true,
                is_directory: true,
                cut_off: None,
                head,
                rest,
                total_bytes: None,
            });
        }
        let file = File::open(path).map_err(Error::io("opening", path))?;
        // Pipes and devices state a length too, which means nothing.
        let total_bytes = file.metadata().ok().filter(Metadata::is_file).map(|metadata| metadata.len());
        let candidate = Self::of(Box::new(file), path)?;
        // The decompressed length is not known.
        let is_file = total_bytes.is_some();
        Ok(Self { is_file, total_bytes: total_bytes.filter(|_| candidate.cut_off.is_none()), ..candidate })
    }

    /// Looks at an input; `path` is what messages call it.
    pub(crate) fn of(mut input: Box<dyn Read + Send>, path: &Path) -> Result<Self> {
        let mut head = read_head(&mut input).map_err(Error::io("reading", path))?;
        let mut cut_off = None;
        if let Some(compression) = Compression::of(&head) {
            let decompress = Decompress::new(compression, Cursor::new(head).chain(input));
            let decompress = decompress.map_err(Error::io("decompressing", path))?;
            cut_off = Some(decompress.cut_off());
            input = Box::new(decompress);
            head = read_head(&mut input).map_err(Error::io("decompressing", path))?;
        }
        let path = path.to_owned();
        Ok(Self { path, is_file: false, is_directory: false, cut_off, head, rest: input, total_bytes: None })
    }

    /// The path, the length if known, and the whole input from its first byte on.
    pub(crate) fn into_parts(self) -> (PathBuf, Option<u64>, WholeInput) {
        (self.path, self.total_bytes, Cursor::new(self.head).chain(self.rest))
    }

    pub(crate) fn recognize(&self) -> Result<&'static Known> {
        if let Some(known) = FORMATS.iter().find(|known| (known.recognizes)(self)) {
            return Ok(known);
        }
        let look = if self.is_directory {
            "it is a directory with neither manifest.json nor segments".to_owned()
        } else {
            look_of(&self.head, &self.path)
        };
        let names: Vec<_> = FORMATS.iter().map(|known| known.name).collect();
        let reason = format!("{look}; known formats: {}", names.join(", "));
        Err(Error::Unrecognized { path: self.path.clone(), reason })
    }
}

fn read_head(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let mut len = 0;
    // A pipe may give a few bytes at a time; its first line is enough to tell.
    while len < HEAD_BYTES && !head[..len].trim_ascii_start().contains(&b'\n') {
        match input.read(&mut head[len..]) {
            Ok(0) => break,
            Ok(count) => len += count.min(HEAD_BYTES - len),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(len);
    Ok(head)
}

/// Other compressed files by their first bytes, and what undoes it.
const COMPRESSIONS: [(&[u8], &str, &str); 2] =
    [(b"\xfd7zXZ\0", "xz", "xz -dc"), (b"BZh", "bzip2", "bzip2 -dc")];

/// Says what a file looks like that no format fits.
fn look_of(head: &[u8], path: &Path) -> String {
    if head.is_empty() {
        return "it is empty".to_owned();
    }
    if let Some((_, name, undo)) = COMPRESSIONS.iter().find(|(magic, ..)| head.starts_with(magic)) {
        let path = path.display().to_string();
        let file = if path == "-" { String::new() } else { format!(" {}", shell_word(&path)) };
        return format!("it is compressed with {name}; try: {undo}{file} | floodmark stats -");
    }
    if head.starts_with(b"PK\x03\x04") {
        return "it is a zip archive, as torch.save writes; memory snapshots come from \
                torch.cuda.memory._dump_snapshot"
            .to_owned();
    }
    if pymemtrace::begins_reference_log(head) {
        return "it is a log of pymemtrace's ReferenceTracing, which lists objects that are made and freed without their \
                sizes, and no calls; record the program with 'floodmark trace' or with pymemtrace's Profile"
            .to_owned();
    }
    let line = head.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let Some(line) = line else { return "it holds nothing but blank lines".to_owned() };
    // A character may be cut off where the head ends.
    let is_text = match str::from_utf8(line) {
        Ok(text) => !text.contains('\0'),
        Err(error) => error.error_len().is_none() && !line.contains(&0),
    };
    if is_text {
        format!("it is text that begins with {}", quoted(line.trim_ascii()))
    } else {
        format!("it is binary and begins with {}", quoted(&head[..head.len().min(16)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(head: &'static [u8], path: &str) -> std::result::Result<Format, String> {
        Candidate::of(Box::new(head), Path::new(path))
            .and_then(|candidate| candidate.recognize())
            .map(|known| known.format)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn logs_are_recognized_good_or_bad() {
        for head in [
            "Thread,Time,Action,Pointer,Size,Stream\n",
            "\u{feff}\n\r\nTime,Action,Pointer,Size,Stream\r\n",
            "Size,Action",
            "687,06:29:01.412806,allocate,0x7fa510000000,1024,0\n",
            "Event Type,Device ID,Address,Stream\n",
        ] {
            assert_eq!(recognized(head.as_bytes(), "x"), Ok(Format::RmmCsv), "{head}");
        }
    }

    #[test]
    fn logs_of_samples_are_recognized_by_their_first_line() {
        for (head, format) in [
            ("1794724130.446520,52716,|step 0\n|,,vm,52716\r\n", Format::MemoryLogger),
            ("1794724130.446520,0,free,,vm,0\r\n", Format::MemoryLogger),
            ("timestamp, memory.used [MiB]\n", Format::Smi),
            ("2026/11/15 13:12:48.965, 5647\n", Format::Smi),
            ("# gpu     fb   bar1   ccpm \n# Idx     MB     MB     MB \n", Format::Smi),
            ("Failed to initialize NVML: Driver/library version mismatch\n", Format::Smi),
            ("CMDLINE python app.py\n", Format::Mprof),
            ("MEM 6.289062 1794748403.5063\n", Format::Mprof),
            ("FUNC __main__.load 22.8 1794748403.5864 42.8 1794748403.8563 1\n", Format::Mprof),
            ("# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n", Format::Psrecord),
            ("elapsed_time,nproc,cpu,mem_real,mem_virtual\n", Format::Psrecord),
        ] {
            assert_eq!(recognized(head.as_bytes(), "x"), Ok(format), "{head}");
        }
        for other in ["1794724130,52716,", "MEM and more", "FUNC name", "# a comment", "2026/11/15 13:12:48"]
        {
            assert!(recognized(other.as_bytes(), "x").is_err(), "{other}");
        }
    }

    #[test]
    fn databases_are_taken_for_exports() {
        assert_eq!(recognized(b"SQLite format 3\0\x10\0", "x"), Ok(Format::Nsys));
    }

    #[test]
    fn what_is_not_recognized_is_described() {
        let known = "known formats: trace directory, memory_logger log, RMM log (CSV), nvidia-smi output, \
                     mprof file, psrecord log, pymemtrace log, PyTorch memory snapshot, PyTorch profiler trace, pprof memory profile, Nsight Systems export, \
                     heaptrack file, memray file, massif file, DHAT file, heap profile (jemalloc, tcmalloc)";
        for (head, look) in [
            (&b""[..], "it is empty"),
            (b"\n \r\n", "it holds nothing but blank lines"),
            (b"hello,\x1b world\nmore", r"it is text that begins with 'hello,\x1b world'"),
            (b"\x90\x02}q\0", r"it is binary and begins with '\x90\x02}q\x00'"),
            (b"BZh9", "it is compressed with bzip2; try: bzip2 -dc 'a b.gz' | floodmark stats -"),
            (
                b"a message\nSOF\nHDR:        Clock          Address          LiveCnt Type   File   Line Function   RSS  dRSS\n",
                "it is a log of pymemtrace's ReferenceTracing, which lists objects that are made and freed without \
                 their sizes, and no calls; record the program with 'floodmark trace' or with pymemtrace's Profile",
            ),
        ] {
            assert_eq!(recognized(head, "a b.gz"), Err(format!("a b.gz is not recognized: {look}; {known}")));
        }
        let error = recognized(b"BZh9", "-");
        assert!(error.is_err_and(|text| text.contains("try: bzip2 -dc | floodmark stats -")));
        assert_eq!(recognized(b"\x1f\x8b\x08\0", "x"), Err("decompressing x".to_owned()));
    }
}
