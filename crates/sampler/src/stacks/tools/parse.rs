//! Parsers of the output of debuggers. Lines that cannot be parsed are skipped.

use super::Tool;
use crate::stacks::NamedFrame;

/// Frames by thread id, innermost first.
pub(super) type Threads = Vec<(u64, Vec<NamedFrame>)>;

/// Parses the stacks of all threads.
pub(super) fn threads(tool: Tool, text: &str) -> Threads {
    let mut threads: Threads = Vec::new();
    // lldb prints all threads once when the process stops, before our command.
    let text = match tool {
        Tool::Lldb => text.split_once("(lldb) thread backtrace all").map_or("", |(_, rest)| rest),
        Tool::Gdb | Tool::EuStack => text,
    };
    for line in text.lines() {
        let thread = match tool {
            Tool::Gdb => gdb_thread(line),
            Tool::Lldb => lldb_thread(line),
            Tool::EuStack => eu_thread(line),
        };
        if let Some(thread) = thread {
            threads.push((thread, Vec::new()));
            continue;
        }
        let Some((_, frames)) = threads.last_mut() else { continue };
        match tool {
            Tool::Gdb => frames.extend(gdb_frame(line)),
            Tool::Lldb => frames.extend(lldb_frame(line)),
            Tool::EuStack => match eu_frame(line) {
                Some(frame) => frames.push(frame),
                None => eu_place(line, frames.last_mut()),
            },
        }
    }
    threads.retain(|(_, frames)| !frames.is_empty());
    threads
}

/// The line that best explains why there are no stacks.
pub(super) fn complaint(text: &str) -> &str {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = ["ptrace", "rror", "not permitted", "No such"];
    let best = lines().find(|line| telling.iter().any(|word| line.contains(word)));
    best.or_else(|| lines().next_back()).unwrap_or("nothing")
}

/// `Thread 2 (Thread 0x7f0afbe586c0 (LWP 26625) "towers"):`, or `(process 26625)` for a single one.
fn gdb_thread(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("Thread ")?.split_once(" (")?.1;
    let number = rest.split_once("LWP ").or_else(|| rest.split_once("process "))?.1;
    digits(number).parse().ok()
}

/// `#1  0x000055a0aabcd620 in stairs (n=..., depth=...) at towers.c:74`, or `from /lib/libc.so.6`; one that
/// is at the beginning of a line, or inlined, has no address.
fn gdb_frame(line: &str) -> Option<NamedFrame> {
    let rest = line.strip_prefix('#')?;
    let mut rest = rest.trim_start_matches(|byte: char| byte.is_ascii_digit()).trim_start();
    let mut frame = NamedFrame::default();
    if let Some((address, after)) = rest.strip_prefix("0x").and_then(|text| text.split_once(" in ")) {
        frame.address = u64::from_str_radix(address, 16).ok()?;
        rest = after;
    }
    if let Some((before, place)) = rest.rsplit_once(") at ") {
        (frame.file, frame.line) = file_and_line(place);
        rest = before;
    } else if let Some((before, module)) = rest.rsplit_once(") from ") {
        module.clone_into(&mut frame.module);
        rest = before;
    } else {
        rest = rest.strip_suffix(')').unwrap_or(rest);
    }
    let function = rest.get(..begin_of_arguments(rest)?)?.trim_end();
    // The version of a symbol is not part of its name.
    let function = function.split_once('@').map_or(function, |(name, _)| name);
    if function != "??" {
        function.clone_into(&mut frame.function);
    }
    Some(frame)
}

/// Position of the parenthesis that is closed at the end of the text.
fn begin_of_arguments(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// As we ask for it: `floodmark-thread 0x6800`.
fn lldb_thread(line: &str) -> Option<u64> {
    let number = line.split_once("floodmark-thread ")?.1.trim();
    match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits(number).parse().ok(),
    }
}

/// As we ask for it: `floodmark-frame 0x55a0 name=stairs module=/bin/towers file=/src/towers.c line=66`, with
/// tabs.
fn lldb_frame(line: &str) -> Option<NamedFrame> {
    let mut fields = line.split_once("floodmark-frame ")?.1.split('\t');
    let address = fields.next()?.trim().strip_prefix("0x")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let mut frame = NamedFrame { address, ..NamedFrame::default() };
    for (key, value) in fields.filter_map(|field| field.split_once('=')) {
        match key {
            "name" => value.clone_into(&mut frame.function),
            "module" => value.clone_into(&mut frame.module),
            "file" => value.clone_into(&mut frame.file),
            "line" => frame.line = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    Some(frame)
}

/// `TID 26625:`.
fn eu_thread(line: &str) -> Option<u64> {
    line.strip_prefix("TID ")?.strip_suffix(':')?.parse().ok()
}

/// `#5  0x000055a0aabcd665 stairs - /tmp/towers`; the name is missing where it is not known.
fn eu_frame(line: &str) -> Option<NamedFrame> {
    let rest = line.strip_prefix('#')?.trim_start_matches(|byte: char| byte.is_ascii_digit()).trim_start();
    let address = rest.strip_prefix("0x")?;
    let (address, rest) = address.split_once(' ').unwrap_or((address, ""));
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    // A return address is marked, because its function was resolved by the address before it.
    let rest = rest.trim_start().trim_start_matches("- 1").trim_start();
    let (function, module) = match rest.rsplit_once("- ") {
        Some((function, module)) => (function.trim_end(), module),
        None => (rest.trim_end(), ""),
    };
    let (function, module) = (function.to_owned(), module.trim().to_owned());
    Some(NamedFrame { function, module, address, ..NamedFrame::default() })
}

/// The line after a frame: `    crates/towers.c:70:18`.
fn eu_place(line: &str, frame: Option<&mut NamedFrame>) {
    let (Some(place), Some(frame)) = (line.strip_prefix("    "), frame) else { return };
    let mut parts = place.trim().splitn(3, ':');
    if let (Some(file), Some(number)) = (parts.next(), parts.next()) {
        file.clone_into(&mut frame.file);
        frame.line = number.parse().unwrap_or(0);
    }
}

fn file_and_line(place: &str) -> (String, u32) {
    match place.rsplit_once(':') {
        Some((file, line)) => (file.to_owned(), line.trim().parse().unwrap_or(0)),
        None => (place.to_owned(), 0),
    }
}

fn digits(text: &str) -> &str {
    text.split(|byte: char| !byte.is_ascii_digit()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn short(threads: &Threads) -> Vec<(u64, Vec<String>)> {
        let line = |frame: &NamedFrame| {
            let NamedFrame { function, file, line, module, address } = frame;
            format!("{function}|{file}|{line}|{module}|{address:x}")
        };
        threads.iter().map(|(thread, frames)| (*thread, frames.iter().map(line).collect())).collect()
    }

    #[test]
    fn stacks_of_gdb_are_read() {
        let text = "\
[New LWP 26625]
__GI___libc_read (nbytes=..., fd=...) at ../sysdeps/read.c:26
26\t../sysdeps/read.c: No such file or directory.

Thread 2 (Thread 0x7f0afae566c0 (LWP 26628) \"a (b) LWP 3\"):
#0  0x000055a0aabcd59d in cellar_3 (n=...) at /a b/towers.c:55
#1  ns::call<int (*)(int)>(int) (this=...) at x.cc:7
#2  0x00007f0afbee51f5 in clock_nanosleep@@GLIBC_2.17 () from /lib/libc.so.6
#3  0x0000000000000010 in ?? ()

Thread 1 (process 26624):
#0  main () at towers.c:126
[Inferior 1 (process 26624) detached]
";
        let expected = vec![
            (
                26628,
                vec![
                    "cellar_3|/a b/towers.c|55||55a0aabcd59d".to_owned(),
                    "ns::call<int (*)(int)>(int)|x.cc|7||0".to_owned(),
                    "clock_nanosleep||0|/lib/libc.so.6|7f0afbee51f5".to_owned(),
                    "||0||10".to_owned(),
                ],
            ),
            (26624, vec!["main|towers.c|126||0".to_owned()]),
        ];
        assert_eq!(short(&threads(Tool::Gdb, text)), expected);
    }

    #[test]
    fn stacks_of_lldb_are_read() {
        let text = "\
* floodmark-thread 0x6800
    floodmark-frame 0x00007f0afbf542ec\tname=early
(lldb) thread backtrace all
* floodmark-thread 0x6800
  * floodmark-frame 0x0000000000000abc\tname=f(int)\tmodule=/bin/a\tfile=/a b.c\tline=26
    floodmark-frame 0x0000000000000abd\tmodule=/bin/a
  floodmark-thread 26625
    floodmark-frame 0x1\tname=g
(lldb) detach
";
        let expected = vec![
            (0x6800, vec!["f(int)|/a b.c|26|/bin/a|abc".to_owned(), "||0|/bin/a|abd".to_owned()]),
            (26625, vec!["g||0||1".to_owned()]),
        ];
        assert_eq!(short(&threads(Tool::Lldb, text)), expected);
    }

    #[test]
    fn stacks_of_eu_stack_are_read() {
        let text = "\
PID 26624 - process
TID 26624:
#0  0x00007f0afbf542ec __GI___libc_read - /usr/lib/libc.so.6
    ../sysdeps/unix/sysv/linux/read.c:26:10
#1  0x000055a0aabcd3b1 - 1 operator-(a, b) - /tmp/a - b
#2  0x0000000000000010
TID 26625:
eu-stack: dwfl_thread_getframes tid 26625: no matching address range
";
        let expected = vec![(
            26624,
            vec![
                "__GI___libc_read|../sysdeps/unix/sysv/linux/read.c|26|/usr/lib/libc.so.6|7f0afbf542ec"
                    .to_owned(),
                "operator-(a, b) - /tmp/a||0|b|55a0aabcd3b1".to_owned(),
                "||0||10".to_owned(),
            ],
        )];
        assert_eq!(short(&threads(Tool::EuStack, text)), expected);
    }

    #[test]
    fn why_there_is_nothing_is_said() {
        let text = "warning: x\nCould not attach to process.\nptrace: Operation not permitted.\nbye\n";
        assert_eq!(complaint(text), "ptrace: Operation not permitted.");
        assert_eq!(complaint("\n"), "nothing");
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "(Thread 1 \\(LWP |TID 3:\n|#0 |0x|floodmark-|[a-z0-9 ()@:\n\t=-]){0,60}") {
            for tool in Tool::ALL {
                threads(tool, &text);
            }
        }
    }
}
