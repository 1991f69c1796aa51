//! Stacks of real programs.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use floodmark_event::{StackReason, SubjectId};
use floodmark_sampler::stacks::{End, StackTarget, TakenStack};
use floodmark_sampler::{StackMethod, StackProps, StackReport, StackTaker};
use floodmark_tail::clock::monotonic_ns;
use floodmark_testkit::{wait_for_exit, wait_until};

use crate::programs::WatchTest;

/// A program that told us that it is ready, and ends with this value.
pub(crate) struct Ready {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
    /// Its first line.
    pub(crate) told: String,
}

impl Ready {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut ready = Self { child, output, told: String::new() };
        ready.told = ready.line();
        ready.settle();
        ready
    }

    /// Waits until its first thread, which has just told something, waits for us; or for a while, as
    /// some programs never rest.
    fn settle(&self) {
        for _ in 0..2_000 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
            if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S')) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until its first thread waits for input, which it says it is about to do.
    pub(crate) fn reads(self) -> Self {
        let waiting = format!("{} 0x0 ", libc::SYS_read);
        let path = format!("/proc/{0}/task/{0}/syscall", self.pid());
        wait_until("the program to read", || {
            std::fs::read_to_string(&path).expect("it is there").starts_with(&waiting)
        });
        self
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Lets it end by itself.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(wait_for_exit(&mut self.child, "the program").success());
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles one of our programs as others are compiled.
pub(crate) fn compile(test: &WatchTest, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs").join(source);
    let program = test.join(name);
    let mut command = Command::new("cc");
    command.args(["-O2", "-g", "-fomit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command.arg(source).args(options).args(["-lpthread", "-ldl"]);
    assert!(command.status().expect("cc runs").success(), "{name} compiles");
    program
}

/// Takes the stacks of a process once.
pub(crate) fn take(method: StackMethod, pids: &[i32]) -> (StackReport, Vec<TakenStack>) {
    let mut taker =
        StackTaker::open(StackProps { method, ..StackProps::default() }, Vec::new()).expect("it is ready");
    for pid in pids {
        let target = StackTarget { process: *pid, subject: SubjectId(1) };
        taker.take(target, monotonic_ns(), StackReason::Request);
    }
    taker.finish()
}

/// Names of the functions of a stack, innermost first.
pub(crate) fn functions(stack: &TakenStack) -> Vec<&str> {
    stack.frames.iter().map(|frame| frame.function.as_str()).collect()
}

/// The functions of ours that thread `n` of the towers is in, innermost first.
pub(crate) fn tower(n: usize) -> Vec<String> {
    if n == 0 {
        return ["gate", "main"].map(String::from).to_vec();
    }
    let mut functions = vec![format!("cellar_{}", n % 4)];
    functions.extend((0..=n % 8).map(|_| "stairs".to_owned()));
    functions.extend(["hall", "tower"].map(String::from));
    functions
}

/// Asserts that each thread of the towers is where it said it would be.
pub(crate) fn assert_towers(told: &str, stacks: &[TakenStack]) {
    let by_thread: HashMap<u64, &TakenStack> = stacks.iter().map(|stack| (stack.thread, stack)).collect();
    let threads: Vec<u64> = told.split(' ').map(|number| number.parse().expect("a number")).collect();
    assert_eq!(by_thread.len(), threads.len(), "{stacks:#?}");
    for (n, thread) in threads.iter().enumerate() {
        let found = functions(by_thread[thread]);
        let expected = tower(n);
        let at = found.iter().position(|name| *name == expected[0]);
        let at = at.unwrap_or_else(|| panic!("thread {n}: {found:?}"));
        assert_eq!(found[at..at + expected.len()], expected, "thread {n}");
    }
}

#[test]
fn all_threads_have_the_functions_that_they_are_in() {
    let test = WatchTest::new("towers");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("8")).reads();
    let (report, stacks) = take(StackMethod::Native, &[target.pid()]);
    assert_towers(&target.told, &stacks);
    assert_eq!((report.processes, report.stacks, report.cut), (1, 8, 0), "{stacks:#?}");
    for stack in &stacks {
        assert_eq!(stack.end, End::Outermost);
        assert!(stack.pause_ns > 0 && stack.pause_ns <= report.longest_pause_ns);
        let hall = stack.frames.iter().find(|frame| ["hall", "gate"].contains(&frame.function.as_str()));
        let hall = hall.expect("one of ours");
        assert!(hall.file.ends_with("towers.c") && hall.line > 0, "{hall:?}");
        assert!(hall.module.ends_with("/towers") && hall.address > 0, "{hall:?}");
    }
    target.end();
}

#[test]
fn debuggers_find_the_same_functions() {
    use floodmark_sampler::stacks::Tool;
    let test = WatchTest::new("debuggers");
    let program = compile(&test, "towers.c", "towers", &[]);
    let target = Ready::start(Command::new(&program).arg("8")).reads();
    for tool in Tool::ALL {
        let (report, stacks) = take(StackMethod::Tool(tool), &[target.pid()]);
        assert_eq!(report.messages, [""; 0], "{tool:?}");
        assert_towers(&target.told, &stacks);
        assert_eq!((report.processes, report.stacks), (1, 8));
        let hall = stacks.iter().flat_map(|stack| &stack.frames).find(|frame| frame.function == "hall");
        let hall = hall.expect("one of ours");
        assert!(hall.file.ends_with("towers.c") && hall.line > 0 && hall.address > 0, "{tool:?}: {hall:?}");
    }
    target.end();
}

/// The Python that runs programs here; a wrapper that stands for it would be another process.
fn python(name: &str) -> Option<PathBuf> {
    let output = Command::new(name).args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).expect("a path").trim().into())
}

fn assert_functions_of_python(python: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/calls.py");
    let target = Ready::start(Command::new(python).arg(&script)).reads();
    let (report, stacks) = take(StackMethod::Python, &[target.pid()]);
    assert_eq!((&report.messages[..], report.stacks), (&[][..], 4), "{}", python.display());
    let frames = |stack: &TakenStack| -> Vec<(String, u32)> {
        let ours = stack.frames.iter().filter(|frame| frame.file.ends_with("/calls.py"));
        ours.map(|frame| (frame.function.rsplit('.').next().expect("a name").to_owned(), frame.line))
            .collect()
    };
    let expect = |names: &[(&str, u32)]| -> Vec<(String, u32)> {
        names.iter().map(|(name, line)| ((*name).to_owned(), *line)).collect()
    };
    let main = stacks.iter().find(|stack| stack.thread == target.pid() as u64).expect("the first thread");
    let expected = [("read_until_the_end", 23), ("main", 33), ("<module>", 38)];
    assert_eq!(frames(main), expect(&expected), "{main:#?}");
    for worker in target.told.split(' ').map(|number| number.parse::<u64>().expect("a number")) {
        let stack = stacks.iter().find(|stack| stack.thread == worker).expect("a worker");
        let expected = [("leaf", 7), ("inner", 14), ("inner", 12), ("inner", 12), ("inner", 12), ("run", 19)];
        assert_eq!(frames(stack), expect(&expected), "{stack:#?}");
        assert!(!functions(stack).contains(&"_PyEval_EvalFrameDefault"));
        // What the interpreter is doing at the moment is in C, and so is where the thread began.
        assert!(stack.frames[0].module.contains("libc"), "{stack:#?}");
        assert!(stack.frames.last().expect("frames").module.contains("libc"), "{stack:#?}");
    }
    target.end();
}

#[test]
fn a_program_in_python_shows_its_functions() {
    assert_functions_of_python(&python("python3").expect("python3 runs"));
    // And those that happen to be there, too.
    for name in (11..=15).map(|minor| format!("python3.{minor}")) {
        if let Some(python) = python(&name) {
            assert_functions_of_python(&python);
        }
    }
}

#[test]
fn stacks_at_a_peak_say_who_asked_for_the_memory() {
    let test = WatchTest::new("grow");
    let program = compile(&test, "grow.c", "grow", &[]);
    for method in ["native", "gdb"] {
        let stacks = format!("stacks={method}");
        let report = test.watch(&["interval=2ms", &stacks], &[&"sh", &"-c", &"\"$0\"; exit $?", &program]);
        let grow = &report.named("grow")[0];
        let told: Vec<_> = report.stacks.iter().filter(|(process, ..)| *process == grow.number).collect();
        let is_there = |names: &[&str]| {
            told.iter().any(|(_, why, functions)| {
                matches!(why.as_str(), "peak" | "fault")
                    && functions.windows(names.len()).any(|window| window == names)
            })
        };
        assert!(is_there(&["hold", "assemble", "solve", "main"]), "{method}: {report:?} {told:?}");
        assert!(report.figure("takings") > 0);
        // What was started for the stacks is no part of the tree.
        assert!(report.named("gdb").is_empty(), "{report:?}");
        assert_eq!((report.figure("missed"), report.figure("exit")), (0, 0));
        assert!(grow.status == Some(0) && !report.notes.iter().any(|note| note.contains("no stacks")));
    }
}
