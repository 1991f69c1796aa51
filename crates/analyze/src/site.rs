//! Finds the site of a block: the innermost frame that is the user's own code.
//!
//! Frames are passed over in two steps. Those of allocators and language runtimes are never a site;
//! those of installed packages are one only if the whole stack is inside such packages. If nothing is
//! left, the innermost frame is the site. A block without a stack goes by its name.
//!
//! The lists below say which frames those are. Anyone can add to them with [`SiteRules::skip`].

use floodmark_event::tables::Frame;
use floodmark_event::{StackId, StringId, Tables};

/// What stands for the site of a block that has neither stack nor name.
pub const NO_SITE: &str = "(no stack)";

/// What stands for the module of a block whose frames name none.
pub const NO_MODULE: &str = "(no module)";

/// Libraries that hand requests on and never ask for memory of their own accord: the CUDA runtime and
/// driver, tools beside them, the C and C++ runtimes, allocators.
const HANDING_ON: [&str; 20] = [
    "[vdso]",
    "cudart64",
    "ld-linux",
    "libc-",
    "libc.so",
    "libcuda.so",
    "libcudart",
    "libcupti",
    "libdl",
    "libfloodmark",
    "libgcc_s",
    "libjemalloc",
    "libmimalloc",
    "libnvToolsExt",
    "libpthread",
    "librmm",
    "libstdc++",
    "libtcmalloc",
    "nvcuda",
    "ucrtbase",
];

/// Libraries that allocate for others: file names of modules begin so.
const MODULES: [&str; 31] = [
    "[vdso]",
    "ld-linux",
    "libc-",
    "libc.so",
    "libc10",
    "libcuda.so",
    "libcudart",
    "libcupti",
    "libdl",
    "libfloodmark",
    "libgcc_s",
    "libjemalloc",
    "libm.so",
    "libmimalloc",
    "libnvToolsExt",
    "libpthread",
    "libpython",
    "librmm",
    "librt",
    "libstdc++",
    "libtcmalloc",
    "libtorch",
    "python2",
    "python3",
    "python.exe",
    "nvcuda",
    "cudart64",
    "ntdll",
    "ucrtbase",
    "vcruntime",
    "kernel32",
];

/// Functions that allocate for others, by their whole name.
const FUNCTIONS: [&str; 14] = [
    "__clone",
    "_start",
    "aligned_alloc",
    "calloc",
    "clone3",
    "malloc",
    "memalign",
    "mmap",
    "mmap64",
    "posix_memalign",
    "realloc",
    "reallocarray",
    "start_thread",
    "valloc",
];

/// Namespaces and families of functions that allocate for others: functions begin so.
const FUNCTION_PREFIXES: [&str; 39] = [
    "__GI_",
    "__gnu_cxx::",
    "__libc_",
    "__rdl_",
    "__rust_",
    "_Py",
    "Py_",
    "THP",
    "PyEval_",
    "PyObject_",
    "alloc::alloc::",
    "alloc::boxed::",
    "alloc::collections::",
    "alloc::raw_vec::",
    "alloc::string::",
    "alloc::vec::",
    "at::",
    "c10::",
    "core::iter::",
    "core::ops::",
    "core::ptr::",
    "cub::",
    "cuArray",
    "cuMem",
    "cuda::",
    "cudaHostAlloc",
    "cudaMalloc",
    "cudaMemPool",
    "cudart::",
    "floodmark::",
    "floodmark_",
    "hashbrown::",
    "operator new",
    "pthread_",
    "rmm::",
    "std::",
    "thrust::",
    "torch::",
    "vectorcall_",
];

/// Functions that record stacks or allocate, with which a stack begins that has nothing else: what called
/// them says more.
const RECORDERS: [&str; 4] =
    ["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::(anonymous namespace)::gather", "c10::"];

/// Parts of paths of source files that belong to allocators and language runtimes.
const FILES: [&str; 11] = [
    ".cudafe1.cpp",
    "<frozen ",
    "/rmm/",
    "rmm/_lib/",
    "/floodmark/",
    "/include/c++/",
    "/include/thrust/",
    "/include/rmm/",
    "/rustc/",
    "cupy/cuda/memory",
    "numba/cuda/cudadrv/",
];

/// Parts of paths of source files that belong to installed packages and standard libraries.
const INSTALLED: [&str; 6] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "\\site-packages\\",
    "\\Lib\\",
    ".cargo/registry/",
];

/// Which frames cannot be sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRules {
    skipped: Vec<String>,
}

impl SiteRules {
    /// Passes over frames whose function or module begins with `prefix`, or whose file contains it.
    pub fn skip(&mut self, prefix: impl Into<String>) {
        self.skipped.push(prefix.into());
    }

    /// Returns the frame of `stack` that is its site; none without a stack.
    pub fn frame_of(&self, stack: StackId, tables: &Tables) -> Option<Frame> {
        let own = |frame: &Frame| !self.is_runtime(frame, tables);
        let mut frames = tables.frames_of(stack).filter(own).peekable();
        let fallback = frames.peek().copied();
        frames
            .find(|frame| !is_installed(frame, tables))
            .or(fallback)
            .or_else(|| tables.frames_of(stack).find(|frame| !is_recorder(frame, tables)))
            .or_else(|| tables.frames_of(stack).next())
    }

    /// Returns the site of blocks with this stack and name as text.
    pub fn site(&self, stack: StackId, name: StringId, tables: &Tables) -> String {
        if let Some(frame) = self.frame_of(stack, tables) {
            return tables.frame_text(&frame);
        }
        match tables.string(name) {
            "" => NO_SITE.to_owned(),
            name => name.to_owned(),
        }
    }

    /// Returns the library that asked for blocks with this stack: that of the innermost frame which does
    /// not merely hand requests on.
    pub fn module(&self, stack: StackId, tables: &Tables) -> String {
        let mut names = tables
            .frames_of(stack)
            .map(|frame| file_name(tables.string(frame.module)))
            .filter(|name| !name.is_empty())
            .peekable();
        let innermost = names.peek().copied();
        let handing_on = |name: &str| {
            let skipped = |prefix: &String| name.starts_with(prefix.as_str());
            HANDING_ON.iter().any(|prefix| name.starts_with(prefix)) || self.skipped.iter().any(skipped)
        };
        names.find(|name| !handing_on(name)).or(innermost).unwrap_or(NO_MODULE).to_owned()
    }

    pub(crate) fn is_runtime(&self, frame: &Frame, tables: &Tables) -> bool {
        let function = without_return_type(tables.string(frame.function));
        let file = tables.string(frame.file);
        let module = tables.string(frame.module);
        let module = file_name(module);
        let skipped = |prefix: &String| {
            function.starts_with(prefix) || module.starts_with(prefix) || file.contains(prefix.as_str())
        };
        let own_name = without_types(function);
        FUNCTIONS.contains(&function)
            || is_python_api(function)
            || FUNCTION_PREFIXES
                .iter()
                .any(|prefix| function.starts_with(prefix) || own_name.starts_with(prefix))
            || MODULES.iter().any(|prefix| module.starts_with(prefix))
            || FILES.iter().any(|part| file.contains(part))
            || self.skipped.iter().any(skipped)
    }
}

/// A path without its directories.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn is_installed(frame: &Frame, tables: &Tables) -> bool {
    let file = tables.string(frame.file);
    INSTALLED.iter().any(|part| file.contains(part))
}

fn is_recorder(frame: &Frame, tables: &Tables) -> bool {
    let function = tables.string(frame.function);
    RECORDERS.iter().any(|prefix| function.starts_with(prefix))
}

/// Functions of the interpreter: `PyObject_Call`, `PyCMethod_New`.
fn is_python_api(function: &str) -> bool {
    let Some((family, name)) = function.strip_prefix("Py").and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    let is_capital = |text: &str| text.starts_with(|c: char| c.is_ascii_uppercase());
    is_capital(family) && is_capital(name) && family.chars().all(char::is_alphanumeric)
}

/// The name in `bool at::cuda::blas::gemm<float>(long)`: what comes before arguments, without the type.
fn without_types(function: &str) -> &str {
    let head = function.split(['(', '<']).next().unwrap_or(function);
    head.rsplit(' ').next().unwrap_or(head)
}

/// Drops what demangled names put before the function: `void thrust::fill<…>(…)`, `<std::…`.
fn without_return_type(function: &str) -> &str {
    ["void* ", "void ", "auto ", "<"]
        .iter()
        .fold(function, |name, prefix| name.strip_prefix(prefix).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interns a stack of (function, file, module), innermost first.
    fn stack(tables: &mut Tables, frames: &[(&str, &str, &str)]) -> StackId {
        frames.iter().rev().fold(StackId(0), |parent, (function, file, module)| {
            let frame = Frame {
                function: tables.intern(function),
                file: tables.intern(file),
                module: tables.intern(module),
                line: 7,
                address: 0,
            };
            let frame = tables.intern_frame(frame);
            tables.intern_stack(parent, frame)
        })
    }

    #[test]
    fn frames_of_allocators_and_runtimes_are_passed_over() {
        let mut tables = Tables::default();
        let native = stack(
            &mut tables,
            &[
                ("cudaMalloc", "", "/opt/lib/libcudart.so.12"),
                ("rmm::mr::cuda_memory_resource::do_allocate", "", "/opt/lib/librmm.so"),
                ("void thrust::fill<int>()", "", "/opt/app"),
                ("step", "train.cpp", "/opt/app"),
                ("main", "train.cpp", "/opt/app"),
            ],
        );
        assert_eq!(SiteRules::default().site(native, StringId(0), &tables), "step (train.cpp:7)");
    }

    #[test]
    fn the_module_is_the_library_that_asked() {
        let mut tables = Tables::default();
        let cuda = ("cudaMalloc", "", "/opt/lib/libcudart.so.12");
        let mpi =
            stack(&mut tables, &[cuda, ("MPI_Init", "", "/opt/lib/libmpi.so.40"), ("main", "", "/opt/app")]);
        let own = stack(&mut tables, &[cuda, ("step", "", "/opt/app")]);
        let nobody = stack(&mut tables, &[cuda]);
        let script = stack(&mut tables, &[("load", "app.py", "")]);
        let rules = SiteRules::default();
        let modules = [mpi, own, nobody, script, StackId(0)].map(|stack| rules.module(stack, &tables));
        assert_eq!(modules, ["libmpi.so.40", "app", "libcudart.so.12", NO_MODULE, NO_MODULE]);
    }

    #[test]
    fn frames_of_pytorch_and_of_the_interpreter_are_passed_over() {
        let mut tables = Tables::default();
        let noise = [
            ("torch::unwind::unwind()", "", ""),
            ("c10::cuda::CUDACachingAllocator::Native::malloc()", "", ""),
            ("bool at::cuda::blas::gemm_and_bias<float>(bool)", "", ""),
            ("_object* torch::autograd::call<&f>(_object*)", "python_variable_methods.cpp", ""),
            ("void dispatch_cutlassB<float>()", "tmpxft_1_attention.cudafe1.cpp", ""),
            ("THPVariable_clear(THPVariable*)", "python_variable.cpp", ""),
            ("PyCMethod_New", "", ""),
            ("forward", "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", ""),
        ];
        let script =
            stack(&mut tables, &[&noise[..], &[("step", "train.py", ""), ("__clone", "", "")]].concat());
        let backward = stack(&mut tables, &[&noise[..6], &[("__clone", "", "")]].concat());
        let rules = SiteRules::default();
        assert_eq!(rules.site(script, StringId(0), &tables), "step (train.py:7)");
        assert!(rules.site(backward, StringId(0), &tables).starts_with("bool at::cuda::blas::gemm_and_bias"));
        assert!(!is_python_api("PyTables") && !is_python_api("Pyramid_Build") && !is_python_api("Py"));
    }

    #[test]
    fn installed_packages_are_a_site_only_if_there_is_nothing_else() {
        let mut tables = Tables::default();
        let package = ("read_csv", "/env/lib/python3.12/site-packages/cudf/io/csv.py", "");
        let script = stack(&mut tables, &[("malloc", "", "libc.so.6"), package, ("load", "app.py", "")]);
        let nothing_else = stack(&mut tables, &[("malloc", "", "libc.so.6"), package]);
        let runtime = stack(&mut tables, &[("malloc", "", "libc.so.6"), ("_start", "", "ld-linux.so")]);
        let rules = SiteRules::default();
        assert_eq!(rules.site(script, StringId(0), &tables), "load (app.py:7)");
        assert!(rules.site(nothing_else, StringId(0), &tables).starts_with("read_csv"));
        assert_eq!(rules.site(runtime, StringId(0), &tables), "malloc [libc.so.6]");
    }

    #[test]
    fn functions_of_the_user_that_only_sound_like_an_allocator_are_sites() {
        let mut tables = Tables::default();
        for function in ["malloc_workspace", "core::Engine::load", "reallocate", "stdlib_init"] {
            let own =
                stack(&mut tables, &[("malloc", "", ""), (function, "app.cpp", ""), ("main", "app.cpp", "")]);
            assert!(SiteRules::default().site(own, StringId(0), &tables).starts_with(function));
        }
    }

    #[test]
    fn rules_can_be_extended_and_blocks_without_stacks_go_by_name() {
        let mut tables = Tables::default();
        let stacked = stack(&mut tables, &[("mylib::alloc", "m.cpp", ""), ("work", "w.cpp", "")]);
        let name = tables.intern("weights");
        let mut rules = SiteRules::default();
        assert_eq!(rules.site(stacked, name, &tables), "mylib::alloc (m.cpp:7)");
        rules.skip("mylib::");
        assert_eq!(rules.site(stacked, name, &tables), "work (w.cpp:7)");
        assert_eq!(rules.site(StackId(0), name, &tables), "weights");
        assert_eq!(rules.site(StackId(0), StringId(0), &tables), NO_SITE);
    }
}
