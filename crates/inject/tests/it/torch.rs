//! What the cache of PyTorch hands out, with libraries of its names that these tests compile: whose calls are recorded,
//! at which level, and that every call arrives where it was meant for.

use std::process::Command;

use floodmark_event::{Action, Event, Kind};
use floodmark_tail::gpu::GpuNote;

use crate::build::compile;
use crate::cuda::{Stage, assert_success, is_real, notes, resource};
use crate::heap_tail::HeapTail;

const MIB: u64 = 1 << 20;

/// Compiles the libraries into the directory of a stage.
fn with_cache(name: &str) -> Stage {
    let stage = Stage::new(name);
    let here = format!("-L{}", stage.directory.display());
    for (library, options) in
        [("libc10", vec![]), ("libc10_cuda", vec![here.as_str(), "-l:libc10.so", "-ldl"])]
    {
        let soname = format!("-Wl,-soname,{library}.so");
        let shared = ["-shared", "-fPIC", "-Wno-deprecated-non-prototype", soname.as_str()];
        let built =
            compile(&format!("cuda/{library}.c"), &[&shared[..], &options].concat(), &stage.directory);
        std::fs::rename(built, stage.directory.join(format!("{library}.so"))).expect("can be renamed");
    }
    stage
}

/// Runs the program with these options; returns what it printed.
#[track_caller]
fn run(stage: &Stage, gpu: &str) -> String {
    let program = compile("cuda/torch.c", &["-ldl"], &stage.directory);
    let like = stage.command(gpu, &[]);
    let mut command = Command::new(program);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.env_remove("FLOODMARK_HEAP").env_remove("FLOODMARK_GPU");
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = stage.finish(&mut command);
    assert_success(&output);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What is live at the end of a kind: resources and bytes.
fn live(tail: &HeapTail, kind: Kind) -> Vec<(String, u64)> {
    let mut live: Vec<(String, u64)> =
        tail.live_blocks(kind).iter().map(|event| (resource(tail, event), event.bytes)).collect();
    live.sort();
    live
}

fn failures(tail: &HeapTail) -> Vec<&Event> {
    tail.events.iter().filter(|event| event.action == Action::Failure).collect()
}

#[test]
fn tensors_and_segments_of_pytorch_are_told_apart() {
    if is_real() {
        return;
    }
    let stage = with_cache("cuda-torch");
    let plain = run(&stage, "way=preload");
    let (calls, failed) = (plain.split(' ').next(), plain.split(' ').nth(1));
    assert_eq!((calls, failed), (Some("4"), Some("1")), "{plain}");
    let named = |list: &[(&str, u64)]| {
        list.iter().map(|(name, mib)| ((*name).to_owned(), mib * MIB)).collect::<Vec<_>>()
    };
    for (way, note) in [("cupti", GpuNote::Cupti), ("preload", GpuNote::Preload), ("auto", GpuNote::Preload)]
    {
        assert_eq!(run(&stage, &format!("way={way},level=all")), plain, "every call arrives as it was");
        let tail = HeapTail::read(&stage.trace());
        assert_eq!(live(&tail, Kind::Device), named(&[("cuMemAlloc", 5), ("torch", 2)]), "{way}");
        assert_eq!(
            live(&tail, Kind::Reserved),
            named(&[("torch segments", 6), ("torch segments", 20)]),
            "{way}"
        );
        // Physical memory that the cache maps counts where it is mapped.
        assert_eq!(
            live(&tail, Kind::Mapped),
            named(&[("cuMemAddressReserve", 64), ("cuMemCreate", 6)]),
            "{way}"
        );
        assert_eq!(
            notes(&tail).into_iter().filter(|note| *note != GpuNote::FreeAtFailure).collect::<Vec<_>>(),
            [note, GpuNote::Torch],
            "{way}"
        );
        let failures = failures(&tail);
        assert_eq!(failures.len(), 1, "{way}");
        assert_eq!((failures[0].bytes, resource(&tail, failures[0])), (77 * MIB, "torch".to_owned()));
        for event in tail.events.iter().filter(|event| event.resource == failures[0].resource) {
            assert_eq!((event.device, event.kind), (0, Kind::Device));
            assert!(event.stack.0 != 0 || event.action == Action::Free, "{way} {event:?}");
        }
        assert_eq!(tail.devices.len(), 1, "the device is named");
        assert_eq!(tail.losses, 0);
    }
}

#[test]
fn a_level_records_what_belongs_to_it() {
    if is_real() {
        return;
    }
    let stage = with_cache("cuda-torch-levels");
    run(&stage, "way=auto,level=framework");
    let tail = HeapTail::read(&stage.trace());
    assert_eq!(live(&tail, Kind::Device), [("torch".to_owned(), 2 * MIB)]);
    assert!(tail.events.iter().all(|event| resource(&tail, event) == "torch"));
    assert_eq!(notes(&tail), [GpuNote::Torch, GpuNote::FreeAtFailure]);
    run(&stage, "way=auto");
    let tail = HeapTail::read(&stage.trace());
    assert_eq!(
        live(&tail, Kind::Device),
        [
            ("cuMemAlloc".to_owned(), 5 * MIB),
            ("cuMemAlloc".to_owned(), 20 * MIB),
            ("cuMemCreate".to_owned(), 6 * MIB)
        ]
    );
    assert!(failures(&tail).is_empty());
    // Where the driver loads another library, the first report starts the recording.
    let program = compile("cuda/torch.c", &["-ldl"], &stage.directory);
    let like = stage.command("level=framework", &[]);
    let mut command = Command::new(program);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env_remove("CUDA_INJECTION64_PATH").env_remove("FLOODMARK_HEAP");
    assert_success(&stage.finish(&mut command));
    assert_eq!(live(&HeapTail::read(&stage.trace()), Kind::Device), [("torch".to_owned(), 2 * MIB)]);
}
