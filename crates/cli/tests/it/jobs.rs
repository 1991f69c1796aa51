//! Whole jobs on hosts and schedulers that the tests start themselves: they need root, and fail without.
//!
//! Ranks that are wrapped in place join one trace; no agent runs there.

mod nodes;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use floodmark_testkit::beds::{SlurmBed, SshHosts, said, succeed};
use serde_json::Value;

use crate::cli_test::{CliTest, floodmark};

const MIB: u64 = 1 << 20;

/// Compiles the program that all jobs run, with both implementations of MPI: rank r has r + 1 times 16 MiB.
fn compile(test: &CliTest) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs/ranks.c");
    for name in ["openmpi", "mpich"] {
        let mut command = Command::new(format!("mpicc.{name}"));
        succeed(command.args(["-O1", "-o"]).arg(test.path(&format!("ranks-{name}"))).arg(&source));
    }
}

/// Peaks of ranks in a trace, and the hosts they were recorded on.
fn ranks(test: &CliTest, trace: &str) -> (BTreeMap<u64, u64>, Vec<String>) {
    let found = test.run(&["ranks", trace, "--json"]).json();
    let list = found["rank_list"].as_array().unwrap();
    let peak = |rank: &Value| (rank["rank"].as_u64().unwrap(), rank["peak_rss_bytes"].as_u64().unwrap());
    let mut hosts: Vec<String> = found["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["host"].as_str().unwrap().to_owned())
        .collect();
    hosts.sort();
    (list.iter().map(peak).collect(), hosts)
}

fn assert_ranks(found: &BTreeMap<u64, u64>, count: u64, what: &str) {
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..count).collect::<Vec<_>>(), "{what}");
    for (rank, peak) in found {
        let least = (rank + 1) * 16 * MIB;
        assert!((least..least + 60 * MIB).contains(peak), "{what}, rank {rank}: {peak}");
    }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn ranks_have_their_numbers_under_all_launchers_of_slurm() {
    let (test, slurm) = (CliTest::new(), SlurmBed::start());
    compile(&test);
    let variants: [(&str, u64, &[&str], &str); 4] = [
        ("pmi2", 4, &["srun", "-N2", "-n4", "--mpi=pmi2"], "mpich"),
        ("pmix", 2, &["srun", "-N1", "-n2", "--mpi=pmix"], "openmpi"),
        (
            "openmpi",
            2,
            &["salloc", "-Q", "-N1", "-n2", "mpiexec.openmpi", "--oversubscribe", "-n", "2"],
            "openmpi",
        ),
        ("mpich", 2, &["salloc", "-Q", "-N1", "-n2", "mpiexec.mpich", "-n", "2"], "mpich"),
    ];
    for (name, count, launcher, program) in variants {
        let trace = format!("{name}.flood");
        let mut command = slurm.command(&test.path("."), launcher[0]);
        command.args(&launcher[1..]).arg(floodmark()).args(["run", "-q", "-o", &trace, "--"]);
        let output = run(command.arg(format!("./ranks-{program}")).arg("0"));
        assert!(output.status.success(), "{name}: {}", said(&output));
        let mut lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        lines.sort_unstable();
        let expected: Vec<String> = (0..count).map(|rank| format!("rank {rank} of {count}")).collect();
        assert_eq!(lines, expected, "{name}");
        assert_ranks(&ranks(&test, &trace).0, count, name);
    }
}

#[test]
fn ranks_on_several_hosts_join_one_trace_through_a_shared_directory() {
    let (test, hosts) = (CliTest::new(), SshHosts::start(2));
    compile(&test);
    let names = hosts.names();
    let network = hosts.network();
    let mut command = hosts.command(&test.path("."), "mpiexec.openmpi");
    command.args([
        "-host",
        &format!("{}:2,{}:2", names[0], names[1]),
        "-n",
        "4",
        "--mca",
        "oob_tcp_if_include",
    ]);
    command.args([network, "--mca", "btl_tcp_if_include", network, "--mca", "btl", "tcp,self"]);
    command.arg(floodmark()).args([
        "run",
        "-q",
        "--heap=sample:4KiB",
        "-o",
        "job.flood",
        "--",
        "./ranks-openmpi",
        "0",
    ]);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", said(&output));
    let (found, on) = ranks(&test, "job.flood");
    assert_ranks(&found, 4, "two hosts");
    let mut expected = names;
    expected.sort();
    assert_eq!(on, expected);
    // The allocations of all ranks are in the same trace.
    let select = "select count(distinct e.process) as ranks, count(distinct p.host) as hosts from events e \
                  join processes p on p.process = e.process where p.command like './ranks-openmpi%'";
    let allocated = test.run(&["sql", "job.flood", select, "--format", "csv"]);
    assert_eq!(allocated.stdout.lines().nth(1), Some("4,2"), "{}{}", allocated.stdout, allocated.stderr);
    let info = test.run(&["info", "job.flood", "--json"]).json();
    assert_eq!(
        (&info["live"], &info["run"]["exit_status"]),
        (&Value::Bool(false), &Value::from(0)),
        "{info}"
    );
}
