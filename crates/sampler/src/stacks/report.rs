//! Cost of taking stacks, and stacks that could not be taken.

use floodmark_event::units::{format_count, format_duration_ns};

use super::{End, TakenStack};

/// Number of failures whose messages are kept.
const MOST_MESSAGES: usize = 3;

/// Statistics of taking stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackReport {
    /// Number of times that stacks were taken.
    pub takings: u64,
    /// Number of processes whose stacks were taken, counted each time.
    pub processes: u64,
    /// Number of stacks.
    pub stacks: u64,
    /// Number of stacks whose outer frames could not be found.
    pub cut: u64,
    /// Longest time that a thread was stopped.
    pub longest_pause_ns: u64,
    /// Sum of the times that threads were stopped.
    pub paused_ns: u64,
    /// Number of processes that ended before their stacks could be taken.
    pub gone_processes: u64,
    /// Number of threads that ended before they could be stopped.
    pub gone_threads: u64,
    /// Number of threads that did not stop in time, because they wait for a device or a child.
    pub stuck_threads: u64,
    /// Number of processes that were being debugged.
    pub busy_processes: u64,
    /// Number of processes that may not be traced.
    pub denied_processes: u64,
    /// Number of failures of a debugger or of the system.
    pub failures: u64,
    /// Number of times that frames of Python were read in a process.
    pub python_processes: u64,
    /// Number of times that frames of Python could not be read in a process that runs it.
    pub python_failures: u64,
    /// Message of the first of these failures.
    pub python_failure: Option<String>,
    /// Messages of the first failures.
    pub messages: Vec<String>,
}

impl StackReport {
    pub(crate) fn add(&mut self, stack: &TakenStack) {
        self.stacks += 1;
        self.cut += u64::from(stack.end == End::Cut);
        self.longest_pause_ns = self.longest_pause_ns.max(stack.pause_ns);
        self.paused_ns += stack.pause_ns;
    }

    pub(crate) fn fail(&mut self, message: String) {
        self.failures += 1;
        self.say(message);
    }

    pub(crate) fn say(&mut self, message: String) {
        if self.messages.len() < MOST_MESSAGES && !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// Adds the statistics of another report.
    pub(crate) fn merge(&mut self, other: Self) {
        self.takings += other.takings;
        self.processes += other.processes;
        self.stacks += other.stacks;
        self.cut += other.cut;
        self.longest_pause_ns = self.longest_pause_ns.max(other.longest_pause_ns);
        self.paused_ns += other.paused_ns;
        self.gone_processes += other.gone_processes;
        self.gone_threads += other.gone_threads;
        self.stuck_threads += other.stuck_threads;
        self.busy_processes += other.busy_processes;
        self.denied_processes += other.denied_processes;
        self.failures += other.failures;
        self.python_failures += other.python_failures;
        other.messages.into_iter().for_each(|message| self.say(message));
    }

    /// Returns notes on the stacks: how many there are, what they cost and what is missing.
    pub fn summary(&self) -> Vec<String> {
        let taken = format!(
            "{} stacks sampled in {} sweeps; no thread was paused for longer than {}",
            format_count(self.stacks),
            format_count(self.takings),
            format_duration_ns(self.longest_pause_ns)
        );
        std::iter::once(taken).chain(self.notes()).collect()
    }

    /// Descriptions of what is missing; empty if nothing is.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.cut > 0 {
            notes.push(format!("{} stacks lack their outer frames", self.cut));
        }
        if self.busy_processes > 0 {
            let times = self.busy_processes;
            notes.push(format!("{times} times no stacks: another debugger has the process"));
        }
        if self.denied_processes > 0 {
            let times = self.denied_processes;
            notes.push(format!("{times} times no stacks: the process may not be traced"));
        }
        if self.stuck_threads > 0 {
            let times = self.stuck_threads;
            notes.push(format!("{times} times a thread did not stop in time, and its stack is missing"));
        }
        // They cannot be read while an interpreter starts, which is no reason to worry if they can afterwards.
        if self.python_failures > 0 && self.python_processes == 0 {
            let times = self.python_failures;
            notes.push(format!("{times} times the functions of Python could not be found"));
            notes.extend(self.python_failure.clone());
        }
        if self.failures > 0 {
            notes.push(format!("{} times no stacks could be taken", self.failures));
        }
        notes.extend(self.messages.iter().cloned());
        notes
    }
}
