//! Reads any bytes as a manifest; what is accepted is written and read again unchanged.

#![no_main]

use std::path::Path;

use floodmark_store::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("manifest.json");
    if let Ok(manifest) = Manifest::parse(bytes, path) {
        for part in &manifest.parts {
            assert!(part.path(Path::new("/trace")).starts_with("/trace"));
        }
        let _ = (manifest.all_losses(), manifest.next_order());
        let text = manifest.to_text().expect("serializes");
        assert_eq!(Manifest::parse(&text, path).expect("reads back"), manifest);
    }
});
