//! What the screen looks like, at 80 x 24 and at 200 x 50, from data that is always the same.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use floodmark_event::Row;
use floodmark_event::tables::Frame;
use floodmark_event::{
    Action, Event, EventBatch, Kind, Metric, OutputRow, OutputStream, ProcessId, SampleRow, ScopeAction,
    ScopeRow, StackId, SubjectKind, SubjectRow, Tables,
};
use floodmark_inspect::{Loss, OpenProps};
use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::{Theme, draw};
use super::follow::{self, Begins, Ends, Followed, Update};
use super::picture::{Gather, Origin, Picture, Progress};
use super::state::State;
use super::update;

const S: i64 = 1_000_000_000;
const START: i64 = 1_782_887_341 * S;
const MIB: u64 = 1 << 20;

fn screen(picture: &Picture, state: &mut State, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, picture, state, &Theme::plain())).expect("drawn");
    let buffer = terminal.backend().buffer();
    let row = |y: u16| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        cells.trim_end().to_owned()
    };
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

fn both(name: &str, picture: &Picture) {
    assert_snapshot!(format!("top_{name}_80x24"), screen(picture, &mut State::default(), (80, 24)));
    assert_snapshot!(format!("top_{name}_200x50"), screen(picture, &mut State::default(), (200, 50)));
}

fn press(picture: &Picture, state: &mut State, keys: &[KeyCode]) {
    for key in keys {
        update::key(state, picture, KeyEvent::new(*key, KeyModifiers::NONE));
    }
}

fn subject(tables: &mut Tables, subject: u64, kind: SubjectKind, number: u64, name: &str, detail: &str) {
    let row = SubjectRow {
        start_ns: Some(START + number as i64),
        detail: detail.into(),
        ..SubjectRow::new(subject, kind, number, name)
    };
    tables.subjects.insert(subject, row);
}

fn sample(time_ns: i64, subject: u64, metric: Metric, value: u64) -> Row {
    Row::Sample(SampleRow { time_ns, subject, metric, value })
}

fn output(time_ns: i64, text: &str) -> Row {
    let bytes = text.as_bytes().to_vec();
    Row::Output(OutputRow { time_ns, process: ProcessId(1), stream: OutputStream::Stdout, bytes })
}

fn mark(time_ns: i64, name: &str, tables: &mut Tables) -> Row {
    Row::Scope(ScopeRow {
        time_ns,
        process: ProcessId(1),
        thread: 1,
        action: ScopeAction::Mark,
        scope: 0,
        parent: 0,
        name: tables.intern(name),
    })
}

/// Four solvers that take turns in being large, started by a script, with a device.
fn run_of_processes() -> Picture {
    let mut tables = Tables::default();
    subject(&mut tables, 1, SubjectKind::Job, 0, "job", "");
    subject(&mut tables, 2, SubjectKind::Process, 4000, "sh", "sh run.sh --all");
    for number in 0..4 {
        let command = format!("./solver --mesh mesh-{number}.e --refine 3 --output out/{number}");
        subject(&mut tables, 3 + number, SubjectKind::Process, 4001 + number, "solver", &command);
    }
    subject(&mut tables, 9, SubjectKind::Device, 0, "NVIDIA H200", "GPU-1");
    let mut gather = Gather::new();
    let mut rows = Vec::new();
    for step in 0..240u64 {
        let at = START + step as i64 * S / 20;
        if step % 60 == 10 {
            rows.push(mark(at, &format!("Time Step {}", step / 60), &mut tables));
            rows.push(output(at, &format!("Time Step {}, time = {}\n", step / 60, step / 60)));
        }
        if step % 7 == 0 {
            rows.push(output(at, &format!("  {step:3} Nonlinear |R| = 1.{step:03}e-0{}\n", step % 9)));
        }
        let solvers = (0..4u64).map(|number| {
            let turn = (step + number * 30) % 120;
            (100 + if turn < 60 { turn * 12 } else { (120 - turn) * 12 }) * MIB / (number + 1)
        });
        let mut total = 3 * MIB;
        rows.push(sample(at, 2, Metric::Rss, 3 * MIB));
        for (number, bytes) in (0..).zip(solvers) {
            rows.push(sample(at, 3 + number, Metric::Rss, bytes));
            rows.push(sample(at, 3 + number, Metric::Pss, bytes - 20 * MIB));
            total += bytes;
        }
        rows.push(sample(at, 9, Metric::GpuUsed, (2000 + step * 40) * MIB));
        rows.push(sample(at, 9, Metric::GpuTotal, 141 * 1024 * MIB));
        rows.push(sample(at, 1, Metric::Rss, total));
    }
    let end = tables.subjects.get_mut(&6).expect("made above");
    end.end_ns = Some(START + 11 * S);
    gather.rows(&rows, &tables);
    let origin = Origin { source: "run.flood".into(), command: Some("sh run.sh --all".into()) };
    Picture { origin, progress: Progress::Recording, ..gather.picture(&tables) }
}

/// A training step that allocates from several places.
fn events_with_stacks() -> Picture {
    let mut tables = Tables::default();
    let mut stack = |frames: &[(&str, u32)]| {
        frames.iter().fold(StackId(0), |parent, (function, line)| {
            let (function, file) = (tables.intern(function), tables.intern("train.py"));
            let frame = tables.intern_frame(Frame { function, file, line: *line, ..Frame::default() });
            tables.intern_stack(parent, frame)
        })
    };
    let sites = [
        stack(&[("main", 90), ("load_batch", 12)]),
        stack(&[("main", 91), ("forward", 40), ("attention", 57)]),
        stack(&[("main", 92), ("backward", 70)]),
        stack(&[("main", 93), ("optimizer_step", 81)]),
    ];
    let mut batch = EventBatch::new();
    for step in 0..400u64 {
        let event = Event {
            time_ns: START + step as i64 * S / 100,
            process: ProcessId(1),
            action: Action::Alloc,
            address: 0x1000 + step * 0x100,
            bytes: (1 + step % 5) * 3 * MIB,
            device: 0,
            kind: Kind::Device,
            stack: sites[(step % 11 % 4) as usize],
            ..Event::default()
        };
        batch.push(&event);
        if step % 100 > 40 && step % 3 > 0 {
            batch.push(&Event { action: Action::Free, time_ns: event.time_ns + 1, ..event });
        }
    }
    let mut gather = Gather::new();
    gather.events(&batch);
    let origin = Origin { source: "train.flood".into(), command: Some("python train.py".into()) };
    Picture { origin, progress: Progress::Ended, ..gather.picture(&tables) }
}

#[test]
fn a_run_of_several_processes_with_output_and_marks() {
    both("run", &run_of_processes());
}

#[test]
fn events_with_stacks_show_who_holds_memory() {
    let picture = events_with_stacks();
    both("events", &picture);
    let mut state = State::default();
    press(&picture, &mut state, &[KeyCode::Tab, KeyCode::Char('h'), KeyCode::Char('s')]);
    assert_snapshot!("top_events_now", screen(&picture, &mut state, (80, 24)));
}

#[test]
fn the_guide_shows_the_screen() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/top.md");
    let guide = std::fs::read_to_string(&path).expect("a guide");
    let (before, rest) = guide.split_once("```text\n").expect("a screen");
    let (shown, after) = rest.split_once("```").expect("its end");
    let screen = format!("{}\n", screen(&run_of_processes(), &mut State::default(), (80, 24)));
    if crate::env::value("FLOODMARK_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}```text\n{screen}```{after}")).expect("written");
        return;
    }
    assert_eq!(shown, screen);
}

#[test]
fn remarks_do_not_say_that_something_is_missing() {
    let header = |loss: Loss| {
        let picture = Picture { losses: vec![loss], ..run_of_processes() };
        screen(&picture, &mut State::default(), (120, 24)).lines().take(3).collect::<String>()
    };
    let (lost, remark) = (header(Loss::loss(1, "a line")), header(Loss::remark(1, "a line")));
    assert!(lost.contains("something is missing"), "{lost}");
    assert!(!remark.contains("something is missing"), "{remark}");
}

#[test]
fn an_empty_trace_that_just_began() {
    let origin = Origin { source: "run.flood".into(), command: Some("./solver -i input.i".into()) };
    both("empty", &Picture { origin, ..Picture::default() });
}

#[test]
fn the_cursor_tells_the_value_and_zoom_shows_a_part() {
    let picture = run_of_processes();
    let mut state = State::default();
    screen(&picture, &mut state, (80, 24));
    press(&picture, &mut state, &[KeyCode::Left; 40]);
    press(&picture, &mut state, &[KeyCode::Char('+'), KeyCode::Char('+')]);
    assert_snapshot!("top_cursor", screen(&picture, &mut state, (80, 24)));
    press(&picture, &mut state, &[KeyCode::Char('?')]);
    assert_snapshot!("top_help", screen(&picture, &mut state, (80, 24)));
}

/// The last picture of a file.
fn picture_of(path: PathBuf) -> Picture {
    let (tell, hear) = sync_channel(100);
    let name = path.file_name().expect("a file").to_owned();
    let input = Followed { path, props: OpenProps::default(), command: None };
    follow::read(&input, Begins::Before, &Ends::default(), &tell);
    drop(tell);
    let last = hear.into_iter().last().expect("a picture");
    let picture = match last {
        Update::Picture(picture) => picture,
        Update::Failed(error) => panic!("{error}"),
    };
    let origin = Origin { source: name.to_string_lossy().into_owned(), command: None };
    Picture { origin, ..*picture }
}

#[test]
fn logs_of_other_tools_are_still_pictures() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for (name, file) in [("mprof", "mprof/functions.dat"), ("smi", "smi/query_gpu_all.csv")] {
        let picture = picture_of(fixtures.join(file));
        assert_eq!(picture.progress, Progress::Ended);
        assert_snapshot!(format!("top_log_{name}"), screen(&picture, &mut State::default(), (80, 24)));
    }
    let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/it/data/golden.csv");
    assert_snapshot!("top_log_rmm", screen(&picture_of(events), &mut State::default(), (80, 24)));
}

#[test]
fn a_screen_of_any_size_is_drawn_without_a_panic() {
    for picture in [run_of_processes(), events_with_stacks(), Picture::default()] {
        for (width, height) in
            [(1, 1), (39, 30), (40, 9), (40, 10), (41, 13), (80, 11), (119, 60), (120, 30), (500, 200)]
        {
            let mut state = State::default();
            for _ in 0..7 {
                let seen = screen(&picture, &mut state, (width, height));
                assert_eq!(seen.contains("quit"), width >= 40 && height >= 10, "{width} x {height}");
                press(
                    &picture,
                    &mut state,
                    &[KeyCode::Left, KeyCode::Char('+'), KeyCode::Tab, KeyCode::Down],
                );
            }
        }
    }
    assert_snapshot!("top_small", screen(&run_of_processes(), &mut State::default(), (40, 10)));
    assert_snapshot!("top_too_small", screen(&run_of_processes(), &mut State::default(), (38, 6)));
}

#[test]
fn recorded_text_cannot_act_on_the_terminal() {
    let evil = "\x1b[2J\x1b]0;title\x07\u{202e}<script>alert(1)</script>\0\u{9b}31m\u{200b}\r\n";
    let long = "x".repeat(10_000);
    let mut tables = Tables::default();
    subject(&mut tables, 1, SubjectKind::Process, 7, evil, &format!("{evil}{long}"));
    subject(&mut tables, 2, SubjectKind::Device, 0, evil, "");
    let function = tables.intern(evil);
    let frame = tables.intern_frame(Frame { function, file: function, ..Frame::default() });
    let stack = tables.intern_stack(StackId(0), frame);
    let rows = [
        mark(START, evil, &mut tables),
        output(START, evil),
        output(START, &long),
        output(START, "\n\u{5d0}\u{5d1} \u{1f980} e\u{301}\n"),
        sample(START, 1, Metric::Rss, 5 * MIB),
        sample(START, 2, Metric::GpuUsed, 5 * MIB),
        sample(START + S, 1, Metric::Rss, u64::MAX),
    ];
    let mut gather = Gather::new();
    gather.rows(&rows, &tables);
    let mut batch = EventBatch::new();
    batch.push(&Event { time_ns: START, bytes: u64::MAX, address: 1, stack, ..Event::default() });
    gather.events(&batch);
    let origin = Origin { source: evil.into(), command: Some(format!("{evil}{long}")) };
    let picture = Picture { origin, ending: Some(evil.into()), ..gather.picture(&tables) };
    for size in [(80, 24), (200, 50)] {
        let mut state = State::default();
        for _ in 0..7 {
            let seen = screen(&picture, &mut state, size);
            let bad = |c: char| c != '\n' && (c.is_control() || ('\u{200b}'..='\u{202e}').contains(&c));
            assert_eq!(seen.chars().find(|c| bad(*c)), None);
            press(&picture, &mut state, &[KeyCode::Tab]);
        }
    }
    assert!(screen(&picture, &mut State::default(), (200, 50)).contains("<script>alert(1)</script>"));
}
