//! Names may hold anything.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::programs::Folder;

#[test]
fn hostile_names_come_through_whole() {
    let folder = Folder::new("names");
    let family = folder.compile("family.c");
    for name in ["a) R 1 (b", "two\nlines", "\x1b[31mred", "tab\there", ")))", "back\\slash", "blank end "] {
        let mut command = Command::new(&family);
        let mut target = command.args(["named", name]).stdin(Stdio::piped()).spawn().unwrap();
        let comm = format!("/proc/{}/comm", target.id());
        while std::fs::read_to_string(&comm).unwrap() != format!("{name}\n") {
            std::thread::yield_now();
        }
        let attach = format!("attach={}", target.id());
        let mut watcher = folder.watcher(&["samples", &attach, &folder.ready()]).spawn().unwrap();
        folder.wait_until_ready(&mut watcher);
        target.stdin.take().unwrap().write_all(b"x").unwrap();
        assert!(target.wait().unwrap().success());
        watcher.wait().unwrap();
        let report = folder.report();
        let processes = report.processes();
        assert_eq!((processes.len(), &processes[0].name), (1, &format!("{name:?}")), "{report:?}");
        assert!(processes[0].ended);
        assert!(report.series(processes[0].id, "rss").iter().any(|(_, rss)| *rss > 0));
        std::fs::remove_file(folder.join("ready")).unwrap();
    }
}

#[test]
fn a_program_with_a_hostile_name_is_called_by_it() {
    let folder = Folder::new("files");
    let family = folder.compile("family.c");
    for name in ["we) (ird", "new\nline", "esc\x1b]0;title\x07", "a very long name of a program (1)"] {
        let program = folder.join(name);
        std::fs::copy(&family, &program).unwrap();
        let report = folder.watch(&[], &[&program, &"sleepers", &"1", &"0"]);
        let processes = report.processes();
        assert_eq!(processes[0].name, format!("{name:?}"));
        assert!(processes.iter().all(|process| process.status == Some(0)), "{report:?}");
    }
}
