//! Finding bytes in bytes, as fast as the C library does.
#![expect(unsafe_code, reason = "memchr and memmem are C functions")]

/// Where a byte is first found.
pub(crate) fn find_byte(bytes: &[u8], byte: u8) -> Option<usize> {
    // SAFETY: the slice is valid for its length.
    let found = unsafe { libc::memchr(bytes.as_ptr().cast(), i32::from(byte), bytes.len()) };
    (!found.is_null()).then(|| found.addr() - bytes.as_ptr().addr())
}

/// Whether some bytes are found.
pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    // SAFETY: both slices are valid for their lengths.
    let found = unsafe { libc::memmem(bytes.as_ptr().cast(), bytes.len(), part.as_ptr().cast(), part.len()) };
    !found.is_null()
}
