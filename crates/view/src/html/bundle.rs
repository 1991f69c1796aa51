//! Proves that the page in `assets/` was built from what is in `web/`, where no Node is at hand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::data::{
    Breakdown, Ceiling, CellKind, Chart, CumulativeAllocations, Detail, Document, Dot, DotThread, Finding,
    Forest, Head, Map, MarkAt, Output, Part, Parts, PeakAt, Phrase, RangeColumns, RankMap, SCHEMA, Sentence,
    Series, Severity, Snapshots, Table, Target, TargetTime,
};

/// Largest page without data.
const BUDGET: usize = 170_000;

#[derive(serde::Deserialize)]
struct Bundle {
    sources: BTreeMap<String, String>,
    outputs: BTreeMap<String, String>,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_page_was_built_from_its_sources() {
    let assets = root().join("crates/view/assets");
    let bundle = fs::read(assets.join("BUNDLE.json")).expect("the bundle is listed");
    let bundle: Bundle = serde_json::from_slice(&bundle).expect("the list is JSON");
    let remedy = "run 'npm ci && npm run build' in web/";
    for (files, dir) in [(&bundle.sources, root()), (&bundle.outputs, &assets)] {
        for (name, digest) in files {
            let bytes = fs::read(dir.join(name)).unwrap_or_default();
            assert_eq!(&sha256(&bytes), digest, "{name} has changed; {remedy}");
        }
    }
    for entry in fs::read_dir(root().join("web/src")).expect("the sources are there") {
        let name = format!("web/src/{}", entry.expect("it can be read").file_name().to_string_lossy());
        assert!(bundle.sources.contains_key(&name), "{name} is new; {remedy}");
    }
    let page = fs::read(assets.join("report.html")).expect("the page is there");
    assert!(page.len() < BUDGET, "the page has {} bytes without data", page.len());
}

#[test]
fn both_languages_name_the_same_fields() {
    let head = Head { name: "", kind: CellKind::Text };
    let document = Document {
        story: vec![Sentence {
            parts: vec![Phrase {
                text: String::new(),
                to: Some(Target {
                    at: Some(TargetTime::Name("peak")),
                    span: Some(Part { from: 0, to: 0 }),
                    ..Target::default()
                }),
            }],
        }],
        active: Some(Part { from: 0, to: 0 }),
        findings: vec![Finding { level: Severity::Note, text: String::new() }],
        charts: vec![Chart {
            series: vec![Series::default()],
            parts: Some(Parts::default()),
            ceilings: vec![Ceiling::default()],
            peak: Some(PeakAt { time: 0, bytes: 0 }),
            ..Chart::default()
        }],
        marks: vec![MarkAt { time: 0, name: String::new() }],
        snapshots: Some(Snapshots {
            forests: vec![Forest::default()],
            breakdowns: vec![Breakdown::default()],
            maps: vec![Map::default()],
            cumulative: Some(CumulativeAllocations::default()),
            ..Snapshots::default()
        }),
        tables: vec![Table {
            columns: vec![head],
            details: vec![vec![Detail { text: String::new(), stack: 0 }]],
            ..Table::default()
        }],
        dots: vec![Dot {
            time: 0,
            reason: "",
            threads: vec![DotThread { who: String::new(), stack: 0, waits: false }],
            omitted: 0,
        }],
        ranges: Some(RangeColumns::default()),
        ranks: Some(RankMap::default()),
        output: Some(Output::default()),
        ..Document::default()
    };
    let theirs = fs::read_to_string(root().join("web/src/data.ts")).expect("the contract is there");
    let value = serde_json::to_value(&document).expect("it is JSON");
    let mut pending = vec![&value];
    while let Some(value) = pending.pop() {
        pending.extend(value.as_array().into_iter().flatten());
        for (key, value) in value.as_object().into_iter().flatten() {
            assert!(theirs.contains(&format!(" {key}: ")), "web/src/data.ts lacks {key}");
            pending.push(value);
        }
    }
    assert!(theirs.contains(SCHEMA));
}

#[test]
fn digests_are_those_of_the_standard() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let two_blocks = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
    let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!([&b""[..], b"abc", long].map(sha256), [empty, abc, two_blocks]);
}

/// The SHA-256 of some bytes, in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    let primes = || (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    // The first bits behind the point of the roots of the first primes.
    let fraction = |root: f64| ((root - root.floor()) * 4_294_967_296.0) as u32;
    let mut state: Vec<u32> = primes().take(8).map(|prime| fraction((prime as f64).sqrt())).collect();
    let keys: Vec<u32> = primes().take(64).map(|prime| fraction((prime as f64).cbrt())).collect();
    let mut message = bytes.to_vec();
    message.push(0x80);
    message.resize(message.len().next_multiple_of(64), 0);
    if bytes.len() % 64 >= 56 {
        message.resize(message.len() + 64, 0);
    }
    let end = message.len() - 8;
    message[end..].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    for block in message.chunks(64) {
        mix(&mut state, &keys, block);
    }
    state.iter().fold(String::new(), |mut text, word| {
        let _ = write!(text, "{word:08x}");
        text
    })
}

fn mix(state: &mut [u32], keys: &[u32], block: &[u8]) {
    let mut words: Vec<u32> =
        block.chunks(4).map(|word| word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect();
    for at in 16..64 {
        let (near, far) = (words[at - 15], words[at - 2]);
        let near = near.rotate_right(7) ^ near.rotate_right(18) ^ (near >> 3);
        let far = far.rotate_right(17) ^ far.rotate_right(19) ^ (far >> 10);
        words.push(words[at - 16].wrapping_add(near).wrapping_add(words[at - 7]).wrapping_add(far));
    }
    let mut now = state.to_vec();
    for (word, key) in words.iter().zip(keys) {
        let turned = now[4].rotate_right(6) ^ now[4].rotate_right(11) ^ now[4].rotate_right(25);
        let choice = (now[4] & now[5]) ^ (!now[4] & now[6]);
        let sum = now[7].wrapping_add(turned).wrapping_add(choice).wrapping_add(*key).wrapping_add(*word);
        let other = now[0].rotate_right(2) ^ now[0].rotate_right(13) ^ now[0].rotate_right(22);
        let majority = (now[0] & now[1]) ^ (now[0] & now[2]) ^ (now[1] & now[2]);
        now.rotate_right(1);
        now[4] = now[4].wrapping_add(sum);
        now[0] = sum.wrapping_add(other).wrapping_add(majority);
    }
    for (word, more) in state.iter_mut().zip(now) {
        *word = word.wrapping_add(more);
    }
}
