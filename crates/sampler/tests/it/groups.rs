//! Control groups of both versions.

use std::fs;
use std::path::Path;

use floodmark_sampler::metrics::cgroup::{Cgroup, Usage};

use crate::programs::WatchTest;

fn write(folder: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(folder).expect("a folder");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
}

/// Control groups of the second version: /job has a limit and /job/step has none.
fn second_version(test: &WatchTest) -> std::path::PathBuf {
    let root = test.join("v2");
    write(&root, &[("cgroup.controllers", "memory\n")]);
    write(&root.join("job"), &[("memory.current", "900\n"), ("memory.max", "1048576\n")]);
    let step = [("memory.current", "4096\n"), ("memory.max", "max\n"), ("memory.peak", "8192\n")];
    write(&root.join("job/step"), &step);
    root
}

#[test]
fn the_second_version_is_read_and_the_least_limit_above_holds() {
    let test = WatchTest::new("v2");
    let root = second_version(&test);
    let groups = "9:cpu:/elsewhere\n0::/job/step\n";
    let group = Cgroup::below(&root, groups).expect("a group");
    assert_eq!(group.path(), "/job/step");
    assert_eq!(group.read(), Usage { usage: Some(4096), limit: None, peak: Some(8192) });
    assert_eq!(group.limit(), Some(1 << 20));
    fs::write(root.join("job/step/memory.max"), "65536\n").unwrap();
    fs::write(root.join("job/step/memory.current"), "5000\n").unwrap();
    assert_eq!((group.limit(), group.read().usage), (Some(65_536), Some(5000)), "files are read anew");
    let parent = Cgroup::below(&root, "0::/job\n").expect("a group");
    assert_eq!(
        parent.read(),
        Usage { usage: Some(900), limit: None, peak: None },
        "older kernels keep no peak"
    );
    assert!(Cgroup::below(&root, "0::/\n").is_none(), "the root is not accounted for");
    assert!(Cgroup::below(&root, "").is_none());
}

#[test]
fn a_task_without_controller_counts_for_its_step_and_the_limit_is_that_of_the_job() {
    let test = WatchTest::new("slurm");
    let root = test.join("v2");
    write(&root, &[("cgroup.controllers", "memory\n")]);
    let job = [("memory.current", "900\n"), ("memory.max", "1048576\n"), ("memory.peak", "950\n")];
    write(&root.join("slurm/job_123"), &job);
    let step = [("memory.current", "400\n"), ("memory.max", "max\n"), ("memory.peak", "500\n")];
    write(&root.join("slurm/job_123/step_0"), &step);
    write(&root.join("slurm/job_123/step_0/user/task_0"), &[("cgroup.procs", "")]);
    let group = Cgroup::below(&root, "0::/slurm/job_123/step_0/user/task_0\n").expect("a group");
    assert_eq!(group.path(), "/slurm/job_123/step_0");
    assert_eq!(group.read(), Usage { usage: Some(400), limit: None, peak: Some(500) });
    let limited = group.limited().expect("the job has a limit");
    assert_eq!((limited.path(), limited.limit()), ("/slurm/job_123", Some(1 << 20)));
    assert_eq!(limited.read(), Usage { usage: Some(900), limit: None, peak: Some(950) });
    assert!(limited.limited().is_none(), "it is this one");
    fs::write(root.join("slurm/job_123/step_0/memory.max"), "65536\n").unwrap();
    assert!(group.limited().is_none(), "the step has a limit of its own");
}

#[test]
fn the_first_version_is_read() {
    let test = WatchTest::new("v1");
    let root = test.join("memory");
    let none = "9223372036854771712\n";
    write(&root, &[("memory.usage_in_bytes", "77\n"), ("memory.limit_in_bytes", none)]);
    let files = [
        ("memory.usage_in_bytes", "123\n"),
        ("memory.limit_in_bytes", none),
        ("memory.max_usage_in_bytes", "456\n"),
    ];
    write(&root.join("a"), &files);
    let group = Cgroup::below(&root, "3:cpu:/\n2:hugetlb,memory:/a\n0::/\n").expect("a group");
    assert_eq!(group.read(), Usage { usage: Some(123), limit: None, peak: Some(456) });
    assert_eq!(group.limit(), None);
}

#[test]
fn the_group_of_a_command_is_sampled() {
    let test = WatchTest::new("sampled");
    let root = test.join("v2");
    // Where the command's group is on this machine, it is in the fixture.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
    write(&root, &[("cgroup.controllers", "memory\n")]);
    let files = [("memory.current", "4096\n"), ("memory.max", "81920\n"), ("memory.peak", "8192\n")];
    write(&root.join(path), &files);
    let option = format!("cgroup={}", root.display());
    let report = test.watch(&["samples", &option], &[&"sleep", &"0.1"]);
    let group = report.subjects.iter().find(|seen| seen.kind == "cgroup");
    let has_second_version = own.lines().any(|line| line.starts_with("0::"));
    assert_eq!(group.is_some(), has_second_version, "{own}");
    if let Some(group) = group {
        assert_eq!(group.detail, format!("\"/{path}\""));
        for (metric, value) in [("cgroup_usage", 4096), ("cgroup_peak", 8192), ("cgroup_limit", 81_920)] {
            let series = report.series(group.id, metric);
            assert_eq!(series.first().map(|(_, first)| *first), Some(value), "{metric}");
        }
    }
}
