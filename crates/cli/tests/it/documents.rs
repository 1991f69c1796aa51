//! What the guides show is what the command prints.

use std::fs;
use std::path::Path;

use crate::cli_test::{CliTest, without_sizes};

#[test]
fn the_guide_for_rmm_users_shows_real_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(root.join("docs/rmm.md")).unwrap();
    let test = CliTest::new();
    let log = "rmm_26.10_h200_head.csv";
    fs::copy(root.join("fixtures/rmm").join(log), test.path(log)).unwrap();
    let blocks: Vec<&str> =
        guide.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 4, "the guide has examples");
    for block in blocks {
        let (command, expected) = block.split_once('\n').unwrap();
        let words: Vec<&str> = command.strip_prefix("$ floodmark ").unwrap().split(' ').collect();
        let ran = test.run(&words);
        assert_eq!(without_sizes(&(ran.stdout + &ran.stderr)), without_sizes(expected), "{command}");
    }
}
