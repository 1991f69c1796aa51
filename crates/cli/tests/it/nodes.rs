//! Jobs on several nodes. The nodes are this host: a program called `ssh` has agents started by a stand-in for sshd, so
//! that a connection can be cut, an agent killed and a node lost without any network. Real hosts are in the testkit's beds.

use std::collections::HashMap;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use floodmark_analyze::RunMemory;
use floodmark_cluster::spool::Spool;
use floodmark_inspect::{Input, OpenProps};
use floodmark_store::Manifest;
use floodmark_testkit::{wait_for, wait_for_exit, wait_until, wait_within};

use crate::cli_test::{CliTest, floodmark};

/// Stands in for ssh: the agent is no descendant of it, and loses its streams when it is killed.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2 line=$3
if [ -e "$BED/$host.hangs" ]; then trap '' TERM HUP; exec sleep 600; fi
if [ -e "$BED/$host.down" ]; then echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; fi
dir=$(mktemp -d "$BED/link.XXXXXX")
mkfifo "$dir/in" "$dir/out"
skew=$(cat "$BED/$host.skew" 2>/dev/null)
cat > "$dir/request" <<END
export SLURMD_NODENAME=$host FLOODMARK_SPOOL=$FLOODMARK_SPOOL FLOODMARK_TEST_CLOCK_SKEW=$skew
exec < "$dir/in" > "$dir/out"
echo \$\$ > "$BED/$host.agent.tmp"; mv "$BED/$host.agent.tmp" "$BED/$host.agent"
$line
END
mv "$dir/request" "$dir/request.sh"
exec 3<&0
cat <&3 > "$dir/in" &
echo $$ > "$BED/$host.ssh.tmp"; mv "$BED/$host.ssh.tmp" "$BED/$host.ssh"
exec cat "$dir/out"
"#;

/// Stands in for sshd: starts what is asked for, until its directory is gone.
const SSHD: &str = r#"
while [ -d "$BED/bin" ]; do
  for request in "$BED"/link.*/request.sh; do
    [ -e "$request" ] && mv "$request" "$request.taken" && setsid sh "$request.taken" < /dev/null > /dev/null &
  done
  sleep 0.02
done
"#;

/// Stands in for `pbs_tmrsh` and `pbsdsh`: no streams, one task by the number of its line in the list of nodes.
const TMRSH: &str = r#"#!/bin/sh
host=$1; shift
[ -z "$FAR" ] || for word; do shift; set -- "$@" "$(echo "$word" | sed 's|/run\.nodes/|/far.nodes/|')"; done
SLURMD_NODENAME=$host "$@" < /dev/null
"#;
const PBSDSH: &str = r#"#!/bin/sh
[ "$1" = -n ] && [ "$3" = -- ] || exit 3
host=$(sed -n "$(($2 + 1))p" "$PBS_NODEFILE"); shift 3
SLURMD_NODENAME=$host "$@" < /dev/null
"#;

/// A job on nodes of the test.
pub(crate) struct Bed {
    pub(crate) test: CliTest,
    sshd: Child,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        let test = CliTest::new();
        fs::create_dir(test.path("bin")).unwrap();
        for (name, script) in [("ssh", SSH), ("pbs_tmrsh", TMRSH), ("pbsdsh", PBSDSH)] {
            let path = test.path("bin").join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut sshd = Command::new("sh");
        sshd.args(["-c", SSHD]).env("BED", test.path(".")).stdin(Stdio::null());
        sshd.stdout(Stdio::null()).stderr(Stdio::null());
        let sshd = sshd.spawn().unwrap();
        Self { test, sshd }
    }

    /// Starts to record a command that waits for a file called `done`.
    pub(crate) fn start(&self, options: &[&str]) -> Job<'_> {
        self.start_as(self.test.command(&["run", "-o", "run.flood"]), options)
    }

    /// The same with another beginning of the command line.
    fn start_as(&self, mut command: Command, options: &[&str]) -> Job<'_> {
        let script = "echo $FLOODMARK_JOB > job.tmp; mv job.tmp job; while [ -e job ] && [ ! -e done ]; do sleep 0.02; done";
        command.args(options).args(["--", "sh", "-c", script]);
        self.prepare(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A recorder that ends early says why.
        let job = wait_for("the command", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the recorder ended: {ended:?}");
            fs::read_to_string(self.test.path("job")).ok()
        });
        Job { bed: self, child, id: job.trim().to_owned(), members: Vec::new() }
    }

    /// Sets the environment of a job of PBS whose tools are ours.
    fn prepare(&self, command: &mut Command) {
        let path = format!("{}:{}", self.test.path("bin").display(), std::env::var("PATH").unwrap());
        command
            .env("PATH", path)
            .env("BED", self.test.path("."))
            .env("FLOODMARK_SPOOL", self.test.path("spool"));
        for name in ["SLURM_JOB_ID", "SLURMD_NODENAME", "SSH_CONNECTION"] {
            command.env_remove(name);
        }
        command.env("PBS_NODEFILE", self.test.path("nodefile")).env("PBS_JOBID", "12.server");
    }

    fn number(&self, name: &str) -> i32 {
        wait_for(name, || fs::read_to_string(self.test.path(name)).ok()?.trim().parse().ok())
    }

    pub(crate) fn trace(&self) -> std::path::PathBuf {
        self.test.path("run.flood")
    }

    /// Processes that the recorder and the agents wrote, by host.
    fn observers(&self, host: &str) -> usize {
        let manifest = Manifest::load(&self.trace()).unwrap().unwrap();
        manifest.processes.iter().filter(|process| process.host == host).count()
    }
}

/// A job that is being recorded.
pub(crate) struct Job<'a> {
    bed: &'a Bed,
    child: Child,
    id: String,
    pub(crate) members: Vec<Child>,
}

impl Job<'_> {
    /// Starts a process of the job on a node; returns its PID.
    pub(crate) fn member(&mut self, node: &str) -> u64 {
        self.member_of(node, Command::new("sleep").arg("600"))
    }

    /// The same with another command.
    pub(crate) fn member_of(&mut self, node: &str, command: &mut Command) -> u64 {
        command.env("FLOODMARK_JOB", &self.id).env("SLURMD_NODENAME", node);
        let child = command.spawn().unwrap();
        let pid = u64::from(child.id());
        self.members.push(child);
        pid
    }

    /// Waits until the growing trace has a process.
    pub(crate) fn wait_for_member(&self, pid: u64) {
        wait_until("the process in the trace", || {
            memory(&self.bed.trace()).is_some_and(|memory| has(&memory, pid))
        });
    }

    /// Ends the command and returns what the recorder said, without line breaks.
    pub(crate) fn finish(mut self) -> String {
        fs::write(self.bed.test.path("done"), "").unwrap();
        wait_for_exit(&mut self.child, "the recorder");
        let mut words = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut words).unwrap();
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        // The command outlives a recorder that is killed, and goes by its file.
        let _ = fs::write(self.bed.test.path("done"), "");
        for child in self.members.iter_mut().chain([&mut self.child]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn memory(trace: &Path) -> Option<RunMemory> {
    let input = Input::open(trace, &OpenProps::default()).ok()?;
    input.run_memory(None).ok().flatten().map(|(memory, _)| memory)
}

pub(crate) fn has(memory: &RunMemory, pid: u64) -> bool {
    memory.process_list.iter().any(|process| process.pid == pid)
}

fn kill(pid: i32) {
    let status = Command::new("kill").args(["-9", "--", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn nodes_are_in_one_trace_from_before_the_command_on_and_live() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n[1-2]"]);
    let members = ["n1", "n2"].map(|node| job.member(node));
    // The trace of the head shows them while the job runs.
    for pid in members {
        job.wait_for_member(pid);
    }
    let words = job.finish();
    assert!(words.contains("2 of 2 nodes were recorded completely"), "{words}");
    let manifest = Manifest::load(&bed.trace()).unwrap().unwrap();
    for node in ["n1", "n2"] {
        let agent = manifest.processes.iter().find(|process| process.host == node).unwrap();
        assert!(Some(agent.start_ns) < manifest.run.start_ns, "the agent of {node} came late");
        assert!(agent.sealed);
    }
    let memory = memory(&bed.trace()).unwrap();
    for pid in members {
        assert_eq!(
            memory.process_list.iter().filter(|process| process.pid == pid).count(),
            1,
            "counted once"
        );
    }
    // Spools are gone, and so is everything that was made for the job.
    let spools = fs::read_dir(bed.test.path("spool")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_dir(spools).unwrap().count(), 0);
    assert!(!bed.test.path("run.nodes").exists());
}

#[test]
fn a_connection_that_is_cut_is_made_again_and_nothing_is_missing() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n1"]);
    let before = job.member("n1");
    job.wait_for_member(before);
    let ssh = bed.number("n1.ssh");
    kill(-ssh);
    let meanwhile = job.member("n1");
    job.wait_for_member(meanwhile);
    assert_ne!(bed.number("n1.ssh"), ssh);
    let words = job.finish();
    assert!(words.contains("node n1 is lost") && words.contains("node n1 is back"), "{words}");
    assert!(words.contains("lost once and made again; nothing is missing"), "{words}");
    assert_eq!(bed.observers("n1"), 1, "the same agent sampled all the time");
}

#[test]
fn an_agent_that_is_killed_is_started_again() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n1"]);
    let before = job.member("n1");
    job.wait_for_member(before);
    kill(bed.number("n1.agent"));
    let after = job.member("n1");
    job.wait_for_member(after);
    let words = job.finish();
    assert!(words.contains("its agent had ended, so nothing was sampled in between"), "{words}");
    assert_eq!(bed.observers("n1"), 2);
    assert!(has(&memory(&bed.trace()).unwrap(), before), "what the first one sampled is there");
}

#[test]
fn a_lost_node_is_named_and_its_spool_is_collected() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n1,n2"]);
    let (on_lost, on_other) = (job.member("n1"), job.member("n2"));
    job.wait_for_member(on_lost);
    fs::write(bed.test.path("n1.down"), "").unwrap();
    // In this order: the connection ends by itself soon after its agent.
    kill(-bed.number("n1.ssh"));
    let user = fs::read_dir(bed.test.path("spool")).unwrap().next().unwrap().unwrap().path();
    let spool = Spool::named(&user, &job.id, "n1");
    // What begins now is in the spool alone.
    let unsent = job.member_of("n1", Command::new("sleep").arg("600.25"));
    let is_spooled = |(_, path): &(u64, std::path::PathBuf)| {
        fs::read(path).unwrap().windows(12).any(|text| text == b"sleep 600.25")
    };
    wait_until("the process in the spool", || spool.frames().iter().any(is_spooled));
    kill(bed.number("n1.agent"));
    let later = job.member("n2");
    job.wait_for_member(later);
    let words = job.finish();
    assert!(words.contains("1 of 2 nodes were recorded completely"), "{words}");
    assert!(words.contains("node n1 was lost: ssh: connect to host n1 port 22: No route to host"), "{words}");
    assert!(words.contains("get it with 'floodmark collect'"), "{words}");
    let found = memory(&bed.trace()).unwrap();
    assert!(has(&found, on_lost) && has(&found, on_other) && has(&found, later));
    assert!(!has(&found, unsent), "it could not be delivered");
    let ran = bed.test.run(&["collect", "-o", "run.flood", "--delete", &user.display().to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let manifest = Manifest::load(&bed.trace()).unwrap().unwrap();
    assert!(manifest.processes.iter().all(|process| process.sealed));
    assert!(manifest.all_losses().gaps.is_empty(), "{:?}", manifest.all_losses());
    let collected = memory(&bed.trace()).unwrap();
    assert!(has(&collected, on_lost) && has(&collected, unsent), "collect adds what was in the spool alone");
}

#[test]
fn agents_of_a_killed_recorder_end_by_themselves() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n1"]);
    let early = job.member("n1");
    job.wait_for_member(early);
    let agent = bed.number("n1.agent");
    job.child.kill().unwrap();
    job.child.wait().unwrap();
    let late = job.member("n1");
    wait_within(std::time::Duration::from_secs(10), "the end of the agent", || {
        !Path::new(&format!("/proc/{agent}")).exists()
    });
    let user = fs::read_dir(bed.test.path("spool")).unwrap().next().unwrap().unwrap().path();
    let ran = bed.test.run(&["collect", "-o", "run.flood", &user.display().to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stderr.contains("did not finish"), "{}", ran.stderr);
    let memory = memory(&bed.trace()).unwrap();
    assert!(has(&memory, early) && has(&memory, late), "sampled until the end");
    fs::write(bed.test.path("done"), "").unwrap();
}

#[test]
fn pbs_tools_without_streams_use_files() {
    for launcher in ["pbs_tmrsh", "pbsdsh"] {
        let bed = Bed::new();
        bed.test.write("nodefile", "n1\nn1\nn2\nn2\n");
        let mut job = bed.start(&["--pbs", "--launcher", launcher]);
        let members = ["n1", "n2"].map(|node| job.member(node));
        for pid in members {
            job.wait_for_member(pid);
        }
        let words = job.finish();
        assert!(words.contains("2 of 2 nodes were recorded completely"), "{launcher}: {words}");
        assert_eq!((bed.observers("n1"), bed.observers("n2")), (1, 1));
        assert!(!bed.test.path("run.nodes").exists());
    }
}

/// Two views of a shared directory, as clients of a network file system have them: what one side appends the other sees later, and
/// first the second half of it, behind zeros.
struct LateViews {
    directories: [PathBuf; 2],
    /// Bytes of each file that the other side sees, and what it sees next.
    seen: HashMap<PathBuf, (u64, Option<Vec<u8>>)>,
}

impl LateViews {
    fn turn(&mut self) {
        for (from, to, extension) in [(0, 1, "to-agent"), (1, 0, "from-agent")] {
            let Ok(entries) = fs::read_dir(&self.directories[from]) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.extension().is_some_and(|found| found == extension) {
                    let other = self.directories[to].join(path.file_name().unwrap());
                    // A file that is being removed is gone at any time.
                    let _ = self.show(&path, &other);
                }
            }
        }
    }

    fn show(&mut self, path: &Path, other: &Path) -> io::Result<()> {
        let (seen, next) = self.seen.entry(path.to_owned()).or_default();
        let file = fs::File::options().write(true).create(true).truncate(false).open(other)?;
        if let Some(bytes) = next.take() {
            file.write_all_at(&bytes, *seen)?;
            *seen = file.metadata()?.len();
            return Ok(());
        }
        let mut bytes = fs::read(path)?.split_off(*seen as usize);
        let half = bytes.len() / 2;
        file.write_all_at(&bytes[half..], *seen + half as u64)?;
        bytes.truncate(half);
        *next = Some(bytes);
        Ok(())
    }
}

#[test]
fn a_shared_directory_that_shows_files_late_and_in_pieces_delays_and_loses_nothing() {
    let bed = Bed::new();
    bed.test.write("nodefile", "n1\nn2\n");
    let directories = ["run.nodes", "far.nodes"].map(|name| bed.test.path(name));
    fs::create_dir(&directories[1]).unwrap();
    let is_over = AtomicBool::new(false);
    let mut views = LateViews { directories, seen: HashMap::new() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                views.turn();
                std::thread::sleep(Duration::from_millis(60));
            }
        });
        let ended = SetOnDrop(&is_over);
        let mut command = bed.test.command(&["run", "-o", "run.flood"]);
        command.env("FAR", "1");
        let mut job = bed.start_as(command, &["--pbs", "--launcher", "pbs_tmrsh"]);
        let members = ["n1", "n2"].map(|node| job.member(node));
        for pid in members {
            job.wait_for_member(pid);
        }
        let words = job.finish();
        drop(ended);
        assert!(words.contains("2 of 2 nodes were recorded completely"), "{words}");
        assert_eq!((bed.observers("n1"), bed.observers("n2")), (1, 1), "{words}");
        // Of both nodes the messages went through both views.
        assert_eq!(fs::read_dir(bed.test.path("far.nodes")).unwrap().count(), 4);
    });
}

/// Sets a flag when it goes, so that a thread ends whatever happens.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_options_of_memory_logger_record_all_nodes_of_a_job_of_pbs() {
    let bed = Bed::new();
    bed.test.write("nodefile", "n1\nn1\nn2\n");
    let mut command =
        bed.test.command(&["memory_logger", "--pbs", "--outfile", "run.log", "--run", "sleep 0.3"]);
    bed.prepare(&mut command);
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{words}");
    assert!(words.contains("2 of 2 nodes were recorded completely"), "{words}");
    assert_eq!((bed.observers("n1"), bed.observers("n2")), (1, 1));
}

#[test]
fn clocks_that_are_off_are_measured_and_put_right() {
    const SKEW_NS: i64 = 5_000_000_000;
    let bed = Bed::new();
    bed.test.write("n1.skew", SKEW_NS.to_string());
    let mut job = bed.start(&["--hosts", "n1"]);
    let member = job.member("n1");
    job.wait_for_member(member);
    job.finish();
    let manifest = Manifest::load(&bed.trace()).unwrap().unwrap();
    assert_eq!(manifest.clocks.len(), 2);
    let boot = &manifest.processes.iter().find(|process| process.host == "n1").unwrap().boot;
    let clock = manifest.clocks.iter().find(|clock| clock.boot == *boot).unwrap();
    let error_ns = clock.error_ns.unwrap();
    assert!((clock.offset_ns + SKEW_NS).unsigned_abs() <= error_ns + 1_000_000, "{clock:?}");
    let run = (manifest.run.start_ns.unwrap(), manifest.run.end_ns.unwrap());
    let found = memory(&bed.trace()).unwrap();
    let process = found.process_list.iter().find(|process| process.pid == member).unwrap();
    let peak_ns = process.peak_time_ns.unwrap();
    assert!(peak_ns >= run.0 && peak_ns <= run.1 + error_ns as i64 + 1_000_000, "{peak_ns} {run:?}");
}

#[test]
fn nodes_that_cannot_be_recorded_are_named_with_the_remedy() {
    let bed = Bed::new();
    bed.test.write("n2.down", "");
    let job = bed.start(&["--hosts", "n1,n2"]);
    let words = job.finish();
    assert!(words.contains("node n2 is not recorded: ssh: connect to host n2"), "{words}");
    assert!(words.contains("check that 'ssh n2 true' works from here"), "{words}");
    assert!(words.contains("1 of 2 nodes were recorded completely"), "{words}");
    // The same job, if all nodes are required: the command is not started.
    let mut command = bed.test.command(&[
        "run",
        "--hosts",
        "n1,n2",
        "--require-nodes",
        "-o",
        "no.flood",
        "--",
        "touch",
        "started",
    ]);
    bed.prepare(&mut command);
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("1 of 2 nodes cannot be recorded"), "{words}");
    assert!(!bed.test.path("started").exists() && !bed.test.path("no.flood").exists());
}

#[test]
fn a_job_of_no_scheduler_is_an_error_before_the_command() {
    let test = CliTest::new();
    let mut command = Command::new(floodmark());
    command.args(["run", "--cluster", "auto", "--", "touch", "started"]).current_dir(test.path("."));
    command.env_remove("PBS_NODEFILE").env_remove("SLURM_JOB_ID");
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(words.contains("neither PBS_NODEFILE nor SLURM_JOB_ID is set"), "{words}");
    assert!(!test.path("started").exists());
}

/// A small file system of its own, which is gone with the test.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(at: std::path::PathBuf, size: &str) -> Self {
        fs::create_dir_all(&at).unwrap();
        let mut command = Command::new("mount");
        let ran = command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "floodmark-test"]).arg(&at);
        assert!(ran.status().unwrap().success(), "this test needs root");
        Self(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_at_the_recorder_gives_no_node_up() {
    let bed = Bed::new();
    let disk = Disk::mount(bed.test.path("disk"), "24m");
    let mut job = bed.start_as(
        bed.test.command(&["run", "-o", "disk/run.flood"]),
        &["--hosts", "n1,n2", "--interval", "2ms"],
    );
    let early = job.member("n1");
    let trace = bed.test.path("disk/run.flood");
    wait_until("the process in the trace", || memory(&trace).is_some_and(|found| has(&found, early)));
    // Everything that is left is taken.
    let filler = disk.0.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    // They change all the time, so that more is sent than fits into the last pages of files.
    let program = "while (1) { $x = 'x' x (1e5 * (1 + $i++ % 20)); select(undef, undef, undef, 0.004) }";
    let during = ["n1", "n2"].map(|node| job.member_of(node, Command::new("perl").args(["-e", program])));
    std::thread::sleep(std::time::Duration::from_secs(2));
    fs::remove_file(filler).unwrap();
    drop(file);
    for pid in during {
        wait_until("the process in the trace", || memory(&trace).is_some_and(|found| has(&found, pid)));
    }
    let words = job.finish();
    assert!(words.contains("what nodes send cannot be stored") && words.contains("No space left"), "{words}");
    assert!(words.contains("2 of 2 nodes were recorded completely"), "{words}");
    assert!(!words.contains("is lost"), "{words}");
}

#[test]
fn a_launcher_that_hangs_delays_the_command_and_the_end_for_a_bounded_time() {
    let bed = Bed::new();
    bed.test.write("n2.hangs", "");
    let began = std::time::Instant::now();
    let job = bed.start(&["--hosts", "n2", "--push", "--agent-timeout", "2s"]);
    let words = job.finish();
    assert!(
        words.contains("node n2 is not recorded: copying the program failed: ssh did not end in time"),
        "{words}"
    );
    assert!(words.contains("0 of 1 nodes were recorded completely"), "{words}");
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_low_limit_of_open_files_is_raised_or_named_before_the_command() {
    let bed = Bed::new();
    let limited = |limits: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(floodmark());
        command.arg("run").current_dir(bed.test.path("."));
        command
    };
    let job = bed.start_as(limited("ulimit -Sn 48"), &["-o", "run.flood", "--hosts", "n[1-12]"]);
    let words = job.finish();
    assert!(words.contains("12 of 12 nodes were recorded completely"), "{words}");
    let mut command = limited("ulimit -n 200");
    command.args(["--hosts", "n[1-40]", "-o", "no.flood", "--", "touch", "started"]);
    let path = format!("{}:{}", bed.test.path("bin").display(), std::env::var("PATH").unwrap());
    let output = command.env("PATH", path).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(
        words.contains("40 nodes need about 304 open files on this host, and the limit is 200"),
        "{words}"
    );
    assert!(!bed.test.path("started").exists() && !bed.test.path("no.flood").exists());
}
