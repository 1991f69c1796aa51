//! The nodes of a job: from a list, a file, or the environment that a scheduler sets.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::{Error, Result};

/// Most nodes of one job.
const MAX_NODES: usize = 65_536;

/// Where the list of nodes comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSource {
    /// `PBS_NODEFILE`.
    Pbs,
    /// `SLURM_JOB_NODELIST`.
    Slurm,
    /// Names or addresses.
    Hosts(Vec<String>),
    /// A file with a name or address in each line, as MPI launchers read it.
    Hostfile(PathBuf),
    /// The scheduler whose job this is.
    Auto,
}

/// The scheduler that a job belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// PBS Pro, `OpenPBS` or Torque.
    Pbs,
    /// Slurm.
    Slurm,
    /// None: nodes are reached by ssh.
    Ssh,
}

/// A node of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name or address.
    pub name: String,
    /// Line of `PBS_NODEFILE` that named it first, counted from 0.
    pub first_slot: usize,
}

/// The nodes of a job, and what its processes have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Each node once, in the order of the list.
    pub nodes: Vec<Node>,
    /// Variables in the environment of all processes of the job, with their values.
    pub variables: Vec<(String, String)>,
}

/// Reads a variable of the environment.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl NodeSource {
    /// Finds the nodes.
    ///
    /// # Errors
    /// If there is no such job, or its list cannot be read.
    pub fn nodes(&self, variable: Variables<'_>) -> Result<NodeList> {
        match self {
            Self::Pbs => pbs(variable),
            Self::Slurm => slurm(variable),
            Self::Hosts(hosts) => list(Scheduler::Ssh, expanded(&hosts.join(","))?, Vec::new(), "--hosts"),
            Self::Hostfile(path) => {
                let text = read(path)?;
                let names = hostfile(&text).map(str::to_owned).collect();
                list(Scheduler::Ssh, names, Vec::new(), &path.display().to_string())
            }
            Self::Auto if variable("PBS_NODEFILE").is_some() => pbs(variable),
            Self::Auto if variable("SLURM_JOB_ID").is_some() => slurm(variable),
            Self::Auto => Err(Error::refused(
                "there is no job of a scheduler here: neither PBS_NODEFILE nor SLURM_JOB_ID is set",
                "run this within a job, or name the nodes with --hosts or --hostfile",
            )),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|source: io::Error| Error::Io { act: format!("reading {}", path.display()), source })
}

fn pbs(variable: Variables<'_>) -> Result<NodeList> {
    let Some(path) = variable("PBS_NODEFILE") else {
        return Err(Error::refused(
            "PBS_NODEFILE is not set: this is no job of PBS",
            "run this as a command of the job script or of qsub -I",
        ));
    };
    let text = read(Path::new(&path))?;
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let job = variable("PBS_JOBID").map(|job| ("PBS_JOBID".to_owned(), job));
    list(Scheduler::Pbs, names, job.into_iter().collect(), &path)
}

fn slurm(variable: Variables<'_>) -> Result<NodeList> {
    let nodes = variable("SLURM_JOB_NODELIST").or_else(|| variable("SLURM_NODELIST"));
    let (Some(nodes), Some(job)) = (nodes, variable("SLURM_JOB_ID")) else {
        return Err(Error::refused(
            "SLURM_JOB_ID and SLURM_JOB_NODELIST are not set: this is no job of Slurm",
            "run this in a script of sbatch, or after salloc",
        ));
    };
    let variables = vec![("SLURM_JOB_ID".to_owned(), job)];
    list(Scheduler::Slurm, expanded(&nodes)?, variables, "SLURM_JOB_NODELIST")
}

/// Keeps the first of equal names.
fn list(
    scheduler: Scheduler,
    names: Vec<String>,
    variables: Vec<(String, String)>,
    place: &str,
) -> Result<NodeList> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for (first_slot, name) in names.into_iter().enumerate() {
        if !is_plain(&name) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(Error::refused(
                format!("'{shown}' in {place} is no name of a host"),
                "write names or addresses",
            ));
        }
        if known.insert(name.clone()) {
            nodes.push(Node { name, first_slot });
        }
    }
    if nodes.is_empty() {
        return Err(Error::refused(format!("{place} names no nodes"), "name at least one"));
    }
    Ok(NodeList { scheduler, nodes, variables })
}

/// Whether a name can be given to a launcher: it must not look like an option, or be cut by a shell.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "._-:@%[]".contains(c);
    !name.is_empty() && name.len() <= 255 && !name.starts_with('-') && name.chars().all(plain)
}

/// Names of a file for MPI launchers: the first word of each line, without `:SLOTS` and comments.
fn hostfile(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words = lines.filter_map(|line| line.split_whitespace().next());
    // An address of IPv6 has several colons.
    words.map(|word| match word.split_once(':') {
        Some((name, slots)) if !slots.contains(':') && slots.bytes().all(|byte| byte.is_ascii_digit()) => {
            name
        }
        _ => word,
    })
}

/// Expands a list as Slurm writes it: `n[1-3,07],login` is `n1`, `n2`, `n3`, `n07` and `login`.
///
/// # Errors
/// If a bracket is not closed or a range makes no sense.
pub fn expanded(text: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for part in split_outside_brackets(text) {
        expand_into(part.trim(), String::new(), &mut names).ok_or_else(|| {
            Error::refused(format!("'{part}' is no list of nodes"), "write it as in n1,n2 or n[1-4,7]")
        })?;
    }
    Ok(names)
}

/// Splits at commas that are not in brackets.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    let split = text.split(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth <= 0
    });
    split.filter(|part| !part.trim().is_empty()).collect()
}

/// Appends all names that `text` after `prefix` stands for; none if it makes no sense.
fn expand_into(text: &str, prefix: String, names: &mut Vec<String>) -> Option<()> {
    let Some((before, rest)) = text.split_once('[') else {
        if text.contains(']') || names.len() >= MAX_NODES {
            return None;
        }
        names.push(prefix + text);
        return Some(());
    };
    let (ranges, after) = rest.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (low, high): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if high < low || high - low >= MAX_NODES as u64 {
            return None;
        }
        for number in low..=high {
            let name = format!("{prefix}{before}{number:0width$}", width = first.len());
            expand_into(after, name, names)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &NodeList) -> Vec<(&str, usize)> {
        list.nodes.iter().map(|node| (node.name.as_str(), node.first_slot)).collect()
    }

    #[test]
    fn lists_of_slurm_are_expanded() {
        let expand = |text: &str| expanded(text).expect("a list");
        assert_eq!(expand("n[1-3,07],login"), ["n1", "n2", "n3", "n07", "login"]);
        assert_eq!(expand("n[008-011]"), ["n008", "n009", "n010", "n011"]);
        assert_eq!(expand("r[1-2]n[1-2]-ib"), ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]);
        assert_eq!(expand("a,,b, c"), ["a", "b", "c"]);
        assert!(expand("").is_empty());
        for wrong in ["n[1-", "n[1-2", "n]1", "n[2-1]", "n[a-b]", "n[]", "n[1-99999999]", "n[1--2]", "n[-1]"]
        {
            assert!(expanded(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_of_pbs_come_once_and_in_order() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("nodes");
        fs::write(&file, "nodeB\nnodeB\nnodeA\n\nnodeB\nnodeC\n").expect("written");
        let file = file.display().to_string();
        let found = NodeSource::Auto.nodes(&|name| match name {
            "PBS_NODEFILE" => Some(file.clone()),
            "PBS_JOBID" => Some("12.server".into()),
            _ => None,
        });
        let found = found.expect("nodes");
        assert_eq!(names(&found), [("nodeB", 0), ("nodeA", 2), ("nodeC", 4)]);
        assert_eq!(found.variables, [("PBS_JOBID".to_owned(), "12.server".to_owned())]);
        assert_eq!(found.scheduler, Scheduler::Pbs);
    }

    #[test]
    fn nodes_of_slurm_come_from_its_variables() {
        let found = NodeSource::Auto.nodes(&|name| match name {
            "SLURM_JOB_NODELIST" => Some("n[1-2]".into()),
            "SLURM_JOB_ID" => Some("77".into()),
            _ => None,
        });
        let found = found.expect("nodes");
        assert_eq!((names(&found), found.scheduler), (vec![("n1", 0), ("n2", 1)], Scheduler::Slurm));
        assert!(NodeSource::Auto.nodes(&|_| None).is_err());
        assert!(NodeSource::Pbs.nodes(&|_| None).is_err());
        assert!(NodeSource::Slurm.nodes(&|_| None).is_err());
    }

    #[test]
    fn hostfiles_of_mpi_launchers_are_read() {
        let text = "# nodes\nnodeA slots=4\n nodeB:2  max_slots=4\n\nfe80::1\nnodeA\n";
        assert_eq!(hostfile(text).collect::<Vec<_>>(), ["nodeA", "nodeB", "fe80::1", "nodeA"]);
    }

    #[test]
    fn what_could_be_an_option_is_no_host() {
        for wrong in ["-oProxyCommand=x", "a b", "a;b", "$(x)"] {
            let source = NodeSource::Hosts(vec![wrong.to_owned()]);
            assert!(source.nodes(&|_| None).is_err(), "{wrong}");
        }
        let found = NodeSource::Hosts(vec!["a".into(), "user@b".into(), "a".into()]).nodes(&|_| None);
        assert_eq!(names(&found.expect("nodes")), [("a", 0), ("user@b", 1)]);
    }
}
