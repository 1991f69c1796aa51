//! The secret that every request has to know.
#![expect(unsafe_code, reason = "asks the kernel for random bytes")]

use std::fmt::Write as _;
use std::io;

use anyhow::{Context as _, Result};

/// Bytes of a token: 128 bits.
const BYTES: usize = 16;

/// A secret.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// Makes one that nobody can guess.
    pub(super) fn new() -> Result<Self> {
        let mut bytes = [0u8; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            let room = &mut bytes[filled..];
            // SAFETY: `room` is a live slice, and the kernel writes no more than its length.
            let got = unsafe { libc::getrandom(room.as_mut_ptr().cast(), room.len(), 0) };
            match usize::try_from(got) {
                Ok(got) => filled += got,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(io::Error::last_os_error()).context("making a secret address"),
            }
        }
        Ok(Self(bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })))
    }

    /// The token as it stands in an address.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether `text` is the token; how long that takes says nothing about where they differ.
    pub(super) fn is(&self, text: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), text.as_bytes());
        let difference = ours.iter().zip(theirs).fold(0u8, |all, (ours, theirs)| all | (ours ^ theirs));
        ours.len() == theirs.len() && std::hint::black_box(difference) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_knows_itself_and_nothing_else() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!(one.text().len(), 32);
        assert!(one.is(one.text()) && !one.is(other.text()));
        assert!(!one.is("") && !one.is(&one.text()[..31]) && !one.is(&format!("{}0", one.text())));
    }
}
