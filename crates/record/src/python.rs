//! Tracing the calls of a Python program: checks that the interpreter has the package `floodmark` of this version,
//! and then becomes that interpreter.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floodmark_event::text::shell_word;

use crate::error::{Error, Result};
use crate::session::TRACE_VARIABLE;

/// Begins the line in which the interpreter answers; code that runs when it starts may print others.
const ANSWER: &str = "floodmark-package:";
/// Has the interpreter say which version of the package it has; nothing stands for none.
const PROBE: &str = "
try:
    from floodmark import __version__
except ModuleNotFoundError as error:
    if error.name != 'floodmark':
        raise
    __version__ = ''
print('\\nfloodmark-package:' + __version__)
";
/// Variables by which the package records in processes that others start: the probe is none of the program's.
const FOLLOWED: [&str; 4] =
    [TRACE_VARIABLE, "FLOODMARK_RECORD", "FLOODMARK_TRACE_FOLLOW", "FLOODMARK_MEMORY_PROFILING"];

/// A command line that runs a Python program, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonCommand {
    interpreter: OsString,
    /// Options of the interpreter itself.
    options: Vec<OsString>,
    /// A script, `-m` and a module, or `-c` and code; then the arguments of the program.
    program: Vec<OsString>,
}

impl PythonCommand {
    /// Takes the words of a command line apart, such as `python -X dev script.py args`.
    ///
    /// # Errors
    /// The first word is not the name of a Python interpreter, or no program follows.
    pub fn parse(words: &[OsString]) -> Result<Self> {
        let Some((interpreter, rest)) = words.split_first() else {
            return Err(refused("there is no command to trace"));
        };
        let shown = shell_word(&interpreter.to_string_lossy()).into_owned();
        if Path::new(interpreter).extension().is_some_and(|extension| extension == "py") {
            return Err(Error::refused(
                format!("{shown} is a script, and the interpreter that is to run it is missing"),
                format!("write it first: floodmark trace -- python {shown}"),
            ));
        }
        if !is_python(interpreter) {
            return Err(Error::refused(
                format!("{shown} is not a Python interpreter, and only Python programs have calls to trace"),
                "write 'python -m MODULE' for programs such as pytest; floodmark run records any command",
            ));
        }
        let mut options = Vec::new();
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            let bytes = word.as_bytes();
            if bytes == b"--check-hash-based-pycs" {
                options.extend([word.clone()].into_iter().chain(rest.next().cloned()));
            } else if bytes.starts_with(b"--") {
                options.push(word.clone());
            } else if bytes == b"-" {
                break;
            } else if let Some(flags) = bytes.strip_prefix(b"-") {
                let Some(at) = flags.iter().position(|flag| b"cmWX".contains(flag)) else {
                    options.push(word.clone());
                    continue;
                };
                let (before, value) = (&flags[..at], &flags[at + 1..]);
                let value = if value.is_empty() {
                    rest.next().cloned()
                } else {
                    Some(OsStr::from_bytes(value).into())
                };
                let flag = OsString::from(format!("-{}", char::from(flags[at])));
                if !before.is_empty() {
                    options.push(OsStr::from_bytes(&[b"-", before].concat()).into());
                }
                let Some(value) = value else { break };
                if matches!(flags[at], b'W' | b'X') {
                    options.extend([flag, value]);
                    continue;
                }
                let program = [flag, value].into_iter().chain(rest.cloned()).collect();
                return Ok(Self { interpreter: interpreter.clone(), options, program });
            } else {
                let program = [word.clone()].into_iter().chain(rest.cloned()).collect();
                return Ok(Self { interpreter: interpreter.clone(), options, program });
            }
        }
        Err(refused("there is no program to trace: a program on standard input cannot be"))
    }

    /// Becomes the interpreter, which traces the program with these options of `python -m floodmark.trace`: exit status
    /// and signals are the program's own. Returns only if that fails.
    pub fn trace(&self, options: &[OsString]) -> Error {
        if let Err(error) = self.check_package() {
            return error;
        }
        let mut command = Command::new(&self.interpreter);
        command.args(&self.options).args(["-m", "floodmark.trace"]).args(options).args(&self.program);
        self.not_started(command.exec())
    }

    /// Checks that the interpreter has the package, in the version of this program.
    fn check_package(&self) -> Result<()> {
        let mut probe = Command::new(&self.interpreter);
        probe.args(&self.options).args(["-c", PROBE]).stdin(Stdio::null());
        for name in FOLLOWED {
            probe.env_remove(name);
        }
        let output = probe.output().map_err(|error| self.not_started(error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix(ANSWER));
        let interpreter = shell_word(&self.interpreter.to_string_lossy()).into_owned();
        let ours = env!("CARGO_PKG_VERSION");
        match version {
            Some(version) if normalized(version) == normalized(ours) => Ok(()),
            Some("") => Err(Error::refused(
                format!("{interpreter} does not have the package floodmark, which traces the program"),
                format!("install it: {interpreter} -m pip install floodmark"),
            )),
            Some(version) => Err(Error::refused(
                format!(
                    "{interpreter} has version {version} of the package floodmark, and this command is {ours}"
                ),
                format!(
                    "install the same version: {interpreter} -m pip install floodmark=={ours}; or use the command of the \
                     package: {interpreter} -m floodmark trace"
                ),
            )),
            None => {
                let complaint = String::from_utf8_lossy(&output.stderr);
                let complaint =
                    complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
                Err(Error::refused(
                    format!("{interpreter} cannot import the package floodmark: {complaint}"),
                    format!("try: {interpreter} -c 'import floodmark'"),
                ))
            }
        }
    }

    fn not_started(&self, source: io::Error) -> Error {
        let program = self.interpreter.clone();
        match source.kind() {
            io::ErrorKind::NotFound => floodmark_sampler::Error::NotFound { program },
            _ => floodmark_sampler::Error::NotExecutable { program, source },
        }
        .into()
    }
}

fn refused(message: &str) -> Error {
    Error::refused(message, "write the command after --, as in: floodmark trace -- python script.py")
}

/// Spells a version as Python packages do, where 1.0.0-rc.1 of Cargo is 1.0.0rc1.
fn normalized(version: &str) -> String {
    let at = version.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(version.len());
    let (release, rest) = version.split_at(at);
    let rest: String = rest.to_ascii_lowercase().chars().filter(|c| !"-._".contains(*c)).collect();
    let rest = rest.replacen("alpha", "a", 1).replacen("beta", "b", 1);
    format!("{}{rest}", release.trim_end_matches(['-', '.', '_']))
}

/// Whether a program is called like an interpreter of Python, or is a link to one.
fn is_python(program: &OsStr) -> bool {
    let is_named = |path: &Path| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python") || name == "pypy3")
    };
    let path = PathBuf::from(program);
    is_named(&path) || path.canonicalize().is_ok_and(|path| is_named(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(String, String)> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let PythonCommand { options, program, .. } = PythonCommand::parse(&words)?;
        let join = |words: Vec<OsString>| words.join(OsStr::new(" ")).into_string().expect("text");
        Ok((join(options), join(program)))
    }

    #[test]
    fn options_of_the_interpreter_are_told_from_the_program() {
        for (line, options, program) in [
            ("python script.py -m x", "", "script.py -m x"),
            ("/usr/bin/python3.12 -X dev -Werror s.py", "-X dev -W error", "s.py"),
            ("python -uXdev -OO s.py -c", "-u -X dev -OO", "s.py -c"),
            ("python -m pkg.tool -o out", "", "-m pkg.tool -o out"),
            ("python -mpkg a", "", "-m pkg a"),
            ("python3 -Im pkg", "-I", "-m pkg"),
            ("python -c pass a", "", "-c pass a"),
            ("python --check-hash-based-pycs always s.py", "--check-hash-based-pycs always", "s.py"),
        ] {
            let (found_options, found_program) = parse(line).expect(line);
            assert_eq!((found_options.as_str(), found_program.as_str()), (options, program), "{line}");
        }
    }

    #[test]
    fn versions_of_cargo_and_of_python_packages_are_compared() {
        for (cargo, python) in [("1.0.0", "1.0.0"), ("1.0.0-rc.1", "1.0.0rc1"), ("2.1.0-alpha.3", "2.1.0a3")]
        {
            assert_eq!(normalized(cargo), python);
            assert_eq!(normalized(python), python);
        }
        assert_ne!(normalized("1.0.0-rc.1"), normalized("1.0.0"));
    }

    #[test]
    fn what_is_no_python_program_is_refused_with_a_remedy() {
        for (line, remedy) in [
            ("script.py", "floodmark trace -- python script.py"),
            ("pytest tests", "python -m MODULE"),
            ("python", "floodmark trace -- python script.py"),
            ("python -", "after --"),
            ("python -X", "after --"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.remedy().is_some_and(|text| text.contains(remedy)), "{line}: {error}");
        }
    }
}
