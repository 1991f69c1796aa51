//! MPI jobs: watched as a whole, and rank by rank, with both launchers that people use.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use floodmark_event::units::format_bytes;
use serde_json::{Value, json};

use crate::cli_test::{CliTest, floodmark};

const MIB: u64 = 1 << 20;
/// Ranks of every job.
const RANKS: u64 = 4;

/// One implementation of MPI.
struct Mpi {
    name: &'static str,
    packages: &'static str,
    options: &'static [&'static str],
}

const OPEN_MPI: Mpi =
    Mpi { name: "openmpi", packages: "openmpi-bin libopenmpi-dev", options: &["--oversubscribe"] };
const MPICH: Mpi = Mpi { name: "mpich", packages: "mpich libmpich-dev", options: &[] };

impl Mpi {
    fn tool(&self, tool: &str) -> String {
        format!("{tool}.{}", self.name)
    }

    /// Runs a tool of it in the test's folder.
    fn output(&self, command: &mut Command) -> Output {
        // Either allows what root would otherwise be refused; a container has no other user.
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
            let packages = self.packages;
            panic!("{command:?}: {error}; this test needs MPI (Debian: apt-get install {packages})")
        })
    }

    /// Compiles the program that all jobs run: rank r has r + 1 times 16 MiB.
    fn compile(&self, test: &CliTest) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/ranks.c");
        let mut command = Command::new(self.tool("mpicc"));
        command.args(["-O1", "-Wall", "-Werror", "-o"]).arg(test.path("ranks")).arg(source);
        let output = self.output(&mut command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec![self.tool("mpiexec")];
        words.extend(self.options.iter().map(ToString::to_string));
        words.extend(["-n".into(), RANKS.to_string()]);
        words
    }

    /// Starts ranks, each of which is `args` under us.
    fn ranks(&self, test: &CliTest, args: &[&str]) -> Output {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(floodmark()).args(args).current_dir(test.path("."));
        self.output(&mut command)
    }
}

/// What the ranks wrote, in order.
fn lines(stdout: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn expected() -> Vec<String> {
    (0..RANKS).map(|rank| format!("rank {rank} of {RANKS}")).collect()
}

fn one_job(mpi: &Mpi) {
    let test = CliTest::new();
    mpi.compile(&test);
    let words = mpi.words();
    let mut command = test.command(&["run", "-o", "job.flood", "--json", "job.json", "--"]);
    let output = mpi.output(command.args(&words).args(["./ranks", "0"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(lines(&output.stdout), expected());
    let run: Value = serde_json::from_str(&test.read("job.json")).unwrap();
    assert_eq!(run["rank"], Value::Null, "the job is no rank");
    let list = run["process_list"].as_array().unwrap();
    for rank in 0..RANKS {
        let named = list.iter().filter(|process| process["name"] == "ranks" && process["rank"] == rank);
        let peaks: Vec<u64> = named.map(|process| process["peak_rss_bytes"].as_u64().unwrap()).collect();
        let least = (rank + 1) * 16 * MIB;
        assert_eq!(peaks.len(), 1, "{run}");
        assert!((least..least + 60 * MIB).contains(&peaks[0]), "{rank}: {run}");
    }
    let launchers = list.iter().filter(|process| process["name"] != "ranks");
    assert!(launchers.into_iter().all(|process| process["rank"].is_null()), "{run}");
    assert!(said.contains("(rank 0) to ") && said.contains("(rank 3)"), "{said}");
    // The trace tells the same.
    let info = test.run(&["info", "job.flood"]).ok().stdout;
    let row = |rank: u64| {
        let words = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
        info.lines().map(words).any(|words| {
            words.first().is_some_and(|name| name == "ranks") && words.get(2) == Some(&rank.to_string())
        })
    };
    assert!((0..RANKS).all(row), "{info}");
    let rows = test.run(&["read", "job.flood", "--metric", "hwm", "--separate"]).ok().stdout;
    let has_rank = |line: &str| line.contains("ranks (") && line.contains(") rank 3 ");
    assert!(rows.lines().any(has_rank), "{rows}");
    let svg = test.run(&["plot", "job.flood", "--per", "rank", "--format", "svg", "-o", "-"]).ok().stdout;
    for rank in 0..RANKS {
        assert!(svg.contains(&format!(">rank {rank}</text>")), "rank {rank}: {svg}");
    }
    assert!(svg.contains("processes without a rank"), "the launcher is there too: {svg}");
}

fn one_trace_per_rank(mpi: &Mpi) {
    let test = CliTest::new();
    mpi.compile(&test);
    let args = ["run", "-q", "-o", "t-%r.flood", "--json", "run-%r.json", "--", "./ranks", "0"];
    let output = mpi.ranks(&test, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines(&output.stdout), expected());
    for rank in 0..RANKS {
        let run: Value = serde_json::from_str(&test.read(&format!("run-{rank}.json"))).unwrap();
        assert_eq!((&run["rank"], &run["processes"]), (&json!(rank), &json!(1)));
        assert_eq!(run["process_list"][0]["rank"], rank);
        let trace = format!("t-{rank}.flood");
        let info = test.run(&["info", &trace, "--json"]).json();
        let memory = &info["memory"];
        assert_eq!((&memory["rank"], &info["run"]["exit_status"]), (&json!(rank), &json!(0)), "{trace}");
        assert!(memory["peak_rss_bytes"].as_u64().unwrap() > (rank + 1) * 16 * MIB, "{trace}");
    }
}

/// Names in a folder of the test, in order.
fn names(test: &CliTest, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(test.path(folder)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Ranks and peaks of the processes called `name`.
fn peaks(info: &Value, name: &str) -> BTreeMap<u64, u64> {
    let list = info["memory"]["process_list"].as_array().unwrap();
    let named = list.iter().filter(|process| process["name"] == name);
    named.filter_map(|one| Some((one["rank"].as_u64()?, one["peak_rss_bytes"].as_u64()?))).collect()
}

fn one_trace_of_all_ranks(mpi: &Mpi) {
    let test = CliTest::new();
    mpi.compile(&test);
    let args = ["run", "-o", "job.flood", "--json", "job.json", "--", "./ranks", "0"];
    let output = mpi.ranks(&test, &args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(lines(&output.stdout), expected(), "nothing is added to the output");
    assert_eq!(said.matches("  command ").count(), 1, "one rank speaks for all: {said}");
    let beside = names(&test, ".").into_iter().filter(|name| name.contains(".flood"));
    assert_eq!(beside.collect::<Vec<_>>(), ["job.flood"], "nothing is left beside the trace");
    assert_eq!(names(&test, "job.flood/segments"), ["job", "lock"], "everything is sealed");
    let info = test.run(&["info", "job.flood", "--json"]).json();
    assert_eq!((&info["memory"]["rank"], &info["run"]["exit_status"]), (&Value::Null, &json!(0)));
    let found = peaks(&info, "ranks");
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..RANKS).collect::<Vec<_>>(), "{info}");
    for (rank, peak) in found {
        let least = (rank + 1) * 16 * MIB;
        assert!((least..least + 60 * MIB).contains(&peak), "{rank}: {info}");
    }
    let read = test.run(&["read", "job.flood", "--stdout"]).ok().stdout;
    for rank in 0..RANKS {
        assert!(
            read.contains(&format!("rank {rank}: rank {rank} of {RANKS}")),
            "each line names its rank: {read}"
        );
    }
    let summary: Value = serde_json::from_str(&test.read("job.json")).unwrap();
    assert_eq!((&summary["processes"], &summary["exit_status"]), (&json!(RANKS), &json!(0)), "{summary}");
    // Another job is another trace.
    let output = mpi.ranks(&test, &["run", "-o", "job.flood", "--", "./ranks", "0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("-o run-%r.flood"), "{said}");
    for name in ["ranks.flood", "ranks-2.flood"] {
        let output = mpi.ranks(&test, &["run", "-q", "--", "./ranks", "0"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let info = test.run(&["info", name, "--json"]).json();
        assert_eq!(peaks(&info, "ranks").len() as u64, RANKS, "{name}: {info}");
    }
    let output = mpi.ranks(&test, &["run", "-q", "-o", "none.flood", "--", "./no-such-program"]);
    assert!(!output.status.success());
    // The launcher may kill the last recorder before that removes the trace.
    if test.path("none.flood").exists() {
        let info = test.run(&["info", "none.flood", "--json"]).json();
        assert_eq!(info["memory"]["processes"].as_u64().unwrap_or(0), 0, "{info}");
    }
}

#[test]
fn a_rank_that_is_killed_while_it_removes_its_trace_leaves_no_half_of_it() {
    let test = CliTest::new();
    // Each file and directory of the trace is removed by one call, and it is killed before one of them.
    for call in 1.. {
        let (name, inject) = (format!("{call}.flood"), format!("inject=unlinkat:signal=SIGKILL:when={call}"));
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat", "-e", &inject])
            .arg(floodmark());
        command.args(["run", "-q", "-o", &name, "--", "./no-such-program"]).current_dir(test.path("."));
        let output = command.env("PMI_RANK", "0").env("PMI_SIZE", "1").stdin(Stdio::null()).output();
        let output = output.expect("this test needs strace");
        assert!(!output.status.success(), "{call}");
        if output.status.signal().is_none() {
            assert!(call > 4, "it was killed while it removed the trace: {output:?}");
            assert!(!test.path(&name).exists());
            return;
        }
        if test.path(&name).exists() {
            test.run(&["info", &name, "--json"]).ok();
        }
    }
}

/// Ranks that end one after the other, and one whose recorder is killed.
fn ranks_that_end_early(mpi: &Mpi) {
    let test = CliTest::new();
    let rank = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; ";
    let script = format!("{rank} sleep 0.$((1 + rank * 2))");
    let output = mpi.ranks(&test, &["run", "-q", "-o", "ends.flood", "--", "sh", "-c", &script]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = test.run(&["read", "ends.flood", "--csv"]).ok().stdout;
    let of = |trace: &str, rows: &str| -> BTreeMap<u64, u64> {
        let info = test.run(&["info", trace, "--json"]).json();
        let list = info["memory"]["process_list"].as_array().unwrap().clone();
        let pids = list.iter().filter(|one| one["name"] == "sh" || one["name"] == "sleep");
        pids.filter_map(|one| {
            let pid = one["pid"].as_u64()?.to_string();
            let samples = rows.lines().filter(|line| line.split(',').nth(3) == Some(&pid)).count();
            Some((one["rank"].as_u64()?, samples as u64))
        })
        .collect()
    };
    let samples = of("ends.flood", &rows);
    assert_eq!(samples.len() as u64, RANKS, "{samples:?}");
    assert!(samples.values().all(|count| *count > 3), "{samples:?}");
    assert_eq!(names(&test, "ends.flood/segments"), ["job", "lock"]);
    // The launcher ends the job when the recorder of a rank is killed; what was sampled is there.
    let script = format!("{rank} sleep 0.3; [ $rank = 2 ] && kill -9 $PPID; exec sleep 3");
    let output = mpi.ranks(&test, &["run", "-q", "-o", "killed.flood", "--", "sh", "-c", &script]);
    assert!(!output.status.success());
    let rows = test.run(&["read", "killed.flood", "--csv"]).ok().stdout;
    let samples = of("killed.flood", &rows);
    assert_eq!(samples.len() as u64, RANKS, "{samples:?}");
    assert!(samples.values().all(|count| *count > 3), "{samples:?}");
}

/// Logs and the layout of `memory_logger.py` show the total of the ranks, computed here from the samples of each
/// process.
fn totals_of_the_script(mpi: &Mpi) {
    let test = CliTest::new();
    mpi.compile(&test);
    let mut command = test.command(&["run", "-q", "-o", "job.flood", "--"]);
    let output = mpi.output(command.args(mpi.words()).args(["./ranks", "0"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut names, mut held) = (BTreeMap::<u64, String>::new(), BTreeMap::<u64, u64>::new());
    let (mut ranks_peak, mut launchers_peak, mut time) = (0, 0, String::new());
    for line in test.run(&["read", "job.flood", "--csv"]).ok().stdout.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [at, _, kind, pid, name, metric, value] = fields[..] else { panic!("{line}") };
        if time != at {
            let sum = |is_rank: bool| -> u64 {
                held.iter().filter(|(pid, _)| (names[pid] == "ranks") == is_rank).map(|(_, rss)| rss).sum()
            };
            (ranks_peak, launchers_peak) = (sum(true).max(ranks_peak), sum(false).max(launchers_peak));
            at.clone_into(&mut time);
        }
        if (kind, metric) == ("process", "rss") {
            let pid: u64 = pid.parse().unwrap();
            names.insert(pid, name.to_owned());
            held.insert(pid, value.parse().unwrap());
        }
    }
    assert!(launchers_peak > MIB && ranks_peak > 160 * MIB, "{launchers_peak} {ranks_peak}: {names:?}");
    test.run(&["export", "job.flood", "-o", "job.log", "--format", "memory_logger", "-q"]).ok();
    test.run(&["import", "job.log", "-o", "again.flood", "-q"]).ok();
    let peak = test.run(&["info", "again.flood", "--json"]).json()["memory"]["peak_seen_bytes"].clone();
    assert_eq!(peak.as_u64().unwrap() / 1024, ranks_peak / 1024);
    let first = test.read("job.log").lines().next().unwrap().split(',').nth(1).map(str::to_owned);
    assert_eq!(first.as_deref(), Some("0"), "only the launcher runs at first");
    let [log, trace] = ["again.flood", "job.flood"].map(|path| {
        let text = test.run(&["read", path, "--layout", "original"]).ok().stdout;
        text.lines().next().unwrap().to_owned()
    });
    assert_eq!(log, trace);
    let plotted = test.run(&["memory_logger", "--plot", "job.flood"]).ok().stdout;
    assert!(plotted.contains(&format!("peak {} at", format_bytes(ranks_peak))), "{ranks_peak}: {plotted}");
}

#[test]
fn the_layout_of_memory_logger_leaves_launchers_of_open_mpi_out() {
    totals_of_the_script(&OPEN_MPI);
}

#[test]
fn the_layout_of_memory_logger_leaves_launchers_of_mpich_out() {
    totals_of_the_script(&MPICH);
}

/// Lines that the launcher labels belong to the rank in the label.
fn labelled_lines(mpi: &Mpi, option: &str) {
    let test = CliTest::new();
    mpi.compile(&test);
    let words = mpi.words();
    let mut command = test.command(&["run", "-q", "-o", "job.flood", "--", &words[0], option]);
    let output = mpi.output(command.args(&words[1..]).args(["./ranks", "0"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = test.run(&["read", "job.flood", "--stdout"]).ok().stdout;
    for rank in 0..RANKS {
        assert!(read.contains(&format!("rank {rank}: rank {rank} of {RANKS}")), "{read}");
    }
}

#[test]
fn lines_that_open_mpi_labels_are_those_of_their_rank() {
    labelled_lines(&OPEN_MPI, "--tag-output");
}

#[test]
fn lines_that_mpich_labels_are_those_of_their_rank() {
    labelled_lines(&MPICH, "-l");
}

fn failure(mpi: &Mpi) {
    let test = CliTest::new();
    mpi.compile(&test);
    // A rank that fails fails the job, as it would without us.
    let output = mpi.ranks(&test, &["run", "-q", "--", "./ranks", "7"]);
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    // The launcher may kill the recorders of the other ranks before one of them completes the trace.
    let info = test.run(&["info", "ranks.flood", "--json"]).json();
    assert_eq!(info["memory"]["wait_status"], 7 << 8, "{info}");
}

#[test]
fn ranks_of_open_mpi_record_into_one_trace() {
    one_trace_of_all_ranks(&OPEN_MPI);
}

#[test]
fn ranks_of_mpich_record_into_one_trace() {
    one_trace_of_all_ranks(&MPICH);
}

#[test]
fn nothing_is_lost_of_ranks_of_open_mpi_that_end_early() {
    ranks_that_end_early(&OPEN_MPI);
}

#[test]
fn nothing_is_lost_of_ranks_of_mpich_that_end_early() {
    ranks_that_end_early(&MPICH);
}

#[test]
fn a_job_of_open_mpi_is_known_rank_by_rank() {
    one_job(&OPEN_MPI);
}

#[test]
fn a_job_of_mpich_is_known_rank_by_rank() {
    one_job(&MPICH);
}

#[test]
fn each_rank_of_open_mpi_gets_its_own_trace() {
    one_trace_per_rank(&OPEN_MPI);
}

#[test]
fn each_rank_of_mpich_gets_its_own_trace() {
    one_trace_per_rank(&MPICH);
}

#[test]
fn a_rank_of_open_mpi_that_fails_fails_its_job() {
    failure(&OPEN_MPI);
}

#[test]
fn a_rank_of_mpich_that_fails_fails_its_job() {
    failure(&MPICH);
}
