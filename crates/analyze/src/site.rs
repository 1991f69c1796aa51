//! Finds the site of a block: the frame that names the code which asked for the memory.
//!
//! Every frame has a class. Code of the user comes first, then the source of installed packages, then
//! functions of native libraries, then helpers inside them. Profilers, the driver, runtimes, interpreters
//! and allocators pass requests on; such a frame is the site only of a stack that has no other. A frame
//! without a name is the site only if all named ones pass requests on. Of the best class the innermost
//! frame is the site. A block without a stack goes by its name.
//!
//! The lists of names are in `lists`; [`SiteRules::skip`] adds to them.

mod lists;
mod name;

use floodmark_event::tables::Frame;
use floodmark_event::{StackId, StringId, Tables};
use lists::{
    ALLOCATION_WRAPPERS, GENERATED_FILES, LIBRARY_FAMILIES, LIBRARY_MODULES, LIBRARY_NAMESPACES,
    LIBRARY_PATHS, NO_NAMES, PACKAGE_FILES, PLUMBING_PREFIXES, PYTHON_CALLERS, PYTHON_LIBRARY,
    RUNTIME_BUFFERS, RUNTIME_FILES, RUNTIME_FUNCTIONS, RUNTIME_MODULES, RUNTIME_PATHS, RUNTIME_PREFIXES,
    WRAPPER_VARIANTS,
};
pub use name::qualified_name;

/// Stands for the site of a block that has neither stack nor name.
pub const NO_SITE: &str = "(no stack)";

/// Stands for the module of a block whose frames name none.
pub const NO_MODULE: &str = "(no module)";

/// Whose code a frame is, from the best site to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrameClass {
    /// Code of the user.
    User,
    /// Source of an installed package.
    Package,
    /// A function of a native library.
    Library,
    /// A helper that serves the code around it: containers, templates, dispatch.
    Plumbing,
    /// An address in a module of the user.
    UnnamedUser,
    /// An address in a native library.
    UnnamedLibrary,
    /// A profiler, the driver, a runtime, an interpreter or an allocator.
    Runtime,
    /// An address in one of those.
    UnnamedRuntime,
}

/// Decides which frames can be sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRules {
    skipped: Vec<String>,
}

impl SiteRules {
    /// Skips frames whose function or module begins with `prefix`, or whose file contains it.
    pub fn skip(&mut self, prefix: impl Into<String>) {
        self.skipped.push(prefix.into());
    }

    /// Returns the frame of `stack` that is its site; none without a stack.
    pub fn frame_of(&self, stack: StackId, tables: &Tables) -> Option<Frame> {
        let mut best: Option<(FrameClass, Frame)> = None;
        let mut inner = None;
        for frame in tables.frames_of(stack) {
            let class = if is_rust_entry(&frame, inner.replace(frame).as_ref(), tables) {
                FrameClass::Runtime
            } else {
                self.class(&frame, tables)
            };
            if best.as_ref().is_none_or(|(known, _)| class < *known) {
                best = Some((class, frame));
            }
            if class == FrameClass::User {
                break;
            }
        }
        best.map(|(_, frame)| frame)
    }

    /// Returns whether a stack has a frame of the user's own code.
    pub fn has_user_code(&self, stack: StackId, tables: &Tables) -> bool {
        tables.frames_of(stack).any(|frame| self.class(&frame, tables) == FrameClass::User)
    }

    /// Returns whether a runtime allocated a block for itself: no code of the program is on its stack, or the C library
    /// made a buffer that it keeps for what the program asked of it, such as that of a stream.
    pub fn is_kept_by_runtime(&self, stack: StackId, tables: &Tables) -> bool {
        let mut frames = tables.frames_of(stack).peekable();
        let has_frames = frames.peek().is_some();
        let mut is_buffer = false;
        let mut inner = None;
        let is_runtime = frames.all(|frame| {
            let function = tables.string(frame.function);
            is_buffer |=
                RUNTIME_BUFFERS.contains(&function) && is_runtime_module(tables.string(frame.module));
            let is_entry = is_rust_entry(&frame, inner.replace(frame).as_ref(), tables);
            let is_library = is_rust_library(&frame, tables);
            !is_buffer && (is_entry || is_library || self.class(&frame, tables) >= FrameClass::Runtime)
        });
        has_frames && (is_runtime || is_buffer)
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

    /// Returns the library that asked for blocks with this stack: the module of the innermost frame that
    /// does not merely pass requests on.
    pub fn module(&self, stack: StackId, tables: &Tables) -> String {
        let mut modules = tables
            .frames_of(stack)
            .map(|frame| tables.string(frame.module))
            .filter(|module| !module.is_empty())
            .peekable();
        let innermost = modules.peek().copied();
        let asks = |path: &&str| {
            let is_interpreter = INTERPRETERS.iter().any(|prefix| file_name(path).starts_with(prefix));
            let is_skipped = self.skipped.iter().any(|prefix| file_name(path).starts_with(prefix.as_str()));
            is_interpreter || !(is_runtime_module(path) || is_skipped)
        };
        modules.find(asks).or(innermost).map_or(NO_MODULE, file_name).to_owned()
    }

    /// Returns whose code a frame is.
    pub(crate) fn class(&self, frame: &Frame, tables: &Tables) -> FrameClass {
        let (signature, file) = (tables.string(frame.function), tables.string(frame.file));
        let module = tables.string(frame.module);
        let is_skipped = |prefix: &String| {
            signature.starts_with(prefix)
                || file_name(module).starts_with(prefix)
                || file.contains(prefix.as_str())
        };
        let class = if self.skipped.iter().any(is_skipped) {
            FrameClass::Runtime
        } else if is_python_source(file) {
            python_class(signature, file)
        } else {
            native_class(signature, file, module)
        };
        match class {
            FrameClass::Runtime if is_unnamed(signature) => FrameClass::UnnamedRuntime,
            FrameClass::User if is_unnamed(signature) => FrameClass::UnnamedUser,
            class if class < FrameClass::Runtime && is_unnamed(signature) => FrameClass::UnnamedLibrary,
            class => class,
        }
    }
}

/// Whether a frame is of Rust's standard library.
fn is_rust_library(frame: &Frame, tables: &Tables) -> bool {
    let file = tables.string(frame.file);
    file.contains("/rustc/") && file.contains("/library/")
}

/// Whether a frame is the function `main` that the compiler of Rust adds to a program, before its own begins: it has no
/// source, and what it calls is of the standard library.
fn is_rust_entry(frame: &Frame, inner: Option<&Frame>, tables: &Tables) -> bool {
    tables.string(frame.function) == "main"
        && frame.file.0 == 0
        && inner.is_some_and(|inner| is_rust_library(inner, tables))
}

/// Interpreters run the code of others and ask for memory of their own too.
const INTERPRETERS: [&str; 3] = ["libpython", "python2", "python3"];

/// The class of a source file by its path; none if that says nothing.
fn source_class(file: &str) -> Option<FrameClass> {
    let contains = |parts: &[&str]| parts.iter().any(|part| file.contains(part));
    if contains(&RUNTIME_FILES) {
        Some(FrameClass::Runtime)
    } else if contains(&PACKAGE_FILES) {
        Some(FrameClass::Package)
    } else {
        None
    }
}

/// The class of a frame of Python code. Names of native functions mean nothing there, but for those of
/// allocators, after which wrappers are named.
fn python_class(function: &str, file: &str) -> FrameClass {
    if function.contains("alloc") && RUNTIME_FUNCTIONS.contains(&function) {
        return FrameClass::Runtime;
    }
    if file.contains(PYTHON_LIBRARY) && PYTHON_CALLERS.iter().any(|part| file.contains(part)) {
        return FrameClass::Runtime;
    }
    source_class(file).unwrap_or(FrameClass::User)
}

/// The class of a frame of compiled code.
fn native_class(signature: &str, file: &str, module: &str) -> FrameClass {
    let is_own_adaptor = signature.contains(" as floodmark_");
    let name = qualified_name(signature).trim_start_matches(['<', '&', '*']);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if is_runtime_module(module)
        || is_own_adaptor
        || RUNTIME_FUNCTIONS.contains(&name)
        || starts(&RUNTIME_PREFIXES)
        || is_python_api(name)
        || is_cython_allocator(name)
    {
        return FrameClass::Runtime;
    }
    if starts(&PLUMBING_PREFIXES) || is_allocation_wrapper(name) {
        return FrameClass::Plumbing;
    }
    let by_source = source_class(file);
    if by_source == Some(FrameClass::Runtime) {
        return FrameClass::Runtime;
    }
    if starts(&LIBRARY_NAMESPACES)
        || is_of_family(name)
        || file.ends_with(GENERATED_FILES)
        || is_library_module(module)
    {
        return FrameClass::Library;
    }
    by_source.unwrap_or(FrameClass::User)
}

/// A path without its directories.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn is_runtime_module(path: &str) -> bool {
    RUNTIME_MODULES.iter().any(|prefix| file_name(path).starts_with(prefix))
        || RUNTIME_PATHS.iter().any(|part| path.contains(part))
}

fn is_library_module(path: &str) -> bool {
    LIBRARY_MODULES.iter().any(|prefix| file_name(path).starts_with(prefix))
        || LIBRARY_PATHS.iter().any(|part| path.contains(part))
}

/// Whether a file is the source of a Python function: `app.py`, `<stdin>`.
fn is_python_source(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with('<')
}

/// Whether a frame has no name but what a tool writes in its place: nothing, `??`, an address.
fn is_unnamed(function: &str) -> bool {
    let is_address = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    function.is_empty() || NO_NAMES.contains(&function) || function.strip_prefix("0x").is_some_and(is_address)
}

/// Functions that are named after the allocator that they call for others: `xmalloc`, `sqlite3Malloc`, `g_malloc0`.
fn is_allocation_wrapper(function: &str) -> bool {
    let function = function.split('(').next().unwrap_or(function);
    let name = function.rsplit("::").next().unwrap_or(function).to_ascii_lowercase();
    let is_variant = |c: char| c.is_ascii_digit() || c == '_';
    let mut name = name.trim_end_matches(is_variant);
    for variant in WRAPPER_VARIANTS {
        name = name.strip_suffix(variant).unwrap_or(name).trim_end_matches(is_variant);
    }
    ALLOCATION_WRAPPERS.iter().any(|end| name.ends_with(end))
}

/// Functions of the interpreter: `PyObject_Call`, `PyCMethod_New`.
fn is_python_api(function: &str) -> bool {
    let Some((family, name)) = function.strip_prefix("Py").and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    let is_capital = |text: &str| text.starts_with(|c: char| c.is_ascii_uppercase());
    is_capital(family) && is_capital(name) && family.chars().all(char::is_alphanumeric)
}

/// Functions of `CuPy` and RMM that Cython compiled: `__pyx_f_4cupy_4cuda_6memory_malloc`. A length comes
/// before every part of the name.
fn is_cython_allocator(function: &str) -> bool {
    let Some(name) = function.strip_prefix("__pyx_") else { return false };
    ["4cupy_4cuda_6memory", "4cupy_4cuda_13pinned_memory", "13cupy_backends_4cuda", "_3rmm_"]
        .iter()
        .any(|part| name.contains(part))
}

/// Functions of C libraries: `cublasCreate_v2`, `ncclCommInitRank`.
fn is_of_family(function: &str) -> bool {
    LIBRARY_FAMILIES.iter().any(|family| {
        let rest = function.strip_prefix(family);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    })
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
    fn a_wrapper_of_malloc_is_not_the_site_unless_there_is_nothing_else() {
        let (mut tables, rules) = (Tables::default(), SiteRules::default());
        for wrapper in [
            "xmalloc",
            "sqlite3Malloc",
            "g_malloc0",
            "my::Pool::Realloc",
            "zcalloc_",
            "xstrdup",
            "sqlite3DbMallocRawNN",
            "mallocator",
        ] {
            let is_wrapper = wrapper != "mallocator";
            let stack =
                stack(&mut tables, &[(wrapper, "", "/app"), ("parse", "", "/app"), ("main", "", "/app")]);
            let site = rules.site(stack, StringId(0), &tables);
            assert_eq!(site.starts_with("parse"), is_wrapper, "{wrapper}: {site}");
        }
        let alone = stack(&mut tables, &[("malloc", "", "/lib/libc.so.6"), ("xmalloc", "", "/app")]);
        assert!(rules.site(alone, StringId(0), &tables).starts_with("xmalloc"));
    }

    #[test]
    fn what_a_runtime_keeps_is_told_from_what_the_program_asked_for() {
        let (mut tables, rules) = (Tables::default(), SiteRules::default());
        let (libc, cpp, loader) =
            ("/lib/libc.so.6", "/usr/lib/libstdc++.so.6", "/lib64/ld-linux-x86-64.so.2");
        let mut kept = |frames: &[(&str, &str, &str)]| {
            let stack = stack(&mut tables, frames);
            rules.is_kept_by_runtime(stack, &tables)
        };
        assert!(kept(&[("", "", cpp), ("call_init", "", loader), ("_dl_start_user", "", loader)]));
        assert!(kept(&[("_IO_file_doallocate", "", libc), ("puts", "", libc), ("main", "", "/app")]));
        let rust = "/rustc/59807616/library/alloc/src/boxed.rs";
        assert!(kept(&[
            ("alloc::boxed::Box<T>::new", rust, "/app"),
            ("main", "", "/app"),
            ("_start", "", "/app")
        ]));
        assert!(!kept(&[
            ("alloc::boxed::Box<T>::new", rust, "/app"),
            ("app::main", "/src/main.rs", "/app"),
            ("main", "", "/app")
        ]));
        assert!(!kept(&[("strdup", "", libc), ("main", "", "/app")]));
        assert!(!kept(&[("", "", "/app"), ("__libc_start_main", "", libc)]));
        assert!(!kept(&[("_IO_file_doallocate", "", "/app"), ("main", "", "/app")]));
        assert!(!kept(&[]));
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
        // The CUDA runtime may be linked into the program, and has few names there.
        let linked = stack(
            &mut tables,
            &[
                ("cuMemAlloc_v2", "", "/usr/lib/libcuda.so.1"),
                ("libcudart_static_5382377d5c772c9d197c0cda9fd9742ee6ad893c", "", "/opt/app"),
                ("cudaMalloc", "", "/opt/app"),
                ("leak()", "small.cu", "/opt/app"),
            ],
        );
        assert_eq!(SiteRules::default().site(linked, StringId(0), &tables), "leak() (small.cu:7)");
    }

    #[test]
    fn the_module_is_the_library_that_asked() {
        let mut tables = Tables::default();
        let cuda = ("cudaMalloc", "", "/opt/lib/libcudart.so.12");
        let mpi =
            stack(&mut tables, &[cuda, ("MPI_Init", "", "/opt/lib/libmpi.so.40"), ("main", "", "/opt/app")]);
        let own = stack(&mut tables, &[cuda, ("step", "", "/opt/app")]);
        let runtime = stack(&mut tables, &[cuda]);
        let script = stack(&mut tables, &[("load", "app.py", "")]);
        let rules = SiteRules::default();
        let modules = [mpi, own, runtime, script, StackId(0)].map(|stack| rules.module(stack, &tables));
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
    fn threads_and_pools_of_python_call_the_code_of_the_user() {
        let mut tables = Tables::default();
        let thread = [
            ("Thread.run", "/opt/lib/python3.11/threading.py", ""),
            ("Thread._bootstrap", "/opt/lib/python3.11/threading.py", ""),
        ];
        let pool = ("_worker", "/opt/lib/python3.11/concurrent/futures/thread.py", "");
        let package = ("read_csv", "/opt/lib/python3.11/site-packages/pandas/io.py", "");
        let rules = SiteRules::default();
        let read = stack(&mut tables, &[&[package], &[pool][..], &thread].concat());
        assert!(rules.site(read, StringId(0), &tables).starts_with("read_csv"));
        let json = ("JSONDecoder.decode", "/opt/lib/python3.11/json/decoder.py", "");
        let parse = stack(&mut tables, &[&[json], &thread[..]].concat());
        assert!(rules.site(parse, StringId(0), &tables).starts_with("JSONDecoder.decode"));
        let nothing_else = stack(&mut tables, &thread);
        assert!(rules.site(nothing_else, StringId(0), &tables).starts_with("Thread.run"));
        let own = ("Thread.run", "/home/me/threading.py", "");
        assert_eq!(rules.class(&tables_frame(&mut tables, own), &tables), FrameClass::User);
        assert_eq!(rules.class(&tables_frame(&mut tables, thread[0]), &tables), FrameClass::Runtime);
    }

    fn tables_frame(tables: &mut Tables, (function, file, _): (&str, &str, &str)) -> Frame {
        Frame { function: tables.intern(function), file: tables.intern(file), ..Frame::default() }
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

    const CUPTI: &str = "/opt/nvidia/nsight-systems/2025.3/target-linux-x64/libcupti.so.13.0";
    const TORCH: &str = "/env/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
    const PYTHON: &str = "/usr/bin/python3.12";

    /// The frames with which every stack of Nsight Systems begins, and those of PyTorch's allocator.
    const CAPTURE: [(&str, &str, &str); 10] = [
        ("", "", CUPTI),
        ("", "", CUPTI),
        ("", "", "/opt/nvidia/nsight-systems/2025.3/target-linux-x64/libToolsInjection64.so"),
        ("", "", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1"),
        ("cudaMalloc", "", "/env/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"),
        (
            "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int)",
            "",
            "/x/libc10_cuda.so",
        ),
        ("at::detail::empty_generic(c10::ArrayRef<long>)", "", "/x/libtorch_cpu.so"),
        ("at::native::empty_cuda(c10::ArrayRef<long>)", "", TORCH),
        ("at::_ops::empty_memory_format::call(c10::ArrayRef<long>)", "", "/x/libtorch_cpu.so"),
        ("", "", TORCH),
    ];

    /// The frames with which a Python program begins.
    const INTERPRETER: [(&str, &str, &str); 4] = [
        ("_PyEval_EvalFrameDefault", "", PYTHON),
        ("Py_BytesMain", "", PYTHON),
        ("__libc_start_main", "", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("_start", "", PYTHON),
    ];

    fn site_of(frames: &[&[(&str, &str, &str)]]) -> String {
        let mut tables = Tables::default();
        let stack = stack(&mut tables, &frames.concat());
        SiteRules::default().site(stack, StringId(0), &tables)
    }

    #[test]
    fn a_library_function_is_the_site_where_the_user_has_no_frame() {
        let convolution = ("at::native::conv2d(at::Tensor const&)", "", TORCH);
        let binding = ("torch::autograd::THPVariable_conv2d(_object*)", "", "/x/libtorch_python.so");
        let torch = site_of(&[&CAPTURE, &[convolution, binding], &INTERPRETER]);
        assert!(torch.starts_with("at::native::conv2d("), "{torch}");
        let handle =
            ("cublasCreate_v2", "", "/env/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12");
        let cublas = site_of(&[&CAPTURE[..5], &[("", "", handle.2), handle, binding], &INTERPRETER]);
        assert!(cublas.starts_with("cublasCreate_v2 "), "{cublas}");
        let pool = "/env/lib/python3.12/site-packages/cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so";
        let cupy = [
            ("__pyx_f_4cupy_4cuda_6memory__malloc(long)", "", pool),
            (
                "__pyx_f_4cupy_5_core_4core_ndarray_init",
                "",
                "/env/lib/python3.12/site-packages/cupy/_core/core.so",
            ),
        ];
        let cupy = site_of(&[&CAPTURE[..5], &cupy, &INTERPRETER]);
        assert!(cupy.starts_with("__pyx_f_4cupy_5_core"), "{cupy}");
    }

    #[test]
    fn code_of_the_user_is_the_site_however_far_out_it_is() {
        let step = ("step", "/home/me/train.py", "");
        let script = site_of(&[&CAPTURE, &[("at::native::conv2d()", "", TORCH)], &INTERPRETER[..1], &[step]]);
        assert_eq!(script, "step (/home/me/train.py:7)");
        let app = ("std::vector<float, std::allocator<float> > solver::grow<float>(int)", "", "/home/me/app");
        let mpi = ("MPI_Init", "", "/opt/openmpi/lib/libmpi.so.40");
        assert!(site_of(&[&CAPTURE[..5], &[mpi, app]]).contains("solver::grow"));
        let adaptor = ("<&T as floodmark_resource::resource::Resource>::allocate", "", "/home/me/app");
        let logging = ("<floodmark_resource::adaptor::logging::Logging<R>>::record", "", "/home/me/app");
        let main = ("app::main", "", "/home/me/app");
        assert_eq!(
            site_of(&[&[logging, adaptor, ("core::ops::function::call", "", ""), main]]),
            "app::main [/home/me/app]"
        );
    }

    #[test]
    fn an_address_is_the_site_only_where_no_code_has_a_name() {
        let stripped = [("", "", "/home/me/app"), ("__libc_start_main", "", "/usr/lib/libc.so.6")];
        assert_eq!(site_of(&[&CAPTURE[..5], &stripped]), "0x0 [/home/me/app]");
        for unnamed in ["", "??", "0x7f613d71556e", "[Unknown]"] {
            let named = [(unnamed, "", "/home/me/app"), ("H5Dwrite", "", "/usr/lib/libhdf5.so")];
            assert_eq!(site_of(&[&CAPTURE[..4], &named]), "H5Dwrite [/usr/lib/libhdf5.so]");
        }
        assert!(site_of(&[&CAPTURE[..5], &INTERPRETER]).starts_with("cudaMalloc "));
    }
}
