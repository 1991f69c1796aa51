//! The seeds of the fuzzers for manifest and tail, run as ordinary tests.

use std::fs;
use std::path::Path;

use floodmark_store::Manifest;
use floodmark_tail::reader::RingReader;
use floodmark_tail::record::{Decoder, Record};
use floodmark_tail::segment;

/// Calls `each` with every seed of a fuzzer.
fn seeds(target: &str, mut each: impl FnMut(&str, &[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the seeds").flatten() {
        each(&entry.file_name().to_string_lossy(), &fs::read(entry.path()).expect("a seed"));
        count += 1;
    }
    assert!(count >= 3, "{count} seeds for {target}");
}

#[test]
fn every_manifest_seed_is_read_or_refused() {
    seeds("manifest", |name, bytes| {
        let read = Manifest::parse(bytes, Path::new(name));
        assert_eq!(read.is_ok(), name == "sealed.json", "{name}");
        if let Ok(manifest) = read {
            let text = manifest.to_text().expect("serializes");
            assert_eq!(Manifest::parse(&text, Path::new(name)).expect("reads back"), manifest);
        }
    });
}

#[test]
fn every_tail_seed_is_read_without_panic() {
    let (mut records, mut observed) = (0, 0);
    seeds("tail", |_, bytes| {
        let mut decoder = Decoder::new(0);
        while let Ok(Some(record)) = decoder.next(bytes) {
            records += 1;
            observed += u64::from(!matches!(record, Record::Event(_)));
        }
        let _ = segment::frames(bytes).count();
        if let Ok(reader) = RingReader::new(bytes) {
            assert!(reader.process().is_ok());
        }
    });
    assert!(records > 300 && observed > 100, "{records}, of them {observed} no events");
}
