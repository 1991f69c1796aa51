//! CUDA memory, with a driver and a CUPTI without a device that these tests compile: every function, both ways to see
//! calls, values that no driver gives, missing and old libraries, and every end of a process.
//!
//! With `FLOODMARK_TEST_REAL_CUDA=1` the tests that need nothing of the stubs run with the libraries of the machine.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use floodmark_event::{Action, Event, Kind};
use floodmark_tail::gpu::GpuNote;
use floodmark_testkit::TempDir;

use crate::build::{compile, crate_directory, finish, library, work_directory};
use crate::heap_tail::HeapTail;

const MIB: u64 = 1 << 20;

/// How calls are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cupti,
    Preload,
}

/// Whether the machine's own libraries are used.
pub(crate) fn is_real() -> bool {
    std::env::var_os("FLOODMARK_TEST_REAL_CUDA").is_some()
}

/// The program and the stubs.
pub(crate) struct Stage {
    pub(crate) directory: TempDir,
    program: PathBuf,
}

impl Stage {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_cupti(name, &["-DVERSION=27"])
    }

    /// Compiles the stubs; `cupti` are options of that of CUPTI.
    fn with_cupti(name: &str, cupti: &[&str]) -> Self {
        let directory = work_directory(name);
        let link = if is_real() {
            "-l:libcuda.so.1".to_owned()
        } else {
            let shared = ["-shared", "-fPIC", "-Wl,-Bsymbolic", "-ldl"];
            let driver =
                compile("cuda/libcuda.c", &[&shared[..], &["-Wl,-soname,libcuda.so.1"]].concat(), &directory);
            std::fs::rename(driver, directory.join("libcuda.so.1")).expect("can be renamed");
            let built = compile("cuda/libcupti.c", &[&shared[..], cupti].concat(), &directory);
            std::fs::rename(built, directory.join("libcupti.so.12")).expect("can be renamed");
            format!("-L{} -l:libcuda.so.1", directory.display())
        };
        let options: Vec<&str> = link.split(' ').chain(["-ldl"]).collect();
        let program = compile("cuda/program.c", &options, &directory);
        Self { directory, program }
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.join("run.flood")
    }

    pub(crate) fn command(&self, gpu: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("LD_PRELOAD", library()).env("FLOODMARK_TRACE", self.trace());
        command.env("FLOODMARK_GPU", gpu).env("CUDA_INJECTION64_PATH", library());
        command.env_remove("FLOODMARK_HEAP").env_remove("CUDA_HOME").env_remove("CUDA_PATH");
        if !is_real() {
            command.env("LD_LIBRARY_PATH", &*self.directory);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn run(&self, way: Way, arguments: &[&str]) -> Output {
        let gpu = match way {
            Way::Cupti => "way=cupti",
            Way::Preload => "way=preload",
        };
        self.finish(&mut self.command(gpu, arguments))
    }

    #[track_caller]
    pub(crate) fn finish(&self, command: &mut Command) -> Output {
        let _ = std::fs::remove_dir_all(self.trace());
        finish(command.spawn().expect("starts"), "the program")
    }
}

#[track_caller]
pub(crate) fn assert_success(output: &Output) {
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// What is live at the end: blocks and bytes of a kind.
fn live(tail: &HeapTail, kind: Kind) -> (usize, u64) {
    let live = tail.live_blocks(kind);
    (live.len(), live.iter().map(|event| event.bytes).sum())
}

pub(crate) fn resource(tail: &HeapTail, event: &Event) -> String {
    tail.strings.get(&event.resource.0).cloned().unwrap_or_default()
}

pub(crate) fn notes(tail: &HeapTail) -> Vec<GpuNote> {
    let mut notes: Vec<GpuNote> = tail.gpu_notes().into_iter().map(|(note, _, _)| note).collect();
    notes.sort();
    notes
}

/// Five blocks of 3 MiB that were not freed, from the function that is called so.
#[track_caller]
fn assert_five_leaks(tail: &HeapTail) {
    assert_eq!(live(tail, Kind::Device), (5, 15 * MIB));
    assert_eq!(tail.losses, 0);
}

#[test]
fn every_function_is_recorded_in_both_ways() {
    let stage = Stage::new("cuda-all");
    for (way, how) in [
        (Way::Cupti, "dlsym"),
        (Way::Cupti, "link"),
        (Way::Preload, "dlsym"),
        (Way::Preload, "link"),
        (Way::Preload, "proc"),
    ] {
        assert_success(&stage.run(way, &[how, "all"]));
        let tail = HeapTail::read(&stage.trace());
        let expected = if way == Way::Cupti { GpuNote::Cupti } else { GpuNote::Preload };
        assert_eq!(notes(&tail), [expected], "{way:?} {how}");
        assert_five_leaks(&tail);
        for kind in [Kind::Managed, Kind::Pinned, Kind::Array, Kind::Mapped] {
            assert_eq!(live(&tail, kind), (0, 0), "{kind:?} {way:?} {how}");
        }
        let mut allocated: Vec<(String, Kind, u64)> = tail
            .events
            .iter()
            .filter(|event| event.action == Action::Alloc)
            .map(|event| (resource(&tail, event), event.kind, event.bytes))
            .collect();
        allocated.dedup();
        let expected = [
            ("cuMemAlloc", Kind::Device, 10 * MIB),
            ("cuMemAllocPitch", Kind::Device, 102_400),
            ("cuMemAllocManaged", Kind::Managed, 7 * MIB),
            ("cuMemAllocHost", Kind::Pinned, 2 * MIB),
            ("cuMemHostAlloc", Kind::Pinned, MIB),
            ("cuMemHostRegister", Kind::Pinned, 4 * MIB),
            ("cuMemAllocAsync", Kind::Device, 6 * MIB),
            ("cuMemAllocFromPoolAsync", Kind::Device, 5 * MIB),
            ("cuArrayCreate", Kind::Array, 64 * 32 * 16),
            ("cuArray3DCreate", Kind::Array, 16 * 16 * 4 * 4),
            ("cuGraphAddMemAllocNode", Kind::Mapped, 8 * MIB),
            ("cuMemAddressReserve", Kind::Mapped, 64 * MIB),
            ("cuMemCreate", Kind::Device, 12 * MIB),
            ("cuMemMap", Kind::Mapped, 12 * MIB),
            ("cuMemCreate", Kind::Device, 4 * MIB),
            ("cuMemMap", Kind::Mapped, 4 * MIB),
            ("cuMemAlloc", Kind::Device, MIB),
            ("cuMemAlloc", Kind::Device, 3 * MIB),
        ];
        let expected = expected.map(|(resource, kind, bytes)| (resource.to_owned(), kind, bytes));
        assert_eq!(allocated, expected, "{way:?} {how}");
        // Of a free that failed there is nothing.
        let unknown = tail.events.iter().filter(|event| event.address == 0xdead_0000).count();
        assert_eq!(unknown, 0, "{way:?} {how}");
        for event in tail.events.iter().filter(|event| event.action == Action::Alloc) {
            assert!(event.stack.0 != 0, "{way:?} {how} {event:?}");
            assert_eq!(event.device, if event.kind == Kind::Mapped { event.device } else { 0 });
        }
        assert_eq!(tail.devices.len(), 1, "the device is named");
        assert!(tail.samples >= 4, "pools are read: {}", tail.samples);
    }
}

#[test]
fn stacks_lead_to_the_function_of_the_program() {
    let stage = Stage::new("cuda-stacks");
    for way in [Way::Cupti, Way::Preload] {
        assert_success(&stage.run(way, &["dlsym", "leak"]));
        let tail = HeapTail::read(&stage.trace());
        for event in tail.live_blocks(Kind::Device) {
            let modules: Vec<&str> = tail
                .frames_of(event.stack.0)
                .into_iter()
                .map(|frame| tail.strings.get(&frame.module.0).map_or("", String::as_str))
                .collect();
            let own = modules.iter().filter(|module| module.ends_with("/program")).count();
            // allocate, leak_five and main.
            assert!(own >= 3, "{way:?} {modules:?}");
            assert!(!modules.iter().any(|module| module.contains("libfloodmark")), "{way:?} {modules:?}");
        }
    }
}

#[test]
fn python_functions_stand_in_stacks_without_the_interpreters_lock() {
    let stage = Stage::new("cuda-python");
    let program = crate_directory().join("tests/it/programs/cuda/frames.py");
    for gpu in ["way=cupti", "way=preload"] {
        let like = stage.command(gpu, &[]);
        let mut command = Command::new("python3");
        command.arg(&program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("FLOODMARK_HEAP");
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert_success(&stage.finish(&mut command));
        let tail = HeapTail::read(&stage.trace());
        let blocks = tail.live_blocks(Kind::Device);
        assert_eq!(blocks.len(), 1, "{gpu}");
        let text = |id: u32| tail.strings.get(&id).map_or("", String::as_str);
        let functions: Vec<(&str, u32)> = tail
            .frames_of(blocks[0].stack.0)
            .into_iter()
            .filter(|frame| text(frame.file.0).ends_with("frames.py"))
            .map(|frame| (text(frame.function.0), frame.line))
            .collect();
        assert_eq!(functions, [("allocate", 10), ("größer", 14), ("<module>", 21)], "{gpu}");
    }
}

#[test]
fn ranges_of_nvtx_are_scopes_of_the_allocations_in_them() {
    let stage = Stage::new("cuda-nvtx");
    let link = if is_real() { String::new() } else { format!("-L{}", stage.directory.display()) };
    let options: Vec<&str> =
        [link.as_str(), "-l:libcuda.so.1", "-ldl"].into_iter().skip(usize::from(link.is_empty())).collect();
    let program = compile("cuda/nvtx.c", &options, &stage.directory);
    let like = stage.command("way=cupti", &[]);
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("FLOODMARK_HEAP").env("NVTX_INJECTION64_PATH", library());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert_success(&stage.finish(&mut command));
    let tail = HeapTail::read(&stage.trace());
    let name = |scope: u64| tail.scopes.get(&(scope as u32)).map_or("", |name| tail.strings[name].as_str());
    let scopes: Vec<(u64, &str)> =
        tail.live_blocks(Kind::Device).iter().map(|event| (event.bytes, name(event.scope))).collect();
    let mut scopes = scopes;
    scopes.sort_unstable();
    assert_eq!(scopes, [(1000, "outer"), (2000, "größer"), (3000, "registered"), (4000, "")]);
    for text in ["loose", "mark"] {
        assert!(tail.strings.values().any(|known| known == text), "{text}");
    }
    assert_eq!(tail.losses, 0);
}

#[test]
fn the_end_of_a_context_ends_its_blocks() {
    let stage = Stage::new("cuda-contexts");
    for way in [Way::Cupti, Way::Preload] {
        for (what, left) in [("reset", (1, MIB)), ("release", (0, 0)), ("destroy", (0, 0))] {
            assert_success(&stage.run(way, &["dlsym", what]));
            let tail = HeapTail::read(&stage.trace());
            assert_eq!(live(&tail, Kind::Device), left, "{way:?} {what}");
            let torn = tail.events.iter().filter(|event| event.action == Action::Free && event.scope != 0);
            assert_eq!(torn.count(), 5, "{way:?} {what}: frees in the scope of the teardown");
            assert!(tail.strings.values().any(|text| text == "context teardown"));
        }
    }
}

#[test]
fn a_failed_allocation_says_what_was_free() {
    let stage = Stage::new("cuda-oom");
    for way in [Way::Cupti, Way::Preload] {
        let output = stage.run(way, &["dlsym", "oom"]);
        assert_success(&output);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (result, asked) = text.trim().split_once(' ').expect("result and request");
        assert_eq!(result, "2");
        let tail = HeapTail::read(&stage.trace());
        let failures: Vec<&Event> =
            tail.events.iter().filter(|event| event.action == Action::Failure).collect();
        assert_eq!(failures.len(), 1, "{way:?}");
        assert_eq!(failures[0].bytes.to_string(), asked);
        assert!(failures[0].stack.0 != 0);
        let free = tail.gpu_notes().into_iter().find(|(note, _, _)| *note == GpuNote::FreeAtFailure);
        let (_, number, what) = free.expect("free memory");
        let words: Vec<&str> = what.split(' ').collect();
        assert_eq!((number, words[1], words[2]), (1, "0", "device"));
        let bytes = |at: usize| words[at].parse::<u64>().expect("a number");
        let (used, recorded) = (bytes(4) - bytes(3), live(&tail, Kind::Device).1);
        if is_real() {
            // A real device has a context, and other processes.
            assert!(used > recorded, "{way:?}: {used} are in use, {recorded} recorded");
        } else {
            assert_eq!(used, recorded, "{way:?}: what is not free is recorded");
        }
    }
}

#[test]
fn what_was_recorded_survives_every_end() {
    let stage = Stage::new("cuda-ends");
    for way in [Way::Cupti, Way::Preload] {
        for (what, signal) in [("leak", None), ("_exit", None), ("abort", Some(6)), ("kill", Some(9))] {
            let output = stage.run(way, &["dlsym", what]);
            assert_eq!(output.status.signal(), signal, "{what}");
            assert_five_leaks(&HeapTail::read(&stage.trace()));
        }
    }
}

#[test]
fn forks_before_and_after_the_start_of_cuda_are_told_apart() {
    let stage = Stage::new("cuda-fork");
    for way in [Way::Cupti, Way::Preload] {
        assert_success(&stage.run(way, &["dlsym", "fork-before"]));
        assert_five_leaks(&HeapTail::read(&stage.trace()));
        assert_success(&stage.run(way, &["dlsym", "fork-after"]));
        let processes = HeapTail::read_all(&stage.trace());
        let parent = processes.iter().find(|process| live(process, Kind::Device).0 >= 6).expect("the parent");
        assert_eq!(live(parent, Kind::Device), (6, 16 * MIB), "{way:?}");
        for child in processes.iter().filter(|process| process.pid != parent.pid) {
            let freed = child.events.iter().filter(|event| event.action == Action::Free);
            assert!(freed.count() <= 1, "{way:?}: blocks of the parent are not the child's");
        }
    }
}

#[test]
fn eight_threads_lose_nothing() {
    let stage = Stage::new("cuda-threads");
    for way in [Way::Cupti, Way::Preload] {
        assert_success(&stage.run(way, &["proc", "threads"]));
        let tail = HeapTail::read(&stage.trace());
        assert_eq!(live(&tail, Kind::Device), (8, 8 * MIB), "{way:?}");
        assert_eq!(tail.count(Action::Alloc, Kind::Device), 8 * 501);
        assert_eq!(tail.count(Action::Free, Kind::Device), 8 * 500);
        assert_eq!(tail.losses, 0);
    }
}

#[test]
fn heap_and_gpu_are_recorded_together() {
    let stage = Stage::new("cuda-heap");
    let mut command = stage.command("way=auto", &["dlsym", "all"]);
    command.env("FLOODMARK_HEAP", "all");
    if !is_real() {
        command.env("CUDA_HOME", "/nowhere");
    }
    assert_success(&stage.finish(&mut command));
    let tail = HeapTail::read(&stage.trace());
    assert_eq!(live(&tail, Kind::Device), (5, 15 * MIB));
    assert!(tail.count(Action::Alloc, Kind::Pageable) > 10);
    assert_eq!(tail.losses, 0);
}

#[test]
fn memory_of_other_processes_is_not_counted() {
    if is_real() {
        // A process cannot open its own handle.
        return;
    }
    let stage = Stage::new("cuda-ipc");
    for (way, how) in [(Way::Cupti, "dlsym"), (Way::Preload, "dlsym"), (Way::Preload, "proc")] {
        assert_success(&stage.run(way, &[how, "ipc"]));
        let tail = HeapTail::read(&stage.trace());
        let opened = tail.events.iter().find(|event| event.kind == Kind::Mapped).expect("an opened block");
        assert_eq!((opened.bytes, resource(&tail, opened)), (5 * MIB, "cuIpcOpenMemHandle".into()));
        assert_eq!(tail.count(Action::Alloc, Kind::Device), 1);
        assert_eq!(live(&tail, Kind::Mapped), (0, 0));
    }
}

/// Runs the program that leaks with the stubs as they are told to be, and returns what was recorded.
#[track_caller]
fn with_stub(stage: &Stage, stub: &str, gpu: &str) -> HeapTail {
    let mut command = stage.command(gpu, &["dlsym", "leak"]);
    assert_success(&stage.finish(command.env("STUB_CUPTI", stub)));
    HeapTail::read(&stage.trace())
}

#[test]
fn functions_are_interposed_where_cupti_cannot_be_used() {
    if is_real() {
        return;
    }
    let new = Stage::with_cupti("cuda-new", &["-DVERSION=130401", "-DNEW"]);
    let tail = with_stub(&new, "taken", "way=auto");
    assert_eq!(notes(&tail), [GpuNote::Preload, GpuNote::CuptiTaken]);
    assert!(tail.gpu_notes().iter().any(|(_, _, what)| what == "Nsight Systems"), "{:?}", tail.gpu_notes());
    assert_five_leaks(&tail);
    let tail = with_stub(&new, "broken", "way=auto");
    assert_eq!(notes(&tail), [GpuNote::Preload, GpuNote::CuptiFailed]);
    assert!(tail.gpu_notes().iter().any(|(_, line, _)| *line == 15), "{:?}", tail.gpu_notes());
    assert_five_leaks(&tail);
    let tail = with_stub(&new, "taken", "way=cupti");
    assert_eq!(notes(&tail), [GpuNote::CuptiTaken, GpuNote::Impossible]);
    // A library that lacks a function, and none at all.
    let lacking = Stage::with_cupti("cuda-lacking", &["-DVERSION=27", "-DNO_ENABLE"]);
    let tail = with_stub(&lacking, "", "way=auto");
    assert_eq!(notes(&tail), [GpuNote::Preload, GpuNote::CuptiFailed]);
    assert_five_leaks(&tail);
    std::fs::remove_file(lacking.directory.join("libcupti.so.12")).expect("a stub");
    let tail = with_stub(&lacking, "", "way=auto");
    assert_eq!(notes(&tail), [GpuNote::Preload, GpuNote::NoCupti]);
    assert_five_leaks(&tail);
}

#[test]
fn an_old_cupti_records_what_it_knows() {
    if is_real() {
        return;
    }
    let old = Stage::with_cupti("cuda-old", &["-DVERSION=18", "-DOLD"]);
    let tail = with_stub(&old, "", "way=auto");
    assert_eq!(notes(&tail), [GpuNote::Cupti, GpuNote::CallbacksMissing]);
    assert!(tail.gpu_notes().iter().any(|(_, line, _)| *line == 18));
    assert_five_leaks(&tail);
}

#[test]
fn values_that_no_driver_gives_do_no_harm() {
    if is_real() {
        return;
    }
    let stage = Stage::new("cuda-hostile");
    let tail = with_stub(&stage, "hostile", "way=cupti,color=red");
    assert_eq!(notes(&tail), [GpuNote::Cupti, GpuNote::UnknownOption]);
    let real: Vec<&Event> = tail.events.iter().filter(|event| event.bytes == 3 * MIB).collect();
    assert_eq!(real.len(), 5);
    // The block of nearly all bytes was freed again, the failure asked for as many.
    assert!(tail.events.iter().any(|event| event.action == Action::Failure && event.bytes == u64::MAX - 1));
    assert_eq!(live(&tail, Kind::Device), (5, 15 * MIB));
}

#[test]
fn a_tool_that_was_named_before_is_loaded_too() {
    let stage = Stage::new("cuda-chain");
    let source = stage.directory.join("tool.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint InitializeInjection(void) { puts(\"tool\"); return 1; }",
    )
    .expect("a file");
    let tool = stage.directory.join("tool.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&tool).arg(&source).status();
    assert!(built.expect("a compiler").success());
    let run = |next: &Path| {
        let mut command = stage.command(&format!("next={}", next.display()), &["dlsym", "leak"]);
        let output = stage.finish(&mut command);
        assert_success(&output);
        (String::from_utf8_lossy(&output.stdout).into_owned(), HeapTail::read(&stage.trace()))
    };
    let (text, tail) = run(&tool);
    assert_eq!(text, "tool\n");
    assert!(notes(&tail).contains(&GpuNote::Chained), "{:?}", notes(&tail));
    assert_five_leaks(&tail);
    let (_, tail) = run(Path::new("/nowhere/tool.so"));
    assert!(notes(&tail).contains(&GpuNote::ChainFailed), "{:?}", notes(&tail));
    assert_five_leaks(&tail);
}

#[test]
fn without_options_and_without_cuda_nothing_is_recorded() {
    let stage = Stage::new("cuda-none");
    let mut command = stage.command("", &["dlsym", "leak"]);
    assert_success(&stage.finish(command.env_remove("FLOODMARK_GPU")));
    assert!(!stage.trace().exists());
    let plain = compile("ends.c", &[], &stage.directory);
    let mut command = stage.command("way=auto", &[]);
    let mut other = Command::new(plain);
    other.arg("return").envs(command.arg("x").get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert_success(&stage.finish(&mut other));
    assert!(!stage.trace().exists(), "a program without CUDA starts no recording");
}

#[test]
fn variables_of_modules_are_there_as_long_as_their_module() {
    if is_real() {
        // It needs a compiler for devices: see tests/gpu.
        return;
    }
    let stage = Stage::new("cuda-statics");
    let source = stage.directory.join("module.s");
    let section = |name: &str, symbol: &str, bytes: u32| {
        format!(
            ".section {name},\"aw\",@progbits\n.type {symbol},@object\n.size {symbol},{bytes}\n{symbol}: .zero {bytes}\n"
        )
    };
    let text = section(".nv.global", "big", 4000) + &section(".nv.constant3", "table", 100);
    std::fs::write(&source, text).expect("can be written");
    let module = stage.directory.join("module.o");
    let built = Command::new("cc").arg("-c").arg(&source).arg("-o").arg(&module).status();
    assert!(built.expect("a compiler").success());
    for (what, left) in [("leak", (2, 4100)), ("release", (0, 0))] {
        let mut command = stage.command("way=cupti", &["dlsym", what]);
        assert_success(&stage.finish(command.env("STUB_MODULE", &module)));
        let tail = HeapTail::read(&stage.trace());
        assert_eq!(live(&tail, Kind::Static), left, "{what}");
        assert_eq!((tail.count(Action::Alloc, Kind::Static), tail.losses), (4, 0));
        let mut named: Vec<(&str, u64, i32)> = tail
            .events
            .iter()
            .filter(|event| event.kind == Kind::Static && event.action == Action::Alloc)
            .map(|event| (tail.strings[&event.name.0].as_str(), event.bytes, event.device))
            .collect();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named, [("big", 4000, 0), ("table", 100, 0)]);
    }
}
