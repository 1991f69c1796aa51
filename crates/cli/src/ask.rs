//! Opens the inputs of a command and asks each of them the same question.

use std::path::Path;

use anyhow::Result;
use floodmark_inspect::{Answer, Input, Query};

use crate::args::InputArgs;
use crate::printer::Printer;
use crate::progress::Bars;

/// Asks every input, each on its own.
pub(crate) fn ask_each<T>(
    args: &InputArgs,
    printer: &Printer,
    ask: impl Fn(&Input, &Query<'_>) -> floodmark_inspect::Result<Answer<T>>,
) -> Result<Vec<Answer<T>>> {
    let bars = Bars::new(printer);
    let query = Query::new(args.filter.props(), &bars);
    let open = args.reading.props();
    args.inputs.iter().map(|path| Ok(ask(&Input::open(path, &open)?, &query)?)).collect()
}

/// Refuses standard input before it is opened, where `question` says that an input is read more than once.
pub(crate) fn refuse_stdin(path: &Path, question: &str) -> Result<()> {
    if crate::whole_file::is_standard(path) {
        return Err(floodmark_inspect::Error::ReadOnce { question: question.to_owned() }.into());
    }
    Ok(())
}
