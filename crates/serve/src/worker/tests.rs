//! Tests of the thread that computes.

use std::path::Path;

use floodmark_testkit::TempDir;

use super::*;

/// Answers of a server that was just started.
fn answers(input: &Path, keep: &KeepProps) -> Vec<Answer> {
    let open = OpenProps::default();
    let started = Worker::start(input.to_owned(), &Filter::default(), open, Some(keep), &()).unwrap();
    let range = RangeQuery { from: 0, to: 1_000_000_000_000, points: 100 };
    let asks = [Ask::Page, Ask::Document, Ask::Range(range), Ask::Snapshots(vec![1_000_000])];
    let answers = asks.map(|ask| {
        let (reply, answer) = oneshot::channel();
        started.asks.send(ask, reply).unwrap();
        answer.blocking_recv().unwrap()
    });
    drop(started.asks);
    started.thread.join().unwrap();
    answers.into()
}

#[test]
fn a_kept_page_answers_as_the_first_one_did_until_the_input_changes() {
    let test = TempDir::new("serve-kept");
    let (input, folder) = (test.path().join("log.csv"), test.path().join("cache"));
    let log = include_str!("../../../../fixtures/rmm/golden.csv");
    std::fs::write(&input, log).unwrap();
    let keep = KeepProps { folder: folder.clone(), least_events: 1 };
    let first = answers(&input, &keep);
    assert!(first.iter().all(std::result::Result::is_ok), "{first:?}");
    let place = || Place::of(&keep, &input, &Filter::default(), &OpenProps::default()).unwrap();
    let kept = place().load().expect("the page was kept");
    assert_eq!(Ok(Bytes::from(kept.html.clone())), first[0]);
    assert_eq!(answers(&input, &keep), first);

    // It is the kept page that is shown, and not one made anew.
    place().keep(KeptPage { html: "kept".into(), ..kept }).unwrap();
    assert_eq!(answers(&input, &keep)[0], Ok(Bytes::from("kept")));

    // Without its last row the input is another one.
    let shorter = log.trim_end().rsplit_once('\n').unwrap().0;
    std::fs::write(&input, shorter).unwrap();
    let other = answers(&input, &keep);
    assert!(other[0].is_ok() && other[0] != first[0] && other[0] != Ok(Bytes::from("kept")));

    let few = KeepProps { folder: test.path().join("few"), least_events: 1_000_000 };
    answers(&input, &few);
    assert!(!few.folder.exists(), "what is read quickly is not kept");
}

#[test]
fn a_bug_in_what_computes_is_told_and_not_taken_for_much_work() {
    let state = Progress { version: 1, state: State::Live, origin_ns: None };
    let progress = Arc::new(watch::Sender::new(state));
    let (tell_broken, mut broken) = oneshot::channel();
    let (questions, receiver) = sync_channel(1);
    let asks = Asks { questions, progress: Arc::clone(&progress), policy: String::new() };
    let ask = || asks.send(Ask::Page, oneshot::channel().0);
    assert_eq!(ask(), Ok(()));
    assert_eq!(ask(), Err(Unanswered::Busy));
    guarded(&progress, tell_broken, move || {
        drop(receiver);
        panic!("a bug");
    });
    assert_eq!(broken.try_recv(), Ok(()));
    assert!(progress.borrow().is_failed() && progress.borrow().json().contains(&Error::Broken.to_string()));
    assert_eq!(ask(), Err(Unanswered::Broken));
}
