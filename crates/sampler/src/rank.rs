//! The rank of a process in an MPI job, from the environment that its launcher set.
//!
//! A launcher may run within another's job, whose variables all its ranks inherit: under `salloc` every rank
//! of `mpiexec` has a `SLURM_PROCID` of 0. The variables of MPI launchers therefore take precedence, and
//! Slurm's counts only in a step of a job. Values that are not ranks are ignored.
//!
//! The launcher also tells which ranks belong together ([`own_job`]): Open MPI and `PMIx` by a namespace, Slurm by the
//! numbers of job and step. MPICH's launcher names no job, but it is a process itself: the nearest ancestor that is no
//! rank started all ranks on this host.

use std::fs::File;
use std::io::Read as _;

use crate::procfs;
use crate::tree::walk::Path;

/// Variables of launchers that start only ranks, in order of precedence: Open MPI's, those of `PMIx`, and
/// those of MPICH and its derivatives.
const RANKS: [&[u8]; 3] = [b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK"];
/// Variables that name what Open MPI and `PMIx` started together; the first two are the same on all hosts.
const JOBS: [&[u8]; 3] =
    [b"PMIX_NAMESPACE", b"OMPI_MCA_orte_precondition_transports", b"OMPI_MCA_ess_base_jobid"];
/// Slurm's number of a job.
const SLURM_JOB: &[u8] = b"SLURM_JOB_ID";
/// Slurm's variable, and the one of the step in which it counts.
const SLURM_RANK: &[u8] = b"SLURM_PROCID";
const SLURM_STEP: &[u8] = b"SLURM_STEP_ID";
/// Steps from this number on are the job's script or shell and have no ranks.
const SLURM_SPECIAL: u32 = 0xffff_fff0;
/// Ancestors that are searched for a launcher.
const MOST_ANCESTORS: usize = 64;
/// Number of bytes of an environment that are searched.
const MOST_BYTES: u64 = 256 << 10;

/// Rank of this process, if it belongs to an MPI job.
pub fn own_rank() -> Option<u32> {
    of(std::process::id() as i32)
}

/// Identifies the MPI job that this process is a rank of: the same text in all ranks that one launcher started, and in
/// no others. With MPICH outside of Slurm it is the same on one host only.
pub fn own_job() -> Option<String> {
    match job(&environment(std::process::id() as i32)?)? {
        JobName::Given(name) => Some(name),
        JobName::Launcher => launcher(),
    }
}

/// Rank of a process; none if it has none, or if its environment cannot be read.
pub(crate) fn of(pid: i32) -> Option<u32> {
    rank(&environment(pid)?)
}

fn environment(pid: i32) -> Option<Vec<u8>> {
    let file = File::open(Path::of(pid, "environ").as_str()).ok()?;
    let mut environment = Vec::with_capacity(16 << 10);
    file.take(MOST_BYTES).read_to_end(&mut environment).ok()?;
    Some(environment)
}

/// Identifies the nearest ancestor that is no rank: by host, PID and the time it began.
fn launcher() -> Option<String> {
    let mut pid = std::process::id() as i32;
    for _ in 0..MOST_ANCESTORS {
        let text = std::fs::read(Path::of(pid, "stat").as_str()).ok()?;
        let parent = procfs::stat(&text)?.parent;
        if parent <= 0 {
            return None;
        }
        // An environment that cannot be read is that of another user, such as a daemon.
        if of(parent).is_none() {
            let text = std::fs::read(Path::of(parent, "stat").as_str()).ok()?;
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            let began = procfs::stat(&text)?.start_ticks;
            return Some(format!("launcher {parent} {began} {}", boot.trim()));
        }
        pid = parent;
    }
    None
}

/// How a job is named.
#[derive(Debug, PartialEq, Eq)]
enum JobName {
    /// By variables.
    Given(String),
    /// By the process that started its ranks.
    Launcher,
}

/// Values of the variables that matter here.
#[derive(Default)]
struct Variables<'a> {
    ranks: [Option<&'a [u8]>; RANKS.len()],
    jobs: [Option<&'a [u8]>; JOBS.len()],
    slurm_rank: Option<&'a [u8]>,
    slurm_step: Option<&'a [u8]>,
    slurm_job: Option<&'a [u8]>,
}

impl<'a> Variables<'a> {
    fn of(environment: &'a [u8]) -> Self {
        let mut found = Self::default();
        for entry in environment.split(|byte| *byte == 0) {
            let Some(equals) = entry.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (&entry[..equals], &entry[equals + 1..]);
            let position = |names: &[&[u8]]| names.iter().position(|known| *known == name);
            let place = match name {
                SLURM_RANK => &mut found.slurm_rank,
                SLURM_STEP => &mut found.slurm_step,
                SLURM_JOB => &mut found.slurm_job,
                _ => match (position(&RANKS), position(&JOBS)) {
                    (Some(place), _) => &mut found.ranks[place],
                    (None, Some(place)) => &mut found.jobs[place],
                    (None, None) => continue,
                },
            };
            // The first of several counts, as for `getenv`.
            place.get_or_insert(value);
        }
        found
    }

    /// Step of a Slurm job, unless that is the job's script or shell.
    fn step(&self) -> Option<u32> {
        self.slurm_step.and_then(number).filter(|step| *step < SLURM_SPECIAL)
    }

    /// The rank, and the index of its variable in [`RANKS`]; Slurm's comes behind them.
    fn rank(&self) -> Option<(usize, u32)> {
        let rank = |value: &[u8]| number(value).filter(|rank| i32::try_from(*rank).is_ok());
        let slurm_rank = self.slurm_rank.filter(|_| self.step().is_some());
        let mut all = self.ranks.into_iter().chain([slurm_rank]).enumerate();
        all.find_map(|(at, value)| Some((at, rank(value?)?)))
    }
}

fn rank(environment: &[u8]) -> Option<u32> {
    Variables::of(environment).rank().map(|(_, rank)| rank)
}

fn job(environment: &[u8]) -> Option<JobName> {
    let variables = Variables::of(environment);
    let (launcher, _) = variables.rank()?;
    let text = |value: &[u8]| String::from_utf8_lossy(value).chars().filter(char::is_ascii_graphic).collect();
    let named: Vec<String> =
        variables.jobs.into_iter().flatten().map(text).filter(|name: &String| !name.is_empty()).collect();
    // MPICH's launcher may have been started by a rank of another job, whose names are inherited.
    if launcher < 2 && !named.is_empty() {
        return Some(JobName::Given(format!("pmix {}", named.join(" "))));
    }
    let slurm = variables.slurm_job.and_then(number).zip(variables.step());
    Some(slurm.map_or(JobName::Launcher, |(job, step)| JobName::Given(format!("slurm {job}.{step}"))))
}

/// A number in plain digits.
fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(entries: &[&str]) -> Option<u32> {
        super::rank(entries.join("\0").as_bytes())
    }

    #[test]
    fn ranks_of_one_launcher_have_one_job() {
        let job = |entries: &[&str]| super::job(entries.join("\0").as_bytes());
        let given = |name: &str| Some(JobName::Given(name.to_owned()));
        let open_mpi = ["OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=1", "PMIX_NAMESPACE=17", "SLURM_JOB_ID=4"];
        assert_eq!(job(&open_mpi), given("pmix 17"));
        assert_eq!(job(&["PMIX_RANK=0", "PMIX_NAMESPACE=slurm.pmix.4.0"]), given("pmix slurm.pmix.4.0"));
        assert_eq!(job(&["PMI_RANK=1", "SLURM_JOB_ID=4", "SLURM_STEP_ID=2"]), given("slurm 4.2"));
        assert_eq!(job(&["SLURM_PROCID=1", "SLURM_JOB_ID=4", "SLURM_STEP_ID=2"]), given("slurm 4.2"));
        assert_eq!(job(&["PMI_RANK=1"]), Some(JobName::Launcher));
        assert_eq!(job(&["PMI_RANK=1", "PMIX_NAMESPACE=17"]), Some(JobName::Launcher), "of an outer job");
        assert_eq!(job(&["PMIX_NAMESPACE=17", "SLURM_JOB_ID=4"]), None);
        assert_eq!(own_job(), own_job());
    }

    #[test]
    fn the_innermost_launcher_says_the_rank() {
        assert_eq!(rank(&["A=1", "PMI_RANK=3", "PMI_SIZE=4"]), Some(3));
        assert_eq!(rank(&["SLURM_PROCID=0", "PMI_RANK=3", "PMIX_RANK=2"]), Some(2));
        assert_eq!(rank(&["PMIX_RANK=2", "SLURM_PROCID=0", "OMPI_COMM_WORLD_RANK=1"]), Some(1));
        assert_eq!(rank(&["SLURM_STEP_ID=0", "SLURM_PROCID=7", "PATH=/bin"]), Some(7));
        assert_eq!(rank(&["SLURM_PROCID=0"]), None, "a shell of salloc is no rank");
        assert_eq!(rank(&["SLURM_PROCID=0", "SLURM_STEP_ID=4294967291"]), None, "nor is a batch script");
        assert_eq!(rank(&[]), None);
    }

    #[test]
    fn what_is_no_rank_is_no_value() {
        for value in
            ["", "-1", "+1", " 1", "1 ", "0x1", "1e3", "4294967296", "2147483648", "\u{661}", "9999999999999"]
        {
            let entry = format!("PMI_RANK={value}");
            assert_eq!(rank(&[&entry]), None, "{value:?}");
            assert_eq!(rank(&["SLURM_STEP_ID=1", "SLURM_PROCID=5", &entry]), Some(5), "{value:?}");
        }
        assert_eq!(rank(&["PMI_RANK", "=PMI_RANK=1", "XPMI_RANK=1", "PMI_RANKS=1"]), None);
        assert_eq!(rank(&["PMI_RANK=1", "PMI_RANK=2"]), Some(1));
        assert_eq!(super::rank(&[0xff; 5000]), None);
        assert_eq!(super::rank(b"PMI_RANK=\xff"), None);
    }
}
