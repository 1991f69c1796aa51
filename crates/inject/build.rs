//! Finds the libraries in which versions of glibc before 2.34 have functions for threads and for loading: see
//! `src/versions.rs`. Later versions have them as empty libraries, for programs that were linked earlier.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const LIBRARIES: [&str; 2] = ["libdl.so.2", "libpthread.so.0"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(old_symbols)");
    let target = env::var("TARGET").unwrap_or_default();
    if target != "x86_64-unknown-linux-gnu" || env::var("HOST").unwrap_or_default() != target {
        return;
    }
    let Some(libraries) = LIBRARIES.into_iter().map(find).collect::<Option<Vec<PathBuf>>>() else { return };
    println!("cargo::rustc-cfg=old_symbols");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed");
    for library in libraries {
        println!("cargo::rustc-cdylib-link-arg={}", library.display());
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--pop-state");
}

/// Asks the compiler where a library is.
fn find(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    // A library that it does not find is printed as it was given.
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}
