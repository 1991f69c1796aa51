//! A machine made of namespaces.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ip, succeed};
use crate::wait::wait_for;

/// Number of machines that this process made.
static MACHINES: AtomicU32 = AtomicU32::new(0);
/// What names of our namespaces begin with; the PID of the test follows.
const PREFIX: &str = "fm";

/// A network namespace with a name that no other test uses; removed with its value.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) name: String,
}

impl Network {
    pub(super) fn new() -> Self {
        remove_abandoned();
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        Self { name }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// Removes namespaces of tests that were killed.
fn remove_abandoned() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid =
            name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid.to_owned());
        let is_ours =
            pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists());
        if is_ours {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// A machine of its own: network, host name, processes, mounts and shared memory. Files are those of the machine that
/// the test runs on.
#[derive(Debug)]
pub struct Machine {
    /// Its host name.
    pub name: String,
    network: Network,
    directory: PathBuf,
    running: Option<Running>,
    environment: Vec<(String, String)>,
}

#[derive(Debug)]
struct Running {
    /// Holds the namespaces; killing it kills all.
    holder: Child,
    /// PID of the first process inside, seen from here.
    first: u32,
}

impl Machine {
    /// Makes a machine that is not started yet. Its files are in `directory`, which must have `hosts`.
    pub(super) fn new(directory: &Path) -> Self {
        let network = Network::new();
        let name = network.name.replace('-', "n");
        Self { name, network, directory: directory.to_owned(), running: None, environment: Vec::new() }
    }

    pub(super) fn network(&self) -> &str {
        &self.network.name
    }

    /// Sets a variable for all commands that are run on it.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// Starts it: runs `script` as its first process, which must write the file `up-NAME` when everything works and go
    /// on until it is killed. Mounts given as (file, where) hide what is there.
    ///
    /// # Panics
    /// If it does not start.
    pub(super) fn start(&mut self, script: &str, mounts: &[(PathBuf, &str)]) {
        let up = self.directory.join(format!("up-{}", self.name));
        let _ = std::fs::remove_file(&up);
        let binds: Vec<String> =
            mounts.iter().map(|(file, place)| format!("mount --bind {} {place}", file.display())).collect();
        let binds = binds.join("\n");
        let body =
            format!("set -e\nhostname {}\nmount -t tmpfs tmpfs /dev/shm\n{binds}\n{script}\n", self.name);
        let log = std::fs::File::create(self.directory.join(format!("{}.log", self.name)));
        let log = log.expect("a log can be created");
        let mut command = Command::new("setpriv");
        // The holder ends with the test, the first process inside with the holder.
        command.args(["--pdeathsig", "KILL", "nsenter", &format!("--net=/run/netns/{}", self.network.name)]);
        command.args([
            "unshare",
            "--uts",
            "--ipc",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command.args(["bash", "-c", &body]).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a log has a descriptor")).stdout(log);
        let mut holder =
            command.spawn().expect("setpriv can be started (Debian: apt-get install util-linux)");
        let first = wait_for(&format!("{} to start: {}", self.name, self.directory.display()), || {
            if let Ok(Some(status)) = holder.try_wait() {
                panic!("{} ended with {status}:\n{}", self.name, self.log());
            }
            let list = format!("/proc/{0}/task/{0}/children", holder.id());
            let first = std::fs::read_to_string(list).ok()?.split_whitespace().next()?.parse::<u32>().ok()?;
            up.exists().then_some(first)
        });
        self.running = Some(Running { holder, first });
    }

    /// What its services wrote.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join(format!("{}.log", self.name))).unwrap_or_default()
    }

    /// A command that runs on it, in `directory`.
    ///
    /// # Panics
    /// If the machine does not run.
    pub fn command(&self, directory: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let running = self.running.as_ref().expect("the machine runs");
        let mut command = Command::new("nsenter");
        command.args(["-t", &running.first.to_string(), "-n", "-u", "-i", "-p", "-m", "--"]);
        // Entering the mounts of a machine leads to its root directory.
        command.args(["env", "-C"]).arg(directory).arg(program);
        command.stdin(Stdio::null()).envs(self.environment.iter().cloned());
        command
    }

    /// Stops it at once, as pulling the plug does; nothing in it can notice.
    pub fn kill(&mut self) {
        if let Some(Running { mut holder, .. }) = self.running.take() {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }

    /// Gives it an address on a bridge in another network.
    pub(super) fn connect(&self, switch: &str, number: usize, address: &str) {
        let own = self.network();
        ip(&format!("link add v{number} netns {own} type veth peer name p{number} netns {switch}"));
        ip(&format!("-n {switch} link set p{number} master br0 up"));
        ip(&format!("-n {own} addr add {address} dev v{number}"));
        ip(&format!("-n {own} link set v{number} up"));
    }

    /// Gives it an address of its own that leads nowhere.
    pub(super) fn connect_nowhere(&self, address: &str) {
        let own = self.network();
        ip(&format!("-n {own} link add d0 type bridge"));
        ip(&format!("-n {own} addr add {address} dev d0"));
        ip(&format!("-n {own} link set d0 up"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes a bridge.
pub(super) fn switch() -> Network {
    let network = Network::new();
    ip(&format!("-n {} link add br0 type bridge", network.name));
    ip(&format!("-n {} link set br0 up", network.name));
    network
}

/// Makes a key for SSH.
pub(super) fn make_key(path: &Path) {
    succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path));
}
