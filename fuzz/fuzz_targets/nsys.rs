//! Reads any bytes as an export of Nsight Systems: both halves, strictly and leniently, end without panic
//! and with no more events than the bytes have room for.

#![no_main]

use floodmark_convert::{Mode, OpenProps, open};
use floodmark_event::EventBatch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // What is no database is refused before anything of it is read.
    let mut file = b"SQLite format 3\0".to_vec();
    file.extend_from_slice(bytes.get(16..).unwrap_or(bytes));
    let path = std::env::temp_dir().join(format!("floodmark-fuzz-nsys-{}", std::process::id()));
    std::fs::write(&path, &file).expect("a temporary file");
    for mode in [Mode::Strict, Mode::Lenient] {
        let props = OpenProps { mode, ..OpenProps::default() };
        let Ok(export) = open(&path, &props) else { continue };
        let (Ok(mut events), Ok(mut seen)) = (export.events(), export.rows()) else { continue };
        let (mut batch, mut rows, mut count) = (EventBatch::new(), Vec::new(), 0);
        while let Ok(true) = events.next(&mut batch) {
            count += batch.len();
        }
        // A teardown may free each of them once more.
        assert!(count <= file.len(), "more events than bytes");
        while let Ok(true) = seen.next(&mut rows) {}
    }
});
