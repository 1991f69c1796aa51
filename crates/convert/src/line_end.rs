//! Finds out what ends the lines of a text: LF, CRLF, or CR alone.

/// What ends lines, as far as the bytes so far show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// No line has ended yet.
    #[default]
    Unknown,
    /// A CR came last, which may be followed by an LF.
    AfterCr,
    /// LF, alone or after a CR.
    Lf,
    /// CR alone, as old Mac programs write.
    Cr,
}

/// Remark on a text whose lines end in CR alone.
pub(crate) const CR_REMARK: &str = "its lines end in CR alone, as old Mac programs write them";

impl LineEnd {
    /// Learns from the next bytes; those after the first end of a line say nothing more.
    pub(crate) fn learn(&mut self, bytes: &[u8]) {
        for byte in bytes {
            *self = match (*self, byte) {
                (Self::Lf | Self::Cr, _) => return,
                (Self::Unknown, b'\r') => Self::AfterCr,
                (Self::Unknown, b'\n') | (Self::AfterCr, b'\r' | b'\n') => Self::Lf,
                (Self::Unknown, _) => Self::Unknown,
                (Self::AfterCr, _) => Self::Cr,
            }
        }
    }

    /// Whether lines end in CR alone.
    pub(crate) fn is_cr(self) -> bool {
        self == Self::Cr
    }

    /// Returns the last byte of a line.
    pub(crate) fn byte(self) -> u8 {
        if self.is_cr() { b'\r' } else { b'\n' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_of_a_line_decides_wherever_pieces_end() {
        for (text, expected) in [
            ("a,b", LineEnd::Unknown),
            ("a,b\r", LineEnd::AfterCr),
            ("a,b\nc\rd", LineEnd::Lf),
            ("a,b\r\nc\rd", LineEnd::Lf),
            ("a,b\r\r\nc", LineEnd::Lf),
            ("a,b\rc\nd", LineEnd::Cr),
        ] {
            for at in 0..=text.len() {
                let mut end = LineEnd::default();
                end.learn(&text.as_bytes()[..at]);
                end.learn(&text.as_bytes()[at..]);
                assert_eq!(end, expected, "{text:?} in two pieces at {at}");
            }
        }
    }
}
