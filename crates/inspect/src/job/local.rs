//! Reads parts of a job: one by one, or on all cores of this machine.

use std::ops::ControlFlow;

use floodmark_analyze::{Fold, Pass};
use floodmark_event::{EventBatch, Filter};
use floodmark_store::{ScanProps, Source};

use crate::error::{Error, Result};
use crate::input::Input;
use crate::job::{Ask, Job, JobProps, Shard, ShardAnswer, ShardPart, answer};
use crate::pass::read_ahead;

/// A pass over part of an input, and what it read.
pub(super) struct PartRead<F> {
    pub(super) pass: Pass<F>,
    pub(super) source: Box<dyn Source>,
    pub(super) events_read: u64,
}

/// Runs a fold over some processes of an input until it is done.
pub(super) fn fold_part<F: Fold>(
    input: &Input,
    part: &ShardPart,
    filter: &Filter,
    fold: F,
    is_done: impl Fn(&F) -> bool,
) -> Result<PartRead<F>> {
    let mut source =
        input.events(&ScanProps { processes: part.processes.clone(), ..ScanProps::default() })?;
    let mut pass = Pass::new(filter, fold);
    let mut events_read = 0;
    let visit = |batch: &EventBatch| {
        events_read += batch.len() as u64;
        pass.update(batch);
        if pass.is_past_window() || is_done(pass.fold()) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    read_ahead(source.as_mut(), input.name(), &(), visit)?;
    Ok(PartRead { pass, source, events_read })
}

/// Reads a whole job in `count` shards at once and finds its peak and holders.
///
/// # Errors
/// If an input cannot be read.
pub fn read_on_cores(inputs: &[Input], count: usize, props: &JobProps) -> Result<Job> {
    let mut jobs = on_threads(count, |shard| Job::read(inputs, shard, props))?.into_iter();
    let mut whole =
        jobs.next().ok_or_else(|| Error::unsuitable("there is no shard", "ask for one at least"))?;
    for job in jobs {
        whole.merge(job)?;
    }
    whole.complete(inputs, count)?;
    Ok(whole)
}

impl Job {
    /// Asks all shards, on `count` cores, until peak and holders are known.
    ///
    /// # Errors
    /// If an input cannot be read, or is not one that the job was made of.
    pub fn complete(&mut self, inputs: &[Input], count: usize) -> Result<()> {
        self.prepare();
        while *self.ask() != Ask::Nothing {
            let answers: Vec<ShardAnswer> = on_threads(count, |shard| answer(inputs, shard, self))?;
            self.take(answers)?;
        }
        Ok(())
    }
}

/// Calls a function for each shard, in threads of its own.
fn on_threads<T: Send>(count: usize, work: impl Fn(Shard) -> Result<T> + Sync) -> Result<Vec<T>> {
    if count <= 1 {
        return Ok(vec![work(Shard::WHOLE)?]);
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..count {
            let work = &work;
            let thread = std::thread::Builder::new().name(format!("floodmark-shard-{index}"));
            let started = thread.spawn_scoped(scope, move || work(Shard { index, count }));
            threads.push(started.map_err(|source| Error::System { act: "starting a thread", source })?);
        }
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}
