//! Options for stacks, as they are typed.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    stacks: StackArgs,
    #[arg(last = true)]
    command: Vec<String>,
}

fn props(words: &[&str]) -> Option<StackProps> {
    let words = ["floodmark"].iter().chain(words).chain(&["--", "app"]);
    let line = Line::try_parse_from(words).expect("options that are understood");
    assert_eq!(line.command, ["app"]);
    line.stacks.props()
}

#[test]
fn no_stacks_are_taken_unasked() {
    assert_eq!(props(&[]), None);
    assert_eq!(props(&["--memory-limit", "1GiB"]), None);
}

#[test]
fn methods_have_their_old_names_too() {
    let method = |words: &[&str]| props(words).map(|props| props.method);
    assert_eq!(props(&["--stacks"]), Some(StackProps::default()));
    assert_eq!(method(&["--stacks"]), Some(StackMethod::Python));
    assert_eq!(method(&["--stacks", "python"]), Some(StackMethod::Python));
    assert_eq!(method(&["--stacks", "native"]), Some(StackMethod::Native));
    assert_eq!(method(&["--stacks", "eu-stack"]), Some(StackMethod::Tool(Tool::EuStack)));
    assert_eq!(method(&["--pstack"]), Some(StackMethod::Tool(Tool::Gdb)));
    assert_eq!(method(&["--pstack", "--debugger", "lldb"]), Some(StackMethod::Tool(Tool::Lldb)));
    assert_eq!(method(&["--stack-interval", "1s"]), Some(StackMethod::Python));
}

#[test]
fn shares_are_percent_or_fractions() {
    let when = props(&["--stacks", "--stack-peak", "10%", "--stack-growth", "0.5"]).expect("stacks").when;
    assert_eq!((when.peak_share, when.growth_share), (Some(0.1), Some(0.5)));
    assert!(parse_share("x").is_err() && parse_share("-1").is_err() && parse_share("inf").is_err());
}
