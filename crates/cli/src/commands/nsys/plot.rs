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
use crate::drawing::{DrawingArgs, Picture};
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
        Picture { figure, props: self.drawing.props() }.show(&self.drawing, printer)?;
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::GlobalArgs;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        args: NsysPlotArgs,
        #[command(flatten)]
        global: GlobalArgs,
    }

    /// Runs the command with files in a directory of its own; gives the picture.
    fn drawn(name: &str, usage: &str, smi: Option<&str>, more: &[&str]) -> Result<String> {
        let dir = std::env::temp_dir().join(format!("floodmark-nsys-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let [usage_path, smi_path, out] = ["usage.txt", "smi.txt", "chart.svg"].map(|file| dir.join(file));
        fs::write(&usage_path, usage).unwrap();
        let mut typed = vec!["plot".into(), "-q".into(), "-u".into(), usage_path.into_os_string()];
        if let Some(smi) = smi {
            fs::write(&smi_path, smi).unwrap();
            typed.extend(["-s".into(), smi_path.into_os_string()]);
        }
        typed.extend(["-o".into(), out.clone().into_os_string()]);
        typed.extend(more.iter().map(Into::into));
        let typed = Typed::try_parse_from(typed)?;
        let ran = typed.args.run(&Printer::new(&typed.global));
        let picture = fs::read_to_string(&out);
        fs::remove_dir_all(&dir).unwrap();
        ran?;
        Ok(picture?)
    }

    const USAGE: &str = "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n\
        500000000\t1048576\t1048576\t0\t0\n900000000\t3145728\t1048576\t0\t2097152\n\
        2500000000\t2097152\t0\t0\t2097152\n";

    #[test]
    fn a_usage_file_is_drawn_with_its_parts() {
        let svg = drawn("parts", USAGE, None, &[]).unwrap();
        assert!(svg.contains(">with a call stack</text>") && svg.contains(">of the driver</text>"));
        assert!(!svg.contains("without a call stack") && svg.contains("peak 3.00 MiB at 0.400 s"), "{svg}");
    }

    #[test]
    fn what_nvidia_smi_reported_stands_beside_it() {
        let smi =
            "2026/11/15 10:00:00.000, 450\n2026/11/15 10:00:01.000, 460\n2026/11/15 10:00:02.000, 452\n";
        let svg = drawn("smi", USAGE, Some(smi), &["--shift", "-200ms"]).unwrap();
        assert!(svg.contains(">nvidia-smi, GPU 0</text>") && svg.contains("460.0 MiB"), "{svg}");
    }

    #[test]
    fn every_gpu_is_drawn_and_the_alignment_is_stated() {
        let smi = "timestamp, index, memory.used [MiB]\n\
                   2026/11/15 10:00:00.000, 0, 450 MiB\n2026/11/15 10:00:00.001, 1, 77 MiB\n\
                   2026/11/15 10:00:02.000, 0, 452 MiB\n2026/11/15 10:00:02.001, 1, 78 MiB\n";
        let svg = drawn("gpus", USAGE, Some(smi), &["--shift", "-200ms"]).unwrap();
        assert!(
            svg.contains(">nvidia-smi, GPU 0</text>") && svg.contains(">nvidia-smi, GPU 1</text>"),
            "{svg}"
        );
        assert!(svg.contains("the clocks of the two files are not related"), "{svg}");
    }

    #[test]
    fn other_files_are_refused() {
        let error = drawn("other", "a,b\n1,2\n", None, &[]).unwrap_err().to_string();
        assert!(error.contains("is no usage file: line 1"), "{error}");
    }
}
