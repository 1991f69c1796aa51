//! Programs in C to watch, and the report of the watcher.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floodmark_testkit::{TempDir, wait_for_exit, wait_until};

/// Environment variable that allows tests to run where the kernel reports no process events.
const WITHOUT_EVENTS: &str = "FLOODMARK_TEST_NO_PROCESS_EVENTS";

/// A user without permissions.
const NOBODY: u32 = 65534;

/// The user who runs a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The user who runs the tests.
    Current,
    /// A user without any permission: the current one unless that is root.
    Unprivileged,
}

/// A temporary directory with programs to watch and the report of a watcher.
pub(crate) struct WatchTest(TempDir);

impl WatchTest {
    /// Creates a directory that any user may write to.
    pub(crate) fn new(name: &str) -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"), name);
        let everyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&dir, everyone).expect("the directory is ours");
        Self(dir)
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles one of our programs.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs").join(name);
        let program = self.join(name.strip_suffix(".c").expect("a program in C"));
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source).arg("-lpthread");
        assert!(command.status().expect("cc runs").success(), "{name} compiles");
        program
    }

    /// A watcher with options that writes its report here; the caller adds the command.
    pub(crate) fn watcher(&self, options: &[&str]) -> Command {
        self.watcher_as(User::Current, options)
    }

    /// A watcher that is run by a user.
    pub(crate) fn watcher_as(&self, user: User, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark-watch"));
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
        if user == User::Unprivileged && is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.arg(format!("report={}", self.join("report").display())).args(options).arg("--");
        command.stdin(Stdio::null());
        command
    }

    /// Option with which a watcher creates a file after its first sweep; see [`WatchTest::wait_until_ready`].
    pub(crate) fn ready(&self) -> String {
        format!("ready={}", self.join("ready").display())
    }

    /// Waits until the watcher has created the file of [`WatchTest::ready`].
    pub(crate) fn wait_until_ready(&self, watcher: &mut Child) {
        wait_until("the watcher to be ready", || {
            let ended = watcher.try_wait().expect("it can be asked");
            assert_eq!(ended, None, "it ended before it was ready");
            self.join("ready").exists()
        });
    }

    /// Option with which a watcher writes its number of sweeps to a file; see [`WatchTest::sweeps`].
    pub(crate) fn count_sweeps(&self) -> String {
        format!("sweeps={}", self.join("sweeps").display())
    }

    /// Number of sweeps that the watcher has made so far.
    pub(crate) fn sweeps(&self) -> u64 {
        let text = std::fs::read_to_string(self.join("sweeps")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Runs a command under a watcher and reads its report.
    pub(crate) fn watch(&self, options: &[&str], words: &[&dyn AsRef<OsStr>]) -> Report {
        let mut watcher = self.watcher(options);
        watcher.args(words.iter().map(AsRef::as_ref));
        let mut watcher = watcher.spawn().expect("the watcher starts");
        let status = wait_for_exit(&mut watcher, "the watcher");
        let report = self.report();
        assert_eq!(status.code().map(|code| code as u64), Some(report.figure("exit")), "{status}");
        report
    }

    pub(crate) fn report(&self) -> Report {
        Report::parse(&std::fs::read_to_string(self.join("report")).expect("a report"))
    }
}

/// A subject of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) id: u32,
    pub(crate) kind: String,
    pub(crate) number: u64,
    pub(crate) parent: u32,
    pub(crate) name: String,
    pub(crate) detail: String,
    /// Whether it ended.
    pub(crate) ended: bool,
    pub(crate) status: Option<i32>,
    pub(crate) peak: Option<u64>,
}

/// The report of a watcher.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) subjects: Vec<Seen>,
    pub(crate) samples: Vec<(u64, u32, String, u64)>,
    pub(crate) marks: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// Stacks: process, trigger, functions from the innermost outwards.
    pub(crate) stacks: Vec<(u64, String, Vec<String>)>,
    /// Peaks by process, and their sources.
    pub(crate) peaks: Vec<(u64, u64, String)>,
    figures: HashMap<String, u64>,
}

/// Without samples, of which there are thousands.
impl fmt::Debug for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subjects, notes, peaks, figures, .. } = self;
        write!(out, "{subjects:#?} {notes:?} {peaks:?} {figures:?}")
    }
}

impl Report {
    fn parse(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |index: usize| fields[index].parse::<u64>().expect("a number");
            match fields[0] {
                "subject" => report.subjects.push(Seen {
                    id: number(1) as u32,
                    kind: fields[2].into(),
                    number: number(3),
                    parent: number(4) as u32,
                    name: fields[5].into(),
                    detail: fields[6].into(),
                    ended: false,
                    status: None,
                    peak: None,
                }),
                "end" => {
                    let subject = &mut report.subjects[number(1) as usize - 1];
                    subject.ended = true;
                    subject.status = fields[3].parse().ok();
                    subject.peak = fields[4].parse().ok();
                }
                "sample" => {
                    report.samples.push((number(1), number(2) as u32, fields[3].into(), number(4)));
                }
                "mark" => report.marks.push(fields[2].into()),
                "stack" => {
                    let functions = fields[4].split(' ').map(String::from).collect();
                    report.stacks.push((number(1), fields[3].into(), functions));
                }
                "note" => report.notes.push(fields[1].into()),
                "peak" => report.peaks.push((number(1), number(3), fields[4].into())),
                "figure" => {
                    report.figures.insert(fields[1].into(), number(2));
                }
                other => panic!("{other}?"),
            }
        }
        report
    }

    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.figures[name]
    }

    /// Processes, the last subject of each.
    pub(crate) fn processes(&self) -> Vec<Seen> {
        let mut last: HashMap<u64, Seen> = HashMap::new();
        for seen in self.subjects.iter().filter(|seen| seen.kind == "process") {
            last.insert(seen.number, seen.clone());
        }
        let mut processes: Vec<Seen> = last.into_values().collect();
        processes.sort_by_key(|seen| seen.id);
        processes
    }

    pub(crate) fn named(&self, name: &str) -> Vec<Seen> {
        let name = format!("{name:?}");
        self.processes().into_iter().filter(|seen| seen.name == name).collect()
    }

    pub(crate) fn job(&self) -> u32 {
        self.subjects.iter().find(|seen| seen.kind == "job").expect("a job").id
    }

    /// Values of one metric of one subject.
    pub(crate) fn series(&self, subject: u32, metric: &str) -> Vec<(u64, u64)> {
        let samples = self.samples.iter().filter(|(_, of, name, _)| *of == subject && name == metric);
        samples.map(|(at, _, _, value)| (*at, *value)).collect()
    }

    /// Whether the kernel reported process events to the watcher.
    ///
    /// A kernel that does not makes the test fail, unless the environment variable
    /// `FLOODMARK_TEST_NO_PROCESS_EVENTS` is set: then the caller checks the weaker promises that are left,
    /// and this function checks that the report names the reason.
    pub(crate) fn has_process_events(&self) -> bool {
        let missing = self.notes.iter().find(|note| note.contains("reports no process events"));
        let is_allowed = std::env::var_os(WITHOUT_EVENTS).is_some();
        match missing {
            None => true,
            Some(note) if is_allowed => {
                assert!(note.contains("may be missed"), "the consequence is reported: {note}");
                false
            }
            Some(note) => panic!("{note} (set {WITHOUT_EVENTS}=1 to test without process events)"),
        }
    }
}
