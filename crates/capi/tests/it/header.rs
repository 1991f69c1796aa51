//! The header says what the library does: functions, constants, layouts.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use floodmark_capi::abi::{self, Call, Domain, Frame, Options, Stamp};
use floodmark_event::{CallAction, Kind, NO_DEVICE, UNKNOWN_BYTES};

use crate::build::{Linked, compile, crate_directory, library_directory, run, source, work_directory};

fn header() -> String {
    std::fs::read_to_string(crate_directory().join("include/floodmark.h")).expect("the header")
}

/// The constants of the header's enums, with their values.
fn enumerators(prefix: &str) -> Vec<(String, i64)> {
    let header = header();
    let constants = header.lines().filter_map(|line| line.trim().strip_prefix(prefix)?.split_once(" = "));
    constants
        .map(|(name, rest)| {
            let value = rest.split([',', ' ']).next().expect("a value");
            (name.to_lowercase(), value.parse().expect("a number"))
        })
        .collect()
}

#[test]
fn kinds_and_call_actions_have_the_names_and_numbers_of_the_trace_format() {
    let kinds: Vec<_> = Kind::ALL.iter().map(|kind| (kind.name().to_owned(), *kind as i64)).collect();
    assert_eq!(enumerators("FLOODMARK_KIND_"), kinds);
    let actions: Vec<_> =
        CallAction::ALL.iter().map(|action| (action.name().to_owned(), *action as i64)).collect();
    assert_eq!(enumerators("FLOODMARK_ACTION_"), actions);
}

#[test]
fn constants_and_layouts_are_those_of_the_library() {
    let directory = work_directory("constants");
    let program = compile(&source("constants.c"), Linked::Static, &directory);
    let printed = String::from_utf8(run(&mut Command::new(program)).stdout).expect("text");
    let version = env!("CARGO_PKG_VERSION");
    let mut expected = format!("version {version}\nlibrary {version}\n");
    for (name, value) in [
        ("FLOODMARK_ABI_VERSION", i64::from(abi::ABI_VERSION)),
        ("floodmark_abi_version()", i64::from(abi::ABI_VERSION)),
        ("FLOODMARK_GLOBAL", abi::GLOBAL as i64),
        ("FLOODMARK_NO_RECORDER", abi::NO_RECORDER as i64),
        ("FLOODMARK_NO_DEVICE", i64::from(NO_DEVICE)),
        ("FLOODMARK_NO_STACK", 0),
        ("FLOODMARK_UNKNOWN_BYTES", UNKNOWN_BYTES as i64),
        ("FLOODMARK_OK", i64::from(abi::OK)),
        ("FLOODMARK_ERROR_ARGUMENT", i64::from(abi::ERROR_ARGUMENT)),
        ("FLOODMARK_ERROR_ALREADY_RECORDING", i64::from(abi::ERROR_ALREADY_RECORDING)),
        ("FLOODMARK_ERROR_TOO_MANY_RECORDERS", i64::from(abi::ERROR_TOO_MANY_RECORDERS)),
        ("FLOODMARK_ERROR_IO", i64::from(abi::ERROR_IO)),
        ("FLOODMARK_ERROR_STOPPED", i64::from(abi::ERROR_STOPPED)),
        ("FLOODMARK_ERROR_INTERNAL", i64::from(abi::ERROR_INTERNAL)),
        ("sizeof options", size_of::<Options>() as i64),
        ("options.size", offset_of!(Options, size) as i64),
        ("options.shared_memory_bytes", offset_of!(Options, shared_memory_bytes) as i64),
        ("options.ring_directory", offset_of!(Options, ring_directory) as i64),
        ("sizeof domain", size_of::<Domain>() as i64),
        ("domain.device", offset_of!(Domain, device) as i64),
        ("domain.kind", offset_of!(Domain, kind) as i64),
        ("domain.stream", offset_of!(Domain, stream) as i64),
        ("domain.resource", offset_of!(Domain, resource) as i64),
        ("sizeof stamp", size_of::<Stamp>() as i64),
        ("stamp.time_ns", offset_of!(Stamp, time_ns) as i64),
        ("stamp.thread", offset_of!(Stamp, thread) as i64),
        ("sizeof frame", size_of::<Frame>() as i64),
        ("frame.function", offset_of!(Frame, function) as i64),
        ("frame.file", offset_of!(Frame, file) as i64),
        ("frame.module", offset_of!(Frame, module) as i64),
        ("frame.line", offset_of!(Frame, line) as i64),
        ("frame.address", offset_of!(Frame, address) as i64),
        ("sizeof call", size_of::<Call>() as i64),
        ("call.action", offset_of!(Call, action) as i64),
        ("call.code", offset_of!(Call, code) as i64),
        ("call.line", offset_of!(Call, line) as i64),
        ("call.rss_bytes", offset_of!(Call, rss_bytes) as i64),
    ] {
        writeln!(expected, "{name} {value}").expect("text can be written to");
    }
    assert_eq!(printed, expected);
}

#[test]
fn the_shared_library_exports_exactly_the_functions_of_the_header() {
    let library = library_directory().join("libfloodmark_capi.so");
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library)).stdout;
    let symbols = String::from_utf8(symbols).expect("names");
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    let header = header();
    // A declaration starts at the margin with its type.
    let starts = ["int ", "void ", "uint32_t ", "uint64_t ", "const char *"];
    let declared = header.lines().filter_map(|line| {
        let line = starts.iter().find_map(|start| line.strip_prefix(start))?;
        line.starts_with("floodmark_").then(|| line.split('(').next()).flatten()
    });
    assert_eq!(exported, declared.collect());
}
