//! Names of frames that a process recorded as addresses, from the symbols of its modules.
//!
//! A recording process writes the file of a module and an address in it, because symbols take too long to
//! find there. They are found here when a trace is read, but only in files that are surely those that the
//! process had loaded: with the same build id or, without one, on the same host and not changed since the
//! process began. Frames of the recorder itself and of Rust's runtime are left out of stacks: they are the
//! same in all of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use floodmark_stacks::{Detail, Function, Symbols, build_id};
use floodmark_store::{FrameName, FrameNames, NameFrames, RecordedModule, Trace};

use crate::error::Result;

/// Crates of the recorder, which are on every stack that it records.
const RECORDER: [&str; 4] =
    ["floodmark_capi::", "floodmark_resource::", "floodmark_stacks::", "floodmark_tail::"];

/// Parts of the paths of the recorder's source. Debug information may name an inlined function without its crate.
const RECORDER_FILES: [&str; 9] = [
    "/crates/capi/src/",
    "/crates/resource/src/adaptor/",
    "/crates/resource/src/buffer.rs",
    "/crates/stacks/src/",
    "/crates/tail/src/",
    "/floodmark-capi-",
    "/floodmark-resource-",
    "/floodmark-stacks-",
    "/floodmark-tail-",
];

/// Functions of Rust's runtime that call the program's own.
const RUNTIME: [&str; 11] = [
    "__rust_",
    "backtrace::",
    "core::ops::function::",
    "core::panic::",
    "std::backtrace",
    "std::panic::",
    "std::panicking::",
    "std::rt::",
    "std::sys::",
    "std::sys_common::",
    "std::thread::",
];

/// Parts of the paths of their source.
const RUNTIME_FILES: [&str; 7] = [
    "/library/core/src/ops/function.rs",
    "/library/core/src/panic/",
    "/library/std/src/panic",
    "/library/std/src/rt.rs",
    "/library/std/src/sys/",
    "/library/std/src/sys_common/",
    "/library/std/src/thread/",
];

/// Standard libraries of Rust.
const HELPERS: [&str; 3] = ["alloc::", "core::", "std::"];

thread_local! {
    /// Keeps parsed files; it cannot be shared by threads.
    static SYMBOLS: RefCell<Symbols> = RefCell::default();
}

/// Opens a trace and names its frames.
pub(crate) fn open_trace(path: &Path) -> Result<Trace> {
    Ok(Trace::open(path)?.with_frame_names(frame_names()))
}

/// Returns the names of modules that this process knows; what was found once is kept.
pub(crate) fn frame_names() -> Arc<dyn NameFrames> {
    static NAMES: OnceLock<Arc<ModuleNames>> = OnceLock::new();
    let names: &Arc<ModuleNames> = NAMES.get_or_init(|| Arc::new(ModuleNames::new()));
    Arc::clone(names) as Arc<dyn NameFrames>
}

/// Finds names in the files of modules.
#[derive(Debug, Default)]
struct ModuleNames {
    /// Name of this host.
    host: String,
    modules: Mutex<HashMap<String, ModuleFile>>,
}

/// What is known of the file of a module.
#[derive(Debug)]
struct ModuleFile {
    /// Build id; none if it has none.
    build_id: Option<String>,
    /// When its contents, name or owner were changed last, in nanoseconds since the Unix epoch; none if there
    /// is no such file.
    changed_ns: Option<i64>,
    names: HashMap<u64, FrameNames>,
}

impl ModuleFile {
    fn open(path: &str) -> Self {
        let changed_ns = changed_ns(path);
        let build_id = changed_ns.and_then(|_| build_id(Path::new(path)));
        Self { build_id, changed_ns, names: HashMap::new() }
    }

    /// Returns why this is not surely the file that a process had loaded; none if it is.
    fn doubt(&self, module: &RecordedModule<'_>, host: &str) -> Option<String> {
        let process = module.process;
        let is_elsewhere = !process.host.is_empty() && process.host != host;
        let Some(changed_ns) = self.changed_ns else {
            return Some(if is_elsewhere {
                format!("the file is not on this host; it was recorded on {}", process.host)
            } else {
                "the file is gone".to_owned()
            });
        };
        match (module.build_id, &self.build_id) {
            (Some(recorded), Some(now)) if recorded == now => None,
            (Some(_), _) if is_elsewhere => {
                Some(format!("the file here is not the one of {}, where it was recorded", process.host))
            }
            (Some(_), _) => Some("the file has changed since the recording".to_owned()),
            (None, _) if is_elsewhere => Some(format!("it was recorded on {}", process.host)),
            (None, _) if changed_ns > process.start_ns => {
                Some("the file has no recorded build id and has changed since the recording".to_owned())
            }
            (None, _) => None,
        }
    }
}

/// When a file was changed; none if there is no regular file with this absolute path. A trace can name any
/// file, such as a device or a pipe, which must not be opened.
fn changed_ns(path: &str) -> Option<i64> {
    let metadata = fs::metadata(path).ok().filter(|metadata| path.starts_with('/') && metadata.is_file())?;
    metadata.ctime().checked_mul(1_000_000_000)?.checked_add(metadata.ctime_nsec())
}

impl ModuleNames {
    fn new() -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { host: host.trim().to_owned(), modules: Mutex::default() }
    }
}

impl NameFrames for ModuleNames {
    fn names(&self, module: &RecordedModule<'_>, address: u64) -> FrameNames {
        // Code that the kernel maps has no file.
        if module.path.starts_with('[') || module.path == "linux-vdso.so.1" {
            return FrameNames::Unknown;
        }
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if !modules.contains_key(module.path) {
            modules.insert(module.path.to_owned(), ModuleFile::open(module.path));
        }
        let file = modules.get_mut(module.path).expect("inserted above");
        // A server may outlive the file that it has read names from.
        if !file.names.contains_key(&address) && changed_ns(module.path) != file.changed_ns {
            *file = ModuleFile::open(module.path);
        }
        if let Some(doubt) = file.doubt(module, &self.host) {
            return FrameNames::Unavailable(doubt);
        }
        file.names.entry(address).or_insert_with(|| look_up(module.path, address)).clone()
    }
}

/// Names the functions at an address of a file.
fn look_up(path: &str, address: u64) -> FrameNames {
    let found = SYMBOLS.with_borrow(|symbols| symbols.functions(Path::new(path), address, Detail::Lines));
    names_of(found)
}

/// Leaves out functions of the recorder, what it calls, and Rust's runtime; `found` is innermost first.
fn names_of(found: Vec<Function>) -> FrameNames {
    if found.is_empty() {
        return FrameNames::Unknown;
    }
    let roles: Vec<Role> = found.iter().map(Role::of).collect();
    let recorder = roles.iter().rposition(|role| *role == Role::Recorder);
    let is_kept = |at: usize| match roles[at] {
        Role::Recorder | Role::Runtime => false,
        Role::Helper => recorder.is_none_or(|recorder| at > recorder),
        Role::Program => true,
    };
    let kept = found.into_iter().enumerate().filter(|(at, _)| is_kept(*at));
    let name = |(at, function): (usize, Function)| FrameName {
        function: function.name,
        file: function.file,
        line: function.line,
        is_helper: roles[at] == Role::Helper,
    };
    let names: Vec<FrameName> = kept.map(name).collect();
    if names.is_empty() && recorder.is_some() { FrameNames::Recorder } else { FrameNames::Known(names) }
}

/// Whose function it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Recorder,
    Runtime,
    /// A standard library, which serves whatever calls it.
    Helper,
    Program,
}

impl Role {
    fn of(function: &Function) -> Self {
        let name = function.name.trim_start_matches(['<', '&', '*']);
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let lies_in = |parts: &[&str]| parts.iter().any(|part| function.file.contains(part));
        // What stands between `<` and `>` may be types of any crate.
        let is_qualified = name.split('<').next().is_some_and(|name| name.contains("::"));
        let is_inlined_recorder = !is_qualified && lies_in(&RECORDER_FILES);
        if starts(&RECORDER) || function.name.contains(" as floodmark_resource::") || is_inlined_recorder {
            Self::Recorder
        } else if starts(&RUNTIME)
            || function.name.contains(" as core::ops::function::Fn")
            || lies_in(&RUNTIME_FILES)
        {
            Self::Runtime
        } else if starts(&HELPERS) || (!is_qualified && function.file.contains("/library/")) {
            Self::Helper
        } else {
            Self::Program
        }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_event::tables::Process;

    use super::*;

    fn function(name: &str, file: &str) -> Function {
        Function { name: name.into(), file: file.into(), line: 7 }
    }

    #[test]
    fn functions_have_roles() {
        let recorder =
            "<floodmark_resource::adaptor::logging::Logging<R> as floodmark_resource::Resource>::allocate";
        let inlined = "/home/me/.cargo/registry/src/index/floodmark-resource-0.1.0/src/adaptor/logging.rs";
        for (name, file, role) in [
            ("floodmark_stacks::recorded::recorded_stack", "", Role::Recorder),
            (recorder, "", Role::Recorder),
            ("<alloc::sync::Arc<T> as floodmark_resource::Resource>::allocate", "", Role::Recorder),
            ("allocate<floodmark_resource::Host>", inlined, Role::Recorder),
            ("core::ops::function::FnOnce::call_once", "", Role::Runtime),
            ("<alloc::boxed::Box<F> as core::ops::function::FnOnce<A>>::call_once", "", Role::Runtime),
            ("std::rt::lang_start::{{closure}}", "", Role::Runtime),
            ("std::sys::backtrace::__rust_begin_short_backtrace", "", Role::Runtime),
            ("catch_unwind<app::work>", "/rustc/1/library/std/src/panicking.rs", Role::Runtime),
            ("__rust_try", "", Role::Runtime),
            ("core::option::Option<T>::map_or", "/rustc/1/library/core/src/option.rs", Role::Helper),
            ("push<u8>", "/rustc/1/library/alloc/src/vec/mod.rs", Role::Helper),
            ("app::main", "src/main.rs", Role::Program),
            ("main", "", Role::Program),
            ("app::floodmark_stacks::grow", "", Role::Program),
            ("app::grow", "/home/me/crates/stacks/src/lib.rs", Role::Program),
        ] {
            assert_eq!(Role::of(&function(name, file)), role, "{name}");
        }
    }

    #[test]
    fn what_the_recorder_calls_is_left_out_with_it() {
        let option = function("core::option::Option<T>::map_or", "");
        let recorder = function("floodmark_resource::adaptor::logging::Logging<R>::stack", "");
        let own = function("app::grow", "src/main.rs");
        let known = |found: &[&Function]| match names_of(found.iter().map(|one| (*one).clone()).collect()) {
            FrameNames::Known(names) => names.into_iter().map(|name| name.function).collect(),
            other => vec![format!("{other:?}")],
        };
        assert_eq!(known(&[&option, &recorder, &own]), ["app::grow"]);
        assert_eq!(known(&[&recorder, &option, &own]), [&*option.name, "app::grow"]);
        assert_eq!(known(&[&option, &recorder]), ["Recorder"]);
        assert_eq!(known(&[&function("std::rt::lang_start", "")]), [""; 0]);
        assert_eq!(known(&[]), ["Unknown"]);
    }

    #[test]
    fn names_come_only_from_the_file_that_was_loaded() {
        let names = ModuleNames::new();
        let own = std::env::current_exe().expect("has a path");
        let (own, address) = (own.to_str().expect("plain"), 0);
        let own_id = build_id(Path::new(own));
        let why = |path: &str, host: &str, start_ns: i64, build_id: Option<&str>| {
            let process = Process { host: host.into(), start_ns, ..Process::default() };
            match names.names(&RecordedModule { process: &process, path, build_id }, address) {
                FrameNames::Unavailable(why) => Some(why),
                _ => None,
            }
        };
        let here = names.host.as_str();
        // The build id decides if there is one, wherever and whenever it was recorded.
        assert!(own_id.is_some(), "the linker writes build ids");
        assert_eq!(why(own, "elsewhere", 0, own_id.as_deref()), None);
        let changed = Some("the file has changed since the recording".to_owned());
        assert_eq!(why(own, here, i64::MAX, Some("0123")), changed);
        let other = Some("the file here is not the one of elsewhere, where it was recorded".to_owned());
        assert_eq!(why(own, "elsewhere", i64::MAX, Some("0123")), other);
        // Without one it is the time and the host.
        assert_eq!(why(own, here, i64::MAX, None), None);
        assert!(why(own, here, 0, None).is_some_and(|why| why.contains("has changed")));
        assert_eq!(why(own, "elsewhere", i64::MAX, None).as_deref(), Some("it was recorded on elsewhere"));
        for path in ["/dev/zero", "/no/such/file", "relative", "/"] {
            assert_eq!(why(path, here, i64::MAX, Some("0123")).as_deref(), Some("the file is gone"));
        }
        assert_eq!(why("[vdso]", here, i64::MAX, None), None);
    }
}
