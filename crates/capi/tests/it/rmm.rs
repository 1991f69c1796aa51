//! The adaptor for resources of RMM. It is compiled and run with the few declarations that it uses of RMM and CUDA, in
//! `programs/rmm`. `FLOODMARK_TEST_RMM_INCLUDE` names directories with the real headers, separated by colons: the adaptor
//! is then compiled with these too.

use std::process::Command;

use floodmark_event::{Action, Kind};
use floodmark_tail::record::Record;

use crate::build::{crate_directory, library_directory, run, source, work_directory};
use crate::tailing::Tail;

/// A compiler that finds the adaptor.
fn compiler() -> Command {
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"]).arg(crate_directory().join("include"));
    command
}

#[test]
fn what_a_resource_of_rmm_does_is_recorded() {
    let directory = work_directory("capi-rmm");
    let (program, trace) = (directory.join("program"), directory.join("run.flood"));
    let mut command = compiler();
    command.arg("-I").arg(source("rmm")).arg("-o").arg(&program).arg(source("rmm/main.cpp"));
    command.arg(library_directory().join("libfloodmark_capi.a"));
    run(command.args(["-lpthread", "-ldl", "-lm"]));
    run(Command::new(&program).arg(&trace));
    let tail = Tail::read(&trace);
    assert_eq!(tail.losses, 0);
    let records = || tail.lanes.values().flatten();
    let name = records().find_map(|record| match record {
        Record::String { id, text } if *text == b"my pool" => Some(*id),
        _ => None,
    });
    let events: Vec<_> = records()
        .filter_map(|record| match record {
            Record::Event(event) => Some(event),
            _ => None,
        })
        .collect();
    let seen: Vec<_> =
        events.iter().map(|event| (event.action, event.address, event.bytes, event.stream)).collect();
    assert_eq!(
        seen,
        [
            (Action::Alloc, 0x1000, 100, 0x77),
            (Action::Free, 0x1000, 100, 0x77),
            (Action::Alloc, 0x2000, 200, 0),
            (Action::Free, 0x2000, 200, 0),
            (Action::Failure, 0, 5000, 0x77),
        ]
    );
    let is_ours = |kind, device, resource| (kind, device, Some(resource)) == (Kind::Device, 3, name);
    assert!(events.iter().all(|event| is_ours(event.kind, event.device, event.resource)), "{events:?}");
}

#[test]
fn the_adaptor_compiles_with_the_headers_of_rmm() {
    let Some(include) = std::env::var_os("FLOODMARK_TEST_RMM_INCLUDE") else { return };
    let directory = work_directory("capi-rmm-real");
    let program = directory.join("real.cpp");
    let text = "#include <floodmark_rmm.hpp>\n\
                #ifdef FLOODMARK_RMM_IS_DERIVED\n\
                #include <rmm/mr/device/cuda_memory_resource.hpp>\n\
                template class floodmark::rmm_adaptor<rmm::mr::cuda_memory_resource>;\n\
                #else\n\
                #include <rmm/mr/cuda_memory_resource.hpp>\n\
                static_assert(cuda::mr::resource_with<floodmark::rmm_adaptor<rmm::mr::cuda_memory_resource>, \
                cuda::mr::device_accessible>, \"it is a resource\");\n\
                #endif\n";
    std::fs::write(&program, text).expect("can be written");
    let mut command = compiler();
    command.args(["-fsyntax-only", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]);
    for folder in std::env::split_paths(&include) {
        command.arg("-isystem").arg(folder);
    }
    run(command.arg(&program));
}
