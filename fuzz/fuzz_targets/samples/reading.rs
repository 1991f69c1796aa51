//! What must hold for every format of samples, whatever the bytes.
//!
//! Beyond not panicking: blocks make no difference, subjects of all samples are known, and ids point to
//! something.

use std::io::Read;
use std::path::Path;

use floodmark_convert::{Mode, OpenProps, SampleSource, Seen};

/// Gives a few bytes at a time, more each time.
struct Growing<'a>(&'a [u8], usize);

impl Read for Growing<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.1 = (self.1 + 7) % 97 + 1;
        let len = self.1.min(room.len());
        self.0.read(&mut room[..len])
    }
}

fn read(mut source: Box<dyn SampleSource + '_>) -> Rows {
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    let error = loop {
        match source.next(&mut rows) {
            Ok(true) => all.append(&mut rows),
            Ok(false) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let tables = source.tables();
    for row in &all {
        match row {
            Seen::Sample(row) => assert!(tables.subjects.contains_key(&row.subject)),
            Seen::Stack(row) => assert!(!tables.stack_text(row.stack).is_empty()),
            Seen::Output(row) => assert!(!row.bytes.is_empty()),
            Seen::Scope(row) => assert!(row.scope != 0),
            Seen::Log(row) => assert!(!row.text.is_empty()),
        }
    }
    (all, error)
}

/// All rows, and the error that ended them.
pub type Rows = (Vec<Seen>, Option<String>);

/// Reads `bytes` in both modes, strict and lenient, and in blocks of odd sizes.
pub fn check<'a>(
    bytes: &'a [u8],
    open: impl Fn(Box<dyn Read + Send + 'a>, &Path, &OpenProps) -> Box<dyn SampleSource + 'a>,
) -> [Rows; 2] {
    [Mode::Strict, Mode::Lenient].map(|mode| {
        let props = OpenProps { mode, ..OpenProps::default() };
        let whole = read(open(Box::new(bytes), Path::new("log"), &props));
        assert_eq!(read(open(Box::new(Growing(bytes, 0)), Path::new("log"), &props)), whole);
        whole
    })
}
