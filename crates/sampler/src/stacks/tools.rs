//! Debuggers that take stacks: slower by orders of magnitude, for users who want them.
//!
//! As a child of the watcher a debugger would count as a process of the command. Debuggers are therefore
//! started by a shell that was started before; it reads requests from a pipe, one after another, and ends
//! with us. A thread waits for them, so that memory is sampled while a debugger works.

mod parse;

use std::env;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use floodmark_event::StackReason;
use floodmark_tail::clock::monotonic_ns;

use super::native::why_denied;
use super::{End, StackReport, StackTarget, TakenStack};
use crate::error::{Error, Result};
use crate::sys::clock::Waiting;
use crate::sys::signal;
use crate::sys::trace::tracer_of;

/// Time limit of a debugger.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Limit of a debugger's output in bytes.
const MOST_BYTES: usize = 256 << 20;

/// A debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// GDB.
    Gdb,
    /// LLDB.
    Lldb,
    /// `eu-stack` of elfutils.
    EuStack,
}

impl Tool {
    /// All debuggers.
    pub const ALL: [Self; 3] = [Self::Gdb, Self::Lldb, Self::EuStack];

    /// Name of the program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Gdb => "gdb",
            Self::Lldb => "lldb",
            Self::EuStack => "eu-stack",
        }
    }

    /// Its package in Debian and Ubuntu.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Gdb => "gdb",
            Self::Lldb => "lldb",
            Self::EuStack => "elfutils",
        }
    }

    /// Command line of the shell for the process in `$pid`. The user's settings are not read, and nothing is
    /// downloaded.
    const fn command(self) -> &'static str {
        match self {
            Self::Gdb => {
                "gdb -nx -q -batch -iex 'set debuginfod enabled off' -iex 'set pagination off' \
                 -iex 'set width 0' -iex 'set print frame-arguments none' -iex 'set print entry-values no' \
                 -iex 'set style enabled off' -p \"$pid\" -ex 'thread apply all backtrace'"
            }
            Self::Lldb => {
                "lldb --no-lldbinit --no-use-colors --batch -o 'settings set auto-confirm true' \
                 -o 'settings set stop-line-count-before 0' -o 'settings set stop-line-count-after 0' \
                 -o 'settings set thread-stop-format \"floodmark-thread ${thread.id}\\n\"' \
                 -o 'settings set frame-format \"floodmark-frame ${frame.pc}{\\tname=${function.name}}\
{\\tmodule=${module.file.fullpath}}{\\tfile=${line.file.fullpath}}{\\tline=${line.number}}\\n\"' \
                 -o \"process attach -p $pid\" -o 'thread backtrace all' -o detach"
            }
            Self::EuStack => "eu-stack -p \"$pid\" -i -m -s -n 0",
        }
    }

    fn is_installed(self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join(self.program()).is_file())
    }
}

/// A request for the stacks of a process.
#[derive(Clone, Copy, Debug)]
struct Order {
    target: StackTarget,
    at_ns: u64,
    reason: StackReason,
    faulted: Option<i32>,
    /// Whether the stack of that thread comes from its page faults.
    is_sampled: bool,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    pub(crate) stacks: Vec<TakenStack>,
    pub(crate) report: StackReport,
    /// Run time of the debugger.
    pub(crate) took_ns: u64,
}

/// The thread that waits for debuggers.
#[derive(Debug)]
pub(crate) struct Debugger {
    orders: Option<Sender<Order>>,
    answers: Receiver<ToolAnswer>,
    /// Number of requests without an answer.
    pending: usize,
}

impl Debugger {
    pub(crate) fn start(tool: Tool) -> Result<Self> {
        let mut helper = Helper::start(tool)?;
        let (orders, asked) = channel::<Order>();
        let (answer, answers) = channel();
        thread::Builder::new()
            .name("floodmark-tool".into())
            .spawn(move || {
                signal::block_for_this_thread();
                for order in asked {
                    let began_ns = monotonic_ns();
                    let mut report = StackReport::default();
                    let stacks = helper.take(order, &mut report);
                    let took_ns = monotonic_ns().saturating_sub(began_ns);
                    if answer.send(ToolAnswer { stacks, report, took_ns }).is_err() {
                        return;
                    }
                }
            })
            .map_err(Error::system("starting a thread for the debugger"))?;
        Ok(Self { orders: Some(orders), answers, pending: 0 })
    }

    /// Whether a debugger works.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending > 0
    }

    /// Requests the stacks of a process, without that of the thread that faulted if it was sampled.
    pub(crate) fn ask(
        &mut self,
        target: StackTarget,
        at_ns: u64,
        reason: StackReason,
        faulted: Option<i32>,
        is_sampled: bool,
    ) {
        let order = Order { target, at_ns, reason, faulted, is_sampled };
        let is_sent = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        self.pending += usize::from(is_sent);
    }

    /// The next answer, if there is one.
    pub(crate) fn next(&mut self) -> Option<ToolAnswer> {
        let answer = self.answers.try_recv().ok()?;
        self.pending -= 1;
        Some(answer)
    }

    /// Waits for all answers.
    pub(crate) fn finish(&mut self) -> Vec<ToolAnswer> {
        self.orders = None;
        self.answers.iter().collect()
    }
}

/// The shell that starts debuggers.
#[derive(Debug)]
struct Helper {
    tool: Tool,
    shell: Child,
    orders: Option<ChildStdin>,
    answers: ChildStdout,
    /// Line that ends an answer.
    mark: String,
}

impl Helper {
    fn start(tool: Tool) -> Result<Self> {
        if !tool.is_installed() {
            return Err(Error::NoTool { program: tool.program(), package: tool.package() });
        }
        let mark = format!("floodmark-{}-end", std::process::id());
        let command = tool.command();
        let script =
            format!("while IFS= read -r pid; do {command} </dev/null 2>&1; printf '\\n%s\\n' {mark}; done");
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .env("LC_ALL", "C")
            .env_remove("DEBUGINFOD_URLS")
            // Signals of the terminal must not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::system("starting a shell for the debugger"))?;
        let orders = shell.stdin.take();
        let answers = shell.stdout.take().expect("asked for above");
        Ok(Self { tool, shell, orders, answers, mark })
    }

    fn take(&mut self, order: Order, report: &mut StackReport) -> Vec<TakenStack> {
        let Order { target, at_ns, reason, faulted, is_sampled } = order;
        let process = target.process;
        if tracer_of(process).is_some() {
            report.busy_processes += 1;
            return Vec::new();
        }
        let began_ns = monotonic_ns();
        let answer = match self.ask(process) {
            Ok(answer) => answer,
            Err(error) => {
                self.orders = None;
                report.fail(format!("{}: {error}", self.tool.program()));
                return Vec::new();
            }
        };
        let pause_ns = monotonic_ns().saturating_sub(began_ns);
        let threads = parse::threads(self.tool, &answer);
        if threads.is_empty() {
            let is_over = !std::fs::exists(format!("/proc/{process}/task")).unwrap_or(false);
            if is_over {
                report.gone_processes += 1;
            } else {
                report.fail(format!("{} said: {}", self.tool.program(), parse::complaint(&answer)));
                if answer.contains("not permitted") {
                    report.say(why_denied(process));
                }
            }
            return Vec::new();
        }
        report.processes += 1;
        let has_faulted = |thread| faulted.is_some_and(|faulted| faulted as u64 == thread);
        let threads = threads.into_iter().filter(|(thread, _)| !is_sampled || !has_faulted(*thread));
        let stacks = threads.map(|(thread, frames)| TakenStack {
            at_ns,
            subject: target.subject,
            process,
            thread,
            reason: if has_faulted(thread) { StackReason::Fault } else { reason },
            pause_ns,
            frames: frames.into_iter().map(Arc::new).collect(),
            end: End::Outermost,
        });
        stacks.collect()
    }

    fn ask(&mut self, process: i32) -> io::Result<String> {
        let ended = || io::Error::other("the shell that starts it has ended");
        let orders = self.orders.as_mut().ok_or_else(ended)?;
        orders.write_all(format!("{process}\n").as_bytes())?;
        let end = format!("\n{}\n", self.mark);
        let deadline_ns = monotonic_ns() + PATIENCE_NS;
        let mut answer = Vec::new();
        loop {
            if answer.ends_with(end.as_bytes()) {
                answer.truncate(answer.len() - end.len());
                return Ok(String::from_utf8_lossy(&answer).into_owned());
            }
            let mut waiting = Waiting::new([Some(self.answers.as_fd())]);
            waiting.until(Some(deadline_ns))?;
            if monotonic_ns() >= deadline_ns || answer.len() > MOST_BYTES {
                self.kill();
                return Err(io::Error::other("it took too long and was ended"));
            }
            if !waiting.is_ready(0) {
                continue;
            }
            let mut buffer = [0; 8192];
            match self.answers.read(&mut buffer)? {
                0 => return Err(ended()),
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Kills the shell and its debugger; the kernel then continues the process that was stopped.
    fn kill(&self) {
        signal::kill_group(self.shell.id() as i32);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.orders = None;
        // Its input is closed, so it ends.
        let _ = self.shell.wait();
    }
}
