//! Colors and widths.

use crate::cli_test::CliTest;

const TEXT_COMMANDS: [&str; 8] =
    ["stats", "watermark", "usage", "leaks", "lifetimes", "flame", "read", "info"];

#[test]
fn colors_come_only_where_they_are_wanted() {
    let test = CliTest::new();
    let colored = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = test.command(&[&["watermark", "golden.csv"], args].concat());
        command.envs(env.iter().copied());
        command.output().unwrap().stdout.contains(&0x1b)
    };
    assert!(!colored(&[], &[]), "a pipe is no terminal");
    assert!(colored(&["--color", "always"], &[]));
    assert!(colored(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!colored(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!colored(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(colored(&["--color", "always"], &[("NO_COLOR", "1")]), "what is typed beats the environment");
}

#[test]
fn colors_change_nothing_but_color() {
    let test = CliTest::new();
    for command in TEXT_COMMANDS {
        let plain = test.run(&[command, "golden.csv"]).ok().stdout;
        let colored = test.run(&[command, "golden.csv", "--color", "always"]).ok().stdout;
        assert_eq!(anstream::adapter::strip_str(&colored).to_string(), plain, "{command}");
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let test = CliTest::new();
    for columns in [40, 60, 80, 200] {
        for command in TEXT_COMMANDS {
            for input in ["golden.csv", "duplicate.csv", "truncated.csv"] {
                let mut ran = test.command(&[command, input]);
                let output = ran.env("COLUMNS", columns.to_string()).output().unwrap();
                assert_fits(&output.stdout, columns, command);
            }
        }
        let mut ran =
            test.command(&["check", "golden.csv", "--max-peak", "1", "--no-failures", "--max-leak", "0"]);
        assert_fits(&ran.env("COLUMNS", columns.to_string()).output().unwrap().stdout, columns, "check");
    }
}

pub(crate) fn assert_fits(stdout: &[u8], columns: usize, what: &str) {
    for line in str::from_utf8(stdout).unwrap().lines() {
        assert!(line.chars().count() <= columns, "{what} in {columns} columns: {line}");
        assert_eq!(line.trim_end(), line, "{what} has trailing spaces: {line:?}");
    }
}
