//! Call stacks of watched processes, taken at peaks and other triggers.
//!
//! A [`StackTaker`] observes sweeps. When memory reaches a new peak, grows, or nears a limit, it takes the
//! stacks of all threads of the processes that grew, and passes them to a [`StackSink`].
//!
//! | module | contents |
//! |---|---|
//! | `when` | triggers |
//! | `tracer` | the thread that stops others, one at a time, and copies their registers and stacks |
//! | `maps`, `image` | modules that a process has loaded, and their unwind tables |
//! | `worker`, `unwind`, `names` | unwinding and symbols, on a thread of low priority |
//! | `python` | frames of Python, which are not on the native stack |
//! | `tools` | debuggers, as an alternative |
//! | `faults` | counters of page faults, which tell the thread that made its process grow |
//! | `fault_samples` | sampled page faults, which tell the function, where the kernel permits it |
//! | `record` | recording of stacks |
//!
//! Invariants: a thread is stopped only while it is copied, and one at a time; no process stays stopped,
//! however this one ends; a process that is being debugged is skipped and counted.

mod fault_samples;
mod faults;
mod image;
mod maps;
mod names;
mod native;
mod python;
mod record;
mod report;
mod tools;
mod tracer;
mod unwind;
mod when;
mod worker;

use std::sync::Arc;

use floodmark_event::{StackReason, SubjectId};
use floodmark_tail::clock::monotonic_ns;

use crate::error::Result;
use crate::observer::{Observer, Sweep};

pub use names::NamedFrame;
pub use record::RecordedStacks;
pub use report::StackReport;
pub use tools::Tool;
pub use unwind::End;
pub use when::{StackRequest, StackWhen};

use fault_samples::{FaultSample, FaultSampler};
use faults::Faults;
use native::Native;
use tools::{Debugger, ToolAnswer};
use tracer::Languages;
use when::Trigger;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMethod {
    /// Each thread is stopped for some microseconds, and a copy of its stack is unwound.
    Native,
    /// As [`StackMethod::Native`]; in processes that run Python, its functions replace the interpreter's, and all
    /// threads are stopped together for one or two milliseconds.
    #[default]
    Python,
    /// A debugger is called, which stops the process for much longer.
    Tool(Tool),
}

/// Properties of taking stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackProps {
    /// The method.
    pub method: StackMethod,
    /// The triggers.
    pub when: StackWhen,
}

/// A stack of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenStack {
    /// Time in monotonic nanoseconds of the sweep that triggered it.
    pub at_ns: u64,
    /// Subject of the process in the watcher's sink.
    pub subject: SubjectId,
    /// PID.
    pub process: i32,
    /// Thread id.
    pub thread: u64,
    /// The trigger.
    pub reason: StackReason,
    /// Time for which the thread was stopped; for a debugger, its whole run time.
    pub pause_ns: u64,
    /// Frames, innermost first; inlined functions have frames of their own.
    pub frames: Vec<Arc<NamedFrame>>,
    /// Whether the outermost frame was reached.
    pub end: End,
}

/// Receives stacks. It is called on the watcher's thread.
pub trait StackSink {
    /// Receives a stack, some time after it was taken.
    fn stack(&mut self, stack: TakenStack);
}

impl StackSink for Vec<TakenStack> {
    fn stack(&mut self, stack: TakenStack) {
        self.push(stack);
    }
}

/// A process whose stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackTarget {
    /// PID.
    pub process: i32,
    /// Its subject in the watcher's sink.
    pub subject: SubjectId,
}

/// The thread that made its process grow.
#[derive(Debug)]
pub(crate) struct Faulted {
    pub(crate) thread: i32,
    /// Some of its page faults, if they were sampled.
    pub(crate) samples: Vec<FaultSample>,
}

/// Takes stacks of watched processes.
#[derive(Debug)]
pub struct StackTaker<S> {
    trigger: Trigger,
    faults: Faults,
    sampler: FaultSampler,
    engine: Engine,
    report: StackReport,
    sink: S,
}

#[derive(Debug)]
enum Engine {
    Native(Box<Native>),
    /// A debugger, and what unwinds sampled page faults.
    Tool(Debugger, Box<Native>),
}

/// Share of the page faults of a thread that must have been sampled for the samples to count. Memory that a system
/// call provides at once is counted, but cannot be sampled.
const SHARE_SAMPLED: u64 = 4;

impl<S: StackSink> StackTaker<S> {
    /// Prepares to take stacks. This must precede the start of a command, because a debugger is started by a
    /// helper process that the watcher must not take for one of the command's.
    ///
    /// # Errors
    /// [`Error::NoTool`](crate::Error::NoTool) if the requested debugger is not installed.
    pub fn open(props: StackProps, sink: S) -> Result<Self> {
        let engine = match props.method {
            StackMethod::Native => Engine::Native(Box::new(Native::start(Languages::Native)?)),
            StackMethod::Python => Engine::Native(Box::new(Native::start(Languages::Python)?)),
            StackMethod::Tool(tool) => {
                let debugger = Debugger::start(tool)?;
                Engine::Tool(debugger, Box::new(Native::start(Languages::Native)?))
            }
        };
        let (trigger, faults, sampler) =
            (Trigger::new(props.when), Faults::default(), FaultSampler::default());
        Ok(Self { trigger, faults, sampler, engine, report: StackReport::default(), sink })
    }

    /// A handle to request stacks from any thread.
    pub fn request(&self) -> StackRequest {
        self.trigger.request.clone()
    }

    /// Takes the stacks of a process now; a debugger works in the background.
    pub fn take(&mut self, target: StackTarget, at_ns: u64, reason: StackReason) {
        let is_growth = matches!(reason, StackReason::Peak | StackReason::Growth | StackReason::Limit);
        let faulted = if is_growth { self.faulted(target.process) } else { None };
        match &mut self.engine {
            Engine::Native(native) => native.take(target, at_ns, reason, faulted, &mut self.report),
            Engine::Tool(debugger, native) => {
                let thread = faulted.as_ref().map(|faulted| faulted.thread);
                let is_sampled = faulted.is_some_and(|faulted| native.take_samples(target, at_ns, faulted));
                debugger.ask(target, at_ns, reason, thread, is_sampled);
            }
        }
    }

    /// Returns the thread that made a process grow since the last call.
    fn faulted(&mut self, process: i32) -> Option<Faulted> {
        let counted = self.faults.most(process);
        let sampled = self
            .sampler
            .take(process)
            .filter(|sampled| counted.is_none_or(|counted| sampled.faults >= counted.faults / SHARE_SAMPLED));
        match (sampled, counted) {
            (Some(sampled), _) => Some(Faulted { thread: sampled.thread, samples: sampled.samples }),
            // A thread need not be told from others that do not exist.
            (None, Some(counted)) if !counted.is_alone => {
                Some(Faulted { thread: counted.thread, samples: Vec::new() })
            }
            _ => None,
        }
    }

    fn add(&mut self, answer: ToolAnswer) {
        self.report.merge(answer.report);
        for stack in answer.stacks {
            self.report.add(&stack);
            self.sink.stack(stack);
        }
    }

    /// Passes finished stacks to the sink.
    fn pass_on(&mut self, now_ns: u64) {
        match &mut self.engine {
            Engine::Native(native) => {
                while let Some(stack) = native.next() {
                    self.report.add(&stack);
                    self.sink.stack(stack);
                }
            }
            Engine::Tool(debugger, native) => {
                while let Some(stack) = native.next() {
                    self.report.add(&stack);
                    self.sink.stack(stack);
                }
                if let Some(answer) = debugger.next() {
                    self.trigger.took(now_ns, answer.took_ns);
                    self.add(answer);
                }
            }
        }
    }

    /// Whether a debugger still works on the last request.
    fn is_busy(&self) -> bool {
        matches!(&self.engine, Engine::Tool(debugger, _) if debugger.is_busy())
    }

    /// Waits until all stacks are finished, and passes them to the sink.
    pub fn finish(mut self) -> (StackReport, S) {
        match &mut self.engine {
            Engine::Native(native) => {
                for stack in native.finish() {
                    self.report.add(&stack);
                    self.sink.stack(stack);
                }
            }
            Engine::Tool(debugger, native) => {
                let (answers, samples) = (debugger.finish(), native.finish());
                for stack in samples {
                    self.report.add(&stack);
                    self.sink.stack(stack);
                }
                for answer in answers {
                    self.add(answer);
                }
            }
        }
        (self.report, self.sink)
    }
}

impl<S: StackSink> Observer for StackTaker<S> {
    fn started(&mut self, root: i32) {
        if let Err(why) = self.sampler.attach(root) {
            self.report.say(why);
        }
    }

    fn swept(&mut self, sweep: &Sweep<'_>) {
        self.pass_on(sweep.at_ns);
        self.sampler.collect();
        if self.is_busy() {
            return;
        }
        let Some(reason) = self.trigger.look(sweep) else { return };
        let began_ns = monotonic_ns();
        for process in self.trigger.choose(sweep, reason) {
            let target = StackTarget { process: process.pid, subject: process.subject };
            self.take(target, sweep.at_ns, reason);
        }
        self.report.takings += 1;
        self.trigger.taken(sweep, monotonic_ns().saturating_sub(began_ns));
    }
}
