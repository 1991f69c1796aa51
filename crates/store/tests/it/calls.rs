//! Calls that a tracer recorded: what they take at rest, and that they come back.

use floodmark_event::tables::Frame;
use floodmark_event::{CallAction, CallRow};
use floodmark_store::{Run, ScanProps, Sealer, SealerThread, Table, Trace};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{Call, RecordProps, Recorder, When};

use crate::traces::{column_bytes, rows};
use floodmark_testkit::TempDir;

/// A program whose calls look like those of interpreted code: functions call others in loops and
/// branches, each event takes its own time with noise, and now and then something slow or large happens.
struct Program {
    state: u64,
    time_ns: u64,
    rss_pages: u64,
    /// For each function, what it calls.
    callees: Vec<Vec<u32>>,
    left: u64,
}

const FUNCTIONS: u32 = 400;

impl Program {
    fn new(events: u64) -> Self {
        let mut program =
            Self { state: 7, time_ns: monotonic_ns(), rss_pages: 25_000, callees: Vec::new(), left: events };
        for function in 0..FUNCTIONS {
            let count = program.random(5);
            // Deeper functions have higher numbers, so that every call ends; the last third call nothing.
            let callees = (0..count)
                .map(|_| function + 1 + program.random(u64::from(FUNCTIONS / 8)) as u32)
                .filter(|callee| *callee < FUNCTIONS && function < FUNCTIONS * 2 / 3)
                .collect();
            program.callees.push(callees);
        }
        program
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn event(&mut self, action: CallAction, function: u32, line: u32, each: &mut impl FnMut(Call, u64)) {
        self.left = self.left.saturating_sub(1);
        // 60 to 600 ns of work by function, a quarter of it noise; one in a hundred events takes longer.
        let work = 60 + u64::from(function) * 37 % 540;
        self.time_ns += work * 7 / 8 + self.random(work / 4);
        if self.random(100) == 0 {
            self.time_ns += self.random(20_000);
        }
        if self.random(3000) == 0 {
            self.rss_pages = (self.rss_pages + self.random(64)).saturating_sub(self.random(48));
        }
        let call = Call { action, code: function + 1, line, rss_bytes: Some(self.rss_pages * 4096) };
        each(call, self.time_ns);
    }

    /// Calls `each` with every event of a call of `function`.
    fn call(&mut self, function: u32, each: &mut impl FnMut(Call, u64)) {
        let first = 10 * function;
        let native = function % 4 == 3;
        let (begin, end) = if native {
            (CallAction::CCall, CallAction::CReturn)
        } else {
            (CallAction::Call, CallAction::Return)
        };
        self.event(begin, function, first, each);
        for callee in self.callees[function as usize].clone() {
            // Loops and branches: one in ten does something else than usual.
            let usual = [1, 1, 2, 0, 3][(function + callee) as usize % 5];
            let times = if self.random(10) == 0 { self.random(4) } else { usual };
            for _ in 0..times {
                if self.left > 0 {
                    self.call(callee, each);
                }
            }
        }
        let raised = !native && self.random(500) == 0;
        let end = if raised { CallAction::Exception } else { end };
        self.event(end, function, first + function % 9, each);
    }

    fn run(mut self, mut each: impl FnMut(Call, u64)) {
        while self.left > 0 {
            self.call(0, &mut each);
        }
    }
}

/// Records a program of `events` events, sealed meanwhile; returns the trace.
fn record(folder: &TempDir, events: u64) -> Trace {
    let path = folder.join("calls.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let sealer = SealerThread::spawn(&path, Run::default()).expect("seals");
    for number in 0..FUNCTIONS {
        let function = recorder.intern(&format!("function_{number}"));
        let file = recorder.intern(&format!("module_{}.py", number / 20));
        let frame = Frame { function, file, line: number * 10, ..Frame::default() };
        assert_eq!(recorder.intern_frame(&frame), number + 1);
    }
    Program::new(events).run(|call, time_ns| recorder.call_at(&call, When::At(time_ns)));
    recorder.stop();
    sealer.stop().expect("seals the rest");
    Trace::open(&path).expect("opens")
}

#[test]
fn calls_take_at_most_a_byte_at_rest() {
    let folder = TempDir::new("call-sizes");
    let trace = record(&folder, 500_000);
    let (each, columns) = column_bytes(&trace, Table::Call);
    assert!(each <= 1.0, "{each:.3} bytes for a call: {columns:.3?}");
}

#[test]
#[ignore = "takes a minute: ten million pairs of call and return"]
fn ten_million_pairs_take_at_most_a_byte_each_at_rest() {
    let folder = TempDir::new("call-sizes-many");
    let trace = record(&folder, 20_000_000);
    let (each, columns) = column_bytes(&trace, Table::Call);
    assert!(each <= 1.0, "{each:.3} bytes for a call: {columns:.3?}");
}

#[test]
fn calls_come_back_from_the_tail_and_from_parts() {
    let folder = TempDir::new("call-rows");
    let path = folder.join("a.flood");
    let recorder = Recorder::start(RecordProps::new(&path)).expect("starts");
    let mut sealer = Sealer::open(&path, Run::default()).expect("seals");
    let code = |name: &str, line| {
        let (function, file) = (recorder.intern(name), recorder.intern("app.py"));
        recorder.intern_frame(&Frame { function, file, line, ..Frame::default() })
    };
    let codes = [code("main", 1), code("load", 9), 0];
    let start = monotonic_ns();
    let mut expected = Vec::new();
    for round in 0..5000u64 {
        let action = CallAction::ALL[round as usize % 8];
        let which = round as usize % 3;
        let (line, rss) = (round as u32 % 7, (round > 100).then_some((round / 50) << 12));
        let call = Call { action, code: codes[which], line, rss_bytes: rss };
        recorder.call_at(&call, When::At(start + round * 1500));
        let name = [Some("main"), Some("load"), None][which];
        expected.push((round * 1500, action, name.map(str::to_owned), line, rss));
        if round == 3000 {
            sealer.seal().expect("seals");
        }
    }
    let check = |live: bool| {
        let trace = Trace::open(&path).expect("opens");
        assert_eq!(trace.is_live(), live);
        let clock = &trace.manifest().clocks[0];
        let utc = |elapsed: u64| ((start + elapsed) as i64 + clock.utc_offset_ns()).div_euclid(1000) * 1000;
        let mut scan = trace.rows::<CallRow>(&ScanProps::default()).expect("scans");
        let (mut batch, mut found) = (Vec::new(), Vec::new());
        while scan.next(&mut batch).expect("reads") {
            for row in &batch {
                let name = (row.code != 0).then(|| {
                    let frame = scan.tables().frame(row.code);
                    scan.tables().string(frame.function).to_owned()
                });
                found.push((row.time_ns, row.action, name, row.line, row.rss_bytes));
            }
        }
        let expected: Vec<_> = expected
            .iter()
            .cloned()
            .map(|(elapsed, action, name, line, rss)| (utc(elapsed), action, name, line, rss))
            .collect();
        assert_eq!(found, expected);
        // Row groups of other times are not read.
        let from_ns = Some(utc(4000 * 1500));
        let later = rows::<CallRow>(&path, &ScanProps { from_ns, ..ScanProps::default() });
        assert_eq!(later.len(), 1000);
    };
    check(true);
    recorder.stop();
    sealer.finish().expect("seals");
    check(false);
}
