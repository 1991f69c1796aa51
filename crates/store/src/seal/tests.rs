//! Wherever sealing ends, by an error or by a kill, nothing that was committed is lost or doubled.
#![expect(unsafe_code, reason = "forks, to be killed at every step")]

use std::path::{Path, PathBuf};

use floodmark_event::SubjectId;
use floodmark_event::tables::Frame;
use floodmark_event::{
    CallAction, CallRow, EventBatch, Metric, SampleRow, ScopeRow, StackId, Subject, SubjectKind,
};
use floodmark_tail::{AllocDomain, Call, RecordProps, Recorder, When};

use super::Sealer;
use crate::error::Result;
use crate::manifest::Run;
use crate::scan::ScanProps;
use crate::source::Source as _;
use crate::steps::{How, fail_at, reached};
use crate::trace::Trace;

/// More steps than sealing has: a test that comes so far does not see its end.
const MAX_STEPS: u64 = 500;
/// Events that fill a chunk and a bit.
const BATCH: u64 = 9_000;

struct TestTrace(PathBuf);

impl TestTrace {
    fn new(name: &str) -> Self {
        // In memory, where there is one: every step is tried, and each syncs files.
        let shared = Path::new("/dev/shm");
        let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let path = folder.join(format!("floodmark-seal-{name}-{}.flood", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for TestTrace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Records a batch: events, and a few rows of every other table.
fn record(recorder: &Recorder, batch: u64) {
    let function = recorder.intern(&format!("batch {batch}"));
    let code = recorder.intern_frame(&Frame { function, ..Frame::default() });
    let stack = recorder.intern_stack(StackId(0), code);
    let (kind, name) = (SubjectKind::Process, format!("subject {batch}"));
    let subject =
        Subject { kind, number: batch, start_ns: 0, parent: SubjectId(0), name, detail: String::new() };
    recorder.subject(&subject);
    recorder.define_device(batch as i32, &format!("GPU-{batch}"));
    for at in 0..BATCH {
        let number = batch * BATCH + at;
        recorder.alloc(number << 20, number, &AllocDomain::default(), stack);
        if at % 1000 == 0 {
            recorder.sample(SubjectId(1), Metric::Rss, number, When::Now);
            recorder.call(&Call { action: CallAction::Call, code, line: number as u32, rss_bytes: None });
            recorder.end_range(recorder.begin_range(function));
        }
    }
}

/// Checks that exactly the first `batches` are there, whether sealed or not.
fn check(path: &Path, batches: u64, step: u64) {
    let trace = Trace::open(path).expect("opens");
    let props = ScanProps::default();
    let mut scan = trace.scan(&props).expect("scans");
    let (mut batch, mut next) = (EventBatch::new(), 0);
    while scan.next(&mut batch).expect("reads") {
        for event in batch.events() {
            assert_eq!(event.address, next << 20, "after step {step}");
            let name = format!("batch {}", next / BATCH);
            assert_eq!(scan.tables().stack_text(event.stack), [name], "after step {step}");
            next += 1;
        }
    }
    assert_eq!(next, batches * BATCH, "after step {step}");
    assert!(scan.losses().is_empty(), "{:?} after step {step}", scan.losses());
    let each = BATCH.div_ceil(1000);
    let numbers: Vec<u64> =
        (0..batches).flat_map(|of| (0..each).map(move |at| of * BATCH + at * 1000)).collect();
    let samples: Vec<u64> = rows::<SampleRow>(&trace).iter().map(|row| row.value).collect();
    assert_eq!(samples, numbers, "after step {step}");
    let calls: Vec<u64> = rows::<CallRow>(&trace).iter().map(|row| u64::from(row.line)).collect();
    assert_eq!(calls, numbers, "after step {step}");
    assert_eq!(rows::<ScopeRow>(&trace).len() as u64, batches * each * 2, "after step {step}");
    assert_eq!(trace.subjects().expect("reads").len() as u64, batches, "after step {step}");
    assert_eq!(scan.tables().devices.len() as u64, batches, "after step {step}");
}

fn rows<T: crate::rows::TableRow>(trace: &Trace) -> Vec<T> {
    let mut scan = trace.rows::<T>(&ScanProps::default()).expect("scans");
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    while scan.next(&mut rows).expect("reads") {
        all.append(&mut rows);
    }
    all
}

/// What a sealing thread does, once.
fn work(sealer: &mut Sealer) -> Result<()> {
    sealer.find_rings()?;
    sealer.drain()?;
    sealer.seal()
}

/// A trace of which the first batch is sealed and the second is not.
fn start(name: &str) -> (TestTrace, Recorder) {
    let trace = TestTrace::new(name);
    let recorder = Recorder::start(RecordProps::new(&trace.0)).expect("starts");
    record(&recorder, 0);
    let mut sealer = Sealer::open(&trace.0, Run::default()).expect("opens");
    work(&mut sealer).expect("seals");
    record(&recorder, 1);
    (trace, recorder)
}

#[test]
fn an_error_at_any_step_costs_nothing() {
    for step in 1.. {
        assert!(step < MAX_STEPS);
        let (trace, recorder) = start("error");
        let mut sealer = Sealer::open(&trace.0, Run::default()).expect("opens");
        fail_at(Some((step, How::Error)));
        let result = work(&mut sealer);
        let steps = reached();
        fail_at(None);
        check(&trace.0, 2, step);
        // The same sealer tries again, or another one does.
        if step % 2 == 0 {
            work(&mut sealer).expect("seals");
            check(&trace.0, 2, step);
        }
        record(&recorder, 2);
        recorder.stop();
        if step % 2 == 0 {
            sealer.finish().expect("seals");
        } else {
            drop(sealer);
        }
        check(&trace.0, 3, step);
        let names: Vec<_> = std::fs::read_dir(trace.0.join("segments")).expect("reads").flatten().collect();
        assert_eq!(names.len(), 1, "nothing but the lock is left after step {step}: {names:?}");
        if result.is_ok() {
            assert!(steps > 25, "sealing has {steps} steps");
            return;
        }
    }
}

#[test]
fn a_kill_at_any_step_costs_nothing() {
    for step in 1.. {
        assert!(step < MAX_STEPS);
        let (trace, recorder) = start("kill");
        // SAFETY: the child only seals and leaves without running anything of this test program.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let sealed = Sealer::open(&trace.0, Run::default()).and_then(|mut sealer| {
                fail_at(Some((step, How::Exit)));
                work(&mut sealer)
            });
            // SAFETY: as above. Reached only if sealing has fewer steps.
            unsafe { libc::_exit(if sealed.is_ok() { 1 } else { 2 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) < 2,
            "status {status:#x} at step {step}"
        );
        check(&trace.0, 2, step);
        record(&recorder, 2);
        recorder.stop();
        // The first open after a crash seals what is left.
        check(&trace.0, 3, step);
        assert!(!Trace::open(&trace.0).expect("opens").is_live(), "after step {step}");
        if libc::WEXITSTATUS(status) == 1 {
            assert!(step > 25, "sealing has {step} steps");
            return;
        }
    }
}
