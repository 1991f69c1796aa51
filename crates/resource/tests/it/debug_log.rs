//! The debug log. Its level is the process's, so tests take turns.

use std::fmt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use floodmark_resource::debug_log::{DebugLog, InstallError, Level, install, level, set_level, should_log};
use floodmark_resource::{Address, Simulated, Stream};
use floodmark_testkit::TempDir;
use tracing::subscriber::with_default;

use crate::blocks::{Block, give};
use crate::csv::{Memory, in_another_process};

/// Messages are taken from this project alone.
macro_rules! say {
    ($level:ident, $($message:tt)+) => { tracing::$level!(target: "floodmark_test", $($message)+) };
}

/// For tests that need the usual level, too.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `act` says at `level`.
fn told(level: Level, act: impl FnOnce()) -> String {
    let _turn = turn();
    let out = Memory::default();
    with_default(DebugLog::to_writer(Box::new(out.clone())), || {
        set_level(level);
        act();
        set_level(Level::Info);
    });
    out.text()
}

fn say_all() {
    say!(error, "one");
    say!(warn, "two");
    say!(info, "three");
    say!(debug, "four");
    say!(trace, "five");
}

#[test]
fn levels_say_how_much_is_told() {
    let words = [
        (Level::Trace, 5),
        (Level::Debug, 4),
        (Level::Info, 3),
        (Level::Warn, 2),
        (Level::Error, 1),
        (Level::Critical, 0),
        (Level::Off, 0),
    ];
    for (level, lines) in words {
        assert_eq!(told(level, say_all).lines().count(), lines, "{level}");
    }
}

#[test]
fn every_level_can_be_set_and_named() {
    let _turn = turn();
    for (number, wanted) in Level::ALL.into_iter().enumerate() {
        set_level(wanted);
        assert_eq!((level(), wanted as usize), (wanted, number));
        assert_eq!(wanted.name().parse(), Ok(wanted));
        assert_eq!(wanted.name().to_uppercase().parse(), Ok(wanted));
        for other in Level::ALL {
            assert_eq!(should_log(other), other >= wanted && other != Level::Off);
        }
    }
    set_level(Level::Info);
    for (word, meant) in [("warning", Level::Warn), ("WARNING", Level::Warn), ("err", Level::Error)] {
        assert_eq!(word.parse(), Ok(meant));
    }
    for word in ["", "invalid", "3", "100", "1.2345"] {
        let error = word.parse::<Level>().unwrap_err().to_string();
        assert!(error.contains(&format!("{word:?}")) && error.contains("critical"), "{error}");
    }
}

#[test]
fn a_line_has_its_time_its_level_and_stays_a_line() {
    let text = told(Level::Info, || {
        say!(info, "message");
        say!(warn, pool = 3, name = "a\nb", "two\nlines \u{1b}[31mred {}", "ä");
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let (time, rest) = lines[0].split_at(26);
    assert_eq!(rest, "[info] message");
    let shape: String =
        time.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    assert_eq!(shape, "[0000-00-00 00:00:00.000] ");
    assert_eq!(&lines[1][26..], "[warn] two\\nlines \\u{1b}[31mred ä pool=3 name=a\\nb");
}

/// Says that it is being shown.
struct Loud<'a>(&'a Mutex<u32>);

impl fmt::Display for Loud<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        *self.0.lock().expect("nobody panics") += 1;
        out.write_str("shown")
    }
}

#[test]
fn a_message_that_nobody_wants_is_not_put_together() {
    let shown = Mutex::new(0);
    let text = told(Level::Info, || {
        for _ in 0..10 {
            say!(debug, "{}", Loud(&shown));
        }
        say!(info, "{}", Loud(&shown));
    });
    assert_eq!(*shown.lock().unwrap(), 1);
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn others_have_logs_of_their_own() {
    let text = told(Level::Trace, || {
        tracing::error!(target: "hyper", "not ours");
        let _span = tracing::info_span!(target: "floodmark_test", "a span").entered();
        say!(info, "ours");
    });
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_resource_can_tell_while_it_holds_its_lock() {
    let device = Simulated::new(1024);
    let text = told(Level::Info, || {
        let stranger = Block { address: Address(0x5000), bytes: 1, stream: Stream::DEFAULT };
        std::thread::scope(|scope| {
            let told = tracing::dispatcher::get_default(Clone::clone);
            for _ in 0..4 {
                let told = told.clone();
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&{ told }, || {
                        for _ in 0..50 {
                            give(&device, stranger);
                        }
                    });
                });
            }
        });
    });
    assert_eq!(text.lines().count(), 200);
    assert!(
        text.lines().all(
            |line| line.ends_with("[error] simulated: a block at 0x5000 was given back that is not live")
        )
    );
}

const PART: &str = "FLOODMARK_TEST_DEBUG_LOG";

/// One part of `the_environment_says_where_and_how_much`, in a process that has no subscriber.
fn part(name: &str) {
    match name {
        "say" => {
            install().expect("nothing is in the way");
            install().expect("it is there already");
            say_all();
        }
        "taken" => {
            tracing::subscriber::set_global_default(DebugLog::to_stderr()).expect("the first");
            assert!(matches!(install(), Err(InstallError::Taken)));
        }
        "error" => {
            let error = install().expect_err("the environment is wrong");
            say_all();
            panic!("{error}");
        }
        _ => panic!("there is no part {name}"),
    }
}

#[test]
fn the_environment_says_where_and_how_much() {
    if let Ok(name) = std::env::var(PART) {
        return part(&name);
    }
    let folder = TempDir::new("debug-log");
    let run = |name: &str, variables: &[(&str, &str)]| {
        let mut command: Command =
            in_another_process("debug_log::the_environment_says_where_and_how_much", PART, name);
        for variable in ["FLOODMARK_DEBUG_LOG", "FLOODMARK_DEBUG_LOG_FILE", "RMM_DEBUG_LOG_FILE"] {
            command.env_remove(variable);
        }
        let output = command.envs(variables.iter().copied()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let words = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("[2")).map(|line| line[26..].to_owned()).collect()
    };
    let (well, stderr) = run("say", &[]);
    assert!(well);
    assert_eq!(words(&stderr), ["[error] one", "[warn] two", "[info] three"]);
    // A file is emptied, ours goes before RMM's, and the level is the environment's.
    let (ours, rmms) = (folder.join("ours.log"), folder.join("rmms.log"));
    let (ours, rmms) = (ours.to_str().unwrap(), rmms.to_str().unwrap());
    for path in [ours, rmms] {
        std::fs::write(path, "from before\n").unwrap();
    }
    let files = [
        ("RMM_DEBUG_LOG_FILE", rmms),
        ("FLOODMARK_DEBUG_LOG_FILE", ours),
        ("FLOODMARK_DEBUG_LOG", "WARNING"),
    ];
    let (well, stderr) = run("say", &files);
    assert!(well && words(&stderr).is_empty());
    assert_eq!(words(&std::fs::read_to_string(ours).unwrap()), ["[error] one", "[warn] two"]);
    assert!(!std::fs::read_to_string(ours).unwrap().contains("from before"));
    assert_eq!(std::fs::read_to_string(rmms).unwrap(), "from before\n");
    assert!(run("say", &files[..1]).0);
    assert_eq!(words(&std::fs::read_to_string(rmms).unwrap()).len(), 3);
    // Whoever has a subscriber keeps it, and the file.
    let (well, _) = run("taken", &files);
    assert!(well);
    assert_eq!(words(&std::fs::read_to_string(ours).unwrap()).len(), 2);
    // What is wrong with the environment is said, and nothing is installed.
    let (well, stderr) = run("error", &[("FLOODMARK_DEBUG_LOG", "loud")]);
    assert!(
        !well && stderr.contains("FLOODMARK_DEBUG_LOG: \"loud\" is no level") && words(&stderr).is_empty()
    );
    let missing = folder.join("no/such/folder/log");
    let (well, stderr) = run("error", &[("FLOODMARK_DEBUG_LOG_FILE", missing.to_str().unwrap())]);
    assert!(!well && stderr.contains(missing.to_str().unwrap()) && words(&stderr).is_empty());
    // A disk that is full is told of where somebody may see it, once.
    let (well, stderr) = run("say", &[("FLOODMARK_DEBUG_LOG_FILE", "/dev/full")]);
    assert!(well);
    assert_eq!(stderr.matches("the debug log cannot be written").count(), 1, "{stderr}");
}
