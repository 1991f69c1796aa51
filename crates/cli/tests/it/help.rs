//! What `--help` says.

use insta::assert_snapshot;

use crate::cli_test::CliTest;

pub(crate) const COMMANDS: [&str; 33] = [
    "run",
    "trace",
    "attach",
    "top",
    "import",
    "stats",
    "watermark",
    "usage",
    "leaks",
    "lifetimes",
    "churn",
    "ledger",
    "fragmentation",
    "oom",
    "calls",
    "ranks",
    "sql",
    "partial",
    "merge",
    "check",
    "replay",
    "flame",
    "diff",
    "plot",
    "report",
    "serve",
    "read",
    "export",
    "info",
    "repair",
    "memory_logger",
    "nsys",
    "completions",
];

#[test]
fn the_program_and_a_command_explain_themselves() {
    let test = CliTest::new();
    assert_snapshot!("help", test.run(&["--help"]).seen());
    assert_snapshot!("help_check", test.run(&["check", "-h"]).seen());
    assert_snapshot!("help_import", test.run(&["import", "--help"]).seen());
}

#[test]
fn every_command_has_examples_and_speaks_in_sentences_without_a_period() {
    let test = CliTest::new();
    for command in COMMANDS {
        let help = test.run(&[command, "--help"]).ok().stdout;
        assert!(help.contains("Examples:\n  floodmark"), "{command}");
        let short = test.run(&[command, "-h"]).ok().stdout;
        for line in short.lines().filter(|line| line.starts_with("  -") || line.starts_with("      --")) {
            assert!(!line.trim_end().ends_with('.'), "{command}: {line}");
        }
    }
}

#[test]
fn usual_words_for_troubles_lead_to_a_command() {
    let test = CliTest::new();
    let help = test.run(&["-h"]).ok().stdout;
    for words in ["out of memory", "fragmentation", "leak", "peak"] {
        let found = help.lines().filter(|line| line.contains("  ") && line.to_lowercase().contains(words));
        assert!(found.count() >= 2, "{words}: {help}");
    }
    for command in ["fragmentation", "oom", "check", "stats"] {
        let help = test.run(&[command, "-h"]).ok().stdout;
        assert!(help.to_lowercase().contains("out of memory"), "{command}: {help}");
    }
}

#[test]
fn nothing_typed_is_a_call_for_help() {
    let test = CliTest::new();
    assert_eq!(test.run(&[]).ok().stdout, test.run(&["-h"]).ok().stdout);
}

#[test]
fn completions_know_the_commands() {
    let test = CliTest::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = test.run(&["completions", shell]).ok().stdout;
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
}
