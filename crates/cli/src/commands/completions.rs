//! `floodmark completions`

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  floodmark completions bash > ~/.local/share/bash-completion/completions/floodmark
  floodmark completions zsh > ~/.zfunc/_floodmark
  floodmark completions fish > ~/.config/fish/completions/floodmark.fish";

impl CompletionsArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "floodmark", &mut script);
        printer.data(&String::from_utf8_lossy(&script))?;
        Ok(ExitStatus::Success)
    }
}
