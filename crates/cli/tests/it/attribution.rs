//! An export of Nsight Systems with deep stacks of PyTorch, of which it is known what every block is for.

use rusqlite::Connection;

use crate::cli_test::CliTest;

const EXPORT: &str = "train.sqlite";
const MIB: u64 = 1 << 20;
const PID: i64 = 281_796_478_500_864;

/// Frames without a name, with which every stack begins.
const CAPTURE: [&str; 4] =
    ["libcupti.so.13.0", "libcupti.so.13.0", "libToolsInjection64.so", "libcuda.so.580.1"];

/// What the blocks are for: MiB, and named frames with their modules, innermost first.
const BLOCKS: [(u64, &[(&str, &str)]); 3] = [
    (
        600,
        &[
            ("cudaMalloc", "libcudart.so.12"),
            ("c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)", "libc10_cuda.so"),
            ("at::detail::empty_generic(c10::ArrayRef<long>)", "libtorch_cpu.so"),
            ("at::native::convolution_overrideable(at::Tensor const&)", "libtorch_cuda.so"),
            ("torch::autograd::THPVariable_conv2d(_object*)", "libtorch_python.so"),
            ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"),
        ],
    ),
    (
        300,
        &[
            ("cudaMalloc", "libcudart.so.12"),
            ("cublasCreate_v2", "libcublas.so.12"),
            ("at::_ops::mm::call(at::Tensor const&)", "libtorch_cpu.so"),
            ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"),
        ],
    ),
    (
        100,
        &[
            ("cudaMalloc", "libcudart.so.12"),
            ("MPI_Init", "/opt/openmpi/lib/libmpi.so.40"),
            ("std::vector<float, std::allocator<float> > solver::grow<float>(int)", "/home/me/app"),
            ("main", "/home/me/app"),
        ],
    ),
];

fn export(test: &CliTest) {
    let connection = Connection::open(test.path(EXPORT)).unwrap();
    let sql = |text: &str| connection.execute_batch(text).unwrap();
    sql("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
           globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);
         CREATE TABLE CUDA_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER, unresolved INTEGER,
           originalIP INTEGER, stackDepth INTEGER, PRIMARY KEY (id, stackDepth));
         CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, globalPid INTEGER, deviceId INTEGER,
           contextId INTEGER, address INTEGER, pc INTEGER, bytes INTEGER, memKind INTEGER,
           memoryOperationType INTEGER, name TEXT, correlationId INTEGER);
         CREATE TABLE EXPORT_META_DATA (name TEXT NOT NULL, value TEXT);");
    let mut strings = 0;
    let mut string = |text: &str| {
        strings += 1;
        connection.execute("INSERT INTO StringIds VALUES (?1, ?2)", (strings, text)).unwrap();
        strings
    };
    let call = string("cudaMalloc_v3020");
    for (number, (mib, named)) in (1_i64..).zip(BLOCKS) {
        let time = number * 1000;
        let unnamed = CAPTURE.map(|module| (String::new(), module));
        let ends = [("__libc_start_main", "libc.so.6"), ("_start", "/usr/bin/python3.12")];
        let named = named.iter().chain(&ends).map(|(function, module)| ((*function).to_owned(), *module));
        for (depth, (function, module)) in (0_i64..).zip(unnamed.into_iter().chain(named)) {
            let address = 0x7f24_0000_0000 + number * 0x1000 + depth;
            let is_unnamed = function.is_empty();
            let symbol = string(&if is_unnamed { format!("{address:#x}") } else { function });
            let row = (number, symbol, string(module), is_unnamed.then_some(1), address, depth);
            connection.execute("INSERT INTO CUDA_CALLCHAINS VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row).unwrap();
        }
        // The call, and its stack.
        for (class, chain) in [(0, None), (67, Some(number))] {
            let row = (time - 5, time + 5, class, PID | 7, number, call, 0, chain);
            let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            connection.execute(sql, row).unwrap();
        }
        let row = (time, PID, number << 32, (mib * MIB) as i64, number);
        let sql = "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?1, ?2, 0, 1, ?3, 0, ?4, 2, 0, NULL, ?5)";
        connection.execute(sql, row).unwrap();
    }
}

#[test]
fn every_analysis_names_the_code_that_asked() {
    let test = CliTest::new();
    export(&test);
    let peak = test.run(&["watermark", EXPORT, "--json"]).json();
    let groups = peak["groups"][0]["groups"].as_array().unwrap();
    let sites: Vec<(&str, u64)> = groups
        .iter()
        .map(|group| (group["key"].as_str().unwrap(), group["bytes"].as_u64().unwrap() / MIB))
        .collect();
    assert_eq!(
        sites,
        [
            ("at::native::convolution_overrideable(at::Tensor const&) [libtorch_cuda.so]", 600),
            ("cublasCreate_v2 [libcublas.so.12]", 300),
            ("std::vector<float, std::allocator<float> > solver::grow<float>(int) [/home/me/app]", 100),
        ]
    );
    for args in [&["watermark", EXPORT][..], &["leaks", EXPORT], &["diff", EXPORT, EXPORT]] {
        let text = test.run(args).ok().stdout;
        assert!(!text.contains("libcupti") && !text.contains("0x7f24"), "{text}");
    }
    let leaks = test.run(&["leaks", EXPORT]).ok().stdout;
    assert!(leaks.contains("cublasCreate_v2"), "{leaks}");
}

#[test]
fn a_flame_graph_of_library_stacks_has_boxes_with_names() {
    let test = CliTest::new();
    export(&test);
    let text = test.run(&["flame", EXPORT]).ok().stdout;
    for (name, figure) in
        [("at::native::convolution_", "600.0 MiB"), ("cublasCreate_v2", "300.0 MiB"), ("main", "100.0 MiB")]
    {
        let line = text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(line.contains(figure), "{text}");
    }
    assert!(text.contains("::grow<float>(int) [/home/me/app]") && !text.contains("frames"), "{text}");
}
