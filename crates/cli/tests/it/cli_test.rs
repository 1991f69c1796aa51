//! A directory of its own for every test, and the command run in it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use floodmark_testkit::TempDir;
use serde_json::Value;

/// The command to test: the one that was built, or the one that `FLOODMARK_TEST_COMMAND` names. With that of an earlier
/// version, a test shows whether it fails without what it tests.
pub(crate) fn floodmark() -> PathBuf {
    let named = std::env::var_os("FLOODMARK_TEST_COMMAND");
    named.map_or_else(|| env!("CARGO_BIN_EXE_floodmark").into(), PathBuf::from)
}

/// A temporary directory with the fixtures of `data`.
pub(crate) struct CliTest {
    dir: TempDir,
}

impl CliTest {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"), "cli");
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data");
        for entry in fs::read_dir(data).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The command in this directory, with nothing in its environment that changes its output.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(floodmark());
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"] {
            command.env_remove(name);
        }
        command.env("COLUMNS", "100").env("LC_ALL", "C.UTF-8");
        command
    }

    /// Runs the command.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(args, &self.command(args).output().unwrap())
    }

    /// Runs the command with something to read.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Ran::of(args, &child.wait_with_output().unwrap())
    }
}

/// What the command did.
pub(crate) struct Ran {
    args: String,
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(args: &[&str], output: &Output) -> Self {
        Self {
            args: args.join(" "),
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Everything a user sees, for snapshots.
    pub(crate) fn seen(&self) -> String {
        let part = |name: &str, text: &str| {
            if text.is_empty() { String::new() } else { format!("--- {name}\n{text}") }
        };
        format!(
            "$ floodmark {}\n--- exit code {}\n{}{}",
            self.args,
            self.code,
            part("stdout", &self.stdout),
            part("stderr", &self.stderr)
        )
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.args);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts that it went well and said nothing beside data.
    pub(crate) fn ok(self) -> Self {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.args);
        self
    }
}

/// Sizes depend on how Parquet encodes; what is said of them does not.
pub(crate) fn without_sizes(text: &str) -> String {
    let mut masked = String::new();
    let mut words = text.split_inclusive([' ', '\n', ',', '(']).peekable();
    while let Some(word) = words.next() {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let unit = words.peek().is_some_and(|next| {
            next.starts_with("KiB") || next.starts_with('B') || next.starts_with("bytes")
        });
        masked += if is_number && unit { "… " } else { word };
    }
    masked
}
