//! Names by which frames of profilers, drivers, runtimes, allocators and libraries are recognized.
//!
//! Modules go by the beginning of their file name, functions by the beginning of their qualified name,
//! paths by a part of them.

/// Modules that pass requests for memory on and never ask for any on their own behalf.
pub(super) const RUNTIME_MODULES: [&str; 48] = [
    // Profilers and other tools that are loaded into the program.
    "_memray",
    "libaccinj",
    "libasan",
    "libbytehound",
    "libcuinj",
    "libcupti",
    "libfloodmark",
    "libheaptrack",
    "libnvToolsExt",
    "libnvperf",
    "libnvtx",
    "libToolsInjection",
    // The CUDA driver and runtime.
    "cudart64",
    "libcuda.so",
    "libcudart",
    "libnvidia-",
    "nvcuda",
    // The C and C++ runtimes.
    "[vdso]",
    "kernel32",
    "ld-linux",
    "ld-musl",
    "libc++",
    "libc-",
    "libc.so",
    "libdl",
    "libgcc_s",
    "libm.so",
    "libpthread",
    "librt.so",
    "librt-",
    "libstdc++",
    "ntdll",
    "ucrtbase",
    "vcruntime",
    // Interpreters.
    "libpython",
    "pypy3",
    "python.exe",
    "python2",
    "python3",
    // Allocators.
    "libc10",
    "libhoard",
    "libjemalloc",
    "libmimalloc",
    "librmm",
    "libsnmalloc",
    "libtbbmalloc",
    "libtcmalloc",
    "libumem",
];

/// Parts of the paths of modules that pass requests on, whatever their file is called.
pub(super) const RUNTIME_PATHS: [&str; 8] = [
    "/nsight-compute/",
    "/nsight-systems",
    "/rmm/pylibrmm/",
    "cupy/cuda/memory",
    "cupy_backends/cuda/",
    "numba/cuda/cudadrv/",
    "rmm/_cuda/",
    "rmm/_lib/",
];

/// Modules of well-known libraries, wherever they are installed.
pub(super) const LIBRARY_MODULES: [&str; 50] = [
    "libaten",
    "libarrow",
    "libblas",
    "libboost_",
    "libcaffe2",
    "libcrypto",
    "libcublas",
    "libcudf",
    "libcudnn",
    "libcufft",
    "libcugraph",
    "libcuml",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libcuvs",
    "libfabric",
    "libgomp",
    "libgrpc",
    "libhdf5",
    "libhwloc",
    "libiomp",
    "libkvikio",
    "liblapack",
    "libmkl",
    "libmpi",
    "libnccl",
    "libnetcdf",
    "libnpp",
    "libnuma",
    "libnvJitLink",
    "libnvinfer",
    "libnvrtc",
    "libnvshmem",
    "libomp",
    "libonnxruntime",
    "libopen-",
    "libopenblas",
    "libpetsc",
    "libpmix",
    "libraft",
    "libssl",
    "libtbb.",
    "libtensorflow",
    "libtorch",
    "libuc",
    "libz.",
    "libzstd",
    "xla_extension",
];

/// Parts of the paths of modules that are installed rather than built by the user.
pub(super) const LIBRARY_PATHS: [&str; 13] = [
    "/anaconda",
    "/dist-packages/",
    "/lib/python3",
    "/lib/x86_64-linux-gnu/",
    "/lib/aarch64-linux-gnu/",
    "/lib64/",
    "/miniconda",
    "/miniforge",
    "/opt/nvidia/",
    "/site-packages/",
    "/spack/opt/",
    "/usr/lib/",
    "/usr/local/cuda",
];

/// Functions of runtimes and allocators, by their whole name.
pub(super) const RUNTIME_FUNCTIONS: [&str; 20] = [
    "__clone",
    "__libc_start_call_main",
    "__libc_start_main",
    "_start",
    "aligned_alloc",
    "calloc",
    "clone",
    "clone3",
    "cuInit",
    "malloc",
    "memalign",
    "mmap",
    "mmap64",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "start_thread",
    "thread_start",
    "valloc",
];

/// Functions of profilers, the driver, runtimes and allocators.
pub(super) const RUNTIME_PREFIXES: [&str; 34] = [
    "_Py",
    "__GI_",
    "__libc_",
    "__rdl_",
    "__rust_",
    "Py_",
    "alloc::alloc::",
    "c10::",
    "cuArray",
    "cuCtx",
    "cuDevicePrimaryCtx",
    "cuMem",
    "cudaDeviceReset",
    "cudaFree",
    "cudaHostAlloc",
    "cudaMalloc",
    "cudaMemPool",
    "cudart::",
    "cupti",
    "floodmark::",
    "floodmark_",
    // What has no symbol in the CUDA runtime that a program has in it is named after the next one that has.
    "libcudart_static_",
    "operator delete",
    "operator new",
    "pthread_",
    "rmm::",
    "rust_begin_unwind",
    "std::panic",
    "std::rt::",
    "std::sys::",
    "std::thread::",
    "torch::CapturedTraceback::",
    "torch::cuda::(anonymous namespace)::gather",
    "torch::unwind::",
];

/// Functions of the C library that make a buffer which it keeps, on behalf of a program that asked for something else.
pub(super) const RUNTIME_BUFFERS: [&str; 7] = [
    "_IO_file_doallocate",
    "_IO_wfile_doallocate",
    "__cxa_thread_atexit_impl",
    "_nl_load_locale",
    "__tls_get_addr",
    "__tzfile_read",
    "_dl_allocate_tls",
];

/// Ends of the names of functions that allocate for others, in small letters.
pub(super) const ALLOCATION_WRAPPERS: [&str; 7] =
    ["malloc", "calloc", "realloc", "memalign", "memdup", "strdup", "strndup"];

/// What such a name may end with beside, in the order in which it is taken off.
pub(super) const WRAPPER_VARIANTS: [&str; 6] = ["nn", "orfree", "raw", "zero", "array", "atomic"];

/// Functions that serve whatever the code around them does: containers, templates that are compiled into
/// the program, and the dispatch of calls inside PyTorch.
pub(super) const PLUMBING_PREFIXES: [&str; 37] = [
    "THP",
    "__gnu_cxx::",
    "alloc::",
    "at::(anonymous namespace)::",
    "at::TensorBase::",
    "at::TensorIterator",
    "at::_ops::",
    "at::cuda::getCUDADeviceAllocator",
    "at::detail::",
    "at::empty",
    "at::meta::",
    "at::native::(anonymous namespace)::resize",
    "at::native::empty",
    "at::native::new_empty",
    "at::native::resize_",
    "at::redispatch::",
    "core::iter::",
    "core::ops::",
    "core::ptr::",
    "core::result::",
    "core::option::",
    "cub::",
    "cuda::",
    "hashbrown::",
    "pybind11::",
    "nanobind::",
    "std::",
    "thrust::",
    "torch::ADInplaceOrView::",
    "torch::autograd::Engine::",
    "torch::autograd::Node::operator",
    "torch::autograd::THPVariable_",
    "torch::autograd::VariableType::",
    "torch::autograd::call",
    "torch::autograd::python::",
    "torch::jit::invokeOperator",
    "vectorcall_",
];

/// Functions of libraries: namespaces, and families that go on with a capital letter.
pub(super) const LIBRARY_NAMESPACES: [&str; 13] = [
    "MPI_",
    "PMPI_",
    "at::",
    "caffe2::",
    "cudf::",
    "cutlass::",
    "cv::",
    "nvte_",
    "ompi_",
    "raft::",
    "torch::",
    "ucp_",
    "xla::",
];

/// Beginnings of the functions of C libraries, if a capital letter follows: `cublasCreate_v2`.
pub(super) const LIBRARY_FAMILIES: [&str; 11] = [
    "cublas", "cublasLt", "cudnn", "cufft", "curand", "cusolver", "cusparse", "cutensor", "nccl", "nvrtc",
    "nvshmem",
];

/// Parts of the paths of source files that belong to allocators and language runtimes.
pub(super) const RUNTIME_FILES: [&str; 10] = [
    "<frozen ",
    "-packages/floodmark/",
    "/include/c++/",
    "/include/rmm/",
    "/include/thrust/",
    "/rmm/",
    "/rustc/",
    "cupy/cuda/memory",
    "numba/cuda/cudadrv/",
    "rmm/_lib/",
];

/// Part of the path of Python's standard library.
pub(super) const PYTHON_LIBRARY: &str = "/lib/python3";

/// Parts of the paths of its files that call the functions that were given to them: threads, pools, event
/// loops, programs that are run as modules.
pub(super) const PYTHON_CALLERS: [&str; 8] = [
    "/asyncio/base_events.py",
    "/asyncio/events.py",
    "/asyncio/runners.py",
    "/concurrent/futures/",
    "/contextlib.py",
    "/multiprocessing/",
    "/runpy.py",
    "/threading.py",
];

/// Parts of the paths of source files that belong to installed packages and standard libraries, or that
/// were generated.
pub(super) const PACKAGE_FILES: [&str; 7] = [
    ".cargo/registry/",
    "/dist-packages/",
    "/lib/python3",
    "/site-packages/",
    "/torchinductor_",
    "\\Lib\\",
    "\\site-packages\\",
];

/// Ends of source files that nvcc generates for the host side of device code.
pub(super) const GENERATED_FILES: &str = ".cudafe1.cpp";

/// What tools write in place of a function that they could not name.
pub(super) const NO_NAMES: [&str; 7] =
    ["??", "<unknown>", "(unknown function)", "[Broken backtraces]", "[Max depth]", "[Unknown]", "[unknown]"];
