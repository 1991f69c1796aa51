//! Names of what was observed, as every view shows them.

use floodmark_event::{SubjectKind, SubjectRow};

use crate::plain::plain;

/// Returns a name such as `python (4711)`, `GPU 0 NVIDIA H200` or `node17`, without anything that acts on a
/// terminal.
pub fn subject_name(subject: &SubjectRow) -> String {
    let (name, number) = (plain(subject.name.trim()), subject.number);
    match (subject.kind, name.is_empty(), number) {
        (SubjectKind::Process, false, _) => format!("{name} ({number})"),
        (SubjectKind::Device, true, _) => format!("GPU {number}"),
        (SubjectKind::Device, false, _) => format!("GPU {number} {name}"),
        (_, false, 0) => name.into_owned(),
        (_, false, _) => format!("{name} {number}"),
        (kind, true, 0) => kind.name().to_owned(),
        (kind, true, _) => format!("{} {number}", kind.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_known() {
        let name = |kind, number, name: &str| subject_name(&SubjectRow::new(1, kind, number, name));
        assert_eq!(name(SubjectKind::Process, 4711, "py\u{1b}[31mthon"), "py[31mthon (4711)");
        assert_eq!(name(SubjectKind::Process, 4711, ""), "process 4711");
        assert_eq!(name(SubjectKind::Device, 0, ""), "GPU 0");
        assert_eq!(name(SubjectKind::Device, 1, "NVIDIA H200"), "GPU 1 NVIDIA H200");
        assert_eq!(name(SubjectKind::Host, 0, "node17"), "node17");
        assert_eq!(name(SubjectKind::Job, 0, ""), "job");
    }
}
