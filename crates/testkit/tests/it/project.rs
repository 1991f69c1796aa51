//! What the project promises of its own sources.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names under a table of a manifest.
fn names(krate: &str, table: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("crates").join(krate).join("Cargo.toml")).expect("a manifest");
    let lines = text.lines().skip_while(|line| *line != format!("[{table}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('[')).filter(|line| line.contains('='));
    lines.map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn what_is_linked_into_other_processes_needs_libc_alone() {
    assert!(names("event", "dependencies").is_empty());
    assert_eq!(names("tail", "dependencies"), ["floodmark-event", "libc"]);
}

#[test]
fn crates_know_only_what_the_tour_says_they_may() {
    let allowed: [(&str, &[&str]); 14] = [
        ("event", &[]),
        ("tail", &["floodmark-event"]),
        ("stacks", &["floodmark-event", "floodmark-tail"]),
        ("sampler", &["floodmark-event", "floodmark-tail"]),
        ("store", &["floodmark-event", "floodmark-tail"]),
        ("convert", &["floodmark-event", "floodmark-store"]),
        ("analyze", &["floodmark-event"]),
        ("resource", &["floodmark-event", "floodmark-stacks", "floodmark-tail"]),
        ("replay", &["floodmark-analyze", "floodmark-event", "floodmark-resource", "floodmark-tail"]),
        ("inspect", &["floodmark-analyze", "floodmark-convert", "floodmark-event", "floodmark-store"]),
        ("record", &["floodmark-analyze", "floodmark-sampler", "floodmark-store", "floodmark-tail"]),
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
        let ours = names(krate, "dependencies").into_iter().filter(|name| name.starts_with("floodmark-"));
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
        let has = |name: &str| names(&krate, "dependencies").iter().any(|known| known == name);
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
    assert!(lines <= 5500, "{lines} lines: what is not options or printing belongs to a library");
}

#[test]
fn no_source_file_is_longer_than_six_hundred_lines() {
    let mut folders = vec![root().join("crates"), root().join("fuzz/fuzz_targets")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let lines = fs::read_to_string(&path).expect("text").lines().count();
                assert!(lines <= 600, "{} has {lines} lines: is it still one thing?", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count} files");
}
