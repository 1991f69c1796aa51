//! C strings of any content, read without allocating.
//!
//! Invariants: at most [`MAX_BYTES`] of a string are read, more than the recorder keeps; bytes that are not
//! UTF-8 become replacement characters; a null pointer is no string.
#![expect(unsafe_code, reason = "reads strings of C programs")]

use std::ffi::c_char;

/// Most bytes of a string that are looked at.
const MAX_BYTES: usize = 4096;

/// Returns the bytes of a string, at most `limit` of them; `None` for a null pointer.
///
/// # Safety
/// `string` is null, or points to bytes up to a zero that stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(string: *const c_char, limit: usize) -> Option<&'a [u8]> {
    let string = string.cast::<u8>();
    if string.is_null() {
        return None;
    }
    // SAFETY: each byte up to the zero can be read, as the caller guarantees, and none after it is.
    let len = (0..limit).find(|at| unsafe { *string.add(*at) } == 0).unwrap_or(limit);
    // SAFETY: those bytes were read just now.
    Some(unsafe { std::slice::from_raw_parts(string, len) })
}

/// Calls `with` with the text of a string; returns `None` for a null pointer.
///
/// # Safety
/// As for [`bytes`], until `with` returns.
pub(crate) unsafe fn with_text<R>(string: *const c_char, with: impl FnOnce(&str) -> R) -> Option<R> {
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { bytes(string, MAX_BYTES) }?;
    Some(match std::str::from_utf8(bytes) {
        Ok(text) => with(text),
        Err(_) => with_replaced(bytes, with),
    })
}

/// Calls `with` with the text of `bytes`, cut to [`MAX_BYTES`], in which replacement characters stand for
/// what is not UTF-8.
#[cold]
fn with_replaced<R>(bytes: &[u8], with: impl FnOnce(&str) -> R) -> R {
    let mut buffer = [0; MAX_BYTES];
    let mut len = 0;
    for chunk in bytes.utf8_chunks() {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        for piece in [chunk.valid(), replacement] {
            let fits = piece.floor_char_boundary(MAX_BYTES - len);
            buffer[len..len + fits].copy_from_slice(&piece.as_bytes()[..fits]);
            len += fits;
        }
    }
    with(std::str::from_utf8(&buffer[..len]).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(string: &[u8]) -> String {
        assert_eq!(string.last(), Some(&0));
        // SAFETY: terminated, as just checked.
        unsafe { with_text(string.as_ptr().cast(), str::to_owned) }.expect("not null")
    }

    #[test]
    fn text_ends_at_the_zero_and_invalid_bytes_are_replaced_as_the_standard_library_does() {
        for bytes in
            [&b""[..], b"plain", "größer".as_bytes(), b"a\xff\xfeb", b"\xe2\x82", b"\xf0\x9f\x98x\x80"]
        {
            let string = [bytes, b"\0behind"].concat();
            assert_eq!(text_of(&[&string[..], b"\0"].concat()), String::from_utf8_lossy(bytes));
        }
        // SAFETY: null pointers are allowed.
        assert_eq!(unsafe { with_text(std::ptr::null(), str::len) }, None);
    }

    #[test]
    fn a_string_without_end_is_cut() {
        let plain = vec![b'x'; 3 * MAX_BYTES];
        // SAFETY: only the first `MAX_BYTES` are read.
        assert_eq!(unsafe { with_text(plain.as_ptr().cast(), str::len) }, Some(MAX_BYTES));
        let invalid = vec![0xff_u8; 3 * MAX_BYTES];
        // SAFETY: only the first `MAX_BYTES` are read.
        let len = unsafe { with_text(invalid.as_ptr().cast(), str::len) };
        assert_eq!(len, Some(MAX_BYTES / 3 * 3));
    }
}
