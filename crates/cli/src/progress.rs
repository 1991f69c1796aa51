//! A bar on standard error for work that takes more than a second.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use floodmark_event::units::{format_count, format_duration_ns};
use floodmark_inspect::ProgressListener;
use floodmark_store::Progress;
use floodmark_view::plain;
use indicatif::{ProgressBar, ProgressStyle};

use crate::printer::Printer;

/// How long work may take before it shows.
const SILENT: Duration = Duration::from_secs(1);

/// Shows how far one input has been read.
#[derive(Debug)]
pub(crate) struct Bar {
    label: String,
    wanted: bool,
    start: Instant,
    shown: Option<ProgressBar>,
}

impl Bar {
    /// Starts to measure; nothing shows yet.
    pub(crate) fn new(label: &str, printer: &Printer) -> Self {
        Self {
            label: plain(label.rsplit('/').next().unwrap_or(label)).into_owned(),
            wanted: printer.shows_progress(),
            start: Instant::now(),
            shown: None,
        }
    }

    /// Shows how far it is, once the silence is over.
    pub(crate) fn update(&mut self, progress: Progress) {
        if !self.wanted || (self.shown.is_none() && self.start.elapsed() < SILENT) {
            return;
        }
        let (label, elapsed) = (&self.label, self.start.elapsed());
        let bar = self.shown.get_or_insert_with(|| {
            let bar = progress.total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            let template = if progress.total.is_some() {
                "{msg} {wide_bar} {percent:>3} % {eta:>4} left"
            } else {
                "{spinner} {msg} {elapsed}"
            };
            let style =
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar.with_message(label.clone()).with_elapsed(elapsed)
        });
        bar.set_position(progress.done);
    }
}

/// Shows the progress of one input after the other.
#[derive(Debug)]
pub(crate) struct Bars<'a> {
    printer: &'a Printer,
    bar: RefCell<Option<Bar>>,
}

impl<'a> Bars<'a> {
    /// Shows nothing yet.
    pub(crate) fn new(printer: &'a Printer) -> Self {
        Self { printer, bar: RefCell::new(None) }
    }
}

impl ProgressListener for Bars<'_> {
    fn started(&self, input: &str) {
        *self.bar.borrow_mut() = Some(Bar::new(input, self.printer));
    }

    fn advanced(&self, _input: &str, progress: Progress) {
        if let Some(bar) = self.bar.borrow_mut().as_mut() {
            bar.update(progress);
        }
    }

    fn finished(&self, input: &str, events: u64, elapsed: Duration) {
        *self.bar.borrow_mut() = None;
        let rate = events as f64 / elapsed.as_secs_f64().max(1e-9) / 1e6;
        self.printer.detail(&format!(
            "read {} events of {} in {}, {rate:.1} million a second",
            format_count(events),
            plain(input),
            format_duration_ns(elapsed.as_nanos() as u64),
        ));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
