"""The monitor: samples of the own process, from a thread without Python."""

import contextlib
import os
import subprocess
import sys

import pytest

import floodmark
import floodmark.trace
from floodmark import monitoring
from test_trace import COMMAND, tables


def samples(found, metric):
    rows = sorted((row for row in found["sample"] if row["metric"] == metric), key=lambda row: row["time"])
    return [row["value"] for row in rows]


# In a process of its own: what earlier tests recorded may be released at any time, and the size shrinks then.
PROGRAM = """
import os, sys
import floodmark

with floodmark.monitor(0.001, sys.argv[1]) as monitor:
    monitor.mark("before")
    kept = b"1" * 40_000_000
    monitor.mark("after")
tasks = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(monitor.samples, monitor.cpu_seconds > 0, "floodmark-watch" in tasks)
"""


def test_memory_and_messages_are_on_one_clock(tmp_path):
    path = tmp_path / "run.flood"
    program = [sys.executable, "-c", PROGRAM, path]
    count, *said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert said == ["True", "False"]
    found = tables(path)
    sizes, times = samples(found, "rss"), samples(found, "cpu_time")
    assert len(sizes) == len(times) == int(count) >= 2
    assert max(sizes) - sizes[0] >= 40_000_000
    assert times == sorted(times)
    result = subprocess.run([COMMAND, "plot", str(path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "before" in result.stdout and "after" in result.stdout
    assert "resident memory" in result.stdout


def thread_names():
    return [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]


def test_the_program_does_not_wait_for_it(tmp_path):
    """The thread needs no lock of the interpreter: it samples while another thread keeps that."""
    with floodmark.monitor(0.001, tmp_path / "run.flood") as monitor:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            # One native call that keeps the lock.
            sorted(range(2_000_000), key=(0).__add__)
        finally:
            sys.setswitchinterval(before)
    assert monitor.samples > 20


def test_it_joins_the_recording_that_goes_on(tmp_path):
    with floodmark.trace.Profile(0, filepath=tmp_path / "calls.flood", quiet=True):
        with floodmark.monitor(0.001, tmp_path / "other.flood") as outer, floodmark.monitor() as inner:
            pass
    assert outer.path == inner.path == str(tmp_path / "calls.flood")
    assert not (tmp_path / "other.flood").exists()
    found = tables(tmp_path / "calls.flood")
    assert len(samples(found, "rss")) == outer.samples >= 2 and inner.samples == 0
    assert found["call"]


def test_forked_processes_are_monitored(tmp_path, run):
    result = run(
        """
        import os, sys, floodmark, warnings
        warnings.simplefilter("error")
        with floodmark.monitor(10, "run.flood") as monitor:
            pid = os.fork()
            if pid == 0:
                kept = bytearray(30_000_000)
                monitor.stop()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        print(pid, monitor.samples)
        """
    )
    pid, count = map(int, result.stdout.split())
    found = tables(tmp_path / "run.flood")
    child = {row["subject"] for row in found["subject"] if row["number"] == pid}
    sizes = [row["value"] for row in found["sample"] if row["metric"] == "rss" and row["subject"] in child]
    assert len(sizes) == 2 and sizes[1] - sizes[0] >= 29_000_000
    # The parent's: before the fork, and after it.
    assert count == 4 == len(samples(found, "rss")) - len(sizes)


def test_threads_may_fork_at_the_same_time(tmp_path):
    with floodmark.monitor(10, tmp_path / "run.flood") as monitor:
        # As two threads do, of which one forks while the other waits for the monitor's thread to end.
        monitoring._pause()
        monitoring._pause()
        monitoring._resume()
        monitoring._resume()
    assert monitor.samples == 4
    assert "floodmark-watch" not in thread_names()


def statm_descriptors():
    links = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return [number for number, link in links.items() if link.endswith("/statm")]


def test_descriptors_of_the_program_are_not_closed(tmp_path):
    with floodmark.monitor(10, tmp_path / "run.flood"):
        (ours,) = statm_descriptors()
        with open(tmp_path / "mine", "w") as file:
            os.dup2(file.fileno(), ours)
    assert os.path.samestat(os.fstat(ours), os.stat(tmp_path / "mine"))
    # The sample at the end needed another one.
    assert statm_descriptors() == []
    os.close(ours)


def test_under_run_the_run_samples(tmp_path):
    program = (
        "import floodmark\n"
        "with floodmark.monitor(0.001) as monitor:\n"
        "    monitor.mark('here')\n"
        "print(monitor.is_sampled_by_run, monitor.samples)\n"
    )
    words = [COMMAND, "run", "-q", "-o", "run.flood", "--", sys.executable, "-c", program]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stdout == "True 0\n", result.stderr
    found = tables(tmp_path / "run.flood")
    assert [row["number"] for row in found["subject"] if row["kind"] == "process"].count(0) == 0
    assert any("here" in str(row.values()) for row in found["scope"])


def test_intervals_that_make_no_sense_are_refused():
    for interval in (0, -1, 1e9, float("nan")):
        with pytest.raises(ValueError, match="between"):
            floodmark.monitor(interval)
