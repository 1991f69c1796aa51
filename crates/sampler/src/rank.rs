//! The rank of a process in an MPI job, from the environment that its launcher set.
//!
//! A launcher may run within another's job, whose variables all its ranks inherit: under `salloc` every rank
//! of `mpiexec` has a `SLURM_PROCID` of 0. The variables of MPI launchers therefore take precedence, and
//! Slurm's counts only in a step of a job. Values that are not ranks are ignored.

use std::fs::File;
use std::io::Read as _;

use crate::tree::walk::Path;

/// Variables of launchers that start only ranks, in order of precedence: Open MPI's, those of `PMIx`, and
/// those of MPICH and its derivatives.
const RANKS: [&[u8]; 3] = [b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK"];
/// Slurm's variable, and the one of the step in which it counts.
const SLURM_RANK: &[u8] = b"SLURM_PROCID";
const SLURM_STEP: &[u8] = b"SLURM_STEP_ID";
/// Steps from this number on are the job's script or shell and have no ranks.
const SLURM_SPECIAL: u32 = 0xffff_fff0;
/// Number of bytes of an environment that are searched.
const MOST_BYTES: u64 = 256 << 10;

/// Rank of this process, if it belongs to an MPI job.
pub fn own_rank() -> Option<u32> {
    of(std::process::id() as i32)
}

/// Rank of a process; none if it has none, or if its environment cannot be read.
pub(crate) fn of(pid: i32) -> Option<u32> {
    let file = File::open(Path::of(pid, "environ").as_str()).ok()?;
    let mut environment = Vec::with_capacity(16 << 10);
    file.take(MOST_BYTES).read_to_end(&mut environment).ok()?;
    parse(&environment)
}

fn parse(environment: &[u8]) -> Option<u32> {
    let mut ranks = [None; RANKS.len()];
    let (mut slurm_rank, mut slurm_step) = (None, None);
    for entry in environment.split(|byte| *byte == 0) {
        let Some(equals) = entry.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (&entry[..equals], &entry[equals + 1..]);
        let place = match name {
            SLURM_RANK => &mut slurm_rank,
            SLURM_STEP => &mut slurm_step,
            _ => match RANKS.iter().position(|rank| *rank == name) {
                Some(place) => &mut ranks[place],
                None => continue,
            },
        };
        // The first of several counts, as for `getenv`.
        place.get_or_insert(value);
    }
    let rank = |value: &[u8]| number(value).filter(|rank| i32::try_from(*rank).is_ok());
    let is_step = slurm_step.and_then(number).is_some_and(|step| step < SLURM_SPECIAL);
    let slurm_rank = slurm_rank.filter(|_| is_step);
    ranks.into_iter().chain([slurm_rank]).flatten().find_map(rank)
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
        parse(entries.join("\0").as_bytes())
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
        assert_eq!(parse(&[0xff; 5000]), None);
        assert_eq!(parse(b"PMI_RANK=\xff"), None);
    }
}
