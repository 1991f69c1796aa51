//! Folded stacks: a line for every path, its steps joined by `;`, then a space and a number.
//!
//! What reads them splits a line at its last space and the rest at every `;`. So a `;` within a step
//! becomes `:`, and everything that would break a line or act on a terminal becomes a space; other spaces
//! do no harm. Steps that are empty get a name.

use std::io::{self, Write};

use floodmark_event::text::is_active;

/// Writes one line.
///
/// # Errors
/// Those of `out`.
pub fn write_line(
    out: &mut dyn Write,
    path: impl IntoIterator<Item = impl AsRef<str>>,
    value: u64,
) -> io::Result<()> {
    for (at, step) in path.into_iter().enumerate() {
        if at > 0 {
            out.write_all(b";")?;
        }
        out.write_all(step_text(step.as_ref()).as_bytes())?;
    }
    writeln!(out, " {value}")
}

fn step_text(step: &str) -> String {
    let kept = |c: char| match c {
        ';' => ':',
        c if is_active(c) => ' ',
        c => c,
    };
    let text: String = step.chars().map(kept).collect();
    let text = text.trim();
    if text.is_empty() { "(no name)".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_with_its_own_steps() {
        let mut out = Vec::new();
        let path = ["main", "Lcom/App;run\n7", "", "\u{202e}\x1b[31m red 9", "f(int, long) 12"];
        write_line(&mut out, path, 42).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "main;Lcom/App:run 7;(no name);[31m red 9;f(int, long) 12 42\n");
        let (stack, value) = text.trim_end().rsplit_once(' ').unwrap();
        assert_eq!((stack.split(';').count(), value), (5, "42"));
    }
}
