//! `floodmark top` on a real terminal: keys, signals, and that the terminal is given back whatever happens.

use std::process::Command;

use floodmark_testkit::{wait_for_exit, wait_until};

use crate::cli_test::CliTest;
use crate::pty::{ENTER, LEAVE, Pty, SHOW_CURSOR};

fn top(test: &CliTest, args: &[&str]) -> Pty {
    Pty::start(test.command(&[&["top"], args].concat()))
}

/// A program that holds some memory, says so, and waits for a file.
const WAITER: &str = "printf 'begun\\n\\033[5mEVIL\\033[0m\\n'; n=0; while [ ! -e go ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done; exit 7";

#[test]
fn a_key_leaves_and_the_terminal_is_as_before() {
    let test = CliTest::new();
    for key in ["q", "\x1b", "\x03"] {
        let mut pty = top(&test, &["golden.csv"]);
        pty.wait_for_text("3.42 KiB");
        pty.type_in(key);
        let (code, after) = pty.finish();
        assert_eq!((code, after.replace(SHOW_CURSOR, "").as_str()), (0, ""), "{key:?}");
    }
}

#[test]
fn every_signal_that_ends_us_finds_the_terminal_restored() {
    let test = CliTest::new();
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        let pty = top(&test, &["golden.csv"]);
        pty.wait_for_text("3.42 KiB");
        pty.signal(number);
        assert_eq!(pty.finish().0, -number);
    }
}

#[test]
fn stopping_gives_the_terminal_back_and_going_on_draws_again() {
    let test = CliTest::new();
    for how in ["signal", "key"] {
        let mut pty = Pty::start_job(test.command(&["top", "golden.csv"]));
        pty.wait_for_text("3.42 KiB");
        if how == "key" {
            pty.type_in("\x1a");
        } else {
            pty.signal(libc::SIGTSTP);
        }
        pty.wait_until_stopped();
        pty.wait_for("end of the screen", |text| text.rfind(LEAVE) > text.rfind(ENTER));
        assert!(pty.is_restored(), "{how}");
        pty.signal(libc::SIGCONT);
        pty.wait_for("second screen", |text| {
            text.matches(ENTER).count() == 2
                && text.rsplit(ENTER).next().is_some_and(|new| new.contains("3.42"))
        });
        pty.type_in("q");
        assert_eq!(pty.finish().0, 0);
    }
}

#[test]
fn where_nobody_could_continue_us_we_do_not_stop() {
    let test = CliTest::new();
    for how in ["signal", "key"] {
        let mut pty = top(&test, &["golden.csv"]);
        pty.wait_for_text("3.42 KiB");
        if how == "key" {
            pty.type_in("\x1a");
        } else {
            pty.signal(libc::SIGTSTP);
        }
        pty.wait_for("second screen", |text| {
            text.matches(ENTER).count() == 2
                && text.rsplit(ENTER).next().is_some_and(|new| new.contains("3.42"))
        });
        pty.type_in("q");
        assert_eq!(pty.finish().0, 0, "{how}");
    }
}

#[test]
fn a_terminal_that_takes_no_output_does_not_keep_us_from_ending() {
    let test = CliTest::new();
    for how in [0, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut pty = top(&test, &["golden.csv"]);
        pty.wait_for_text("3.42 KiB");
        pty.stop_reading();
        pty.fill();
        // Something to draw, that nobody takes.
        pty.type_in("?");
        if how == 0 {
            pty.type_in("q");
            pty.type_in("q");
        } else {
            pty.signal(how);
        }
        let code = pty.wait();
        pty.go_on_reading();
        assert_eq!((code, pty.finish().0), (-how, -how));
    }
}

#[test]
fn a_terminal_that_takes_output_again_has_the_whole_picture() {
    let test = CliTest::new();
    let mut pty = top(&test, &["golden.csv"]);
    pty.wait_for_text("3.42 KiB");
    pty.stop_reading();
    pty.fill();
    pty.type_in("?");
    pty.resize(100, 24);
    pty.go_on_reading();
    pty.wait_for("picture after all", |text| {
        text.rsplit("....").next().is_some_and(|after| after.contains("quit"))
    });
    pty.type_in("qq");
    assert_eq!(pty.finish().0, 0);
}

#[test]
fn a_command_on_a_terminal_that_takes_no_output_can_be_ended() {
    let test = CliTest::new();
    let mut pty = top(&test, &["-o", "run.flood", "--", "sh", "-c", WAITER]);
    pty.wait_for_text("recording");
    pty.stop_reading();
    pty.fill();
    pty.signal(libc::SIGTERM);
    assert_eq!(pty.wait(), -libc::SIGTERM);
    pty.go_on_reading();
    pty.finish();
    test.run(&["info", "run.flood"]).ok();
}

#[test]
fn a_stop_that_nobody_can_catch_is_recovered_from_too() {
    let test = CliTest::new();
    let mut pty = top(&test, &["golden.csv"]);
    pty.wait_for_text("3.42 KiB");
    pty.signal(libc::SIGSTOP);
    pty.wait_until_stopped();
    pty.signal(libc::SIGCONT);
    pty.wait_for("second screen", |text| text.matches(ENTER).count() == 2);
    pty.type_in("q");
    assert_eq!(pty.finish().0, 0);
}

#[test]
fn a_panic_of_any_thread_finds_the_terminal_restored() {
    let test = CliTest::new();
    for (thread, code) in [("screen", 101), ("reader", 2)] {
        let mut command = test.command(&["top", "golden.csv"]);
        command.env("FLOODMARK_TOP_PANIC", thread);
        let (found, after) = Pty::start(command).finish();
        assert_eq!(found, code, "{after}");
        assert!(after.contains("a panic was asked for"), "{after}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_on_a_restored_terminal() {
    let test = CliTest::new();
    let mut log = test.read("golden.csv");
    log.push_str("101,10:00:00.000002,allocate,0x7f00\n");
    test.write("damaged.csv", log);
    let (code, after) = top(&test, &["damaged.csv"]).finish();
    assert_eq!(code, 2, "{after}");
    assert!(after.contains("damaged.csv") && after.contains("error:"), "{after}");
    let (code, after) = top(&test, &["-"]).finish();
    assert!(code == 2 && after.contains("write it to a file first"), "{after}");
    let (code, after) = top(&test, &["nowhere.flood"]).finish();
    assert_eq!(code, 2);
    assert!(after.contains("nowhere.flood") && !after.contains('\u{7f}'), "{after}");
}

#[test]
fn without_a_terminal_there_is_a_remedy() {
    let test = CliTest::new();
    let ran = test.run(&["top", "golden.csv"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("standard output is none"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: record with 'floodmark run'"), "{}", ran.stderr);
}

#[test]
fn a_command_is_recorded_while_it_is_shown_and_summed_up_when_one_leaves() {
    let test = CliTest::new();
    let mut pty = top(&test, &["-o", "run.flood", "--mark", "begun", "--", "sh", "-c", WAITER]);
    pty.wait_for_text("recording");
    pty.wait_for_text("phases");
    pty.type_in("\t\t\t");
    pty.wait_for_text("EVIL");
    test.write("go", "");
    pty.wait_for_text("ended with 7");
    pty.type_in("q");
    let text = pty.text();
    let (code, after) = pty.finish();
    assert_eq!(code, 7, "{after}");
    assert!(!text.contains("\x1b[5m"), "what the command writes does not reach the terminal");
    for part in ["exit status 7", "begun", "next: ", "floodmark report run.flood"] {
        assert!(after.contains(part), "no {part} in {after}");
    }
    let output = test.run(&["read", "run.flood", "--stdout"]).ok().stdout;
    assert!(output.contains("EVIL"), "{output}");
}

#[test]
fn with_exit_the_view_is_left_when_the_command_ends() {
    let test = CliTest::new();
    let (code, after) = top(&test, &["--exit", "--", "sh", "-c", "echo done; exit 3"]).finish();
    assert_eq!(code, 3, "{after}");
    assert!(after.contains("exit status 3") && after.contains("sh.flood"), "{after}");
    assert!(test.path("sh.flood").is_dir());
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_screen_and_no_trace() {
    let test = CliTest::new();
    let (code, after) = top(&test, &["--", "no-such-program"]).finish();
    assert_eq!(code, 127, "{after}");
    assert!(after.contains("no-such-program"), "{after}");
    assert!(!test.path("no-such-program.flood").exists());
}

#[test]
fn who_leaves_early_waits_for_the_command_and_can_interrupt_it() {
    let test = CliTest::new();
    let mut pty = top(&test, &["-o", "run.flood", "--", "sh", "-c", WAITER]);
    pty.wait_for_text("recording");
    pty.type_in("q");
    pty.wait_for_text("the command goes on");
    assert!(pty.is_restored());
    pty.type_in("\x03");
    let (code, after) = pty.finish();
    assert_eq!(code, -libc::SIGINT, "{after}");
    assert!(after.contains("SIGINT"), "{after}");
    test.run(&["info", "run.flood"]).ok();
}

#[test]
fn a_signal_to_us_is_passed_on_to_the_command() {
    let test = CliTest::new();
    let pty = top(&test, &["-o", "run.flood", "--", "sh", "-c", WAITER]);
    pty.wait_for_text("recording");
    pty.signal(libc::SIGTERM);
    let (code, after) = pty.finish();
    assert_eq!(code, -libc::SIGTERM, "{after}");
    assert!(after.contains("SIGTERM"), "{after}");
    test.run(&["info", "run.flood"]).ok();
}

#[test]
fn a_signal_after_the_view_was_left_is_passed_on_too() {
    let test = CliTest::new();
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        let mut pty = top(&test, &["--overwrite", "-o", "run.flood", "--", "sh", "-c", WAITER]);
        pty.wait_for_text("recording");
        pty.type_in("q");
        pty.wait_for_text("the command goes on");
        pty.signal(number);
        let (code, after) = pty.finish();
        assert_eq!(code, -number, "{after}");
    }
}

#[test]
fn a_signal_after_a_panic_is_passed_on_too() {
    let test = CliTest::new();
    let mut command = test.command(&["top", "-o", "run.flood", "--", "sh", "-c", WAITER]);
    command.env("FLOODMARK_TOP_PANIC", "begin");
    let pty = Pty::start(command);
    pty.wait_for_text("which is a bug");
    // A signal before the recording takes care of them would only end that.
    wait_until("the recording to begin", || test.path("run.flood/segments").is_dir());
    pty.signal(libc::SIGTERM);
    assert_eq!(pty.finish().0, -libc::SIGTERM);
}

#[test]
fn what_the_recording_says_is_in_no_folder() {
    let test = CliTest::new();
    std::fs::create_dir(test.path("tmp")).unwrap();
    let files = || std::fs::read_dir(test.path("tmp")).unwrap().count();
    let mut command = test.command(&["top", "-o", "run.flood", "--", "sh", "-c", WAITER]);
    command.env("TMPDIR", test.path("tmp"));
    let mut pty = Pty::start(command);
    pty.wait_for_text("recording");
    assert_eq!(files(), 0);
    pty.signal(libc::SIGKILL);
    test.write("go", "");
    assert_eq!(pty.wait(), -libc::SIGKILL);
    assert_eq!(files(), 0);
}

#[test]
fn a_trace_that_somebody_else_records_is_followed_to_its_end() {
    let test = CliTest::new();
    let mut recording: Command = test.command(&["run", "-o", "run.flood", "--", "sh", "-c", WAITER]);
    let mut recording =
        recording.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until("the recording to begin", || test.path("run.flood/segments").is_dir());
    let pty = top(&test, &["--exit", "run.flood"]);
    pty.wait_for_text("recording");
    test.write("go", "");
    assert_eq!(wait_for_exit(&mut recording, "the recorder").code(), Some(7));
    let (code, after) = pty.finish();
    assert_eq!(code, 0, "{after}");
}

#[test]
fn a_terminal_that_goes_away_ends_the_view() {
    let test = CliTest::new();
    let pty = top(&test, &["golden.csv"]);
    pty.wait_for_text("3.42 KiB");
    assert_eq!(pty.hang_up(), -libc::SIGHUP);
}

#[test]
fn the_terminal_may_change_its_size() {
    let test = CliTest::new();
    let mut pty = top(&test, &["golden.csv"]);
    pty.wait_for_text("3.42 KiB");
    pty.resize(38, 6);
    // Blanks are steps of the cursor.
    pty.wait_for_text("small;");
    pty.resize(80, 24);
    pty.wait_for("second picture", |text| {
        text.rsplit("small;").next().is_some_and(|after| after.contains("Holders"))
    });
    pty.type_in("q");
    assert_eq!(pty.finish().0, 0);
}
