//! The secret that every request has to know.

use std::fmt::Write as _;
use std::io;

use crate::error::{Error, Result};

/// Bytes of a token: 128 bits.
const BYTES: usize = 16;

/// A secret.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// Makes one of random bytes.
    pub(super) fn new() -> Result<Self> {
        let mut bytes = [0u8; BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Io { act: "making a secret address", source: io::Error::from(error) })?;
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
