//! Processes that this process did not start, chosen by their environment, as agents choose those of a job.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use floodmark_event::{Metric, SubjectId, SubjectKind};
use floodmark_sampler::{Candidate, Discovery, Memory, Pace, Select, WatchProps, observe};

use crate::programs::WatchTest;

/// Chooses processes with a variable in their environment.
struct ByVariable(String);

impl Select for ByVariable {
    fn selects(&mut self, candidate: &Candidate<'_>) -> bool {
        let environment = candidate.environment().unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == self.0.as_bytes())
    }
}

/// Watches the processes that `start` starts with the variable, for a while, without events of the kernel.
fn watch(props: WatchProps, time: Duration, start: impl FnOnce(&mut Command) -> Child + Send) -> Memory {
    let variable = format!("FLOODMARK_TEST_SELECTED={}", std::process::id());
    let (stop, mut memory) = (AtomicBool::new(false), Memory::default());
    let (name, value) = variable.split_once('=').expect("a variable");
    let mut command = Command::new("perl");
    command.env(name, value);
    let props = WatchProps { discovery: Discovery::Scan, gpu_library: None, ..props };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            let mut child = start(&mut command);
            std::thread::sleep(time);
            stop.store(true, Ordering::Release);
            child.kill().expect("killed");
            child.wait().expect("waited");
        });
        let select = Box::new(ByVariable(variable.clone()));
        observe(select, ("node", ""), &props, &stop, &mut memory, &mut ()).expect("watched");
    });
    memory
}

#[test]
fn a_launcher_that_becomes_its_program_is_known_by_the_program_soon() {
    let props = WatchProps { pace: Pace::Fixed { interval_ns: 10_000_000 }, ..WatchProps::default() };
    // The shell of sshd is there long enough to be found, and becomes the program then.
    let memory = watch(props, Duration::from_millis(700), |command| {
        command
            .args(["-e", "select(undef, undef, undef, 0.15); exec 'sleep', '60'"])
            .spawn()
            .expect("started")
    });
    let processes = memory.subjects.iter().filter(|one| one.subject.kind == SubjectKind::Process);
    let names: Vec<&str> = processes.map(|one| one.subject.name.as_str()).collect();
    assert!(names.first() == Some(&"perl") && names.contains(&"sleep"), "{names:?}");
}

#[test]
fn the_cgroups_of_selected_processes_are_sampled() {
    let test = WatchTest::new("selected");
    let root = test.join("v2");
    let groups = std::fs::read_to_string("/proc/self/cgroup").expect("groups");
    let path = groups.lines().find_map(|line| line.strip_prefix("0::")).expect("a group of version 2");
    let folder = root.join("x").join(path.trim_start_matches('/'));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(root.join("x/cgroup.controllers"), "memory\n").expect("a file");
    for (name, text) in [("memory.current", "4096\n"), ("memory.max", "1048576\n"), ("memory.peak", "8192\n")]
    {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let props = WatchProps {
        pace: Pace::Fixed { interval_ns: 10_000_000 },
        cgroup_root: Some(root.join("x")),
        ..WatchProps::default()
    };
    let memory = watch(props, Duration::from_millis(300), |command| {
        command.args(["-e", "sleep 60"]).spawn().expect("started")
    });
    let is_cgroup = |index: &usize| memory.subjects[*index].subject.kind == SubjectKind::Cgroup;
    let found: Vec<usize> = (0..memory.subjects.len()).filter(is_cgroup).collect();
    assert_eq!(found.len(), 1, "{:?}", memory.subjects);
    let subject = SubjectId(found[0] as u32 + 1);
    let value = |metric| memory.series(subject, metric).first().map(|(_, value)| *value);
    assert_eq!(value(Metric::CgroupUsage), Some(4096));
    assert_eq!(value(Metric::CgroupLimit), Some(1 << 20));
    assert_eq!(value(Metric::CgroupPeak), Some(8192));
}
