//! Recording without space left: the recorded program goes on, and every lost event is counted.
//!
//! These tests mount a small file system in a mount namespace of their own, as root or, where the
//! system allows it, in a user namespace.

use std::process::{Command, Output};

use floodmark_testkit::TempDir;

const EVENTS: u64 = 3_000_000;

/// Runs a shell script in a mount namespace, with the paths of the torture programs in its environment.
fn in_namespace(script: &str, folder: &TempDir) -> Output {
    // The owner of our directory in /proc is the effective user.
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc")) == 0;
    let flags: &[&str] = if root { &["-m"] } else { &["-U", "-r", "-m"] };
    let output = Command::new("unshare")
        .args(flags)
        .args(["sh", "-e", "-c", script])
        .env("DIR", folder.path())
        .env("WRITER", env!("CARGO_BIN_EXE_floodmark-writer"))
        .env("COUNTER", env!("CARGO_BIN_EXE_floodmark-counter"))
        .output()
        .expect("unshare (Debian: util-linux) is needed to mount a small file system");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the script failed; mounting needs root or user namespaces:\n{message}");
    output
}

fn counts(output: &Output) -> (u64, u64) {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    (numbers.next().expect("events"), numbers.next().expect("lost"))
}

#[test]
fn a_full_disk_is_a_counted_gap_and_no_trouble_for_the_host() {
    let folder = TempDir::new("full-disk");
    // 16 MiB hold about a million and a half of the three million events.
    let script = "mount -t tmpfs -o size=16m none $DIR
        $WRITER $DIR/run.flood 1 3000000
        test $(df --output=avail $DIR | tail -n 1) -lt 100
        $COUNTER $DIR/run.flood prefix-has-holes
        rm -f $(readlink $DIR/run.flood/segments/*.ring)";
    let (events, lost) = counts(&in_namespace(script, &folder));
    assert_eq!(events + lost, EVENTS, "{events} events and {lost} lost");
    assert!(lost > 100_000 && events > 1_000_000, "{events} events and {lost} lost");
}

#[test]
fn a_full_disk_that_also_holds_the_ring_is_a_counted_gap() {
    let folder = TempDir::new("full-ring");
    let script = "mount -t tmpfs -o size=16m none $DIR
        $WRITER $DIR/run.flood 1 3000000 --small-ring $DIR
        $COUNTER $DIR/run.flood prefix-has-holes
        rm -f $(readlink $DIR/run.flood/segments/*.ring)";
    let (events, lost) = counts(&in_namespace(script, &folder));
    assert_eq!(events + lost, EVENTS, "{events} events and {lost} lost");
    assert!(lost > 100_000 && events > 1_000_000, "{events} events and {lost} lost");
}

#[test]
fn a_full_disk_under_a_sealing_process_is_a_counted_gap() {
    let folder = TempDir::new("full-seal");
    // Sealed events take far less space, so the disk is nearly full before we begin.
    let script = "mount -t tmpfs -o size=16m none $DIR
        head -c 15500000 /dev/zero > $DIR/ballast
        $WRITER $DIR/run.flood 2 1500000 --seal --exit plainly
        rm $DIR/ballast
        $COUNTER $DIR/run.flood prefix-has-holes
        rm -f $(readlink $DIR/run.flood/segments/*.ring)";
    let (events, lost) = counts(&in_namespace(script, &folder));
    assert_eq!(events + lost, EVENTS, "{events} events and {lost} lost");
    assert!(lost > 0 && events > 0, "{events} events and {lost} lost");
}

#[test]
fn a_directory_that_turns_read_only_keeps_what_it_has_and_still_opens() {
    let folder = TempDir::new("read-only");
    let script = "mount -t tmpfs -o size=64m none $DIR
        $WRITER $DIR/run.flood 1 100000 --exit immediately
        mount -o remount,ro $DIR
        $COUNTER $DIR/run.flood
        rm -f $(readlink $DIR/run.flood/segments/*.ring)";
    assert_eq!(counts(&in_namespace(script, &folder)), (100_000, 0));
}
