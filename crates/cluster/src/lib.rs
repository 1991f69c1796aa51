//! Recording a job on several nodes.
//!
//! `floodmark run` starts one agent per node by the scheduler's own means or by ssh, waits until all of them sample, runs
//! the command on its own host, and takes in what the agents send: the frames of the tail, as they are. Everything ends
//! in one trace. No means opens a port: messages go through the launcher's stdin and stdout, or through files in a
//! shared directory.
//!
//! | module | contents |
//! |---|---|
//! | [`hosts`] | the nodes of a job, from a list, a file or a scheduler's environment |
//! | [`launch`] | command lines that start agents |
//! | [`wire`] | messages |
//! | [`exchange`] | messages through files |
//! | [`stack_order`] | how agents are to take stacks |
//! | [`agent`] | the agent on a node |
//! | [`select`] | which processes of a node belong to the job |
//! | [`spool`] | what an agent has sampled, on the disk of its node |
//! | [`recorder`] | the recorder's end |
//! | [`clock`] | offsets of clocks |
//! | [`collect`] | taking in spools that were left behind |
//!
//! What does *not* live here: sampling (`floodmark-sampler`), sealing (`floodmark-store`), options (the command).

pub mod agent;
pub mod clock;
pub mod collect;
pub mod error;
pub mod exchange;
pub mod frames;
pub mod hosts;
pub mod launch;
mod outbox;
pub mod recorder;
pub mod select;
pub mod spool;
pub mod stack_order;
pub mod wire;

pub use error::{Error, Result};
pub use hosts::{Node, NodeList, NodeSource, Scheduler};
pub use launch::Launcher;
pub use recorder::{Cluster, ClusterProps, DeliveryMode, NodeEnd, NodeEvent, NodeReport, new_job};
