//! Every key of JSON output is in the reference, with the words of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli_test::CliTest;

/// Crates whose types are written as JSON.
const CRATES: [&str; 7] = ["view", "inspect", "analyze", "replay", "store", "event", "cli"];

/// Meanings that are listed for a key that several types have.
const MOST_MEANINGS: usize = 3;

/// Meanings of keys whose fields have no comment.
const OTHERS: [(&str, &str); 6] = [
    ("action", "What the row is: an event, a sample, output or a stack"),
    ("pause_ns", "How long the thread was stopped for its stack"),
    ("remarks", "Remarks on the input; nothing is missing because of them"),
    ("schema", "Name and version of these keys"),
    ("subject", "Number of the process, device, cgroup, host or job in the trace"),
    ("value", "Value of the metric"),
];

/// Commands with JSON output; `@` stands before files of the fixtures.
const COMMANDS: [&str; 37] = [
    "calls @pymemtrace/all.log --tree --json",
    "stats @rmm/golden.csv --json",
    "stats @nsys/small_2025.3.sqlite --json",
    "watermark @rmm/golden.csv --json",
    "watermark @run/solver.flood --json",
    "watermark @nsys/small_2025.3.sqlite --json",
    "usage @rmm/golden.csv --json",
    "usage @nsys/small_2025.3.sqlite --json",
    "leaks @rmm/golden.csv --json",
    "leaks @nsys/small_2025.3.sqlite --json",
    "lifetimes @rmm/golden.csv --json",
    "lifetimes @nsys/small_2025.3.sqlite --json",
    "churn @rmm/golden.csv --json",
    "churn @heap/memray_1.20.bin --json",
    "ledger @heap/heaptrack.zst --json",
    "ledger @smi/query_gpu_all.csv --device 0 --json",
    "fragmentation @rmm/golden.csv --json",
    "fragmentation @rmm/rmm_26.10_h200_head.csv --json",
    "oom @rmm/golden.csv --json",
    "check @rmm/golden.csv --max-peak 1KiB --json",
    "ranks @run/ranks.flood --json",
    "ranks golden.part --json",
    "replay @rmm/golden.csv --json",
    "flame @nsys/small_2025.3.sqlite --json",
    "flame @run/solver.flood --json",
    "diff @rmm/golden.csv @rmm/epoch.csv --json",
    "diff @run/solver.flood @run/solver.flood --json",
    "diff golden.part golden.part --json",
    "read @rmm/golden.csv --json",
    "read @run/solver.flood --json",
    "read @run/solver.flood --stacks --json",
    "read @memory_logger/gdb_pstack.log --json",
    "info @run/solver.flood --json",
    "info @rmm/golden.csv --json",
    "import @rmm/golden.csv -o log.flood --json",
    "repair log.flood --json",
    "run -q --heap --gpu -o run.flood --json run.json -- env -i sleep 0.3",
];

/// Keys of a schema, with their meanings.
type Keys = BTreeMap<String, BTreeSet<String>>;

fn add_keys(value: &Value, types: &[Fields], keys: &mut Keys) {
    match value {
        Value::Object(fields) => {
            // The type with most of these keys and fewest others.
            let fit = |one: &&Fields| {
                let common = one.keys().filter(|key| fields.contains_key(*key)).count() as i64;
                2 * common - one.len() as i64
            };
            for (key, value) in fields {
                let of_type = types.iter().filter(|one| one.contains_key(key)).max_by_key(fit);
                let other = OTHERS.iter().find(|(other, _)| other == key);
                let words = of_type.map(|one| one[key].as_str()).or(other.map(|(_, words)| *words));
                keys.entry(key.clone()).or_default().extend(words.map(str::to_owned));
                add_keys(value, types, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_keys(value, types, keys)),
        _ => {}
    }
}

/// Keys that the commands write, by schema.
fn written_keys() -> BTreeMap<String, Keys> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let test = CliTest::new();
    let golden = root.join("rmm/golden.csv");
    test.run(&["partial", golden.to_str().unwrap(), "-o", "golden.part", "-q"]).ok();
    let types = types();
    let mut all: BTreeMap<String, Keys> = BTreeMap::new();
    for command in COMMANDS {
        let words: Vec<String> =
            command.split(' ').map(|word| word.replace('@', &format!("{}/", root.display()))).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = test.run(&words);
        let text = if words[0] == "run" { test.read("run.json") } else { ran.stdout };
        // One document, or one in each line.
        let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let documents: Vec<Value> = documents.map(|one| one.expect(command)).collect();
        assert!(!documents.is_empty(), "{command}: {}", ran.stderr);
        for document in documents {
            let schema = document["schema"].as_str().unwrap_or_else(|| panic!("{command}: {document}"));
            add_keys(&document, &types, all.entry(schema.to_owned()).or_default());
        }
    }
    all
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
}

/// Fields of a type, with the first sentences of their comments.
type Fields = BTreeMap<String, String>;

/// Types that can be written as JSON.
fn types() -> Vec<Fields> {
    let mut types: Vec<Fields> = Vec::new();
    for one in CRATES {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(one).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            let (mut comment, mut is_written) = (String::new(), false);
            for line in text.lines().map(str::trim) {
                if let Some(words) = line.strip_prefix("///") {
                    comment.push(' ');
                    comment.push_str(words.trim());
                } else if line.starts_with("#[derive") {
                    is_written = line.contains("Serialize");
                } else if line.contains("struct ") {
                    types.push(Fields::new());
                    comment.clear();
                } else if !line.starts_with("#[") {
                    let field = line.strip_suffix(',').and_then(|line| line.split_once(": "));
                    if let Some((name, _)) = field.filter(|_| is_written && !comment.is_empty()) {
                        let name = name.rsplit(' ').next().unwrap_or(name);
                        let sentence = comment.trim().split(". ").next().unwrap_or_default();
                        let sentence = sentence.trim_end_matches('.').replace('|', "\\|");
                        if let Some(fields) = types.last_mut() {
                            fields.insert(name.to_owned(), sentence);
                        }
                    }
                    comment.clear();
                }
            }
        }
    }
    types
}

#[test]
fn the_reference_names_every_key_of_json_output() {
    let written = written_keys();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    if std::env::var_os("FLOODMARK_WRITE_DOCS").is_some() {
        let mut text = String::from(
            "# Keys of JSON output\n\nMade from the comments in the code; after a change run\n\
             `FLOODMARK_WRITE_DOCS=1 cargo test -p floodmark --test it every_key`. `schema` in the output names the \
             section.\nKeys end in their unit: `_bytes`, `_ns` (nanoseconds; times are since 1970 or, for logs \
             without a date, since midnight).\nA key that occurs in several objects of an output may have several \
             meanings.\n",
        );
        for (schema, keys) in &written {
            let _ = write!(text, "\n## {schema}\n\n| key | meaning |\n|---|---|\n");
            for (key, words) in keys {
                let words = words.iter().take(MOST_MEANINGS).cloned().collect::<Vec<_>>().join("; or: ");
                let _ = writeln!(text, "| `{key}` | {words} |");
            }
        }
        fs::write(&path, text).unwrap();
    }
    let reference = fs::read_to_string(&path).unwrap_or_default();
    let mut missing = Vec::new();
    for (schema, keys) in &written {
        let section = reference.split(&format!("\n## {schema}\n")).nth(1).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let is_missing = |key: &&String| match section.split(&format!("\n| `{key}` | ")).nth(1) {
            Some(row) => row.starts_with('|') || row.starts_with(" |"),
            None => true,
        };
        missing.extend(keys.keys().filter(is_missing).map(|key| format!("{schema}: {key}")));
    }
    assert!(missing.is_empty(), "docs/json.md does not explain {missing:#?}");
}
