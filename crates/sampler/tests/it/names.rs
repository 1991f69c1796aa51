//! Names may hold anything.

use std::io::Write as _;
use std::process::{Command, Stdio};

use floodmark_testkit::{wait_for_exit, wait_until};

use crate::programs::WatchTest;

#[test]
fn hostile_names_come_through_whole() {
    let test = WatchTest::new("names");
    let family = test.compile("family.c");
    for name in ["a) R 1 (b", "two\nlines", "\x1b[31mred", "tab\there", ")))", "back\\slash", "blank end "] {
        let mut command = Command::new(&family);
        let mut target = command.args(["named", name]).stdin(Stdio::piped()).spawn().unwrap();
        let comm = format!("/proc/{}/comm", target.id());
        wait_until("the name", || std::fs::read_to_string(&comm).unwrap() == format!("{name}\n"));
        let attach = format!("attach={}", target.id());
        let mut watcher = test.watcher(&["samples", &attach, &test.ready()]).spawn().unwrap();
        test.wait_until_ready(&mut watcher);
        target.stdin.take().unwrap().write_all(b"x").unwrap();
        assert!(wait_for_exit(&mut target, "the target").success());
        wait_for_exit(&mut watcher, "the watcher");
        let report = test.report();
        let processes = report.processes();
        assert_eq!((processes.len(), &processes[0].name), (1, &format!("{name:?}")), "{report:?}");
        assert!(processes[0].ended);
        assert!(report.series(processes[0].id, "rss").iter().any(|(_, rss)| *rss > 0));
        std::fs::remove_file(test.join("ready")).unwrap();
    }
}

#[test]
fn a_program_with_a_hostile_name_is_called_by_it() {
    let test = WatchTest::new("files");
    let family = test.compile("family.c");
    for name in ["we) (ird", "new\nline", "esc\x1b]0;title\x07", "a very long name of a program (1)"] {
        let program = test.join(name);
        std::fs::copy(&family, &program).unwrap();
        let report = test.watch(&[], &[&program, &"sleepers", &"1", &"0"]);
        let processes = report.processes();
        assert_eq!(processes[0].name, format!("{name:?}"));
        assert!(processes.iter().all(|process| process.status == Some(0)), "{report:?}");
    }
}
