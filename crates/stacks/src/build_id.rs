//! Build ids in files of modules: read as the loader's headers name them, so that what was recorded from memory and what a
//! file has are the same notes.
//!
//! Sections are not looked at: other notes have the number of a build id too (probes of `SystemTap`, for one).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use libc::{Elf64_Phdr, PT_NOTE};

use crate::loader::{build_id_in, hexadecimal};

/// Most bytes of headers, and of a note, that are read.
const MOST_BYTES: u64 = 1 << 16;
/// Bytes of a program header.
const HEADER_BYTES: usize = size_of::<Elf64_Phdr>();

/// Reads the build id of a module's file, in hexadecimal; none if it has none or cannot be read.
pub fn build_id(module: &Path) -> Option<String> {
    let file = File::open(module).ok()?;
    let start = bytes_at(&file, 0, 64)?;
    // Files of 64 bits, in this machine's order.
    if start[..5] != *b"\x7fELF\x02" || start[5] != if cfg!(target_endian = "little") { 1 } else { 2 } {
        return None;
    }
    let (place, bytes, count) = (word(&start, 32)?, half(&start, 54)?, half(&start, 56)?);
    if usize::from(bytes) != HEADER_BYTES {
        return None;
    }
    let headers = bytes_at(&file, place, u64::from(bytes) * u64::from(count))?;
    headers.chunks_exact(HEADER_BYTES).find_map(|header| {
        if header[..4] != PT_NOTE.to_ne_bytes() {
            return None;
        }
        let notes = bytes_at(&file, word(header, 8)?, word(header, 32)?)?;
        let alignment = usize::try_from(word(header, 48)?).ok()?;
        build_id_in(&notes, alignment).map(hexadecimal)
    })
}

fn bytes_at(file: &File, place: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > MOST_BYTES {
        return None;
    }
    let mut read = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut read, place).ok()?;
    Some(read)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use floodmark_testkit::TempDir;

    use super::*;

    fn note(owner: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for field in [owner.len() as u32, bytes.len() as u32, 3] {
            note.extend(field.to_ne_bytes());
        }
        for bytes in [owner, bytes] {
            note.extend(bytes);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    /// A file whose notes of a program header and of a section differ, as `libc10_cuda.so` of PyTorch has them.
    fn file(loaded: &[u8], section: &[u8]) -> Vec<u8> {
        let headers = 64 + HEADER_BYTES;
        let sections = (headers + loaded.len() + section.len()).next_multiple_of(8);
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        for field in [3_u16, 62] {
            file.extend(field.to_le_bytes());
        }
        file.extend(1_u32.to_le_bytes());
        for field in [0_u64, 64, sections as u64] {
            file.extend(field.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for field in [64_u16, HEADER_BYTES as u16, 1, 64, 2, 0] {
            file.extend(field.to_le_bytes());
        }
        file.extend(PT_NOTE.to_le_bytes());
        file.extend(4_u32.to_le_bytes());
        let bytes = loaded.len() as u64;
        for field in [headers as u64, 0, 0, bytes, bytes, 4] {
            file.extend(field.to_le_bytes());
        }
        file.extend(loaded);
        file.extend(section);
        file.resize(sections + 64, 0);
        // A section of notes, which no segment has.
        for field in [0_u32, 7] {
            file.extend(field.to_le_bytes());
        }
        for field in [0_u64, 0, (headers + loaded.len()) as u64, section.len() as u64, 0, 4, 0] {
            file.extend(field.to_le_bytes());
        }
        file
    }

    #[test]
    fn notes_of_probes_are_not_taken_for_the_build_id() {
        let directory = TempDir::new("build-id");
        let path = directory.join("library.so");
        let (probe, id) = (note(b"stapsdt\0", &[9; 45]), note(b"GNU\0", &[0xab; 20]));
        std::fs::write(&path, file(&id, &probe)).expect("can be written");
        assert_eq!(build_id(&path), Some("ab".repeat(20)));
        // The order of notes in one segment does not matter.
        std::fs::write(&path, file(&[probe.clone(), id].concat(), &[])).expect("can be written");
        assert_eq!(build_id(&path), Some("ab".repeat(20)));
        std::fs::write(&path, file(&probe, &probe)).expect("can be written");
        assert_eq!(build_id(&path), None);
    }

    #[test]
    fn files_that_are_cut_or_no_modules_have_none() {
        let directory = TempDir::new("build-id-cut");
        let path = directory.join("library.so");
        let whole = file(&note(b"GNU\0", &[1; 20]), &[]);
        for cut in 0..64 + HEADER_BYTES + 36 {
            std::fs::write(&path, &whole[..cut]).expect("can be written");
            assert_eq!(build_id(&path), None, "{cut}");
        }
        assert_eq!(build_id(&directory.join("none")), None);
    }
}
