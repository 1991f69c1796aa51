//! Stacks of programs that are hard to take stacks of.

use std::process::Command;
use std::time::Duration;

use floodmark_event::{StackReason, SubjectId};
use floodmark_sampler::stacks::StackTarget;
use floodmark_sampler::{StackMethod, StackProps, StackTaker};
use floodmark_tail::clock::monotonic_ns;
use floodmark_testkit::{wait_for, wait_for_exit, wait_until};

use crate::programs::WatchTest;
use crate::stacks::{Ready, assert_towers, compile, functions, take};

fn state(pid: i32, thread: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Asserts that nothing of a process stays stopped.
fn assert_runs(pid: i32) {
    wait_until("all threads to run", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
        let threads = threads.map(|thread| {
            thread.expect("an entry").file_name().to_str().expect("digits").parse().expect("a number")
        });
        threads.into_iter().all(|thread| !matches!(state(pid, thread), Some('t' | 'T')))
    });
}

#[test]
fn programs_of_every_make_are_understood() {
    let test = WatchTest::new("makes");
    let makes: [(&str, &[&str]); 5] = [
        ("fixed", &["-no-pie"]),
        ("static", &["-static", "-DNO_LIBRARY"]),
        ("static-pie", &["-static-pie", "-DNO_LIBRARY"]),
        ("pointers", &["-fno-omit-frame-pointer"]),
        ("packed", &["-Wl,-z,noseparate-code"]),
    ];
    for (name, options) in makes {
        let program = compile(&test, "towers.c", name, options);
        let target = Ready::start(Command::new(&program).arg("8")).reads();
        let (report, stacks) = take(StackMethod::Native, &[target.pid()]);
        assert_eq!((report.stacks, report.cut), (8, 0), "{name}: {report:?} {stacks:#?}");
        assert_towers(&target.told, &stacks);
        target.end();
    }
}

#[test]
fn a_program_whose_file_is_gone_is_understood() {
    let test = WatchTest::new("gone");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("4")).reads();
    std::fs::remove_file(&program).unwrap();
    let (_, stacks) = take(StackMethod::Native, &[target.pid()]);
    assert_towers(&target.told, &stacks);
    target.end();
}

#[test]
fn a_library_that_is_loaded_later_is_understood() {
    let test = WatchTest::new("later");
    let program = compile(&test, "towers.c", "towers", &[]);
    let library = compile(&test, "annex.c", "libannex.so", &["-shared", "-fPIC"]);
    let mut target = Ready::start(Command::new(&program).arg("4").arg(&library)).reads();
    let mut taker = StackTaker::open(StackProps::default(), Vec::new()).expect("it is ready");
    let process = target.pid();
    let subject = SubjectId(1);
    taker.take(StackTarget { process, subject }, 1, StackReason::Request);
    target.write("go\n");
    assert_eq!(target.line(), "loaded");
    let target = target.reads();
    taker.take(StackTarget { process, subject }, 2, StackReason::Request);
    let (report, stacks) = taker.finish();
    assert_eq!((report.processes, report.stacks), (2, 8));
    let of = |at_ns: u64| {
        let first = |stack: &&_| functions(stack).contains(&"main");
        let stack = stacks.iter().filter(|stack| stack.at_ns == at_ns).find(first);
        functions(stack.expect("the first thread"))
    };
    assert!(of(1).contains(&"gate"));
    let inside = of(2);
    let at = inside.iter().position(|name| *name == "pantry").expect("in the library");
    assert_eq!(inside[at..at + 3], ["pantry", "annex", "main"]);
    target.end();
}

#[test]
fn many_threads_are_all_taken() {
    let test = WatchTest::new("many");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("64")).reads();
    let (report, stacks) = take(StackMethod::Native, &[target.pid()]);
    assert_towers(&target.told, &stacks);
    assert_eq!((report.stacks, report.cut, report.gone_threads), (64, 0, 0));
    assert_runs(target.pid());
    target.end();
}

#[test]
fn several_processes_share_what_is_known_of_their_program() {
    let test = WatchTest::new("several");
    let program = compile(&test, "towers.c", "towers", &[]);
    let targets: Vec<Ready> = (0..4).map(|_| Ready::start(Command::new(&program).arg("4")).reads()).collect();
    let pids: Vec<i32> = targets.iter().map(Ready::pid).collect();
    let (report, stacks) = take(StackMethod::Native, &pids);
    assert_eq!((report.stacks, report.stuck_threads), (16, 0), "{report:?}");
    for target in targets {
        let of: Vec<_> = stacks.iter().filter(|stack| stack.process == target.pid()).cloned().collect();
        assert_towers(&target.told, &of);
        target.end();
    }
}

#[test]
fn a_process_that_is_debugged_is_left_to_its_debugger() {
    let test = WatchTest::new("busy");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("4")).reads();
    let mut command = Command::new("gdb");
    command.args(["-nx", "-q", "-batch", "-p", &target.pid().to_string()]);
    let mut debugger = Ready::start(
        command.args(["-ex", "shell echo attached", "-ex", "shell cat"]).stderr(std::process::Stdio::null()),
    );
    while debugger.told != "attached" {
        debugger.told = debugger.line();
    }
    for method in [
        StackMethod::Native,
        StackMethod::Python,
        StackMethod::Tool(floodmark_sampler::stacks::Tool::EuStack),
    ] {
        let (report, stacks) = take(method, &[target.pid()]);
        assert_eq!((report.busy_processes, report.processes, stacks.len()), (1, 0, 0), "{report:?}");
        assert!(report.notes()[0].contains("another debugger"), "{:?}", report.notes());
    }
    debugger.end();
    target.end();
}

#[test]
fn a_process_that_is_over_is_no_error() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id() as i32;
    wait_until("the process to end", || state(pid, pid) == Some('Z'));
    let (report, stacks) = take(StackMethod::Native, &[pid, i32::MAX]);
    assert_eq!((report.gone_processes, stacks.len(), report.notes().len()), (2, 0, 0), "{report:?}");
    assert!(child.wait().unwrap().success(), "its end is left to its parent");
}

/// Takes stacks of whatever `pids` finds, without a pause, for a while.
fn harass(mut pids: impl FnMut() -> Vec<i32>, rounds: u64) -> floodmark_sampler::StackReport {
    let mut taker = StackTaker::open(StackProps::default(), Vec::new()).expect("it is ready");
    for _ in 0..rounds {
        for process in pids() {
            taker.take(StackTarget { process, subject: SubjectId(1) }, monotonic_ns(), StackReason::Request);
        }
    }
    taker.finish().0
}

#[test]
fn processes_that_start_threads_fork_exec_and_end_all_the_while_do_what_they_would_do() {
    let test = WatchTest::new("restless");
    let program = compile(&test, "restless.c", "restless", &[]);
    let mut child = Command::new(&program).args(["40"]).spawn().unwrap();
    let pid = child.id() as i32;
    let tree = || {
        let mut all = vec![pid];
        let mut at = 0;
        while at < all.len() {
            let path = format!("/proc/{0}/task/{0}/children", all[at]);
            let text = std::fs::read_to_string(path).unwrap_or_default();
            all.extend(text.split_ascii_whitespace().map(|pid| pid.parse::<i32>().expect("a number")));
            at += 1;
        }
        all
    };
    let mut rounds = 0;
    let status = wait_for("the processes to end", || {
        let report = harass(tree, 20);
        assert_eq!((report.failures, report.denied_processes), (0, 0), "{report:?}");
        rounds += report.stacks;
        child.try_wait().unwrap()
    });
    assert!(status.success(), "every part of it came to its own end: {status}");
    assert!(rounds > 0);
}

#[test]
fn a_signal_that_comes_at_the_same_moment_is_not_lost() {
    let test = WatchTest::new("signals");
    let program = compile(&test, "restless.c", "restless", &[]);
    // It sends itself signals and counts how many it gets.
    let mut child = Command::new(&program).args(["signals", "3000"]).spawn().unwrap();
    let pid = child.id() as i32;
    let mut stacks = 0;
    let status = wait_for("the process to end", || {
        stacks += harass(|| vec![pid], 50).stacks;
        child.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
    assert!(stacks > 0);
}

#[test]
fn a_stopped_process_stays_stopped_and_can_be_continued() {
    let test = WatchTest::new("stopped");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("4")).reads();
    let pid = target.pid();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &pid.to_string()]).status().expect("it runs").success());
    };
    signal("-STOP");
    wait_until("the process to stop", || state(pid, pid) == Some('T'));
    let (_, stacks) = take(StackMethod::Native, &[pid]);
    assert_towers(&target.told, &stacks);
    assert_eq!(state(pid, pid), Some('T'));
    signal("-CONT");
    assert_runs(pid);
    target.end();
}

#[test]
fn nothing_stays_stopped_when_whoever_takes_stacks_is_killed() {
    let test = WatchTest::new("killed");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("16")).reads();
    let attach = format!("attach={}", target.pid());
    for (round, method) in ["native", "native", "native", "gdb"].iter().cycle().take(24).enumerate() {
        let options =
            [&attach, &format!("stacks={method}"), "interval=1ms", "stacks-interval=1ms", &test.ready()];
        let mut watcher = test.watcher(&options).spawn().unwrap();
        test.wait_until_ready(&mut watcher);
        std::thread::sleep(Duration::from_micros(500 * round as u64));
        watcher.kill().unwrap();
        wait_for_exit(&mut watcher, "the killed watcher");
        std::fs::remove_file(test.join("ready")).unwrap();
        assert_runs(target.pid());
    }
    let (_, stacks) = take(StackMethod::Native, &[target.pid()]);
    assert_towers(&target.told, &stacks);
    target.end();
}

#[test]
fn a_thread_that_cannot_be_stopped_holds_nobody_up() {
    let test = WatchTest::new("vfork");
    let program = compile(&test, "restless.c", "restless", &[]);
    // Its first thread waits in vfork for a child that ends with its input.
    let target = Ready::start(Command::new(&program).args(["vfork", "0"]));
    wait_until("the first thread to wait in vfork", || state(target.pid(), target.pid()) == Some('D'));
    let (report, _) = take(StackMethod::Native, &[target.pid()]);
    assert_eq!(report.stuck_threads, 1, "{report:?}");
    assert!(report.notes()[0].contains("did not stop in time"));
    assert_runs(target.pid());
    // Asking for its end would also ask for the stop that is still to come, so it is looked for.
    let (pid, mut target) = (target.pid(), target);
    drop(target.child.stdin.take());
    wait_until("the process to end", || state(pid, pid) == Some('Z'));
    target.end();
}
