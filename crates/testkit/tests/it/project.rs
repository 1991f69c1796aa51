//! Promises that the project makes about its own sources and manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The packages of the workspace and that of the Python package, as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    [root(), root().join("crates/python")].iter().flat_map(|folder| packages_in(folder)).collect()
}

fn packages_in(folder: &Path) -> Vec<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(folder);
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().expect("a list").iter()
}

/// Names of the dependencies of a crate that are linked into what uses it.
fn dependencies(folder: &str) -> Vec<String> {
    let manifest = root().join("crates").join(folder).join("Cargo.toml").canonicalize().expect("a crate");
    let package =
        packages().into_iter().find(|package| package["manifest_path"] == *manifest.to_string_lossy());
    let package = package.expect("a package");
    let linked = list(&package, "dependencies").filter(|dependency| dependency["kind"].is_null());
    linked.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn what_is_linked_into_other_processes_needs_libc_alone() {
    assert!(dependencies("event").is_empty());
    assert_eq!(dependencies("tail"), ["floodmark-event", "libc"]);
    assert_eq!(dependencies("capi"), ["floodmark-event", "floodmark-tail"]);
}

#[test]
fn crates_know_only_what_the_tour_says_they_may() {
    let allowed: [(&str, &[&str]); 18] = [
        ("event", &[]),
        ("tail", &["floodmark-event"]),
        ("capi", &["floodmark-event", "floodmark-tail"]),
        ("stacks", &["floodmark-event", "floodmark-tail"]),
        ("inject", &["floodmark-event", "floodmark-stacks", "floodmark-tail"]),
        ("sampler", &["floodmark-event", "floodmark-tail"]),
        ("store", &["floodmark-event", "floodmark-tail"]),
        ("convert", &["floodmark-event", "floodmark-store"]),
        ("analyze", &["floodmark-event"]),
        ("resource", &["floodmark-event", "floodmark-stacks", "floodmark-tail"]),
        // Lean enough to be loaded into any interpreter: neither Arrow nor Parquet.
        ("python", &["floodmark-event", "floodmark-resource", "floodmark-tail"]),
        ("replay", &["floodmark-analyze", "floodmark-event", "floodmark-resource", "floodmark-tail"]),
        (
            "inspect",
            &[
                "floodmark-analyze",
                "floodmark-convert",
                "floodmark-event",
                "floodmark-stacks",
                "floodmark-store",
                "floodmark-tail",
            ],
        ),
        ("cluster", &["floodmark-event", "floodmark-sampler", "floodmark-store", "floodmark-tail"]),
        (
            "record",
            &[
                "floodmark-analyze",
                "floodmark-cluster",
                "floodmark-event",
                "floodmark-sampler",
                "floodmark-store",
                "floodmark-tail",
            ],
        ),
        ("view", &["floodmark-analyze", "floodmark-event", "floodmark-inspect", "floodmark-replay"]),
        (
            "serve",
            &[
                "floodmark-analyze",
                "floodmark-event",
                "floodmark-inspect",
                "floodmark-store",
                "floodmark-tail",
                "floodmark-view",
            ],
        ),
        (
            "top",
            &[
                "floodmark-analyze",
                "floodmark-event",
                "floodmark-inspect",
                "floodmark-sampler",
                "floodmark-store",
                "floodmark-view",
            ],
        ),
    ];
    for (krate, may) in allowed {
        let ours = dependencies(krate).into_iter().filter(|name| name.starts_with("floodmark-"));
        let mut ours: Vec<String> = ours.collect();
        ours.sort();
        assert_eq!(ours, may, "{krate}");
    }
}

#[test]
fn no_library_knows_options_or_the_printer() {
    for krate in fs::read_dir(root().join("crates")).expect("crates").map(|entry| entry.expect("an entry")) {
        let krate = krate.file_name().to_string_lossy().into_owned();
        let is_program = ["cli", "bench"].contains(&krate.as_str());
        let has = |name: &str| dependencies(&krate).iter().any(|known| known == name);
        assert!(is_program || !(has("clap") || has("anyhow") || has("indicatif")), "{krate}");
    }
}

#[test]
fn the_command_stays_small() {
    let mut folders = vec![root().join("crates/cli/src")];
    let mut lines = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                lines += fs::read_to_string(&path).expect("text").lines().count();
            }
        }
    }
    // A command may take this many lines on average, what all of them share included.
    let commands = fs::read_dir(root().join("crates/cli/src/commands")).expect("a folder");
    let commands = commands.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_file())).count();
    assert!(lines <= commands * 230, "{lines} lines: what is not options or printing belongs to a library");
}

#[test]
fn published_crates_can_be_packaged() {
    let packages = packages();
    let is_published = |package: &Value| package["publish"].is_null();
    let published: Vec<&str> = packages
        .iter()
        .filter(|package| is_published(package))
        .filter_map(|package| package["name"].as_str())
        .collect();
    assert!(
        published.contains(&"floodmark-tail") && !published.contains(&"floodmark-testkit"),
        "{published:?}"
    );
    // There is an order in which each crate's versioned dependencies are published before it.
    let mut left: Vec<&Value> = packages.iter().filter(|package| is_published(package)).collect();
    while !left.is_empty() {
        let names: Vec<&Value> = left.iter().map(|package| &package["name"]).collect();
        left.retain(|package| {
            let mut versioned = list(package, "dependencies").filter(|dependency| dependency["req"] != "*");
            versioned.any(|dependency| names.contains(&&dependency["name"]))
        });
        assert!(left.len() < names.len(), "these need one another: {names:?}");
    }
    for package in packages.iter().filter(|package| is_published(package)) {
        let name = &package["name"];
        assert!(package["license"].is_string() && package["description"].is_string(), "{name}");
        for dependency in list(package, "dependencies").filter(|dependency| dependency["path"].is_string()) {
            let (other, is_dev) = (&dependency["name"], dependency["kind"] == "dev");
            let has_version = dependency["req"] != "*";
            assert!(!is_dev || other != name, "{name} depends on itself, which cannot be published first");
            assert!(is_dev || has_version, "{name} needs a version of {other}");
            // Without a version a dev-dependency is left out of the published manifest.
            let is_available = published.iter().any(|published| other == published);
            assert!(!has_version || is_available, "{name} needs {other}, which is not published");
        }
        let directory =
            Path::new(package["manifest_path"].as_str().expect("a path")).parent().expect("a folder");
        let binaries = list(package, "targets").filter(|target| target["kind"][0] == "bin");
        for binary in binaries.filter(|_| name != "floodmark") {
            let source = Path::new(binary["src_path"].as_str().expect("a path"));
            let is_test = source.starts_with(directory.join("tests"));
            let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
            let is_excluded =
                manifest.lines().any(|line| line.starts_with("exclude = ") && line.contains("\"tests\""));
            assert!(is_test && is_excluded, "{name} would install {}", binary["name"]);
        }
    }
}

#[test]
fn installed_programs_have_no_debug_information() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("text");
    let section = |name: &str| manifest.split(&format!("[profile.{name}]\n")).nth(1).map(str::to_owned);
    let of = |name: &str| section(name).and_then(|text| text.split("\n[").next().map(str::to_owned));
    let (release, profiling) = (of("release").expect("a profile"), of("profiling").expect("a profile"));
    assert!(release.contains("strip = \"symbols\"") && !release.contains("\ndebug ="), "{release}");
    assert!(profiling.contains("debug = \"line-tables-only\"") && profiling.contains("strip = \"none\""));
}

#[test]
fn no_source_file_is_longer_than_six_hundred_lines() {
    let mut folders = vec![root().join("crates"), root().join("fuzz/fuzz_targets")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                // `pip install .` builds in crates/python/target.
                folders.extend(Some(path).filter(|path| !path.ends_with("target")));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let lines = fs::read_to_string(&path).expect("text").lines().count();
                assert!(lines <= 600, "{} has {lines} lines: is it still one thing?", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count} files");
}

#[test]
fn the_python_package_has_the_version_and_edition_of_the_workspace() {
    let packages = packages();
    let of = |name: &str| packages.iter().find(|package| package["name"] == name).expect("a package");
    let (python, resource) = (of("floodmark-python"), of("floodmark-resource"));
    for field in ["version", "edition", "rust_version", "license"] {
        assert_eq!(python[field], resource[field], "{field}");
    }
}
