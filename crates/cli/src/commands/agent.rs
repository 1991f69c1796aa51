//! `floodmark agent`

use std::io::{stdin, stdout};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::exit::ExitStatus;

/// Sample the processes of a job on this node for a recorder elsewhere
///
/// Started by 'floodmark run --pbs|--slurm|--hosts ...' on every node of a job, by ssh, srun or the tools of PBS; not
/// meant to be typed. It opens no port: messages go through its standard input and output, or through files.
#[derive(Args, Debug)]
#[command(after_help = PROTOCOL, group = clap::ArgGroup::new("transport").required(true))]
pub(crate) struct AgentArgs {
    /// Exchange messages with the recorder through standard input and output
    #[arg(long, group = "transport")]
    stdio: bool,
    /// Exchange messages through PATH.to-agent and PATH.from-agent in a shared directory
    #[arg(long, value_name = "PATH", group = "transport")]
    exchange: Option<PathBuf>,
    /// Send nothing: follow the orders in FILE, which the agents of all nodes share, and keep everything in the spool
    #[arg(long, value_name = "FILE", group = "transport")]
    follow: Option<PathBuf>,
    /// Name of this node, for an agent that sends nothing
    #[arg(long, value_name = "NAME", requires = "follow")]
    node: Option<String>,
}

const PROTOCOL: &str = "\
Protocol, version 1:
  A message is 'FLWM', its kind (1 byte), the version (1), 0 (2), the length of its payload
  (4, at most 1 MiB), 0 (4), a checksum (8), the payload and a line feed. The recorder sends
  hello (1), ping (2), ack (3), stop (4) and bye (5); the agent welcome (16), ready (17),
  pong (18), data (19), ended (20) and failed (21). Data are bytes of the spool, which has
  the frames of FORMAT.md, section 4.4.

  The agent samples into a spool on its own disk before it says that it is ready, and sends
  the spool from the position that the recorder asks for. It ends when it was asked to stop
  and the recorder has everything; 8 s after its connection was closed; after 15 s without a
  message (30 s through files) and 8 more; or by SIGTERM. Its spool is deleted only after
  bye: 'floodmark collect' takes in what is left. With --follow it reads hello, ping and
  stop from one file, and sends nothing.

Which processes it samples, of its own user:
  - FLOODMARK_JOB in their environment is the id of the recording
  - PBS_JOBID or SLURM_JOB_ID there is that of the job, and SLURMD_NODENAME, if set, that of
    the agent
  - they were started after the agent by an ssh connection from a node of the job
  - they descend from one of these
  and never those that have one of the variables of another job.

Environment:
  FLOODMARK_SPOOL   directory for spools instead of /tmp
  FLOODMARK_JOB, FLOODMARK_HOST  id of the recording and host of the recorder, in the command's
                    environment; programs that record themselves find the agent's trace by them
  SSH_CONNECTION    address of the host that started the agent, from which ranks are started too
  SLURMD_NODENAME   name of the node, where one host has several
  FLOODMARK_TEST_CLOCK_SKEW  nanoseconds by which the clock is shifted, for tests";

impl AgentArgs {
    pub(crate) fn run(&self) -> Result<ExitStatus> {
        let version = env!("CARGO_PKG_VERSION");
        match (&self.follow, &self.exchange) {
            (Some(orders), _) => {
                floodmark_cluster::exchange::follow(orders, self.node.as_deref(), version)?;
            }
            (None, Some(path)) => floodmark_cluster::exchange::serve(path, version)?,
            (None, None) => floodmark_cluster::agent::serve(stdin(), stdout(), version)?,
        }
        Ok(ExitStatus::Success)
    }
}
