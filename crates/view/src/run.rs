//! Runs: how a command ended, how high its memory rose, when, in which process and phase.

mod gpu;
mod heap;

use std::collections::BTreeMap;

use floodmark_analyze::{PeakStack, PhaseMemory, ProcessMemory, RunMemory, RunSummary, signal_name};
use floodmark_event::units::{
    format_bytes, format_count, format_duration_ns, format_elapsed_ns, format_signed_bytes,
};

use crate::figures::{bytes_exactly, counted, percent};
use crate::layout::{Layout, Lines, styled};
use crate::plain::plain;
use crate::report::View;
use crate::table::{Cell, Column, Table, shorten, wrap, wrap_after};
use gpu::{gpu_events, gpu_notes, gpu_peak};
use heap::{heap_events, heap_notes, heap_peak};

/// Columns for the names of facts.
const NAME_WIDTH: usize = 11;
/// What the part of a run before the first mark is called.
const BEFORE_MARKS: &str = "(start)";
/// Phases that are shown unless all are asked for.
const PHASES: usize = 12;

impl View for RunSummary {
    const SCHEMA: &'static str = "floodmark.run/1";

    fn body(&self, layout: &Layout) -> String {
        let mut text = Lines::default();
        let start_ns = self.memory.origin_time_ns.or(self.start_time_ns).or(self.memory.first_time_ns);
        text.headline(&headline(&self.memory, start_ns), &format_bytes(self.memory.peak_rss_bytes), layout);
        text.blank();
        text.block(SummaryText(self).facts(start_ns, layout));
        text.block(memory_tables(&self.memory, start_ns, layout));
        let inside = self.heap.iter().flat_map(heap_notes).chain(self.gpu.iter().flat_map(gpu_notes));
        let notes: Vec<String> = inside.chain(self.notes.clone()).collect();
        if !notes.is_empty() {
            text.blank();
        }
        let lead = format!("{} ", styled(layout.palette.doubtful, "note:"));
        for note in &notes {
            text.line(wrap_after(&lead, 6, &plain(note), layout.width));
        }
        text.text()
    }
}

/// Sentences about a summary.
struct SummaryText<'a>(&'a RunSummary);

impl std::ops::Deref for SummaryText<'_> {
    type Target = RunSummary;

    fn deref(&self) -> &RunSummary {
        self.0
    }
}

impl SummaryText<'_> {
    fn facts(&self, start_ns: Option<i64>, layout: &Layout) -> String {
        let memory = &self.memory;
        let mut facts = Facts { text: Lines::default(), layout };
        facts.add("command", self.command.clone());
        facts.add("ended", Some(self.ended()));
        facts.add("processes", Some(self.processes()));
        facts.add("PSS", self.proportional(start_ns));
        memory_facts(memory, start_ns, &mut facts);
        facts.add("heap", self.heap.as_ref().map(|heap| heap_peak(heap, start_ns)));
        facts.add("recorded", self.heap.as_ref().map(heap_events));
        facts.add("CUDA", self.gpu.as_ref().map(|gpu| gpu_peak(gpu, start_ns)));
        facts.add("recorded", self.gpu.as_ref().and_then(gpu_events));
        facts.add("own cost", self.own_cost());
        facts.text.text()
    }

    fn ended(&self) -> String {
        let how = match (&self.signal, self.exit_status) {
            (Some(signal), _) => format!("killed by {signal}"),
            (None, Some(status)) => format!("exit status {status}"),
            (None, None) if self.cost.left_processes.is_some_and(|left| left > 0) => "still running".into(),
            (None, None) => "how is not known".into(),
        };
        let after = self.duration_ns.map(|ns| format!(" after {}", format_duration_ns(ns)));
        how + &after.unwrap_or_default()
    }

    fn processes(&self) -> String {
        let mut parts = vec![format_count(self.memory.processes)];
        if let Some(most) = self.memory.most_processes.filter(|most| *most > 1) {
            parts.push(format!("at most {} at a time", format_count(most)));
        }
        if let Some(left) = self.cost.left_processes.filter(|left| *left > 0) {
            parts.push(format!("{} left running", format_count(left)));
        }
        parts.join(", ")
    }

    fn proportional(&self, start_ns: Option<i64>) -> Option<String> {
        let memory = &self.memory;
        let peak = memory.peak_pss_bytes?;
        let when = after(memory.peak_pss_time_ns, start_ns);
        let error = self.cost.peak_pss_error_bytes.unwrap_or(0);
        let bytes = match error {
            0 => format_bytes(peak),
            _ if error <= peak / 10 => {
                format!("{} (or up to {} less)", format_bytes(peak), format_bytes(error))
            }
            _ => format!("between {} and {}", format_bytes(peak.saturating_sub(error)), format_bytes(peak)),
        };
        Some(format!("{bytes} at most{when}, where shared memory counts once"))
    }

    fn own_cost(&self) -> Option<String> {
        let memory = &self.memory;
        let cpu_ns = memory.own_cpu_ns?;
        let mut parts = vec![match self.duration_ns.filter(|ns| *ns > 0) {
            Some(ns) => format!(
                "{} CPU, {} of a core",
                format_duration_ns(cpu_ns),
                percent(cpu_ns as f64 / ns as f64)
            ),
            None => format!("{} CPU", format_duration_ns(cpu_ns)),
        }];
        match (memory.late_sweeps, self.cost.sweeps) {
            (Some(late), Some(sweeps)) => {
                parts.push(format!("{} of {} late", format_count(late), counted(sweeps, "sweep")));
            }
            (Some(late), None) => parts.push(format!("{} late", counted(late, "sweep"))),
            _ => {}
        }
        if let Some(left_out) = self.cost.left_out_sweeps.filter(|count| *count > 0) {
            parts.push(format!("{} left out", format_count(left_out)));
        }
        if let Some(missed) = memory.missed_processes {
            let processes = match missed {
                0 => "no process".to_owned(),
                1 => "1 process".to_owned(),
                _ => format!("{} processes", format_count(missed)),
            };
            parts.push(format!("{processes} missed"));
        }
        Some(parts.join("; "))
    }
}

/// How many ranks there were, and how far their peaks lie apart.
fn ranks(memory: &RunMemory) -> Option<String> {
    // A rank may be several processes, a script and what it runs.
    let mut peaks: BTreeMap<u64, u64> = BTreeMap::new();
    for process in &memory.process_list {
        if let Some(rank) = process.rank {
            let peak = peaks.entry(rank).or_default();
            *peak = process.peak_rss_bytes.max(*peak);
        }
    }
    let (lowest, highest) =
        (peaks.iter().min_by_key(|peak| peak.1)?, peaks.iter().max_by_key(|peak| peak.1)?);
    if peaks.len() < 2 || memory.processes_omitted > 0 {
        return None;
    }
    let peak = |(rank, bytes): (&u64, &u64)| format!("{} (rank {rank})", format_bytes(*bytes));
    Some(format!("{}, peak RSS from {} to {}", peaks.len(), peak(lowest), peak(highest)))
}

/// Named facts under one another.
struct Facts<'a> {
    text: Lines,
    layout: &'a Layout,
}

impl Facts<'_> {
    fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            let lead = format!("  {name:NAME_WIDTH$}  ");
            self.text.line(wrap_after(&lead, NAME_WIDTH + 4, &plain(&value), self.layout.width));
        }
    }
}

/// Ranks, and what else had memory: devices and groups.
fn memory_facts(memory: &RunMemory, start_ns: Option<i64>, facts: &mut Facts<'_>) {
    facts.add("rank", memory.rank.map(|rank| rank.to_string()));
    facts.add("ranks", ranks(memory));
    for device in &memory.devices {
        let of = device.total_bytes.map(|bytes| format!(" of {}", format_bytes(bytes)));
        let when = after(device.peak_time_ns, start_ns);
        let text = format!(
            "{}{} at most{when}, {}",
            format_bytes(device.peak_bytes),
            of.unwrap_or_default(),
            device.name
        );
        facts.add(&format!("GPU {}", device.device), Some(text));
    }
    for group in &memory.cgroups {
        let Some(limit) = group.limit_bytes else { continue };
        let used = group.peak_usage_bytes.or(group.peak_bytes).unwrap_or(0);
        let share = percent(used as f64 / limit.max(1) as f64);
        let text = format!("{} for control group {}, {share} used at most", format_bytes(limit), group.path);
        facts.add("limit", Some(text));
    }
}

fn after(time_ns: Option<i64>, start_ns: Option<i64>) -> String {
    match (time_ns, start_ns) {
        (Some(time_ns), Some(start_ns)) => {
            format!(" at {}", format_elapsed_ns(time_ns.saturating_sub(start_ns)))
        }
        _ => String::new(),
    }
}

/// The highest sum in a sentence.
pub(crate) fn headline(memory: &RunMemory, start_ns: Option<i64>) -> String {
    if memory.peak_rss_bytes == 0 {
        return "No memory could be read".into();
    }
    let bound = match (memory.peak_is_bound, memory.peak_is_lower_bound) {
        (true, _) => "at most ",
        (false, true) => "≥ ",
        (false, false) => "",
    };
    let when = after(memory.peak_time_ns, start_ns);
    let phase = memory.peak_phase.and_then(|at| memory.phases.get(at)).map(phase_name);
    let phase = phase.map(|name| format!(", in phase {}", plain(name)));
    format!(
        "Peak {bound}{} resident{when}{}",
        bytes_exactly(memory.peak_rss_bytes),
        phase.unwrap_or_default()
    )
}

/// A sentence and tables about the memory of a run, for reports that are about more.
pub(crate) fn memory_text(memory: &RunMemory, start_ns: Option<i64>, layout: &Layout) -> String {
    let mut text = Lines::default();
    text.line(wrap(&headline(memory, start_ns), layout.width, 2));
    let mut facts = Facts { text: Lines::default(), layout };
    memory_facts(memory, start_ns, &mut facts);
    let facts = facts.text.text();
    if !facts.is_empty() {
        text.blank();
        text.block(facts);
    }
    text.block(memory_tables(memory, start_ns, layout));
    text.text()
}

fn memory_tables(memory: &RunMemory, start_ns: Option<i64>, layout: &Layout) -> String {
    let mut text = Lines::default();
    if !memory.process_list.is_empty() {
        text.blank();
        text.block(process_table(memory, layout));
    }
    if !memory.phases.is_empty() {
        text.blank();
        text.block(phase_table(&memory.phases, start_ns, layout));
    }
    if let Some(stack) = &memory.peak_stack {
        text.blank();
        text.block(peak_stack(stack, layout));
    }
    text.text()
}

/// What a process was doing, a line for each frame, innermost first.
pub(crate) fn peak_stack(stack: &PeakStack, layout: &Layout) -> String {
    let mut text = Lines::default();
    let when = match stack.after_peak_ns {
        0 => "at the peak".to_owned(),
        after if after > 0 => format!("{} after the peak", format_duration_ns(after.unsigned_abs())),
        before => format!("{} before the peak", format_duration_ns(before.unsigned_abs())),
    };
    let thread = match stack.thread {
        thread if thread == stack.pid => String::new(),
        thread => format!(" thread {thread}"),
    };
    let head = format!("stack of {} {}{thread}, {when}", stack.name, stack.pid);
    text.line(wrap_after("  ", 2, &plain(&head), layout.width));
    for frame in &stack.frames {
        text.line(format!("    {}", shorten(&plain(frame), layout.width.saturating_sub(4))));
    }
    if stack.frames_omitted > 0 {
        let more = format!("… and {} more", format_count(stack.frames_omitted));
        text.line(format!("    {}", styled(layout.palette.faint, more)));
    }
    text.text()
}

fn process_table(memory: &RunMemory, layout: &Layout) -> String {
    let list = &memory.process_list;
    let (shown, left) = layout.first(list);
    let mut table = Table::new([
        Column::long("process"),
        Column::figure("pid"),
        Column::figure("rank"),
        Column::figure("peak RSS"),
        Column::figure("at the peak").rank(2),
        Column::figure("PSS").rank(3),
        Column::figure("GPU").rank(1),
        Column::text("ended").rank(4),
    ]);
    let bytes = |bytes: Option<u64>| Cell::from(bytes.map_or_else(|| "-".into(), format_bytes));
    for process in shown {
        let about = if process.peak_is_exact { "" } else { "≥ " };
        table.row([
            Cell::from(&process.name),
            Cell::from(process.pid.to_string()),
            Cell::from(process.rank.map_or_else(|| "-".into(), |rank| rank.to_string())),
            Cell::from(format!("{about}{}", format_bytes(process.peak_rss_bytes))),
            bytes(process.rss_at_peak_bytes),
            Cell::from(process.peak_pss_bytes.map_or_else(
                || "-".into(),
                |pss| match process.has_pss_of_peak() {
                    true => format_bytes(pss),
                    // A reading of a much smaller process says nothing about its peak.
                    false if process.rss_at_peak_pss_bytes < Some(process.peak_rss_bytes / 2) => "-".into(),
                    false => format!("≥ {}", format_bytes(pss)),
                },
            )),
            bytes(process.peak_gpu_bytes),
            Cell::from(process.wait_status.map_or_else(|| "-".into(), ending)),
        ]);
    }
    let any = |has: fn(&ProcessMemory) -> bool| shown.iter().any(has);
    table.keep(&[
        true,
        true,
        memory.rank.is_none() && any(|process| process.rank.is_some()),
        true,
        list.len() > 1,
        any(|process| process.peak_pss_bytes.is_some()),
        any(|process| process.peak_gpu_bytes.is_some()),
        any(|process| process.wait_status.is_some_and(|status| status != 0)),
    ]);
    table.text(layout) + &left_out(left + memory.processes_omitted, layout)
}

/// The line that says how many rows are not shown; a summary has no option for more.
fn left_out(count: u64, layout: &Layout) -> String {
    if count == 0 {
        return String::new();
    }
    format!("  {}\n", styled(layout.palette.faint, format_args!("… and {} more", format_count(count))))
}

fn phase_table(phases: &[PhaseMemory], start_ns: Option<i64>, layout: &Layout) -> String {
    let most = if layout.rows.is_some() { PHASES } else { usize::MAX };
    // Of many phases those with the highest peaks, in the order of time.
    let mut order: Vec<usize> = (0..phases.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(phases[*at].peak_rss_bytes));
    order.truncate(most);
    order.sort_unstable();
    let mut table = Table::new([
        Column::long("phase"),
        Column::figure("from"),
        Column::figure("peak RSS"),
        Column::figure("PSS").rank(1),
        Column::figure("growth"),
    ]);
    for phase in order.iter().map(|at| &phases[*at]) {
        let from =
            phase.start_time_ns.zip(start_ns).map_or(0, |(from, start)| from.saturating_sub(start).max(0));
        // With the last process everything is given back; that is no finding.
        let is_last = phase.end_time_ns.is_none() && phase.end_rss_bytes == 0;
        let growth = if is_last { "-".into() } else { signed(phase.growth_bytes()) };
        table.row([
            Cell::from(phase_name(phase)),
            Cell::from(format_duration_ns(from as u64)),
            Cell::from(format_bytes(phase.peak_rss_bytes)),
            Cell::from(phase.peak_pss_bytes.map_or_else(|| "-".into(), format_bytes)),
            Cell::from(growth),
        ]);
    }
    table.keep(&[true, true, true, phases.iter().any(|phase| phase.peak_pss_bytes.is_some()), true]);
    table.text(layout) + &left_out((phases.len() - order.len()) as u64, layout)
}

pub(crate) fn phase_name(phase: &PhaseMemory) -> &str {
    phase.name.as_deref().unwrap_or(BEFORE_MARKS)
}

fn signed(bytes: i64) -> String {
    let text = format_signed_bytes(bytes);
    if bytes > 0 && !text.starts_with('+') { format!("+{text}") } else { text }
}

/// How a process ended, from a status as `wait` gives it: `exit 3`, `SIGKILL`.
pub(crate) fn ending(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit {}", status >> 8 & 0xff),
        number => signal_name(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_analyze::{CgroupMemory, DeviceMemory, RunCost};

    fn process(name: &str, pid: u64, mib: u64) -> ProcessMemory {
        ProcessMemory {
            pid,
            parent_pid: None,
            rank: None,
            name: name.into(),
            command: String::new(),
            start_time_ns: None,
            end_time_ns: None,
            wait_status: Some(9),
            peak_rss_bytes: mib << 20,
            peak_is_exact: pid != 7,
            peak_time_ns: None,
            rss_at_peak_bytes: Some(mib << 19),
            peak_pss_bytes: None,
            rss_at_peak_pss_bytes: None,
            peak_gpu_bytes: None,
            most_threads: None,
            cpu_ns: None,
        }
    }

    fn summary() -> RunSummary {
        let phase = |name: Option<&str>, mib: u64| PhaseMemory {
            name: name.map(str::to_owned),
            start_time_ns: name.map(|_| 1_500_000_000),
            end_time_ns: Some(2_000_000_000),
            peak_rss_bytes: mib << 20,
            end_rss_bytes: mib << 19,
            ..PhaseMemory::default()
        };
        RunSummary {
            heap: None,
            gpu: None,
            command: Some("./solver -i \x1b[31minput.i".into()),
            exit_status: Some(137),
            signal: Some(signal_name(9)),
            start_time_ns: Some(0),
            duration_ns: Some(2_000_000_000),
            cost: RunCost { sweeps: Some(200), peak_pss_error_bytes: Some(0), ..RunCost::default() },
            memory: RunMemory {
                peak_rss_bytes: 300 << 20,
                peak_time_ns: Some(1_750_000_000),
                peak_phase: Some(1),
                peak_pss_bytes: Some(200 << 20),
                processes: 8,
                most_processes: Some(3),
                process_list: vec![process("solver", 5, 200), process("helper", 7, 100)],
                processes_omitted: 6,
                phases: vec![phase(None, 10), phase(Some("step 1"), 300)],
                devices: vec![DeviceMemory {
                    device: 0,
                    name: "H200".into(),
                    uuid: String::new(),
                    peak_bytes: 1 << 30,
                    peak_time_ns: Some(1_000_000_000),
                    total_bytes: Some(141 << 30),
                }],
                cgroups: vec![CgroupMemory {
                    path: "/job".into(),
                    peak_usage_bytes: Some(512 << 20),
                    peak_bytes: None,
                    limit_bytes: Some(1 << 30),
                }],
                peak_stack: Some(PeakStack {
                    pid: 5,
                    name: "solver".into(),
                    thread: 6,
                    time_ns: 1_748_000_000,
                    after_peak_ns: -2_000_000,
                    reason: "peak".into(),
                    growth_bytes: 190 << 20,
                    frames: vec!["grow (solver.c:12)".into(), "main (solver.c:40)".into()],
                    frames_omitted: 3,
                }),
                own_cpu_ns: Some(20_000_000),
                late_sweeps: Some(3),
                missed_processes: Some(1),
                ..RunMemory::default()
            },
            notes: vec!["process events were lost".into()],
        }
    }

    #[test]
    fn a_summary_says_what_happened() {
        let text = summary().body(&Layout { width: 80, ..Layout::default() });
        let expected = "\
Peak 300.0 MiB (314,572,800 bytes) resident at +1.75s, in phase step 1

  command      ./solver -i [31minput.i
  ended        killed by SIGKILL after 2.00 s
  processes    8, at most 3 at a time
  PSS          200.0 MiB at most, where shared memory counts once
  GPU 0        1.00 GiB of 141.0 GiB at most at +1s, H200
  limit        1.00 GiB for control group /job, 50 % used at most
  own cost     20.0 ms CPU, 1.0 % of a core; 3 of 200 sweeps late; 1 process
               missed

  process  pid     peak RSS  at the peak  ended
  solver     5    200.0 MiB    100.0 MiB  SIGKILL
  helper     7  ≥ 100.0 MiB     50.0 MiB  SIGKILL
  … and 6 more

  phase      from   peak RSS      growth
  (start)    0 ns   10.0 MiB   +5.00 MiB
  step 1   1.50 s  300.0 MiB  +150.0 MiB

  stack of solver 5 thread 6, 2.00 ms before the peak
    grow (solver.c:12)
    main (solver.c:40)
    … and 3 more

note: process events were lost
";
        assert_eq!(text, expected);
    }

    #[test]
    fn ranks_stand_beside_their_processes() {
        let ranked =
            |name, pid, mib, rank| ProcessMemory { rank, wait_status: Some(0), ..process(name, pid, mib) };
        let mut app = ranked("app", 12, 40, Some(1));
        (app.peak_pss_bytes, app.rss_at_peak_pss_bytes) = (Some(30 << 20), Some(39 << 20));
        let mut small = ranked("app", 11, 10, Some(0));
        (small.peak_pss_bytes, small.rss_at_peak_pss_bytes) = (Some(7 << 20), Some(8 << 20));
        let mut shell = ranked("sh", 10, 2, Some(1));
        (shell.peak_pss_bytes, shell.rss_at_peak_pss_bytes) = (Some(1 << 19), Some(1 << 19));
        let process_list = vec![app, shell, small, ranked("mpiexec", 9, 1, None)];
        let memory = RunMemory { process_list, ..RunMemory::default() };
        let text = memory_text(&memory, None, &Layout { width: 80, ..Layout::default() });
        let expected = "\x20 ranks        2, peak RSS from 10.0 MiB (rank 0) to 40.0 MiB (rank 1)

  process  pid  rank  peak RSS  at the peak         PSS
  app       12     1  40.0 MiB     20.0 MiB    30.0 MiB
  sh        10     1  2.00 MiB     1.00 MiB           -
  app       11     0  10.0 MiB     5.00 MiB  ≥ 7.00 MiB
  mpiexec    9     -  1.00 MiB    512.0 KiB           -
";
        assert_eq!(text.split_once("\n\n").map(|(_, rest)| rest), Some(expected), "{text}");
        // What is one rank as a whole says so once.
        let text = memory_text(&RunMemory { rank: Some(3), ..memory }, None, &Layout::default());
        assert!(text.contains("  rank         3\n") && !text.contains("pid  rank"), "{text}");
    }

    #[test]
    fn a_summary_fits_any_width() {
        for width in 40..120 {
            let text = summary().body(&Layout { width, ..Layout::default() });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn nothing_known_is_said_in_words() {
        let text = RunSummary::default().body(&Layout::default());
        assert!(text.starts_with("No memory could be read\n"), "{text}");
        assert!(text.contains("how is not known"), "{text}");
    }

    #[test]
    fn statuses_and_signals_have_names() {
        assert_eq!(
            [0, 3 << 8, 9, 0x8b, 64].map(ending),
            ["exit 0", "exit 3", "SIGKILL", "SIGSEGV", "signal 64"]
        );
        assert_eq!(signal_name(31), "SIGSYS");
    }
}
