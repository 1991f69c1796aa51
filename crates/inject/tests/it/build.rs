//! Compiling programs and running them with the library that cargo built for this test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use floodmark_testkit::{TempDir, wait_for_exit};

/// The directory of the crate. Cargo names it when it starts a test too, and tests that run on another machine than they
/// were built on are told there where it is.
pub(crate) fn crate_directory() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The library under test. A test gets what its crate builds in the directory of the test itself.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let library = test.parent().expect("a directory").join("libfloodmark_inject.so");
    assert!(library.exists(), "cargo built no {}", library.display());
    library
}

/// Makes a directory for programs and traces. The system's directory may not allow programs to be run.
pub(crate) fn work_directory(name: &str) -> TempDir {
    let parent = std::env::var_os("CARGO_TARGET_TMPDIR");
    TempDir::new_in(parent.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from), name)
}

/// Compiles one of the programs of these tests; `options` follow the source.
#[track_caller]
pub(crate) fn compile(name: &str, options: &[&str], directory: &Path) -> PathBuf {
    let source = crate_directory().join("tests/it/programs").join(name);
    let program = directory.join(source.file_stem().expect("a name"));
    let (compiler, variable) = match source.extension().and_then(|extension| extension.to_str()) {
        Some("cpp") => ("c++", "CXX"),
        Some("rs") => ("rustc", "RUSTC"),
        _ => ("cc", "CC"),
    };
    let mut command = Command::new(std::env::var_os(variable).unwrap_or_else(|| compiler.into()));
    if compiler == "rustc" {
        command.args(["--edition", "2024", "-C", "opt-level=1"]);
    } else {
        command.args(["-Wall", "-Wextra", "-O1", "-g", "-pthread"]);
    }
    let output = command.arg("-o").arg(&program).arg(&source).args(options).output().expect("a compiler");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Returns a command that records `program` into `trace` with the options of `heap`.
pub(crate) fn recording(program: &Path, trace: &Path, heap: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("FLOODMARK_TRACE", trace).env("FLOODMARK_HEAP", heap);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a program, for a minute at most, and returns what it wrote.
#[track_caller]
pub(crate) fn finish(mut child: Child, name: &str) -> Output {
    let status = wait_for_exit(&mut child, name);
    let mut output = child.wait_with_output().expect("its output");
    output.status = status;
    output
}
