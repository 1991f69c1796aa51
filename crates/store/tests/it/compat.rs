//! Every released version of the format keeps a fixture that must still open.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_event::tail::{self, Place, RecordProps, Recorder};
use floodmark_event::{Kind, StackId};
use floodmark_store::manifest::FORMAT_VERSION;
use floodmark_store::{ScanProps, Trace};

use crate::traces::{Folder, event, meaning, read, tables, write};

fn fixtures(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/fixtures/v{version}"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creates");
    for entry in fs::read_dir(from).expect("a fixture").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copies");
        }
    }
}

#[test]
fn every_version_still_opens() {
    for version in 1..=FORMAT_VERSION {
        let folder = Folder::new(&format!("compat-{version}"));
        let fixture = fixtures(version);
        assert!(
            fixture.exists(),
            "format version {version} has no fixture; make it with\n  cargo test -p floodmark-store --test it -- --ignored write_the_fixture"
        );
        // Opening seals a tail, so copies are opened.
        copy(&fixture, &folder.0);
        let tables = tables();
        let expected: Vec<_> = (0..500).map(|index| meaning(&event(index), &tables)).collect();
        assert_eq!(read(&folder.join("sealed"), &ScanProps::default()), expected);
        let events = read(&folder.join("unsealed"), &ScanProps::default());
        assert_eq!(events.len(), 600);
        for (index, (event, resource, _, stack)) in (0..).zip(events) {
            assert_eq!((event.address, event.bytes, event.kind), (index << 8, index, Kind::Pinned));
            assert_eq!((resource.as_str(), stack.len()), ("pool", 1));
        }
        assert!(!Trace::open(&folder.join("unsealed")).expect("opens").is_live());
    }
}

#[test]
#[ignore = "writes the fixture of a new format version into the source tree"]
fn write_the_fixture() {
    let target = fixtures(FORMAT_VERSION);
    write(&target.join("sealed"), &[(0..500).map(event).collect()], &tables());
    let unsealed = target.join("unsealed");
    let recorder = Recorder::start(RecordProps::new(&unsealed)).expect("starts");
    let function = tail::intern("allocate");
    let frame = tail::intern_frame(&floodmark_event::tables::Frame { function, ..Default::default() });
    let stack = tail::intern_stack(StackId(0), frame);
    let place = Place { kind: Kind::Pinned, resource: tail::intern("pool"), ..Place::default() };
    for index in 0..600 {
        tail::alloc(index << 8, index, &place, stack);
    }
    recorder.stop();
    // The machine on which the fixture is made is nobody's business.
    for entry in fs::read_dir(unsealed.join("segments")).expect("segments").flatten() {
        let mut bytes = fs::read(entry.path()).expect("reads");
        bytes[152..728].fill(0);
        fs::write(unsealed.join("segments/node-1-1.ring"), bytes).expect("writes");
        fs::remove_file(entry.path()).expect("removes");
    }
}
