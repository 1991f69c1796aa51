//! Snapshots that somebody or something has damaged, and pickles that are none.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use floodmark_convert::{OpenProps, open};
use floodmark_testkit::TempDir;
use proptest::prelude::*;

use crate::snapshots::{lenient, pickled, read, try_read};

fn error(bytes: &[u8]) -> String {
    try_read(bytes, &OpenProps::default()).err().expect("it cannot be read")
}

#[test]
fn nothing_of_a_pickle_is_ever_run() {
    let folder = TempDir::new("ran");
    let marker = folder.join("marker");
    let evil = format!(
        "type('E', (), {{'__reduce__': lambda self: (__import__('os').system, ('touch {}',))}})()",
        marker.display()
    );
    for (protocol, opcode) in [(0, "GLOBAL"), (2, "GLOBAL"), (4, "STACK_GLOBAL"), (5, "STACK_GLOBAL")] {
        let message = error(&pickled(&format!("{{'segments': [], 'x': {evil}}}"), protocol));
        assert!(message.starts_with("snapshot.pickle:byte "), "{message}");
        let what = format!("{opcode}: it would import 'posix.system'; nothing of a file is run");
        assert!(message.contains(&what), "{message}");
    }
    assert!(!marker.exists());
    for (bytes, part) in [
        (&b"\x80\x02(cos\nsystem\nU\x02lso."[..], "byte 3: GLOBAL: it would import 'os.system'"),
        (b"\x80\x02(Icos\n", "byte 3: INT: 'cos' is no number"),
        (b"\x80\x02)\x81.", "byte 3: NEWOBJ: it would make an object of a class"),
        (
            b"\x80\x02Ptensor\n.",
            "byte 2: PERSID: it stands for something outside the file, as in files of torch.save",
        ),
        (b"\x80\x02NR.", "byte 3: REDUCE: the stack is empty"),
        (b"\x80\x02NNR.", "byte 4: REDUCE: it would call something"),
        (b"\x80\x09.", "byte 0: PROTO: protocol 9 is not known"),
        (b"\x80\x02\xff", "byte 2: ?: there is no opcode 0xff"),
        (b"\x80\x02.", "byte 2: STOP: the stack is empty"),
        (b"\x80\x02}X\xff\xff\xff\xff", "byte 3: BINUNICODE: its 4294967295 bytes are more than"),
        (b"\x80\x02}X\x10\0\0\0ab", "byte 3: the file ends in the middle of BINUNICODE"),
        (b"\x80\x02}h\x05.", "byte 3: BINGET: the memo has no value 5"),
        (b"\x80\x02Nu.", "byte 3: SETITEMS: no mark was set"),
        (b"\x80\x02", "byte 2: the file ends before the pickle does"),
        (b"\x80\x02}.", "snapshot: it has neither segments nor device_traces"),
        (b"\x80\x02].", "snapshot: it is no dict"),
    ] {
        let message = error(bytes);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_file_of_torch_save_is_called_that() {
    // The number with which files of old versions begin.
    assert!(error(&pickled("0x1950a86a20f9469cfc6c", 2)).contains("files of torch.save begin so"));
    let folder = TempDir::new("save");
    let path = folder.join("model.pt");
    fs::write(&path, b"PK\x03\x04\0\0\0\0archive/data.pkl").expect("a file");
    let message = open(&path, &OpenProps::default()).err().expect("not a snapshot").to_string();
    assert!(message.contains("it is a zip archive, as torch.save writes"), "{message}");
}

#[test]
fn lists_that_the_memo_multiplies_are_not_taken_apart() {
    // Each of 40 lists holds the one before it ten times.
    let laughs = "(lambda l: [l := [l]*10 for _ in range(40)][-1])([e('alloc', 1, 1, 0)])";
    let message = error(&pickled(&format!("snap({laughs}, [])"), 4));
    assert!(message.contains("device_traces[0]: an entry has no action"), "{message}");
    let shared = "(lambda t: snap([t]*1000, []))([e('alloc', 4096, 1, 0)])";
    assert!(error(&pickled(shared, 4)).contains("device_traces[1]: it is the same list as another one"));
    let shared = "(lambda t: snap([], [s(4096, 8192, t), s(8192, 8192, t)]))([b(4096, 512, 1)])";
    assert!(error(&pickled(shared, 4)).contains("segments[1]: it is the same list as another one"));
}

#[test]
fn containers_that_hold_themselves_are_no_trouble() {
    let cyclic =
        "(lambda l: (l.append(l), snap([[dict(action='alloc', addr=1, size=2, frames=l)]], []))[1])([])";
    assert!(error(&pickled(cyclic, 4)).contains("frames hold something that is no frame"));
    let read = try_read(&pickled(cyclic, 4), &lenient()).expect("it is passed over");
    assert_eq!(read.events.len(), 1);
    let cyclic = "(lambda d: (d.update(again=d), d)[1])(snap([], []))";
    assert!(try_read(&pickled(cyclic, 4), &OpenProps::default()).is_ok());
    let deep = "(lambda l: [l := [l] for _ in range(20000)][-1])([])";
    assert!(try_read(&pickled(&format!("snap([], [], x={deep})"), 2), &OpenProps::default()).is_ok());
}

#[test]
fn sizes_beyond_all_memory_do_not_wrap() {
    for size in ["2**63", "2**64-1", "2**63-1"] {
        let bytes = pickled(
            &format!(
                "snap([[e('segment_alloc', 2**64-10, {size}, 0), e('alloc', 2**64-10, {size}, 1), \
                 e('segment_unmap', 5, {size}, 2), e('alloc', 7, {size}, 2**62)]], \
                 [s(4096, {size}, [b(4096, {size}, {size}), b(2**64-1, {size}, 1)])])"
            ),
            4,
        );
        assert!(!try_read(&bytes, &OpenProps::default()).expect("numbers are numbers").events.is_empty());
    }
    for trace in [
        "e('segment_alloc', 100, 2**64-1, 0), e('segment_map', 200, 512, 1)",
        "e('segment_alloc', 2**64-512, 2**20, 0), e('alloc', 2**64-512, 512, 1)",
    ] {
        let bytes = pickled(&format!("snap([[{trace}]], [])"), 4);
        assert!(!try_read(&bytes, &OpenProps::default()).expect("numbers are numbers").events.is_empty());
    }
    let bytes = pickled("snap([[e('alloc', 4096, 2**64, 0)]], [])", 4);
    assert!(error(&bytes).contains("in a trace, size is no whole number"));
    let bytes = pickled("snap([[e('alloc', 4096, -1, 0), e('alloc', 1, 1, 0)]], [])", 4);
    let read = try_read(&bytes, &lenient()).expect("it is passed over");
    assert_eq!(read.events.len(), 1);
}

#[test]
fn memory_stays_below_a_multiple_of_the_file() {
    let mut bytes = b"\x80\x02".to_vec();
    bytes.resize(8 << 20, b']');
    assert!(error(&bytes).contains("EMPTY_LIST: what was read so far would take more than"));
}

fn fixture() -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch/snapshot_torch2.11.pickle.gz");
    let file = fs::File::open(path).expect("the fixture");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("the fixture");
    bytes
}

#[test]
fn a_snapshot_cut_off_anywhere_is_an_error_that_says_where() {
    let bytes = fixture();
    for cut in (1..bytes.len()).step_by(bytes.len() / 8).chain([bytes.len() - 1]) {
        let message = error(&bytes[..cut]);
        assert!(
            message.starts_with("snapshot.pickle:byte ") && message.contains("the file ends"),
            "{message}"
        );
    }
}

#[test]
fn a_gzip_file_that_is_cut_off_is_an_error() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch/snapshot_torch2.11.pickle.gz");
    let whole = fs::read(path).expect("the fixture");
    let input = flate2::read::MultiGzDecoder::new(&whole[..whole.len() / 2]);
    let result = floodmark_convert::torch::open(input, Path::new("x"), &OpenProps::default());
    assert!(result.is_err());
}

/// Everything that must hold whatever the bytes are.
fn check(bytes: &[u8]) {
    for props in [OpenProps::default(), lenient()] {
        if let Ok(read) = try_read(bytes, &props) {
            assert!(read.rows.is_sorted_by_key(floodmark_event::Row::time_ns));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes);
        check(&[b"\x80\x04}", &*bytes].concat());
    }

    #[test]
    fn flipped_bits_are_read_or_refused(flips in proptest::collection::vec((0usize..4000, 0u8..8), 1..4)) {
        static SMALL: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| pickled(
            "snap([[e('segment_map', 4096, 2*M, 0), e('alloc', 4096, 100, 1), e('segment_unmap', 8192, 4096, 2), \
             e('free_requested', 4096, 100, 3), e('free_completed', 4096, 100, 4), e('oom', 1, 2, 5, device_free=3)]], \
             [s(4096, 2*M, [b(4096, 512, 100), b(4608, 512, 3)])], external_annotations=[{'stage': 'START', \
             'name': 'x', 'device': 0, 'time_us': 5}])", 4));
        let mut bytes = SMALL.clone();
        for (at, bit) in flips {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
        }
        check(&bytes);
    }
}

#[test]
fn every_seed_of_the_fuzzer_is_read_without_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/torch");
    let seeds: Vec<_> = fs::read_dir(folder).expect("the seeds").collect();
    assert!(seeds.len() > 5);
    for seed in seeds {
        check(&fs::read(seed.expect("an entry").path()).expect("a seed"));
    }
}

#[test]
fn reading_in_small_pieces_makes_no_difference() {
    let bytes = fixture();
    let whole = read(&bytes);
    let pieces = crate::logs::Pieces::new(&bytes, vec![1, 7, 4096, 3, 70_000]);
    let halves = floodmark_convert::torch::open(pieces, Path::new("x"), &OpenProps::default()).expect("good");
    let other = crate::snapshots::drain(halves);
    assert!(whole.events == other.events && whole.rows == other.rows);
}
