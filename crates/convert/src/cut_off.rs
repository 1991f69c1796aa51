//! Adds to the losses of a compressed file that it is cut off.

use floodmark_event::{EventBatch, Row, Tables};
use floodmark_store::{Losses, Progress, Result, RowSource, Source};

use crate::decompress::CutOff;

/// Why events after the cut are missing. How many there were cannot be known.
const REASON: &str = "the compressed file is cut off";

/// Events of a compressed file.
pub(crate) struct CutEvents(Box<dyn Source>, CutOff);

impl CutEvents {
    /// Returns `source` itself if its file is not compressed.
    pub(crate) fn over(source: Box<dyn Source>, cut_off: Option<CutOff>) -> Box<dyn Source> {
        match cut_off {
            Some(cut_off) => Box::new(Self(source, cut_off)),
            None => source,
        }
    }
}

impl Source for CutEvents {
    fn tables(&self) -> &Tables {
        self.0.tables()
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        self.0.next(batch)
    }

    fn losses(&self) -> Losses {
        with_cut(self.0.losses(), &self.1)
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }

    fn place(&self, event: u64) -> Option<String> {
        self.0.place(event)
    }
}

/// Rows of a compressed file.
pub(crate) struct CutRows(Box<dyn RowSource>, CutOff);

impl CutRows {
    /// Returns `source` itself if its file is not compressed.
    pub(crate) fn over(source: Box<dyn RowSource>, cut_off: Option<CutOff>) -> Box<dyn RowSource> {
        match cut_off {
            Some(cut_off) => Box::new(Self(source, cut_off)),
            None => source,
        }
    }
}

impl RowSource for CutRows {
    fn tables(&self) -> &Tables {
        self.0.tables()
    }

    fn next(&mut self, rows: &mut Vec<Row>) -> Result<bool> {
        self.0.next(rows)
    }

    fn losses(&self) -> Losses {
        with_cut(self.0.losses(), &self.1)
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }
}

fn with_cut(mut losses: Losses, cut_off: &CutOff) -> Losses {
    if cut_off.is_cut() {
        losses.add(0, REASON);
    }
    losses
}
