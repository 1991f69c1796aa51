//! Opening files by what is in them.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use floodmark_convert::{Format, Mode, OpenProps, group_devices, open, recognize};
use floodmark_event::ProcessId;
use floodmark_store::Progress;
use floodmark_testkit::TempDir;

use crate::logs::{drain, folder, gaps};

fn refusal(path: &Path) -> String {
    match open(path, &OpenProps::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_log_of_the_fixtures_is_recognized_and_all_but_one_open() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            assert_eq!(recognize(&path).ok(), Some(Format::RmmCsv), "{}", path.display());
            let is_legacy = path.ends_with("legacy_12_columns.csv");
            assert_eq!(
                open(&path, &OpenProps::default()).and_then(|log| log.events()).is_err(),
                is_legacy,
                "{}",
                path.display()
            );
            count += 1;
        }
    }
    assert!(count > 15);
}

#[test]
fn the_name_of_a_file_does_not_matter() {
    let scratch = TempDir::new("name");
    let path = scratch.join("log.sqlite");
    fs::copy(folder().join("golden.csv"), &path).expect("a copy");
    let mut events = Vec::new();
    let mut source = open(&path, &OpenProps::default()).and_then(|log| log.events()).expect("a log");
    drain(&mut *source, &mut events).expect("good rows");
    assert_eq!(events.len(), 10);
}

#[test]
fn properties_reach_the_reader() {
    let props =
        OpenProps { mode: Mode::Lenient, device: Some(3), process: ProcessId(9), ..OpenProps::default() };
    let path = folder().join("malformed.csv");
    let mut source = open(&path, &props).and_then(|log| log.events()).expect("a log");
    let mut events = Vec::new();
    drain(&mut *source, &mut events).expect("lenient");
    assert!(events.iter().all(|event| (event.device, event.process) == (3, ProcessId(9))));
    assert!(!source.losses().is_empty());
    let total = fs::metadata(&path).expect("a file").len();
    assert_eq!(source.progress(), Progress { done: total, total: Some(total) });
}

#[test]
fn a_trace_is_recognized_by_what_is_in_its_folder() {
    let folder = TempDir::new("traces");
    for (name, inside) in [("a.flood", "segments"), ("b", "segments")] {
        fs::create_dir_all(folder.join(name).join(inside)).expect("a folder");
        assert_eq!(recognize(&folder.join(name)).ok(), Some(Format::Trace));
    }
    fs::create_dir(folder.join("c")).expect("a folder");
    assert!(refusal(&folder.join("c")).contains("it is a directory with neither manifest.json nor segments"));
    fs::write(folder.join("c/manifest.json"), "{}").expect("a file");
    assert_eq!(recognize(&folder.join("c")).ok(), Some(Format::Trace));
    assert!(refusal(&folder.join("c")).contains("it is a trace"), "traces are opened by the store");
}

#[test]
fn a_file_that_is_not_recognized_is_described() {
    let folder = TempDir::new("unknown");
    for (name, bytes, look) in [
        ("empty.csv", &b""[..], "it is empty"),
        ("words.csv", b"Lorem ipsum", "it is text that begins with 'Lorem ipsum'"),
        ("a.csv.xz", b"\xfd7zXZ\0", "it is compressed with xz; try: xz -dc "),
    ] {
        fs::write(folder.join(name), bytes).expect("a file");
        let text = refusal(&folder.join(name));
        assert!(
            text.contains(look)
                && text.contains("known formats: trace directory, memory_logger log, RMM log (CSV)"),
            "{text}"
        );
    }
    assert!(refusal(&folder.join("missing.csv")).starts_with("opening "));
    fs::write(folder.join("cut.csv.gz"), b"\x1f\x8b\x08\0\0").expect("a file");
    assert!(refusal(&folder.join("cut.csv.gz")).starts_with("decompressing "));
}

#[test]
fn a_log_that_is_compressed_with_gzip_is_read_as_it_was() {
    let folder = TempDir::new("gzip");
    let log = fs::read(crate::logs::folder().join("golden.csv")).expect("a log");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &log).expect("memory takes everything");
    let path = folder.join("golden.csv.gz");
    fs::write(&path, packed.finish().expect("memory takes everything")).expect("a file");
    let mut source = open(&path, &OpenProps::default()).and_then(|log| log.events()).expect("a log");
    let mut events = Vec::new();
    drain(&mut *source, &mut events).expect("good rows");
    assert_eq!(events.len(), crate::logs::events(&*log).len());
}

#[test]
fn two_devices_of_one_process_open_as_such() {
    let paths = [folder().join("pair.dev0.csv"), folder().join("pair.dev1.csv"), folder().join("golden.csv")];
    let processes = group_devices(&paths);
    assert_eq!(processes, [1, 1, 2].map(ProcessId));
    let mut devices = Vec::new();
    for (path, process) in paths.iter().zip(processes) {
        let mut events = Vec::new();
        let mut source = open(path, &OpenProps { process, ..OpenProps::default() })
            .and_then(|log| log.events())
            .expect("a log");
        drain(&mut *source, &mut events).expect("good rows");
        devices.push((events[0].process.0, events[0].device));
    }
    assert_eq!(devices, [(1, 0), (1, 1), (2, 0)]);
}

#[test]
fn a_cut_off_gzip_file_is_read_up_to_the_cut() {
    let scratch = TempDir::new("cut-gzip");
    let path = scratch.join("log.csv.gz");
    let log = fs::read(folder().join("rmm_26.10_h200_head.csv")).expect("a log");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&log).expect("memory takes everything");
    let packed = packed.finish().expect("memory takes everything");
    let read = |len: usize| {
        fs::write(&path, &packed[..len]).expect("a file");
        let mut events = Vec::new();
        let mut source = open(&path, &OpenProps::default()).and_then(|log| log.events()).expect("a log");
        drain(&mut *source, &mut events).expect("rows up to the cut");
        (events, gaps(&source.losses()).iter().map(|(_, reason)| (*reason).to_owned()).collect::<Vec<_>>())
    };
    let (all, losses) = read(packed.len());
    assert_eq!((all.len(), losses.len()), (8000, 0));
    for len in [packed.len() / 2, packed.len() - 3] {
        let (events, losses) = read(len);
        assert!(!events.is_empty() && all.starts_with(&events), "{} events", events.len());
        assert_eq!(losses.last().map(String::as_str), Some("the compressed file is cut off"));
    }
}
