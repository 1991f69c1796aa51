//! Command lines that start agents: one function per means. Nothing here starts anything.
//!
//! | means | transport |
//! |---|---|
//! | on this host, `ssh`, `ssh` with `pbs_attach`, `srun` | stdin and stdout of the launcher |
//! | `pbs_tmrsh`, `pbsdsh` | files in a shared directory, because their output goes to the job's files |
//!
//! No means opens a port.

use std::path::{Path, PathBuf};

use floodmark_event::text::shell_word;

use crate::hosts::{Node, NodeList, Scheduler};

/// Means to start agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `ssh`, and `pbs_attach` in a job of PBS that has it.
    Ssh,
    /// `srun`, as a step that overlaps with others.
    Srun,
    /// `pbs_tmrsh`.
    PbsTmrsh,
    /// `pbsdsh`.
    Pbsdsh,
}

impl Launcher {
    /// Returns the usual means of a scheduler.
    pub fn of(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::Slurm => Self::Srun,
            Scheduler::Pbs | Scheduler::Ssh => Self::Ssh,
        }
    }

    /// Whether the agent's stdin and stdout reach the recorder.
    pub fn has_stdio(self) -> bool {
        matches!(self, Self::Ssh | Self::Srun)
    }

    /// Returns the program that has to be there.
    pub fn program(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::Srun => "srun",
            Self::PbsTmrsh => "pbs_tmrsh",
            Self::Pbsdsh => "pbsdsh",
        }
    }
}

/// How to start the agent of a node.
#[derive(Clone, Debug)]
pub struct AgentCommand<'a> {
    /// The program on the node.
    pub program: &'a str,
    /// Id of the scheduler's job, if there is one.
    pub job: Option<&'a str>,
    /// Whether `pbs_attach` is to be used.
    pub attaches: bool,
    /// Path, without extension, of the files through which recorder and agent exchange messages; none for stdio.
    pub exchange: Option<&'a Path>,
    /// File of orders that the agents of all nodes follow, if they send nothing.
    pub orders: Option<&'a Path>,
}

impl AgentCommand<'_> {
    /// The agent's command line; `node` is told to one that follows orders, which are the same for all nodes.
    fn words(&self, node: Option<&Node>) -> Vec<String> {
        let mut words = vec![self.program.to_owned(), "agent".to_owned()];
        match (self.orders, self.exchange) {
            (Some(path), _) => {
                words.extend(["--follow".to_owned(), path.display().to_string()]);
                words.extend(node.iter().flat_map(|node| ["--node".to_owned(), node.name.clone()]));
            }
            (None, None) => words.push("--stdio".to_owned()),
            (None, Some(path)) => words.extend(["--exchange".to_owned(), path.display().to_string()]),
        }
        words
    }

    /// Returns the command line that starts the agents of all nodes at once; none if the launcher cannot do that.
    pub fn all(&self, launcher: Launcher, nodes: usize) -> Option<Vec<String>> {
        match launcher {
            Launcher::Srun => {
                let count = [format!("--nodes={nodes}"), format!("--ntasks={nodes}")];
                Some(self.srun_with(count.into_iter().chain(["--ntasks-per-node=1".to_owned()]), None))
            }
            // One task for each line of the list: all but the first one of a node find its spool in use, and end.
            Launcher::Pbsdsh => {
                Some(["pbsdsh".to_owned(), "--".to_owned()].into_iter().chain(self.words(None)).collect())
            }
            Launcher::Ssh | Launcher::PbsTmrsh => None,
        }
    }

    /// Returns the command line that starts the agent of `node`.
    pub fn argv(&self, launcher: Launcher, node: &Node) -> Vec<String> {
        match launcher {
            Launcher::Ssh => self.ssh(node),
            Launcher::Srun => self.srun(node),
            Launcher::PbsTmrsh => self.pbs_tmrsh(node),
            Launcher::Pbsdsh => self.pbsdsh(node),
        }
    }

    /// Starts it on this host.
    pub fn local(&self, node: &Node) -> Vec<String> {
        self.words(Some(node))
    }

    fn ssh(&self, node: &Node) -> Vec<String> {
        let mut words = Vec::new();
        if let (true, Some(job)) = (self.attaches, self.job) {
            words.extend(["pbs_attach", "-j", job, "-s"].map(str::to_owned));
        }
        words.extend(self.words(Some(node)));
        let line: Vec<String> = words.iter().map(|word| shell_word(word).into_owned()).collect();
        ssh(&node.name, &format!("exec {}", line.join(" ")))
    }

    fn srun(&self, node: &Node) -> Vec<String> {
        let one = ["--nodes=1".to_owned(), "--ntasks=1".to_owned(), format!("--nodelist={}", node.name)];
        self.srun_with(one, Some(node))
    }

    fn srun_with(&self, nodes: impl IntoIterator<Item = String>, node: Option<&Node>) -> Vec<String> {
        let mut argv: Vec<String> = ["srun", "--overlap", "--mem=0"].map(str::to_owned).into();
        argv.extend(nodes);
        if let Some(job) = self.job {
            argv.push(format!("--jobid={job}"));
        }
        // No devices, no MPI, no binding to cores that ranks use; a lost agent ends nothing.
        argv.extend(
            ["--gres=none", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--quiet"]
                .map(str::to_owned),
        );
        argv.extend(self.words(node));
        argv
    }

    fn pbs_tmrsh(&self, node: &Node) -> Vec<String> {
        ["pbs_tmrsh".to_owned(), node.name.clone()].into_iter().chain(self.words(Some(node))).collect()
    }

    fn pbsdsh(&self, node: &Node) -> Vec<String> {
        let head = ["pbsdsh".to_owned(), "-n".to_owned(), node.first_slot.to_string(), "--".to_owned()];
        head.into_iter().chain(self.words(Some(node))).collect()
    }
}

/// Returns the command line that runs a line of a shell on another host.
pub fn ssh(host: &str, line: &str) -> Vec<String> {
    // A shared connection may be used, but a process that keeps it open would be an orphan of the recorder.
    let options = [
        "BatchMode=yes",
        "ConnectTimeout=15",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "ControlMaster=no",
    ];
    let mut argv = vec!["ssh".to_owned(), "-T".to_owned()];
    argv.extend(options.into_iter().flat_map(|option| ["-o".to_owned(), option.to_owned()]));
    argv.extend(["--".to_owned(), host.to_owned(), line.to_owned()]);
    argv
}

/// Returns the id of the scheduler's job.
pub fn job_of(list: &NodeList) -> Option<&str> {
    list.variables.first().map(|(_, value)| value.as_str())
}

/// Finds a program in the directories of `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the condition of a shell that a directory is a private one of this user. A link is none: another user of
/// the node could point it elsewhere after the check.
fn is_private(directory: &str) -> String {
    format!(
        "test -d {directory} && ! test -L {directory} && test -O {directory} && test -z \"$(find {directory} -prune -perm \
         /022)\""
    )
}

/// Returns the line of a shell that succeeds if a program is there, as [`push_line`] stores it.
pub fn pushed_line(directory: &str, program: &str) -> String {
    let (directory, program) = (shell_word(directory), shell_word(program));
    format!(
        "{} && test -f {program} && ! test -L {program} && test -O {program} && test -x {program}",
        is_private(&directory)
    )
}

/// Returns the line of a shell that stores its input as a program: in a private directory, in a file of another name
/// first, so that no half-written program is ever run.
pub fn push_line(directory: &str, program: &str) -> String {
    let (directory, program) = (shell_word(directory), shell_word(program));
    format!(
        "umask 077; mkdir -p {directory} && {} && cat > {program}.$$ && chmod 700 {program}.$$ && mv {program}.$$ \
         {program}",
        is_private(&directory)
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use tempfile::TempDir;

    use super::*;

    fn node() -> Node {
        Node { name: "nodeB".into(), first_slot: 4 }
    }

    fn command(job: Option<&'static str>) -> AgentCommand<'static> {
        AgentCommand {
            program: "/opt/my tools/floodmark",
            job,
            attaches: false,
            exchange: None,
            orders: None,
        }
    }

    #[test]
    fn ssh_never_asks_and_runs_one_program() {
        let argv = command(None).argv(Launcher::Ssh, &node());
        let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=10"];
        assert_eq!(argv[..2], ["ssh", "-T"]);
        assert_eq!(argv[2..8], options);
        assert_eq!(
            argv[8..],
            [
                "-o",
                "ServerAliveCountMax=3",
                "-o",
                "ControlMaster=no",
                "--",
                "nodeB",
                "exec '/opt/my tools/floodmark' agent --stdio"
            ]
        );
    }

    #[test]
    fn pbs_attach_makes_the_agent_a_part_of_the_job() {
        let command = AgentCommand { attaches: true, ..command(Some("12.server")) };
        let argv = command.argv(Launcher::Ssh, &node());
        let line = "exec pbs_attach -j 12.server -s '/opt/my tools/floodmark' agent --stdio";
        assert_eq!(argv.last().map(String::as_str), Some(line));
    }

    #[test]
    fn pbs_tools_exchange_messages_through_files() {
        let command = AgentCommand {
            program: "/opt/floodmark",
            exchange: Some(Path::new("/home/a/run.nodes/nodeB")),
            ..command(Some("12.server"))
        };
        let agent = ["/opt/floodmark", "agent", "--exchange", "/home/a/run.nodes/nodeB"];
        let argv = command.argv(Launcher::PbsTmrsh, &node());
        assert_eq!(
            (&argv[..2], &argv[2..]),
            (&["pbs_tmrsh".to_owned(), "nodeB".to_owned()][..], &agent.map(str::to_owned)[..])
        );
        let argv = command.argv(Launcher::Pbsdsh, &node());
        assert_eq!(argv[..4], ["pbsdsh", "-n", "4", "--"]);
        assert_eq!(argv[4..], agent);
    }

    #[test]
    fn srun_takes_nothing_from_the_job() {
        let argv =
            AgentCommand { program: "/opt/floodmark", ..command(Some("77")) }.argv(Launcher::Srun, &node());
        let expected = "srun --overlap --mem=0 --nodes=1 --ntasks=1 --nodelist=nodeB --jobid=77 --gres=none --mpi=none \
                        --cpu-bind=none --kill-on-bad-exit=0 --quiet /opt/floodmark agent --stdio";
        assert_eq!(argv.join(" "), expected);
    }

    #[test]
    fn a_pushed_program_is_taken_only_from_a_private_directory() {
        let test = TempDir::new().unwrap();
        let (directory, elsewhere) = (test.path().join("bin"), test.path().join("elsewhere"));
        let program = directory.join("floodmark");
        let (folder, file) = (directory.display().to_string(), program.display().to_string());
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]).stdin(File::open("/bin/true").unwrap()).stderr(Stdio::null());
            command.status().unwrap().success()
        };
        assert!(!shell(&pushed_line(&folder, &file)), "it is not there yet");
        assert!(shell(&push_line(&folder, &file)) && shell(&pushed_line(&folder, &file)));
        assert_eq!(fs::read(&program).unwrap(), fs::read("/bin/true").unwrap());
        // What another user of the node could prepare: a link instead of the program or of the directory, or a directory
        // that others can write to.
        fs::rename(&program, test.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(test.path().join("moved"), &program).unwrap();
        assert!(!shell(&pushed_line(&folder, &file)));
        fs::remove_file(&program).unwrap();
        fs::rename(test.path().join("moved"), &program).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!shell(&pushed_line(&folder, &file)) && !shell(&push_line(&folder, &file)));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(&directory, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &directory).unwrap();
        assert!(!shell(&pushed_line(&folder, &file)) && !shell(&push_line(&folder, &file)));
    }
}
