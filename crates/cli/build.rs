//! Leaves symbols out of the program of a release, which has 42 MB with them and 35 MB without: wheels carry it.
//!
//! `strip = "symbols"` of the profile would do, but cargo does not apply it to a package that has settings of its own in the
//! profile, as this one has.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // After cargo's own `-Wl,--strip-debug`, so this one counts. The profile `profiling` has debug information.
    if is("PROFILE", "release") && is("DEBUG", "false") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
