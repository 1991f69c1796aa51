//! `floodmark nsys profile`

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;
use floodmark_inspect::OpenProps;
use floodmark_inspect::import::{ImportProps, import};
use floodmark_sampler::Exit;
use floodmark_store::Overwrite;
use floodmark_view::{View as _, plain};

use crate::error::hinted;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::progress::Bars;

/// Run a command under Nsight Systems and keep its GPU memory as a trace
///
/// Calls nsys, which has to be installed, with the options that memory and its call stacks need. The exit
/// code is the one of nsys, which is the command's own.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// Write the trace here [default: name of the command, with .flood]
    #[arg(short, long, value_name = "TRACE")]
    output: Option<PathBuf>,
    /// Replace a trace that exists already
    #[arg(long)]
    force: bool,
    /// Take stacks of calls that last at least so many nanoseconds; 0 for all
    #[arg(long, value_name = "NS", default_value_t = 0)]
    threshold: u64,
    /// Keep the report of nsys beside the trace
    #[arg(long)]
    keep_report: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  floodmark nsys profile -- ./app --steps 10
  floodmark nsys profile -o run.flood --keep-report -- python train.py";

impl ProfileArgs {
    pub(crate) fn run(&self, printer: &Printer) -> Result<ExitStatus> {
        let trace = self.trace();
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        if trace.exists() && !self.force {
            return Err(floodmark_store::Error::Exists { path: trace }.into());
        }
        let folder = Scratch::beside(&trace)?;
        let report = folder.0.join("report");
        let status = run_nsys(Command::new("nsys").args(self.options(&report)).args(&self.command))?;
        let report = report.with_extension("nsys-rep");
        if !report.is_file() {
            return Err(hinted(
                format!("nsys ended with {status} and left no report"),
                "see what it printed above",
            ));
        }
        if self.keep_report {
            let kept = trace.with_extension("nsys-rep");
            std::fs::copy(&report, &kept).with_context(|| format!("keeping {}", kept.display()))?;
        }
        let props = ImportProps { trace: trace.clone(), overwrite, open: OpenProps::default() };
        let imported = import(&[report], &props, &Bars::new(printer))?;
        printer.say(imported.result.body(&printer.layout(None)).trim_end());
        printer.lost(&imported.losses);
        let trace = trace.display().to_string();
        printer.say(&format!("See who held memory at the peak: floodmark watermark {}", plain(&trace)));
        Ok(ExitStatus::External(Exit::from_wait_status(status.into_raw())))
    }

    /// What nsys needs to trace memory with stacks: without samples of processors it takes none.
    fn options(&self, report: &Path) -> Vec<OsString> {
        let backtrace = format!("--cudabacktrace=memory:{}", self.threshold);
        let options = [
            "profile",
            "--trace=cuda,nvtx",
            "--cuda-memory-usage=true",
            &backtrace,
            "--sample=process-tree",
            "--force-overwrite=true",
            "--output",
        ];
        options.iter().map(OsString::from).chain([report.as_os_str().to_owned()]).collect()
    }

    fn trace(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let program = Path::new(&self.command[0]).file_name().unwrap_or_default();
            PathBuf::from(program).with_extension("flood")
        })
    }
}

fn run_nsys(command: &mut Command) -> Result<std::process::ExitStatus> {
    command.status().map_err(|error| match error.kind() {
        ErrorKind::NotFound => hinted(
            "nsys is not installed here, or not on the PATH",
            "it comes with the CUDA toolkit and by itself as Nsight Systems",
        ),
        _ => anyhow::Error::new(error).context("running nsys"),
    })
}

/// A folder for the report, which is large, where the trace goes; gone in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn beside(trace: &Path) -> Result<Self> {
        let name = trace.file_name().unwrap_or_default().to_string_lossy();
        let path = trace.with_file_name(format!(".{name}.{}.nsys", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
