//! What taking stacks cost, and what could not be taken.

use super::{End, TakenStack};

/// How many failures are told in words.
const MOST_MESSAGES: usize = 3;

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackReport {
    /// Moments at which stacks were taken.
    pub takings: u64,
    /// Processes whose stacks were taken, counted each time.
    pub processes: u64,
    /// Stacks.
    pub stacks: u64,
    /// Of them, those whose outer frames could not be found.
    pub cut: u64,
    /// The longest that a single thread was held up.
    pub longest_pause_ns: u64,
    /// All pauses of threads, added.
    pub paused_ns: u64,
    /// Processes that were over when their stacks were to be taken.
    pub gone_processes: u64,
    /// Threads that were over when they were to be stopped.
    pub gone_threads: u64,
    /// Threads that could not be stopped in time, because they wait for a device or a child.
    pub stuck_threads: u64,
    /// Processes that a debugger has already.
    pub busy_processes: u64,
    /// Processes that we may not look into.
    pub denied_processes: u64,
    /// Times that a debugger, or the system, failed.
    pub failures: u64,
    /// Times that functions of Python could not be found in a process that runs it.
    pub python_failures: u64,
    /// What was said of failures, the first few times.
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

    /// What is missing, in sentences; empty if nothing is.
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
            notes.push(format!(
                "{times} times no stacks: the system does not let us look into the process \
                 (see /proc/sys/kernel/yama/ptrace_scope)"
            ));
        }
        if self.stuck_threads > 0 {
            let times = self.stuck_threads;
            notes.push(format!("{times} times a thread did not stop in time, and its stack is missing"));
        }
        if self.python_failures > 0 {
            let times = self.python_failures;
            notes.push(format!("{times} times the functions of Python could not be found"));
        }
        if self.failures > 0 {
            notes.push(format!("{} times no stacks could be taken", self.failures));
        }
        notes.extend(self.messages.iter().cloned());
        notes
    }
}
