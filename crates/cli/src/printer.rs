//! The only way out: data to standard output, words to standard error.

use std::fs::File;
use std::io::{self, IsTerminal as _, Stderr, Stdout, Write as _};
use std::os::fd::AsFd;

use anstream::{AutoStream, ColorChoice};
use anyhow::{Context as _, Result};
use floodmark_inspect::{Answer, Loss};
use floodmark_top::Front;
use floodmark_view::{AnswerText as _, Charset, Layout, Palette, View, document, loss_sentence};

use crate::args::{Color, GlobalArgs, OutputArgs};
use crate::env::{EnvVars, value};
use crate::error::{causes, hint};

/// Columns when there is no terminal to ask.
const WIDTH_WITHOUT_TERMINAL: usize = 100;
/// The same for remarks on standard error.
const REMARK_WIDTH: usize = 80;
/// Fewer columns than this are not worth laying out for.
const NARROWEST: usize = 40;

/// How much to say besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// Prints, in the way the user's options and terminal ask for.
#[derive(Debug)]
pub(crate) struct Printer {
    stdout: Stdout,
    stderr: Stderr,
    verbosity: Verbosity,
    out: Palette,
    err: Palette,
    width: usize,
    charset: Charset,
    /// Where remarks go instead of standard error.
    log: Option<File>,
}

impl Printer {
    /// Looks at options, environment and terminal.
    pub(crate) fn new(global: &GlobalArgs) -> Self {
        let palette = |choice: ColorChoice| match (global.color, choice) {
            (Color::Never, _) | (Color::Auto, ColorChoice::Never) => Palette::plain(),
            (Color::Auto, _) if value(EnvVars::NO_COLOR).is_some() => Palette::plain(),
            (Color::Always | Color::Auto, _) => Palette::color(),
        };
        let verbosity = match (global.quiet, global.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, false) => Verbosity::Normal,
            (false, true) => Verbosity::Verbose,
        };
        Self {
            stdout: io::stdout(),
            stderr: io::stderr(),
            verbosity,
            out: palette(AutoStream::choice(&io::stdout())),
            err: palette(AutoStream::choice(&io::stderr())),
            width: width_of(io::stdout(), WIDTH_WITHOUT_TERMINAL),
            charset: Charset::of_locale(EnvVars::LOCALE.into_iter().find_map(value).as_deref()),
            log: global.log_file.as_ref().and_then(|path| File::options().append(true).open(path).ok()),
        }
    }

    /// How reports are laid out.
    pub(crate) fn layout(&self, rows: Option<usize>) -> Layout {
        Layout { width: self.width, palette: self.out, rows }
    }

    /// How remarks are laid out.
    pub(crate) fn remark_layout(&self, rows: usize) -> Layout {
        let width = width_of(&self.stderr, REMARK_WIDTH);
        Layout { width, palette: self.err, rows: Some(rows) }
    }

    /// Whether remarks are wanted.
    pub(crate) fn speaks(&self) -> bool {
        self.verbosity >= Verbosity::Normal
    }

    /// Writes data.
    pub(crate) fn data(&self, text: &str) -> Result<()> {
        self.stdout.lock().write_all(text.as_bytes()).context("writing to standard output")
    }

    /// Writes text for people, in characters that the locale has.
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        self.data(&self.charset.text(text))
    }

    /// Writes what `--json` and `--limit` ask for of reports.
    pub(crate) fn reports<T: View>(
        &self,
        reports: &[Answer<T>],
        output: impl Into<OutputArgs>,
    ) -> Result<()> {
        let output = output.into();
        if output.json {
            return self.data(&document(reports));
        }
        let layout = self.layout(output.text_rows());
        let texts: Vec<String> = reports.iter().map(|report| report.text(&layout)).collect();
        self.text(&texts.join("\n"))
    }

    /// Says what was done, unless asked to be quiet.
    pub(crate) fn say(&self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.tell(text);
        }
    }

    /// Says what the user should know whatever they asked for.
    pub(crate) fn warn(&self, text: &str) {
        let style = self.err.doubtful;
        self.tell(&format!("{style}warning:{style:#} {text}"));
    }

    /// Says what is known to be missing from data.
    pub(crate) fn lost(&self, losses: &[Loss]) {
        let style = self.err.doubtful;
        for loss in losses {
            self.say(&format!("{style}note:{style:#} {}", loss_sentence(loss)));
        }
    }

    /// Says which rule is broken, however quiet it should be: the exit code alone does not tell.
    pub(crate) fn broken(&self, sentence: &str) {
        let style = self.err.bad;
        self.tell(&format!("{style}failed:{style:#} {sentence}"));
    }

    /// Says what only those want to know who asked for more.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbosity >= Verbosity::Verbose {
            let style = self.err.faint;
            self.tell(&format!("{style}{text}{style:#}"));
        }
    }

    /// A thing to type, as it looks on standard error.
    pub(crate) fn literal(&self, text: &str) -> String {
        let style = self.err.literal;
        format!("{style}{text}{style:#}")
    }

    /// Prints an error, what caused it and what to do about it.
    pub(crate) fn error(&self, error: &(dyn std::error::Error + 'static)) {
        let (bad, doubtful) = (self.err.bad, self.err.doubtful);
        let causes = causes(error);
        let mut causes = causes.iter();
        self.tell(&format!("{bad}error:{bad:#} {}", causes.next().map_or("", String::as_str)));
        for cause in causes {
            self.tell(&format!("  caused by: {cause}"));
        }
        if let Some(hint) = hint(error) {
            self.tell(&format!("{doubtful}hint:{doubtful:#} {hint}"));
        }
    }

    /// Whether a bar on standard error would be seen and wanted.
    pub(crate) fn shows_progress(&self) -> bool {
        self.verbosity >= Verbosity::Normal && self.stderr.is_terminal()
    }

    fn tell(&self, text: &str) {
        let text = self.charset.text(text);
        // There is no other place to report a failure of this.
        let _ = match &self.log {
            Some(file) => writeln!(&mut &*file, "{text}"),
            None => writeln!(self.stderr.lock(), "{text}"),
        };
    }
}

impl Front for Printer {
    fn is_colored(&self) -> bool {
        !self.out.is_plain()
    }

    fn is_quiet(&self) -> bool {
        self.verbosity == Verbosity::Quiet
    }

    fn error(&self, error: &floodmark_top::Error) {
        self.error(error);
    }

    fn say(&self, text: &str) {
        self.say(text);
    }

    fn forward(&self, text: &str) {
        if !text.is_empty() {
            self.tell(text.trim_end());
        }
    }
}

fn width_of(stream: impl AsFd, otherwise: usize) -> usize {
    let asked = value(EnvVars::COLUMNS).and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    asked.or_else(terminal).unwrap_or(otherwise).max(NARROWEST)
}
