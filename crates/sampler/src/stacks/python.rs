//! Frames of Python, which replace the frames of the interpreter that runs them.
//!
//! The library of `py-spy` can read the frames of all versions of Python. It does not stop the process
//! itself, because the tracer has stopped all threads.

use std::collections::HashMap;
use std::sync::Arc;

use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy};

use super::maps::{Code, FileKey, Maps};
use super::names::NamedFrame;
use super::tracer::Copied;
use super::worker::Frames;

/// Number of attempts to find Python's state in a process, which fails while the process is starting.
const MOST_TRIES: u32 = 8;
/// The function of the interpreter that runs functions of Python.
const RUNS_PYTHON: &str = "_PyEval_EvalFrameDefault";

/// The frames of Python of one thread.
#[derive(Debug)]
pub(crate) struct PythonThread {
    /// Thread id, if Python knows it.
    thread: Option<u64>,
    /// Python's identifier of the thread.
    itself: u64,
    /// Frames, innermost first, each with whether the interpreter was entered again for it.
    frames: Vec<(Arc<NamedFrame>, Entry)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    New,
    Same,
}

/// Processes that run Python.
#[derive(Default)]
pub(crate) struct Pythons(HashMap<i32, Known>);

struct Known {
    /// First module of the process, which changes when it calls exec.
    program: Option<(u64, FileKey)>,
    spy: Option<PythonSpy>,
    tries: u32,
    failure: Option<String>,
}

impl Pythons {
    /// Finds Python's state in a process, if it runs Python.
    pub(crate) fn prepare(&mut self, process: i32, maps: &Maps) {
        let program = maps.starts.first().cloned();
        let known = self.0.get(&process).filter(|known| known.program == program);
        let tries = known.map_or(0, |known| known.tries);
        if tries >= MOST_TRIES || known.is_some_and(|known| known.spy.is_some()) {
            return;
        }
        if !maps.code.iter().any(is_python) {
            self.0.remove(&process);
            return;
        }
        let config = Config {
            blocking: LockingStrategy::NonBlocking,
            collect_thread_names: false,
            ..Config::default()
        };
        let (spy, failure) = match PythonSpy::new(process, &config) {
            Ok(spy) => (Some(spy), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        self.0.insert(process, Known { program, spy, tries: tries + 1, failure });
    }

    pub(crate) fn knows(&self, process: i32) -> bool {
        self.0.get(&process).is_some_and(|known| known.spy.is_some())
    }

    /// The reason why Python's state was not found.
    pub(crate) fn failure(&self, process: i32) -> Option<String> {
        self.0.get(&process)?.failure.clone()
    }

    /// Reads the frames of a known process.
    pub(crate) fn frames(&mut self, process: i32) -> Result<Vec<PythonThread>, String> {
        let spy = self.0.get_mut(&process).and_then(|known| known.spy.as_mut());
        let traces = spy.ok_or("unknown")?.get_stack_traces().map_err(|error| format!("{error:#}"))?;
        let threads = traces.into_iter().map(|trace| PythonThread {
            thread: trace.os_thread_id,
            itself: trace.thread_id,
            frames: trace.frames.into_iter().map(named).collect(),
        });
        Ok(threads.collect())
    }
}

fn named(frame: py_spy::Frame) -> (Arc<NamedFrame>, Entry) {
    let entry = if frame.is_entry || frame.is_shim_entry { Entry::New } else { Entry::Same };
    let named = NamedFrame {
        function: frame.name,
        file: frame.filename,
        line: u32::try_from(frame.line).unwrap_or(0),
        ..NamedFrame::default()
    };
    (Arc::new(named), entry)
}

/// Whether the module is an interpreter or an extension.
fn is_python(code: &Code) -> bool {
    is_python_module(code.file.name())
}

fn is_python_module(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.contains("python"))
}

/// The frames of Python of a thread.
pub(crate) fn of_thread<'a>(threads: &'a [PythonThread], copied: &Copied) -> Option<&'a PythonThread> {
    let by_number = threads.iter().find(|python| python.thread == Some(copied.thread as u64));
    let itself = copied.registers.itself;
    by_number.or_else(|| {
        threads.iter().find(|python| python.thread.is_none() && itself != 0 && python.itself == itself)
    })
}

/// Inserts frames of Python where the interpreter runs them. The interpreter's own frames are removed except
/// for the innermost ones, which show what Python is doing.
///
/// Native frames are groups of those at one address, innermost first.
pub(crate) fn merge(native: &[Arc<[Arc<NamedFrame>]>], python: Option<&PythonThread>) -> Frames {
    let all = || native.iter().flat_map(|names| names.iter().cloned());
    let Some(python) = python.filter(|python| !python.frames.is_empty()) else { return all().collect() };
    let runs_python = |names: &&Arc<[Arc<NamedFrame>]>| is_running_python(names);
    let Some(interpreter) = native.iter().find(runs_python) else {
        let frames = python.frames.iter().map(|(frame, _)| Arc::clone(frame));
        let is_interpreter = |names: &Arc<[Arc<NamedFrame>]>| is_python_module(module_of(names));
        return if native.iter().any(is_interpreter) {
            // Without symbols of the interpreter their position is unknown.
            frames.chain(all()).collect()
        } else {
            // The stack was cut inside what Python called.
            all().chain(frames).collect()
        };
    };
    let interpreter = module_of(interpreter);
    let mut merged = Vec::new();
    let mut left = python.frames.iter();
    let mut runs = native.iter().filter(runs_python).count();
    let mut is_outside = false;
    for names in native {
        if is_running_python(names) {
            is_outside = true;
            runs -= 1;
            for (frame, entry) in left.by_ref() {
                merged.push(Arc::clone(frame));
                // The remaining frames go to the last position.
                if *entry == Entry::New && runs > 0 {
                    break;
                }
            }
        } else if !is_outside || module_of(names) != interpreter {
            merged.extend(names.iter().cloned());
        }
    }
    merged
}

fn is_running_python(names: &Arc<[Arc<NamedFrame>]>) -> bool {
    names.iter().any(|frame| frame.function.starts_with(RUNS_PYTHON))
}

fn module_of(names: &Arc<[Arc<NamedFrame>]>) -> &str {
    names.first().map_or("", |frame| frame.module.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(names: &[(&str, &str)]) -> Vec<Arc<[Arc<NamedFrame>]>> {
        let frame = |(function, module): &(&str, &str)| {
            let (function, module) = ((*function).to_owned(), (*module).to_owned());
            Arc::from([Arc::new(NamedFrame { function, module, ..NamedFrame::default() })])
        };
        names.iter().map(frame).collect()
    }

    fn python(names: &[(&str, Entry)]) -> PythonThread {
        let frame = |(function, entry): &(&str, Entry)| {
            (Arc::new(NamedFrame { function: (*function).to_owned(), ..NamedFrame::default() }), *entry)
        };
        PythonThread { thread: None, itself: 0, frames: names.iter().map(frame).collect() }
    }

    fn merged(native: &[Arc<[Arc<NamedFrame>]>], python: &PythonThread) -> Vec<String> {
        merge(native, Some(python)).iter().map(|frame| frame.function.clone()).collect()
    }

    #[test]
    fn each_run_of_the_interpreter_becomes_the_functions_it_runs() {
        let native = native(&[
            ("read", "libc"),
            ("time_sleep", "python"),
            (RUNS_PYTHON, "python"),
            ("_PyFunction_Vectorcall", "python"),
            ("apply", "numpy"),
            ("_PyEval_EvalFrameDefault.cold", "python"),
            ("Py_RunMain", "python"),
            ("__libc_start_main", "libc"),
        ]);
        let python = python(&[("leaf", Entry::New), ("middle", Entry::Same), ("<module>", Entry::New)]);
        let expected = ["read", "time_sleep", "leaf", "apply", "middle", "<module>", "__libc_start_main"];
        assert_eq!(merged(&native, &python), expected);
    }

    #[test]
    fn no_function_of_python_is_lost_where_the_two_do_not_fit() {
        let native = native(&[("read", "libc"), (RUNS_PYTHON, "python"), ("_start", "python")]);
        let frames = [("a", Entry::New), ("b", Entry::New), ("c", Entry::New)];
        assert_eq!(merged(&native, &python(&frames)), ["read", "a", "b", "c"]);
        assert_eq!(merged(&native[2..], &python(&frames)), ["a", "b", "c", "_start"]);
        assert_eq!(merged(&native[..1], &python(&frames)), ["read", "a", "b", "c"], "it is cut");
        assert_eq!(merge(&native, None).len(), 3);
    }
}
