//! The seeds of the fuzzer, run as an ordinary test.

use std::fs;
use std::path::Path;

use floodmark_convert::OpenProps;

use crate::logs::{Pieces, lenient, read_to_end, strict};
use crate::sample_logs::{self, FORMATS, drain, source};

#[test]
fn every_seed_of_the_fuzzer_is_read_without_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rmm_csv");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the seeds") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("a seed");
        let (strict, ..) = read_to_end(&*bytes, &strict());
        let (lenient, ..) = read_to_end(&*bytes, &lenient());
        assert!(lenient.starts_with(&strict), "a lenient reading goes further");
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn every_seed_of_the_fuzzers_of_samples_is_read_without_panic() {
    for (name, format) in FORMATS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut count = 0;
        for entry in fs::read_dir(folder).expect("the seeds") {
            let bytes = fs::read(entry.expect("an entry").path()).expect("a seed");
            for props in [OpenProps::default(), sample_logs::lenient()] {
                let whole = drain(source(format, &*bytes, &props));
                let pieces = drain(source(format, Pieces::new(&bytes, vec![3, 64, 7]), &props));
                assert_eq!((pieces.rows, pieces.error), (whole.rows, whole.error), "{name}");
            }
            count += 1;
        }
        assert!(count > 3, "{name}");
    }
}
