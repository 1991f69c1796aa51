//! What is seen of several nodes: live, with stacks, and where agents only write spools.

use std::process::Command;

use floodmark_store::Manifest;
use floodmark_testkit::wait_until;
use serde_json::Value;

use crate::nodes::{Bed, has, memory};
use crate::pty::Pty;
use crate::serve::Server;

/// A program that takes 40 MiB after a moment, in a rank.
fn growing(rank: &str) -> Command {
    let mut command = Command::new("perl");
    let program = "select(undef, undef, undef, 0.4); $x = 'x' x 4e7; sleep 60";
    command.args(["-e", program]).env("OMPI_COMM_WORLD_RANK", rank);
    command
}

#[test]
fn top_and_serve_show_all_nodes_while_the_job_runs() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n1,n2"]);
    let members = ["n1", "n2"].map(|node| job.member_of(node, &mut growing(&node[1..])));
    for pid in members {
        job.wait_for_member(pid);
    }
    let mut pty = Pty::start_sized(100, 30, bed.test.command(&["top", "run.flood"]));
    // A column for the node and one for the rank, and a row for each process.
    pty.wait_for_screen("row of each node", |screen| {
        let has_row = |pid: u64, node: &str| {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let mut rows = screen.lines().map(words);
            rows.any(|row| {
                [&pid.to_string(), node, &node[1..]].iter().all(|one| row.iter().any(|word| word == one))
            })
        };
        let has_heads = screen.lines().any(|line| line.contains("node") && line.contains("rank"));
        has_heads && has_row(members[0], "n1") && has_row(members[1], "n2") && screen.contains("recording")
    });
    pty.type_in("q");
    assert_eq!(pty.finish().0, 0);
    let server = Server::start(&bed.test, &["run.flood"]);
    wait_until("both processes on the page", || {
        let sent = server.get("/api/document").json();
        let text = sent["document"].to_string();
        members.iter().all(|pid| text.contains(&pid.to_string()))
    });
    // What is new shows while it is served.
    let late = job.member("n2");
    wait_until("the late process on the page", || {
        server.get("/api/document").json()["document"].to_string().contains(&late.to_string())
    });
    let words = job.finish();
    assert!(words.contains("2 of 2 nodes were recorded completely"), "{words}");
}

#[test]
fn agents_take_stacks_at_peaks() {
    let bed = Bed::new();
    let mut job = bed.start(&["--hosts", "n1", "--stacks", "native", "--interval", "10ms"]);
    let pid = job.member_of("n1", &mut growing("0"));
    job.wait_for_member(pid);
    // The peak is half a second later.
    wait_until("the peak", || {
        let found = memory(&bed.trace()).unwrap();
        found.process_list.iter().any(|one| one.pid == pid && one.peak_rss_bytes > 40_000_000)
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    job.finish();
    let rows = bed.test.run(&["read", "run.flood", "--json", "--stacks"]).stdout;
    let stacks: Vec<Value> = rows
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|row| row["table"] == "stack_sample" && row["number"] == pid)
        .collect();
    assert!(!stacks.is_empty(), "{}", rows.lines().take(5).collect::<Vec<_>>().join("\n"));
    let frames = stacks.iter().any(|row| row["stack"].to_string().to_lowercase().contains("perl"));
    assert!(frames, "{}", stacks[0]);
}

#[test]
fn agents_that_send_nothing_leave_spools_for_collect() {
    let bed = Bed::new();
    // The first node is another machine, whose clock is not measured in this mode.
    bed.test.write("n1.skew", "5000000000");
    let mut job = bed.start(&["--hosts", "n1,n2", "--spool-only", "shared"]);
    let members = ["n1", "n2"].map(|node| job.member(node));
    std::thread::sleep(std::time::Duration::from_millis(800));
    let words = job.finish();
    assert!(words.contains("2 of 2 nodes were recorded completely"), "{words}");
    assert!(words.contains("floodmark collect -o run.flood"), "{words}");
    let before = memory(&bed.trace()).unwrap();
    assert!(members.iter().all(|pid| !has(&before, *pid)), "nothing was sent");
    let ran = bed.test.run(&["collect", "-o", "run.flood", "--delete", "shared/floodmark-0"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stderr.contains("did not finish"), "{}", ran.stderr);
    let words = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("times of n1 are as its own clock had them"), "{words}");
    assert!(words.contains("its error is unknown") && !words.contains("times of n2"), "{words}");
    let after = memory(&bed.trace()).unwrap();
    assert!(members.iter().all(|pid| has(&after, *pid)));
    let manifest = Manifest::load(&bed.trace()).unwrap().unwrap();
    assert!(manifest.processes.iter().all(|process| process.sealed) && manifest.all_losses().gaps.is_empty());
    let hosts: Vec<&str> = manifest.processes.iter().map(|process| process.host.as_str()).collect();
    assert!(hosts.contains(&"n1") && hosts.contains(&"n2"), "{hosts:?}");
    // Orders are gone with the job.
    let left: Vec<_> = std::fs::read_dir(bed.test.path("shared")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
