//! Stacks as gdb and lldb print them.
//!
//! gdb: `#1  0x00007f9b52e01439 in name (argument=1) at file.c:42`, where the address, the arguments and
//! the place may be missing and `from library` may stand instead of the place. lldb:
//! ``frame #1: 0x0000000100000f2c program`name(argument=1) at file.c:42:7``. Long lines are wrapped; what
//! does not begin with a number belongs to the line before.

/// A thread's stack, innermost frame first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Thread {
    /// Operating system's number of the thread; 0 if not known.
    pub(super) number: u64,
    pub(super) frames: Vec<ParsedFrame>,
}

/// One frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedFrame {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) module: String,
    pub(super) address: u64,
    pub(super) has_arguments: bool,
}

/// Parses all stacks in `text`.
pub(super) fn threads(text: &str) -> Vec<Thread> {
    let mut threads: Vec<Thread> = Vec::new();
    for line in joined(text) {
        if is_thread(&line) {
            threads.push(Thread { number: thread_number(&line), frames: Vec::new() });
            continue;
        }
        if threads.is_empty() {
            threads.push(Thread::default());
        }
        let frame = parse(&line).unwrap_or_else(|| ParsedFrame { function: line, ..ParsedFrame::default() });
        threads.last_mut().expect("one was pushed").frames.push(frame);
    }
    threads.retain(|thread| !thread.frames.is_empty());
    threads
}

/// Puts lines together that were wrapped.
fn joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        let is_wrapped = line.starts_with("    ") && frame_rest(trimmed).is_none() && !is_thread(trimmed);
        match lines.last_mut() {
            _ if trimmed.is_empty() => {}
            Some(last) if is_wrapped => {
                last.push(' ');
                last.push_str(trimmed);
            }
            _ => lines.push(trimmed.to_owned()),
        }
    }
    lines
}

fn is_thread(line: &str) -> bool {
    let line = line.strip_prefix("* ").unwrap_or(line);
    let number = line.strip_prefix("Thread ").or_else(|| line.strip_prefix("thread #"));
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// `LWP 4711` of gdb, `tid = 0x1267` of lldb.
fn thread_number(line: &str) -> u64 {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_hexdigit).collect::<String>();
    if let Some((_, number)) = line.split_once("LWP ") {
        return digits(number).parse().unwrap_or(0);
    }
    let Some((_, number)) = line.split_once("tid = ") else { return 0 };
    match number.strip_prefix("0x") {
        Some(number) => u64::from_str_radix(&digits(number), 16).unwrap_or(0),
        None => digits(number).parse().unwrap_or(0),
    }
}

/// What follows the number of a frame.
fn frame_rest(line: &str) -> Option<&str> {
    let line = line.strip_prefix("* ").unwrap_or(line);
    let line = line.strip_prefix("frame ").unwrap_or(line);
    let number = line.strip_prefix('#')?;
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < number.len()).then(|| rest.strip_prefix(':').unwrap_or(rest).trim())
}

fn parse(line: &str) -> Option<ParsedFrame> {
    let mut rest = frame_rest(line)?;
    let mut frame = ParsedFrame::default();
    if let Some(number) = rest.strip_prefix("0x") {
        let end = number.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(number.len());
        frame.address = u64::from_str_radix(&number[..end], 16).ok()?;
        rest = number[end..].trim_start();
        rest = rest.strip_prefix("in ").unwrap_or(rest);
    }
    if let Some((before, place)) = rest.rsplit_once(" at ")
        && let Some((file, line)) = file_and_line(place)
    {
        (frame.file, frame.line) = (file.to_owned(), line);
        rest = before;
    } else if let Some((before, library)) = rest.rsplit_once(" from ")
        && !library.contains(')')
    {
        library.clone_into(&mut frame.module);
        rest = before;
    }
    if let Some((module, function)) = rest.split_once('`') {
        module.trim().clone_into(&mut frame.module);
        rest = function;
        // An offset into the function, where nothing better is known.
        if let Some((name, offset)) = rest.rsplit_once(" + ")
            && offset.bytes().all(|byte| byte.is_ascii_digit())
        {
            rest = name;
        }
    }
    let (function, arguments) = split_arguments(rest.trim_end());
    frame.has_arguments = !arguments.trim().is_empty();
    function.trim().clone_into(&mut frame.function);
    (!frame.function.is_empty() || frame.address != 0).then_some(frame)
}

/// `spin.c:7` or `spin.c:7:3`.
fn file_and_line(place: &str) -> Option<(&str, u32)> {
    let (before, last) = place.trim().rsplit_once(':')?;
    let last = last.parse().ok()?;
    match before.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => Some((file, line)),
        _ => Some((before, last)),
    }
}

/// Splits `name (arguments)`; the parentheses that count are those the text ends with.
fn split_arguments(text: &str) -> (&str, &str) {
    let Some(inner) = text.strip_suffix(')') else { return (text, "") };
    let mut depth = 1;
    for (at, c) in inner.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            // `(anonymous namespace)` alone is a name.
            return if at == 0 { (text, "") } else { (&inner[..at], &inner[at + 1..]) };
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let threads = threads(text);
        let frames = threads.iter().flat_map(|thread| &thread.frames);
        frames
            .map(|f| {
                let ParsedFrame { function, file, line, module, address, has_arguments } = f;
                format!("{function}|{file}|{line}|{module}|{address:#x}|{has_arguments}")
            })
            .collect()
    }

    #[test]
    fn frames_of_gdb_are_parsed_even_when_they_are_wrapped() {
        let text = "\
#0  0x00007f9b52f26b7c in clock_gettime ()
#1  0x00007f9b52e01439 in __GI___clock_gettime (clock_id=clock_id@entry=1, 
    tp=tp@entry=0x7ffc87e3e4e0)
    at ../sysdeps/unix/sysv/linux/clock_gettime.c:42
#2  now () at spin.c:6
#3  0x1234 in std::vector<int, (anonymous namespace)::A<int> >::push_back(int&&) (this=0x1, x=\"at a:1\") from /lib/x.so.6
#4  <signal handler called>
";
        assert_eq!(
            shown(text),
            [
                "clock_gettime||0||0x7f9b52f26b7c|false",
                "__GI___clock_gettime|../sysdeps/unix/sysv/linux/clock_gettime.c|42||0x7f9b52e01439|true",
                "now|spin.c|6||0x0|false",
                "std::vector<int, (anonymous namespace)::A<int> >::push_back(int&&)||0|/lib/x.so.6|0x1234|true",
                "<signal handler called>||0||0x0|false",
            ]
        );
    }

    #[test]
    fn frames_of_lldb_are_parsed_with_their_threads() {
        let text = "\
* thread #1: tid = 0x1267, 0x00007fff libsystem_kernel.dylib`read + 10, name = 'x'
  * frame #0: 0x00007fff8a1 libsystem_kernel.dylib`read + 10
    frame #1: 0x0000000100000f2c a.out`work(s=0.3) at spin.c:7:3
Thread 2 (Thread 0x7f (LWP 4711)):
#0  poll ()
";
        let threads = threads(text);
        assert_eq!(threads.iter().map(|thread| thread.number).collect::<Vec<_>>(), [0x1267, 4711]);
        assert_eq!(
            shown(text),
            [
                "read||0|libsystem_kernel.dylib|0x7fff8a1|false",
                "work|spin.c|7|a.out|0x100000f2c|true",
                "poll||0||0x0|false",
            ]
        );
    }

    #[test]
    fn lines_that_are_no_frames_are_kept_as_they_are() {
        assert_eq!(
            shown("warning: no symbols\n#x y\n"),
            ["warning: no symbols||0||0x0|false", "#x y||0||0x0|false"]
        );
        assert!(threads("\n  \n").is_empty());
        for odd in ["#", "#1", "#1 (", "#1 )", "#1 0x", "#1 0xfffffffffffffffff in a", "frame #2: `", "#1 ()"]
        {
            assert_eq!(threads(odd).len(), 1, "{odd}");
        }
    }
}
