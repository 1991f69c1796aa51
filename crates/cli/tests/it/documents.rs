//! What the guides show is what the command prints.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::cli_test::{CliTest, without_sizes};
use crate::help::COMMANDS;

#[test]
fn the_reference_of_commands_is_what_help_says() {
    let test = CliTest::new();
    let mut text = String::from(
        "# Commands\n\nWhat `floodmark COMMAND --help` says. Made from the program; after a change run\n\
         `FLOODMARK_WRITE_DOCS=1 cargo test -p floodmark --test it reference`.\n",
    );
    for command in COMMANDS {
        let help = test.run(&[command, "--help"]).ok().stdout;
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = lines.join("\n");
        let _ = write!(text, "\n## floodmark {command}\n\n```text\n{}\n```\n", help.trim_end());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("FLOODMARK_WRITE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "docs/commands.md is out of date");
}

/// Runs what a guide shows, with fixtures at hand, and compares; or writes it, as for the reference.
fn check_guide(guide: &str, fixtures: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("docs").join(guide);
    let guide = fs::read_to_string(&path).unwrap();
    let mut written = guide.clone();
    let test = CliTest::new();
    for fixture in fixtures {
        let name = fixture.rsplit('/').next().unwrap();
        fs::copy(root.join("fixtures").join(fixture), test.path(name)).unwrap();
    }
    let blocks: Vec<&str> =
        guide.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "the guide has examples");
    for block in blocks {
        let (command, expected) = block.split_once('\n').unwrap();
        let words: Vec<&str> = command.strip_prefix("$ floodmark ").unwrap().split(' ').collect();
        let ran = test.run(&words);
        if std::env::var_os("FLOODMARK_WRITE_DOCS").is_some() {
            written = written.replace(block, &format!("{command}\n{}{}", ran.stdout, ran.stderr));
            fs::write(&path, &written).unwrap();
            continue;
        }
        assert_eq!(without_sizes(&(ran.stdout + &ran.stderr)), without_sizes(expected), "{command}");
    }
}

#[test]
fn the_guide_for_rmm_users_shows_real_output() {
    check_guide("rmm.md", &["rmm/rmm_26.10_h200_head.csv"]);
}

#[test]
fn the_guide_for_memory_logger_users_shows_real_output() {
    let logs =
        ["memory_logger/single_node.log", "memory_logger/pbs_two_nodes.log", "memory_logger/gdb_pstack.log"];
    check_guide("memory_logger.md", &[&logs[..], &["smi/query_gpu_all.csv"]].concat());
}

#[test]
fn the_guide_to_questions_to_a_heap_shows_real_output() {
    check_guide("heap_answers.md", &["heap/heaptrack.zst", "heap/memray_1.20.bin"]);
}

#[test]
fn the_guide_for_pytorch_users_shows_real_output() {
    check_guide("torch.md", &["torch/snapshot_torch2.11.pickle.gz"]);
}

#[test]
fn the_guide_for_nsight_systems_users_shows_real_output() {
    check_guide("nsys.md", &["nsys/small_2025.3.sqlite"]);
}

#[test]
fn the_guides_to_flame_graphs_comparisons_and_exports_show_real_output() {
    for guide in ["flame.md", "diff.md", "export.md"] {
        check_guide(guide, &["torch/snapshot_torch2.11.pickle.gz"]);
    }
}

#[test]
fn the_guide_to_pictures_shows_real_output() {
    check_guide("plot.md", &["memory_logger/single_node.log"]);
}
