//! Runs folds over the events of an input, while another thread reads ahead.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use floodmark_analyze::{Caveats, CaveatsFold, Fold, Pass, SnapshotPass, Snapshots};
use floodmark_event::{EventBatch, Filter, Row, Tables};
use floodmark_store::columns::EVENT_COLUMNS;
use floodmark_store::{RowSource, ScanProps, Source};

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::progress::ProgressListener;
use crate::query::Query;

/// Batches that go around, about 6 MB: one is read, one is folded, the others wait.
///
/// Those of processes that ran at the same time come in bursts, because all runs of such a trace need their next
/// rows at about the same moment, and the fold must not wait for that: `stats` of eight processes takes 1.44 times
/// as long as of one with three batches, and 1.22 times with sixteen.
const BATCHES: usize = 16;

/// Which columns of a trace to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Every column.
    All,
    /// Every column but those that name an origin: stream, stack, scope and name.
    Figures,
}

impl Columns {
    /// Returns what a scan has to read for `filter`, which may need a column of its own.
    pub fn scan(self, filter: &Filter) -> ScanProps {
        let origins = ["stream", "stack", "scope", "name"];
        let wanted =
            |column: &&str| !origins.contains(column) || (*column == "stream" && filter.streams.is_some());
        let figures = EVENT_COLUMNS.into_iter().filter(wanted);
        ScanProps { columns: (self == Self::Figures).then(|| figures.collect()), ..ScanProps::default() }
    }
}

/// An answer, and the pass and the source that made it.
pub struct Folded<F: Fold> {
    /// The answer.
    pub answer: Answer<F::Output>,
    /// The pass, for folds that keep more than they return.
    pub pass: Pass<(F, CaveatsFold)>,
    /// The source, whose tables name what ids point to.
    pub source: Box<dyn Source>,
}

impl Input {
    /// Runs a fold over the selected events.
    ///
    /// # Errors
    /// If the input has samples instead of events, or cannot be read.
    pub fn fold<F: Fold>(&self, query: &Query<'_>, columns: Columns, fold: F) -> Result<Folded<F>> {
        let folded = self.fold_any(query, columns, fold)?;
        if folded.answer.caveats.events_read == 0 {
            self.refuse_samples()?;
        }
        Ok(folded)
    }

    /// Runs a fold over the selected events, which may be none.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn fold_any<F: Fold>(&self, query: &Query<'_>, columns: Columns, fold: F) -> Result<Folded<F>> {
        let query = Query::new(self.anchored(&query.filter)?, query.progress);
        let source = self.events(&columns.scan(&query.filter))?;
        fold_over(source, self.name(), &query, fold)
    }

    /// Runs a fold over the selected events and returns the answer alone.
    ///
    /// # Errors
    /// If the input has samples instead of events, or cannot be read.
    pub fn ask<F: Fold>(&self, query: &Query<'_>, columns: Columns, fold: F) -> Result<Answer<F::Output>> {
        Ok(self.fold(query, columns, fold)?.answer)
    }

    /// Hands every row other than events to `visit`.
    ///
    /// # Errors
    /// If the input has no rows or cannot be read.
    pub fn each_row(
        &self,
        progress: &dyn ProgressListener,
        visit: impl FnMut(&[Row], &Tables),
    ) -> Result<Box<dyn RowSource>> {
        let mut source = self.rows_if_any(&ScanProps::default())?;
        each_row(source.as_mut(), self.name(), progress, visit)?;
        Ok(source)
    }
}

/// Runs a fold over all of `source`; losses of the answer are those of the source.
///
/// # Errors
/// If the source cannot be read.
pub fn fold_over<F: Fold>(
    mut source: Box<dyn Source>,
    name: &str,
    query: &Query<'_>,
    fold: F,
) -> Result<Folded<F>> {
    let mut pass = Pass::new(&query.filter, (fold, CaveatsFold::default()));
    let mut events_read = 0;
    read_ahead(source.as_mut(), name, query.progress, |batch| {
        events_read += batch.len() as u64;
        pass.update(batch);
        if pass.is_past_window() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let (result, caveats) = pass.finish(source.tables());
    let answer =
        Answer { caveats: Caveats { events_read, ..caveats }, ..Answer::new(name, &source.losses(), result) };
    Ok(Folded { answer, pass, source })
}

/// Takes snapshots of what is live at instants of `source`.
///
/// # Errors
/// If the source cannot be read.
pub fn snapshots_over(
    source: &mut dyn Source,
    name: &str,
    mut pass: SnapshotPass,
    progress: &dyn ProgressListener,
) -> Result<Snapshots> {
    read_ahead(source, name, progress, |batch| {
        pass.update(batch);
        ControlFlow::Continue(())
    })?;
    Ok(pass.finish(source.tables()))
}

/// Hands every batch of `source` to `visit` until it breaks off.
///
/// # Errors
/// If the source cannot be read, or what `visit` returns.
pub fn each_batch<E: From<Error>>(
    source: &mut dyn Source,
    name: &str,
    progress: &dyn ProgressListener,
    mut visit: impl FnMut(&EventBatch, &Tables) -> std::result::Result<ControlFlow<()>, E>,
) -> std::result::Result<(), E> {
    let mut batch = EventBatch::new();
    let mut reading = Reading::start(name, progress);
    while source.next(&mut batch).map_err(Error::from)? {
        reading.advance(&batch, source.progress());
        if visit(&batch, source.tables())?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Hands every row of `source` to `visit`.
///
/// # Errors
/// If the source cannot be read.
pub fn each_row(
    source: &mut dyn RowSource,
    name: &str,
    progress: &dyn ProgressListener,
    mut visit: impl FnMut(&[Row], &Tables),
) -> Result<()> {
    progress.started(name);
    let mut rows = Vec::new();
    while source.next(&mut rows)? {
        progress.advanced(name, source.progress());
        visit(&rows, source.tables());
    }
    Ok(())
}

/// Hands every batch of `source` to `visit` until it breaks off, while the next ones are read.
///
/// # Errors
/// If the source cannot be read.
pub fn read_ahead(
    source: &mut dyn Source,
    name: &str,
    progress: &dyn ProgressListener,
    mut visit: impl FnMut(&EventBatch) -> ControlFlow<()>,
) -> Result<()> {
    let mut reading = Reading::start(name, progress);
    let (give, take) = mpsc::sync_channel(BATCHES);
    let (give_back, take_back) = mpsc::sync_channel(BATCHES);
    for _ in 0..BATCHES {
        give_back.send(EventBatch::new()).expect("the other end is here");
    }
    std::thread::scope(|scope| -> Result<()> {
        let read = move || -> floodmark_store::Result<()> {
            // Either end closes when the visitor breaks off.
            while let Ok(mut batch) = take_back.recv() {
                if !source.next(&mut batch)? || give.send((batch, source.progress())).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("floodmark-read".into());
        let reader = thread
            .spawn_scoped(scope, read)
            .map_err(|source| Error::System { act: "starting a thread", source })?;
        while let Ok((batch, progress)) = take.recv() {
            reading.advance(&batch, progress);
            if visit(&batch).is_break() {
                break;
            }
            let _ = give_back.send(batch);
        }
        drop((take, give_back));
        match reader.join() {
            Ok(read) => Ok(read?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Hands every batch of `source` to both visitors, each in a thread of its own, while the next ones are read,
/// until the first visitor breaks off.
///
/// # Errors
/// If the source cannot be read.
pub fn read_ahead_twice(
    source: &mut dyn Source,
    name: &str,
    progress: &dyn ProgressListener,
    mut first: impl FnMut(&EventBatch) -> ControlFlow<()>,
    mut second: impl FnMut(&EventBatch) + Send,
) -> Result<()> {
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let cannot_start = |source| Error::System { act: "starting a thread", source };
    let (give, take) = mpsc::sync_channel::<Arc<EventBatch>>(BATCHES);
    std::thread::scope(|scope| -> Result<()> {
        let fold = move || {
            while let Ok(batch) = take.recv() {
                second(&batch);
            }
        };
        let folder = thread("floodmark-fold").spawn_scoped(scope, fold).map_err(cannot_start)?;
        let mut reading = Reading::start(name, progress);
        let (read_give, read_take) = mpsc::sync_channel(BATCHES);
        let read = move || -> floodmark_store::Result<()> {
            loop {
                let mut batch = EventBatch::new();
                if !source.next(&mut batch)? || read_give.send((Arc::new(batch), source.progress())).is_err()
                {
                    return Ok(());
                }
            }
        };
        let reader = thread("floodmark-read").spawn_scoped(scope, read).map_err(cannot_start)?;
        while let Ok((batch, progress)) = read_take.recv() {
            reading.advance(&batch, progress);
            // The other end is gone only if it panicked, which joining it shows.
            let _ = give.send(Arc::clone(&batch));
            if first(&batch).is_break() {
                break;
            }
        }
        drop((give, read_take));
        if let Err(panic) = folder.join() {
            std::panic::resume_unwind(panic);
        }
        match reader.join() {
            Ok(read) => Ok(read?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Reading of one source, which is over when this is dropped.
struct Reading<'a> {
    name: &'a str,
    progress: &'a dyn ProgressListener,
    start: Instant,
    events: u64,
}

impl<'a> Reading<'a> {
    fn start(name: &'a str, progress: &'a dyn ProgressListener) -> Self {
        progress.started(name);
        Self { name, progress, start: Instant::now(), events: 0 }
    }

    fn advance(&mut self, batch: &EventBatch, progress: floodmark_store::Progress) {
        self.events += batch.len() as u64;
        self.progress.advanced(self.name, progress);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.progress.finished(self.name, self.events, self.start.elapsed());
    }
}
