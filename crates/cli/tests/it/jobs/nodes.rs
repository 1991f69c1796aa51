//! Jobs on several nodes with an agent on each, on hosts and schedulers that the tests start themselves: they need root, and
//! fail without. No PBS was available: its commands are scripts that do what the manual pages say.
#![expect(clippy::print_stdout, reason = "tests print how long agents took")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use floodmark_testkit::beds::{Link, PbsStubs, SlurmBed, SshHosts, said};
use floodmark_testkit::{wait_for_exit, wait_until, wait_within};
use serde_json::Value;

use super::{assert_ranks, compile, ranks, run};
use crate::cli_test::{CliTest, floodmark};

/// Times of the samples of resident memory of processes called `name`, and the values, by the host that recorded them.
fn samples(test: &CliTest, trace: &str, name: &str) -> BTreeMap<String, Vec<(i64, u64)>> {
    let manifest: Value = serde_json::from_str(&test.read(&format!("{trace}/manifest.json"))).unwrap();
    let recorders: BTreeMap<u64, String> = manifest["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| (process["id"].as_u64().unwrap(), process["host"].as_str().unwrap().to_owned()))
        .collect();
    let mut found: BTreeMap<String, Vec<(i64, u64)>> = BTreeMap::new();
    for line in test.run(&["read", trace, "--csv"]).stdout.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [time_ns, subject, kind, _, process, metric, value] = fields[..] else { panic!("{line}") };
        if (kind, process, metric) == ("process", name, "rss") {
            let host = recorders.get(&(subject.parse::<u64>().unwrap() >> 32)).cloned().unwrap_or_default();
            found.entry(host).or_default().push((time_ns.parse().unwrap(), value.parse().unwrap()));
        }
    }
    found
}

/// Hosts whose recorders are in a trace.
fn hosts_of(test: &CliTest, trace: &str) -> Vec<String> {
    let manifest: Value = serde_json::from_str(&test.read(&format!("{trace}/manifest.json"))).unwrap();
    let mut hosts: Vec<String> = manifest["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["host"].as_str().unwrap().to_owned())
        .collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn spool(test: &CliTest) -> String {
    test.path("spool").display().to_string()
}

/// Directory of the spools of this user, who is root.
fn spools(test: &CliTest) -> String {
    format!("{}/floodmark-0", spool(test))
}

#[test]
fn a_job_of_pbs_is_one_trace_of_its_nodes_and_ranks() {
    let (test, hosts) = (CliTest::new(), SshHosts::start(3));
    compile(&test);
    let job = PbsStubs::without_commands(&hosts, 2, 2);
    let names = hosts.names();
    let mut command = job.command(&hosts, &test.path("."), floodmark());
    command.args(["run", "--pbs", "--spool", &spool(&test), "-o", "job.flood", "--", "mpiexec.openmpi"]);
    command.args([
        "-host",
        &format!("{}:1,{}:1", names[0], names[1]),
        "-n",
        "2",
        "--mca",
        "oob_tcp_if_include",
    ]);
    command.args([
        hosts.network(),
        "--mca",
        "btl_tcp_if_include",
        hosts.network(),
        "--mca",
        "btl",
        "tcp,self",
    ]);
    let output = run(command.args(["./ranks-openmpi", "0"]));
    assert!(output.status.success(), "{}", said(&output));
    println!("{}", said(&output));
    let (found, on) = ranks(&test, "job.flood");
    assert_ranks(&found, 2, "two of three hosts");
    assert_eq!(on, sorted(names[..2].to_vec()), "the third host is not of the job");
    // Agents sampled before the command began.
    let manifest: Value = serde_json::from_str(&test.read("job.flood/manifest.json")).unwrap();
    let began_ns = manifest["run"]["start_ns"].as_i64().unwrap();
    let agents = manifest["processes"].as_array().unwrap().iter();
    let agents: Vec<&Value> = agents.filter(|one| one["command"].to_string().contains("agent")).collect();
    assert_eq!(agents.len(), 2, "{manifest}");
    assert!(agents.iter().all(|agent| agent["start_ns"].as_i64().unwrap() < began_ns), "{manifest}");
    // Ranks were seen before they had their memory, and within 100 ms of their start.
    let found = samples(&test, "job.flood", "ranks-openmpi");
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), sorted(names[..2].to_vec()));
    let info = test.run(&["info", "job.flood", "--json"]).json();
    for (host, samples) in found {
        assert!(samples[0].1 < 16 << 20, "{host}: {samples:?}");
        assert!(samples[0].0 > began_ns, "{host}: {samples:?}");
        let list = info["memory"]["process_list"].as_array().unwrap();
        let starts = list.iter().filter(|one| one["name"] == "ranks-openmpi");
        let starts: Vec<i64> = starts.filter_map(|one| one["start_time_ns"].as_i64()).collect();
        assert_eq!(starts.len(), 2, "{info}");
        let late_ns =
            starts.iter().map(|start| samples[0].0 - start).filter(|late| *late >= -10_000_000).min();
        println!("{host}: first sample {late_ns:?} ns after the start of a rank");
        assert!(late_ns.is_some_and(|late| late < 100_000_000), "{host}: {late_ns:?}");
    }
}

#[test]
fn agents_start_through_the_commands_of_pbs() {
    let (test, hosts) = (CliTest::new(), SshHosts::start(2));
    let job = PbsStubs::install(&hosts, 2, 2);
    let names = hosts.names();
    for (launcher, call) in [
        ("ssh", format!("{} pbs_attach -j 17.server -s", names[1])),
        ("pbs_tmrsh", format!("pbs_tmrsh {} /", names[1])),
        ("pbsdsh", "pbsdsh -n 2 -- /".to_owned()),
    ] {
        let trace = format!("{launcher}.flood");
        let mut command = job.command(&hosts, &test.path("."), floodmark());
        command.args(["run", "--pbs", "--launcher", launcher, "--spool", &spool(&test), "-o", &trace, "--"]);
        let output = run(command.args(["ssh", &names[1], "sleep", "0.7"]));
        assert!(output.status.success(), "{launcher}: {}", said(&output));
        assert!(job.calls().contains(&call), "{launcher}: {}", job.calls());
        assert_eq!(hosts_of(&test, &trace), sorted(names.clone()), "{launcher}");
        let on: Vec<String> = samples(&test, &trace, "sleep").into_keys().collect();
        assert_eq!(on, [names[1].clone()], "{launcher}: {}", said(&output));
    }
}

#[test]
fn twenty_four_hosts_are_one_trace() {
    let (test, hosts) = (CliTest::new(), SshHosts::start(24));
    let began = Instant::now();
    let lines: Vec<String> = hosts.names().iter().map(|name| format!("{name} slots=2\n")).collect();
    test.write("nodes", format!("# nodes of this job\n{}", lines.concat()));
    let mut command = hosts.command(&test.path("."), floodmark());
    command.args(["run", "--hostfile", "nodes", "--spool", &spool(&test), "-o", "job.flood", "--"]);
    // What listens on the recorder's host and on another one while agents run.
    let script = "cat /proc/net/tcp /proc/net/tcp6; ssh $0 cat /proc/net/tcp /proc/net/tcp6; ssh $0 hostname";
    let output = run(command.args(["sh", "-c", script, &hosts.names()[1]]));
    assert!(output.status.success(), "{}", said(&output));
    println!("24 hosts: {:?}\n{}", began.elapsed(), said(&output));
    assert_eq!(hosts_of(&test, "job.flood"), sorted(hosts.names()));
    let words = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("24 of 24 nodes were recorded completely"), "{words}");
    let ready = words.split("agents were ready after ").nth(1).unwrap().split_once(' ').unwrap();
    let seconds: f64 = ready.0.parse().unwrap();
    assert!(ready.1.starts_with("ms") || seconds <= 10.0, "{ready:?}");
    // Nothing but sshd listens: neither the recorder nor an agent opens a port.
    let listening = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listening.trim_end().ends_with(&hosts.names()[1]), "the other host was asked too: {listening}");
    let ports: Vec<&str> = listening
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .filter_map(|fields| fields[1].rsplit(':').next())
        .collect();
    assert!(ports.len() >= 2 && ports.iter().all(|port| *port == "0016"), "{listening}");
}

/// A directory of this machine that a host has for itself, and that is gone with the test.
struct OwnDirectory(&'static str);

impl OwnDirectory {
    fn mount(hosts: &SshHosts, number: usize, path: &'static str) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let mut command = hosts.host(number).command(Path::new("/"), "mount");
        let output = run(command.args(["-t", "tmpfs", "-o", "mode=0700,size=800m", "floodmark-test", path]));
        assert!(output.status.success(), "{}", said(&output));
        Self(path)
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // Only if nothing else is there.
        let _ = std::fs::remove_dir(self.0);
    }
}

#[test]
fn a_node_that_lacks_the_program_gets_a_copy() {
    let (test, hosts) = (CliTest::new(), SshHosts::start(2));
    let copies = "/tmp/floodmark-0-bin";
    let _own = OwnDirectory::mount(&hosts, 1, copies);
    let mut command = hosts.command(&test.path("."), floodmark());
    command.args([
        "run",
        "--hosts",
        &hosts.names()[1],
        "--push",
        "--spool",
        &spool(&test),
        "-o",
        "job.flood",
    ]);
    let output = run(command.args(["--", "sleep", "0.2"]));
    let words = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success() && words.contains("1 of 1 nodes were recorded completely"), "{words}");
    let manifest: Value = serde_json::from_str(&test.read("job.flood/manifest.json")).unwrap();
    let processes = manifest["processes"].as_array().unwrap();
    let agent = processes.iter().find(|one| one["host"] == hosts.names()[1].as_str()).unwrap();
    let program = agent["command"].as_str().unwrap().split(' ').next().unwrap();
    assert!(program.starts_with(&format!("{copies}/floodmark-")), "{agent}");
    // What was copied is this program, byte by byte.
    let mut compare = hosts.host(1).command(Path::new("/"), "cmp");
    let compared = run(compare.arg(program).arg(floodmark()));
    assert!(compared.status.success(), "{}", said(&compared));
}

/// A process of a job on a host.
fn start_on(hosts: &SshHosts, number: usize, directory: &Path) -> Child {
    let program = directory.join("member");
    // A program that runs on another host already cannot be written.
    if !program.exists() {
        std::fs::copy("/bin/sleep", &program).unwrap();
    }
    let mut command = hosts.host(number).command(directory, "./member");
    command.arg("60").env("PBS_JOBID", "17.server").stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether an agent runs on a host.
fn has_agent(hosts: &SshHosts, number: usize, directory: &Path) -> bool {
    let mut command = hosts.host(number).command(directory, "pgrep");
    run(command.args(["-f", "floodmark agent"])).status.success()
}

/// A recorder that runs beside the test, with an agent on each host.
fn spawn_recorder(test: &CliTest, hosts: &SshHosts, script: &str) -> Child {
    let job = PbsStubs::without_commands(hosts, hosts.names().len(), 1);
    let mut command: Command = job.command(hosts, &test.path("."), floodmark());
    command.args(["run", "--pbs", "--interval", "20ms", "--spool", &spool(test), "-o", "job.flood", "--"]);
    command
        .args(["sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(test.path("said")).unwrap());
    command.spawn().unwrap()
}

/// Times at which processes called `member` were sampled, and the recorders that did; of a trace that may be growing, so
/// that hosts of recorders may not be known.
fn live_times(test: &CliTest) -> Vec<(u64, i64)> {
    if !test.path("job.flood/manifest.json").exists() {
        return Vec::new();
    }
    let rows = test.run(&["read", "job.flood", "--csv"]).stdout;
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let is_member = fields.get(4) == Some(&"member") && fields.get(5) == Some(&"rss");
        is_member.then(|| (fields[1].parse::<u64>().unwrap() >> 32, fields[0].parse().unwrap()))
    };
    rows.lines().filter_map(row).collect()
}

/// Number of recorders that sampled processes called `member`.
fn recorders(test: &CliTest) -> usize {
    live_times(test)
        .into_iter()
        .map(|(recorder, _)| recorder)
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

fn utc_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Times at which processes called `member` were sampled on a host.
fn times(test: &CliTest, host: &str) -> Vec<i64> {
    let mut found = samples(test, "job.flood", "member").remove(host).unwrap_or_default();
    found.sort_unstable();
    found.into_iter().map(|(time_ns, _)| time_ns).collect()
}

#[test]
fn a_host_that_dies_and_a_link_that_breaks_lose_nothing() {
    let (test, mut hosts) = (CliTest::new(), SshHosts::start(3));
    let names = hosts.names();
    // The command ends when the test is done with the hosts.
    let mut recorder = spawn_recorder(&test, &hosts, "until [ -e done ]; do sleep 0.05; done");
    wait_until("agents on both hosts", || (1..3).all(|number| has_agent(&hosts, number, &test.path("."))));
    let ranks = [1, 2].map(|number| start_on(&hosts, number, &test.path(".")));
    wait_until("samples of both hosts", || recorders(&test) == 2);
    // The host that dies samples for a second that it cannot deliver.
    hosts.set_link(2, Link::Down);
    std::thread::sleep(Duration::from_millis(1200));
    hosts.kill(2);
    hosts.set_link(1, Link::Down);
    std::thread::sleep(Duration::from_secs(5));
    hosts.set_link(1, Link::Up);
    let up = utc_ns();
    wait_until("samples after the outage", || live_times(&test).iter().any(|(_, time_ns)| *time_ns > up));
    test.write("done", "");
    let status = wait_for_exit(&mut recorder, "the recorder");
    ranks.into_iter().for_each(end);
    let said = test.read("said");
    assert!(status.success(), "{said}");
    assert!(said.contains(&names[2]), "the lost node is named: {said}");
    // Of the host without a link everything is there, of the dead one what it had delivered.
    let alive = times(&test, &names[1]);
    let longest_ns = alive.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest_ns < 2_000_000_000, "nothing is missing of the 5 s: {longest_ns} ns\n{said}");
    let delivered = times(&test, &names[2]);
    assert!(!delivered.is_empty());
    // Its disk is there again when it is.
    hosts.boot(2);
    let mut collect = hosts.host(2).command(&test.path("."), floodmark());
    let output = run(collect.args(["collect", "-o", "job.flood", &spools(&test)]));
    assert!(output.status.success(), "{}", floodmark_testkit::beds::said(&output));
    let collected = times(&test, &names[2]);
    let added_ns = collected.last().unwrap() - delivered.last().unwrap();
    println!("{} samples delivered, {} with the spool, {added_ns} ns more", delivered.len(), collected.len());
    assert!(added_ns > 500_000_000, "what the dead host could not deliver is there: {added_ns} ns");
    assert!(delivered.iter().all(|time_ns| collected.contains(time_ns)), "and what it had delivered");
}

#[test]
fn agents_end_by_themselves_when_their_recorder_is_killed() {
    let (test, hosts) = (CliTest::new(), SshHosts::start(2));
    let names = hosts.names();
    let mut recorder = spawn_recorder(&test, &hosts, "until [ -e kill ]; do sleep 0.05; done; kill -9 $PPID");
    wait_until("an agent", || has_agent(&hosts, 1, &test.path(".")));
    let mut rank = start_on(&hosts, 1, &test.path("."));
    wait_until("samples of the other host", || recorders(&test) == 1);
    test.write("kill", "");
    assert!(!wait_for_exit(&mut recorder, "the recorder").success());
    let killed_ns = utc_ns();
    let took = wait_within(Duration::from_secs(10), "the end of both agents", || {
        (0..2).all(|number| !has_agent(&hosts, number, &test.path(".")))
    });
    println!("agents ended {took:?} after their recorder");
    assert!(rank.try_wait().unwrap().is_none(), "the job is not disturbed");
    let delivered: Vec<i64> = live_times(&test).into_iter().map(|(_, time_ns)| time_ns).collect();
    assert!(delivered.iter().all(|time_ns| *time_ns < killed_ns), "nothing is delivered to a dead recorder");
    assert!(!delivered.is_empty());
    let collected = test.run(&["collect", "-o", "job.flood", &spools(&test)]);
    assert_eq!((collected.code, collected.stderr.matches(" frames").count()), (0, 2), "{}", collected.stderr);
    assert!(!collected.stderr.contains("did not finish"), "both spools are complete: {}", collected.stderr);
    // The spool has all that was sampled until the agent gave its recorder up, 8 s after the kill, without a gap.
    let all = times(&test, &names[1]);
    assert!(delivered.iter().all(|time_ns| all.contains(time_ns)));
    let longest_ns = all.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest_ns < 2_000_000_000, "{longest_ns} ns without a sample");
    let after_ns = all.last().unwrap() - killed_ns;
    assert!(after_ns > 6_000_000_000, "sampled for {after_ns} ns after the kill");
    end(rank);
}

#[test]
fn jobs_of_slurm_are_one_trace_of_their_nodes_and_ranks() {
    let (test, slurm) = (CliTest::new(), SlurmBed::start());
    compile(&test);
    let program = floodmark().display().to_string();
    let line = |trace: &str| {
        let spool = spool(&test);
        format!(
            "{program} run --slurm --spool {spool} -o {trace} -- srun --overlap -N2 -n4 --mpi=pmi2 ./ranks-mpich 0"
        )
    };
    // All CPUs of the job are busy when agents start.
    let busy =
        format!("srun -N2 -n4 sleep 60 & sleep 0.5; {}; code=$?; kill $!; exit $code", line("salloc.flood"));
    let mut command = slurm.command(&test.path("."), "salloc");
    let output = run(command.args(["-Q", "-N2", "-n4", "sh", "-c", &busy]));
    assert!(output.status.success(), "{}", said(&output));
    assert_ranks(&ranks(&test, "salloc.flood").0, 4, "salloc");
    let found = line("sbatch.flood").replace("--slurm", "--cluster auto");
    test.write("job.sh", format!("#!/bin/sh\n{found}\n"));
    let mut command = slurm.command(&test.path("."), "sbatch");
    let output = run(command.args(["-W", "-N2", "-n4", "-o", "out", "job.sh"]));
    assert!(output.status.success(), "{}{}", said(&output), test.read("out"));
    assert_ranks(&ranks(&test, "sbatch.flood").0, 4, "sbatch");
    // The same without sending: one srun starts the agents of both nodes, and collect adds their spools.
    let line = line("kept.flood").replace("--spool", "--spool-only");
    let mut command = slurm.command(&test.path("."), "salloc");
    let output = run(command.args(["-Q", "-N2", "-n4", "sh", "-c", &line]));
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("floodmark collect"), "{}", said(&output));
    let collected = test.run(&["collect", "-o", "kept.flood", &spools(&test)]);
    assert_eq!(collected.code, 0, "{}", collected.stderr);
    assert_ranks(&ranks(&test, "kept.flood").0, 4, "kept");
    for trace in ["salloc.flood", "sbatch.flood", "kept.flood"] {
        // Both nodes of Slurm are on one host, and each is a node of its own in the trace.
        let nodes: Vec<String> = samples(&test, trace, "ranks-mpich").into_keys().collect();
        assert_eq!(nodes, ["n1", "n2"], "{trace}: {:?}", hosts_of(&test, trace));
    }
}
