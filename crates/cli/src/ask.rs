//! Opens the inputs of a command and asks each of them the same question.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use floodmark_inspect::job::{Job, JobProps, read_on_cores, wire};
use floodmark_inspect::{Answer, Filter, Input, Query};

use crate::args::InputArgs;
use crate::error::hinted;
use crate::printer::Printer;
use crate::progress::Bars;

/// How many cores to use.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Reading")]
pub(crate) struct CoresArgs {
    /// Read the processes of a trace on this many cores, each by itself
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: u16,
}

/// Asks every input, each on its own.
pub(crate) fn ask_each<T>(
    args: &InputArgs,
    printer: &Printer,
    ask: impl Fn(&Input, &Query<'_>) -> floodmark_inspect::Result<Answer<T>>,
) -> Result<Vec<Answer<T>>> {
    let bars = Bars::new(printer);
    let query = Query::new(args.filter.props(), &bars);
    let open = args.reading.props();
    let one = |path: &std::path::PathBuf| {
        if wire::is_job(path) {
            return Err(hinted(
                format!("{} is a partial result, which cannot answer this", path.display()),
                "ask the traces that it was made of; partial results answer stats, watermark, leaks and lifetimes",
            ));
        }
        Ok(ask(&Input::open(path, &open)?, &query)?)
    };
    args.inputs.iter().map(one).collect()
}

/// A question that partial results can answer.
pub(crate) struct JobQuestion<'a, T> {
    /// Asks an input.
    pub(crate) input: &'a dyn Fn(&Input, &Query<'_>) -> floodmark_inspect::Result<Answer<T>>,
    /// Asks a partial result.
    pub(crate) job: &'a dyn Fn(&Job) -> floodmark_inspect::Result<Answer<T>>,
    /// Beside the filter, what a partial result is made with.
    pub(crate) props: JobProps,
}

/// Asks every input or partial result, each on its own.
pub(crate) fn ask_each_or_job<T>(
    args: &InputArgs,
    cores: CoresArgs,
    printer: &Printer,
    question: &JobQuestion<'_, T>,
) -> Result<Vec<Answer<T>>> {
    let bars = Bars::new(printer);
    let query = Query::new(args.filter.props(), &bars);
    let open = args.reading.props();
    let one = |path: &std::path::PathBuf| {
        if wire::is_job(path) {
            refuse_filter(&query.filter)?;
            return Ok((question.job)(&Job::open(path)?)?);
        }
        let input = Input::open(path, &open)?;
        if cores.jobs > 1 && input.contents().can_rewind && input.contents().has_events {
            let props = JobProps { filter: query.filter.clone(), ..question.props.clone() };
            let job = read_on_cores(std::slice::from_ref(&input), usize::from(cores.jobs), &props)?;
            return Ok((question.job)(&job)?);
        }
        Ok((question.input)(&input, &query)?)
    };
    args.inputs.iter().map(one).collect()
}

/// Refuses filters beside a partial result.
pub(crate) fn refuse_filter(filter: &Filter) -> Result<()> {
    if *filter == Filter::default() {
        return Ok(());
    }
    Err(hinted(
        "a partial result has the events that were selected when it was made",
        "leave the filters out, or give them to 'floodmark partial'",
    ))
}

/// Refuses standard input before it is opened, where `question` says that an input is read more than once.
pub(crate) fn refuse_stdin(path: &Path, question: &str) -> Result<()> {
    if crate::whole_file::is_standard(path) {
        return Err(floodmark_inspect::Error::ReadOnce { question: question.to_owned() }.into());
    }
    Ok(())
}
