//! The little of protocol buffers that profiles need.

/// A value as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes, which profiles do not use.
    Fixed,
}

impl Wire<'_> {
    /// Adds a number, or the numbers that bytes are packed with.
    pub(super) fn numbers(self, at: usize, out: &mut Vec<u64>) -> Result<(), (usize, String)> {
        match self {
            Self::Number(number) => out.push(number),
            Self::Bytes(bytes) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    out.push(
                        varint(&mut rest)
                            .ok_or_else(|| (at, "a number is cut off or too long".to_owned()))?,
                    );
                }
            }
            Self::Fixed => {}
        }
        Ok(())
    }
}

/// The fields of a message: where each is, its number and its value. Ends after an error.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Where the message ends.
    end: usize,
}

impl<'a> Fields<'a> {
    /// Those of `bytes`, which begin at `at`.
    pub(super) fn of(bytes: &'a [u8], at: usize) -> Self {
        Self { rest: bytes, end: at + bytes.len() }
    }

    fn field(&mut self) -> Result<(usize, u64, Wire<'a>), String> {
        let short = || "the message ends in the middle of a field".to_owned();
        let key = varint(&mut self.rest).ok_or_else(short)?;
        let wire = match key & 7 {
            0 => Wire::Number(varint(&mut self.rest).ok_or_else(short)?),
            1 | 5 => {
                let len = if key & 7 == 1 { 8 } else { 4 };
                self.rest = self.rest.get(len..).ok_or_else(short)?;
                Wire::Fixed
            }
            2 => {
                let len =
                    varint(&mut self.rest).and_then(|len| usize::try_from(len).ok()).ok_or_else(short)?;
                let bytes = self.rest.get(..len).ok_or_else(short)?;
                self.rest = &self.rest[len..];
                Wire::Bytes(bytes)
            }
            other => return Err(format!("there is no type {other} of fields")),
        };
        let len = if let Wire::Bytes(bytes) = wire { bytes.len() } else { 0 };
        Ok((self.end - self.rest.len() - len, key >> 3, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(usize, u64, Wire<'a>), (usize, String)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.end - self.rest.len();
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field.map_err(|reason| (at, reason)))
    }
}

/// Takes a number of up to ten bytes.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..10 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}
