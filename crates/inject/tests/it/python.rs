//! Programs of Python: objects and frames.

use std::path::{Path, PathBuf};
use std::process::Command;

use floodmark_event::tables::Frame;
use floodmark_event::{Action, Event, Kind};
use floodmark_tail::heap::{HeapNote, PYMALLOC_RESOURCE};

use crate::build::{finish, recording, work_directory};
use crate::heap_tail::HeapTail;

/// Runs the program of these tests with the options of `heap`.
fn run(heap: &str) -> HeapTail {
    let directory = work_directory("inject-python");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/objects.py");
    let trace = directory.join("run.flood");
    let mut command = recording(Path::new("python3"), &trace, heap);
    // A launcher of the interpreter may be a script, which is recorded too.
    let output = finish(command.arg(program).spawn().expect("python3"), "python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let processes = HeapTail::read_all(&trace);
    processes
        .into_iter()
        .find(|process| process.command.contains("objects.py") && !process.command.contains("bash"))
        .expect("python")
}

/// The Python functions of a stack, innermost first, with their lines.
fn python_frames<'a>(tail: &'a HeapTail, event: &Event) -> Vec<(&'a str, u32)> {
    let frames = tail.frames_of(event.stack.0);
    let is_python =
        |frame: &Frame| tail.strings.get(&frame.file.0).is_some_and(|file| file.ends_with("objects.py"));
    frames
        .into_iter()
        .filter(is_python)
        .map(|frame| (tail.strings[&frame.function.0].as_str(), frame.line))
        .collect()
}

#[test]
fn python_functions_stand_in_stacks_of_malloc() {
    let tail = run("check=on");
    let big = tail.events.iter().find(|event| event.action == Action::Alloc && event.bytes == 5_000_001);
    let big = big.expect("the bytearray");
    assert_eq!(python_frames(&tail, big), [("<module>", 20)]);
    // Native frames stand around them, down to the interpreter's main function.
    assert!(tail.frames_of(big.stack.0).iter().filter(|frame| frame.address != 0).count() >= 3);
    let notes = tail.notes();
    assert!(
        notes.iter().all(|(note, _)| *note != HeapNote::Mismatch && *note != HeapNote::PythonUnknown),
        "{notes:?}"
    );
}

#[test]
fn objects_of_pymalloc_are_recorded_once_with_their_functions() {
    let tail = run("python");
    let version = tail.notes().into_iter().find(|(note, _)| *note == HeapNote::Python).expect("a note").1;
    assert!((311..=313).contains(&version), "{version}");
    let resource = |event: &Event| tail.strings.get(&event.resource.0).map_or("", String::as_str);
    // Lists grow at the same line, by sizes that are multiples of 8.
    for number in (0..100_u64).filter(|number| (333 + number) % 8 != 0) {
        // Stacks are put together only for events of the size.
        let is_object = |event: &&Event| {
            event.action == Action::Alloc
                && event.bytes == 333 + number
                && python_frames(&tail, event).first() == Some(&("leaf", 6))
        };
        let objects: Vec<&Event> = tail.events.iter().filter(is_object).collect();
        assert_eq!(objects.len(), 1, "{number}");
        assert_eq!(resource(objects[0]), PYMALLOC_RESOURCE);
        let expected = [("leaf", 6), ("through_c", 10), ("Holder.method", 15), ("<module>", 19)];
        assert_eq!(python_frames(&tail, objects[0]), expected);
    }
    // No address is allocated twice, though large objects go on to malloc; frees end what they should.
    let (_, unknown) = tail.live(Kind::Pageable);
    assert!(unknown < 50, "{unknown} frees of unknown blocks");
}

/// The interpreters of the versions whose frames are read, as far as they are installed.
fn interpreters() -> Vec<PathBuf> {
    let home = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let installed = |version: &str| {
        let directory = std::fs::read_dir(root.clone()?.join("versions")).ok()?;
        let is_version = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{version}.")))
        };
        let found = directory.flatten().map(|entry| entry.path()).find(is_version)?;
        Some(found.join("bin").join(format!("python{version}")))
    };
    let on_path = |version: &str| {
        let name = format!("python{version}");
        // A name that stands for a version which is not selected does not run.
        let runs = Command::new(&name).arg("--version").output().is_ok_and(|output| output.status.success());
        runs.then(|| PathBuf::from(name))
    };
    let all = ["3.11", "3.12", "3.13"];
    all.into_iter().filter_map(|version| installed(version).or_else(|| on_path(version))).collect()
}

#[test]
fn python_frames_are_those_that_python_sees() {
    let interpreters = interpreters();
    assert!(!interpreters.is_empty(), "no Python 3.11, 3.12 or 3.13");
    for python in interpreters {
        let directory = work_directory("inject-python-stacks");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/stacks.py");
        let trace = directory.join("run.flood");
        let mut command = recording(&python, &trace, "check=on");
        let output = finish(command.arg(program).spawn().expect("starts"), "python");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let processes = HeapTail::read_all(&trace);
        let tail = processes.iter().max_by_key(|process| process.events.len()).expect("python");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut compared = 0;
        for line in text.lines() {
            let mut words = line.split('\t');
            let bytes: u64 = words.next().and_then(|size| size.parse().ok()).expect("a size");
            let expected: Vec<&str> = words.collect();
            let is_block = |event: &&Event| event.action == Action::Alloc && event.bytes == bytes + 1;
            let event = tail.events.iter().find(is_block).expect("the block");
            let named = tail.frames_of(event.stack.0).into_iter().filter(|frame| frame.function.0 != 0);
            let found: Vec<String> =
                named.map(|frame| format!("{}:{}", tail.strings[&frame.function.0], frame.line)).collect();
            assert_eq!(found, expected, "{} {bytes}", python.display());
            compared += 1;
        }
        assert!(compared >= 25, "{compared}");
        assert!(tail.notes().iter().all(|(note, _)| *note != HeapNote::Mismatch), "{:?}", tail.notes());
    }
}
