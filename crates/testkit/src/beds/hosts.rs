//! Hosts with an SSH server each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::{Machine, Network, make_key, switch};
use super::{ip, require};
use crate::temp_dir::TempDir;

/// Hosts on one bridge, each with an SSH server to which the others can log in as root without a password.
#[derive(Debug)]
pub struct SshHosts {
    // Dropped in this order: machines before the files they use.
    hosts: Vec<Machine>,
    switch: Network,
    directory: TempDir,
}

/// State of a host's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Packets pass.
    Up,
    /// Packets are lost.
    Down,
}

impl SshHosts {
    /// Starts `count` hosts.
    ///
    /// # Panics
    /// If it is not run by root, or something cannot be started.
    #[track_caller]
    pub fn start(count: usize) -> Self {
        require(&[
            ("sshd", "openssh-server"),
            ("ssh", "openssh-client"),
            ("ip", "iproute2"),
            ("setpriv", "util-linux"),
        ]);
        fs::create_dir_all("/run/sshd").expect("/run can be written");
        let directory = TempDir::new("hosts");
        fs::create_dir(directory.join("home")).expect("a home");
        fs::create_dir(directory.join("bin")).expect("a directory of programs");
        make_key(&directory.join("id"));
        make_key(&directory.join("host_key"));
        fs::copy(directory.join("id.pub"), directory.join("authorized_keys")).expect("a copy of a key");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(directory.join("authorized_keys"), private).expect("permissions of a key");
        let switch = switch();
        let mut hosts: Vec<Machine> = (0..count).map(|_| Machine::new(&directory)).collect();
        let lines =
            hosts.iter().enumerate().map(|(number, host)| format!("{} {}\n", address(number), host.name));
        fs::write(directory.join("hosts"), format!("127.0.0.1 localhost\n{}", lines.collect::<String>()))
            .expect("a file of hosts");
        let config = format!(
            "Host *\n  IdentityFile {}\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  \
             LogLevel ERROR\n  BatchMode yes\n  SendEnv PBS_*\n",
            directory.join("id").display()
        );
        fs::write(directory.join("ssh_config"), config).expect("a configuration of ssh");
        for (number, host) in hosts.iter_mut().enumerate() {
            host.connect(&switch.name, number, &format!("{}/16", address(number)));
            // Open MPI refuses root otherwise, and a container has no other user.
            host.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
            host.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        let mut all = Self { hosts, switch, directory };
        (0..count).for_each(|number| all.boot(number));
        all
    }

    /// Starts a host, after it was killed say.
    ///
    /// # Panics
    /// If it does not start.
    pub fn boot(&mut self, number: usize) {
        let directory = self.directory.path();
        let name = self.hosts[number].name.clone();
        let file = |name: &str| directory.join(name).display().to_string();
        let config = format!(
            "Port 22\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPermitRootLogin yes\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPidFile none\nMaxStartups 200\nMaxSessions 200\nAcceptEnv PBS_*\n\
             SetEnv OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME={}\n",
            address(number),
            file("host_key"),
            file("authorized_keys"),
            // What root's shell does at its start is no part of a test.
            file("home"),
        );
        let config_path = directory.join(format!("sshd-{name}"));
        fs::write(&config_path, config).expect("a configuration of sshd");
        // Ready once something listens at port 22.
        let script = format!(
            "/usr/sbin/sshd -D -e -f {} &\nuntil grep -q ':0016 ' /proc/net/tcp; do sleep 0.01; done\n\
             echo up > {}\nwait",
            config_path.display(),
            file(&format!("up-{name}")),
        );
        let mounts: [(PathBuf, &str); 3] = [
            (directory.join("hosts"), "/etc/hosts"),
            (directory.join("ssh_config"), "/etc/ssh/ssh_config"),
            (self.bin(), "/usr/local/bin"),
        ];
        self.hosts[number].start(&script, &mounts);
    }

    /// A host.
    pub fn host(&self, number: usize) -> &Machine {
        &self.hosts[number]
    }

    /// Directory that is `/usr/local/bin` on all hosts; empty at first.
    pub fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// Directory for files of the test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The names of all hosts.
    pub fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }

    /// A command that runs on the first host, in `directory`.
    pub fn command(&self, directory: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.hosts[0].command(directory, program)
    }

    /// Stops a host at once.
    pub fn kill(&mut self, number: usize) {
        self.hosts[number].kill();
    }

    /// Lets packets of a host pass or not. Connections stay open on either side.
    pub fn set_link(&self, number: usize, link: Link) {
        let state = if link == Link::Up { "up" } else { "down" };
        ip(&format!("-n {} link set p{number} {state}", self.switch.name));
    }

    /// Networks in the notation that options of Open MPI take.
    pub fn network(&self) -> &'static str {
        "10.77.0.0/16"
    }
}

fn address(number: usize) -> String {
    format!("10.77.{}.{}", number / 200, number % 200 + 1)
}
