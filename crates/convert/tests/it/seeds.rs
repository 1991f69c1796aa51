//! The seeds of the fuzzer, run as an ordinary test.

use std::fs;
use std::path::Path;

use crate::logs::{lenient, read_to_end, strict};

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
