//! Stacks of the threads of watched processes, taken at the moments that matter.
//!
//! A [`StackTaker`] observes sweeps; when memory reaches a new peak, grows, or nears a limit, it takes
//! the stacks of all threads of the processes that grew, and gives them to a [`StackSink`].
//!
//! | module | what lives there |
//! |---|---|
//! | `when` | the moments that matter |
//! | `tracer` | the thread that stops others, one at a time, and copies what they were doing |
//! | `maps`, `image` | what a process has loaded, and what unwinding needs of it |
//! | `worker`, `unwind`, `names` | from copies to functions, on a thread that gives way to all others |
//! | `python` | frames of Python, which are not on the stack |
//! | `tools` | debuggers that are called instead |
//! | `record` | stacks for a recording |
//!
//! Invariants: a thread is stopped for no longer than a copy takes, and one at a time; no process is
//! left stopped, however this one ends; what somebody else debugs is left alone and counted.

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

use native::Native;
use tools::Helper;
use tracer::Languages;
use when::Trigger;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMethod {
    /// By stopping each thread for some microseconds and unwinding a copy of its stack.
    #[default]
    Native,
    /// The same, with the functions of Python in the place of the interpreter's.
    Python,
    /// By calling a debugger, which stops a process for as long as it likes.
    Tool(Tool),
}

/// What to take, and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackProps {
    /// How.
    pub method: StackMethod,
    /// When.
    pub when: StackWhen,
}

/// A stack of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenStack {
    /// When, in monotonic nanoseconds: the time of the sweep that was the reason.
    pub at_ns: u64,
    /// The process in the sink of the watcher.
    pub subject: SubjectId,
    /// The system's number of the process.
    pub process: i32,
    /// The system's number of the thread.
    pub thread: u64,
    /// Why it was taken.
    pub reason: StackReason,
    /// How long the thread was held up; for a debugger, how long it took in all.
    pub pause_ns: u64,
    /// Frames, innermost first; a function that was inlined is a frame too.
    pub frames: Vec<Arc<NamedFrame>>,
    /// Whether the outermost frame is there.
    pub end: End,
}

/// Takes stacks. It is called on the thread that watches.
pub trait StackSink {
    /// A stack is ready, some time after it was taken.
    fn stack(&mut self, stack: TakenStack);
}

impl StackSink for Vec<TakenStack> {
    fn stack(&mut self, stack: TakenStack) {
        self.push(stack);
    }
}

/// A process to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackTarget {
    /// The system's number.
    pub process: i32,
    /// What stands for it in the sink of the watcher.
    pub subject: SubjectId,
}

/// Takes stacks of what is watched.
#[derive(Debug)]
pub struct StackTaker<S> {
    trigger: Trigger,
    engine: Engine,
    report: StackReport,
    sink: S,
}

#[derive(Debug)]
enum Engine {
    Native(Box<Native>),
    Tool(Helper),
}

impl<S: StackSink> StackTaker<S> {
    /// Gets ready. This must be done before a command is run: a debugger is started through a process
    /// that the watcher must not take for one of the command's.
    ///
    /// # Errors
    /// [`Error::NoTool`](crate::Error::NoTool) if a debugger is asked for that is not installed.
    pub fn open(props: StackProps, sink: S) -> Result<Self> {
        let engine = match props.method {
            StackMethod::Native => Engine::Native(Box::new(Native::start(Languages::Native)?)),
            StackMethod::Python => Engine::Native(Box::new(Native::start(Languages::Python)?)),
            StackMethod::Tool(tool) => Engine::Tool(Helper::start(tool)?),
        };
        Ok(Self { trigger: Trigger::new(props.when), engine, report: StackReport::default(), sink })
    }

    /// Something to ask for stacks with, from any thread.
    pub fn request(&self) -> StackRequest {
        self.trigger.request.clone()
    }

    /// Takes the stacks of a process now.
    pub fn take(&mut self, target: StackTarget, at_ns: u64, reason: StackReason) {
        match &mut self.engine {
            Engine::Native(native) => native.take(target, at_ns, reason, &mut self.report),
            Engine::Tool(helper) => {
                for stack in helper.take(target, at_ns, reason, &mut self.report) {
                    self.report.add(&stack);
                    self.sink.stack(stack);
                }
            }
        }
    }

    /// Passes on what is ready.
    fn pass_on(&mut self) {
        if let Engine::Native(native) = &mut self.engine {
            while let Some(stack) = native.next() {
                self.report.add(&stack);
                self.sink.stack(stack);
            }
        }
    }

    /// Waits until all stacks have names, and passes them on.
    pub fn finish(mut self) -> (StackReport, S) {
        if let Engine::Native(native) = &mut self.engine {
            for stack in native.finish() {
                self.report.add(&stack);
                self.sink.stack(stack);
            }
        }
        (self.report, self.sink)
    }
}

impl<S: StackSink> Observer for StackTaker<S> {
    fn swept(&mut self, sweep: &Sweep<'_>) {
        self.pass_on();
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
