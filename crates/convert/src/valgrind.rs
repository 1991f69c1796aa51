//! Frames as valgrind's tools write them: `0x10923B: grow_buffer (work.c:28)`.

use floodmark_event::Tables;
use floodmark_event::tables::Frame;

/// Adds a frame.
pub(crate) fn frame(text: &str, tables: &mut Tables) -> u32 {
    let (address, rest) = match text.split_once(": ") {
        Some((digits, rest)) => match digits.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16))
        {
            Some(Ok(address)) => (address, rest),
            _ => (0, text),
        },
        None => (0, text),
    };
    let rest = rest.trim();
    let (function, place) = match rest.rfind(" (") {
        Some(at) if rest.ends_with(')') => (&rest[..at], &rest[at + 2..rest.len() - 1]),
        _ => (rest, ""),
    };
    let mut frame = Frame::default();
    if function == "???" {
        frame.address = address;
    } else {
        frame.function = tables.intern(function);
    }
    if let Some(module) = place.strip_prefix("in ") {
        frame.module = tables.intern(module);
    } else if let Some((file, line)) = place.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        (frame.file, frame.line) = (tables.intern(file), line);
    } else if !place.is_empty() {
        // What stands in parentheses belongs to the name: `operator()(int)`.
        frame.function = tables.intern(rest);
    }
    tables.intern_frame(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_apart() {
        let mut tables = Tables::default();
        for (text, expected) in [
            ("0x10923B: grow_buffer (work.c:28)", "grow_buffer (work.c:28)"),
            ("0x48417B4: malloc (in /usr/libexec/vg.so)", "malloc [/usr/libexec/vg.so]"),
            ("0x4A: ???", "0x4a"),
            ("0x4A: ??? (in /bin/x)", "0x4a [/bin/x]"),
            ("0x1: ns::f(int, char) (a b.cc:7)", "ns::f(int, char) (a b.cc:7)"),
            ("0x1: operator new(unsigned long) (in /x.so)", "operator new(unsigned long) [/x.so]"),
            ("0x1: call (anonymous)", "call (anonymous)"),
            ("[root]", "[root]"),
        ] {
            let frame = frame(text, &mut tables);
            assert_eq!(tables.frame_text(&tables.frame(frame)), expected);
        }
    }
}
