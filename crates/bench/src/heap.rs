//! Recording the heap of real programs: beside heaptrack, memray, massif and no tool at all.
//!
//! Every program runs once per round under every tool, so that what else the machine does hits all alike. CPU time is
//! what counts on a shared machine: that of the program itself, which a preloaded library (`usage.c`) writes down at
//! its exit, and that of everything the tool started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use floodmark_store::{Table, Trace};

use crate::measure::{self, Samples, Usage};

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Props {
    /// The `floodmark` to measure
    #[arg(long, default_value = "target/release/floodmark")]
    floodmark: PathBuf,
    /// Programs to run [default: all]
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Tools to run them under, beside none [default: all that fit]
    #[arg(long, value_delimiter = ',')]
    tools: Vec<String>,
    /// Python that has pandas and memray; without it the programs in Python are left out
    #[arg(long)]
    python: Option<PathBuf>,
}

/// A program to record.
struct Program {
    name: &'static str,
    words: Vec<String>,
    environment: &'static [(&'static str, &'static str)],
    is_python: bool,
    /// Whether it allocates too much for a tool that records everything.
    is_only_sampled: bool,
}

/// A tool to record it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    None,
    /// Options of `floodmark run`.
    Floodmark(&'static [&'static str]),
    Heaptrack,
    Massif,
    /// Options of `memray run`.
    Memray(&'static [&'static str]),
}

const TOOLS: [(&str, Tool); 9] = [
    ("none", Tool::None),
    ("floodmark", Tool::Floodmark(&["--heap"])),
    ("floodmark-no-stacks", Tool::Floodmark(&["--heap", "--no-heap-stacks"])),
    ("floodmark-sample", Tool::Floodmark(&["--heap=sample"])),
    ("floodmark-python", Tool::Floodmark(&["--heap=python"])),
    ("heaptrack", Tool::Heaptrack),
    ("massif", Tool::Massif),
    ("memray", Tool::Memray(&[])),
    ("memray-native-objects", Tool::Memray(&["--native", "--trace-python-allocators"])),
];

impl Tool {
    fn fits(self, program: &Program) -> bool {
        match self {
            Self::Memray(_) | Self::Floodmark(&["--heap=python"]) => program.is_python,
            Self::None | Self::Floodmark(&["--heap=sample"]) => true,
            _ => !program.is_only_sampled,
        }
    }

    /// The command that runs a program under the tool, whose output goes into `folder`.
    fn command(self, program: &Program, floodmark: &Path, folder: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        let path = |name: &str| folder.join(name).display().to_string();
        let mut program_words = program.words.clone();
        match self {
            Self::None => {}
            Self::Floodmark(options) => {
                words.push(floodmark.display().to_string());
                words.extend(["run", "--quiet", "--no-output"].map(str::to_owned));
                words.extend(options.iter().map(|option| (*option).to_owned()));
                words.extend(["-o".into(), path("heap.flood"), "--".into()]);
            }
            // Raw: what it interprets after that is measured as the time to an answer.
            Self::Heaptrack => words.extend(["heaptrack".into(), "--raw".into(), "-o".into(), path("heap")]),
            Self::Massif => words.extend([
                "valgrind".to_owned(),
                "--tool=massif".to_owned(),
                format!("--massif-out-file={}", path("massif")),
            ]),
            Self::Memray(options) => {
                let python = program_words.remove(0);
                words.extend([python, "-m".into(), "memray".into(), "run".into(), "-q".into()]);
                words.extend(options.iter().map(|option| (*option).to_owned()));
                words.extend(["-o".into(), path("memray.bin")]);
            }
        }
        words.append(&mut program_words);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .envs(program.environment.iter().copied())
            .stderr(std::process::Stdio::null());
        command
    }

    /// Commands that give the first answer: what held memory at the peak.
    fn answer(self, program: &Program, floodmark: &Path, folder: &Path) -> Option<Command> {
        let mut command = match self {
            Self::None => return None,
            Self::Floodmark(_) => {
                let mut command = Command::new(floodmark);
                command.args(["watermark"]).arg(folder.join("heap.flood"));
                command
            }
            Self::Heaptrack => {
                let raw = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
                let raw = raw.into_iter().find(|path| path.to_string_lossy().contains("heap.raw"))?;
                let mut command = Command::new("sh");
                let script = "d='cat'; case $0 in *.zst) d='zstd -dc';; *.gz) d='gzip -dc';; esac; \
                              $d \"$0\" | /usr/lib/heaptrack/libexec/heaptrack_interpret > \"$1\" && heaptrack_print \"$1\"";
                command.args(["-c", script]).arg(raw).arg(folder.join("interpreted"));
                command
            }
            Self::Massif => {
                let mut command = Command::new("ms_print");
                command.arg(folder.join("massif"));
                command
            }
            // Its `stats` reads the whole file, as every answer of it does.
            Self::Memray(_) => {
                let mut command = Command::new(&program.words[0]);
                command.args(["-m", "memray", "stats"]).arg(folder.join("memray.bin"));
                command
            }
        };
        command.stderr(std::process::Stdio::null());
        Some(command)
    }
}

/// What was measured of a program under a tool.
#[derive(Default)]
struct Measured {
    /// CPU seconds of the program.
    own: Samples,
    /// CPU seconds of everything that the tool started beside it.
    tool: Samples,
    wall: Samples,
    rss_mb: Samples,
    /// Seconds from the end of the program to the first answer.
    answer: Samples,
    output_bytes: u64,
    events: u64,
}

/// Runs everything and prints a table per program.
pub(crate) fn run(props: &Props, folder: &Path, repeat: usize) -> Result<()> {
    let folder = fs::canonicalize(folder)?.join("heap");
    fs::create_dir_all(&folder)?;
    let floodmark = fs::canonicalize(&props.floodmark)
        .with_context(|| format!("{}: build it first", props.floodmark.display()))?;
    let library = folder.join("usage.so");
    compile("cc", &["-O2", "-fPIC", "-shared"], "usage.c", &library)?;
    for program in programs(&folder, props)? {
        if !props.programs.is_empty() && !props.programs.iter().any(|name| name == program.name) {
            continue;
        }
        let is_wanted = |name: &str| {
            name == "none" || props.tools.is_empty() || props.tools.iter().any(|tool| tool == name)
        };
        let tools: Vec<(&str, Tool)> =
            TOOLS.into_iter().filter(|(name, tool)| is_wanted(name) && tool.fits(&program)).collect();
        let mut measured: Vec<Measured> = tools.iter().map(|_| Measured::default()).collect();
        for _ in 0..repeat {
            for ((_, tool), measured) in tools.iter().zip(&mut measured) {
                let out = folder.join("out");
                let _ = fs::remove_dir_all(&out);
                fs::create_dir_all(&out)?;
                measure_once(*tool, &program, &floodmark, (&library, &out), measured)
                    .with_context(|| format!("{} under {tool:?}", program.name))?;
            }
        }
        print(program.name, &tools, &measured);
    }
    Ok(())
}

/// Runs the program once under the tool and asks for the first answer, which is there as long after the program's end as the
/// tool goes on and the answer takes.
fn measure_once(
    tool: Tool,
    program: &Program,
    floodmark: &Path,
    (library, out): (&Path, &Path),
    measured: &mut Measured,
) -> Result<()> {
    let usage_file = out.with_file_name("usage");
    let _ = fs::remove_file(&usage_file);
    let mut command = tool.command(program, floodmark, out);
    command.env("LD_PRELOAD", library).env("BENCH_USAGE", &usage_file);
    let usage = measure::run(&mut command)?;
    let tool_end_s = measure::monotonic_s();
    let own = own_usage(&usage_file, program)?;
    measured.own.push(own.cpu_s);
    measured.tool.push(usage.cpu_s - own.cpu_s);
    measured.wall.push(usage.wall_s);
    measured.rss_mb.push(own.rss_mb);
    measured.output_bytes = size(out);
    if matches!(tool, Tool::Floodmark(_)) {
        let trace = Trace::open(&out.join("heap.flood"))?;
        measured.events = trace.manifest().rows_of(Table::Event);
        ensure!(measured.events > 0, "nothing was recorded");
    }
    if let Some(mut command) = tool.answer(program, floodmark, out) {
        match measure::run(&mut command) {
            Ok(Usage { wall_s, .. }) => measured.answer.push(tool_end_s - own.end_s + wall_s),
            Err(error) if matches!(tool, Tool::Floodmark(_)) => return Err(error),
            // What it costs the program is measured all the same.
            Err(_) => println!("{} under {tool:?}: what was recorded cannot be read", program.name),
        }
    }
    Ok(())
}

/// What `usage.c` wrote of a process.
struct OwnUsage {
    cpu_s: f64,
    rss_mb: f64,
    /// When it ended, by the monotonic clock.
    end_s: f64,
}

/// What the program used: of the processes with its name the one with the most CPU time. The tool writes its own line.
fn own_usage(path: &Path, program: &Program) -> Result<OwnUsage> {
    let text = fs::read_to_string(path).context("the program wrote no usage")?;
    let name = Path::new(&program.words[0]).file_name().unwrap_or_default().to_string_lossy();
    let usages = text.lines().filter_map(|line| {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next()?.parse::<f64>().ok();
        let (cpu_s, rss_kib, end_s) = (number()?, number()?, number()?);
        (words.next()? == name).then_some(OwnUsage { cpu_s, rss_mb: rss_kib * 1024.0 / 1e6, end_s })
    });
    let most = usages.max_by(|one, other| one.cpu_s.total_cmp(&other.cpu_s));
    most.with_context(|| format!("no usage of {name} in:\n{text}"))
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

fn print(name: &str, tools: &[(&str, Tool)], measured: &[Measured]) {
    let none = &measured[0];
    let events = measured.iter().map(|one| one.events).max().unwrap_or(0);
    println!("\n{name}: {events} events, median (least–most) CPU seconds\n");
    println!(
        "| tool | program | multiple | ns per event | beside it | multiple of both | wall | extra RSS, MB | bytes per event | end to first answer, s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for ((tool, _), one) in tools.iter().zip(measured) {
        let (bare, own) = (none.own.median(), one.own.median());
        let per_event = |value: f64, digits: usize| match events {
            0 => "-".to_owned(),
            events => format!("{:.digits$}", value / events as f64),
        };
        let answer = if one.answer.median().is_nan() { "-".to_owned() } else { one.answer.text(2) };
        println!(
            "| {tool} | {} | ×{:.2} | {} | {} | ×{:.2} | {} | {:.0} | {} | {answer} |",
            one.own.text(2),
            own / bare,
            per_event((own - bare) * 1e9, 0),
            one.tool.text(2),
            (own + one.tool.median()) / bare,
            one.wall.text(2),
            one.rss_mb.median() - none.rss_mb.median(),
            per_event(one.output_bytes as f64, 1),
        );
    }
}

/// Compiles what has to be compiled, and returns the programs.
fn programs(folder: &Path, props: &Props) -> Result<Vec<Program>> {
    let sources = sources();
    let built = |compiler: &str, options: &[&str], source: &str| -> Result<String> {
        let program = folder.join(Path::new(source).file_stem().unwrap_or_default());
        compile(compiler, options, source, &program)?;
        Ok(program.display().to_string())
    };
    let source = |name: &str| sources.join(name).display().to_string();
    let program = |name, words: Vec<String>| Program {
        name,
        words,
        environment: &[],
        is_python: false,
        is_only_sampled: false,
    };
    let cpp = ["-O2", "-g", "-std=c++17", "-pthread"];
    let print = |option: &str| -> Result<String> {
        let output = Command::new("c++").arg(option).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The compiler proper, without the driver that starts it; the driver would tell it this folder of headers.
    let (compiler, multiarch) = (print("-print-prog-name=cc1plus")?, print("-print-multiarch")?);
    let pairs = built("cc", &["-O2", "-g"], "pairs.c")?;
    let mut programs = vec![
        program("pairs", vec![pairs.clone(), "5000000".into()]),
        // Long enough that what a sample costs does not drown in the start of the program.
        Program { is_only_sampled: true, ..program("pairs_long", vec![pairs, "100000000".into()]) },
        program("cross_free", vec![built("c++", &cpp, "cross_free.cpp")?, "1000000".into()]),
        program("json_tree", vec![built("c++", &cpp, "json_tree.cpp")?, "5".into()]),
        program(
            "rust_words",
            vec![built("rustc", &["--edition", "2024", "-O", "-g"], "rust_words.rs")?, "6".into()],
        ),
        program(
            "sqlite",
            ["sqlite3", ":memory:", "-init", &source("table.sql"), ".quit"].map(str::to_owned).to_vec(),
        ),
        program(
            "cc1plus",
            [
                &compiler,
                "-quiet",
                "-O1",
                "-std=c++17",
                "-D_GNU_SOURCE",
                "-imultiarch",
                &multiarch,
                &source("templates.cpp"),
                "-o",
                "/dev/null",
            ]
            .map(str::to_owned)
            .to_vec(),
        ),
    ];
    if let Some(python) = &props.python {
        let python = python.display().to_string();
        let script = |name: &str| vec![python.clone(), source(name)];
        let program = |name, words, environment| Program {
            name,
            words,
            environment,
            is_python: true,
            is_only_sampled: false,
        };
        programs.push(program("python_objects", script("json_objects.py"), &[]));
        programs.push(program("python_malloc", script("json_objects.py"), &[("PYTHONMALLOC", "malloc")]));
        programs.push(program("pandas", script("frames.py"), &[]));
    }
    Ok(programs)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/heap")
}

fn compile(compiler: &str, options: &[&str], source: &str, program: &Path) -> Result<()> {
    let status =
        Command::new(compiler).args(options).arg("-o").arg(program).arg(sources().join(source)).status()?;
    if !status.success() {
        bail!("{compiler} cannot compile {source}");
    }
    Ok(())
}
