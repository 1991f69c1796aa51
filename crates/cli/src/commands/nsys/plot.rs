//! `floodmark nsys plot`: what the nsys scripts' plot.py draws, from the same files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_convert::nsys::usage::UsageTable;
use floodmark_event::units::{format_duration_ns, parse_duration_ns};
use floodmark_inspect::Input;
use floodmark_inspect::plot::device_series;
use floodmark_view::plot::nsys::NsysUsage;
use floodmark_view::plot::{Series, label};

use crate::args::ReadingArgs;
use crate::drawing::{Content, DrawingArgs, Picture};
use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Draw a usage file of the nsys scripts, and what nvidia-smi reported beside it
///
/// The file has a row per change, with the columns 'time(ns)', 'total (B)', 'valid (B)', 'invalid (B)'
/// and 'driver (B)'. Its times are the profiler's own, so the two are put together at their first rows;
/// --shift moves what nvidia-smi reported.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NsysPlotArgs {
    /// Usage file, as 'process.py -a usage' and 'floodmark nsys process' write it
    #[arg(short, long, value_name = "FILE")]
    usage: PathBuf,
    /// What nvidia-smi reported
    #[arg(short, long, value_name = "FILE")]
    smi: Option<PathBuf>,
    /// Move what nvidia-smi reported by so much, as in 1.5s or -200ms
    #[arg(long, value_name = "TIME", value_parser = parse_shift, default_value = "0s", allow_hyphen_values = true)]
    shift: i64,
    #[command(flatten)]
    drawing: DrawingArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

const EXAMPLES: &str = "\
Examples:
  floodmark nsys plot -u usage.txt -o chart.png
  floodmark nsys plot -u usage.txt -s smi.txt --shift -0.8s -o chart.svg";

fn parse_shift(text: &str) -> Result<i64, String> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let ns = parse_duration_ns(text.strip_prefix('+').unwrap_or(text))?;
    i64::try_from(ns).map(|ns| sign * ns).map_err(|_| "it is too long".to_owned())
}

impl NsysPlotArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        self.drawing.refuse_existing()?;
        let name = self.usage.display();
        let bytes = fs::read(&self.usage).with_context(|| format!("opening {name}"))?;
        let table = UsageTable::parse(&String::from_utf8_lossy(&bytes)).map_err(|what| {
            hinted(format!("{name} is no usage file: {what}"), "write one with 'process.py -a usage'")
        })?;
        let usage = NsysUsage { times_ns: table.times_ns, bytes: table.bytes };
        let smi = self.smi()?;
        let title = self.usage.file_stem().unwrap_or(self.usage.as_os_str()).to_string_lossy();
        let has_smi = !smi.is_empty();
        let mut figure = usage.figure(label(&title), smi);
        if has_smi {
            let shifted = match self.shift {
                0 => String::new(),
                shift => format!(
                    ", then moved by {}{}",
                    if shift < 0 { "-" } else { "+" },
                    format_duration_ns(shift.unsigned_abs())
                ),
            };
            let remark = format!(
                "the clocks of the two files are not related: nvidia-smi's first row was put at the first row of the \
                 usage{shifted} (--shift)"
            );
            printer.say(&format!("note: {remark}"));
            figure.remarks.push(remark);
        }
        Picture { content: Content::Figure(figure), props: self.drawing.props() }
            .show(&self.drawing, printer)?;
        Ok(ExitStatus::Success)
    }

    /// What nvidia-smi reported of each device, from its own start on.
    fn smi(&self) -> Result<Vec<Series>> {
        let Some(path) = &self.smi else { return Ok(Vec::new()) };
        let log = Input::open(path, &self.reading.props())?;
        let mut devices = device_series(&log, self.drawing.points())?;
        if devices.is_empty() {
            return Err(hinted(
                format!("{} has no memory of devices", path.display()),
                "query memory.used, as in nvidia-smi --query-gpu=timestamp,memory.used --format=csv --loop-ms=10",
            ));
        }
        let first_ns =
            devices.iter().filter_map(|series| series.points.first()).map(|point| point.time_ns).min();
        let moved = |time_ns: i64| time_ns.saturating_sub(first_ns.unwrap_or(0)).saturating_add(self.shift);
        for series in &mut devices {
            series.points.iter_mut().for_each(|point| point.time_ns = moved(point.time_ns));
            series.end_ns = moved(series.end_ns);
        }
        Ok(devices)
    }
}
