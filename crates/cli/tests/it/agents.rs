//! Agents, spoken to as the recorder speaks to them: over their stdin and stdout.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use floodmark_cluster::spool::Spool;
use floodmark_cluster::wire::{Hello, Message, MessageReader, Welcome};
use floodmark_testkit::{wait_for, wait_until};

use crate::cli_test::{CliTest, floodmark};

const JOB: &str = "0123456789abcdef";

/// An agent and the streams to it.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: MessageReader<ChildStdout>,
}

impl Agent {
    fn start(test: &CliTest) -> Self {
        let mut command = Command::new(floodmark());
        command
            .args(["agent", "--stdio"])
            .env("FLOODMARK_SPOOL", test.path("spool"))
            .env_remove("SSH_CONNECTION");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), MessageReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, message: &Message) {
        message.write(self.input.as_mut().unwrap()).unwrap();
    }

    fn receive(&mut self) -> Option<Message> {
        self.output.next_message().unwrap()
    }

    /// Greets it and returns its answer, once it is ready.
    fn greet(&mut self, position: u64) -> Welcome {
        self.greet_for(position, 500_000_000)
    }

    fn greet_for(&mut self, position: u64, linger_ns: u64) -> Welcome {
        let hello = Hello { position, linger_ns, ..hello() };
        self.send(&Message::Hello(Box::new(hello)));
        let Some(Message::Welcome(welcome)) = self.receive() else { panic!("no welcome") };
        while self.receive() != Some(Message::Ready) {}
        *welcome
    }

    /// Receives bytes of the spool from `position` on until it is complete, and confirms them.
    fn drain(&mut self, position: &mut u64) {
        loop {
            match self.receive() {
                Some(Message::Data { position: at, bytes }) => {
                    assert_eq!(at, *position);
                    *position += bytes.len() as u64;
                    self.send(&Message::Ack { position: *position });
                }
                Some(Message::Ended { position: at }) => {
                    assert_eq!(at, *position);
                    return;
                }
                Some(_) => {}
                None => panic!("the agent ended"),
            }
        }
    }

    fn exit_code(mut self) -> (i32, String) {
        self.input = None;
        let output = self.child.wait_with_output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn hello() -> Hello {
    Hello {
        version: env!("CARGO_PKG_VERSION").into(),
        job: JOB.into(),
        node: "n1".into(),
        linger_ns: 500_000_000,
        ..Hello::default()
    }
}

/// The spool that an agent of the job will use, made by an agent before it.
fn earlier_spool(test: &CliTest) -> Spool {
    Spool::open(&test.path("spool").display().to_string(), JOB, "n1").unwrap()
}

fn spool(test: &CliTest) -> PathBuf {
    let parent = std::fs::read_dir(test.path("spool")).unwrap().next().unwrap().unwrap().path();
    std::fs::read_dir(parent).unwrap().next().unwrap().unwrap().path()
}

/// A process of the job.
fn member(job: &str) -> Child {
    Command::new("sleep").arg("60").env("FLOODMARK_JOB", job).spawn().unwrap()
}

/// PIDs of processes in a trace.
fn pids(trace: &Path) -> Vec<u64> {
    let Ok(input) = floodmark_inspect::Input::open(trace, &floodmark_inspect::OpenProps::default()) else {
        return Vec::new();
    };
    let memory = input.run_memory(None).ok().flatten();
    memory.map(|(memory, _)| memory.process_list.iter().map(|one| one.pid).collect()).unwrap_or_default()
}

#[test]
fn an_agent_delivers_its_spool_and_deletes_it() {
    let test = CliTest::new();
    let mut agent = Agent::start(&test);
    let welcome = agent.greet(0);
    assert_eq!((welcome.version.as_str(), welcome.position), (env!("CARGO_PKG_VERSION"), 0));
    assert!(!welcome.is_resumed);
    agent.send(&Message::Ping { number: 7 });
    while !matches!(agent.receive(), Some(Message::Pong { number: 7, .. })) {}
    agent.send(&Message::Stop);
    let mut position = 0;
    // What came before the pong was not kept; a recorder that comes back asks for all of it.
    let directory = spool(&test);
    wait_until("the spool is complete", || Spool::at(&directory).is_complete());
    let mut again = Agent::start(&test);
    drop(agent.input.take());
    assert_eq!(agent.exit_code().0, 0);
    assert_eq!(again.greet(0).position, 0);
    again.send(&Message::Stop);
    again.drain(&mut position);
    assert!(position > 0);
    again.send(&Message::Bye);
    assert_eq!(again.exit_code().0, 0);
    assert!(!directory.exists());
}

#[test]
fn an_agent_without_a_recorder_completes_its_spool_and_ends() {
    let test = CliTest::new();
    let mut agent = Agent::start(&test);
    agent.greet(0);
    let (mut ours, mut others) = (member(JOB), member("another job"));
    let directory = spool(&test);
    let count = Spool::at(&directory).length();
    // The process is in the spool once there is more than the agent's own samples; nothing is acknowledged.
    wait_until("more is sampled", || Spool::at(&directory).length() > count + 512);
    drop(agent.input.take());
    assert_eq!(agent.exit_code().0, 0);
    assert!(Spool::at(&directory).is_complete());
    let ran = test.run(&["collect", "-o", "late.flood", &directory.display().to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let found = pids(&test.path("late.flood"));
    for child in [&mut ours, &mut others] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(found, [u64::from(ours.id())]);
    // Once more adds nothing.
    let before = test.run(&["info", "late.flood", "--json"]).json();
    assert_eq!(
        test.run(&["collect", "-o", "late.flood", "--delete", &directory.display().to_string()]).code,
        0
    );
    let after = test.run(&["info", "late.flood", "--json"]).json();
    assert_eq!(before["answers"], after["answers"], "{before}");
    assert!(!directory.exists());
}

#[test]
fn a_second_connection_goes_on_with_the_spool_of_the_first() {
    let test = CliTest::new();
    let mut agent = Agent::start(&test);
    agent.greet_for(0, 40_000_000_000);
    let mut position = wait_for("data", || match agent.receive() {
        Some(Message::Data { bytes, .. }) => Some(bytes.len() as u64),
        _ => None,
    });
    // The link is cut: the first agent samples on.
    let mut second = Agent::start(&test);
    drop(agent.input.take());
    let welcome = second.greet_for(position, 40_000_000_000);
    assert!(welcome.is_resumed, "the first agent still samples");
    assert_eq!(welcome.position, position);
    second.send(&Message::Stop);
    second.drain(&mut position);
    assert_eq!(agent.exit_code().0, 0, "it was asked to end through the second connection");
    second.send(&Message::Bye);
    assert_eq!(second.exit_code().0, 0);
}

#[test]
fn an_agent_that_was_killed_leaves_its_samples_to_the_next() {
    let test = CliTest::new();
    let mut agent = Agent::start(&test);
    agent.greet(0);
    let directory = spool(&test);
    wait_until("something is sampled", || Spool::at(&directory).length() > 512);
    let before = Spool::at(&directory).length();
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    // Half a frame, as a kill in the middle of a write leaves it.
    let frames = std::fs::File::options().append(true).open(Spool::at(&directory).frames_at(0));
    frames.unwrap().write_all(b"FLCK half").unwrap();
    let mut next = Agent::start(&test);
    assert!(!next.greet(0).is_resumed);
    next.send(&Message::Stop);
    let mut position = 0;
    next.drain(&mut position);
    assert!(position > before, "{position} {before}");
    // Not confirmed, so it stays.
    assert_eq!(next.exit_code().0, 0);
    let ran = test.run(&["collect", "-o", "run.flood", &directory.display().to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let manifest = floodmark_store::Manifest::load(&test.path("run.flood")).unwrap().unwrap();
    assert_eq!(manifest.processes.len(), 2, "both agents");
    assert!(manifest.all_losses().gaps.iter().all(|gap| gap.count == 0), "{:?}", manifest.all_losses());
}

#[test]
fn garbage_ends_an_agent_without_harm() {
    let test = CliTest::new();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &vec![0xff; 300_000], b"FLWM\x01\x01", b"FLWM\x01\x09\0\0\0\0\0\0"]
    {
        let mut agent = Agent::start(&test);
        // It may end before it has read all of it.
        let _ = agent.input.as_mut().unwrap().write_all(garbage);
        let (code, words) = agent.exit_code();
        assert_eq!(code, 2, "{words}");
        assert!(words.starts_with("error: no recorder speaks here"), "{words}");
    }
    let mut agent = Agent::start(&test);
    agent.greet(0);
    agent.input.as_mut().unwrap().write_all(b"rubbish").unwrap();
    let (code, words) = agent.exit_code();
    assert_eq!((code, words.as_str()), (0, ""), "it has lost its recorder");
}

#[test]
fn another_version_is_refused_with_the_remedy() {
    let test = CliTest::new();
    let mut agent = Agent::start(&test);
    let hello = Hello { version: "0.0.1".into(), job: JOB.into(), ..Hello::default() };
    agent.send(&Message::Hello(Box::new(hello)));
    let Some(Message::Failed { text }) = agent.receive() else { panic!("it was accepted") };
    assert!(text.contains("the recorder is version 0.0.1") && text.contains("--push"), "{text}");
    assert_eq!(agent.exit_code().0, 2);
}

#[test]
fn an_agent_ends_on_a_signal_with_a_complete_spool() {
    let test = CliTest::new();
    let mut agent = Agent::start(&test);
    agent.greet(0);
    let directory = spool(&test);
    let ran = Command::new("kill").arg(agent.child.id().to_string()).status().unwrap();
    assert!(ran.success());
    let mut position = 0;
    agent.drain(&mut position);
    agent.send(&Message::Bye);
    assert_eq!(agent.exit_code().0, 0);
    assert!(!directory.exists());
}

#[test]
fn an_agent_that_cannot_sample_says_why_and_not_that_it_is_ready() {
    let test = CliTest::new();
    // Its recorder finds a file where its directory should be.
    std::fs::write(earlier_spool(&test).trace(), "").unwrap();
    let mut agent = Agent::start(&test);
    agent.send(&Message::Hello(Box::new(hello())));
    let text = loop {
        match agent.receive() {
            Some(Message::Failed { text }) => break text,
            Some(Message::Ready) => panic!("it said that it was ready"),
            Some(_) => {}
            None => panic!("it ended without a reason"),
        }
    };
    assert!(text.contains("creating ") && text.contains("node.flood"), "{text}");
    assert_eq!(agent.exit_code().0, 2);
}

#[test]
fn a_recorder_that_hangs_is_noticed_although_its_streams_are_open() {
    let test = CliTest::new();
    // More than the pipe holds, so that the agent cannot write on.
    std::fs::write(earlier_spool(&test).frames_at(0), vec![0; 1 << 20]).unwrap();
    let mut agent = Agent::start(&test);
    agent.send(&Message::Hello(Box::new(Hello {
        silence_ns: 1_000_000_000,
        linger_ns: 2_000_000_000,
        ..hello()
    })));
    let status = floodmark_testkit::wait_for_exit(&mut agent.child, "the agent");
    assert_eq!(status.code(), Some(0));
    assert!(Spool::at(&spool(&test)).is_complete());
}

#[test]
fn what_the_recorder_has_stored_is_deleted_while_the_job_runs() {
    let test = CliTest::new();
    let earlier = earlier_spool(&test);
    let file_bytes = floodmark_cluster::spool::FILE_BYTES;
    for position in [0, file_bytes, 2 * file_bytes] {
        std::fs::File::create(earlier.frames_at(position)).unwrap().set_len(file_bytes).unwrap();
    }
    let mut agent = Agent::start(&test);
    let hello = Hello { silence_ns: 60_000_000_000, ..hello() };
    agent.send(&Message::Hello(Box::new(hello)));
    let mut position = 0;
    while position < 3 * file_bytes {
        let Some(message) = agent.receive() else { panic!("the agent ended") };
        if let Message::Data { bytes, .. } = message {
            position += bytes.len() as u64;
            agent.send(&Message::Ack { position });
        }
    }
    wait_until("the stored files are gone", || earlier.start() == 2 * file_bytes);
    agent.send(&Message::Stop);
    agent.drain(&mut position);
    agent.send(&Message::Bye);
    assert_eq!(agent.exit_code().0, 0);
}

/// A spool with a process of the job that lived for a while.
fn recorded_spool(test: &CliTest, job: &str) -> (Spool, u64) {
    let mut agent = Agent::start(test);
    agent.send(&Message::Hello(Box::new(Hello { job: job.into(), interval_ns: 5_000_000, ..hello() })));
    while agent.receive() != Some(Message::Ready) {}
    // It changes all the time.
    let program = "while (1) { $x = 'x' x (1e5 * (1 + $i++ % 20)); select(undef, undef, undef, 0.01) }";
    let mut ours = Command::new("perl").args(["-e", program]).env("FLOODMARK_JOB", job).spawn().unwrap();
    let directory = test.path("spool").join(format!("floodmark-0/{job}-n1"));
    let spool = Spool::at(&directory);
    let count = spool.length();
    wait_until("more is sampled", || spool.length() > count + 1500);
    drop(agent.input.take());
    assert_eq!(agent.exit_code().0, 0);
    ours.kill().unwrap();
    ours.wait().unwrap();
    (spool, u64::from(ours.id()))
}

#[test]
fn damage_in_a_spool_is_a_gap_that_is_counted_and_named() {
    let test = CliTest::new();
    let (spool, pid) = recorded_spool(&test, "damaged");
    let path = spool.frames_at(0);
    let mut bytes = std::fs::read(&path).unwrap();
    // In the middle: what comes before and after it counts. The header is repeated behind it, as in long spools.
    let header = floodmark_tail::segment::Frame::parse(&bytes).unwrap().file_bytes();
    let mut at = 0;
    while at < bytes.len() / 2 {
        at += floodmark_tail::segment::Frame::parse(&bytes[at..]).unwrap().file_bytes();
    }
    let (repeated, rest) = (bytes[..header].to_vec(), bytes.split_off(at));
    let middle = bytes.len() - 20;
    bytes[middle] ^= 0x55;
    std::fs::write(&path, [bytes, repeated, rest].concat()).unwrap();
    let directory = spool.directory().display().to_string();
    for _ in 0..2 {
        let ran = test.run(&["collect", "-o", "run.flood", &directory]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("are damaged and missing from the trace"), "{}", ran.stderr);
    }
    assert_eq!(pids(&test.path("run.flood")), [pid]);
    let manifest = floodmark_store::Manifest::load(&test.path("run.flood")).unwrap().unwrap();
    let losses = manifest.all_losses();
    let gap = losses.gaps.iter().find(|gap| gap.reason.contains("are damaged")).expect("a gap");
    assert_eq!(gap.count, 1, "counted once, however often it is collected: {losses:?}");
    // The file ends as the agent wrote it: samples from behind the damage are there.
    let rows = test.run(&["read", "run.flood", "--csv"]).stdout;
    let times: Vec<i64> =
        rows.lines().skip(1).filter_map(|line| line.split(',').next()?.parse().ok()).collect();
    let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(last - first > 100_000_000, "{first} {last}");
}

#[test]
fn spools_of_different_jobs_are_not_mixed() {
    let test = CliTest::new();
    let (_, first) = recorded_spool(&test, "job1");
    let (_, second) = recorded_spool(&test, "job2");
    let all = test.path("spool/floodmark-0").display().to_string();
    let ran = test.run(&["collect", "-o", "run.flood", &all]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("spools of 2 jobs: job1, job2") && ran.stderr.contains("--job"),
        "{}",
        ran.stderr
    );
    assert_eq!(test.run(&["collect", "-o", "run.flood", "--job", "job2", &all]).code, 0);
    assert_eq!(pids(&test.path("run.flood")), [second]);
    // The trace knows its job from then on.
    assert_eq!(test.run(&["collect", "-o", "run.flood", &all]).code, 0);
    assert_eq!(pids(&test.path("run.flood")), [second]);
    let ran = test.run(&["collect", "-o", "run.flood", "--job", "job1", &all]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("is not the trace of job job1"), "{}", ran.stderr);
    assert_eq!(test.run(&["collect", "-o", "other.flood", "--job", "job1", &all]).code, 0);
    assert_eq!(pids(&test.path("other.flood")), [first]);
}
