//! Slurm with two nodes on one machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::machine::Machine;
use super::{require, said};
use crate::temp_dir::TempDir;
use crate::wait::wait_until;

/// A controller and two nodes of Slurm, `n1` and `n2`, with two CPUs each.
#[derive(Debug)]
pub struct SlurmBed {
    machine: Machine,
    directory: TempDir,
}

impl SlurmBed {
    /// Starts Slurm.
    ///
    /// # Panics
    /// If it is not run by root, or something cannot be started.
    #[track_caller]
    pub fn start() -> Self {
        require(&[
            ("munged", "munge"),
            ("slurmctld", "slurm-wlm"),
            ("slurmd", "slurm-wlm"),
            ("ip", "iproute2"),
        ]);
        let directory = TempDir::new("slurm");
        let path = directory.path();
        for folder in ["state", "spool/n1", "spool/n2", "munge", "groups"] {
            fs::create_dir_all(path.join(folder)).expect("a directory of Slurm");
        }
        // Munge refuses directories that others may write, and sockets that others cannot reach.
        succeed_mode(path, "755");
        fs::write(path.join("munge/key"), key()).expect("a key");
        succeed_mode(&path.join("munge/key"), "400");
        let mut machine = Machine::new(path);
        machine.connect_nowhere("10.99.0.1/24");
        fs::write(path.join("hosts"), format!("127.0.0.1 localhost\n10.99.0.1 {}\n", machine.name))
            .expect("a file of hosts");
        let (dir, name) = (path.display().to_string(), machine.name.clone());
        fs::write(path.join("slurm.conf"), configuration(&dir, &name)).expect("a configuration");
        // An empty directory keeps Slurm away from the control groups of this machine.
        let groups = format!("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint={dir}/groups\n");
        fs::write(path.join("cgroup.conf"), groups).expect("a configuration");
        machine.set("SLURM_CONF", format!("{dir}/slurm.conf"));
        machine.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
        machine.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let script = format!(
            "/usr/sbin/munged -F --force --key-file={dir}/munge/key --socket={dir}/munge/socket \
             --pid-file={dir}/munge/pid --log-file={dir}/munge/log --seed-file={dir}/munge/seed &\n\
             until [ -S {dir}/munge/socket ]; do sleep 0.01; done\n\
             /usr/sbin/slurmctld -D -c &\n/usr/sbin/slurmd -D -N n1 &\n/usr/sbin/slurmd -D -N n2 &\n\
             echo up > {dir}/up-{name}\nwait"
        );
        machine.start(&script, &[(path.join("hosts"), "/etc/hosts")]);
        let bed = Self { machine, directory };
        wait_until("two idle nodes of Slurm", || {
            let output =
                bed.command(bed.directory(), "sinfo").args(["-h", "-t", "idle", "-o", "%D"]).output();
            output.is_ok_and(|output| said(&output).trim() == "2")
        });
        bed
    }

    /// A command that runs on the machine in `directory`, with Slurm's configuration in its environment.
    pub fn command(&self, directory: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.machine.command(directory, program)
    }

    /// Directory of its files, which jobs may write to.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn succeed_mode(path: &Path, mode: &str) {
    super::succeed(Command::new("chmod").arg(mode).arg(path));
}

/// Bytes that are enough of a key for a machine that nothing else can reach.
fn key() -> Vec<u8> {
    let mut random = crate::Random::new(u64::from(std::process::id()));
    (0..1024).map(|_| random.below(256) as u8).collect()
}

fn configuration(dir: &str, host: &str) -> String {
    format!(
        "ClusterName=floodmark\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nAuthType=auth/munge\n\
         AuthInfo=socket={dir}/munge/socket\nCredType=cred/munge\nSlurmctldPort=16817\nSlurmdPort=16818\n\
         SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/slurmd-%n.pid\nSlurmdSpoolDir={dir}/spool/%n\n\
         StateSaveLocation={dir}/state\nSlurmctldLogFile={dir}/slurmctld.log\nSlurmdLogFile={dir}/slurmd-%n.log\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSchedulerType=sched/backfill\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\nMpiDefault=none\nReturnToService=2\n\
         SlurmdParameters=config_overrides\nCommunicationParameters=NoAddrCache\nSlurmctldTimeout=30\nSlurmdTimeout=30\n\
         MessageTimeout=20\nKillWait=2\nSchedulerParameters=batch_sched_delay=0,sched_min_interval=1\n\
         NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=4000 State=UNKNOWN\n\
         PartitionName=debug Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP\n"
    )
}
