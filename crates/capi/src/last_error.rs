//! The message of the last failure of a thread.
//!
//! Invariants: the text is always terminated and valid UTF-8; it lives in the thread's own memory and has
//! no destructor, so it can be read and written until the thread is gone.
#![expect(unsafe_code, reason = "hands out a pointer into thread-local memory")]

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::fmt::{self, Display, Write};

/// Longest message with its terminator; a longer one is cut.
const MESSAGE_BYTES: usize = 512;

thread_local! {
    static MESSAGE: UnsafeCell<[u8; MESSAGE_BYTES]> = const { UnsafeCell::new([0; MESSAGE_BYTES]) };
}

struct Message {
    bytes: [u8; MESSAGE_BYTES],
    len: usize,
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = text.floor_char_boundary(MESSAGE_BYTES - 1 - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        // An error ends the formatting, so that no later piece follows one that was cut.
        if len == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Stores the message of a failure.
pub(crate) fn set(message: &dyn Display) {
    let mut text = Message { bytes: [0; MESSAGE_BYTES], len: 0 };
    // A message that does not fit is cut.
    let _ = write!(text, "{message}");
    // SAFETY: no reference into the cell exists: only this function writes, and it calls nothing here.
    MESSAGE.with(|cell| unsafe { *cell.get() = text.bytes });
}

/// Returns the message of the last failure, which the thread's next failure replaces; empty if none failed.
pub(crate) fn pointer() -> *const c_char {
    MESSAGE.with(|cell| cell.get().cast_const().cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn text() -> &'static str {
        // SAFETY: always terminated; this thread outlives the test's use of it.
        unsafe { CStr::from_ptr(pointer()) }.to_str().expect("UTF-8")
    }

    #[test]
    fn a_long_message_is_cut_between_characters_and_a_short_one_replaces_it() {
        assert_eq!(text(), "");
        set(&"ä".repeat(600));
        assert_eq!(text(), "ä".repeat(255));
        set(&format_args!("{}{}", "é".repeat(255), "é, and more"));
        assert_eq!(text(), "é".repeat(255));
        set(&"short");
        assert_eq!(text(), "short");
    }
}
