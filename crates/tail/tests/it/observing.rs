//! What samplers record comes out as it went in: subjects, samples, output, stacks.
#![expect(unsafe_code, reason = "forks, as the programs we record do")]

use floodmark_event::{
    Metric, OutputStream, StackId, StackReason, StackSeen, Subject, SubjectEnd, SubjectId, SubjectKind,
};
use floodmark_tail::clock::monotonic_ns;
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder, When};
use proptest::prelude::*;

use crate::tailing::{Observed, Tail, TestTrace as Folder, global_turn};

fn process(number: u64, parent: SubjectId) -> Subject {
    let (name, detail) = (format!("worker-{number}"), format!("/usr/bin/worker --number {number}"));
    Subject { kind: SubjectKind::Process, number, start_ns: 1_700_000_000_000_000_000, parent, name, detail }
}

/// What one of the recording functions is called with.
#[derive(Clone, Debug)]
enum Call {
    Samples(u32, Vec<(Metric, u64)>, u64),
    Output(OutputStream, Vec<u8>, u64),
    Stack(u32, StackSeen, u64),
    Event(u64),
}

impl Call {
    fn record(&self, recorder: &Recorder) {
        match self {
            Self::Samples(subject, values, time) => {
                recorder.samples(SubjectId(*subject), values, When::At(*time));
            }
            Self::Output(stream, bytes, time) => recorder.output(*stream, bytes, When::At(*time)),
            Self::Stack(subject, seen, time) => {
                recorder.stack_sample(SubjectId(*subject), seen, When::At(*time));
            }
            Self::Event(address) => recorder.alloc(*address, 1, &AllocDomain::default(), StackId(0)),
        }
    }

    fn expected(&self, into: &mut Vec<Observed>) {
        match self {
            Self::Samples(subject, values, time) => {
                let sample =
                    |(metric, value): &_| Observed::Sample(*time, SubjectId(*subject), *metric, *value);
                into.extend(values.iter().map(sample));
            }
            // Pieces are put together again, see `join`.
            Self::Output(stream, bytes, time) if !bytes.is_empty() => {
                into.push(Observed::Output(*time, *stream, bytes.clone()));
            }
            Self::Stack(subject, seen, time) => {
                into.push(Observed::Stack(*time, SubjectId(*subject), *seen));
            }
            _ => {}
        }
    }
}

/// Joins output of the same stream and time that follows one another.
fn join(rows: Vec<Observed>) -> Vec<Observed> {
    let mut joined: Vec<Observed> = Vec::new();
    for row in rows {
        match (joined.last_mut(), row) {
            (
                Some(Observed::Output(last_time, last_stream, last)),
                Observed::Output(time, stream, mut bytes),
            ) if *last_time == time && *last_stream == stream => last.append(&mut bytes),
            (_, row) => joined.push(row),
        }
    }
    joined
}

fn metric() -> impl Strategy<Value = Metric> {
    (0..Metric::ALL.len()).prop_map(|index| Metric::ALL[index])
}

/// Values as they come: whole pages, whole milliseconds, and anything at all.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..1 << 20).prop_map(|pages| pages * 4096),
        (0u64..1 << 20).prop_map(|kib| kib * 1024),
        (0u64..1000).prop_map(|ms| ms * 1_000_000),
        any::<u64>(),
        0u64..100,
    ]
}

/// Times that stand still, go on, and go back.
fn time() -> impl Strategy<Value = u64> {
    let near = 1_000_000_000_000u64;
    prop_oneof![Just(near), near..near + 1_000_000_000, any::<u64>()]
}

fn call() -> impl Strategy<Value = Call> {
    let stream = (0usize..3).prop_map(|index| OutputStream::ALL[index]);
    let reason = (0usize..5).prop_map(|index| StackReason::ALL[index]);
    let seen =
        (any::<u64>(), any::<u32>(), reason, any::<u64>()).prop_map(|(thread, stack, reason, pause_ns)| {
            StackSeen { thread, stack: StackId(stack), reason, pause_ns }
        });
    // Subjects far apart meet in the table of latest values.
    let subject = prop_oneof![1u32..50, any::<u32>()];
    let length = prop_oneof![10 => 0usize..200, 1 => 0usize..200_000];
    let bytes = (length, any::<u8>())
        .prop_map(|(length, seed)| (0..length).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect());
    prop_oneof![
        6 => (subject.clone(), proptest::collection::vec((metric(), value()), 0..40), time())
            .prop_map(|(subject, values, time)| Call::Samples(subject, values, time)),
        1 => (stream, bytes, time()).prop_map(|(stream, bytes, time)| Call::Output(stream, bytes, time)),
        1 => (subject, seen, time()).prop_map(|(subject, seen, time)| Call::Stack(subject, seen, time)),
        1 => any::<u64>().prop_map(Call::Event),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_is_observed_comes_back_in_order(calls in proptest::collection::vec(call(), 1..150)) {
        let folder = Folder::new("observed");
        let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
        for call in &calls {
            call.record(&recorder);
        }
        recorder.stop();
        let tail = Tail::read(&folder.path);
        let mut expected = Vec::new();
        for call in &calls {
            call.expected(&mut expected);
        }
        let found: Vec<Observed> = tail.observed.into_values().flatten().collect();
        prop_assert_eq!(join(found), join(expected));
        prop_assert!(tail.processes[0].losses.is_empty());
    }
}

#[test]
fn subjects_are_defined_before_their_samples_and_end_with_what_is_known() {
    let folder = Folder::new("subjects");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let parent = recorder.subject(&process(10, SubjectId(0)));
    let child = recorder.subject(&process(11, parent));
    let again = recorder.subject(&process(11, parent));
    assert_eq!((parent, child, again), (SubjectId(1), SubjectId(2), SubjectId(3)), "each call makes one");
    recorder.sample(child, Metric::Rss, 4096, When::Now);
    let known = SubjectEnd { wait_status: Some(-1), peak_rss_bytes: Some(0) };
    let unknown = SubjectEnd { wait_status: None, peak_rss_bytes: None };
    recorder.subject_ended(child, known, When::At(77));
    recorder.subject_ended(parent, unknown, When::Now);
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let text = |id: u32| tail.strings.iter().find(|((_, number), _)| *number == id).expect("defined").1;
    let (_, id, entry) = &tail.subjects[1];
    assert_eq!((*id, entry.number, entry.parent), (2, 11, parent));
    assert_eq!((text(entry.name.0).as_str(), entry.kind), ("worker-11", SubjectKind::Process));
    assert_eq!(text(entry.detail.0), "/usr/bin/worker --number 11");
    let ends: Vec<&Observed> =
        tail.observed.iter().filter(|((_, lane), _)| *lane == 0).flat_map(|(_, rows)| rows).collect();
    assert_eq!(ends[0], &Observed::Ended(child, 77, known));
    assert!(matches!(ends[1], Observed::Ended(ended, time, end)
        if *ended == parent && *end == unknown && *time > 77 && *time <= monotonic_ns()));
}

#[test]
fn nothing_is_observed_while_nothing_is_recorded() {
    let folder = Folder::new("unobserved");
    let _turn = global_turn();
    assert_eq!(tail::subject(&process(1, SubjectId(0))), SubjectId(0));
    tail::sample(SubjectId(1), Metric::Rss, 1, When::Now);
    tail::output(OutputStream::Stdout, b"x", When::Now);
    let recorder = Recorder::start_global(RecordProps::new(&folder.path)).expect("starts");
    recorder.stop();
    let tail = Tail::read(&folder.path);
    assert!(tail.observed.is_empty() && tail.subjects.is_empty());
}

#[test]
fn a_forked_child_keeps_the_subjects_it_inherited() {
    let folder = Folder::new("subject-fork");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let subject = recorder.subject(&process(10, SubjectId(0)));
    recorder.sample(subject, Metric::Rss, 4096, When::At(1));
    // SAFETY: the child only records and leaves without running anything of this test program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        recorder.sample(subject, Metric::Rss, 8192, When::At(2));
        let own = recorder.subject(&process(12, subject));
        recorder.sample(own, Metric::Rss, 12288, When::At(3));
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let mut definitions: Vec<(u32, u64)> =
        tail.subjects.iter().map(|(_, id, entry)| (*id, entry.number)).collect();
    definitions.sort_unstable();
    assert_eq!(definitions, [(1, 10), (1, 10), (2, 12)]);
    let mut rows: Vec<Observed> = tail.observed.into_values().flatten().collect();
    rows.sort_by_key(|row| match row {
        Observed::Sample(time, ..) => *time,
        _ => 0,
    });
    let sample = |time, subject, value| Observed::Sample(time, subject, Metric::Rss, value);
    assert_eq!(rows, [sample(1, subject, 4096), sample(2, subject, 8192), sample(3, SubjectId(2), 12288)]);
}

#[test]
fn samples_of_a_hundred_processes_take_few_bytes() {
    let folder = Folder::new("small");
    let recorder = Recorder::start(RecordProps::new(&folder.path)).expect("starts");
    let mut rss = [25_000u64; 100];
    let (mut state, mut time) = (1u64, monotonic_ns());
    let sweeps = 300;
    for _ in 0..sweeps {
        time += 10_000_000;
        for (subject, pages) in (1..).zip(&mut rss) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *pages = pages.wrapping_add(state >> 33 & 63).wrapping_sub(20);
            recorder.sample(SubjectId(subject), Metric::Rss, *pages * 4096, When::At(time));
        }
    }
    recorder.stop();
    let tail = Tail::read(&folder.path);
    let count: usize = tail.observed.values().map(Vec::len).sum();
    assert_eq!(count, 100 * sweeps);
    let bytes = tail.bytes as f64 / count as f64;
    assert!(bytes <= 6.0, "{bytes} bytes for a sample");
}
