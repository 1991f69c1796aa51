//! A command finds everything as if nobody watched.

use std::process::{Command, Stdio};

use crate::programs::WatchTest;

/// What a command says of its surroundings, with a watcher and without.
fn both(options: &[&str], before: &str, script: &str) -> (String, String) {
    let test = WatchTest::new(&format!("untouched{}", script.len()));
    let said = |watcher: &str| {
        let script = format!("{before} exec {watcher} sh -c '{script}'");
        let mut command = Command::new("sh");
        let output = command.args(["-c", &script]).stdin(Stdio::null()).output().expect("sh runs");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let report = test.join("report");
    let options = format!("report={} {}", report.display(), options.join(" "));
    (said(""), said(&format!("{} {options} --", env!("CARGO_BIN_EXE_floodmark-watch"))))
}

#[test]
fn signals_limits_and_surroundings_are_as_they_were() {
    let script = "grep -E \"^(Sig(Blk|Ign|Cgt)|Seccomp|NoNewPrivs)\" /proc/self/status; \
                  pwd; umask; ulimit -a; nice; cut -d\" \" -f 5,6,7,8 /proc/self/stat | wc -w; env | grep -v ^_ | sort";
    for before in ["", "trap \"\" HUP QUIT PIPE;", "ulimit -n 200; cd /; umask 077;"] {
        for options in [&[][..], &["pipes"]] {
            let (alone, watched) = both(options, before, script);
            assert_eq!(alone, watched, "{before} {options:?}");
        }
    }
}

#[test]
fn no_descriptor_is_added_and_none_is_taken() {
    let script = "ls /proc/self/fd; echo hello >&9; cat <&8";
    let (alone, watched) = both(&[], "exec 9>&1; exec 8</etc/hostname;", script);
    assert_eq!(alone, watched);
    assert!(alone.contains("hello\n"));
}

#[test]
fn the_command_is_in_our_process_group() {
    let script = "ps -o pgid= -p $$ -p $PPID | sort -u | wc -l";
    let test = WatchTest::new("group");
    let output = test.watcher(&[]).args(["sh", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
}

#[test]
fn standard_input_belongs_to_the_command() {
    let test = WatchTest::new("stdin");
    let source = test.join("source");
    let bytes: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&source, &bytes).unwrap();
    for options in [&[][..], &["pipes"]] {
        let mut watcher = test.watcher(options);
        let output = watcher.arg("cat").stdin(std::fs::File::open(&source).unwrap()).output().unwrap();
        assert!(output.stdout == bytes, "{} bytes came through", output.stdout.len());
    }
}

#[test]
fn a_command_survives_the_end_of_its_watcher() {
    let test = WatchTest::new("survivor");
    let trace = test.join("alive");
    let script = format!("echo $$; sleep 0.5; echo alive > {}", trace.display());
    let mut watcher = test.watcher(&[]);
    let mut watcher = watcher.args(["sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(watcher.stdout.as_mut().unwrap(), &mut first).unwrap();
    watcher.kill().unwrap();
    watcher.wait().unwrap();
    // Its own end is not ours to wait for; it is over when the pipe is closed.
    std::io::Read::read_to_end(watcher.stdout.as_mut().unwrap(), &mut Vec::new()).unwrap();
    assert_eq!(std::fs::read_to_string(trace).unwrap(), "alive\n");
}
