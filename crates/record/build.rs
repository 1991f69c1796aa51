//! Builds the library that is preloaded into commands to record their heap, so that this crate can embed it.
//!
//! Cargo has no stable way to depend on the shared library of another crate, so a second cargo builds it, in a target
//! directory of its own: the lock of the first one's is held while this script runs.
//! `FLOODMARK_EMBED_HEAP_LIBRARY` names a library that was built before, or is `none`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names a library to embed instead of building one; `none` embeds nothing.
const VARIABLE: &str = "FLOODMARK_EMBED_HEAP_LIBRARY";
/// Crates that the library is made of.
const SOURCES: [&str; 4] = ["event", "inject", "stacks", "tail"];

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rustc-check-cfg=cfg(heap_library)");
    let library = match env::var_os(VARIABLE) {
        Some(word) if word == "none" => None,
        Some(path) => Some(PathBuf::from(path)),
        None => build(),
    };
    let Some(library) = library else { return };
    let library = library.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    println!("cargo::rerun-if-changed={}", library.display());
    println!("cargo::rustc-env=FLOODMARK_BUILT_HEAP_LIBRARY={}", library.display());
    println!("cargo::rustc-cfg=heap_library");
}

/// Builds the library; none for a system that it does not work on, and if its source is not here, as in a package of
/// this crate alone.
fn build() -> Option<PathBuf> {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let target = variable("TARGET");
    let is_supported = variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && variable("CARGO_CFG_TARGET_POINTER_WIDTH") == "64";
    let crates = Path::new(&variable("CARGO_MANIFEST_DIR")).parent()?.to_owned();
    let manifest = crates.join("inject/Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());
    if !is_supported || !manifest.is_file() {
        return None;
    }
    for source in SOURCES {
        // Relative, so that checkouts which share a folder for what is built do not get the library of another one.
        println!("cargo::rerun-if-changed=../{source}/Cargo.toml");
        println!("cargo::rerun-if-changed=../{source}/src");
    }
    let target_dir = Path::new(&variable("OUT_DIR")).join("inject");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--quiet", "--lib", "--profile", "inject", "--locked", "--target", &target]);
    cargo.arg("--manifest-path").arg(&manifest).arg("--target-dir").arg(&target_dir);
    // Clippy and coverage tools take the place of the compiler for the workspace, and this is no part of what they check.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER").env("CARGO_INCREMENTAL", "0");
    let status = cargo.status().unwrap_or_else(|error| panic!("starting {}: {error}", variable("CARGO")));
    assert!(
        status.success(),
        "the library that records heaps could not be built ({VARIABLE}=none leaves it out)"
    );
    Some(target_dir.join(target).join("inject/libfloodmark_inject.so"))
}
