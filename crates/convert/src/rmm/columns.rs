//! The header of a log: which column is where.
//!
//! Columns are found by name, whatever their order; unknown columns are ignored.
//! A log may be several logs one after another, so a header can turn up again in the middle.

use crate::quote::quoted;

/// RMM's own header.
pub(super) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// What a column holds, in the order of RMM's own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Thread,
    Time,
    Action,
    Pointer,
    Size,
    Stream,
}

impl Role {
    pub(super) const ALL: [Self; 6] =
        [Self::Thread, Self::Time, Self::Action, Self::Pointer, Self::Size, Self::Stream];
    /// Without these a row says nothing.
    const REQUIRED: [Self; 3] = [Self::Action, Self::Pointer, Self::Size];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Thread => "Thread",
            Self::Time => "Time",
            Self::Action => "Action",
            Self::Pointer => "Pointer",
            Self::Size => "Size",
            Self::Stream => "Stream",
        }
    }

    fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|role| name.eq_ignore_ascii_case(role.name().as_bytes()))
    }
}

/// The roles of the columns, from left to right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// `None` for a column that is passed over.
    pub(super) roles: Vec<Option<Role>>,
    /// Whether they are exactly RMM's own, in RMM's order.
    pub(super) canonical: bool,
}

impl Columns {
    /// Parses a header.
    ///
    /// # Errors
    /// What keeps the line from being the header of a log.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let line = without_mark(line);
        let mut roles: Vec<Option<Role>> = Vec::new();
        for field in Fields::of(line) {
            let role = Role::of(field);
            if role.is_some() && roles.contains(&role) {
                return Err(format!("its header {} names a column twice", quoted(line)));
            }
            roles.push(role);
        }
        if line.starts_with(b"Event Type,Device ID,Address") {
            return Err(
                "it is the 12-column log that RMM wrote before 2020 (Event Type, Device ID, Address, …), \
                 which Floodmark does not read; logs of RMM 0.13 and later have the columns Thread, Time, \
                 Action, Pointer, Size and Stream"
                    .into(),
            );
        }
        let missing: Vec<_> =
            Role::REQUIRED.into_iter().filter(|role| !roles.contains(&Some(*role))).map(Role::name).collect();
        if missing.len() == Role::REQUIRED.len() {
            return Err(format!(
                "its first line is {}, where the header of an RMM log was expected: {HEADER}",
                quoted(line)
            ));
        }
        if !missing.is_empty() {
            return Err(format!(
                "its header {} lacks {}; the columns Action, Pointer and Size are needed, \
                 Thread, Time and Stream are read if they are there",
                quoted(line),
                missing.join(" and ")
            ));
        }
        let canonical = roles.iter().copied().eq(Role::ALL.into_iter().map(Some));
        Ok(Self { roles, canonical })
    }
}

/// Whether `line` is meant as a header of an RMM log, good or bad, or as a row of one.
pub(super) fn looks_like_log(line: &[u8]) -> bool {
    let line = without_mark(line);
    let known = Fields::of(line).filter(|field| Role::of(field).is_some()).count();
    let acts = Fields::of(line).any(|field| super::row::action(field).is_some());
    known >= 2 || acts || line.starts_with(b"Event Type,Device ID,Address")
}

/// Returns `text` without a byte order mark.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The fields of a line: separated by commas, without the blanks and quotes around them. A comma
/// within quotes does not separate.
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        Self { rest: Some(line) }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let quoted_len = match rest {
            [b'"', after @ ..] => memchr::memchr(b'"', after).map_or(0, |len| len + 2),
            _ => 0,
        };
        let end = rest[quoted_len..].iter().position(|byte| *byte == b',').map(|at| at + quoted_len);
        self.rest = end.map(|end| &rest[end + 1..]);
        let field = rest[..end.unwrap_or(rest.len())].trim_ascii();
        Some(match field {
            [b'"', inner @ .., b'"'] => inner,
            _ => field,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Columns {
        Columns::parse(line.as_bytes()).expect("a good header")
    }

    fn error(line: &str) -> String {
        Columns::parse(line.as_bytes()).expect_err("a bad header")
    }

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        assert!(parse(HEADER).canonical);
        assert!(parse("\u{feff}Thread,Time,Action,Pointer,Size,Stream").canonical);
        assert!(!parse("Thread,Time,Action,Pointer,Size,Stream,More").canonical);
        let columns = parse(",\"Size\", Pointer ,Who,action");
        assert_eq!(columns.roles, [None, Some(Role::Size), Some(Role::Pointer), None, Some(Role::Action)]);
    }

    #[test]
    fn a_bad_header_says_what_was_expected_and_what_was_found() {
        assert_eq!(
            error("Thread,Time,Action,Bytes"),
            "its header 'Thread,Time,Action,Bytes' lacks Pointer and Size; the columns Action, Pointer and \
             Size are needed, Thread, Time and Stream are read if they are there"
        );
        assert_eq!(
            error("687,06:29:01.412806,allocate,0x7fa510000000,1024,0"),
            "its first line is '687,06:29:01.412806,allocate,0x7fa510000000,1024,0', where the header of an \
             RMM log was expected: Thread,Time,Action,Pointer,Size,Stream"
        );
        assert!(error("Event Type,Device ID,Address,Stream,Size (bytes)").contains("12-column log"));
        assert!(error("Action,Pointer,Size,Action").contains("twice"));
        assert!(error("").contains("expected"));
    }

    #[test]
    fn commas_within_quotes_do_not_separate() {
        let fields: Vec<_> = Fields::of(br#"a, "b,c" ,"d"x,"e,f"#).collect();
        assert_eq!(fields, [&b"a"[..], b"\"b", b"c\"", b"\"d\"x", b"\"e", b"f"]);
        let fields: Vec<_> = Fields::of(br#"a,"b,c","",d"#).collect();
        assert_eq!(fields, [&b"a"[..], b"b,c", b"", b"d"]);
    }
}
