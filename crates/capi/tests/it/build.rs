//! Compiling programs against the header and the libraries that cargo built for this test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use floodmark_testkit::TempDir;

/// Which library a program is linked with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Linked {
    Static,
    Shared,
}

/// Directory of the crate.
pub(crate) fn crate_directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory with the static and the shared library.
///
/// A test that depends on a library target gets all of its crate types, in the directory of the test itself.
pub(crate) fn library_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let directory = test.parent().expect("a directory").to_owned();
    for library in ["libfloodmark_capi.a", "libfloodmark_capi.so"] {
        assert!(directory.join(library).exists(), "cargo built no {library} in {}", directory.display());
    }
    directory
}

/// Makes a directory for programs and traces. The system's directory may not allow programs to be run.
pub(crate) fn work_directory(name: &str) -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR"), name)
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Compiles a C or C++ source with strict warnings; returns the program.
#[track_caller]
pub(crate) fn compile(source: &Path, linked: Linked, directory: &Path) -> PathBuf {
    let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let (compiler, variable, standard) =
        if is_cpp { ("c++", "CXX", "-std=c++11") } else { ("cc", "CC", "-std=c99") };
    let program = directory.join("program");
    let libraries = library_directory();
    let mut command = Command::new(std::env::var_os(variable).unwrap_or_else(|| compiler.into()));
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-I"]);
    command.arg(crate_directory().join("include")).arg("-o").arg(&program).arg(source);
    match linked {
        Linked::Static => command.arg(libraries.join("libfloodmark_capi.a")),
        Linked::Shared => {
            command.arg(format!("-Wl,-rpath,{}", libraries.display()));
            command.arg("-L").arg(&libraries).arg("-l:libfloodmark_capi.so")
        }
    };
    run(command.args(["-lpthread", "-ldl", "-lm"]));
    program
}

/// Path of one of the programs of these tests.
pub(crate) fn source(name: &str) -> PathBuf {
    crate_directory().join("tests/it/programs").join(name)
}
